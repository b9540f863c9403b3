//! What a person approves of a line in a kept shell holds within that line.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use crate::{
    interactive::shell_line::{KeptShellCalls, kept, request},
    support::{
        Gateway, Session, add_rule,
        api::{
            Approval, ApprovalDecision, ApprovalState, ListApprovalsRequest, ResolveApprovalRequest,
            approvals_client::ApprovalsClient,
        },
        eventually, in_session, within,
    },
};

fn rules(policy: &mut toml::Table) {
    add_rule(policy, "id = 'release'\ndecision = 'ask'\nargv = ['release.sh', '**']");
}

/// Answers the one question that waits.
async fn answer(session: &Session, decision: ApprovalDecision) -> Approval {
    let mut approvals = ApprovalsClient::new(session.caller.channel());
    let question = within("a question", async {
        loop {
            let listed = approvals.list_approvals(ListApprovalsRequest::default()).await;
            let all = listed.expect("they can be listed").into_inner().approvals;
            if let Some(found) = all.into_iter().find(|one| one.state() == ApprovalState::Pending) {
                break found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let resolved = approvals.resolve_approval(ResolveApprovalRequest {
        approval_id: question.id.clone(),
        decision: decision.into(),
        ..ResolveApprovalRequest::default()
    });
    resolved.await.expect("it can be answered");
    question
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approved_line_is_approved_once_and_its_loops_are_not_asked_about() {
    let gateway = Gateway::with_policy(rules);
    in_session(&gateway, async |session| {
        let place = |name: &str, text: &str| {
            let path = session.workspace.join(name);
            fs::write(&path, text).expect("a file can be made");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it can be executable");
        };
        place("release.sh", "#!/bin/sh\necho \"$*\" >>released\n");
        place("again", "./release.sh prod\n");
        place("wait", "until [ -e \"$1\" ]; do /bin/sleep 0.01; done\n./release.sh prod\n");
        let released = || fs::read_to_string(session.workspace.join("released")).unwrap_or_default();
        let terminal = &kept(session, "bash").await;
        let run = async |line: &str| terminal.try_line(request(terminal, line)).await;
        let (yes, no) = (ApprovalDecision::Approve, ApprovalDecision::Deny);

        // A loop, and what the line starts: one question, about the line.
        let line = "for i in 1 2 3; do ./release.sh prod; done; sh again";
        let (ran, question) = tokio::join!(run(line), answer(session, yes));
        assert!(question.exec.is_none(), "{question:?}");
        ran.expect("it was approved").finish().await.must_be("", 0);
        assert_eq!(released(), "prod\n".repeat(4));

        // Another line: asked about as a line, and as an exec where the line does not show it.
        let (ran, _) = tokio::join!(run("./release.sh prod"), answer(session, no));
        assert!(ran.is_err());
        let ran = async { run("sh again").await.expect("the line itself is allowed").finish().await };
        let (ran, question) = tokio::join!(ran, answer(session, no));
        assert!(question.exec.is_some() && ran.end.exit_status == Some(126), "{question:?} {ran:?}");

        // What an approved line has left in the background asks when the line is over.
        let line = "(sh wait go & ) ; ./release.sh prod";
        let (ran, _) = tokio::join!(run(line), answer(session, yes));
        ran.expect("it was approved").finish().await.must_be("", 0);
        terminal.line("touch go").await.must_be("", 0);
        assert!(answer(session, no).await.exec.is_some());

        // And what another line has left there is none of an approved one's.
        terminal.line("set +m; sh wait go2 & disown").await;
        let line = "touch go2; ./release.sh prod";
        let (ran, question) = tokio::join!(run(line), answer(session, yes));
        assert!(question.exec.is_none(), "{question:?}");
        ran.expect("it was approved").finish().await;
        assert!(answer(session, no).await.exec.is_some());
        eventually("the releases", || (released() == "prod\n".repeat(6)).then_some(())).await;
        terminal.release().await;
    })
    .await;
    gateway.stop();
}
