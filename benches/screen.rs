//! What a screen costs: memory of an idle terminal's screen, the time from a byte in the ring to the picture of it, and how
//! fast output is taken in.

#[allow(dead_code, reason = "each benchmark uses its part")]
mod support;

use std::{
    fs::File,
    io::Write as _,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::Command,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use provost_base::{
    display::size::ScreenSize,
    output::ring::Layout,
    sandbox_program::SandboxProgram,
    sys::{
        namespace,
        ring::{Filled, RingWriter, WhenFull},
    },
    wire::screen::SOCKET_NAME,
};
use provost_gateway::sandbox::{
    cgroup::SandboxCgroup,
    host::Host,
    screen_link::{ScreenLaunch, ScreenLink, ScreenObserver, launch_blocking},
};

const TERMINALS: usize = 50;
const UPDATES: usize = 200;
const FLOOD_BYTES: usize = 64 << 20;

#[derive(Debug)]
struct Nobody;

impl ScreenObserver for Nobody {
    fn answered(&self, _: &str, _: Vec<u8>) {}
}

struct Output {
    ring: RingWriter,
    notifier: UnixStream,
    pipe: (std::io::PipeReader, std::io::PipeWriter),
}

impl Output {
    async fn add(link: &ScreenLink, id: &str) -> Self {
        let ring = RingWriter::create(Layout::retaining(1 << 20).unwrap(), WhenFull::DropOldest).unwrap();
        let path = format!("/proc/self/fd/{}", ring.file().as_raw_fd());
        let size = ScreenSize::new(80, 24).unwrap();
        link.add(id, size, File::open(path).unwrap().into(), 0).await.unwrap();
        let (notifier, theirs) = UnixStream::pair().unwrap();
        notifier.set_nonblocking(true).unwrap();
        link.set_notifier(id, theirs.into()).await.unwrap();
        Self { ring, notifier, pipe: std::io::pipe().unwrap() }
    }

    fn write(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(32 << 10) {
            self.pipe.1.write_all(piece).unwrap();
            let mut left = piece.len();
            while left > 0 {
                match self.ring.fill_from(self.pipe.0.as_fd(), left).unwrap() {
                    Filled::Bytes(count) => left -= count,
                    other => panic!("{other:?}"),
                }
            }
            // Full.
            let _ = self.notifier.write(&[1]);
        }
    }
}

fn resident_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0 kB");
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0)
    };
    of("RssAnon:") + of("RssShmem:")
}

fn pid_of(process: &OwnedFd) -> i32 {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).unwrap();
    info.lines().find_map(|line| line.strip_prefix("Pid:")).unwrap().trim().parse().unwrap()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    if !support::asked_to_measure() {
        return;
    }
    println!("## The screen process\n");
    support::machine::print_facts();
    println!("| what | |\n|---|---:|");
    let directory = tempfile::tempdir().unwrap();
    let mut supervisor = Command::new("sleep").arg("600").spawn().unwrap();
    let pidfd = namespace::open_pidfd(nix::unistd::Pid::from_raw(supervisor.id().cast_signed())).unwrap();
    let host = Host::detect().with_program(SandboxProgram::at(env!("CARGO_BIN_EXE_provost-sandbox").into()));
    let began = Instant::now();
    let launch = ScreenLaunch {
        sandbox_id: "sbx_bench",
        directory: directory.path(),
        supervisor: pidfd.as_fd(),
        cgroup: &SandboxCgroup::absent(),
    };
    let started = launch_blocking(&host, &launch).unwrap();
    println!("| start of a screen process | {:.1} ms |", began.elapsed().as_secs_f64() * 1e3);
    let pid = pid_of(&started.process);
    let observer: Arc<dyn ScreenObserver> = Arc::new(Nobody);
    let observer: Weak<dyn ScreenObserver> = Arc::downgrade(&observer);
    let socket = directory.path().join(SOCKET_NAME);
    let link = ScreenLink::connect(&socket, "sbx_bench", Some(started.process), observer).await.unwrap();

    let before = resident_kib(pid);
    let mut outputs = Vec::new();
    for index in 0..TERMINALS {
        let id = format!("idle{index}");
        let mut output = Output::add(&link, &id).await;
        output.write(b"$ ");
        link.snapshot(&id).await.unwrap();
        outputs.push(output);
    }
    let each = (resident_kib(pid) - before) as f64 / TERMINALS as f64;
    println!("| memory of the process without a screen | {before} KiB |");
    println!("| memory of an idle screen of 80x24 | {each:.0} KiB |");

    let mut output = Output::add(&link, "latency").await;
    link.snapshot("latency").await.unwrap();
    let mut latest = link.subscribe("latency").unwrap();
    let mut times = Vec::new();
    for _ in 0..UPDATES {
        // The next picture is not held back for the sake of the rate.
        tokio::time::sleep(Duration::from_millis(40)).await;
        latest.mark_unchanged();
        link.arm("latency").unwrap();
        let began = Instant::now();
        output.write(b"x");
        latest.changed().await.unwrap();
        link.picture("latency").unwrap();
        times.push(began.elapsed());
    }
    times.sort();
    let at = |percent: usize| times[UPDATES * percent / 100].as_micros();
    println!("| from a byte to its picture, median | {} µs |", at(50));
    println!("| from a byte to its picture, p99 | {} µs |", at(99));

    let line =
        b"\x1b[32m2026-11-23\x1b[0m INFO some line of a log, as long as most of them are, number 12345\r\n";
    let flood = line.repeat(FLOOD_BYTES / line.len());
    let began = Instant::now();
    for piece in flood.chunks(512 << 10) {
        output.write(piece);
        // So that nothing is overwritten unread.
        link.snapshot("latency").await.unwrap();
    }
    let rate = flood.len() as f64 / began.elapsed().as_secs_f64() / 1e6;
    println!("| output taken in | {rate:.0} MB/s |");
    assert_eq!(link.snapshot("latency").await.unwrap().1.built_from, 0, "nothing was missed");
    let _ = supervisor.kill();
    let _ = supervisor.wait();
}
