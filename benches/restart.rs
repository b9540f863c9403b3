//! How long a gateway takes to serve again, with everything taken back that a killed one has left.
//!
//! For comparison, a start with nothing to take back takes turns with it.
//! `cargo bench --bench restart -- [--rounds N] [--terminals N] [--sessions N]`

#[allow(dead_code, reason = "each benchmark uses its part")]
mod support;

use std::time::{Duration, Instant};

use provost::proto::v1::ListTerminalsRequest;
use provost_test_support::Gateway;
use support::{gateway, machine, statistics};

/// What it must not take longer than, with 1,000 terminals.
const AIM: Duration = Duration::from_secs(2);

fn main() {
    if !support::asked_to_measure() {
        return;
    }
    println!("## Restart\n");
    machine::print_facts();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(restarts());
}

async fn restarts() {
    let rounds = support::number("rounds", 7);
    let (terminals, sessions) = (support::number("terminals", 1000), support::number("sessions", 10));
    let (full, empty) = (gateway::start(), gateway::start());
    let mut client = gateway::connect(&full).await;
    for _ in 0..sessions {
        let session = gateway::open_session(&full, &mut client).await;
        for _ in 0..terminals / sessions {
            let idle = gateway::command(&session, &["sleep", "1000000"]);
            client.terminals.create_terminal(idle).await.expect("the command starts");
        }
    }
    let (mut with_all, mut with_none) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        with_all.push(restart(&full, terminals / sessions * sessions).await.as_secs_f64() * 1000.0);
        with_none.push(restart(&empty, 0).await.as_secs_f64() * 1000.0);
    }
    let (all, none) = (statistics::median(&with_all), statistics::median(&with_none));
    println!(
        "| live terminals | sessions | serving again, ms (median of {rounds}) | ratio to an empty start |"
    );
    println!("|---:|---:|---:|---:|");
    println!("| 0 | 0 | {none:.1} | 1.0 |");
    println!("| {terminals} | {sessions} | {all:.1} | {:.1} |", all / none);
    let aim = format!("a gateway with {terminals} live terminals serves again within {} s", AIM.as_secs());
    statistics::print_aim(&aim, &format!("{all:.0} ms"), all <= AIM.as_secs_f64() * 1000.0);
}

/// From the kill of one gateway to an answer of the next that names every terminal.
async fn restart(gateway: &Gateway, expected: usize) -> Duration {
    gateway.crash();
    let begun = Instant::now();
    gateway.start_again();
    let mut client = gateway::connect(gateway).await;
    let list =
        client.terminals.list_terminals(ListTerminalsRequest::default()).await.expect("the gateway answers");
    let took = begun.elapsed();
    assert_eq!(list.into_inner().terminals.len(), expected, "everything is there again");
    took
}
