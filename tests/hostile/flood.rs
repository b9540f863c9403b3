//! Hostile callers before a session: what one user holds or sends keeps another one neither out nor waiting, and takes
//! a bounded part of the gateway.
//!
//! The attacks are those of `tests/attacks/flood.c`, run as a user of their own.

use std::{
    fs,
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream, process::CommandExt},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::support::{
    Attack, DEADLINE, Gateway, Options, Session, code, eventually, in_session, is_root, skip, within,
};

pub(super) const ATTACKER: u32 = 54_322;
const VICTIM: u32 = 54_321;
/// What a user may have of connections.
const CONNECTIONS: usize = 512;
/// How much the gateway may grow by half-sent requests: the share of 32 MiB, and what connections and calls take.
const GROWTH_BYTES: u64 = 128 << 20;

/// What frames of one user may cost in a second, and at once: `docs/internals/limits.md` has the costs.
const FRAME_UNITS_PER_S: f64 = 100_000.0;
const FRAME_UNITS_AT_ONCE: u64 = 200_000;
/// What is read of a connection before its frames are counted may exceed that: so many bytes of the cheapest frames.
const FRAME_UNITS_OF_READS: u64 = CONNECTIONS_OF_FRAMES as u64 * (64 << 10) / 9 * 20;
const CONNECTIONS_OF_FRAMES: u32 = 2;
/// How long frames come before they are counted.
const FRAMES_FOR: Duration = Duration::from_secs(3);

/// A running attack. Ends with this.
pub(super) struct Flood {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stdin: ChildStdin,
}

impl Flood {
    /// Starts one, and waits until it is at its height.
    pub(super) fn begin(gateway: &Gateway, kind: &str, connections: u32, streams: u32) -> Self {
        Self::begin_with(gateway, kind, connections, streams, &[])
    }

    /// With the first field of its requests, and the path that they call.
    pub(super) fn begin_with(
        gateway: &Gateway,
        kind: &str,
        connections: u32,
        streams: u32,
        field_and_path: &[&str],
    ) -> Self {
        let program = Attack::compiled("flood").placed_in(gateway.directory());
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("the program is ours");
        let mut child = Command::new(program)
            .arg(&gateway.socket)
            .args([kind, &connections.to_string(), &streams.to_string()])
            .args(field_and_path)
            .uid(ATTACKER)
            .gid(ATTACKER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the attack can be started");
        let stdin = child.stdin.take().expect("it was asked for");
        let stdout = BufReader::new(child.stdout.take().expect("it was asked for"));
        let mut flood = Self { child, stdout, stdin };
        assert_eq!(flood.line(), "ready");
        flood
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("the attack speaks text");
        line.trim().to_owned()
    }

    /// How many of its frames the gateway has acknowledged by now.
    fn acknowledged(&mut self) -> u64 {
        self.stdin.write_all(b"\n").expect("the attack reads");
        let line = self.line();
        let count = line.strip_prefix("acknowledged ").and_then(|count| count.parse().ok());
        count.unwrap_or_else(|| panic!("{line:?}"))
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Another user comes in and runs commands, from its connection on.
pub(super) async fn the_victim_is_served(gateway: &Arc<Gateway>) {
    let session = within("a session during an attack", Session::open_as(gateway, VICTIM)).await;
    for _ in 0..5 {
        let finished = within("a command during an attack", session.command("true").finish()).await;
        assert_eq!(code(&finished.outcome), 0);
    }
    session.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn half_sent_requests_of_one_user_take_its_share_of_memory_and_no_more() {
    if !is_root() {
        return skip("other users need root");
    }
    let gateway = Gateway::start();
    the_victim_is_served(&gateway).await;
    let before = gateway.process().resident_bytes();
    for (kind, connections, streams) in [("bodies", 8, 48), ("claims", 8, 512), ("crumbs", 8, 256)] {
        let flood = Flood::begin(&gateway, kind, connections, streams);
        the_victim_is_served(&gateway).await;
        let grown = gateway.process().resident_bytes().saturating_sub(before);
        assert!(grown < GROWTH_BYTES, "{kind}: the gateway has grown by {} MiB", grown >> 20);
        drop(flood);
    }
    // The share comes back with the connections: nothing is left of what was held.
    in_session(&gateway, async |session| drop(session.command("true").finish().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn connections_of_one_user_are_bounded_and_another_one_comes_in() {
    if !is_root() {
        return skip("other users need root");
    }
    let gateway = Gateway::start();
    for kind in ["connections", "silent", "handshake", "headers"] {
        let flood = Flood::begin(&gateway, kind, 2_000, 0);
        the_victim_is_served(&gateway).await;
        // What the host sees of the gateway: one socket for each connection, and few other sockets.
        let sockets = eventually("the attack's connections", || {
            let links = gateway.process().descriptors();
            let sockets = links.iter().filter(|link| link.starts_with("socket:")).count();
            (sockets > CONNECTIONS / 2).then_some(sockets)
        })
        .await;
        assert!(sockets < CONNECTIONS + 64, "{kind}: {sockets} sockets are open");
        drop(flood);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "long: .ci/run runs it"]
async fn frames_of_one_user_that_come_too_fast_wait_and_another_user_does_not() {
    if !is_root() {
        return skip("other users need root");
    }
    let gateway = Gateway::start();
    // With what the gateway counts each acknowledged frame for, and those before it that are not acknowledged.
    for (kind, units) in [("pings", 5), ("settings", 20), ("windows", 24)] {
        let begun = Instant::now();
        let mut flood = Flood::begin(&gateway, kind, CONNECTIONS_OF_FRAMES, 0);
        the_victim_is_served(&gateway).await;
        // However fast or slow this machine is: what was taken is no more than the user's rate gives it by now.
        let taken = eventually("frames beyond what may come at once", || {
            let acknowledged = flood.acknowledged() * units;
            let is_enough = acknowledged > FRAME_UNITS_AT_ONCE && begun.elapsed() > FRAMES_FOR;
            is_enough.then_some(acknowledged)
        })
        .await;
        let allowed = FRAME_UNITS_AT_ONCE
            + FRAME_UNITS_OF_READS
            + (begun.elapsed().as_secs_f64() * FRAME_UNITS_PER_S) as u64;
        assert!(taken <= allowed, "{kind}: {taken} units were taken, {allowed} may be");
        drop(flood);
        // Its debt passes.
        the_victim_is_served(&gateway).await;
    }
    // A connection on which streams are reset this fast is closed: nothing of it is acknowledged.
    let flood = Flood::begin(&gateway, "resets", 16, 0);
    the_victim_is_served(&gateway).await;
    drop(flood);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "long: .ci/run runs it"]
async fn a_connection_on_which_nothing_comes_is_closed() {
    let gateway = Gateway::start();
    let silent = [&b""[..], b"PRI * HTTP/2.0\r\n\r\nSM"].map(|beginning| {
        let mut silent = connect(&gateway);
        silent.write_all(beginning).expect("a preface can be sent");
        silent
    });
    for mut silent in silent {
        // The gateway's own settings may come first.
        match silent.read_to_end(&mut Vec::new()) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn without_descriptors_new_connections_are_refused_at_once_and_old_ones_are_served() {
    let gateway = Gateway::start_with(Options::default());
    in_session(&gateway, async |session| {
        let held = session.command("true").create().await;
        held.wait().await;
        let before = soft_limit(&gateway);
        // None beyond the highest one that is open; those that are free below it are used up by connections.
        let highest = highest_descriptor(&gateway);
        set_descriptors(&gateway, highest + 1);
        let mut taken = Vec::new();
        loop {
            let stream = connect(&gateway);
            if !is_served(&stream) {
                break;
            }
            taken.push(stream);
        }
        let ticks = cpu_ticks(&gateway);
        let mut refused = 0;
        while refused < 20 {
            let stream = connect(&gateway);
            match is_served(&stream) {
                false => refused += 1,
                // The gateway had closed one of its own.
                true => taken.push(stream),
            }
            assert!(taken.len() < 1_000, "there are descriptors without end");
        }
        let spent = cpu_ticks(&gateway) - ticks;
        // 20 refusals with pauses between them take seconds; an accept loop that spins takes all of that time.
        assert!(spent < 100, "the gateway has spent {spent} ticks on refusing 20 connections");
        // Who is there is served.
        held.output().await;
        set_descriptors(&gateway, before);
        drop(taken);
        held.release().await;
        let other = Session::open(&gateway).await;
        other.command("true").finish().await;
        other.close().await;
    })
    .await;
}

fn connect(gateway: &Gateway) -> UnixStream {
    let stream = UnixStream::connect(&gateway.socket).expect("the socket takes connections");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout can be set");
    stream
}

/// Whether the gateway answers on it, or closes it. Fails when it does neither.
fn is_served(mut stream: &UnixStream) -> bool {
    // What is closed already takes no bytes.
    let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    match stream.read(&mut [0; 64]) {
        Ok(count) => count > 0,
        Err(error) => {
            let waits = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            assert!(!waits, "a connection waits although there is no descriptor for it");
            false
        }
    }
}

fn highest_descriptor(gateway: &Gateway) -> u64 {
    let entries = fs::read_dir(format!("/proc/{}/fd", gateway.pid_now())).expect("the gateway runs");
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.max().expect("it has descriptors")
}

fn soft_limit(gateway: &Gateway) -> u64 {
    let limits = fs::read_to_string(format!("/proc/{}/limits", gateway.pid_now())).expect("it runs");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("the limit is there");
    line.split_whitespace().nth(3).and_then(|soft| soft.parse().ok()).expect("a number")
}

/// Sets the soft limit of a running gateway (prlimit(1), as the crate has no safe call for another process's).
fn set_descriptors(gateway: &Gateway, soft: u64) {
    let set = Command::new("prlimit")
        .args(["--pid", &gateway.pid_now().to_string(), &format!("--nofile={soft}:")])
        .status()
        .expect("prlimit is there");
    assert!(set.success());
}

/// The processor time of a gateway, in ticks of 10 ms.
fn cpu_ticks(gateway: &Gateway) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", gateway.pid_now())).expect("the gateway runs");
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    after_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}
