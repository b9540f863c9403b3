//! Who is given a secret, and who cannot get at it.

use std::{fs, process::Command as Process};

use tonic::Code;

use crate::{
    secrets::{VALUE, armed, covered, with_secret, write_secret},
    support::{Session, api::EnvVar, code},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_command_has_its_secret_as_a_variable_and_nowhere_else() {
    armed(async |_, session| {
        let script =
            r#"printf %s "$TOKEN" > seen; tr '\0' '\n' < /proc/$$/cmdline | grep -c tok-; echo "$TOKEN""#;
        let done = with_secret(session.sh(script)).finish().await;
        assert_eq!(fs::read_to_string(session.workspace.join("seen")).expect("it was written"), VALUE);
        // The one line of its arguments that has "tok-" is the script itself, which has no value in it.
        assert_eq!(done.text(), format!("1\n{}\n", covered()));
        // A caller that knows it, and says it, has it in no journal.
        let said = with_secret(session.command("echo").args([VALUE])).finish().await;
        assert_eq!(said.text(), format!("{}\n", covered()));
        // Without the profile there is none.
        let without = session.sh(r#"echo "<$TOKEN>""#).finish().await;
        assert_eq!(without.text(), "<>\n");
        // A rule gives another to the one command that it allows.
        let ruled = session.sh("printenv RULED > ruled; printenv RULED; echo done").finish().await;
        assert_eq!(ruled.text(), format!("{}\ndone\n", "*".repeat("another-value-altogether".len())));
        let value = fs::read_to_string(session.workspace.join("ruled")).expect("it was written");
        assert_eq!(value, "another-value-altogether\n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_secret_of_a_rule_reaches_no_other_command_of_its_line() {
    armed(async |_, session| {
        // With a secret that the profile gives to every command, each line is the theft.
        for theft in
            ["echo \"$TOKEN\" > stolen", "sh -c 'set > stolen'", "env > stolen", "export -p > stolen"]
        {
            with_secret(session.sh(theft)).finish().await;
            let stolen = fs::read_to_string(session.workspace.join("stolen")).expect("it was written");
            assert!(stolen.contains(VALUE), "{theft}: {stolen}");
            fs::remove_file(session.workspace.join("stolen")).expect("it can be removed");
            let theft = theft.replace("TOKEN", "RULED");
            for line in [format!("printenv RULED; {theft}"), format!("{theft}; printenv RULED")] {
                let refusal = session.sh(&line).refusal().await;
                assert_eq!((refusal.code, refusal.meta("rule")), (Code::PermissionDenied, "ruled"), "{line}");
                assert!(refusal.message.contains("run them as commands of their own"), "{line}: {refusal:?}");
            }
            assert!(!session.workspace.join("stolen").exists(), "{theft}: it ran");
        }
        let permitted = session.sh("cd . && echo first && printenv RULED").finish().await;
        assert_eq!(permitted.text(), format!("first\n{}\n", "*".repeat("another-value-altogether".len())));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_caller_can_neither_set_nor_override_a_secret() {
    armed(async |armed, session| {
        for command in [session.command("true"), with_secret(session.command("true"))] {
            let refusal = command.env("TOKEN", "mine").refusal().await;
            assert_eq!((refusal.code, refusal.reason.as_str()), (Code::PermissionDenied, "POLICY_DENIED"));
            assert_eq!(refusal.meta("rule"), "secrets.TOKEN");
        }
        let line = with_secret(session.sh("TOKEN=mine printenv TOKEN")).refusal().await;
        assert_eq!(line.code, Code::PermissionDenied, "{line:?}");
        let mut caller = armed.gateway.caller().await;
        let request = crate::support::api::CreateSessionRequest {
            roots: vec![session.workspace.display().to_string()],
            env: vec![EnvVar { name: "TOKEN".into(), value: "mine".into(), ..Default::default() }],
            ..Default::default()
        };
        let refusal =
            caller.sessions.create_session(request).await.expect_err("a session cannot bring it either");
        assert_eq!(refusal.code(), Code::PermissionDenied);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_secret_that_cannot_be_had_or_masked_refuses_the_command() {
    armed(async |armed, session| {
        let refused = async |why: &str| {
            let refusal = with_secret(session.sh("touch ran")).refusal().await;
            assert_eq!(refusal.code, Code::FailedPrecondition, "{why}: {refusal:?}");
            assert_eq!(refusal.reason, "SECRET_UNAVAILABLE", "{why}: {refusal:?}");
            assert_eq!(refusal.meta("secret"), "TOKEN", "{why}");
            let file = armed.file.display().to_string();
            assert!(!refusal.message.contains(&file) && !refusal.message.contains("abc"), "{refusal:?}");
            assert!(!session.workspace.join("ran").exists(), "{why}: it ran");
            refusal
        };
        write_secret(&armed.file, VALUE, 0o604);
        refused("readable by everybody").await;
        write_secret(&armed.file, "abc", 0o600);
        refused("too short to be masked").await;
        write_secret(&armed.file, "", 0o600);
        refused("empty").await;
        write_secret(&armed.file, &"x".repeat(65_537), 0o600);
        refused("too long to be masked").await;
        fs::remove_file(&armed.file).expect("it is ours");
        assert_eq!(refused("absent").await.meta("errno"), "2");
        nix::unistd::mkfifo(&armed.file, nix::sys::stat::Mode::S_IRUSR).expect("a pipe can be made");
        refused("a pipe that nobody writes to").await;
        fs::remove_file(&armed.file).expect("it is ours");
        // It is read again for each command.
        write_secret(&armed.file, "a-new-value-1", 0o400);
        let done = with_secret(session.sh("touch ran; test \"$TOKEN\" = a-new-value-1")).finish().await;
        assert_eq!(code(&done.outcome), 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_explanation_names_the_secret_and_hides_its_value() {
    armed(async |armed, session: &Session| {
        let explain = |form: &[&str]| {
            let output = Process::new(env!("CARGO_BIN_EXE_provost"))
                .args(["policy", "explain", "--policies"])
                .arg(armed.gateway.directory().join("policies"))
                .args(form)
                .args(["--", "printenv", "RULED"])
                .current_dir(&session.workspace)
                .output()
                .expect("provost can be started");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let json: serde_json::Value = serde_json::from_str(&explain(&["-o", "json"])).expect("it is JSON");
        assert_eq!(json["run"]["environment"]["RULED"], "***", "{json}");
        assert!(!explain(&[]).contains("another-value"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_policy_with_a_secret_that_means_nothing_does_not_load() {
    armed(async |armed, _| {
        for (wrong, says) in [
            ("[secrets.'A-B']\nfile = '/x'\n", "a-z"),
            ("[secrets.PATH]\nfile = '/x'\n", "PATH"),
            ("[secrets.A]\nfile = 'x'\n", "absolute"),
            ("[secrets.A]\nfile = '/x'\nvalue = 'y'\n", "unknown field"),
            ("[profile.b]\nsecrets = ['NONE']\n", "there is no [secrets.NONE]"),
            ("[secrets.LANG]\nfile = '/x'\n", "LANG"),
            (
                "[[rule]]\nid = 'r'\ndecision = 'allow'\nargv = ['a']\neffects.secrets = ['NONE']\n",
                "there is no [secrets.NONE]",
            ),
        ] {
            let directory = armed.gateway.directory().join("wrong");
            let _ = fs::remove_dir_all(&directory);
            fs::create_dir(&directory).expect("a directory can be made");
            let default = armed.gateway.directory().join("policies/default.toml");
            fs::copy(default, directory.join("default.toml")).expect("a policy can be copied");
            fs::write(directory.join("wrong.toml"), wrong).expect("a policy can be written");
            let output = Process::new(env!("CARGO_BIN_EXE_provost"))
                .args(["policy", "check"])
                .arg(&directory)
                .output()
                .expect("provost can be started");
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            assert!(!output.status.success() && said.contains(says), "{wrong}\n{said}");
        }
    })
    .await;
}
