//! A value that stands in the line of a request: whatever becomes of the request, it is not written and not shown.

use std::{fs, os::unix::fs::symlink, process::Command as Process};

use serde_json::Value;

use crate::{
    secrets::{VALUE, armed, with_secret, write_secret},
    support::{
        Gateway, Session,
        api::{
            Approval, ApprovalDecision, ListApprovalsRequest, OnAsk, ResolveApprovalRequest,
            approvals_client::ApprovalsClient,
        },
        code, within,
    },
};

/// The decisions that are written, oldest first.
fn decisions(gateway: &Gateway) -> Vec<Value> {
    let output = Process::new(env!("CARGO_BIN_EXE_provost"))
        .args(["audit", "query", "-o", "json", "--journal"])
        .arg(gateway.state.join("journal"))
        .output()
        .expect("provost can be started");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("records are text");
    assert!(!text.contains(&VALUE[4..20]), "{text}");
    let record = |line: &str| serde_json::from_str::<Value>(line).expect("a line is JSON")["record"].clone();
    text.lines().map(record).filter(|record| record["kind"] == "decision").collect()
}

/// The last of them; it is written before its request is answered.
fn last(gateway: &Gateway) -> Value {
    decisions(gateway).pop().expect("there are decisions")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_value_in_a_line_that_is_denied_is_not_written() {
    armed(async |armed, session| {
        for command in [
            session.command("chown").args(["me", VALUE]),
            with_secret(session.command("chown").args(["me", VALUE])),
            session.sh(&format!("echo x{VALUE}y; chown me {VALUE}")),
            session.command(&format!("/{VALUE}/chown")),
            session.command("true").args([VALUE]).env("LD_PRELOAD", "x"),
            session.command("true").cwd(format!("/{VALUE}")),
            session.command("chown").args(["me", "another-value-altogether"]),
        ] {
            let before = decisions(&armed.gateway).len();
            let refusal = command.refusal().await;
            let all = decisions(&armed.gateway);
            // What is not found is permitted first.
            let written = all.last().expect("there are decisions");
            assert_eq!(all.len(), before + 1, "{refusal:?}");
            let text = written.to_string();
            assert!(text.contains("***") && !text.contains("another-value"), "{written}");
        }
        let written = last(&armed.gateway);
        assert_eq!((written["decision"].as_str(), written["rule"].as_str()), (Some("deny"), Some("never")));
        assert_eq!(written["command"]["argv"], serde_json::json!(["chown", "me", "***"]));
        // A caller who had the replaced value may still use it.
        write_secret(&armed.file, "a-new-value-1", 0o600);
        session.command("chown").args(["a-new-value-1", VALUE]).refusal().await;
        assert_eq!(last(&armed.gateway)["command"]["argv"], serde_json::json!(["chown", "***", "***"]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_value_in_a_line_that_is_asked_about_is_neither_written_nor_shown() {
    armed(async |armed, session: &Session| {
        let asking = || {
            let command = session.command("mkfifo").args([VALUE.replace('/', "-").as_str(), VALUE]);
            command.with(|request| request.on_ask = OnAsk::Refuse.into())
        };
        let refusal = asking().refusal().await;
        assert_eq!(refusal.reason, "APPROVAL_REQUIRED");
        let mut approvals = ApprovalsClient::new(session.caller.channel());
        let list = within("a list", approvals.list_approvals(ListApprovalsRequest::default())).await;
        let list: Vec<Approval> = list.expect("it can be listed").into_inner().approvals;
        let shown = format!("{list:?}");
        assert!(shown.contains("mkfifo") && shown.contains("***"), "{shown}");
        assert!(!shown.contains(VALUE), "{shown}");
        let request = ResolveApprovalRequest {
            approval_id: refusal.meta("approval_id").to_owned(),
            decision: ApprovalDecision::Approve.into(),
            ..ResolveApprovalRequest::default()
        };
        within("an answer", approvals.resolve_approval(request)).await.expect("it can be answered");
        // It is the same request, and runs with the value in its line.
        let done = asking().finish().await;
        assert_eq!(code(&done.outcome), 1, "there is no such directory");
        assert!(session.workspace.join(VALUE.replace('/', "-")).exists());
        let verdicts: Vec<Value> =
            decisions(&armed.gateway).iter().rev().take(3).map(|one| one["decision"].clone()).collect();
        assert_eq!(verdicts, ["allow", "ask", "ask"]);
        let of_another = session.command("echo").args([VALUE]).finish().await;
        assert_eq!(code(&of_another.outcome), 0);
        assert_eq!(last(&armed.gateway)["command"]["argv"], serde_json::json!(["echo", "***"]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn where_a_secret_cannot_be_read_no_line_is_written_but_what_was_decided() {
    armed(async |armed, session| {
        let refused = async || {
            session.command("chown").args(["me", VALUE]).refusal().await;
            last(&armed.gateway)
        };
        refused().await;
        // A link that leads to itself. What was known before is known still.
        fs::remove_file(&armed.file).expect("it is ours");
        symlink(&armed.file, &armed.file).expect("a link can be made");
        assert_eq!(refused().await["command"]["argv"], serde_json::json!(["chown", "me", "***"]));
        armed.gateway.crash();
        armed.gateway.start_again();
        let mut session = Session::open(&armed.gateway).await;
        session.go_on(&armed.gateway.caller().await);
        session.command("chown").args(["me", VALUE]).refusal().await;
        let written = last(&armed.gateway);
        assert_eq!((written["decision"].as_str(), written["rule"].as_str()), (Some("deny"), Some("never")));
        assert_eq!(written["command"]["argv"], serde_json::json!([]), "{written}");
        assert!(written["command"]["cut_bytes"].as_u64().is_some_and(|cut| cut > 8), "{written}");
        assert!(written["reason"].as_str().is_some_and(|reason| reason.contains("cannot be read")));
        assert_eq!(written["request_digest"].as_str().map(str::len), Some(64));
        fs::remove_file(&armed.file).expect("it is ours");
        write_secret(&armed.file, VALUE, 0o600);
        session.command("chown").args(["me", VALUE]).refusal().await;
        assert_eq!(last(&armed.gateway)["command"]["argv"], serde_json::json!(["chown", "me", "***"]));
        session.close().await;
    })
    .await;
}
