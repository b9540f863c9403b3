//! Every exec is judged and counted, also those that come while no gateway runs.

use crate::{
    gate::{
        reports::allowed_count,
        told::{gateway, records, script},
    },
    support::{Session, code, eventually},
};

/// Runs so many programs one after another, kills the gateway half-way, and adds up what the journal says in the end.
async fn add_up_over_a_crash(execs: u64) {
    let gateway = gateway();
    let session = Session::open(&gateway).await;
    let text = format!(
        "n=0; while [ $n -lt {execs} ]; do /bin/true || echo failed; n=$((n+1)); [ $((n%100)) = 0 ] && echo $n; done; echo ended"
    );
    let terminal = script(&session, &text).retain(1 << 20).create().await;
    terminal.until(&format!("\n{}\n", execs / 2)).await;
    gateway.crash();
    gateway.start_again();
    let caller = gateway.caller().await;
    let terminal = terminal.over(&caller);
    let outcome = terminal.wait().await;
    let output = String::from_utf8_lossy(&terminal.output().await.data).into_owned();
    assert!(code(&outcome) == 0 && output.ends_with("ended\n") && !output.contains("failed"), "{output}");
    assert!(outcome.exec_denials.is_empty(), "{outcome:?}");
    terminal.release().await;
    eventually("all execs", || {
        (allowed_count(&records(&gateway, "execs_allowed"), "/true") == execs).then_some(())
    })
    .await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_execs_add_up_although_the_gateway_is_killed_in_the_middle() {
    add_up_over_a_crash(2_000).await;
}

/// Run by `.ci/long` alone.
mod nightly {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "long: .ci/long execs runs it"]
    async fn fifty_thousand_execs_add_up_although_the_gateway_is_killed_in_the_middle() {
        add_up_over_a_crash(50_000).await;
    }
}
