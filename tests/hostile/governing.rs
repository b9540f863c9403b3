//! What governs commands is out of their reach: no root holds it, lies in it or reaches it, by whatever way, and not
//! later either, when a directory is moved, a policy is loaded, or a gateway is started again.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::Arc,
};

use tempfile::TempDir;

use crate::support::{
    Caller, Gateway, Mounted, Options, Refusal, Session, api::CreateSessionRequest, code, copy_provost,
    eventually, in_session, is_root, skip,
};

async fn open(caller: &Caller, root: &Path) -> Result<String, Refusal> {
    let request =
        CreateSessionRequest { roots: vec![root.display().to_string()], ..CreateSessionRequest::default() };
    let opened = caller.sessions.clone().create_session(request).await;
    opened.map(|session| session.into_inner().session.expect("it is set").id).map_err(Refusal::from)
}

async fn must_be_refused(caller: &Caller, root: &Path, what: &str) {
    let refusal = match open(caller, root).await {
        Ok(_) => panic!("{} is opened, which reaches the {what}", root.display()),
        Err(refusal) => refusal,
    };
    refusal.must_name_the_field("roots[0]");
    assert!(
        refusal.message.contains(&format!("reaches the {what}")),
        "{}: {}",
        root.display(),
        refusal.message
    );
}

/// A gateway whose journal and signing key lie in a directory of their own, next to a workspace that is not secret.
fn with_key() -> (Arc<Gateway>, TempDir) {
    let kept = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| kept.path().join(name);
    for directory in ["journal", "keys", "work"] {
        fs::create_dir(at(directory)).expect("a directory can be made");
    }
    let made = Command::new("openssl")
        .args(["genpkey", "-algorithm", "ed25519", "-out"])
        .arg(at("keys/key"))
        .output();
    assert!(made.is_ok_and(|made| made.status.success()), "openssl makes a key");
    fs::set_permissions(at("keys/key"), fs::Permissions::from_mode(0o600)).expect("it is ours");
    let config = format!("[journal]\ndirectory = {:?}\nsigning_key = {:?}\n", at("journal"), at("keys/key"));
    (Gateway::start_with(Options { config: Some(config), ..Options::default() }), kept)
}

/// A rule in a file of its own, put in place at once.
fn put_policy(gateway: &Gateway, name: &str, text: &str) {
    let directory = gateway.directory().join("policies");
    fs::write(directory.join("new"), text).expect("a policy can be written");
    fs::rename(directory.join("new"), directory.join(name)).expect("it can be put in place");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn no_root_is_holds_or_lies_in_what_governs() {
    let (gateway, kept) = with_key();
    let caller = gateway.caller().await;
    let below = gateway.directory().join("policies/below");
    fs::create_dir(&below).unwrap();
    // The attack as such: a caller who can write there makes the rules.
    put_policy(
        &gateway,
        "mine.toml",
        "[[rule]]\nid = 'mine'\ndecision = 'deny'\nargv = ['id']\nreason = 'x'\n",
    );
    in_session(&gateway, async |session| {
        let denied = async { while session.command("id").try_create().await.is_ok() {} };
        crate::support::within("the rule", denied).await;
    })
    .await;
    for (root, what) in [
        (gateway.directory().join("policies"), "policies"),
        (below, "policies"),
        (gateway.state.clone(), "gateway's state"),
        (gateway.state.join("sessions"), "gateway's state"),
        (gateway.directory().to_owned(), "gateway's state"),
        (gateway.directory().join("run"), "gateway's socket"),
        (kept.path().join("journal"), "journal"),
        (kept.path().join("keys"), "journal's signing key"),
        (kept.path().to_owned(), "journal"),
    ] {
        must_be_refused(&caller, &root, what).await;
    }
    let program = Path::new(env!("CARGO_BIN_EXE_provost"));
    must_be_refused(&caller, program.parent().unwrap(), "gateway's program").await;
    open(&caller, &kept.path().join("work")).await.expect("a workspace next to the key is allowed");
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn no_root_reaches_it_by_a_link_a_second_name_or_another_mount() {
    let gateway = Gateway::start();
    let caller = gateway.caller().await;
    let at = |name: &str| gateway.directory().join(name);
    for directory in ["real", "links", "work/in", "twin", "around"] {
        fs::create_dir_all(at(directory)).unwrap();
    }
    // A policy file that is a link: who owns the link's target, or the link, owns the policy.
    fs::write(at("real/rules"), "[[rule]]\nid = 'l'\ndecision = 'deny'\nargv = ['id']\nreason = 'l'\n")
        .unwrap();
    symlink(at("real/rules"), at("links/hop")).unwrap();
    symlink(at("links/hop"), at("policies/linked.toml")).unwrap();
    eventually("the policy is loaded", || gateway.log_tail().contains("policy.changed=true").then_some(()))
        .await;
    must_be_refused(&caller, &at("real"), "policies").await;
    must_be_refused(&caller, &at("links"), "policies").await;
    // A root by a link, which is resolved first.
    symlink(at("policies"), at("around/way")).unwrap();
    must_be_refused(&caller, &at("around/way"), "policies").await;
    // A second name of a policy file, which nobody knows to lie in a place of work: none is opened while it is there.
    fs::hard_link(at("policies/default.toml"), at("work/second")).unwrap();
    let refusal = open(&caller, &at("work")).await.expect_err("it is opened, and with it a policy file");
    assert!(refusal.message.contains("cannot find out whether"), "{}", refusal.message);
    fs::remove_file(at("work/second")).unwrap();
    open(&caller, &at("work")).await.expect("it has one name again");
    let by_process = PathBuf::from("/proc/self/root").join(at("policies").strip_prefix("/").unwrap());
    open(&caller, &by_process).await.expect_err("it is opened by way of the gateway's process");
    if !is_root() {
        return skip("only root mounts");
    }
    let mounted =
        [(at("policies"), at("twin")), (at("policies"), at("work/in"))].map(|(of, at)| bind(&of, &at));
    must_be_refused(&caller, &at("twin"), "policies").await;
    must_be_refused(&caller, &at("work"), "policies").await;
    drop(mounted);
    fs::create_dir(at("policies/deep")).unwrap();
    let mounted = bind(&at("policies/deep"), &at("twin"));
    must_be_refused(&caller, &at("twin"), "policies").await;
    drop(mounted);
    open(&caller, &at("twin")).await.expect("without the mount it is nobody's");
    gateway.stop();
}

fn bind(of: &Path, at: &Path) -> Mounted {
    Mounted::try_new(&["--bind", &of.display().to_string()], at).expect("root can mount")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_policy_that_names_a_secret_in_an_open_root_is_refused_and_the_old_one_stays() {
    let gateway = Gateway::start();
    let session = Session::open(&gateway).await;
    assert_eq!(code(&session.command("id").finish().await.outcome), 0);
    let file = session.workspace.join("token");
    fs::write(&file, "a-secret-value").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let text = format!(
        "[secrets.TOKEN]\nfile = {file:?}\n[[rule]]\nid = 'no'\ndecision = 'deny'\nargv = ['id']\nreason = 'no'\n"
    );
    put_policy(&gateway, "secret.toml", &text);
    eventually("the refusal", || gateway.log_tail().contains("policy refused").then_some(())).await;
    let said = gateway.log_tail();
    assert!(said.contains(&session.id) && said.contains("reaches the secret"), "{said}");
    assert_eq!(code(&session.command("id").finish().await.outcome), 0, "the old set is in force");
    let workspace = session.workspace.clone();
    session.close().await;
    gateway.signal(nix::sys::signal::Signal::SIGHUP);
    eventually("the policy is loaded", || gateway.log_tail().contains("policy.changed=true").then_some(()))
        .await;
    must_be_refused(&gateway.caller().await, &workspace, "secret").await;
    // What a profile shows is no way either.
    let shown =
        format!("[profile.shown]\nextends = 'workspace'\nfilesystem.writable = [{:?}]\n", gateway.state);
    put_policy(&gateway, "shown.toml", &shown);
    eventually("the refusal", || gateway.log_tail().contains("profile shown").then_some(())).await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_moved_into_a_root_later_starts_no_sandbox_and_no_gateway() {
    let gateway = Gateway::start();
    let at = |name: &str| gateway.directory().join(name);
    let session = Session::open(&gateway).await;
    let moved = session.workspace.join("policies");
    let move_in = || {
        fs::rename(at("policies"), &moved).unwrap();
        symlink(&moved, at("policies")).unwrap();
    };
    let move_out = || {
        fs::remove_file(at("policies")).unwrap();
        fs::rename(&moved, at("policies")).unwrap();
    };
    move_in();
    let refusal = session.command("true").refusal().await;
    assert_eq!(
        (refusal.reason.as_str(), refusal.meta("stage")),
        ("CONFINEMENT_UNAVAILABLE", "governing"),
        "{refusal:?}"
    );
    move_out();
    let sleeper = session.command("sleep").args(["1000"]).create().await;
    gateway.crash();
    move_in();
    let refused = serve(&gateway);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "it starts");
    assert!(said.contains(&session.id) && said.contains("reaches the policies"), "{said}");
    move_out();
    gateway.start_again();
    let mut session = session;
    session.go_on(&gateway.caller().await);
    session.command("true").finish().await;
    drop(sleeper);
    session.close().await;
    gateway.stop();
}

/// `provost serve` on the state of a gateway that has ended, until it ends by itself.
fn serve(gateway: &Gateway) -> Output {
    let mut serve = Command::new("timeout");
    serve.args(["60", env!("CARGO_BIN_EXE_provost"), "serve", "--listen"]);
    serve.arg(format!("unix:{}", gateway.socket.display())).arg("--state").arg(&gateway.state);
    serve.arg("--policies").arg(gateway.directory().join("policies")).output().expect("it starts")
}

#[test]
fn a_program_in_its_own_workspace_runs_and_is_covered() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("target/debug/provost");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    copy_provost(&directory.path().join("target/debug"));
    let sandbox = directory.path().join("target/debug/provost-sandbox");
    let before_sandbox = fs::metadata(&sandbox).unwrap().len();
    let before = fs::metadata(&program).unwrap().len();
    let run = |command: &str| {
        let mut run = Command::new(&program);
        run.current_dir(directory.path()).args(["run", "--", "sh", "-c", command]);
        run.output().expect("it starts")
    };
    let attacks = [
        "echo x > target/debug/provost",
        "rm -f target/debug/provost",
        "mv target/debug target/other",
        "mv target other",
        "cp /bin/true target/debug/new && mv -f target/debug/new target/debug/provost",
        "echo x > target/debug/provost-sandbox",
        "rm -f target/debug/provost-sandbox",
        "cp /bin/true target/debug/new && mv -f target/debug/new target/debug/provost-sandbox",
    ];
    for attack in attacks {
        let outside = tempfile::tempdir().unwrap();
        fs::create_dir_all(outside.path().join("target/debug")).unwrap();
        let programs = ["target/debug/provost", "target/debug/provost-sandbox"];
        let lengths = || programs.map(|name| fs::metadata(outside.path().join(name)).map(|it| it.len()).ok());
        for name in programs {
            fs::copy("/bin/cat", outside.path().join(name)).unwrap();
        }
        let whole = lengths();
        let done = Command::new("sh").current_dir(outside.path()).args(["-c", attack]).status();
        assert!(done.is_ok_and(|status| status.success()), "{attack}: outside it works");
        assert_ne!(lengths(), whole, "{attack}: outside it works");
        let output = run(&format!("{attack}; echo over > made; test -d target"));
        assert!(output.status.success(), "{attack}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(fs::metadata(&program).map(|it| it.len()).ok(), Some(before), "{attack}");
        assert_eq!(fs::metadata(&sandbox).map(|it| it.len()).ok(), Some(before_sandbox), "{attack}");
        assert_eq!(fs::read_to_string(directory.path().join("made")).unwrap(), "over\n", "the rest is work");
    }
    // What else governs is refused: this gateway's policy and journal, where they are named.
    fs::create_dir(directory.path().join("policies")).unwrap();
    fs::copy(
        concat!(env!("CARGO_MANIFEST_DIR"), "/policies/default.toml"),
        directory.path().join("policies/default.toml"),
    )
    .unwrap();
    for options in [["--policies", "policies"], ["--journal", "journal"]] {
        let mut run = Command::new(&program);
        let output =
            run.current_dir(directory.path()).arg("run").args(options).args(["--", "true"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("reaches the"), "{options:?}: {said}");
    }
}

/// Where a program is not looked for first, a command could make one that is found first.
#[test]
fn a_place_at_which_the_next_run_would_find_another_program_is_not_worked_in() {
    for layout in ["libexec", "link"] {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["bin", "libexec"] {
            fs::create_dir(at(name)).unwrap();
        }
        copy_provost(&at("bin"));
        fs::rename(at("bin/provost-sandbox"), at("libexec/provost-sandbox")).unwrap();
        if layout == "link" {
            symlink("../libexec/provost-sandbox", at("bin/provost-sandbox")).unwrap();
        }
        let run = |root: &Path| {
            let mut run = Command::new(at("bin/provost"));
            run.current_dir(root).args(["run", "--", "sh", "-c", "ln -sf /bin/true bin/provost-sandbox"]);
            run.output().unwrap()
        };
        // Elsewhere it works.
        let elsewhere = tempfile::tempdir().unwrap();
        fs::create_dir(elsewhere.path().join("bin")).unwrap();
        let ran = run(elsewhere.path());
        assert!(ran.status.success(), "{layout}: {}", String::from_utf8_lossy(&ran.stderr));
        let before = fs::read_link(at("bin/provost-sandbox")).ok();
        let refused = run(directory.path());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(125) && said.contains("gateway's program"), "{layout}: {said}");
        assert_eq!(fs::read_link(at("bin/provost-sandbox")).ok(), before, "{layout}");
    }
}
