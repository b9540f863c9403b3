//! The real binary, `provost serve`, in a directory and a cgroup of its own, with the shipped policy, which a test may change.
//!
//! Every gateway is looked over when it ends: no process, no cgroup, no mount may be left. It ends only what it
//! has started, by id.

use std::{
    fs,
    io::{Read, Seek, SeekFrom, Write},
    os::unix::{
        fs::{PermissionsExt, chown},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, Weak},
    time::{Duration, Instant},
};

use nix::{
    sys::{
        signal::{Signal, kill},
        socket::{getsockopt, sockopt::PeerCredentials},
    },
    unistd::Pid,
};
use tempfile::TempDir;

use crate::{
    Caller, Footprint, Process, TestGroup, host,
    programs::{built, in_repository},
};

/// How long a gateway may take to listen, and to end, on a loaded machine.
const START_DEADLINE: Duration = Duration::from_secs(90);
const STOP_DEADLINE: Duration = Duration::from_secs(90);
/// After which it is asked again whether it serves.
const ANSWER_DEADLINE: Duration = Duration::from_secs(1);
/// How long is waited for its launcher ahead, which does not come after a launch that failed.
const REST_DEADLINE: Duration = Duration::from_secs(2);

/// The first subordinate id of a user who has 65,536.
pub const FIRST_SUBORDINATE: u32 = 700_000;

/// How a gateway under test differs from the shipped one.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Changes the shipped policy, given as a TOML table.
    pub policy: Option<fn(&mut toml::Table)>,
    /// The content of a configuration file.
    pub config: Option<String>,
    /// More environment for the gateway.
    pub env: Vec<(String, String)>,
    /// Another build than the one under test.
    pub binary: Option<PathBuf>,
    /// The user that it runs as, when the tests run as root and it is not to.
    pub user: Option<u32>,
    /// Whether that user has a name and subordinate ids, from [`FIRST_SUBORDINATE`] on, in files that only this gateway sees.
    pub subordinate_ids: bool,
    /// Whether its v2 cgroup is given to that user.
    pub delegated: bool,
    /// A mount of the host that only this gateway does not see.
    pub hidden_mount: Option<String>,
    /// Whether it runs in the cgroup of the program that starts it, as one that a person starts. What it has left there is not looked for.
    pub without_group: bool,
}

/// A running gateway.
pub struct Gateway {
    child: Mutex<Option<Child>>,
    options: Options,
    /// Its process id; that of the first one, when it was started again.
    pub pid: u32,
    /// Its unix socket.
    pub socket: PathBuf,
    /// Its state directory.
    pub state: PathBuf,
    /// Its cgroup.
    pub group: TestGroup,
    directory: TempDir,
    log: PathBuf,
}

static SHARED: Mutex<Weak<Gateway>> = Mutex::new(Weak::new());

impl Gateway {
    /// The gateway that the tests of a suite share; started by the first, ended and looked over by the last.
    pub fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(running) = shared.upgrade() {
            return running;
        }
        let started = Self::start();
        *shared = Arc::downgrade(&started);
        started
    }

    /// A gateway of the test's own, as shipped.
    pub fn start() -> Arc<Self> {
        Self::start_with(Options::default())
    }

    /// A gateway of the test's own, with a changed policy.
    pub fn with_policy(change: fn(&mut toml::Table)) -> Arc<Self> {
        Self::start_with(Options { policy: Some(change), ..Options::default() })
    }

    /// A gateway of the test's own.
    pub fn start_with(options: Options) -> Arc<Self> {
        let directory =
            tempfile::Builder::new().prefix("provost-test-").tempdir().expect("a temporary directory");
        let at = |name: &str| directory.path().join(name);
        // Other principals must be able to reach the socket; nothing else in here is theirs.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))
            .expect("the directory is ours");
        fs::write(at("host-marker"), MARKER).expect("the marker can be written");
        fs::create_dir(at("policies")).expect("a directory can be made");
        fs::write(at("policies").join("default.toml"), changed_policy(options.policy))
            .expect("the policy can be written");
        fs::create_dir(at("run")).expect("a directory can be made");
        fs::set_permissions(at("run"), fs::Permissions::from_mode(0o755)).expect("the directory is ours");
        let (socket, state, log) = (at("run").join("provost.sock"), at("state"), at("log"));
        fs::create_dir(&state).expect("a directory can be made");

        if let Some(user) = options.user {
            // The build's own directory may be closed to others.
            for program in [built().provost, built().provost_sandbox].map(Path::new) {
                let copy = at(program.file_name().and_then(|name| name.to_str()).expect("it has a name"));
                if fs::hard_link(program, &copy).is_err() {
                    fs::copy(program, &copy).expect("the program can be copied");
                }
            }
            for directory in [at("run"), at("state")] {
                chown(directory, Some(user), Some(user)).expect("root can give a directory away");
            }
        }
        if let Some(config) = &options.config {
            fs::write(at("config.toml"), config).expect("the configuration can be written");
        }
        let group = if options.without_group { TestGroup::default() } else { TestGroup::new() };
        if let (Some(user), true) = (options.user, options.delegated) {
            group.delegate(user);
        }
        let mut gateway =
            Self { child: Mutex::new(None), options, pid: 0, socket, state, group, directory, log };
        gateway.launch(gateway.options.binary.as_deref(), &[]);
        gateway.pid = gateway.pid_now();
        gateway.await_readiness();
        Arc::new(gateway)
    }

    /// What goes before a command for it to see files of its own in place of three of the host's.
    fn show_subordinate_ids(&self, user: u32) -> String {
        let range = format!("{user}:{FIRST_SUBORDINATE}:65536\n");
        let people = fs::read_to_string("/etc/passwd").expect("the host has people");
        let named = format!("{people}subordinate:x:{user}:{user}::/nonexistent:/bin/sh\n");
        let mut script = String::new();
        for (name, content) in [("passwd", &named), ("subuid", &range), ("subgid", &range)] {
            let file = self.directory.path().join(name);
            fs::write(&file, content).expect("the file can be written");
            script += &format!("mount --bind {} /etc/{name} && ", file.display());
        }
        format!("unshare --mount --propagation slave /bin/sh -c '{script}exec \"$0\" \"$@\"' ")
    }

    /// Starts the binary, with more environment.
    fn launch(&self, binary: Option<&Path>, env: &[(&str, &str)]) {
        let at = |name: &str| self.directory.path().join(name);
        let log =
            fs::OpenOptions::new().create(true).append(true).open(&self.log).expect("the log can be made");
        let (become_user, default) = match self.options.user {
            Some(user) => {
                let become_user = format!("setpriv --reuid={user} --regid={user} --clear-groups");
                let show_ids = match self.options.subordinate_ids {
                    true => self.show_subordinate_ids(user),
                    false => String::new(),
                };
                (format!("{show_ids}{become_user} "), at("provost"))
            }
            None => {
                let hide = |mount: &String| {
                    let script = format!("umount {mount} && exec \"$0\" \"$@\"");
                    format!("unshare --mount --propagation slave /bin/sh -c '{script}' ")
                };
                let hiding = self.options.hidden_mount.as_ref().map(hide).unwrap_or_default();
                (hiding, built().provost.into())
            }
        };
        let mut command = Command::new("/bin/sh");
        command
            .arg("-c")
            .arg(format!("{}exec {become_user}\"$0\" \"$@\"", self.group.entry_script()))
            .arg(binary.unwrap_or(&default))
            .arg("serve")
            .arg("--listen")
            .arg(self.address())
            .arg("--state")
            .arg(&self.state)
            .arg("--policies")
            .arg(at("policies"));
        if self.options.config.is_some() {
            command.arg("--config").arg(at("config.toml"));
        }
        let child = command
            // Without toolchains: those of this machine's home are none of the tests'.
            .env("HOME", "/nonexistent")
            .envs(self.options.env.iter().map(|(k, v)| (k.as_str(), v.as_str())))
            .envs(env.iter().copied())
            // What must never be seen by a command.
            .env("PROVOST_TEST_SECRET", "the gateway's own secret")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor can be copied"))
            .stderr(log)
            .spawn()
            .expect("the gateway can be started");
        *self.child.lock().unwrap_or_else(|e| e.into_inner()) = Some(child);
    }

    /// Ends it with KILL, as a crash does.
    pub fn crash(&self) {
        self.signal(Signal::SIGKILL);
        self.wait();
    }

    /// Starts it again on what the one before has left, and waits until it serves.
    pub fn start_again(&self) {
        self.start_again_with(&[]);
    }

    /// Whether [`Self::start_again`] can put another gateway where this one was started.
    pub fn can_start_again(&self) -> bool {
        self.group.can_be_entered()
    }

    /// As [`Self::start_again`], with more environment.
    pub fn start_again_with(&self, env: &[(&str, &str)]) {
        self.start_again_as(self.options.binary.as_deref(), env);
    }

    /// As [`Self::start_again_with`], by this binary instead of the one under test.
    pub fn start_again_as(&self, binary: Option<&Path>, env: &[(&str, &str)]) {
        assert!(self.try_wait().is_some(), "the gateway before still runs");
        self.launch(binary, env);
        self.await_readiness();
    }

    /// The process id of the one that runs now.
    pub fn pid_now(&self) -> u32 {
        self.child.lock().unwrap_or_else(|e| e.into_inner()).as_ref().map_or(0, Child::id)
    }

    fn await_readiness(&self) {
        let begun = Instant::now();
        loop {
            // A launcher that was being started when the gateway before was killed may hold that one's socket open for a
            // moment: it is only this one's when this one listens.
            // And it is ready when it answers: it can be connected to before its socket has the mode that it is to have.
            let connected = UnixStream::connect(&self.socket);
            if connected.is_ok_and(|stream| listener_of(&stream) == self.pid_now() && answers(stream)) {
                break;
            }
            if let Some(status) = self.try_wait() {
                panic!("the gateway ended with {status} before it listened\n{}", self.log_tail());
            }
            assert!(begun.elapsed() < START_DEADLINE, "the gateway does not listen\n{}", self.log_tail());
            std::thread::sleep(Duration::from_millis(1));
        }
        if crate::is_root() {
            // Other principals are told apart by their credentials, not kept out by the socket's mode.
            let _ = fs::set_permissions(&self.socket, fs::Permissions::from_mode(0o666));
        }
    }

    /// Where it listens, as options and variables have it.
    pub fn address(&self) -> String {
        format!("unix:{}", self.socket.display())
    }

    /// A connection as this process.
    pub async fn caller(&self) -> Caller {
        Caller::connect(&self.socket).await
    }

    /// A connection as another user.
    pub async fn caller_as(&self, uid: u32) -> Caller {
        Caller::connect_as(&self.socket, uid, self.directory.path()).await
    }

    /// A connection as another user of these groups, the first of them its own.
    pub async fn caller_in_groups(&self, uid: u32, groups: &'static [u32]) -> Caller {
        Caller::connect_in_groups(&self.socket, uid, groups, self.directory.path()).await
    }

    /// A directory on the host, for workspaces and what must not be seen. Removed with the gateway.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The gateway's process, as the host sees it.
    pub fn process(&self) -> Process {
        Process::read(self.pid_now()).unwrap_or_else(|| panic!("the gateway is gone\n{}", self.log_tail()))
    }

    /// What the gateway and its sandboxes take up, when the launcher that waits for the next launch is there. Behind a
    /// launch that has been answered the gateway still replaces that one.
    pub fn footprint(&self) -> Footprint {
        let begun = Instant::now();
        while !host::is_at_rest(self.pid_now()) && begun.elapsed() < REST_DEADLINE {
            std::thread::sleep(Duration::from_millis(1));
        }
        Footprint::take(self.pid_now(), &self.group, &self.state)
    }

    /// Fails, at the deadline, unless all is back to `before` (invariant L). Fewer descriptors are no leak.
    pub async fn comes_back_to(&self, before: &Footprint) {
        let begun = Instant::now();
        loop {
            let now = self.footprint();
            let fewer = now.descriptors <= before.descriptors;
            if fewer && (Footprint { descriptors: before.descriptors, ..now.clone() }) == *before {
                return;
            }
            assert!(
                begun.elapsed() < crate::DEADLINE,
                "not back to {before:?} but {now:?}\n{:?}\n{}",
                host::paths_below(&self.state),
                self.log_tail()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// What `provost COMMAND --state ...` prints.
    pub fn provost(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(built().provost);
        command.arg(arguments[0]).arg("--state").arg(&self.state).args(&arguments[1..]);
        let output = command.output().expect("provost can be started");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// The last lines of the gateway's log.
    pub fn log_tail(&self) -> String {
        let mut text = String::new();
        if let Ok(mut file) = fs::File::open(&self.log) {
            let length = file.metadata().map(|m| m.len()).unwrap_or(0);
            let _ = file.seek(SeekFrom::Start(length.saturating_sub(6000)));
            let mut bytes = Vec::new();
            let _ = file.read_to_end(&mut bytes);
            text = String::from_utf8_lossy(&bytes).into_owned();
        }
        format!("---- the gateway's log ----\n{text}\n--------")
    }

    /// Sends a signal to the gateway.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid_now() as i32), signal).expect("the gateway is ours");
    }

    /// Its exit status, when it has ended.
    pub fn try_wait(&self) -> Option<ExitStatus> {
        let mut child = self.child.lock().unwrap_or_else(|e| e.into_inner());
        child.as_mut().and_then(|child| child.try_wait().ok().flatten())
    }

    /// Waits for its end, up to the deadline.
    pub fn wait(&self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.try_wait() {
                return status;
            }
            assert!(begun.elapsed() < STOP_DEADLINE, "the gateway does not end\n{}", self.log_tail());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asks it to end, waits, and fails if it has left anything.
    pub fn stop(&self) {
        if self.try_wait().is_none() {
            self.signal(Signal::SIGINT);
        }
        let status = self.wait();
        assert!(status.success(), "the gateway ended with {status}\n{}", self.log_tail());
        self.must_have_left_nothing();
    }

    /// Fails, at the deadline, unless no process, cgroup or mount of the gateway is left.
    pub fn must_have_left_nothing(&self) {
        let begun = Instant::now();
        loop {
            let (processes, groups) = (self.group.processes(), self.group.groups());
            let mounts = host::mounts_of(self.directory.path());
            if processes.is_empty() && groups.is_empty() && mounts == 0 {
                break;
            }
            if begun.elapsed() > STOP_DEADLINE {
                let lines: Vec<_> =
                    processes.iter().filter_map(|&p| Process::read(p)).map(|p| p.command_line()).collect();
                panic!("left behind: {lines:?}, {groups:?}, {mounts} mounts\n{}", self.log_tail());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.marker_must_be_untouched();
    }

    /// Invariant H: the host's marker file is as it was.
    pub fn marker_must_be_untouched(&self) {
        let marker = fs::read_to_string(self.marker()).expect("the host's marker is there");
        assert_eq!(marker, MARKER, "the host's marker was changed");
        let directory = self.directory.path();
        let names = ["host-marker", "policies", "run", "state", "log"];
        for name in names {
            assert!(directory.join(name).exists(), "{name} is gone from the host");
        }
    }

    /// A file of the host that no command may see or change.
    pub fn marker(&self) -> PathBuf {
        self.directory.path().join("host-marker")
    }
}

const MARKER: &str = "this is the host\n";

/// The process that listens at the other end (unix(7), SO_PEERCRED).
fn listener_of(stream: &UnixStream) -> u32 {
    let peer = getsockopt(stream, PeerCredentials).expect("a connected socket has a peer");
    peer.pid().cast_unsigned()
}

/// Whether the listener sends its settings (RFC 9113, 3.4), as every gRPC server does at once.
fn answers(mut stream: UnixStream) -> bool {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    let mut header = [0_u8; SETTINGS.len()];
    stream
        .set_read_timeout(Some(ANSWER_DEADLINE))
        .and_then(|()| stream.write_all(&[PREFACE, SETTINGS].concat()))
        .and_then(|()| stream.read_exact(&mut header))
        .is_ok_and(|()| header[3] == SETTINGS[3])
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.log_tail());
        } else if self.try_wait().is_none() {
            // A failure in here must not leave the gateway running.
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.stop()));
            if let Err(failure) = ended {
                self.end_by_force();
                std::panic::resume_unwind(failure);
            }
        }
        self.end_by_force();
    }
}

impl Gateway {
    fn end_by_force(&self) {
        if self.try_wait().is_none() {
            self.signal(Signal::SIGKILL);
            let _ = self.child.lock().unwrap_or_else(|e| e.into_inner()).as_mut().map(Child::wait);
        }
        self.group.destroy();
    }
}

/// The text of the shipped policy, changed.
fn changed_policy(change: Option<fn(&mut toml::Table)>) -> String {
    let shipped = in_repository("policies/default.toml");
    let text = fs::read_to_string(&shipped).unwrap_or_else(|e| panic!("{}: {e}", shipped.display()));
    let Some(change) = change else { return text };
    let mut table: toml::Table = text.parse().expect("the shipped policy is TOML");
    change(&mut table);
    toml::to_string(&table).expect("a table can be written as TOML")
}

/// Adds a rule, given by its keys, behind those of the policy.
pub fn add_rule(policy: &mut toml::Table, rule: &str) {
    let rule: toml::Table = rule.parse().expect("the rule is TOML");
    policy["rule"].as_array_mut().expect("the policy has rules").push(rule.into());
}

/// Denies `touch`.
pub fn deny_touch(policy: &mut toml::Table) {
    add_rule(
        policy,
        "id = 'no-touch'\ndecision = 'deny'\nargv = ['touch', '**']\nreason = 'touching is for people'",
    );
}

/// Has the exec gate in the shipped profile, and refuses to run without it.
pub fn require_gate(policy: &mut toml::Table) {
    let gate = "enabled = true\nrequirement = \"require\"".parse::<toml::Table>().expect("it is TOML");
    policy["profile"]["workspace"].as_table_mut().expect("a profile").insert("gate".to_owned(), gate.into());
}

/// Lets callers choose the host's network, which the shipped policy does not offer.
pub fn offer_hosts_network(policy: &mut toml::Table) {
    let network = policy["profile"]["workspace"]["network"].as_table_mut().expect("a profile has a network");
    network["choices"].as_array_mut().expect("a list").push("host".into());
}
