//! Secrets that are put into requests: used for the hosts of their rule, and never inside.

use std::{fs, os::unix::fs::FileExt as _, path::Path};

use provost::proto::v1::Network;

use crate::{
    opened_servers::{OpenedFixture, PORT, SECRET},
    support::{EndOfInput, Session, code, is_root, skip},
};

const PLACEHOLDER: &str = "provost-placeholder-VAULT_TOKEN";

async fn the_secret_is_used_and_never_inside(fixture: &OpenedFixture) {
    let session = Session::open(&fixture.gateway).await;
    let right = format!("auth={}", OpenedFixture::digest(&format!("Bearer {SECRET}")));
    let own = format!("auth={}", OpenedFixture::digest(&format!("Bearer {PLACEHOLDER}")));
    let other = format!("auth={}", OpenedFixture::digest("Basic eA=="));
    let all = "-H \"Authorization: Bearer $VAULT_TOKEN\"";
    for (request, expected) in [
        // Set, replaced, and replaced where there are two of them, or one in another form.
        ("https://vault.test:19443/v1/x".to_owned(), &right),
        (format!("{all} https://vault.test:19443/v1/x"), &right),
        (format!("--http1.1 {all} https://vault.test:19443/v1/x"), &right),
        (format!("{all} -H 'authorization: Basic eA==' https://vault.test:19443/v1/x"), &right),
        (format!("--http1.1 {all} -H 'AUTHORIZATION: Basic eA==' https://vault.test:19443/v1/x"), &right),
        ("-u x:y https://a.vault.test:19443/v1/x".to_owned(), &right),
        ("-X POST -d x https://vault.test:19443/v1/x".to_owned(), &right),
        // Elsewhere the program's own goes on as it is.
        (format!("{all} https://carried.test:19443/v1/x"), &own),
        ("-H 'Authorization: Basic eA==' https://carried.test:19443/v1/x".to_owned(), &other),
        (format!("{all} http://vault.test:19444/v1/x"), &own),
        (format!("{all} http://carried.test:19444/v1/x"), &own),
        // A redirect is a request of the program's own, and judged by itself.
        (format!("-L {all} https://vault.test:19443/to?https://vault.test:19443/v1/x"), &right),
        ("-L https://vault.test:19443/to?https://carried.test:19443/v1/x".to_owned(), &"auth=-".to_owned()),
        ("-L https://vault.test:19443/to?http://vault.test:19444/v1/x".to_owned(), &"auth=-".to_owned()),
    ] {
        let done = fixture.sh(&session, &format!("curl -sS --path-as-is {request}")).finish().await;
        let text = done.text();
        assert!(text.contains("SERVED") && text.contains(expected.as_str()), "{request}: {expected}: {text}");
    }
    // Where the request is refused, no secret is used for it.
    let refused = fixture.sh(&session, &format!("curl -sS {all} https://vault.test:19443/v2")).finish().await;
    assert!(refused.text().contains("denied by rule \"default\""), "{}", refused.text());
    // A server that says the secret again.
    let echoed = fixture.sh(&session, "curl -sS https://vault.test:19443/echo").finish().await;
    let hidden = "*".repeat(SECRET.len());
    assert_eq!(echoed.text(), format!("ECHO Bearer {hidden}\n"));

    let records = fixture.records("connection");
    let given = |record: &&serde_json::Value| record["secrets"] == serde_json::json!(["VAULT_TOKEN"]);
    assert!(records.iter().any(|record| given(&record) && record["path"] == "/v1/x"), "{records:#?}");
    assert!(
        records
            .iter()
            .filter(given)
            .all(|record| record["decision"] == "allow" && record["tls"] == "terminate")
    );
    session.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_is_put_into_requests_to_its_host_in_opened_tls_and_nowhere_else() {
    let fixture = OpenedFixture::start();
    the_secret_is_used_and_never_inside(&fixture).await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_is_put_into_requests_by_an_ordinary_users_gateway() {
    if !is_root() {
        return skip("the other test is of an ordinary user's gateway already");
    }
    let fixture = OpenedFixture::start_as(Some(1_000));
    the_secret_is_used_and_never_inside(&fixture).await;
    fixture.gateway.stop();
}

/// Where a secret stands in what a process has mapped, but for what cannot be read.
fn in_memory(pid: u32, secret: &[u8]) -> bool {
    let (Ok(maps), Ok(memory)) =
        (fs::read_to_string(format!("/proc/{pid}/maps")), fs::File::open(format!("/proc/{pid}/mem")))
    else {
        return false;
    };
    maps.lines().any(|line| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let (from, to) = range.expect("a range");
        let number = |text| u64::from_str_radix(text, 16).expect("a number");
        let mut bytes = vec![0; usize::try_from(number(to) - number(from)).expect("it fits").min(256 << 20)];
        let count = memory.read_at(&mut bytes, number(from)).unwrap_or_default();
        memchr::memmem::find(&bytes[..count], secret).is_some()
    })
}

/// All files below a directory that have it.
pub(crate) fn in_files(directory: &Path, secret: &[u8], found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            in_files(&path, secret, found);
        } else if kind.is_file()
            && fs::read(&path).is_ok_and(|bytes| memchr::memmem::find(&bytes, secret).is_some())
        {
            found.push(path.display().to_string());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_of_requests_is_in_no_process_of_the_session_and_in_no_file() {
    if !is_root() {
        return skip("root reads the memory of all processes");
    }
    let fixture = OpenedFixture::start();
    let session = Session::open(&fixture.gateway).await;
    let script = "for path in v1/x v2 echo v1/private/y; do curl -sS https://vault.test:19443/$path >answer 2>&1; done; \
        rm answer; env; cat /run/provost/certificates/*; echo done; read line";
    let terminal = fixture.sh(&session, script).stdin().create().await;
    terminal.until("done").await;
    let gateway = fixture.gateway.pid_now();
    let (mut session_processes, mut net_processes) = (Vec::new(), Vec::new());
    for entry in fs::read_dir("/proc").expect("it is there").flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        match descends_from(pid, gateway) {
            true if comm == "provost-net\n" => net_processes.push(pid),
            true => session_processes.push(pid),
            false => {}
        }
    }
    assert!(session_processes.len() >= 2, "{session_processes:?}: a supervisor and a shell");
    for pid in &session_processes {
        assert!(
            !in_memory(*pid, SECRET.as_bytes()),
            "{pid}: {:?}",
            fs::read_to_string(format!("/proc/{pid}/comm"))
        );
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        assert!(memchr::memmem::find(&environ, SECRET.as_bytes()).is_none(), "{pid}");
    }
    // It is looked for as it should be: the gateway masks it, and so has it.
    assert!(in_memory(gateway, SECRET.as_bytes()));
    // Who carries it leaves no core file, and lets nobody of its id look.
    for pid in net_processes {
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).expect("limits");
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap_or_default();
        assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
        let owner =
            std::os::unix::fs::MetadataExt::uid(&fs::metadata(format!("/proc/{pid}/mem")).expect("it runs"));
        assert_eq!(owner, 0, "what is not dumpable belongs to root: proc_pid_environ(5)");
    }
    let mut found = Vec::new();
    in_files(&fixture.gateway.state, SECRET.as_bytes(), &mut found);
    in_files(&session.workspace, SECRET.as_bytes(), &mut found);
    in_files(&fixture.gateway.directory().join("policies"), SECRET.as_bytes(), &mut found);
    assert!(found.is_empty(), "{found:?}");
    assert!(!fixture.gateway.log_tail().contains(SECRET));
    terminal.write(b"\n", EndOfInput::After).await.expect("it reads");
    assert_eq!(code(&terminal.wait().await), 0);
    let output = String::from_utf8_lossy(&terminal.output().await.data).into_owned();
    assert!(output.contains(&format!("VAULT_TOKEN={PLACEHOLDER}\n")) && !output.contains(SECRET), "{output}");
    assert!(!output.contains("PRIVATE KEY"), "{output}");
    session.close().await;
    fixture.gateway.stop();
}

fn descends_from(pid: u32, ancestor: u32) -> bool {
    let mut pid = pid;
    for _ in 0..64 {
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
        let parent = stat
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.split(' ').nth(1))
            .and_then(|text| text.parse().ok());
        match parent {
            Some(parent) if parent == ancestor => return true,
            Some(parent) if parent > 1 => pid = parent,
            Some(_) | None => return false,
        }
    }
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_secret_cannot_be_used_is_refused() {
    let fixture = OpenedFixture::start();
    let session = Session::open(&fixture.gateway).await;
    let get = format!("curl -sS https://vault.test:{PORT}/v1/x");
    let token = fixture.certificates.path().join("token");
    assert!(fixture.sh(&session, &get).finish().await.text().contains("SERVED"));
    let mode = |mode| {
        let mode = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(mode);
        fs::set_permissions(&token, mode).expect("it is ours");
    };
    let refused =
        |text: &str| text.contains("denied by rule \"network.credential\"") && text.contains("VAULT_TOKEN");
    mode(0o644);
    let text = fixture.sh(&session, &get).finish().await.text();
    assert!(refused(&text) && text.contains("can be read or written by everybody"), "{text}");
    mode(0o600);
    fs::write(&token, "two\nlines").expect("a file");
    let text = fixture.sh(&session, &get).finish().await.text();
    assert!(refused(&text) && text.contains("has a character that no header has"), "{text}");
    fs::remove_file(&token).expect("it is there");
    let text = fixture.sh(&session, &get).finish().await.text();
    assert!(refused(&text), "{text}");
    // A new value is used at once, and masked.
    fs::write(&token, "another-secret-value\n").expect("a file");
    mode(0o600);
    let text = fixture
        .sh(&session, &format!("{get}; curl -sS https://vault.test:{PORT}/echo"))
        .finish()
        .await
        .text();
    assert!(text.contains(&OpenedFixture::digest("Bearer another-secret-value")), "{text}");
    assert!(text.contains("ECHO Bearer ****") && !text.contains("another-secret-value"), "{text}");
    // Two rules that do not agree.
    let second = format!(
        "\n[secrets.OTHER]\nfile = \"{}\"\n[[connect]]\nid = 'second'\ndecision = 'allow'\nhost = ['vault.test']\n\
         address = ['127.83.0.0/16']\nport = [{PORT}]\ntls = 'terminate'\n\
         credential = {{ header = 'Authorization', secret = 'OTHER' }}\n",
        token.display()
    );
    fixture.reload(&format!("{}{second}", fixture.policy_text()));
    let text = fixture.sh(&session, &get).finish().await.text();
    assert!(text.contains("network.credential") && text.contains("put different secrets"), "{text}");
    let other = fixture.sh(&session, &format!("curl -sS https://vault.test:{PORT}/v3")).finish().await.text();
    assert!(other.contains(&OpenedFixture::digest("another-secret-value")), "{other}");
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_is_shown_certificates_and_placeholders_that_its_caller_cannot_set() {
    let fixture = OpenedFixture::start();
    let session = Session::open(&fixture.gateway).await;
    let show = "echo $SSL_CERT_FILE $CURL_CA_BUNDLE $NODE_EXTRA_CA_CERTS $VAULT_TOKEN";
    let directory = "/run/provost/certificates";
    let shown = fixture.sh(&session, show).finish().await.text();
    assert_eq!(
        shown,
        format!("{directory}/bundle.pem {directory}/bundle.pem {directory}/session.pem {PLACEHOLDER}\n")
    );
    for name in ["VAULT_TOKEN", "SSL_CERT_FILE"] {
        let refused = fixture.sh(&session, show).env(name, "own").refusal().await;
        assert!(refused.message.contains(name), "{}", refused.message);
    }
    let without = fixture.command(&session, Network::None, "sh").args(["-c", show]).finish().await.text();
    assert_eq!(without, "\n");
    let written = fixture
        .sh(&session, &format!("echo x > {directory}/bundle.pem; ls -A {directory}"))
        .finish()
        .await
        .text();
    assert!(written.contains("Read-only") && written.ends_with("bundle.pem\nsession.pem\n"), "{written}");
    session.close().await;
    fixture.gateway.stop();
}
