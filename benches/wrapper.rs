//! What a line costs an agent that starts a process for it: bare, in a peer's sandbox, and by the commands of this program that only talk
//! to a gateway. Everything is a whole process, from posix_spawn to the end of wait.
//!
//! All candidates take turns, and each round gives the ratio of its own times, so that other load on the machine moves both.
//! `cargo bench --bench wrapper -- [--rounds N]`

#[allow(dead_code, reason = "each benchmark uses its part")]
mod support;

use std::time::{Duration, Instant};

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike as _,
};
use provost::client::Client;
use provost_test_support::Gateway;
use support::{
    gateway::{self, PROVOST},
    machine,
    peers::Peer,
    statistics::{self, Samples},
};

/// The small program.
const PROVOST_SHELL: &str = env!("CARGO_BIN_EXE_provost-shell");
/// A line of the shell's own, and one that starts a program.
const LINES: [&str; 2] = [":", "/bin/true"];
/// A program without a shell.
const PROGRAM: &str = "/bin/true";
/// Options of `bwrap` for the same as the gateway gives: other namespaces, the system read-only.
const BWRAP: [&str; 9] =
    ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"];

fn main() {
    if !support::asked_to_measure() {
        return;
    }
    println!("## A line as a whole process\n");
    machine::print_facts();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let gateway = gateway::start();
        let mut client = gateway::connect(&gateway).await;
        let session = gateway::open_session(&gateway, &mut client).await;
        std::env::set_current_dir(gateway::workspace(&gateway)).expect("the workspace is there");
        for line in LINES {
            table(&mut client, &session, candidates_for_line(&gateway, line)).await;
        }
        table(&mut client, &session, candidates_for_program(&gateway, &session)).await;
        gateway::close_session(&mut client, &session).await;
    });
}

/// What is measured.
enum Candidate {
    /// A process.
    Process(Peer),
    /// A call of this process, over a connection that it has: what is left of a client when there is no process to start.
    Call(String, Vec<String>),
}

fn candidates_for_line(gateway: &Gateway, line: &str) -> Vec<Candidate> {
    let (address, root) = (gateway.address(), gateway::workspace(gateway).display().to_string());
    // All of them in the session of this process.
    let shell = |name: &str, address: &str| {
        let shell = Peer::new(name, &[PROVOST_SHELL, "-c", line]);
        shell.with("PROVOST_GATEWAY", address).with("PROVOST_SHELL_ROOT", &root)
    };
    let away = "unix:/nowhere/provost.sock";
    let wrapper = [PROVOST, "shell-wrapper", "--gateway", &address, "--root", &root, "--", "-c", line];
    vec![
        Candidate::Process(Peer::new(&format!("bare `bash -c {line}`"), &["bash", "-c", line])),
        Candidate::Process(in_bwrap(&["bash", "-c", line])),
        Candidate::Call(
            format!("`Terminals.Run` of `bash -c {line}`"),
            ["bash", "-c", line].map(str::to_owned).to_vec(),
        ),
        Candidate::Process(shell(&format!("`provost-shell -c {line}`"), &address)),
        Candidate::Process(shell("  the same with the gateway away", away).failing()),
        Candidate::Process(Peer::new(&format!("`provost shell-wrapper -c {line}`"), &wrapper)),
    ]
}

fn candidates_for_program(gateway: &Gateway, session: &str) -> Vec<Candidate> {
    let address = gateway.address();
    vec![
        Candidate::Process(Peer::new(&format!("bare `{PROGRAM}`"), &[PROGRAM])),
        Candidate::Process(in_bwrap(&[PROGRAM])),
        Candidate::Call(format!("`Terminals.Run` of `{PROGRAM}`"), vec![PROGRAM.to_owned()]),
        Candidate::Process(Peer::new(
            "`provost exec --gateway`, in a session that is open",
            &[PROVOST, "exec", "--gateway", &address, session, "--", PROGRAM],
        )),
        Candidate::Process(Peer::new(
            "`provost run --gateway`, with a session of its own",
            &[PROVOST, "run", "--gateway", &address, "--", PROGRAM],
        )),
        Candidate::Process(
            Peer::new(
                "  `provost run --gateway` with the gateway away",
                &[PROVOST, "run", "--gateway", "unix:/nowhere/provost.sock", "--", PROGRAM],
            )
            .failing(),
        ),
    ]
}

fn in_bwrap(argv: &[&str]) -> Peer {
    Peer::new("`bwrap --unshare-all`, the same in it", &[&BWRAP[..], argv].concat())
}

/// What one candidate took.
#[derive(Default)]
struct Taken {
    wall: Samples,
    /// The time of the processes that it started, without the gateway's.
    processor: Samples,
    /// The ratio of each round to the first candidate's of the same round.
    ratios: Vec<f64>,
}

async fn table(client: &mut Client, session: &str, candidates: Vec<Candidate>) {
    let rounds = support::number("rounds", 300);
    let mut working = Vec::new();
    for candidate in candidates {
        // The first of each opens its session, and reads its files from the disk.
        match measure(client, session, &candidate).await {
            Some(_) => working.push((candidate, Taken::default())),
            None => println!("SKIPPED: {}: it does not work here", candidate.name()),
        }
    }
    for _ in 0..rounds {
        let mut bare = Duration::ZERO;
        for (candidate, taken) in &mut working {
            let (wall, processor) = measure(client, session, candidate).await.expect("it worked before");
            bare = if bare.is_zero() { wall } else { bare };
            taken.wall.add(wall);
            taken.processor.add(processor);
            taken.ratios.push(wall.as_secs_f64() / bare.as_secs_f64());
        }
    }
    println!("| what | rounds | median µs | p10 µs | p90 µs | processor µs | ratio to the first |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for (candidate, Taken { wall, processor, ratios }) in &working {
        println!(
            "| {} | {rounds} | {} | {} | {} | {} | {:.2} |",
            candidate.name(),
            wall.median().as_micros(),
            wall.percentile(10).as_micros(),
            wall.percentile(90).as_micros(),
            processor.median().as_micros(),
            statistics::median(ratios),
        );
    }
    println!();
}

impl Candidate {
    fn name(&self) -> &str {
        match self {
            Self::Process(peer) => &peer.name,
            Self::Call(name, _) => name,
        }
    }
}

/// The time by the clock, and the processor time of the process. `None`: it does not work.
async fn measure(client: &mut Client, session: &str, candidate: &Candidate) -> Option<(Duration, Duration)> {
    let before = children_processor_time();
    let wall = match candidate {
        Candidate::Process(peer) => peer.run()?,
        Candidate::Call(_, argv) => {
            let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
            let begun = Instant::now();
            gateway::run(client, gateway::command(session, &argv)).await;
            begun.elapsed()
        }
    };
    Some((wall, children_processor_time().saturating_sub(before)))
}

/// The time of the processes that this one has waited for. The gateway is waited for at the end only.
fn children_processor_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("it cannot fail");
    let microseconds = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(microseconds.try_into().unwrap_or_default())
}
