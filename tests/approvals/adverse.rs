//! A disk that is full, and a gateway that dies, while persons are asked.

use tonic::Code;

use crate::{
    approvals::{
        desk::{Desk, begin, gateway, outcome, refusal, touch, unattended},
        disk::SmallDisk,
    },
    support::{
        Session,
        api::{ApprovalDecision, ApprovalState},
        code, in_session,
    },
};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_yes_that_cannot_be_written_is_not_taken_and_a_no_is() {
    let Some(disk) = SmallDisk::mount() else { return };
    let gateway = gateway(&format!("[journal]\ndirectory = {:?}", disk.directory().display().to_string()));
    in_session(&gateway, async |session| {
        let desk = Desk::of(&session.caller);
        let mut changes = desk.watch().await;
        let mut waiting = Vec::new();
        for n in 0..24 {
            let begun = begin(touch(session, &format!("made-{n}")));
            waiting.push((changes.must_be(ApprovalState::Pending).await.id, begun));
        }
        disk.fill();
        // The last page of the file has room for some.
        let (id, begun) = loop {
            let (id, begun) = waiting.pop().expect("the disk is full, and yes is taken");
            match desk.answer(&id, ApprovalDecision::Approve).await {
                Err(refused) => {
                    assert_eq!(
                        (refused.code, refused.reason.as_str()),
                        (Code::Unavailable, "JOURNAL_UNWRITABLE")
                    );
                    break (id, begun);
                }
                // Written, or the start that it allows was not: both are told.
                Ok(_) => drop(outcome(begun).await),
            }
        };
        assert_eq!(desk.get(&id).await.state(), ApprovalState::Pending, "it still waits");
        let refused = touch(session, "one-more").refusal().await;
        assert_eq!(refused.reason, "JOURNAL_UNWRITABLE", "nobody is asked in secret");
        desk.deny(&id).await;
        assert_eq!(refusal(begun).await.reason, "APPROVAL_DENIED");

        disk.empty();
        let (id, begun) = waiting.pop().expect("some still wait");
        let approved = async {
            while desk.answer(&id, ApprovalDecision::Approve).await.is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        crate::support::within("a yes, when there is room again", approved).await;
        let terminal = outcome(begun).await.expect("it runs");
        assert_eq!(code(&terminal.wait().await), 0);
        terminal.release().await;
        waiting.iter().for_each(|(_, begun)| begun.abort());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_gateway_that_dies_takes_its_questions_with_it_and_the_next_one_asks_again() {
    let gateway = gateway("");
    let mut session = Session::open(&gateway).await;
    let desk = Desk::of(&session.caller);
    let mut changes = desk.watch().await;
    let begun = begin(touch(&session, "made"));
    let before = changes.must_be(ApprovalState::Pending).await;
    gateway.crash();
    assert_eq!(refusal(begun).await.reason, "", "the connection broke: nobody has answered");
    gateway.start_again();
    // The session is there; what was asked is not, and no old id is good for anything.
    session.go_on(&gateway.caller().await);
    let desk = Desk::of(&session.caller);
    let mut changes = desk.watch().await;
    let gone = desk.answer(&before.id, ApprovalDecision::Approve).await.expect_err("it is gone");
    assert_eq!(gone.reason, "APPROVAL_NOT_FOUND");
    let begun = begin(touch(&session, "made"));
    let again = changes.must_be(ApprovalState::Pending).await;
    assert_ne!(again.id, before.id);
    desk.approve(&again.id).await;
    let terminal = outcome(begun).await.expect("it runs");
    assert_eq!(code(&terminal.wait().await), 0);
    terminal.release().await;
    session.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_yes_that_was_not_used_is_void_after_a_crash() {
    let gateway = gateway("");
    let mut session = Session::open(&gateway).await;
    let first = unattended(touch(&session, "made")).refusal().await;
    Desk::of(&session.caller).approve(first.meta("approval_id")).await;
    gateway.crash();
    gateway.start_again();
    session.go_on(&gateway.caller().await);
    let again = unattended(touch(&session, "made")).refusal().await;
    assert_eq!(again.reason, "APPROVAL_REQUIRED", "{again:?}");
    assert_ne!(again.meta("approval_id"), first.meta("approval_id"));
    assert!(!session.workspace.join("made").exists(), "it has not run");
    session.close().await;
}
