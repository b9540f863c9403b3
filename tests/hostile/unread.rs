//! Answers that nobody takes: they are bounded by bytes for each user, however many calls ask for them.
//!
//! The attack is one of `tests/attacks/flood.c`: it calls, and gives no window for what is answered.

use tonic::Code;

use crate::{
    hostile::flood::{ATTACKER, Flood, the_victim_is_served},
    support::{
        Gateway, Refusal, Session,
        api::{GetOutputRequest, GetOutputResponse},
        is_root, skip, within,
    },
};

/// How much the gateway may grow: the share of 32 MiB, one answer beyond it for each worker, and what connections and
/// calls take.
const GROWTH_BYTES: u64 = 160 << 20;
/// What the attack asks for is four times as much at least, for each of its kinds.
const RETAINED_BYTES: u64 = 4 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn answers_that_one_user_does_not_take_are_bounded_by_bytes() {
    if !is_root() {
        return skip("other users need root");
    }
    let gateway = Gateway::start();
    let session = Session::open_as(&gateway, ATTACKER).await;
    let zeros = format!("head -c {RETAINED_BYTES} /dev/zero");
    let terminal = session.sh(&zeros).retain(RETAINED_BYTES).create().await;
    terminal.wait().await;
    assert_eq!(terminal.output().await.data.len() as u64, RETAINED_BYTES);
    the_victim_is_served(&gateway).await;
    let before = gateway.process().resident_bytes();
    for (path, streams) in
        [("/provost.v1.Terminals/GetOutput", 100), ("/provost.v1.Terminals/StreamOutput", 1_000)]
    {
        let other = session.sh("sleep 1000").create().await;
        let flood = Flood::begin_with(&gateway, "unread", 2, streams, &[&terminal.id, path]);
        the_victim_is_served(&gateway).await;
        let grown = gateway.process().resident_bytes().saturating_sub(before);
        assert!(grown < GROWTH_BYTES, "{path}: the gateway has grown by {} MiB", grown >> 20);
        let refusal = output(&session, &terminal.id).await.expect_err("the user holds as much as it may");
        assert_eq!(refusal.code, Code::ResourceExhausted, "{refusal:?}");
        assert_eq!(refusal.meta("limit"), "answer_bytes", "{refusal:?}");
        // What ends something is done all the same.
        within("a kill", other.try_kill(None)).await.expect("it is done");
        within("a release", other.try_release(None)).await.expect("it is done");
        drop(flood);
        // With the connections, what they held is gone.
        let again = async {
            while output(&session, &terminal.id).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        within("room for an answer", again).await;
    }
    terminal.release().await;
    session.close().await;
}

async fn output(session: &Session, terminal: &str) -> Result<GetOutputResponse, Refusal> {
    let request = GetOutputRequest { terminal_id: terminal.to_owned(), ..GetOutputRequest::default() };
    let answered = within("an answer", session.caller.terminals.clone().get_output(request)).await;
    answered.map(tonic::Response::into_inner).map_err(Refusal::from)
}
