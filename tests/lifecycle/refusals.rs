//! What is left of a refused request: nothing.

use crate::support::{Gateway, api::ListTerminalsRequest, in_session};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_refused_command_leaves_no_terminal_no_group_and_no_descriptor() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        // The sandbox is up and warm after this.
        session.command("true").finish().await;
        session.command("no-such-program").refusal().await;
        let before = gateway.footprint();
        for _ in 0..20 {
            session.command("no-such-program").refusal().await;
            session.command("true").cwd("/etc").refusal().await;
            session.command("true").env("LD_PRELOAD", "x").refusal().await;
            session.command("").refusal().await;
        }
        gateway.comes_back_to(&before).await;
        let request = ListTerminalsRequest { session_id: session.id.clone(), ..Default::default() };
        let listed =
            session.caller.terminals.clone().list_terminals(request).await.expect("a list").into_inner();
        assert!(listed.terminals.is_empty());
    })
    .await;
}
