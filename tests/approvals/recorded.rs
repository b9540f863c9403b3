//! What the journal says of questions and answers.

use std::{process::Command, time::Duration};

use serde_json::Value;

use crate::{
    approvals::desk::{Desk, RULE, begin, gateway, outcome, refusal, touch, unattended},
    support::{
        Gateway,
        api::{ApprovalDecision, ApprovalState, ResolveApprovalRequest},
        in_session, within,
    },
};

/// Every record of these kinds, in order, as soon as there are so many.
async fn records(gateway: &Gateway, kinds: &[&str], count: usize) -> Vec<Value> {
    let journal = gateway.state.join("journal");
    let look = async {
        loop {
            let mut command = Command::new(env!("CARGO_BIN_EXE_provost"));
            command.args(["audit", "query", "-o", "json", "--journal"]).arg(&journal);
            let output = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic");
            let text = String::from_utf8(output.expect("provost starts").stdout).expect("it is text");
            let found: Vec<Value> = text
                .lines()
                .map(|line| serde_json::from_str::<Value>(line).expect("it is JSON")["record"].take())
                .filter(|record| record["kind"].as_str().is_some_and(|kind| kinds.contains(&kind)))
                .collect();
            if found.len() >= count {
                break found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within("the records", look).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_journal_says_who_asked_who_answered_and_what_ran_by_it() {
    let gateway = gateway("");
    in_session(&gateway, async |session| {
        let desk = Desk::of(&session.caller);
        let mut changes = desk.watch().await;
        let begun = begin(touch(session, "made"));
        let pending = changes.must_be(ApprovalState::Pending).await;
        let kinds = ["decision", "approval_requested", "approval_resolved", "approval_expired", "spawn"];
        // The request for approval is written before an approver can see it.
        let asked = records(&gateway, &kinds, 2).await;
        assert_eq!(
            (asked[0]["kind"].as_str(), asked[0]["decision"].as_str()),
            (Some("decision"), Some("ask"))
        );
        assert_eq!(asked[1]["kind"], "approval_requested");
        assert_eq!(asked[1]["approval"], pending.id.as_str());
        assert_eq!(asked[1]["request_digest"], pending.request_digest.as_str());
        assert_eq!(
            (asked[1]["rule"].as_str(), asked[1]["expires_in_ms"].as_u64()),
            (Some(RULE), Some(300_000))
        );

        desk.resolve(ResolveApprovalRequest {
            approval_id: pending.id.clone(),
            decision: ApprovalDecision::Approve.into(),
            comment: "fine".into(),
            on_behalf_of: "Ada".into(),
        })
        .await
        .expect("it can be answered");
        outcome(begun).await.expect("it runs").release().await;
        let all = records(&gateway, &kinds, 5).await;
        let kinds_seen: Vec<&str> = all.iter().filter_map(|record| record["kind"].as_str()).collect();
        assert_eq!(kinds_seen, ["decision", "approval_requested", "approval_resolved", "decision", "spawn"]);
        let resolved = &all[2];
        assert_eq!(
            (resolved["approval"].as_str(), resolved["decision"].as_str()),
            (Some(pending.id.as_str()), Some("allow"))
        );
        assert_eq!(resolved["approver"], format!("uid:{}", nix::unistd::geteuid()));
        assert_eq!(
            (resolved["on_behalf_of"].as_str(), resolved["comment"].as_str()),
            (Some("Ada"), Some("fine"))
        );
        assert_eq!(
            (all[3]["decision"].as_str(), all[3]["approval"].as_str()),
            (Some("allow"), Some(pending.id.as_str()))
        );
        assert_eq!(all[3]["request_digest"], pending.request_digest.as_str());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_journal_says_why_a_question_ended_without_an_answer() {
    let gateway = gateway("expiry = '6s'");
    in_session(&gateway, async |session| {
        let desk = Desk::of(&session.caller);
        let mut changes = desk.watch().await;
        let begun = begin(touch(session, "a"));
        changes.must_be(ApprovalState::Pending).await;
        begun.abort();
        changes.must_be(ApprovalState::Withdrawn).await;
        assert_eq!(refusal(begin(touch(session, "b"))).await.reason, "APPROVAL_EXPIRED");
        let denied = unattended(touch(session, "c")).refusal().await;
        desk.deny(denied.meta("approval_id")).await;
        let ended = records(&gateway, &["approval_resolved", "approval_expired"], 3).await;
        let said: Vec<_> = ended.iter().map(|it| it["cause"].as_str().or(it["decision"].as_str())).collect();
        assert_eq!(said, [Some("withdrawn"), Some("time"), Some("deny")]);
        assert_eq!(ended[2]["approval"], denied.meta("approval_id"));
    })
    .await;
}
