//! Who sees what, and whose answer counts.

use tonic::Code;

use crate::{
    approvals::desk::{Desk, begin, gateway, outcome, touch, unattended},
    support::{
        Session,
        api::{ApprovalDecision, ApprovalState},
        code, is_root, skip,
    },
};

const AGENT: u32 = 54_321;
const STRANGER: u32 = 54_322;
const APPROVER: u32 = 54_323;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_stranger_sees_nothing_and_its_answers_are_as_for_an_id_that_never_was() {
    if !is_root() {
        return skip("only root can be other principals");
    }
    let gateway = gateway("");
    let agent = Session::open_as(&gateway, AGENT).await;
    let stranger = Desk::of(&gateway.caller_as(STRANGER).await);
    let mut strangers_view = stranger.watch().await;
    let own = Desk::of(&agent.caller);
    let mut changes = own.watch().await;
    let begun = begin(touch(&agent, "made"));
    let pending = changes.must_be(ApprovalState::Pending).await;
    assert_eq!(pending.principal, format!("uid:{AGENT}"));

    assert!(stranger.list().await.is_empty());
    let never = format!("appr_{}", "0".repeat(26));
    for decision in [ApprovalDecision::Approve, ApprovalDecision::Deny] {
        let foreign = stranger.answer(&pending.id, decision).await.expect_err("it is not the stranger's");
        let unknown = stranger.answer(&never, decision).await.expect_err("there is none");
        assert_eq!(foreign.code, Code::NotFound);
        assert_eq!(foreign, unknown, "one cannot be told from the other");
    }
    let foreign = stranger.try_watch(&agent.id).await.err().expect("it is not the stranger's");
    let unknown = stranger.try_watch("sess_x").await.err().expect("there is none");
    assert_eq!(foreign, unknown);

    // The agent's own yes counts where nobody is named.
    own.approve(&pending.id).await;
    let terminal = outcome(begun).await.expect("it runs");
    assert_eq!(code(&terminal.wait().await), 0);
    terminal.release().await;
    agent.close().await;

    // The first thing that the stranger's watch ever shows is the stranger's own.
    let session = Session::open_as(&gateway, STRANGER).await;
    let refused = unattended(touch(&session, "x")).refusal().await;
    assert_eq!(strangers_view.must_be(ApprovalState::Pending).await.id, refused.meta("approval_id"));
    session.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn where_approvers_are_named_nobody_answers_for_themselves() {
    if !is_root() {
        return skip("only root can be other principals");
    }
    let gateway = gateway(&format!("approvers = ['uid:{APPROVER}']"));
    let agent = Session::open_as(&gateway, AGENT).await;
    let (own, approver) = (Desk::of(&agent.caller), Desk::of(&gateway.caller_as(APPROVER).await));
    let mut seen = approver.watch().await;
    let mut of_session = approver.try_watch(&agent.id).await.expect("an approver may watch it");
    for answerer in [&approver, &Desk::of(&gateway.caller().await)] {
        let begun = begin(touch(&agent, "made"));
        let pending = seen.must_be(ApprovalState::Pending).await;
        assert_eq!(of_session.must_be(ApprovalState::Pending).await.id, pending.id);
        let refused = own.answer(&pending.id, ApprovalDecision::Approve).await.expect_err("it is its own");
        assert_eq!((refused.code, refused.reason.as_str()), (Code::PermissionDenied, "NOT_AN_APPROVER"));
        answerer.approve(&pending.id).await;
        let terminal = outcome(begun).await.expect("it runs");
        assert_eq!(code(&terminal.wait().await), 0);
        terminal.release().await;
        for changes in [&mut seen, &mut of_session] {
            changes.must_be(ApprovalState::Approved).await;
            changes.must_be(ApprovalState::Used).await;
        }
    }
    let answered_by: Vec<String> =
        own.list().await.into_iter().filter_map(|it| it.answer).map(|answer| answer.approver).collect();
    assert_eq!(answered_by, [format!("uid:{APPROVER}"), "uid:0".to_owned()]);
    // An approver may answer, and nothing else: the terminals and sessions are not theirs.
    let mut sessions = gateway.caller_as(APPROVER).await.sessions;
    assert!(
        sessions
            .list_sessions(crate::support::api::ListSessionsRequest::default())
            .await
            .expect("a list")
            .get_ref()
            .sessions
            .is_empty()
    );
    agent.close().await;
}
