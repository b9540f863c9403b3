//! Requests that do not wait: the question stays, and the same request, sent again, uses the answer.

use std::fs;

use tonic::Code;

use crate::{
    approvals::desk::{Desk, RULE, gateway, touch, unattended},
    support::{
        Command, Gateway, Session,
        api::{ApprovalDecision, ApprovalState, CreateTerminalRequest},
        code, in_session, new_workspace,
    },
};

/// Whether a session is to be able to use a yes.
enum Uses {
    Yes,
    No,
}

/// Sends a request that is refused for want of an approval; its approval's id.
async fn post(command: Command) -> String {
    let refused = unattended(command).refusal().await;
    assert_eq!((refused.code, refused.reason.as_str()), (Code::PermissionDenied, "APPROVAL_REQUIRED"));
    refused.meta("approval_id").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn it_is_refused_at_once_and_the_same_request_runs_once_after_a_yes() {
    let gateway = gateway("");
    in_session(&gateway, async |session| {
        let desk = Desk::of(&session.caller);
        let refused = unattended(touch(session, "made")).refusal().await;
        assert_eq!((refused.code, refused.reason.as_str()), (Code::PermissionDenied, "APPROVAL_REQUIRED"));
        assert_eq!(refused.meta("rule"), RULE);
        let id = refused.meta("approval_id");
        assert!(refused.message.contains(id), "it says how: {}", refused.message);
        assert!(!desk.get(id).await.has_waiting_call);
        // Asking again before there is an answer asks nothing new.
        assert_eq!(post(touch(session, "made")).await, id);
        assert_eq!(desk.list().await.len(), 1);

        desk.approve(id).await;
        assert_eq!(code(&unattended(touch(session, "made")).finish().await.outcome), 0);
        assert!(session.workspace.join("made").exists());
        assert_eq!(desk.get(id).await.state(), ApprovalState::Used);
        assert_ne!(post(touch(session, "made")).await, id, "a yes is used once");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_pending_is_listed_by_session_until_it_is_answered() {
    let gateway = gateway("");
    in_session(&gateway, async |session| {
        in_session(&gateway, async |other| {
            let desk = Desk::of(&session.caller);
            let mut changes_of_other = desk.try_watch(&other.id).await.expect("it is there");
            let id = post(touch(session, "made")).await;
            let of_other = post(touch(other, "made")).await;
            assert_eq!(desk.pending("").await, [id.clone(), of_other.clone()]);
            assert_eq!(desk.pages(1).await, [[id.clone()], [of_other.clone()]]);
            // Nothing of another session is seen by who watches one: neither as it happens nor in the snapshot.
            let mut snapshot_of_other = desk.try_watch(&other.id).await.expect("it is there");
            for watch in [&mut changes_of_other, &mut snapshot_of_other] {
                assert_eq!(watch.must_be(ApprovalState::Pending).await.id, of_other);
            }
            assert_eq!(desk.pending(&session.id).await, std::slice::from_ref(&id));
            assert_eq!(desk.pending(&other.id).await, std::slice::from_ref(&of_other));
            desk.deny(&id).await;
            assert_eq!(desk.pending("").await, [of_other]);
            assert!(desk.pending(&session.id).await.is_empty());
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_yes_is_for_no_other_request() {
    let gateway = gateway("");
    in_session(&gateway, async |session| {
        let desk = Desk::of(&session.caller);
        fs::create_dir(session.workspace.join("sub")).expect("a directory can be made");
        let id = post(touch(session, "made").env("A", "1")).await;
        desk.approve(&id).await;
        let another_profile = |request: &mut CreateTerminalRequest| request.profile = "offline".into();
        let others = [
            touch(session, "other").env("A", "1"),
            touch(session, "made").args(["more"]).env("A", "1"),
            touch(session, "made").env("A", "2"),
            touch(session, "made").env("A", "1").env("B", "1"),
            touch(session, "made"),
            touch(session, "made").env("A", "1").cwd(session.workspace.join("sub")),
            touch(session, "made").with(another_profile),
            touch(session, "made").env("A", "1").stdin(),
            session.command("/usr/bin/touch").args(["made"]).env("A", "1"),
            session.sh("touch made").env("A", "1"),
        ];
        for (n, other) in others.into_iter().enumerate() {
            assert_ne!(post(other).await, id, "{n}");
        }
        assert_eq!(desk.get(&id).await.state(), ApprovalState::Approved, "none of them has used it");

        // A session that may touch more, or has other labels, asks for itself.
        let more_root = new_workspace(&gateway, None).display().to_string();
        let sessions = [
            (vec![more_root], None, Uses::No),
            (vec![], Some("b"), Uses::No),
            // One that is the same in all of this may: `provost run` opens a session for each command.
            (vec![], None, Uses::Yes),
        ];
        for (more_roots, label, uses) in sessions {
            let root = session.workspace.display().to_string();
            let other = Session::open_with(&gateway, session.caller.clone(), None, |request| {
                request.roots = [root].into_iter().chain(more_roots).collect();
                request.labels = label.map(|team| ("team".to_owned(), team.to_owned())).into_iter().collect();
            })
            .await;
            match uses {
                Uses::No => assert_ne!(post(touch(&other, "made").env("A", "1")).await, id),
                Uses::Yes => {
                    let used = unattended(touch(&other, "made").env("A", "1")).finish().await;
                    assert_eq!(code(&used.outcome), 0);
                }
            }
            other.close().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_no_is_told_to_the_same_request_once() {
    let gateway = gateway("");
    in_session(&gateway, async |session| {
        let desk = Desk::of(&session.caller);
        let id = post(touch(session, "made")).await;
        desk.deny(&id).await;
        assert_eq!(unattended(touch(session, "made")).refusal().await.reason, "APPROVAL_DENIED");
        assert_ne!(post(touch(session, "made")).await, id);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_yes_that_nobody_uses_in_time_is_void() {
    let gateway = gateway("expiry = '6s'");
    in_session(&gateway, async |session| {
        let desk = Desk::of(&session.caller);
        let mut changes = desk.watch().await;
        let id = post(touch(session, "made")).await;
        desk.approve(&id).await;
        changes.must_be(ApprovalState::Pending).await;
        changes.must_be(ApprovalState::Approved).await;
        changes.must_be(ApprovalState::Expired).await;
        assert_ne!(post(touch(session, "made")).await, id);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn another_policy_voids_what_was_asked_and_approved_under_the_one_before() {
    let gateway = gateway("");
    in_session(&gateway, async |session| {
        let desk = Desk::of(&session.caller);
        let mut changes = desk.watch().await;
        let (asked, approved) = (post(touch(session, "a")).await, post(touch(session, "b")).await);
        desk.approve(&approved).await;
        let waiting = crate::approvals::desk::begin(touch(session, "c"));
        for state in
            [ApprovalState::Pending, ApprovalState::Pending, ApprovalState::Approved, ApprovalState::Pending]
        {
            changes.must_be(state).await;
        }
        add_a_rule(&gateway);
        for _ in 0..3 {
            changes.must_be(ApprovalState::Superseded).await;
        }
        let refused = crate::approvals::desk::refusal(waiting).await;
        assert_eq!((refused.code, refused.reason.as_str()), (Code::PermissionDenied, "APPROVAL_REQUIRED"));
        assert_eq!(refused.meta("rule"), RULE);
        assert!(refused.message.contains("policy"), "it says why: {}", refused.message);
        let late = desk.answer(&asked, ApprovalDecision::Approve).await.expect_err("it is over");
        assert_eq!(late.meta("state"), "superseded");
        assert_ne!(post(touch(session, "b")).await, approved, "the yes was for the policy before");
        assert!(!session.workspace.join("b").exists());
    })
    .await;
}

fn add_a_rule(gateway: &Gateway) {
    let directory = gateway.directory().join("policies");
    let rule = "[[rule]]\nid = 'more'\ndecision = 'deny'\nargv = ['no-such-program']\n";
    fs::write(directory.join("new"), rule).expect("a rule can be written");
    fs::rename(directory.join("new"), directory.join("more.toml")).expect("it can be put in place");
}
