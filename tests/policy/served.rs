//! Rules in force in a gateway: refusals with their rule, names that mean files, reload.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use nix::sys::signal::Signal;

use crate::support::{
    Gateway,
    api::{CreateTerminalRequest, ExitCause, OnAsk},
    api_duration, code, eventually, in_session, within,
};

const RULES: &str = r#"
[[rule]]
id = "no-shred"
decision = "deny"
argv = [["id", "whoami"], "**"]
reason = "you need not know who you are"
matches = ["id", "whoami"]

[[rule]]
id = "careful"
decision = "ask"
argv = ["hostname", "**"]
reason = "a person must say yes"
"#;

fn add_rules(gateway: &Gateway, rules: &str) {
    // Written under another name and renamed: a reload never sees half a file.
    let directory = gateway.directory().join("policies");
    fs::write(directory.join("rules.new"), rules).expect("a policy can be written");
    fs::rename(directory.join("rules.new"), directory.join("rules.toml"))
        .expect("a policy can be put in place");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_rule_that_is_added_is_in_force_for_the_next_command_and_a_broken_file_changes_nothing() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        assert_eq!(
            code(&session.command("id").finish().await.outcome),
            0,
            "it runs before the rule is there"
        );
        add_rules(&gateway, RULES);
        let refusal = async {
            loop {
                match session.command("id").try_create().await {
                    Err(refusal) => break refusal,
                    // So that not a cap is what refuses.
                    Ok(terminal) => drop((terminal.wait().await, terminal.release().await)),
                }
            }
        };
        let refusal = within("the rule", refusal).await;
        assert_eq!(refusal.reason, "POLICY_DENIED");
        assert_eq!(refusal.meta("rule"), "no-shred");
        assert!(refusal.message.contains("you need not know who you are"), "{}", refusal.message);

        // Hidden in lines, behind wrappers and links: the same. The honest twin runs.
        for line in [
            "true; id",
            "env id",
            "sh -c 'i\"\"d'",
            "echo $(id)",
            "/usr/bin/id",
            "ln -s /usr/bin/id x && ./x",
        ] {
            if line.starts_with("ln") {
                let made = session.sh("ln -sf /usr/bin/id x").finish().await;
                assert_eq!(code(&made.outcome), 0);
                let denied = session.command("./x").refusal().await;
                assert_eq!(denied.meta("rule"), "no-shred");
                continue;
            }
            let denied = session.sh(line).refusal().await;
            assert_eq!(denied.meta("rule"), "no-shred", "{line}");
        }
        assert_eq!(code(&session.sh("echo id; echo 'id'").finish().await.outcome), 0);

        let unattended = |request: &mut CreateTerminalRequest| request.on_ask = OnAsk::Refuse.into();
        let asked = session.command("hostname").with(unattended).refusal().await;
        assert_eq!(asked.reason, "APPROVAL_REQUIRED");
        assert_eq!(asked.meta("rule"), "careful");

        add_rules(&gateway, "[[rule]]\nid = 'x'\n");
        gateway.signal(Signal::SIGHUP);
        eventually("the refusal of the broken file in the log", || {
            gateway.log_tail().contains("rules.toml:1").then_some(())
        })
        .await;
        let denied = session.command("id").refusal().await;
        assert_eq!(denied.meta("rule"), "no-shred");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_rules_time_limit_holds_for_the_commands_that_it_matches_and_for_no_other() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        add_rules(
            &gateway,
            r#"
            [[rule]]
            id = "naps"
            decision = "allow"
            argv = ["sleep", "**"]
            effects = { time_limit = "200ms" }
            matches = ["sleep 5"]

            [[rule]]
            id = "sentinel"
            decision = "deny"
            argv = ["id", "**"]
            "#,
        );
        let loaded = async {
            while let Ok(terminal) = session.command("id").try_create().await {
                drop((terminal.wait().await, terminal.release().await));
            }
        };
        within("the rules", loaded).await;
        let napped = session.command("sleep").args(["1000"]).finish().await;
        assert_eq!(napped.outcome.cause(), ExitCause::TimeLimit, "{:?}", napped.outcome);
        let other = session.command("tail").args(["-f", "/dev/null"]);
        let other = other.with(|request| request.idle_limit = Some(api_duration(Duration::from_millis(600))));
        assert_eq!(other.finish().await.outcome.cause(), ExitCause::IdleLimit, "it was given no time limit");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_rule_that_names_a_profile_runs_the_program_that_this_profile_finds() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let tools = session.workspace.join("tools");
        fs::create_dir(&tools).expect("a directory can be made");
        fs::write(tools.join("id"), "#!/bin/sh\necho the tool of the profile\n").expect("it can be written");
        fs::set_permissions(tools.join("id"), fs::Permissions::from_mode(0o755)).expect("it is ours");
        let before = session.command("id").finish().await;
        assert!(before.text().starts_with("uid="), "{}", before.text());
        add_rules(
            &gateway,
            &format!(
                "[profile.tools]\nextends = 'workspace'\npath = ['{}', '/usr/bin', '/bin']\n\
                 [[rule]]\nid = 'own-id'\ndecision = 'allow'\nargv = ['id', '**']\n\
                 effects = {{ profile = 'tools' }}\n",
                tools.display()
            ),
        );
        let in_force = async {
            loop {
                let ran = session.command("id").finish().await;
                if !ran.text().starts_with("uid=") {
                    break ran;
                }
            }
        };
        let ran = within("the rule", in_force).await;
        assert_eq!(ran.text(), "the tool of the profile\n");
        // What is asked for by its path is that file, whatever the profile.
        let by_path = session.command("/usr/bin/id").finish().await;
        assert!(by_path.text().starts_with("uid="), "{}", by_path.text());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_profile_that_a_reload_narrows_holds_for_the_next_command_of_an_open_session() {
    let gateway = Gateway::start();
    let profile = |access: &str| {
        add_rules(
            &gateway,
            &format!("[profile.changed]\nextends = 'workspace'\nfilesystem.workspace = '{access}'\n"),
        );
    };
    in_session(&gateway, async |session| {
        let touch =
            || session.command("touch").args(["written"]).with(|create| create.profile = "changed".into());
        profile("write");
        let in_force = async {
            loop {
                match touch().try_create().await {
                    Ok(terminal) => {
                        let outcome = terminal.wait().await;
                        terminal.release().await;
                        break outcome;
                    }
                    // The profile is not there yet.
                    Err(refusal) => assert!(refusal.message.contains("changed"), "{refusal:?}"),
                }
            }
        };
        assert_eq!(code(&within("the profile", in_force).await), 0, "it may write");
        profile("read");
        // The sandbox of the commands before is up, and is the wrong one from the reload on.
        let narrowed = async { while code(&touch().finish().await.outcome) == 0 {} };
        within("a sandbox of the profile as it is now", narrowed).await;
    })
    .await;
}
