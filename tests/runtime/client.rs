//! A blocking client of the control socket, and the sandbox-less supervisor that it drives.

use std::{
    collections::{HashMap, VecDeque},
    os::{fd::AsFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use prost::Message as _;
use provost::proto::supervisor::{
    Exit, Exited, Hello, HelloResponse, Progress, Release, Resume, Shutdown, Spawn, Spawned, StageFailure,
    Started, Stop, StopCause, ToSupervisor, from_supervisor::Message, spawned, to_supervisor::Request,
};
use provost_base::{
    sys::{
        fdpass::{FrameReceiver, ReceiveError, send},
        ring::RingReader,
    },
    wire::encode,
};

/// No event of these tests takes longer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The group below each directory that the supervisor itself lives in.
pub(crate) const SEAT: &str = "supervisor";

/// A supervisor of its own, with control groups below this process's.
pub(crate) struct Supervisor {
    process: Child,
    _directory: tempfile::TempDir,
    pub groups: Vec<PathBuf>,
    socket: PathBuf,
}

/// Which control groups the supervisor gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Groups {
    /// The v2 tree, and v1 controllers where the host has them.
    All,
    /// The same, and the supervisor is PID 1 of a namespace, so that a command can signal nothing outside.
    AllInANamespace,
    /// v1 only.
    V1,
    /// None; the supervisor is PID 1 of a namespace instead.
    None,
}

/// What happens when the connection is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WithoutGateway {
    GoOn,
    Die,
}

impl Supervisor {
    pub(crate) fn start(groups: Groups, without: WithoutGateway) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("control.sock");
        let name = format!(
            "test-of-provost-runtime-{}-{:x}",
            std::process::id(),
            Instant::now().elapsed().subsec_nanos()
        );
        let name = format!("{name}-{}", directory.path().file_name().unwrap().to_string_lossy());
        let mut made = Vec::new();
        let mut command = Command::new("unshare");
        if [Groups::None, Groups::AllInANamespace].contains(&groups) {
            command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
        }
        command.arg(std::env::current_exe().unwrap());
        command.arg("supervisor").arg(&socket);
        command.arg(if without == WithoutGateway::Die { "die" } else { "go-on" });
        for (kind, controllers, path) in own_groups() {
            if groups == Groups::None || groups == Groups::V1 && kind == "v2" {
                continue;
            }
            let path = path.join(&name);
            // With the supervisor inside, as in a sandbox, and so not to be taken for a leftover.
            std::fs::create_dir_all(path.join(SEAT)).unwrap();
            command.arg(format!("{kind}:{controllers}:{}", path.display()));
            made.push(path);
        }
        assert!(
            groups == Groups::None || !made.is_empty(),
            "this host has no control groups that can be written"
        );
        let process = command.stdin(Stdio::null()).spawn().unwrap();
        Self { process, _directory: directory, groups: made, socket }
    }

    pub(crate) fn connect(&self) -> Client {
        self.dial().greet()
    }

    /// A connection on which nothing is said yet.
    pub(crate) fn dial(&self) -> Client {
        let until = Instant::now() + TIMEOUT;
        loop {
            match UnixStream::connect(&self.socket) {
                Ok(socket) => return Client::over(socket),
                Err(_) if Instant::now() < until => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.process.wait().unwrap().code()
    }

    /// Files that it has open.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// Kilobytes that are resident and its own.
    pub(crate) fn resident_kb(&self) -> u64 {
        let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid())).unwrap();
        let line = rollup.lines().find(|line| line.starts_with("Pss:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Leaves that exist now, in all hierarchies.
    pub(crate) fn leaves(&self) -> usize {
        let directories = self.groups.iter().flat_map(|path| std::fs::read_dir(path).unwrap());
        let is_leaf =
            |entry: &std::fs::DirEntry| entry.file_type().unwrap().is_dir() && entry.file_name() != SEAT;
        directories.filter(|entry| is_leaf(entry.as_ref().unwrap())).count()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        for group in &self.groups {
            for leaf in std::fs::read_dir(group).into_iter().flatten().flatten() {
                if leaf.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let _ = std::fs::write(leaf.path().join("cgroup.kill"), "1");
                }
            }
        }
        // Where it is the first process of a namespace, it is the child of unshare(1), and goes on without it.
        let pid = self.process.id();
        let children =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            let _ =
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(child), nix::sys::signal::Signal::SIGKILL);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        for group in self.groups.iter().rev() {
            let until = Instant::now() + TIMEOUT;
            for leaf in std::fs::read_dir(group).into_iter().flatten().flatten() {
                while leaf.path().is_dir()
                    && std::fs::remove_dir(leaf.path()).is_err()
                    && Instant::now() < until
                {
                    std::thread::yield_now();
                }
            }
            let _ = std::fs::remove_dir(group);
        }
    }
}

/// (kind, controllers, this process's own group's directory) for each hierarchy of use.
fn own_groups() -> Vec<(&'static str, String, PathBuf)> {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let mut found = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (number, names, path) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        let below = path.trim_start_matches('/');
        if number == "0" {
            for mount in ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"] {
                if Path::new(mount).join("cgroup.procs").exists() {
                    found.insert(0, ("v2", String::new(), Path::new(mount).join(below)));
                    break;
                }
            }
        } else if ["memory", "pids", "cpu"].iter().any(|one| names.split(',').any(|name| name == *one)) {
            let mount = Path::new("/sys/fs/cgroup").join(names);
            if mount.is_dir() {
                found.push(("v1", names.to_owned(), mount.join(below)));
            }
        }
    }
    found
}

/// A connection that has said Hello.
pub(crate) struct Client {
    socket: UnixStream,
    receiver: FrameReceiver,
    sequence: u64,
    pub hello: HelloResponse,
    pub exits: HashMap<String, Exit>,
    pub progress: VecDeque<Progress>,
}

/// A command that runs.
pub(crate) struct Held {
    pub id: String,
    pub started: Started,
    pub rings: Vec<RingReader>,
}

impl Client {
    fn over(socket: UnixStream) -> Self {
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        let (receiver, hello) = (FrameReceiver::new(), HelloResponse::default());
        Self { socket, receiver, sequence: 0, hello, exits: HashMap::new(), progress: VecDeque::new() }
    }

    /// Over a socket that is connected.
    #[allow(dead_code, reason = "for tests that launch sandboxes")]
    pub(crate) fn connected(socket: UnixStream) -> Self {
        Self::over(socket).greet()
    }

    fn greet(self) -> Self {
        let mut client = self;
        match client.ask(Request::Hello(Hello { lowest_version: 1, highest_version: 1 })) {
            Message::Hello(hello) => client.hello = hello,
            other => panic!("{other:?}"),
        }
        client
    }

    pub(crate) fn send(&mut self, request: Request) -> u64 {
        self.sequence += 1;
        let message = ToSupervisor { sequence: self.sequence, request: Some(request) };
        send(self.socket.as_fd(), &encode(&message, 0).unwrap(), &[]).unwrap();
        self.sequence
    }

    /// The next message; events are kept aside as well.
    pub(crate) fn receive(&mut self) -> (u64, Message, Vec<std::os::fd::OwnedFd>) {
        let frame = match self.receiver.receive(self.socket.as_fd()) {
            Ok(Some(frame)) => frame,
            Ok(None) => panic!("the supervisor has closed the connection"),
            Err(ReceiveError::TimedOut) => panic!("nothing came for {TIMEOUT:?}"),
            Err(error) => panic!("{error:?}"),
        };
        let message = provost::proto::supervisor::FromSupervisor::decode(&frame.message[..]).unwrap();
        let body = message.message.unwrap();
        match &body {
            Message::Exited(Exited { terminal_id, exit }) => {
                let again = self.exits.insert(terminal_id.clone(), exit.clone().unwrap());
                assert!(again.is_none(), "{terminal_id} has ended twice");
            }
            Message::Progress(progress) => self.progress.push_back(progress.clone()),
            _ => {}
        }
        (message.sequence, body, frame.descriptors)
    }

    pub(crate) fn ask_with_descriptors(&mut self, request: Request) -> (Message, Vec<std::os::fd::OwnedFd>) {
        let sequence = self.send(request);
        loop {
            let (answered, message, descriptors) = self.receive();
            if answered == sequence {
                return (message, descriptors);
            }
        }
    }

    pub(crate) fn ask(&mut self, request: Request) -> Message {
        self.ask_with_descriptors(request).0
    }

    pub(crate) fn done(&mut self, request: Request) -> i32 {
        match self.ask(request) {
            Message::Done(done) => done.errno,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn spawn(&mut self, spawn: Spawn) -> Result<Held, StageFailure> {
        let id = spawn.terminal_id.clone();
        let (message, descriptors) = self.ask_with_descriptors(Request::Spawn(spawn));
        let Message::Spawned(Spawned { result: Some(result) }) = message else { panic!("{message:?}") };
        match result {
            spawned::Result::Started(started) => {
                let rings = descriptors.into_iter().map(|one| RingReader::open(one).unwrap()).collect();
                Ok(Held { id, started, rings })
            }
            spawned::Result::Failure(failure) => Err(failure),
        }
    }

    /// Waits for the exit.
    pub(crate) fn exit(&mut self, id: &str) -> Exit {
        let until = Instant::now() + TIMEOUT;
        loop {
            if let Some(exit) = self.exits.get(id) {
                return exit.clone();
            }
            assert!(Instant::now() < until, "{id} has not ended");
            self.receive();
        }
    }

    pub(crate) fn stop(&mut self, id: &str, grace_ms: u64) {
        let cause = StopCause::Killed as i32;
        let request = Stop { terminal_id: id.into(), cause, grace_ms: Some(grace_ms) };
        assert_eq!(self.done(Request::Stop(request)), 0);
    }

    pub(crate) fn release(&mut self, id: &str) {
        assert_eq!(self.done(Request::Release(Release { terminal_id: id.into() })), 0);
    }

    pub(crate) fn resume(&mut self, id: &str) {
        assert_eq!(self.done(Request::Resume(Resume { terminal_id: id.into() })), 0);
    }

    pub(crate) fn shut_down(&mut self) {
        assert_eq!(self.done(Request::Shutdown(Shutdown { grace_ms: 0 })), 0);
    }

    /// Runs to the end: the exit and what is still held of the output.
    pub(crate) fn run(&mut self, spawn: Spawn) -> (Exit, Vec<u8>) {
        let held = self.spawn(spawn).unwrap();
        let exit = self.exit(&held.id);
        let output = held.output(0);
        self.release(&held.id);
        (exit, output)
    }
}

impl Held {
    /// Everything that is held of a stream.
    pub(crate) fn output(&self, index: usize) -> Vec<u8> {
        let ring = &self.rings[index];
        let mut all = vec![0; (ring.head() - ring.tail()) as usize];
        let copied = ring.read_at(ring.tail(), &mut all).unwrap();
        all.truncate(copied.length);
        all
    }
}

/// A shell line.
pub(crate) fn shell(id: &str, line: &str) -> Spawn {
    command(id, &["/bin/sh", "-c", line])
}

pub(crate) fn command(id: &str, argv: &[&str]) -> Spawn {
    Spawn {
        terminal_id: id.into(),
        program: argv[0].into(),
        argv: argv.iter().map(|one| one.as_bytes().to_vec().into()).collect(),
        env: vec![b"PATH=/usr/bin:/bin".to_vec().into()],
        cwd: "/".into(),
        path: ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
            .map(String::from)
            .to_vec(),
        ring_bytes: 1 << 20,
        kill_grace_ms: 5000,
        linger_ms: 200,
        ..Spawn::default()
    }
}
