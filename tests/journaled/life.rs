//! Every kind of record, from the life that makes it.

use std::{fs, sync::Arc, time::Duration};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{
    journaled::{directory, kinds, must_be_intact, record, records, verified},
    support::{
        Gateway, Options, Refusal, Session, add_rule,
        api::{CloseSessionRequest, CreateSessionRequest, ListSessionsRequest},
        eventually, in_session, within,
    },
};

fn of<'a>(records: &'a [Value], kind: &str) -> &'a Value {
    let found = records.iter().find(|record| record["kind"] == kind);
    found.unwrap_or_else(|| panic!("no {kind} among {:?}", kinds(records)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_life_of_a_command_is_written_step_by_step_and_each_step_once() {
    let gateway = Gateway::start();
    let directory = directory(&gateway);
    in_session(&gateway, async |session| {
        // The second one finds its sandbox up.
        for _ in 0..2 {
            let terminal = session.sh("exit 7").create().await;
            terminal.wait().await;
            let id = terminal.info.id.clone();
            let is_exit = |record: &Value| record["kind"] == "exit" && record["terminal"] == *id;
            record(&directory, "the exit", is_exit).await;
            terminal.release().await;
            let life = records(&directory, &["--terminal", &id]);
            assert_eq!(kinds(&life), ["decision", "spawn", "started", "exit"]);
            for step in &life {
                assert_eq!(step["session"], session.id.as_str());
                assert!(step["principal"].as_str().is_some_and(|principal| principal.starts_with("uid:")));
            }
            let [decision, spawn, started, exit] = &life[..] else { unreachable!("there are four") };
            assert_eq!(decision["decision"], "allow");
            assert_eq!(decision["rule"], "anything");
            assert_eq!(decision["generation"], 1);
            assert_eq!(decision["request_digest"].as_str().map(str::len), Some(64));
            assert_eq!(decision["request_digest"], spawn["request_digest"]);
            assert_eq!(decision["command"]["argv"], serde_json::json!(["sh", "-c", "exit 7"]));
            assert!(decision["judged"]["commands"].as_array().is_some_and(|all| !all.is_empty()));
            assert_eq!(spawn["command"]["argv"][2], "exit 7");
            assert_eq!(started["receipt"]["sandbox"], spawn["sandbox"]);
            assert_eq!(started["receipt"]["no_new_privs"], true);
            assert_eq!(started["receipt"]["seccomp_mode"], 2);
            assert_eq!(exit["outcome"], serde_json::json!({ "end": "exited", "code": 7 }));
            assert_eq!((&exit["cause"], &exit["survivors"]), (&"exited".into(), &0.into()));
            assert!(exit["usage"]["wall_us"].as_u64().is_some_and(|wall| wall > 0));
        }
    })
    .await;
    gateway.stop();
    let all = records(&directory, &[]);
    let first = &kinds(&all)[..4];
    assert_eq!(first, ["file_opened", "gateway_started", "policy_loaded", "session_opened"]);
    assert_eq!(kinds(&all)[all.len() - 2..], ["session_closed", "gateway_stopped"]);
    assert_eq!(of(&all, "gateway_started")["pid"], gateway.pid);
    assert_eq!(of(&all, "policy_loaded")["generation"], 1);
    assert!(
        of(&all, "policy_loaded")["files"][0].as_str().is_some_and(|file| file.ends_with("default.toml"))
    );
    assert_eq!(of(&all, "session_closed")["cause"], "requested");
    assert_eq!(all.last().map(|record| &record["cause"]), Some(&"drained".into()));
    must_be_intact(&directory);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_ends_a_command_is_written_before_its_end_with_who_asked() {
    let gateway = Gateway::shared();
    let directory = directory(&gateway);
    in_session(&gateway, async |session| {
        let terminal = session.idle(&session.marker()).create().await;
        terminal.until("ready").await;
        terminal.signal("SIGURG").await.expect("it runs");
        terminal.kill(Some(Duration::from_millis(1500))).await;
        terminal.wait().await;
        let id = terminal.info.id.clone();
        let life = eventually("the whole life", || {
            let life = records(&directory, &["--terminal", &id]);
            kinds(&life).contains(&"exit").then_some(life)
        })
        .await;
        assert_eq!(kinds(&life), ["decision", "spawn", "started", "signal", "kill_requested", "exit"]);
        assert_eq!(of(&life, "signal")["signal"], "SIGURG");
        let asked = of(&life, "kill_requested");
        assert_eq!((&asked["cause"], &asked["grace_ms"]), (&"kill".into(), &1500.into()));
        assert_eq!(asked["by"], asked["principal"]);
        assert_eq!(of(&life, "exit")["cause"], "killed");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_command_that_is_released_or_closed_with_its_session_ends_once_and_it_is_said_why() {
    let gateway = Gateway::shared();
    let directory = directory(&gateway);
    let session = &Session::open(&gateway).await;
    // Released while it runs; ended with its session.
    let released = session.idle(&session.marker()).create().await;
    released.until("ready").await;
    released.try_release(Some(Duration::ZERO)).await.expect("it is there");
    let left = session.idle(&session.marker()).create().await;
    left.until("ready").await;
    session.close().await;
    for (id, cause, by) in [(&released.info.id, "release", true), (&left.info.id, "session_closed", false)] {
        let life = eventually("the whole life", || {
            let life = records(&directory, &["--terminal", id]);
            kinds(&life).contains(&"exit").then_some(life)
        })
        .await;
        let asked = of(&life, "kill_requested");
        assert_eq!((&asked["cause"], asked["by"].is_string()), (&cause.into(), by), "{asked}");
        assert_eq!(kinds(&life).iter().filter(|kind| **kind == "exit").count(), 1);
    }
}

fn judging() -> Arc<Gateway> {
    let add_rules: fn(&mut toml::Table) = |policy| {
        for rule in [
            "id='no-dd'\ndecision='deny'\nargv=['dd','**']\nreason='not here'",
            "id='people'\ndecision='ask'\nargv=['mknod','**']",
            "id='watcher'\nmode='observe'\ndecision='deny'\nargv=['uname','**']",
        ] {
            add_rule(policy, rule);
        }
    };
    let config = Some("[quotas]\nlive_terminals_per_session = 1\n".to_owned());
    Gateway::start_with(Options { policy: Some(add_rules), config, ..Options::default() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn refusals_are_written_with_their_rule_and_observing_rules_with_what_they_would_have_said() {
    let gateway = judging();
    let directory = directory(&gateway);
    in_session(&gateway, async |session| {
        session.sh("true; dd if=/dev/zero").refusal().await;
        session
            .command("mknod")
            .args(["x", "p"])
            .with(|request| request.on_ask = crate::support::api::OnAsk::Refuse.into())
            .refusal()
            .await;
        session.command("true").env("LD_PRELOAD", "x").refusal().await;
        session.command("uname").finish().await;
        session.command("no-such-program").refusal().await;
        let held = session.command("sleep").args(["1000"]).create().await;
        session.command("true").refusal().await;
        held.kill(Some(Duration::ZERO)).await;
        held.wait().await;
    })
    .await;
    gateway.stop();
    let denied = records(&directory, &["--rule", "no-dd", "--decision", "deny"]);
    assert_eq!(denied.len(), 1, "{denied:?}");
    let judged = denied[0]["judged"]["commands"].as_array().cloned().unwrap_or_default();
    assert!(judged.iter().any(|one| one.as_str().is_some_and(|one| one.starts_with("dd "))), "{judged:?}");
    assert!(denied[0]["reason"].as_str().is_some_and(|reason| reason.contains("not here")));
    assert!(denied[0]["terminal"].is_null());
    let asked = records(&directory, &["--rule", "people", "--decision", "ask"]);
    assert_eq!(asked.len(), 1);
    let all = records(&directory, &[]);
    let variable = all.iter().find(|record| record["rule"] == "profile.workspace.environment.deny:LD_*");
    assert_eq!(variable.map(|record| &record["decision"]), Some(&"deny".into()));
    let watched = records(&directory, &["--rule", "watcher"]);
    assert_eq!(watched.len(), 1);
    assert_eq!(watched[0]["decision"], "allow");
    assert_eq!(watched[0]["observed"], serde_json::json!([{ "rule": "watcher", "decision": "deny" }]));
    let failed = of(&all, "spawn_failed");
    assert_eq!(failed["reason"], "COMMAND_NOT_FOUND");
    assert_eq!(failed["errno"], 2);
    let quota = of(&all, "quota_refused");
    assert_eq!((&quota["limit"], &quota["bound"]), (&"live_terminals_per_session".into(), &1.into()));
    must_be_intact(&directory);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn policies_that_come_into_force_and_those_that_do_not_are_written() {
    let gateway = Gateway::start();
    let directory = directory(&gateway);
    let more = gateway.directory().join("policies/more.toml");
    fs::write(&more, "[[rule]]\nid='x'\ndecision='deny'\nargv=['dd']\n").expect("it can be written");
    gateway.signal(Signal::SIGHUP);
    let is_second = |record: &Value| record["kind"] == "policy_loaded" && record["generation"] == 2;
    let loaded = record(&directory, "the second policy", is_second).await;
    assert_eq!(loaded["files"].as_array().map(Vec::len), Some(2));
    in_session(&gateway, async |session| {
        let terminal = session.sh("true").create().await;
        let of_terminal = |record: &Value| record["terminal"] == *terminal.info.id;
        let is_decision = |record: &Value| record["kind"] == "decision" && of_terminal(record);
        assert_eq!(record(&directory, "the decision", is_decision).await["generation"], 2);
        terminal.wait().await;
        terminal.release().await;
    })
    .await;
    fs::write(&more, "no toml").expect("it can be written");
    gateway.signal(Signal::SIGHUP);
    let refused = record(&directory, "the refusal", |record| record["kind"] == "policy_refused").await;
    assert_eq!(refused["generation"], 2);
    assert!(refused["problem"].as_str().is_some_and(|problem| problem.contains("more.toml:1:")), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_changed_byte_is_found_and_named() {
    let gateway = Gateway::start();
    let session = Session::open(&gateway).await;
    session.command("true").finish().await;
    session.close().await;
    gateway.stop();
    let directory = directory(&gateway);
    let report = must_be_intact(&directory);
    assert!(report["records"].as_u64().is_some_and(|records| records >= 8), "{report:#}");
    let file = directory.join("journal-00000000000000000001.jsonl");
    let text = fs::read_to_string(&file).expect("the journal is ours");
    fs::write(&file, text.replacen("\"argv\":[\"true\"", "\"argv\":[\"TRUE\"", 1))
        .expect("it can be written");
    let (status, report) = verified(&directory, &[]);
    assert_eq!(status, Some(1));
    assert_eq!(report["faults"][0]["kind"], "changed", "{report:#}");
    let line = text.lines().position(|line| line.contains("\"argv\":[\"true\"")).map(|at| at as u64 + 1);
    assert_eq!(report["faults"][0]["line"].as_u64(), line);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_session_beyond_the_cap_is_refused_and_that_is_written() {
    let config = Some("[quotas]\nsessions_per_principal = 1\n".to_owned());
    let gateway = Gateway::start_with(Options { config, ..Options::default() });
    in_session(&gateway, async |session| {
        let request = CreateSessionRequest {
            roots: vec![session.workspace.display().to_string()],
            ..CreateSessionRequest::default()
        };
        let refused =
            session.caller.sessions.clone().create_session(request).await.expect_err("there is one");
        assert_eq!(Refusal::from(refused).meta("limit"), "sessions_per_principal");
        let written = records(&directory(&gateway), &[]);
        let written = written.iter().find(|record| record["kind"] == "quota_refused").expect("it is written");
        assert_eq!((&written["limit"], &written["bound"]), (&"sessions_per_principal".into(), &1.into()));
        assert_eq!(written["session"], Value::Null);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whenever_its_caller_leaves_a_session_is_open_and_written_or_neither() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let request = CreateSessionRequest {
            roots: vec![session.workspace.display().to_string()],
            ..CreateSessionRequest::default()
        };
        for turn in 0..100_u64 {
            let (mut sessions, request) = (session.caller.sessions.clone(), request.clone());
            let begun = tokio::spawn(async move { sessions.create_session(request).await });
            // Each leaves at another moment of its create: some before it, some when its answer is on the way.
            tokio::time::sleep(Duration::from_micros(turn * 20)).await;
            begun.abort();
            let _ = begun.await;
        }
        within("as many sessions as the journal says", async {
            loop {
                let list =
                    session.caller.sessions.clone().list_sessions(ListSessionsRequest::default()).await;
                // A connection with many calls that were reset before they were accepted is closed, and the next call opens another.
                let Ok(list) = list else { continue };
                let open = list.into_inner().sessions.len();
                let all = records(&directory(&gateway), &[]);
                let of = |kind: &str| all.iter().filter(|record| record["kind"] == kind).count();
                if of("session_opened") == of("session_closed") + open {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        let list = session.caller.sessions.clone().list_sessions(ListSessionsRequest::default()).await;
        for left in list.expect("sessions can be listed").into_inner().sessions {
            if left.id != session.id {
                let close = CloseSessionRequest { session_id: left.id };
                // The gateway closes what nobody was told of, perhaps since it was listed.
                match session.caller.sessions.clone().close_session(close).await {
                    Ok(_) => {}
                    Err(status) => assert_eq!(Refusal::from(status).reason, "SESSION_NOT_FOUND"),
                }
            }
        }
    })
    .await;
}
