//! Servers of a private authority: verified by the file that a rule names, and by no other.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use crate::{
    opened_servers::OpenedFixture,
    support::{Session, api::CreateSessionRequest, is_root, skip},
};

const GET: &str = "curl -sS https://own.test:19443/v1/x";

fn rule(id: &str, ca: &Path) -> String {
    format!(
        "[[connect]]\nid = '{id}'\ndecision = 'allow'\nhost = ['own.test', 'vault.test']\naddress = ['127.83.0.0/16']\n\
         port = [19443]\npath = ['/v1/**']\ntls = 'terminate'\nca = '{}'\n",
        ca.display()
    )
}

/// A policy in which nothing else opens TLS to the server.
fn without_others(fixture: &OpenedFixture) -> String {
    let mut policy: toml::Table = fixture.policy_text().parse().expect("it is TOML");
    let rules = policy["connect"].as_array_mut().expect("rules");
    rules.retain(|rule| !["bad-servers", "vault"].contains(&rule["id"].as_str().expect("an id")));
    toml::to_string(&policy).expect("it can be written")
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

async fn verified_by_its_own_file(fixture: &OpenedFixture) {
    let session = Session::open(&fixture.gateway).await;
    let ask = async |line: &str| fixture.sh(&session, line).finish().await.text();
    // The host's roots do not verify the server.
    let unknown = ask(GET).await;
    assert!(unknown.contains("TLS to the server: invalid peer certificate"), "{unknown}");
    let directory: PathBuf = fixture.certificates.path().into();
    let (ca, policy) = (directory.join("private.pem"), without_others(fixture));
    mode(&ca, 0o644);
    fixture.reload(&format!("{policy}\n{}", rule("private", &ca)));
    assert!(ask(GET).await.contains("SERVED https GET own.test"), "{}", ask(GET).await);
    // In HTTP/1.1, too; and no other server is verified by it.
    assert!(ask(&GET.replace("curl", "curl --http1.1")).await.contains("SERVED https GET own.test"));
    let other = ask(&GET.replace("own.test", "vault.test")).await;
    assert!(other.contains("TLS to the server: invalid peer certificate"), "{other}");
    // Commands trust the session's certificate for it, and have nothing of the file.
    let bundle = ask("cat /run/provost/certificates/bundle.pem").await;
    let own = fs::read_to_string(&ca).expect("a file");
    assert!(!bundle.contains(own.lines().nth(1).expect("a line")));
    session.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_a_private_authority_is_verified_by_the_file_of_its_rule_alone() {
    let fixture = OpenedFixture::start();
    verified_by_its_own_file(&fixture).await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_a_private_authority_is_verified_by_an_ordinary_users_gateway() {
    if !is_root() {
        return skip("the other test is of an ordinary user's gateway already");
    }
    let fixture = OpenedFixture::start_as(Some(1_000));
    verified_by_its_own_file(&fixture).await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_certificates_that_cannot_be_used_refuses_and_is_named_with_its_rule() {
    let fixture = OpenedFixture::start();
    let session = Session::open(&fixture.gateway).await;
    let directory = fixture.certificates.path();
    let (ca, policy) = (directory.join("ca.pem"), without_others(&fixture));
    fs::copy(directory.join("private.pem"), &ca).expect("a file");
    mode(&ca, 0o644);
    fixture.reload(&format!("{policy}\n{}", rule("private", &ca)));
    let terminal = async || {
        let done = fixture.sh(&session, GET).finish().await;
        let rules: Vec<String> = done.outcome.connect_denials.iter().map(|one| one.rule.clone()).collect();
        (done.text(), rules)
    };
    assert!(terminal().await.0.contains("SERVED"));
    let named = format!("the certificates of rule \"private\" cannot be used: {} ", ca.display());
    let must_refuse = async |what: &str| {
        let (text, rules) = terminal().await;
        assert!(text.contains("denied by rule \"network.ca\"") && text.contains(&named), "{what}: {text}");
        assert!(text.contains(what) && !text.contains("SERVED"), "{what}: {text}");
        assert_eq!(rules, ["network.ca"], "{what}");
    };
    // Changed behind the gateway's back, which looks again at each request.
    mode(&ca, 0o666);
    must_refuse("can be written by others than its owner (mode 0666)").await;
    mode(&ca, 0o664);
    must_refuse("can be written by others than its owner (mode 0664)").await;
    mode(&ca, 0o644);
    if is_root() {
        std::os::unix::fs::chown(&ca, Some(54_399), None).expect("root may");
        must_refuse("belongs to uid 54399").await;
        std::os::unix::fs::chown(&ca, Some(0), None).expect("root may");
    }
    fs::write(&ca, "no certificate").expect("a file");
    must_refuse("has no certificate").await;
    fs::write(&ca, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").expect("a file");
    must_refuse("has no certificate").await;
    fs::write(&ca, vec![b'\n'; (256 << 10) + 1]).expect("a file");
    must_refuse("has more than 262144 bytes").await;
    fs::remove_file(&ca).expect("it is there");
    must_refuse("cannot be opened").await;
    nix::unistd::mkfifo(&ca, nix::sys::stat::Mode::S_IRUSR).expect("a pipe");
    must_refuse("is no regular file").await;
    fs::remove_file(&ca).expect("it is there");
    fs::copy(directory.join("private.pem"), &ca).expect("a file");
    mode(&ca, 0o644);
    assert!(terminal().await.0.contains("SERVED"), "it is read for each request");
    // Two rules that do not agree.
    let two = format!("{policy}\n{}{}", rule("private", &ca), rule("other", &directory.join("root.pem")));
    fixture.reload(&two);
    let (text, rules) = terminal().await;
    assert!(
        text.contains("rules \"private\" and \"other\"") || text.contains("rules \"other\" and \"private\""),
        "{text}"
    );
    assert_eq!(rules, ["network.ca"]);
    session.close().await;
    fixture.gateway.stop();
}

/// What `provost policy reload` says of a policy that must not come into force.
fn refusal(fixture: &OpenedFixture, text: &str) -> String {
    let before = fixture.policy_text();
    fs::write(fixture.policy_file(), text).expect("the policy can be written");
    let gateway = format!("unix:{}", fixture.gateway.socket.display());
    let reloaded = std::process::Command::new(env!("CARGO_BIN_EXE_provost"))
        .args(["policy", "reload", "--gateway", &gateway])
        .output()
        .expect("provost can be started");
    assert!(!reloaded.status.success(), "{reloaded:?}");
    fs::write(fixture.policy_file(), before).expect("the policy can be written");
    [reloaded.stdout, reloaded.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_certificates_governs_as_a_secret_does() {
    let fixture = OpenedFixture::start();
    let (directory, policy) = (fixture.certificates.path(), without_others(&fixture));
    let ca = directory.join("ca.pem");
    fs::copy(directory.join("private.pem"), &ca).expect("a file");
    let with = |ca: &Path| format!("{policy}\n{}", rule("private", ca));
    mode(&ca, 0o666);
    let text = refusal(&fixture, &with(&ca));
    assert!(
        text.contains("file of trusted certificates cannot be trusted") && text.contains("ca.pem"),
        "{text}"
    );
    mode(&ca, 0o644);
    // In a directory where a command may write it would be the command's to say who is trusted.
    let session = Session::open(&fixture.gateway).await;
    let inside = session.workspace.join("ca.pem");
    fs::copy(&ca, &inside).expect("a file");
    let text = refusal(&fixture, &with(&inside));
    assert!(text.contains("is open") && text.contains("trusted certificates"), "{text}");
    for (wrong, says) in [
        (with(Path::new("ca.pem")), "no absolute path of a file"),
        (with(&ca).replace("tls = 'terminate'\nca", "ca"), "in opened TLS alone"),
    ] {
        let text = refusal(&fixture, &wrong);
        assert!(text.contains(says), "{says}: {text}");
    }
    fixture.reload(&with(&ca));
    // Likewise, a session that is opened later does not reach it.
    let alone = tempfile::Builder::new().prefix("provost-ca-").tempdir().expect("a directory");
    mode(alone.path(), 0o755);
    let later = alone.path().join("ca.pem");
    fs::copy(&ca, &later).expect("a file");
    fixture.reload(&with(&later));
    let roots = vec![alone.path().display().to_string()];
    let request = CreateSessionRequest { roots, ..CreateSessionRequest::default() };
    let mut sessions = session.caller.sessions.clone();
    let refused = sessions.create_session(request).await.expect_err("a command could write it");
    assert!(refused.message().contains("trusted certificates"), "{}", refused.message());
    fixture.reload(&with(&ca));
    let explained = std::process::Command::new(env!("CARGO_BIN_EXE_provost"))
        .args([
            "policy",
            "explain",
            "--connect",
            "GET https://own.test:19443/v1/x",
            "--address",
            "127.83.0.1",
        ])
        .arg("--policies")
        .arg(fixture.policy_file().parent().expect("a directory"))
        .output()
        .expect("provost can be started");
    let text = String::from_utf8_lossy(&explained.stdout);
    assert!(text.contains(&format!("the server verified by {} (private)", ca.display())), "{explained:?}");
    session.close().await;
    fixture.gateway.stop();
}
