//! A link to a program that takes its configuration from where it is called is a program of the link's place.

use std::{fs, os::unix::fs::symlink, process::Command};

use crate::support::{Gateway, Session, code, in_session, skip};

/// Only this: without it nothing may.
fn allow(policy: &mut toml::Table, rules: &[&str]) {
    let rules = rules.iter().enumerate().map(|(number, argv)| {
        let text = format!("id = 'r{number}'\ndecision = 'allow'\nargv = {argv}");
        toml::Value::Table(text.parse().expect("it is TOML"))
    });
    policy.insert("rule".to_owned(), toml::Value::Array(rules.collect()));
}

fn by_name(policy: &mut toml::Table) {
    allow(
        policy,
        &["['python3', 'trusted.py']", "['/usr/bin/python3*', 'trusted.py']", "['sh', '**']", "['true']"],
    );
}

fn by_place(policy: &mut toml::Table) {
    allow(policy, &["['./v/bin/python3', 'trusted.py']", "['sh', '**']"]);
}

/// What the workspace's own environment for python runs before everything else.
fn environment(session: &Session) {
    let out = Command::new("/usr/bin/python3")
        .args(["-c", "import sys; print('python%d.%d' % sys.version_info[:2])"])
        .output()
        .expect("it is there");
    let version = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    let top = &session.workspace;
    let packages = top.join("v/lib").join(version).join("site-packages");
    fs::create_dir_all(&packages).expect("a directory can be made");
    fs::create_dir_all(top.join("v/bin")).expect("a directory can be made");
    symlink("/usr/bin/python3", top.join("v/bin/python3")).expect("a link can be made");
    fs::write(top.join("v/pyvenv.cfg"), "home = /usr/bin\n").expect("a file can be made");
    fs::write(packages.join("x.pth"), "import sys; sys.stdout.write('OTHER ')\n")
        .expect("a file can be made");
    fs::write(top.join("trusted.py"), "print('trusted')\n").expect("a file can be made");
}

/// What runs the environment of the workspace.
const LINES: &[&str] = &["./v/bin/python3 trusted.py", "v/bin/../bin/python3 trusted.py"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_allows_python_allows_no_environment_of_the_workspace() {
    if !std::path::Path::new("/usr/bin/python3").exists() {
        return skip("there is no /usr/bin/python3");
    }
    // Under the shipped policy it works, and outside.
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        environment(session);
        for line in LINES {
            let done = session.sh(line).finish().await;
            assert!(code(&done.outcome) == 0 && done.text().contains("OTHER"), "{}", done.text());
        }
        let line = "bash -c 'exec -a $PWD/v/bin/python3 /usr/bin/python3 trusted.py'";
        let done = session.sh(line).finish().await;
        assert!(code(&done.outcome) == 0 && done.text().contains("OTHER"), "{}", done.text());
    })
    .await;
    gateway.stop();

    let gateway = Gateway::with_policy(by_name);
    in_session(&gateway, async |session| {
        environment(session);
        let refusal = session.command("./v/bin/python3").args(["trusted.py"]).refusal().await;
        assert_eq!(refusal.reason, "POLICY_DENIED");
        let done = session.command("/usr/bin/python3").args(["trusted.py"]).finish().await;
        assert_eq!((code(&done.outcome), done.text().as_str()), (0, "trusted\n"));
        let exec = "exec -a $PWD/v/bin/python3 /usr/bin/python3 trusted.py";
        for line in [LINES[0], LINES[1], exec] {
            fs::write(session.workspace.join("script"), line).expect("a file can be made");
            let shell = if line == exec { "bash" } else { "sh" };
            if shell == "bash" && !std::path::Path::new("/usr/bin/bash").exists() {
                continue;
            }
            let done = session.command("sh").args(["-c", &format!("{shell} script")]).finish().await;
            assert!(!done.text().contains("OTHER") && code(&done.outcome) != 0, "{line}: {}", done.text());
        }
        fs::write(session.workspace.join("script"), "/usr/bin/python3 trusted.py")
            .expect("a file can be made");
        let done = session.command("sh").args(["script"]).finish().await;
        assert_eq!((code(&done.outcome), done.text().as_str()), (0, "trusted\n"));
    })
    .await;
    gateway.stop();

    let gateway = Gateway::with_policy(by_place);
    in_session(&gateway, async |session| {
        environment(session);
        let done = session.command("./v/bin/python3").args(["trusted.py"]).finish().await;
        assert!(code(&done.outcome) == 0 && done.text().contains("OTHER"), "{}", done.text());
        fs::write(session.workspace.join("script"), LINES[0]).expect("a file can be made");
        let done = session.command("sh").args(["script"]).finish().await;
        assert!(code(&done.outcome) == 0 && done.text().contains("OTHER"), "{}", done.text());
    })
    .await;
    gateway.stop();
}
