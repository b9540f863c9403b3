//! A sandbox with a gate, launched by the library, and a gateway's end of both its sockets.

use std::{
    collections::VecDeque,
    os::{fd::AsFd, unix::net::UnixStream},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use prost::Message as _;
use provost::proto::{
    gate::{
        AddTerminal, FromGate, Hello, HelloResponse, PolicyFile, PolicyInForce, Recorded, Report, SetPolicy,
        ToGate, from_gate, report, to_gate,
    },
    supervisor::{Exit, Spawn},
};
use provost_base::{
    sandbox_program::SandboxProgram,
    sys::{
        fdpass::{self, FrameReceiver, ReceiveError},
        namespace,
        rights::Rights,
    },
    wire,
};
use provost_gateway::sandbox::{
    host::Host,
    launch::{self, LaunchError, LaunchedGate, LaunchedSandbox},
    roots::{self, governing::Governing},
    spec::{Owner, SandboxSpec},
};
use provost_policy::profile::{Network, Profile, Requirement};
use provost_test_support::Attack;
use tempfile::TempDir;

use super::client::{Client, Held, command};

/// No event of these tests takes longer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A sandbox with a gate that ends with the test.
pub(crate) struct Sandbox {
    _state: TempDir,
    /// Its workspace, writable for its commands, at the same path inside.
    pub work: TempDir,
    pub launched: LaunchedSandbox,
    pub client: Client,
}

/// The profile of these tests.
pub(crate) fn profile() -> Profile {
    let mut profile = Profile::default();
    profile.limits.requirement = Requirement::Prefer;
    profile.gate.enabled = true;
    profile
}

impl Sandbox {
    pub(crate) fn launch() -> Self {
        Self::try_launch(profile()).unwrap()
    }

    pub(crate) fn try_launch(profile: Profile) -> Result<Self, LaunchError> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let state = tempfile::tempdir().unwrap();
        let work = tempfile::tempdir_in("/var/tmp").unwrap();
        let program = std::env::var_os("PROVOST_TEST_BINARY");
        let program = program.unwrap_or_else(|| env!("CARGO_BIN_EXE_provost-sandbox").into());
        let host = Host::detect().with_program(SandboxProgram::at(program.into()));
        let owner = Owner { uid: nix::unistd::getuid().as_raw(), gid: nix::unistd::getgid().as_raw() };
        let root =
            roots::open(work.path(), roots::RootRole::Work, &Rights::own(), &Governing::default()).unwrap();
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let spec = SandboxSpec {
            id: format!("sbx_gate_{}_{number}", std::process::id()),
            profile_name: "test".into(),
            profile: Arc::new(profile),
            roots: vec![root],
            named: Vec::new(),
            network: Network::None,
            principal_uid: owner.uid,
            owner,
            groups: Arc::default(),
            caller_home: Default::default(),
            caches: Vec::new(),
            agent: None,
            certificates: None,
            session_network: None,
            has_program_rules: false,
            session_files: Default::default(),
            governing: Arc::default(),
            assignment: Default::default(),
            die_with_gateway: true,
            without_gateway: None,
            fail_at: None,
        };
        let launched = launch::launch_blocking(&host, state.path(), spec)?;
        let client = Client::connected(UnixStream::connect(&launched.socket).unwrap());
        Ok(Self { _state: state, work, launched, client })
    }

    pub(crate) fn gate(&self) -> &LaunchedGate {
        self.launched.gate.as_ref().expect("the profile has a gate")
    }

    /// A gateway that has said hello, set the policy and registered the terminal `term_0`.
    pub(crate) fn gateway(&self, rules: &str) -> Gateway {
        let mut gateway = Gateway::connect(self.gate());
        gateway.set_policy(1, rules);
        gateway.add_terminal("term_0");
        gateway
    }

    /// Starts a shell line in the workspace as the terminal `term_0`.
    pub(crate) fn start(&mut self, line: &str) -> Held {
        self.start_argv(&["/bin/sh", "-c", line])
    }

    pub(crate) fn start_argv(&mut self, argv: &[&str]) -> Held {
        self.client.spawn(self.spawn_of(argv)).unwrap()
    }

    pub(crate) fn spawn_of(&self, argv: &[&str]) -> Spawn {
        Spawn { cwd: self.work.path().display().to_string(), ..command("term_0", argv) }
    }

    /// Waits for the end of the terminal: its exit and output.
    pub(crate) fn end(&mut self, held: &Held) -> (Exit, String) {
        let exit = self.client.exit(&held.id);
        let output = String::from_utf8_lossy(&held.output(0)).into_owned();
        self.client.release(&held.id);
        self.client.exits.remove(&held.id);
        (exit, output)
    }

    /// Runs a shell line while the gateway answers: its output.
    pub(crate) fn run(&mut self, gateway: &mut Gateway, line: &str) -> String {
        self.run_argv(gateway, &["/bin/sh", "-c", line])
    }

    pub(crate) fn run_argv(&mut self, gateway: &mut Gateway, argv: &[&str]) -> String {
        let held = self.start_argv(argv);
        self.end_with(gateway, &held).1
    }

    /// Waits for the end of the terminal while the gateway answers.
    pub(crate) fn end_with(&mut self, gateway: &mut Gateway, held: &Held) -> (Exit, String) {
        std::thread::scope(|scope| {
            let serving = gateway.serve_until(scope);
            let ended = self.end(held);
            serving.stop();
            ended
        })
    }

    /// Where a program of the tests lies in the workspace.
    pub(crate) fn place(&self, attack: &Attack) -> PathBuf {
        attack.placed_in(self.work.path())
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        namespace::kill_pidfd(self.launched.supervisor.as_fd()).unwrap();
        launch::reap(self.launched.supervisor.as_fd()).unwrap();
        if let Some(gate) = &self.launched.gate {
            launch::reap(gate.process.as_fd()).unwrap();
        }
        self.launched.cgroup.remove_blocking(TIMEOUT).unwrap();
    }
}

/// A gateway's end of a gate's socket.
pub(crate) struct Gateway {
    socket: UnixStream,
    receiver: FrameReceiver,
    pub hello: HelloResponse,
    /// Everything that was reported.
    pub reports: Vec<Report>,
    pub policies: VecDeque<PolicyInForce>,
}

impl Gateway {
    pub(crate) fn connect(gate: &LaunchedGate) -> Self {
        let socket = UnixStream::connect(&gate.socket).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut gateway = Self {
            socket,
            receiver: FrameReceiver::new(),
            hello: HelloResponse::default(),
            reports: Vec::new(),
            policies: VecDeque::new(),
        };
        gateway.send(to_gate::Message::Hello(Hello { lowest_version: 1, highest_version: 1 }));
        match gateway.receive() {
            Some(from_gate::Message::Hello(hello)) => gateway.hello = hello,
            other => panic!("{other:?}"),
        }
        gateway
    }

    pub(crate) fn send(&mut self, message: to_gate::Message) {
        let frame = wire::encode(&ToGate { message: Some(message) }, 0).unwrap();
        fdpass::send(self.socket.as_fd(), &frame, &[]).unwrap();
    }

    /// The next message; `None` within the socket's time.
    pub(crate) fn receive(&mut self) -> Option<from_gate::Message> {
        match self.receiver.receive(self.socket.as_fd()) {
            Ok(Some(frame)) => FromGate::decode(&frame.message[..]).unwrap().message,
            Ok(None) => panic!("the gate has closed the connection"),
            Err(ReceiveError::TimedOut) => None,
            Err(error) => panic!("{error:?}"),
        }
    }

    pub(crate) fn set_policy(&mut self, generation: u64, rules: &str) {
        let text = format!("default_profile = 'test'\n[profile.test]\n{rules}");
        let files = vec![PolicyFile { name: "test.toml".into(), text }];
        self.send(to_gate::Message::SetPolicy(SetPolicy { generation, files }));
        match self.receive() {
            Some(from_gate::Message::PolicyInForce(answer)) => {
                assert_eq!((answer.generation, answer.failure.as_str()), (generation, ""));
            }
            other => panic!("{other:?}"),
        }
    }

    /// What the gate says about a policy that cannot be parsed.
    pub(crate) fn set_broken_policy(&mut self, generation: u64) -> String {
        let files = vec![PolicyFile { name: "test.toml".into(), text: "no_such_key = 1".into() }];
        self.send(to_gate::Message::SetPolicy(SetPolicy { generation, files }));
        match self.receive() {
            Some(from_gate::Message::PolicyInForce(answer)) => answer.failure,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn add_terminal(&mut self, id: &str) {
        self.send(to_gate::Message::AddTerminal(AddTerminal {
            terminal_id: id.into(),
            principal: "tester".into(),
            profile: "test".into(),
            ..AddTerminal::default()
        }));
    }

    pub(crate) fn recorded(&mut self, number: u64) {
        self.send(to_gate::Message::Recorded(Recorded { number }));
    }

    /// The next report, which is not answered.
    pub(crate) fn report(&mut self) -> Report {
        match self.receive() {
            Some(from_gate::Message::Report(report)) => {
                self.reports.push(report.clone());
                report
            }
            other => panic!("{other:?}"),
        }
    }

    /// The next report, answered as if the journal had it.
    pub(crate) fn recorded_report(&mut self) -> Report {
        let report = self.report();
        self.recorded(report.number);
        report
    }

    /// Records every report on a thread, until it is stopped.
    fn serve_until<'scope>(
        &'scope mut self,
        scope: &'scope std::thread::Scope<'scope, '_>,
    ) -> Serving<'scope> {
        self.socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let (stop, stopped) = std::sync::mpsc::sync_channel::<()>(1);
        let thread = scope.spawn(move || {
            loop {
                match self.receive() {
                    Some(from_gate::Message::Report(report)) => {
                        self.recorded(report.number);
                        self.reports.push(report);
                    }
                    Some(from_gate::Message::PolicyInForce(policy)) => self.policies.push_back(policy),
                    Some(from_gate::Message::TerminalRemoved(_)) => {}
                    Some(from_gate::Message::Hello(_)) => panic!("a second hello"),
                    None if stopped.try_recv() != Err(std::sync::mpsc::TryRecvError::Empty) => break,
                    None => {}
                }
            }
            self.socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        });
        Serving { stop, thread }
    }

    /// The denials so far: cause, and base name of the file or path.
    pub(crate) fn denials(&self) -> Vec<(provost::proto::gate::exec_denied::Cause, String)> {
        let denied = self.reports.iter().filter_map(|report| match &report.report {
            Some(report::Report::Denied(denied)) => Some(denied),
            _ => None,
        });
        denied
            .map(|denied| {
                let exec = denied.exec.clone().unwrap_or_default();
                let named = if exec.file.is_empty() { exec.path } else { exec.file };
                (denied.cause(), named.rsplit('/').next().unwrap_or_default().to_owned())
            })
            .collect()
    }
}

/// A gateway that records on a thread.
struct Serving<'scope> {
    stop: std::sync::mpsc::SyncSender<()>,
    thread: std::thread::ScopedJoinHandle<'scope, ()>,
}

impl Serving<'_> {
    fn stop(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

/// Waits for a condition.
pub(crate) fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether sandboxes can be launched here.
pub(crate) fn can_launch() -> bool {
    let can = nix::unistd::geteuid().is_root() || std::env::var_os("PROVOST_TEST_BINARY").is_some();
    if !can {
        println!("SKIPPED: needs a binary that this user can reach (PROVOST_TEST_BINARY)");
        assert!(std::env::var_os("CI").is_none(), "CI has root");
    }
    can
}
