//! Rules about directories hold for the directories that had the names, whatever commands rename.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use provost::proto::v1::{ApprovalDecision, ApprovalState};

use crate::{
    gate::{questions::Approver, told::without_gate},
    support::{Gateway, Session, add_rule, code, in_session, within},
};

fn rules(policy: &mut toml::Table) {
    for rule in [
        "id = 'not-in-prod'\ndecision = 'deny'\nargv = ['touch', 'denied', '**']\nwhen = { cwd = ['*/prod'] }",
        // Rules that allow: without them nothing may.
        "id = 'not-elsewhere'\ndecision = 'allow'\nargv = ['dd', '**']\nwhen = { cwd = ['*/trusted', '*/later'] }",
    ] {
        add_rule(policy, rule);
    }
    // What no rule names is allowed by name, and not `dd`.
    let rules = policy["rule"].as_array_mut().expect("the policy has rules");
    for rule in rules {
        let rule = rule.as_table_mut().expect("a rule is a table");
        if rule["decision"].as_str() == Some("allow")
            && rule["argv"].as_array().is_some_and(|argv| argv.len() == 1)
        {
            rule["argv"] = toml::Value::Array(vec![
                ["sh", "mv", "cd", "touch", "mkdir", "ln", "true", "cp", "pwd", "rm"]
                    .map(toml::Value::from)
                    .to_vec()
                    .into(),
                "**".into(),
            ]);
            rule.remove("starts");
        }
    }
}

fn rules_without_gate(policy: &mut toml::Table) {
    rules(policy);
    without_gate(policy);
}

fn directories(top: &Path) {
    for path in ["prod/app", "dev", "trusted", "evil", "above/prod"] {
        fs::create_dir_all(top.join(path)).expect("a directory can be made");
    }
    symlink("prod", top.join("link")).expect("a link can be made");
}

/// Lines that do in a directory of that name what a rule denies there, each under another name.
const AVOIDING: &[&str] = &[
    "mv prod p2; cd p2; /usr/bin/touch denied; cd ..; mv p2 prod",
    "mv prod p2; mkdir prod; cd p2/app; /usr/bin/touch denied; cd ../..; rm -r prod; mv p2 prod",
    "mv prod/app a2; cd a2; /usr/bin/touch denied; cd ..; mv a2 prod/app",
    "mv above a2; mv a2/prod x; cd x; /usr/bin/touch denied; cd ..; mv x a2/prod; mv a2 above",
    "cd prod; mv ../prod ../p2; /usr/bin/touch denied; mv ../p2 ../prod",
    "cd link; /usr/bin/touch denied",
];

fn found(top: &Path) -> bool {
    ["prod/denied", "prod/app/denied", "above/prod/denied"].iter().any(|name| top.join(name).exists())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_denies_in_a_directory_denies_in_it_under_each_name() {
    let gateway = Gateway::with_policy(rules);
    for line in AVOIDING {
        let outside = tempfile::tempdir().expect("a directory can be made");
        directories(outside.path());
        let status = Command::new("sh").args(["-c", line]).current_dir(&outside).status();
        assert!(status.expect("it starts").success() && found(outside.path()), "it works: {line}");
        in_session(&gateway, async |session| {
            directories(&session.workspace);
            fs::write(session.workspace.join("script"), line).expect("a file can be made");
            let done = session.command("sh").args(["script"]).finish().await;
            assert!(!found(&session.workspace), "{line}: {}", done.text());
            assert_eq!(done.outcome.exec_denials.len(), 1, "{line}: {:?}", done.outcome);
            // Elsewhere it is as it was.
            let elsewhere = session.sh("cd dev && /usr/bin/touch denied").finish().await;
            assert_eq!(code(&elsewhere.outcome), 0, "{line}: {}", elsewhere.text());
        })
        .await;
    }
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_in_a_directory_that_was_renamed_is_judged_as_in_it() {
    for policy in [rules, rules_without_gate] {
        let gateway = Gateway::with_policy(policy);
        in_session(&gateway, async |session| {
            directories(&session.workspace);
            // The first request of the session: it records what the names mean.
            assert_eq!(code(&session.sh("mv prod p2; mv evil trusted2").finish().await.outcome), 0);
            for place in ["p2", "p2/app"] {
                let touch = session.command("touch").args(["denied"]);
                let directory = session.workspace.join(place).display().to_string();
                let refusal = touch.with(|create| create.cwd = directory).refusal().await;
                assert_eq!(refusal.metadata.get("rule").map(String::as_str), Some("not-in-prod"), "{place}");
            }
            let refusal = session.sh("cd p2 && touch denied").refusal().await;
            assert_eq!(refusal.metadata.get("rule").map(String::as_str), Some("not-in-prod"));
        })
        .await;
        gateway.stop();
    }
}

async fn runs_dd(session: &Session, before: &str) -> bool {
    fs::write(session.workspace.join("script"), format!("{before}; dd of=made status=none </dev/null"))
        .expect("a file can be made");
    code(&session.command("sh").args(["script"]).finish().await.outcome) == 0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_allows_in_a_directory_allows_in_no_other_that_gets_its_name() {
    let gateway = Gateway::with_policy(rules);
    in_session(&gateway, async |session| {
        directories(&session.workspace);
        assert!(!runs_dd(session, "cd evil").await, "no rule allows it there");
        assert!(runs_dd(session, "cd trusted").await);
        assert!(runs_dd(session, "mkdir trusted/sub; cd trusted/sub").await, "it is below");
        assert!(!runs_dd(session, "mv trusted t2; mv evil trusted; cd trusted").await);
        assert!(!runs_dd(session, "mv trusted evil; ln -s evil trusted; cd trusted").await);
        let in_evil = session.workspace.join("trusted").display().to_string();
        let dd = session.command("dd").args(["of=made"]).with(|create| create.cwd = in_evil);
        assert_eq!(dd.refusal().await.reason, "POLICY_DENIED");
        assert!(runs_dd(session, "rm trusted; mv t2 trusted; cd trusted").await, "it is itself again");
        assert!(runs_dd(session, "mkdir later; cd later").await, "it came later, and has a name alone");
    })
    .await;
    gateway.stop();
}

/// Directories beyond those that are looked at.
const FILLER: usize = 16_400;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_that_nobody_has_looked_at_are_no_way_around_a_rule() {
    let gateway = Gateway::with_policy(rules);
    for filler in [1_100, FILLER] {
        in_session(&gateway, async |session| {
            fs::create_dir_all(session.workspace.join("services/api/prod")).expect("a directory can be made");
            fs::create_dir_all(session.workspace.join("services/dev")).expect("a directory can be made");
            for number in 0..filler {
                fs::create_dir_all(session.workspace.join(format!("node_modules/m{number}")))
                    .expect("a directory can be made");
            }
            // The times of files are behind the clock, and what was made just now may have been renamed.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            let line = "cd services/api; mv prod q; cd q; /usr/bin/touch denied; cd ..; mv q prod";
            fs::write(session.workspace.join("script"), line).expect("a file can be made");
            let waiting = tokio::spawn(session.command("sh").args(["script"]).finish());
            if filler == FILLER {
                // The rule may be about it: a person is asked.
                let mut approver = Approver::of(&session.caller);
                let question = approver.question(ApprovalState::Pending).await;
                assert!(question.exec.is_some(), "{question:?}");
                approver.answer(&question, ApprovalDecision::Deny).await;
            }
            let done = within("the end of it", waiting).await.expect("it is not cancelled");
            assert!(!session.workspace.join("services/api/prod/denied").exists(), "{}", done.text());
            let [denial] = &done.outcome.exec_denials[..] else { panic!("{:?}", done.outcome) };
            assert_eq!(denial.rule, "not-in-prod", "{denial:?}");
            // What has not changed since is what it was.
            let elsewhere = session.sh("cd services/dev && /usr/bin/touch denied").finish().await;
            assert_eq!(code(&elsewhere.outcome), 0, "{}", elsewhere.text());
        })
        .await;
    }
    gateway.stop();
}
