//! A screen process with a terminal whose ring the test writes.

use std::{
    fs::File,
    io::Write as _,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::{Child, Command},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use provost_base::{
    display::{picture::Picture, size::ScreenSize},
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

pub(super) const SANDBOX: &str = "sbx_screen";
pub(super) const TERMINAL: &str = "trm_1";
const DEADLINE: Duration = Duration::from_secs(20);

/// Collects the emulator's answers.
#[derive(Debug, Default)]
pub(super) struct Answers(Mutex<Vec<u8>>);

impl ScreenObserver for Answers {
    fn answered(&self, _: &str, bytes: Vec<u8>) {
        self.0.lock().unwrap().extend(bytes);
    }
}

impl Answers {
    pub(super) fn so_far(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

/// The supervisor's part: a process with which the screen process ends, and the writer of the ring.
pub(super) struct Stage {
    host: Host,
    directory: tempfile::TempDir,
    pub supervisor: Child,
    pub answers: Arc<Answers>,
    pub ring: RingWriter,
    /// The supervisor's ends of the notifiers.
    notifiers: Vec<UnixStream>,
}

pub(super) fn size(columns: u32, rows: u32) -> ScreenSize {
    ScreenSize::new(columns, rows).unwrap()
}

impl Stage {
    pub(super) fn new(retained: u64) -> Self {
        let ring = RingWriter::create(Layout::retaining(retained).unwrap(), WhenFull::DropOldest).unwrap();
        Self {
            host: Host::detect()
                .with_program(SandboxProgram::at(env!("CARGO_BIN_EXE_provost-sandbox").into())),
            directory: tempfile::tempdir().unwrap(),
            supervisor: Command::new("sleep").arg("600").spawn().unwrap(),
            answers: Arc::default(),
            ring,
            notifiers: Vec::new(),
        }
    }

    /// Starts a screen process and links it; its pid, too.
    pub(super) async fn start(&self) -> (Arc<ScreenLink>, i32) {
        let pid = nix::unistd::Pid::from_raw(self.supervisor.id().cast_signed());
        let supervisor = namespace::open_pidfd(pid).unwrap();
        let started = launch_blocking(
            &self.host,
            &ScreenLaunch {
                sandbox_id: SANDBOX,
                directory: self.directory.path(),
                supervisor: supervisor.as_fd(),
                cgroup: &SandboxCgroup::absent(),
            },
        )
        .unwrap();
        let pid = pid_of(&started.process);
        (self.link(Some(started.process)).await, pid)
    }

    /// Links the screen process that runs, as another gateway would.
    pub(super) async fn link(&self, process: Option<OwnedFd>) -> Arc<ScreenLink> {
        let observer: Arc<dyn ScreenObserver> = self.answers.clone();
        let observer = Arc::downgrade(&observer);
        let socket = self.directory.path().join(SOCKET_NAME);
        ScreenLink::connect(&socket, SANDBOX, process, observer).await.unwrap()
    }

    /// Adds the terminal; whether it was known.
    pub(super) async fn add(&mut self, link: &ScreenLink, size: ScreenSize, answers_from: u64) -> bool {
        let known = link.add(TERMINAL, size, self.read_only_ring(), answers_from).await.unwrap();
        if !known {
            let (ours, theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            link.set_notifier(TERMINAL, theirs.into()).await.unwrap();
            self.notifiers.push(ours);
        }
        known
    }

    pub(super) fn read_only_ring(&self) -> OwnedFd {
        let path = format!("/proc/self/fd/{}", self.ring.file().as_raw_fd());
        File::open(path).unwrap().into()
    }

    /// Writes into the ring as a supervisor does.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        let (reader, mut writer) = std::io::pipe().unwrap();
        for piece in bytes.chunks(4096) {
            writer.write_all(piece).unwrap();
            let mut left = piece.len();
            while left > 0 {
                match self.ring.fill_from(reader.as_fd(), left).unwrap() {
                    Filled::Bytes(count) => left -= count,
                    other => panic!("{other:?}"),
                }
            }
        }
        for notifier in &mut self.notifiers {
            // Full, or gone.
            let _ = notifier.write(&[1]);
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
    }
}

fn pid_of(process: &OwnedFd) -> i32 {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("Pid:")).unwrap();
    line.trim().parse().unwrap()
}

pub(super) fn lines(picture: &Picture) -> Vec<String> {
    picture.rows.iter().map(|row| row.text()).collect()
}

/// Waits until something holds.
pub(super) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < until, "timed out: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
