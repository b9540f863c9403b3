//! What one command costs: bare, in peers' sandboxes, in a cold session and in a warm one; and how many a second.
//!
//! All candidates take turns in one run, so that other load on the machine slows all of them alike.
//! `cargo bench --bench spawn -- [--rounds N] [--cold-rounds N] [--seconds N]`

#[allow(dead_code, reason = "each benchmark uses its part")]
mod support;

use std::time::{Duration, Instant};

use provost::client::Client;
use provost_test_support::Gateway;
use support::{
    gateway::{self, PROVOST},
    machine,
    peers::{self, Peer},
    statistics::{self, Row, Samples},
};

const PROGRAM: &str = "/bin/true";

fn main() {
    if !support::asked_to_measure() {
        return;
    }
    println!("## Spawn: `{PROGRAM}`\n");
    machine::print_facts();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let gateway = gateway::start();
        one_command(&gateway).await;
        sustained(&gateway).await;
    });
}

/// One command at a time.
async fn one_command(gateway: &Gateway) {
    let rounds = support::number("rounds", 1000);
    let every = (rounds / support::number("cold-rounds", 100).max(1)).max(1);
    let bare = Peer::new("bare posix_spawn + wait", &[PROGRAM]);
    let address = gateway.address();
    let workspace = gateway::workspace(gateway);
    std::env::set_current_dir(&workspace).expect("the workspace is there");
    let mut whole = peers::sandboxes(PROGRAM);
    let root = workspace.display().to_string();
    for peer in [
        Peer::new("bare `bash -c`", &["bash", "-c", PROGRAM]),
        // All of them in the session of this process.
        Peer::new(
            "`provost shell-wrapper -c`, whole process",
            &[PROVOST, "shell-wrapper", "--gateway", &address, "--root", &root, "--", "-c", PROGRAM],
        ),
        Peer::new(
            "`provost run --gateway`, whole process",
            &[PROVOST, "run", "--gateway", &address, "--", PROGRAM],
        ),
        Peer::new("`provost run` with its own gateway, whole process", &[PROVOST, "run", "--", PROGRAM]),
    ] {
        match peer.run() {
            Some(_) => whole.push(peer),
            None => println!("SKIPPED: {}: it does not work here", peer.name),
        }
    }

    let mut client = gateway::connect(gateway).await;
    let session = gateway::open_session(gateway, &mut client).await;
    for _ in 0..rounds / 20 {
        bare.run();
        gateway::run(&mut client, gateway::command(&session, &[PROGRAM])).await;
        warm_three_calls(&mut client, &session).await;
    }
    let before = machine::footprint(&gateway.process());

    let (mut bare_took, mut run_took, mut three_took) =
        (Samples::default(), Samples::default(), Samples::default());
    let (mut cold_took, mut close_took) = (Samples::default(), Samples::default());
    let mut whole_took = vec![Samples::default(); whole.len()];
    for round in 0..rounds {
        bare_took.add(bare.run().expect("the program runs"));
        let begun = Instant::now();
        gateway::run(&mut client, gateway::command(&session, &[PROGRAM])).await;
        run_took.add(begun.elapsed());
        three_took.add(warm_three_calls(&mut client, &session).await);
        if round % every != 0 {
            continue;
        }
        let (cold, close) = cold_command(gateway, &mut client).await;
        cold_took.add(cold);
        close_took.add(close);
        for (peer, took) in whole.iter().zip(&mut whole_took) {
            took.add(peer.run().expect("it ran before"));
        }
    }
    let after = machine::footprint(&gateway.process());
    gateway::close_session(&mut client, &session).await;

    let mut rows = vec![
        row("bare posix_spawn + wait", bare_took),
        row("Provost warm, `Terminals.Run`", run_took),
        row("Provost warm, Create + WaitForExit + Release", three_took),
        row("Provost cold: new session, first command's exit known", cold_took),
        row("  and closing that session", close_took),
    ];
    rows.extend(whole.into_iter().zip(whole_took).map(|(peer, samples)| Row { name: peer.name, samples }));
    statistics::print_durations(&rows);
    print_aims(&rows);
    println!(
        "Gateway: resident {} → {} KiB, descriptors {} → {}, over {} commands.\n",
        before.resident_kib,
        after.resident_kib,
        before.descriptors,
        after.descriptors,
        2 * rounds + rounds.div_ceil(every),
    );
}

fn print_aims(rows: &[Row]) {
    let seconds = |row: &Row| row.samples.median().as_secs_f64();
    let (bare, warm, three, cold) =
        (seconds(&rows[0]), seconds(&rows[1]), seconds(&rows[2]), seconds(&rows[3]));
    let over_bare = [("`Run`", warm), ("three calls", three)];
    for (name, took) in over_bare {
        let ratio = took / bare;
        statistics::print_aim(
            &format!("a warm command by {name} takes at most twice a bare one"),
            &format!("{ratio:.2}"),
            ratio <= 2.0,
        );
    }
    if let Some(bwrap) = rows.iter().find(|row| row.name.starts_with("`bwrap")).map(seconds) {
        let (faster, cold) = (bwrap / warm, cold / bwrap);
        statistics::print_aim(
            "a warm command is at least 4 times as fast as `bwrap --unshare-all`",
            &format!("{faster:.1}"),
            faster >= 4.0,
        );
        statistics::print_aim(
            "the first command of a session takes no longer than `bwrap --unshare-all`",
            &format!("{cold:.2}"),
            cold <= 1.0,
        );
    }
}

fn row(name: &str, samples: Samples) -> Row {
    Row { name: name.to_owned(), samples }
}

async fn warm_three_calls(client: &mut Client, session: &str) -> Duration {
    let begun = Instant::now();
    let terminal = gateway::create_and_wait(client, gateway::command(session, &[PROGRAM])).await;
    gateway::release(client, terminal).await;
    begun.elapsed()
}

/// Until the exit is known, and the close, apart.
async fn cold_command(gateway: &Gateway, client: &mut Client) -> (Duration, Duration) {
    let begun = Instant::now();
    let session = gateway::open_session(gateway, client).await;
    gateway::create_and_wait(client, gateway::command(&session, &[PROGRAM])).await;
    let cold = begun.elapsed();
    let begun = Instant::now();
    gateway::close_session(client, &session).await;
    (cold, begun.elapsed())
}

/// As many as can be had, with two callers for each processor.
async fn sustained(gateway: &Gateway) {
    let turn = Duration::from_secs(support::number("seconds", 3) as u64);
    let callers = 2 * machine::processors();
    let mut rates: [Vec<f64>; 3] = Default::default();
    for _ in 0..3 {
        rates[0].push(bare_rate(turn, callers));
        rates[1].push(provost_rate(gateway, turn, callers, 1).await);
        rates[2].push(provost_rate(gateway, turn, callers, machine::processors()).await);
    }
    println!("| sustained, {callers} callers at once | commands/s | share of bare |");
    println!("|---|---:|---:|");
    let bare = statistics::median(&rates[0]);
    let several = format!("Provost warm, {} sessions", machine::processors());
    for (name, rates) in ["bare posix_spawn + wait", "Provost warm, one session", &several].iter().zip(&rates)
    {
        let rate = statistics::median(rates);
        println!("| {name} | {rate:.0} | {:.2} |", rate / bare);
    }
    let share = statistics::median(&rates[1]) / bare;
    statistics::print_aim(
        "one session sustains at least half of the bare rate",
        &format!("{share:.2}"),
        share >= 0.5,
    );
}

fn bare_rate(turn: Duration, callers: usize) -> f64 {
    let begun = Instant::now();
    let done: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..callers)
            .map(|_| {
                scope.spawn(|| {
                    let bare = Peer::new("bare", &[PROGRAM]);
                    let mut done = 0;
                    while begun.elapsed() < turn {
                        bare.run().expect("the program runs");
                        done += 1;
                    }
                    done
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no caller fails")).sum()
    });
    done as f64 / begun.elapsed().as_secs_f64()
}

async fn provost_rate(gateway: &Gateway, turn: Duration, callers: usize, sessions: usize) -> f64 {
    let mut client = gateway::connect(gateway).await;
    let mut ids = Vec::new();
    for _ in 0..sessions {
        let id = gateway::open_session(gateway, &mut client).await;
        // The sandbox is up before the clock runs.
        warm_three_calls(&mut client, &id).await;
        ids.push(id);
    }
    let begun = Instant::now();
    let tasks = (0..callers).map(|caller| {
        let (mut client, session) = (client.clone(), ids[caller % sessions].clone());
        async move {
            let mut done = 0_usize;
            while begun.elapsed() < turn {
                gateway::run(&mut client, gateway::command(&session, &[PROGRAM])).await;
                done += 1;
            }
            done
        }
    });
    let mut running = tokio::task::JoinSet::new();
    for task in tasks {
        running.spawn(task);
    }
    let done: usize = running.join_all().await.into_iter().sum();
    let rate = done as f64 / begun.elapsed().as_secs_f64();
    for id in ids {
        gateway::close_session(&mut client, &id).await;
    }
    rate
}
