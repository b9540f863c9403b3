//! Requests that wait for their answer.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use nix::sys::signal::Signal;
use provost::proto::v1::approval::Command;
use tonic::Code;

use crate::{
    approvals::desk::{Desk, REASON, RULE, begin, gateway, outcome, refusal, touch, unattended},
    support::{
        Gateway, Options, Refusal, Session, Terminal,
        api::{ApprovalDecision, ApprovalState, CreateTerminalRequest, ResolveApprovalRequest},
        code, in_session, within,
    },
};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_request_that_asks_waits_and_runs_after_a_yes_and_who_said_it_is_recorded() {
    let gateway = gateway("");
    in_session(&gateway, async |session| {
        let desk = Desk::of(&session.caller);
        let mut changes = desk.watch().await;
        let command = touch(session, "made file").env("HOW", "so").request_id("req-1");
        let begun = begin(command);

        let pending = changes.must_be(ApprovalState::Pending).await;
        assert!(pending.id.starts_with("appr_"), "{}", pending.id);
        assert_eq!((pending.rule.as_str(), pending.reason.as_str()), (RULE, REASON));
        assert_eq!(pending.matched_command, "touch 'made file'");
        assert_eq!(
            (pending.command.clone(), pending.args.as_slice()),
            (Some(Command::Program("touch".to_owned())), &["made file".to_owned()][..])
        );
        assert_eq!(pending.cwd, session.workspace.display().to_string());
        assert_eq!(pending.session_id, session.id);
        assert_eq!(pending.principal, format!("uid:{}", nix::unistd::geteuid()));
        assert_eq!(pending.env_names, ["HOW"]);
        assert_eq!(pending.request_id, "req-1");
        assert_eq!(pending.request_digest.len(), 64);
        assert!(pending.has_waiting_call && pending.answer.is_none());
        let seconds = |time: Option<prost_types::Timestamp>| time.expect("it has a time").seconds;
        assert_eq!(seconds(pending.expires_at) - seconds(pending.created_at), 300, "the default expiry");
        assert!(!session.workspace.join("made file").exists(), "it has not run");

        let answered = desk
            .resolve(ResolveApprovalRequest {
                approval_id: pending.id.clone(),
                decision: ApprovalDecision::Approve.into(),
                comment: "looks good".into(),
                on_behalf_of: "Ada".into(),
            })
            .await
            .expect("it can be answered");
        assert_eq!(answered.state(), ApprovalState::Approved);
        let terminal = outcome(begun).await.expect("it runs");
        assert_eq!(code(&terminal.wait().await), 0);
        assert!(session.workspace.join("made file").exists(), "it has run");
        terminal.release().await;

        changes.must_be(ApprovalState::Approved).await;
        let used = changes.must_be(ApprovalState::Used).await;
        let answer = used.answer.clone().expect("it was answered");
        assert_eq!(answer.decision(), ApprovalDecision::Approve);
        assert_eq!(answer.approver, format!("uid:{}", nix::unistd::geteuid()));
        assert_eq!((answer.on_behalf_of.as_str(), answer.comment.as_str()), ("Ada", "looks good"));
        assert_eq!(desk.get(&pending.id).await, used, "it is still listed");

        // The yes is used up: the very same request asks again, by another id.
        let begun = begin(touch(session, "made file").env("HOW", "so").request_id("req-2"));
        let again = changes.must_be(ApprovalState::Pending).await;
        assert_ne!(again.id, pending.id);
        desk.deny(&again.id).await;
        assert_eq!(refusal(begun).await.reason, "APPROVAL_DENIED");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_no_refuses_with_the_rule_its_reason_and_what_was_said() {
    let gateway = gateway("");
    in_session(&gateway, async |session| {
        let desk = Desk::of(&session.caller);
        let mut changes = desk.watch().await;
        // The strictest part of a line asks for all of it.
        let begun = begin(session.sh("true; touch made"));
        let pending = changes.must_be(ApprovalState::Pending).await;
        assert_eq!(pending.matched_command, "touch made");
        let decision = ApprovalDecision::Deny.into();
        let comment = "not on a Friday".to_owned();
        let request = ResolveApprovalRequest {
            approval_id: pending.id.clone(),
            decision,
            comment,
            ..Default::default()
        };
        desk.resolve(request).await.expect("it can be answered");
        let refused = refusal(begun).await;
        assert_eq!((refused.code, refused.reason.as_str()), (Code::PermissionDenied, "APPROVAL_DENIED"));
        assert_eq!((refused.meta("rule"), refused.meta("approval_id")), (RULE, pending.id.as_str()));
        assert!(
            refused.message.contains(REASON) && refused.message.contains("not on a Friday"),
            "{refused:?}"
        );
        assert!(!session.workspace.join("made").exists());
        changes.must_be(ApprovalState::Denied).await;
    })
    .await;
}

/// A rule that asks, and gives what it lets run a variable and another profile.
fn ask_with_effects(policy: &mut toml::Table) {
    let more: toml::Table =
        "[profile.other]\nextends = 'workspace'\nenvironment.set = { PROFILE = 'other' }\n[[rule]]\n\
                             id = 'given'\ndecision = 'ask'\nargv = ['printenv', '**']\n\
                             effects = { profile = 'other', environment = { GIVEN = 'by the rule' } }"
            .parse()
            .expect("it is TOML");
    let profiles = policy["profile"].as_table_mut().expect("there are profiles");
    profiles.insert("other".to_owned(), more["profile"]["other"].clone());
    policy["rule"].as_array_mut().expect("there are rules").push(more["rule"][0].clone());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_effects_of_a_rule_that_asks_take_effect_after_the_yes() {
    let gateway = Gateway::start_with(Options { policy: Some(ask_with_effects), ..Options::default() });
    in_session(&gateway, async |session| {
        let desk = Desk::of(&session.caller);
        let mut changes = desk.watch().await;
        for command in [
            session.command("printenv").args(["GIVEN", "PROFILE"]),
            session.sh("cd . && printenv GIVEN PROFILE"),
        ] {
            let begun = begin(command);
            let pending = changes.must_be(ApprovalState::Pending).await;
            desk.approve(&pending.id).await;
            let terminal = outcome(begun).await.expect("it runs");
            assert_eq!(code(&terminal.wait().await), 0);
            let output = terminal.output().await.data;
            assert_eq!(String::from_utf8_lossy(&output), "by the rule\nother\n");
            terminal.release().await;
            changes.must_be(ApprovalState::Approved).await;
            changes.must_be(ApprovalState::Used).await;
        }
        // Nobody is asked about a line in which another command would have them.
        let refused = session.sh("printenv GIVEN; ls").refusal().await;
        assert_eq!((refused.code, refused.meta("rule")), (Code::PermissionDenied, "given"), "{refused:?}");
        // A process is not moved to another profile, so that a yes would not give what the rule says.
        fs::write(session.workspace.join("script"), "printenv GIVEN; echo ended")
            .expect("a file can be written");
        let done = session.sh("sh ./script").finish().await;
        assert!(done.text().ends_with("ended\n") && !done.text().contains("by the rule"), "{}", done.text());
        // The shell may try the name at several places.
        let denied = &done.outcome.exec_denials;
        assert!(!denied.is_empty() && denied.iter().all(|one| one.rule == "given"), "{denied:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_question_that_nobody_answers_expires_to_a_refusal() {
    let gateway = gateway("expiry = '300ms'");
    in_session(&gateway, async |session| {
        let desk = Desk::of(&session.caller);
        let mut changes = desk.watch().await;
        let refused = refusal(begin(touch(session, "made"))).await;
        assert_eq!((refused.code, refused.reason.as_str()), (Code::PermissionDenied, "APPROVAL_EXPIRED"));
        assert_eq!(refused.meta("rule"), RULE);
        changes.must_be(ApprovalState::Pending).await;
        let expired = changes.must_be(ApprovalState::Expired).await;
        // Too late.
        let late = desk.answer(&expired.id, ApprovalDecision::Approve).await.expect_err("it is over");
        assert_eq!((late.code, late.reason.as_str()), (Code::FailedPrecondition, "APPROVAL_NOT_PENDING"));
        assert_eq!(late.meta("state"), "expired");
        assert!(!session.workspace.join("made").exists());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_caller_that_goes_away_takes_its_question_back() {
    let gateway = gateway("");
    in_session(&gateway, async |session| {
        let desk = Desk::of(&gateway.caller().await);
        let mut changes = desk.watch().await;
        let begun = begin(touch(session, "made"));
        let pending = changes.must_be(ApprovalState::Pending).await;
        begun.abort();
        changes.must_be(ApprovalState::Withdrawn).await;
        let late = desk.answer(&pending.id, ApprovalDecision::Approve).await.expect_err("it is over");
        assert_eq!(late.meta("state"), "withdrawn");

        // A deadline is a caller that goes away and is told so.
        let mut request = tonic::Request::new(touch(session, "made").request);
        request.set_timeout(Duration::from_secs(6));
        let status =
            session.caller.terminals.clone().create_terminal(request).await.expect_err("nobody answers");
        let refused = crate::support::Refusal::from(status);
        assert_eq!((refused.code, refused.meta("rule")), (Code::DeadlineExceeded, RULE));
        let asked = changes.must_be(ApprovalState::Pending).await;
        assert_eq!(refused.meta("approval_id"), asked.id);
        changes.must_be(ApprovalState::Withdrawn).await;
        assert!(!session.workspace.join("made").exists());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn callers_with_one_request_id_ask_once_and_the_one_who_stays_has_the_terminal() {
    let gateway = gateway("");
    in_session(&gateway, async |session| {
        let desk = Desk::of(&session.caller);
        let mut changes = desk.watch().await;
        let command = || touch(session, "made").request_id("one");
        let first = begin(command());
        let asked = changes.must_be(ApprovalState::Pending).await;
        let (second, third) = (begin(command()), begin(command()));
        // They are under way when something else that came later has been done.
        assert_eq!(code(&session.command("true").finish().await.outcome), 0);
        assert_eq!(desk.list().await.len(), 1, "one question for all");
        first.abort();
        assert_eq!(changes.must_be(ApprovalState::Withdrawn).await.id, asked.id);
        let again = changes.must_be(ApprovalState::Pending).await;
        desk.approve(&again.id).await;
        let (second, third) = (outcome(second).await, outcome(third).await);
        let (second, third) = (second.expect("it runs"), third.expect("it runs"));
        assert_eq!(second.id, third.id, "one terminal for all");
        assert_eq!(code(&second.wait().await), 0);
        second.release().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn closing_the_session_and_ending_the_gateway_end_what_waits() {
    let gateway = gateway("");
    let desk = Desk::of(&gateway.caller().await);
    let mut changes = desk.watch().await;
    let session = Session::open(&gateway).await;
    let begun = begin(touch(&session, "made"));
    changes.must_be(ApprovalState::Pending).await;
    let mut of_session = desk.try_watch(&session.id).await.expect("it is there");
    of_session.must_be(ApprovalState::Pending).await;
    session.close().await;
    let refused = refusal(begun).await;
    assert_eq!((refused.code, refused.reason.as_str()), (Code::NotFound, "SESSION_NOT_FOUND"));
    changes.must_be(ApprovalState::Withdrawn).await;
    of_session.must_be(ApprovalState::Withdrawn).await;
    assert!(of_session.next().await.is_none(), "the watch of a session ends with it");

    let session = Session::open(&gateway).await;
    let begun = begin(touch(&session, "made"));
    changes.must_be(ApprovalState::Pending).await;
    gateway.signal(Signal::SIGINT);
    must_be_draining(begun).await;
    assert!(gateway.wait().success());
    gateway.must_have_left_nothing();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_gateway_that_leaves_its_commands_to_the_next_one_ends_what_waits() {
    let gateway = gateway("");
    let session = Session::open(&gateway).await;
    let mut changes = Desk::of(&session.caller).watch().await;
    let begun = begin(touch(&session, "made"));
    changes.must_be(ApprovalState::Pending).await;
    gateway.signal(Signal::SIGTERM);
    must_be_draining(begun).await;
    changes.must_be(ApprovalState::Withdrawn).await;
    drop((session, changes));
    assert!(gateway.wait().success());
}

async fn must_be_draining(begun: tokio::task::JoinHandle<Result<Terminal, Refusal>>) {
    let refused = refusal(begun).await;
    assert_eq!((refused.code, refused.reason.as_str()), (Code::Unavailable, "DRAINING"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_waits_holds_no_place_among_the_terminals() {
    let config = "open_per_principal = 3\n[quotas]\nlive_terminals_per_session = 1\nretained_terminals_per_session = 1";
    let gateway = gateway(config);
    in_session(&gateway, async |session| {
        let desk = Desk::of(&session.caller);
        let mut changes = desk.watch().await;
        let mut waiting = Vec::new();
        for name in ["a", "b", "c"] {
            waiting.push(begin(touch(session, name)));
            changes.must_be(ApprovalState::Pending).await;
        }
        assert_eq!(code(&session.command("true").finish().await.outcome), 0, "the one place is free");
        let refused = touch(session, "d").refusal().await;
        assert_eq!(
            (refused.code, refused.meta("limit")),
            (Code::ResourceExhausted, "approvals_open_per_principal")
        );
        for begun in waiting {
            begun.abort();
        }
        for _ in 0..3 {
            changes.must_be(ApprovalState::Withdrawn).await;
        }
        let posted = unattended(touch(session, "d")).refusal().await;
        assert_eq!(posted.reason, "APPROVAL_REQUIRED", "there is room again");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_thousand_wait_and_the_next_one_is_refused() {
    let gateway = gateway("open_per_principal = 2_000");
    let session = Session::open(&gateway).await;
    let desk = Desk::of(&session.caller);
    let waiting: Vec<_> = (0..1_000).map(|n| begin(touch(&session, &format!("file-{n}")))).collect();
    let all_wait = async {
        while desk.list().await.len() < 1_000 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("a thousand questions", all_wait).await;
    let refused = touch(&session, "one-more").refusal().await;
    assert_eq!((refused.code, refused.meta("limit")), (Code::ResourceExhausted, "approvals_open"));
    // Who needs no answer is not held up.
    assert_eq!(code(&session.command("true").finish().await.outcome), 0);
    session.close().await;
    for begun in waiting {
        assert_eq!(refusal(begun).await.reason, "SESSION_NOT_FOUND");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_who_answer_at_once_one_does() {
    let gateway = gateway("");
    in_session(&gateway, async |session| {
        let desk = Desk::of(&session.caller);
        let mut changes = desk.watch().await;
        for round in 0..10 {
            let begun = begin(touch(session, &format!("made-{round}")));
            let pending = changes.must_be(ApprovalState::Pending).await;
            let answers: Vec<_> = (0..16)
                .map(|n| {
                    let (desk, id) = (desk.clone(), pending.id.clone());
                    let decision =
                        if n % 2 == 0 { ApprovalDecision::Approve } else { ApprovalDecision::Deny };
                    tokio::spawn(async move { desk.answer(&id, decision).await.map(|_| decision) })
                })
                .collect();
            let mut taken = Vec::new();
            for answer in answers {
                match answer.await.expect("it does not panic") {
                    Ok(decision) => taken.push(decision),
                    Err(refused) => assert_eq!(refused.reason, "APPROVAL_NOT_PENDING"),
                }
            }
            assert_eq!(taken.len(), 1, "{taken:?}");
            let ran = match outcome(begun).await {
                Ok(terminal) => {
                    terminal.wait().await;
                    terminal.release().await;
                    true
                }
                Err(refused) => {
                    assert_eq!(refused.reason, "APPROVAL_DENIED");
                    false
                }
            };
            assert_eq!(ran, taken[0] == ApprovalDecision::Approve);
            changes.next().await;
            if ran {
                changes.must_be(ApprovalState::Used).await;
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_another_program_by_the_time_of_the_yes_does_not_run() {
    let gateway = gateway("");
    in_session(&gateway, async |session| {
        let desk = Desk::of(&session.caller);
        let mut changes = desk.watch().await;
        let tool = session.workspace.join("tool");
        let write = |text: &str| {
            fs::write(session.workspace.join("new"), text).expect("a file can be written");
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(session.workspace.join("new"), mode).expect("it is ours");
            fs::rename(session.workspace.join("new"), &tool).expect("it can be put in place");
        };
        write("#!/bin/sh\necho good\n");
        let begun = begin(session.command("./tool"));
        let pending = changes.must_be(ApprovalState::Pending).await;
        write("#!/bin/sh\necho evil\n");
        desk.approve(&pending.id).await;
        let refused = refusal(begun).await;
        assert_eq!(
            (refused.reason.as_str(), refused.meta("rule")),
            ("APPROVAL_REQUIRED", "own"),
            "{refused:?}"
        );
        changes.must_be(ApprovalState::Approved).await;
        changes.must_be(ApprovalState::Used).await;

        // A directory that has become a link to another one.
        let (here, there) = (session.workspace.join("here"), session.workspace.join("there"));
        fs::create_dir(&here).expect("a directory can be made");
        fs::create_dir(&there).expect("a directory can be made");
        let begun = begin(touch(session, "made").cwd(&here));
        let pending = changes.must_be(ApprovalState::Pending).await;
        fs::remove_dir(&here).expect("it is empty");
        std::os::unix::fs::symlink(&there, &here).expect("a link can be made");
        desk.approve(&pending.id).await;
        let refused = refusal(begun).await;
        assert_eq!(
            (refused.reason.as_str(), refused.meta("rule")),
            ("APPROVAL_REQUIRED", RULE),
            "{refused:?}"
        );
        assert!(!there.join("made").exists());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_run_that_asks_waits_in_the_same_way() {
    let gateway = gateway("");
    in_session(&gateway, async |session| {
        let desk = Desk::of(&session.caller);
        let mut changes = desk.watch().await;
        let command = touch(session, "made");
        let run = tokio::spawn(async move { command.run().await });
        let pending = changes.must_be(ApprovalState::Pending).await;
        desk.approve(&pending.id).await;
        let mut events = within("the run", run).await.expect("it does not panic").expect("it runs");
        while within("an event", events.message()).await.expect("it ends in order").is_some() {}
        assert!(session.workspace.join("made").exists());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_answer_that_says_nothing_or_too_much_is_refused_by_its_field() {
    let gateway = gateway("");
    in_session(&gateway, async |session| {
        let desk = Desk::of(&session.caller);
        let refused =
            desk.answer("appr_x", ApprovalDecision::Unspecified).await.expect_err("it says nothing");
        refused.must_name_the_field("decision");
        let long = ResolveApprovalRequest {
            approval_id: "appr_x".into(),
            decision: ApprovalDecision::Deny.into(),
            comment: "x".repeat(1_025),
            ..Default::default()
        };
        desk.resolve(long).await.expect_err("it is too long").must_name_the_field("comment");
        let unknown = desk.answer("appr_x", ApprovalDecision::Deny).await.expect_err("there is none");
        assert_eq!((unknown.code, unknown.reason.as_str()), (Code::NotFound, "APPROVAL_NOT_FOUND"));
        let on_ask = |request: &mut CreateTerminalRequest| request.on_ask = 9;
        touch(session, "made").with(on_ask).refusal().await.must_name_the_field("on_ask");
    })
    .await;
}
