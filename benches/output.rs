//! What a flood of output costs: into a terminal that nobody reads, and streamed to a caller.
//!
//! For comparison, the same flood into `| cat >/dev/null` takes turns with it.
//! `cargo bench --bench output -- [--rounds N] [--mib N]`

#[allow(dead_code, reason = "each benchmark uses its part")]
mod support;

use std::time::{Duration, Instant};

use provost::client::Client;
use support::{gateway, machine, peers::Peer, statistics};

fn main() {
    if !support::asked_to_measure() {
        return;
    }
    println!("## Output\n");
    machine::print_facts();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(floods());
}

async fn floods() {
    let rounds = support::number("rounds", 7);
    let bytes = support::number("mib", 1024) << 20;
    let gateway = gateway::start();
    let mut client = gateway::connect(&gateway).await;
    let session = gateway::open_session(&gateway, &mut client).await;
    let sources = [
        ("`head -c N /dev/zero`", format!("exec head -c {bytes} /dev/zero")),
        ("`yes \\| head -c N`", format!("yes | head -c {bytes}")),
    ];
    println!("Each flood is {} MiB; medians of {rounds} rounds.\n", bytes >> 20);
    println!(
        "| source | `\\| cat >/dev/null` MB/s | unread terminal MB/s | share of cat | streamed over gRPC MB/s |"
    );
    println!("|---|---:|---:|---:|---:|");
    let (mut least_share, mut least_streamed) = (f64::INFINITY, f64::INFINITY);
    let before = machine::footprint(&gateway.process());
    for (name, line) in &sources {
        let piped = Peer::new("cat", &["sh", "-c", &format!("{{ {line}; }} | cat >/dev/null")]);
        let (mut cat, mut unread, mut streamed) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..=rounds {
            let rates = [
                rate(bytes, piped.run().expect("the pipeline runs")),
                rate(bytes, into_unread_terminal(&mut client, &session, line).await),
                rate(bytes, streamed_to_caller(&mut client, &session, line, bytes).await),
            ];
            // The first round only warms up.
            if round > 0 {
                cat.push(rates[0]);
                unread.push(rates[1]);
                streamed.push(rates[2]);
            }
        }
        let [cat, unread, streamed] = [cat, unread, streamed].map(|rates| statistics::median(&rates));
        println!("| {name} | {cat:.0} | {unread:.0} | {:.2} | {streamed:.0} |", unread / cat);
        (least_share, least_streamed) = (least_share.min(unread / cat), least_streamed.min(streamed));
    }
    let after = machine::footprint(&gateway.process());
    println!(
        "\nGateway: resident {} → {} KiB, peak {} KiB, descriptors {} → {}.\n",
        before.resident_kib, after.resident_kib, after.peak_kib, before.descriptors, after.descriptors,
    );
    statistics::print_aim(
        "output of an unread terminal at 0.8 of the rate of `\\| cat >/dev/null`",
        &format!("{least_share:.2}"),
        least_share >= 0.8,
    );
    statistics::print_aim(
        "output streamed to a caller at 500 MB/s",
        &format!("{least_streamed:.0} MB/s"),
        least_streamed >= 500.0,
    );
    gateway::close_session(&mut client, &session).await;
}

fn rate(bytes: usize, took: Duration) -> f64 {
    bytes as f64 / 1e6 / took.as_secs_f64()
}

async fn into_unread_terminal(client: &mut Client, session: &str, line: &str) -> Duration {
    let begun = Instant::now();
    let terminal = gateway::create_and_wait(client, gateway::command(session, &["sh", "-c", line])).await;
    let took = begun.elapsed();
    gateway::release(client, terminal).await;
    took
}

async fn streamed_to_caller(client: &mut Client, session: &str, line: &str, bytes: usize) -> Duration {
    let begun = Instant::now();
    let came = gateway::run(client, gateway::command(session, &["sh", "-c", line])).await;
    let took = begun.elapsed();
    assert_eq!(came, bytes as u64, "all bytes came, and each once");
    took
}
