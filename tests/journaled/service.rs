//! The audit service: whom it shows what.

use tokio_stream::StreamExt;
use tonic::{Code, Streaming, transport::Channel};

use crate::support::{
    Caller, DEADLINE, Gateway, Refusal, Session,
    api::{
        AuditFilter, AuditIntegrity, AuditRecord, Decision, FollowRecordsRequest, FollowRecordsResponse,
        QueryRecordsRequest, VerifyJournalRequest, audit_client::AuditClient,
    },
    is_root, skip, within,
};

fn client(caller: &Caller) -> AuditClient<Channel> {
    AuditClient::new(caller.channel())
}

async fn queried(caller: &Caller, filter: AuditFilter) -> Vec<serde_json::Value> {
    let request = QueryRecordsRequest { filter: Some(filter), last: None };
    let mut stream = client(caller).query_records(request).await.expect("a query").into_inner();
    let mut records = Vec::new();
    while let Some(record) = within("a record", stream.next()).await {
        records.push(parsed(&record.expect("a record").record.expect("it is set")));
    }
    records
}

fn parsed(record: &AuditRecord) -> serde_json::Value {
    let line: serde_json::Value = serde_json::from_str(&record.line).expect("a line is JSON");
    assert_eq!(line["seq"], record.sequence);
    line["record"].clone()
}

async fn next(stream: &mut Streaming<FollowRecordsResponse>) -> serde_json::Value {
    let record = within("the next record", stream.next()).await.expect("the stream goes on");
    parsed(&record.expect("a record").record.expect("it is set"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_caller_is_shown_its_own_records_and_the_administrator_all() {
    if !is_root() {
        return skip("only root can be other users");
    }
    let gateway = Gateway::start();
    let [one, other] = [4001, 4002].map(|uid| Session::open_as(&gateway, uid));
    let (one, other) = (one.await, other.await);
    for session in [&one, &other] {
        session.command("true").finish().await;
        session.command("true").env("LD_PRELOAD", "x").refusal().await;
        session.close().await;
    }
    let own = queried(&one.caller, AuditFilter::default()).await;
    let kinds: Vec<_> = own.iter().filter_map(|record| record["kind"].as_str()).collect();
    assert_eq!(
        kinds,
        ["session_opened", "decision", "spawn", "started", "exit", "decision", "session_closed"]
    );
    assert!(own.iter().all(|record| record["principal"] == "uid:4001" && record["session"] == *one.id));
    // Another's session is one without records, by whatever way it is asked for.
    for filter in [
        AuditFilter { session_id: other.id.clone(), ..AuditFilter::default() },
        AuditFilter { principal: "uid:4001".into(), session_id: other.id.clone(), ..AuditFilter::default() },
    ] {
        assert!(queried(&one.caller, filter).await.is_empty());
    }
    let foreign = AuditFilter { principal: "uid:4002".into(), ..AuditFilter::default() };
    let request = QueryRecordsRequest { filter: Some(foreign.clone()), last: None };
    let refused =
        Refusal::from(client(&one.caller).query_records(request).await.expect_err("it is another's"));
    refused.must_name_the_field("filter.principal");

    let root = gateway.caller().await;
    let all = queried(&root, AuditFilter::default()).await;
    assert!(all.iter().any(|record| record["kind"] == "gateway_started"));
    assert!(all.iter().any(|record| record["principal"] == "uid:4002"));
    let denied = AuditFilter { decision: Decision::Deny.into(), ..foreign };
    let denied = queried(&root, denied).await;
    assert_eq!(denied.len(), 1, "{denied:?}");

    let refused = client(&one.caller)
        .verify_journal(VerifyJournalRequest::default())
        .await
        .expect_err("it is not for all");
    assert_eq!(Refusal::from(refused).code, Code::PermissionDenied);
    let report =
        client(&root).verify_journal(VerifyJournalRequest::default()).await.expect("a report").into_inner();
    assert!(
        matches!(report.integrity(), AuditIntegrity::Intact | AuditIntegrity::Torn)
            && report.faults.is_empty(),
        "{report:?}"
    );
    assert_eq!(report.last_hash.len(), 64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_follower_is_sent_what_is_written_from_then_on_or_from_where_it_was() {
    let gateway = Gateway::start();
    let session = Session::open(&gateway).await;
    session.command("true").finish().await;
    let filter = Some(AuditFilter { session_id: session.id.clone(), ..AuditFilter::default() });
    let follow = async |after_sequence| {
        let request = FollowRecordsRequest { filter: filter.clone(), after_sequence, last: None };
        client(&session.caller).follow_records(request).await.expect("it can be followed").into_inner()
    };
    let (mut new, mut again) = (follow(None).await, follow(Some(0)).await);
    session.command("uname").finish().await;
    for kind in ["session_opened", "decision", "spawn", "started", "exit", "decision"] {
        assert_eq!(next(&mut again).await["kind"], kind);
    }
    let first = next(&mut new).await;
    // The exit of the command before may be written behind the answer about it.
    let first = if first["kind"] == "exit" { next(&mut new).await } else { first };
    assert_eq!((&first["kind"], &first["command"]["argv"][0]), (&"decision".into(), &"uname".into()));
    // Nobody can take all the places, and a place that is left is free.
    let mut held = Vec::new();
    let refused = loop {
        let request = FollowRecordsRequest { filter: filter.clone(), after_sequence: None, last: None };
        match client(&session.caller).follow_records(request).await {
            Ok(stream) => held.push(stream),
            Err(status) => break Refusal::from(status),
        }
    };
    assert_eq!((refused.code, refused.meta("cap")), (Code::ResourceExhausted, "8"), "{refused:?}");
    drop((held, new, again));
    let begun = std::time::Instant::now();
    loop {
        let request = FollowRecordsRequest { filter: filter.clone(), after_sequence: None, last: None };
        if client(&session.caller).follow_records(request).await.is_ok() {
            break;
        }
        assert!(begun.elapsed() < DEADLINE, "places are not given back");
    }
    session.close().await;
}
