//! Execs that a rule asks a person about, within commands that run.

use std::{fs, time::Duration};

use provost::proto::v1::{
    Approval, ApprovalDecision, ApprovalState, ExecDenialCause, ExitCause, ListApprovalsRequest, OnAsk,
    ResolveApprovalRequest, approvals_client::ApprovalsClient,
};
use tonic::transport::Channel;

use crate::{
    gate::told::{gateway, records, script},
    support::{Caller, Session, code, seconds, within},
};

/// A person at a gateway.
pub(crate) struct Approver(ApprovalsClient<Channel>);

impl Approver {
    pub(crate) fn of(caller: &Caller) -> Self {
        Self(ApprovalsClient::new(caller.channel()))
    }

    async fn list(&mut self) -> Vec<Approval> {
        let listed = self.0.list_approvals(ListApprovalsRequest::default()).await;
        listed.expect("they can be listed").into_inner().approvals
    }

    /// The one question, in this state.
    pub(crate) async fn question(&mut self, state: ApprovalState) -> Approval {
        within("a question", async {
            loop {
                let list = self.list().await;
                if let Some(found) = list.into_iter().find(|approval| approval.state() == state) {
                    break found;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
    }

    pub(crate) async fn answer(&mut self, approval: &Approval, decision: ApprovalDecision) {
        let request = ResolveApprovalRequest {
            approval_id: approval.id.clone(),
            decision: decision.into(),
            ..ResolveApprovalRequest::default()
        };
        self.0.resolve_approval(request).await.expect("it can be answered");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exec_that_is_asked_about_waits_while_others_run_and_the_idle_clock_stands_still() {
    let gateway = gateway();
    let session = Session::open(&gateway).await;
    let mut approver = Approver::of(&session.caller);
    let text = "/usr/bin/touch asked & asked=$!; touch free; wait $asked; echo ended $?";
    let terminal = script(&session, text).with(|create| create.idle_limit = Some(seconds(1))).create().await;
    let question = approver.question(ApprovalState::Pending).await;
    assert_eq!((question.rule.as_str(), question.reason.as_str()), ("careful", "it is asked about"));
    assert!(question.matched_command.ends_with("touch asked"), "{question:?}");
    let exec = question.exec.clone().expect("it is about an exec");
    assert_eq!(exec.terminal_id, terminal.id);
    assert_eq!(question.cwd, session.workspace.display().to_string());
    crate::support::eventually("the other exec", || session.workspace.join("free").exists().then_some(()))
        .await;
    // Longer than its idle limit: this is the time that is tested.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!session.workspace.join("asked").exists());
    approver.answer(&question, ApprovalDecision::Approve).await;
    let outcome = terminal.wait().await;
    assert_eq!((outcome.cause(), code(&outcome)), (ExitCause::Exited, 0));
    assert!(session.workspace.join("asked").exists());
    assert!(outcome.exec_denials.is_empty(), "{outcome:?}");
    assert_eq!(approver.question(ApprovalState::Used).await.id, question.id);
    assert_eq!(records(&gateway, "exec_asked").len(), 1);
    session.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_of_a_line_that_was_approved_is_not_asked_about_again_and_another_one_is() {
    let gateway = gateway();
    let session = Session::open(&gateway).await;
    let mut approver = Approver::of(&session.caller);
    fs::write(session.workspace.join("script"), "/usr/bin/touch asked other").expect("a file can be made");
    let line = session.sh("touch asked && touch asked; sh script; echo ended $?");
    let waiting = tokio::spawn(line.finish());
    let question = approver.question(ApprovalState::Pending).await;
    assert!(question.exec.is_none(), "it is about the request: {question:?}");
    approver.answer(&question, ApprovalDecision::Approve).await;
    let second = approver.question(ApprovalState::Pending).await;
    assert!(second.exec.is_some() && second.matched_command.ends_with("touch asked other"), "{second:?}");
    approver.answer(&second, ApprovalDecision::Deny).await;
    let done = within("the end of it", waiting).await.expect("it is not cancelled");
    assert!(session.workspace.join("asked").exists() && !session.workspace.join("other").exists());
    assert_eq!(records(&gateway, "exec_asked").len(), 1, "{}", done.text());
    session.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_no_refuses_the_exec_and_nothing_else() {
    let gateway = gateway();
    let session = Session::open(&gateway).await;
    let mut approver = Approver::of(&session.caller);
    let terminal = script(&session, "/usr/bin/touch asked; echo ended $?").create().await;
    let question = approver.question(ApprovalState::Pending).await;
    approver.answer(&question, ApprovalDecision::Deny).await;
    let outcome = terminal.wait().await;
    assert_eq!(code(&outcome), 0);
    let [denial] = &outcome.exec_denials[..] else { panic!("{outcome:?}") };
    assert_eq!((denial.cause(), denial.rule.as_str()), (ExecDenialCause::AskRefused, "careful"));
    assert!(!session.workspace.join("asked").exists());
    session.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_arguments_of_all_execs_that_wait_have_a_bound() {
    let gateway = gateway();
    let session = Session::open(&gateway).await;
    // Each exec takes some 4 MB as the gate reads it.
    let text = "\
        a=aaaaaaaaaa; a=$a$a$a$a$a$a$a$a$a$a; a=$a$a$a$a$a$a$a$a$a$a; a=$a$a$a$a$a$a$a$a$a$a\n\
        a=$a$a$a$a$a$a$a$a$a$a; set -- $a $a $a $a $a $a $a $a $a $a $a $a $a $a $a $a $a $a; n=0\n\
        while [ $n -lt 30 ]; do /usr/bin/touch asked \"$@\" & n=$((n+1)); done; wait";
    let terminal = script(&session, text).create().await;
    let denied = within("denials", async {
        loop {
            let denied = records(&gateway, "exec_denied");
            if records(&gateway, "exec_asked").len() + denied.len() == 30 {
                break denied;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert!((4..=18).contains(&denied.len()), "{}", denied.len());
    for record in denied {
        assert_eq!(record["cause"], "unavailable", "{record}");
        assert!(record["reason"].as_str().is_some_and(|reason| reason.contains("memory")), "{record}");
    }
    terminal.release().await;
    session.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_ends_with_its_terminal_and_is_not_put_where_nobody_waits() {
    let gateway = gateway();
    let session = Session::open(&gateway).await;
    let mut approver = Approver::of(&session.caller);
    let terminal = script(&session, "/usr/bin/touch asked; echo ended $?").create().await;
    let question = approver.question(ApprovalState::Pending).await;
    terminal.kill(Some(Duration::ZERO)).await;
    terminal.wait().await;
    assert_eq!(approver.question(ApprovalState::Withdrawn).await.id, question.id);
    let unattended = script(&session, "/usr/bin/touch asked; echo ended $?");
    let done = unattended.with(|create| create.on_ask = OnAsk::Refuse.into()).finish().await;
    assert_eq!(done.outcome.exec_denials.len(), 1, "{:?}", done.outcome);
    assert_eq!(approver.list().await.len(), 1, "nobody was asked");
    assert!(!session.workspace.join("asked").exists());
    session.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_put_again_by_the_next_gateway_and_the_exec_goes_on() {
    let gateway = gateway();
    let session = Session::open(&gateway).await;
    let terminal = script(&session, "/usr/bin/touch asked; echo ended $?").create().await;
    let first = Approver::of(&session.caller).question(ApprovalState::Pending).await;
    gateway.crash();
    gateway.start_again();
    let caller = gateway.caller().await;
    let mut approver = Approver::of(&caller);
    let again = approver.question(ApprovalState::Pending).await;
    assert_ne!(again.id, first.id);
    approver.answer(&again, ApprovalDecision::Approve).await;
    let outcome = terminal.over(&caller).wait().await;
    assert_eq!(code(&outcome), 0);
    assert!(session.workspace.join("asked").exists());
    assert_eq!(records(&gateway, "exec_asked").len(), 1, "it is recorded once");
    gateway.stop();
}
