//! Much output, tiny output, endless output: nothing is lost that was promised, and the gateway stays small.

use sha2::{Digest, Sha256};

use crate::support::{
    Gateway, Pattern,
    api::{ExitCause, TerminalState, run_response},
    code, in_session, within,
};

/// A gibibyte in `--release`-like time_limit; less with unoptimised code, where gRPC is what is slow.
const GIBIBYTE: u64 = 1 << 30;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: .ci/run runs it"]
async fn a_gibibyte_without_a_newline_is_carried_whole_and_the_gateway_stays_small() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        session.command("true").finish().await;
        let before = gateway.process().resident_bytes();
        let mut events =
            session.attack("emit").args(["fill", &GIBIBYTE.to_string()]).run().await.expect("it starts");
        let mut hash = Sha256::new();
        let (mut total, mut peak, mut finished) = (0_u64, 0, None);
        // Hashing a gibibyte in unoptimised code takes a minute: count all, hash the first 64 MiB.
        while let Some(event) = within("a run event", events.message()).await.expect("it goes on") {
            match event.event.expect("an event") {
                run_response::Event::Started(_) => {}
                run_response::Event::Chunk(chunk) => {
                    assert_eq!(chunk.offset, total, "a run loses nothing");
                    if total < 64 << 20 {
                        hash.update(&chunk.data);
                        peak = peak.max(gateway.process().resident_bytes());
                    }
                    assert!(chunk.data.iter().all(|&b| b == b'a'), "a byte was changed near {total}");
                    total += chunk.data.len() as u64;
                }
                run_response::Event::Finished(terminal) => finished = Some(terminal),
            }
        }
        peak = peak.max(gateway.process().resident_bytes());
        assert_eq!(total, GIBIBYTE);
        assert_eq!(code(&finished.expect("the end").outcome.expect("an outcome")), 0);
        println!("resident: {} KiB before, {} KiB at most", before >> 10, peak >> 10);
        assert!(peak < before + (32 << 20), "the gateway grew from {before} to {peak} bytes");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_carries_every_byte_with_the_same_hash_however_slow_its_reader() {
    in_session(&Gateway::shared(), async |session| {
        let total = 24_000_000_u64;
        let mut events =
            session.attack("emit").args(["pattern", &total.to_string()]).run().await.expect("it starts");
        let (mut ours, mut at, mut pauses) = (Sha256::new(), 0_u64, 0);
        while let Some(event) = within("a run event", events.message()).await.expect("it goes on") {
            if let run_response::Event::Chunk(chunk) = event.event.expect("an event") {
                assert_eq!(chunk.offset, at, "a run loses nothing");
                ours.update(&chunk.data);
                at += chunk.data.len() as u64;
                if pauses < 20 {
                    // A slow reader: the command has to wait, and does.
                    pauses += 1;
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                }
            }
        }
        assert_eq!(at, total);
        assert_eq!(ours.finalize(), Sha256::digest(Pattern::bytes(0, total)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_writes_of_one_byte_arrive_as_they_were_written() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.attack("emit").args(["single", "1000000"]).create().await;
        assert_eq!(code(&terminal.wait().await), 0);
        let output = terminal.output().await;
        assert_eq!((output.start_offset, output.data.len()), (0, 1_000_000));
        Pattern::check(0, &output.data);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endless_flood_leaves_the_gateways_memory_flat() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        session.command("true").finish().await;
        let terminal = session.attack("emit").args(["flood"]).create().await;
        let written = async || terminal.get().await.expect("it is there").output[0].next_offset;
        while written().await < 64 << 20 {}
        let before = gateway.process().resident_bytes();
        while written().await < 1 << 30 {}
        let after = gateway.process().resident_bytes();
        println!("resident: {} KiB before, {} KiB after a gibibyte", before >> 10, after >> 10);
        assert!(after <= before + (4 << 20), "the gateway grew from {before} to {after} bytes");
        assert_eq!(terminal.get().await.expect("it is there").state(), TerminalState::Running);
        terminal.kill(Some(std::time::Duration::ZERO)).await;
        let outcome = terminal.wait().await;
        assert_eq!(outcome.cause(), ExitCause::Killed);
        terminal.release().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_in_one_session_leaves_another_usable() {
    let gateway = Gateway::shared();
    in_session(&gateway, async |noisy| {
        let flood = noisy.attack("emit").args(["flood"]).create().await;
        in_session(&gateway, async |quiet| {
            for _ in 0..20 {
                assert_eq!(quiet.sh("echo fine").finish().await.text(), "fine\n");
            }
        })
        .await;
        flood.kill(Some(std::time::Duration::ZERO)).await;
        flood.wait().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_leaves_its_run_stops_the_command() {
    let gateway = Gateway::shared();
    in_session(&gateway, async |session| {
        let marker = session.marker();
        let mut events = session.idle(&marker).run().await.expect("it starts");
        within("Started", events.message()).await.expect("it goes on");
        within("the first words", events.message()).await.expect("it goes on");
        assert_eq!(crate::support::Process::all_marked(&marker).len(), 1);
        drop(events);
        crate::support::eventually("the end of the command", || {
            crate::support::Process::all_marked(&marker).is_empty().then_some(())
        })
        .await;
    })
    .await;
}
