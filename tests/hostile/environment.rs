//! Callers' variables that change what a judged name means: refused, from the session and from the command.
//!
//! Each attack is first shown to work, where a profile lets the variable in and a rule allows everything.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use tonic::Code;

use crate::support::{
    Gateway, Session,
    api::{CreateSessionRequest, EnvVar},
    in_session, within,
};

fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("it is in a directory")).expect("a directory can be made");
    fs::write(path, text).expect("a file can be written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

/// What the attacks need in a workspace: an `ls` of their own, and configuration of git that runs it.
fn prepare(session: &Session) -> [(&'static str, String, &'static str); 3] {
    let at = |name: &str| session.workspace.join(name);
    let path = |name: &str| at(name).display().to_string();
    program(&at("bin/ls"), "#!/bin/sh\necho ATTACK\n");
    program(&at("run"), "#!/bin/sh\necho ATTACK >&2\n");
    let config = format!("[core]\nfsmonitor = {}\n", path("run"));
    for file in ["home/.gitconfig", "xdg/git/config"] {
        program(&at(file), &config);
    }
    [
        ("PATH", path("bin"), "ls"),
        ("HOME", path("home"), "git init -q . && git status"),
        ("XDG_CONFIG_HOME", path("xdg"), "git init -q . && git status"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_variable_that_changes_what_a_name_means_is_refused() {
    let open = Gateway::with_policy(|policy| {
        let environment = policy["profile"]["workspace"]["environment"].as_table_mut().expect("a table");
        environment.insert("drop".to_owned(), vec!["PATH", "HOME", "XDG_*_HOME"].into());
    });
    in_session(&open, async |session| {
        for (name, value, line) in prepare(session) {
            let ran = session.command("/bin/sh").args(["-c", line]).env(name, &value).finish().await;
            assert!(ran.text().contains("ATTACK"), "{name} does nothing here: {}", ran.text());
        }
    })
    .await;
    in_session(&Gateway::shared(), async |session| {
        for (name, value, line) in prepare(session) {
            let ran = session.command("sh").args(["-c", line]).finish().await;
            assert!(!ran.text().contains("ATTACK"), "{name}: {}", ran.text());
            let refusal = session.command("sh").args(["-c", line]).env(name, &value).refusal().await;
            assert_eq!(refusal.code, Code::PermissionDenied, "{name}: {refusal:?}");
            assert!(refusal.meta("rule").starts_with("profile.workspace.environment.deny:"), "{refusal:?}");
            // As a session's default, likewise.
            let mut caller = session.caller.clone();
            let request = CreateSessionRequest {
                roots: vec![session.workspace.display().to_string()],
                env: vec![EnvVar { name: name.to_owned(), value, ..Default::default() }],
                ..CreateSessionRequest::default()
            };
            let opened = within("a refusal", caller.sessions.create_session(request)).await;
            assert_eq!(opened.expect_err("a session with it").code(), Code::PermissionDenied, "{name}");
        }
        // The value that the command has anyway changes nothing.
        let ran = session.sh("echo $HOME").env("HOME", "/home/agent").env("PAGER", "cat").finish().await;
        assert_eq!(ran.text(), "/home/agent\n");
    })
    .await;
}

/// Callers choose the path, and one program may run.
fn path_by_choice(policy: &mut toml::Table) {
    let environment = policy["profile"]["workspace"]["environment"].as_table_mut().expect("a table");
    environment.insert("drop".to_owned(), vec!["PATH"].into());
    let rules: toml::Table =
        "rule = [{ id = 'ls', decision = 'allow', argv = ['ls', '**'] }]".parse().expect("rules");
    policy["rule"] = rules["rule"].clone();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn with_a_gate_a_path_that_a_profile_lets_in_leads_to_nothing_that_was_not_judged() {
    in_session(&Gateway::with_policy(path_by_choice), async |session| {
        let (_, path, _) = prepare(session)[0].clone();
        for (command, args) in
            [("sh", &["-c", "ls"][..]), ("env", &["ls"]), ("timeout", &["5", "ls"]), ("xargs", &["ls"])]
        {
            let done = session.command(command).args(args.iter().copied()).env("PATH", &path).finish().await;
            assert!(!done.text().contains("ATTACK"), "{command} {args:?}: {}", done.text());
            let denials = &done.outcome.exec_denials;
            assert!(!denials.is_empty(), "{command} {args:?}: {}", done.text());
            assert!(denials.iter().all(|denial| denial.program.starts_with(&path)), "{denials:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_path_that_a_profile_lets_in_is_what_names_are_judged_by() {
    let gateway = Gateway::with_policy(|policy| {
        path_by_choice(policy);
        // What a line hides is asked about only where no gate judges it.
        policy["profile"]["workspace"]["gate"]["enabled"] = false.into();
    });
    in_session(&gateway, async |session| {
        let (_, path, _) = prepare(session)[0].clone();
        // The file that was judged, whatever the path says.
        let ran = session.command("ls").args(["bin"]).env("PATH", &path).finish().await;
        assert_eq!(ran.text(), "ls\n");
        for (command, args) in [
            ("sh", &["-c", "ls"][..]),
            ("env", &["ls"]),
            ("timeout", &["5", "ls"]),
            ("xargs", &["ls"]),
            ("sh", &["-c", "sh -c 'ls'"]),
        ] {
            let words = args.iter().copied();
            let refused = session.command(command).args(words.clone()).env("PATH", &path);
            let refusal = refused.with(|request| request.on_ask = 2).refusal().await;
            assert_eq!(refusal.code, Code::PermissionDenied, "{command} {args:?}: {refusal:?}");
            assert_eq!(refusal.reason, "APPROVAL_REQUIRED", "{command} {args:?}: {refusal:?}");
            let usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
            let allowed = session.command(command).args(words).env("PATH", usual).finish().await;
            assert!(allowed.text().contains("bin\n"), "{command} {args:?}: {}", allowed.text());
        }
        for line in [
            format!("PATH={path} ls"),
            format!("export PATH={path}; ls"),
            format!("env PATH={path} ls"),
            format!("x=PATH; : ${{!x:={path}}}; ls"),
            format!("HOME={path} ls"),
            "unset PATH; ls".to_owned(),
            "env -i sh -c ls".to_owned(),
        ] {
            let refused = session.command("bash").args(["-c", &line]);
            let refusal = refused.with(|request| request.on_ask = 2).refusal().await;
            assert_eq!(refusal.reason, "APPROVAL_REQUIRED", "{line}: {refusal:?}");
        }
    })
    .await;
}
