//! Requests to a sandbox's supervisor about its terminals: spawn, stop, signal, write, release.
//!
//! Each is one request and its response. A request to a sandbox that has ended fails; no new sandbox is started for
//! it. The request of a spawn is made here of what policy has permitted.

use std::{collections::BTreeMap, net::Ipv4Addr, os::fd::OwnedFd, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use nix::sys::resource::{Resource, getrlimit};
use tokio::time::{sleep, timeout};

use crate::{
    byte_text, failpoint,
    link::{LinkError, Peer},
    network::HTTP_PROXY_PORT,
    output::ring::MAX_RETAINED_BYTES,
    policy::{
        self, ApprovedCommand, ApprovedFile, ExecSpec, OverflowMode, Permit, StdinSource, StreamMode, Umask,
        command::program::{FileId, PathStability, Resolved, interpreted_argv},
        implied_variables::PROXY_ADDRESS,
        profile::{LimitRules, Network, Requirement},
    },
    proto::{
        gate::{self, AddTerminal},
        supervisor::{
            FileIdentity, Foreground, GetForeground, HoldIdleClock, Judged, JudgedFile, Limits, NotifyScreen,
            PtySize, Release, Resize, Resume, Rlimit, SendSignal, SignalForeground, Spawn, Started,
            StdinWritten, Stop, StopCause, WriteStdin, from_supervisor::Message, spawned,
            to_supervisor::Request,
        },
    },
    sandbox::control::{
        gate::SandboxGate,
        handle::Sandbox,
        spawn_error::{SpawnFailure, SpawnFault},
        terminal_observer::TerminalObserver,
    },
    sys::{own_process::boot_ticks, ring},
};

/// How long a supervisor may take to start a command. It gives up on one whose exec takes longer than 10 s; others
/// may be ahead of it.
const SPAWN_TIMEOUT: Duration = Duration::from_secs(60);

/// The smallest ring that blocks its command when full. With a smaller one, command and reader would take turns at
/// every byte.
const LOSSLESS_RING_MIN_BYTES: u64 = 256 << 10;

/// The kernel pipes a core to the program in `kernel.core_pattern`, which is root on the host, even with a limit of
/// 0 (core(5)): the memory of what crashed, with the values of its secrets, would go there. A limit of 1 prevents that as well,
/// and no core file is as short. A command can lower its own limit to 0, which the filter cannot see, because the number lies in
/// memory. A gateway whose own hard limit is 0 cannot give 1.
const NO_DUMP: u64 = 1;

/// Why nothing was spawned.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpawnRefused {
    /// A step failed.
    #[error("a step of the spawn failed")]
    Failed(SpawnFailure),
    /// The program is not the file that policy evaluated.
    #[error("{path:?} is not the file that policy judged")]
    Changed {
        /// The step.
        failure: SpawnFailure,
        /// The program, or the script's interpreter, as it was asked for.
        path: String,
    },
    /// The sandbox did not answer.
    #[error(transparent)]
    Control(LinkError),
    /// The sandbox's gate cannot evaluate what the command would start.
    #[error("the command's execs cannot be evaluated")]
    Gate(#[source] LinkError),
    /// The command needs a pseudo-terminal, and the sandbox has none to give.
    #[error(
        "the sandbox has no pseudo-terminals: its receipt says why, or it was started by an earlier build"
    )]
    NoPtys,
    /// The command's files would be open to more than its umask says.
    #[error("the sandbox was started by an earlier build, in which every command has the umask 0022")]
    NoUmask,
    /// The descriptor is not an output ring.
    #[error("the output ring cannot be used")]
    Ring(#[from] ring::RingOpenError),
}

/// Why a request about a terminal was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    /// The sandbox did not answer.
    #[error(transparent)]
    Control(#[from] LinkError),
    /// The supervisor could not do it: errno(3).
    #[error("the supervisor answered errno {0}")]
    Errno(i32),
}

/// Within a tick of the kernel's clock since the boot, which is 10 ms.
const TICK_FRACTION: Duration = Duration::from_millis(2);

/// A line of a kept shell, as the gate is told about it.
#[derive(Debug, Clone)]
pub(crate) struct GateLine(AddTerminal);

impl GateLine {
    /// A line that may run in this terminal, whose shell has this number in its sandbox.
    pub(crate) fn new(
        terminal_id: String,
        shell: u32,
        permit: &Permit,
        principal: String,
        labels: BTreeMap<String, String>,
    ) -> Self {
        Self(AddTerminal {
            terminal_id,
            principal,
            labels: labels.into_iter().collect(),
            profile: permit.spec().profile_name().to_string(),
            relative_from: permit.spec().relative_from().to_vec(),
            // That of the terminal stays in force.
            starts_any_rule: String::new(),
            approved: permit.spec().approved().map(|one| approved(&one)).collect(),
            line_of_shell: shell,
            ..AddTerminal::default()
        })
    }
}

/// What the gateway adds to what policy allowed. Holds secrets, so it has no `Debug`.
pub(crate) struct SpawnExtras {
    /// Who asked: what rules about execs may depend on.
    pub principal: String,
    /// The session's labels: likewise.
    pub labels: BTreeMap<String, String>,
    /// The terminal's metadata, kept for the next gateway.
    pub metadata: Bytes,
    /// The working directory by the caller's name, where links lead to it.
    pub named_cwd: Option<String>,
    /// Variables of the gateway's own, as `NAME=value`, in place of those of the same name.
    pub variables: &'static [&'static str],
    /// Secrets, as `NAME=value`.
    pub secrets: Vec<Bytes>,
    /// Bytes that each ring holds in addition to the retained ones. Redacting needs what came before them.
    pub margin_bytes: u64,
    /// The command's stdin, in place of one that is written to.
    pub given_input: Option<Arc<OwnedFd>>,
}

/// A command that was started, and its output.
#[derive(Debug)]
pub(crate) struct Spawned {
    /// As the supervisor saw it.
    pub started: Started,
    /// The ring of stdout, or of the merged output.
    pub stdout: ring::RingReader,
    /// The ring of stderr, when it is separate.
    pub stderr: Option<ring::RingReader>,
}

impl Sandbox {
    /// Spawns what the permit allows. From then on the observer gets the terminal's events. The supervisor keeps
    /// the metadata for the next gateway.
    pub(crate) async fn spawn(
        &self,
        terminal_id: String,
        permit: Permit,
        extras: SpawnExtras,
        observer: Arc<dyn TerminalObserver>,
    ) -> Result<Spawned, SpawnRefused> {
        if permit.spec().streams().pty().is_some()
            && !self.effective_confinement().is_some_and(|confinement| confinement.has_ptys)
        {
            return Err(SpawnRefused::NoPtys);
        }
        // What it masks less than that is no loss: the files are then only less open than asked.
        let masks_more = permit.spec().umask().bits() & !Umask::default().bits() != 0;
        if masks_more && !self.effective_confinement().is_some_and(|confinement| confinement.sets_umask) {
            return Err(SpawnRefused::NoUmask);
        }
        self.announce(&terminal_id, &permit, &extras).await.map_err(SpawnRefused::Gate)?;
        self.add_observer(terminal_id.clone(), observer);
        let spawned = self.request_spawn(terminal_id.clone(), permit, extras).await;
        if spawned.is_err() {
            self.remove_observer(&terminal_id);
            self.remove_from_gate(&terminal_id);
        }
        spawned
    }

    /// Announces the terminal to the gate, which has it before the supervisor is asked for anything.
    async fn announce(
        &self,
        terminal_id: &str,
        permit: &Permit,
        extras: &SpawnExtras,
    ) -> Result<(), LinkError> {
        let gate = match self.gate() {
            SandboxGate::None => return Ok(()),
            SandboxGate::Lost => return Err(LinkError::Lost(Peer::Gate)),
            SandboxGate::Linked(gate) => gate,
        };
        gate.add_terminal(AddTerminal {
            terminal_id: terminal_id.to_owned(),
            principal: extras.principal.clone(),
            labels: extras.labels.clone().into_iter().collect(),
            profile: permit.spec().profile_name().to_string(),
            relative_from: permit.spec().relative_from().to_vec(),
            starts_any_rule: permit.spec().starts_any_rule().unwrap_or_default().to_owned(),
            approved: permit.spec().approved().map(|one| approved(&one)).collect(),
            ..AddTerminal::default()
        })
        .await
    }

    fn remove_from_gate(&self, terminal_id: &str) {
        if let SandboxGate::Linked(gate) = self.gate() {
            gate.remove_terminal(terminal_id.to_owned());
        }
    }

    async fn request_spawn(
        &self,
        terminal_id: String,
        permit: Permit,
        extras: SpawnExtras,
    ) -> Result<Spawned, SpawnRefused> {
        let descriptors: Vec<_> = extras.given_input.iter().cloned().collect();
        let request = build_spawn(terminal_id.clone(), permit.into_spec(), extras, self.own_address);
        let judged: Vec<String> = request
            .judged
            .iter()
            .flat_map(|judged| judged.files.iter().map(|file| crate::printable::bytes(&file.path)))
            .collect();
        let program = request.program.clone();
        let asked = async {
            let answer = self.control().send_with(Request::Spawn(request), &descriptors).await?;
            failpoint::reach("create.asked");
            answer.await
        };
        let Ok(answer) = timeout(SPAWN_TIMEOUT, asked).await else {
            // It may still start the command later, and nothing would track that command.
            tracing::error!(sandbox.id = self.id(), terminal.id = %terminal_id, "the supervisor does not answer: its sandbox is killed");
            self.kill().await;
            return Err(SpawnRefused::Control(LinkError::TimedOut(Peer::Supervisor)));
        };
        let answer = answer.map_err(SpawnRefused::Control)?;
        failpoint::reach("create.answered");
        let Message::Spawned(spawned) = answer.message else {
            return Err(SpawnRefused::Control(LinkError::UnexpectedMessage(Peer::Supervisor)));
        };
        let started = match spawned.result {
            Some(spawned::Result::Started(started)) => started,
            Some(spawned::Result::Failure(failure)) => {
                let failure = SpawnFailure::from(failure);
                if failure.fault == SpawnFault::ProgramChanged {
                    let path = judged.get(failure.index as usize).unwrap_or(&program).clone();
                    return Err(SpawnRefused::Changed { failure, path });
                }
                return Err(SpawnRefused::Failed(failure));
            }
            None => return Err(SpawnRefused::Control(LinkError::UnexpectedMessage(Peer::Supervisor))),
        };
        match open_rings(answer.descriptors) {
            Ok((stdout, stderr)) => Ok(Spawned { started, stdout, stderr }),
            Err(error) => {
                // The command runs, but its output cannot be read: stop it.
                let _ = self.stop(terminal_id, StopCause::Killed, Some(Duration::ZERO)).await;
                Err(error)
            }
        }
    }

    /// Begins to stop a command. Succeeds also when the command has ended or never existed.
    pub(crate) async fn stop(
        &self,
        terminal_id: String,
        cause: StopCause,
        grace: Option<Duration>,
    ) -> Result<(), RequestError> {
        let grace_ms = grace.map(|grace| grace.as_millis() as u64);
        let stop = Stop { terminal_id, cause: cause.into(), grace_ms };
        match self.request_done(Request::Stop(stop)).await {
            Ok(()) | Err(RequestError::Errno(libc::ENOENT | libc::ESRCH)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sends a signal to the command's process group.
    pub(crate) async fn signal(&self, terminal_id: String, signal: i32) -> Result<(), RequestError> {
        self.request_done(Request::SendSignal(SendSignal { terminal_id, signal })).await
    }

    /// Writes to the command's stdin, and closes it after that when `eof` says so.
    pub(crate) async fn write_stdin(&self, request: WriteStdin) -> Result<StdinWritten, LinkError> {
        match self.control().request(Request::WriteStdin(request)).await?.message {
            Message::StdinWritten(written) => Ok(written),
            _ => Err(LinkError::UnexpectedMessage(Peer::Supervisor)),
        }
    }

    /// Changes the size of a pseudo-terminal.
    pub(crate) async fn resize(
        &self,
        terminal_id: String,
        size: policy::PtySize,
    ) -> Result<(), RequestError> {
        let size = Some(pty_size(size));
        self.request_done(Request::Resize(Resize { terminal_id, size })).await
    }

    /// Whether a command can have a stdin that its caller gives.
    pub(crate) fn takes_stdin(&self) -> bool {
        self.effective_confinement().is_some_and(|confinement| confinement.takes_stdin)
    }

    /// Whether it can be asked what runs in the foreground of a pseudo-terminal.
    pub(crate) fn reports_foreground(&self) -> bool {
        self.effective_confinement().is_some_and(|confinement| confinement.reports_foreground)
    }

    /// Lets a command's idle clock stand still, or go on. One that does not know how to has no such commands.
    pub(crate) async fn hold_idle_clock(&self, terminal_id: String, hold: bool) -> Result<(), RequestError> {
        if !self.effective_confinement().is_some_and(|confinement| confinement.holds_idle_clocks) {
            return Ok(());
        }
        self.request_done(Request::HoldIdleClock(HoldIdleClock { terminal_id, hold })).await
    }

    /// What runs in the foreground of a pseudo-terminal.
    pub(crate) async fn foreground(&self, terminal_id: String) -> Result<Foreground, RequestError> {
        let request = Request::GetForeground(GetForeground { terminal_id });
        match self.control().request_in_time(request, &[]).await?.message {
            Message::Foreground(foreground) if foreground.errno == 0 => Ok(foreground),
            Message::Foreground(foreground) => Err(RequestError::Errno(foreground.errno)),
            _ => Err(LinkError::UnexpectedMessage(Peer::Supervisor).into()),
        }
    }

    /// Sends a signal to the foreground process group of a pseudo-terminal.
    pub(crate) async fn signal_foreground(
        &self,
        terminal_id: String,
        signal: i32,
    ) -> Result<(), RequestError> {
        self.request_done(Request::SignalForeground(SignalForeground { terminal_id, signal })).await
    }

    /// Lets the gate know what a person has approved of a line that is about to run in a kept shell, which may be nothing, in place of what
    /// was approved before.
    pub(crate) async fn begin_line(&self, line: &GateLine) -> Result<(), LinkError> {
        let SandboxGate::Linked(gate) = self.gate() else { return Err(LinkError::Lost(Peer::Gate)) };
        let mut begun = line.0.clone();
        if !begun.approved.is_empty() {
            // What the line starts has begun in another tick than what an earlier line has left; and the gate may read this when the
            // line has started processes.
            begun.line_since_ticks = boot_ticks() + 1;
            while boot_ticks() < begun.line_since_ticks {
                sleep(TICK_FRACTION).await;
            }
        }
        gate.add_terminal(begun).await
    }

    /// Lets the gate know that a line is over: what was approved of it is not approved any more.
    pub(crate) async fn end_line(&self, line: GateLine) -> Result<(), LinkError> {
        self.begin_line(&GateLine(AddTerminal { approved: Vec::new(), ..line.0 })).await
    }

    /// Tells the supervisor that the reader of a full ring has advanced. The response is not awaited.
    pub(crate) async fn resume(&self, terminal_id: String) -> Result<(), LinkError> {
        self.control().send(Request::Resume(Resume { terminal_id })).await.map(drop)
    }

    /// Releases an ended command in the supervisor. The response is not awaited: it only frees the supervisor's own
    /// table, since processes and cgroup were gone before the end was reported.
    pub(crate) async fn release(&self, terminal_id: String) -> Result<(), LinkError> {
        self.remove_from_gate(&terminal_id);
        self.control().send(Request::Release(Release { terminal_id })).await.map(drop)
    }

    /// Lets the supervisor write to this socket whenever the terminal's ring has changed.
    pub(crate) async fn notify_screen(
        &self,
        terminal_id: String,
        socket: OwnedFd,
    ) -> Result<(), RequestError> {
        let request = Request::NotifyScreen(NotifyScreen { terminal_id });
        self.request_done_with(request, &[Arc::new(socket)]).await
    }

    async fn request_done(&self, request: Request) -> Result<(), RequestError> {
        self.request_done_with(request, &[]).await
    }

    async fn request_done_with(
        &self,
        request: Request,
        descriptors: &[Arc<OwnedFd>],
    ) -> Result<(), RequestError> {
        match self.control().request_in_time(request, descriptors).await?.message {
            Message::Done(done) if done.errno == 0 => Ok(()),
            Message::Done(done) => Err(RequestError::Errno(done.errno)),
            _ => Err(LinkError::UnexpectedMessage(Peer::Supervisor).into()),
        }
    }
}

fn open_rings(
    descriptors: Vec<OwnedFd>,
) -> Result<(ring::RingReader, Option<ring::RingReader>), SpawnRefused> {
    let mut files = descriptors.into_iter();
    let unexpected = SpawnRefused::Control(LinkError::UnexpectedMessage(Peer::Supervisor));
    let stdout = files.next().ok_or(unexpected)?;
    let stdout = ring::RingReader::open(stdout)?;
    Ok((stdout, files.next().map(ring::RingReader::open).transpose()?))
}

fn approved(command: &ApprovedCommand) -> gate::ApprovedCommand {
    let file = match command.file {
        ApprovedFile::Exactly { device, inode, changed_nanos } => {
            Some(gate::ApprovedFile { device, inode, changed_ns: changed_nanos })
        }
        ApprovedFile::OfTrustedPath => None,
    };
    gate::ApprovedCommand {
        rule: command.rule.clone(),
        argv: command.argv.clone(),
        file,
        directory_device: command.directory.device,
        directory_inode: command.directory.inode,
        env: command.env.clone().into_iter().collect(),
    }
}

/// The name in `NAME=value`.
fn name_of(entry: &[u8]) -> Option<&[u8]> {
    entry.split(|byte| *byte == b'=').next()
}

/// The request for one command, made of the specification that was taken out of its permit, in a sandbox whose proxies listen at this address.
fn build_spawn(terminal_id: String, exec_spec: ExecSpec, extras: SpawnExtras, proxies: Ipv4Addr) -> Spawn {
    let SpawnExtras { metadata, named_cwd, variables, secrets, margin_bytes, given_input, .. } = extras;
    // Shells go by it where it leads to their directory, as they do outside.
    let named_cwd = named_cwd.map(|name| Bytes::from([b"PWD=", &*byte_text::to_bytes(&name)].concat()));
    let is_replaced = |entry: &Bytes| variables.iter().any(|own| name_of(own.as_bytes()) == name_of(entry));
    let own = variables.iter().map(|own| Bytes::from_static(own.as_bytes())).chain(named_cwd);
    let ring_bytes = match exec_spec.overflow() {
        OverflowMode::DropOldest => exec_spec.output_limit_bytes(),
        OverflowMode::Block => exec_spec.output_limit_bytes().max(LOSSLESS_RING_MIN_BYTES),
    };
    let times = &exec_spec.profile().times;
    Spawn {
        env: env(&exec_spec, &terminal_id, proxies)
            .filter(|entry| !is_replaced(entry))
            .chain(own)
            .chain(secrets)
            .collect(),
        terminal_id,
        judged: judged(&exec_spec),
        program: exec_spec.program().to_owned(),
        argv: argv(&exec_spec),
        cwd: exec_spec.cwd().as_str().to_owned(),
        cwd_identity: exec_spec.directory().map(|id| FileIdentity {
            device: id.device,
            inode: id.inode,
            changed_ns: 0,
        }),
        path: exec_spec.search_path().iter().map(|directory| text(directory)).collect(),
        limits: Some(limits(&exec_spec.profile().limits)),
        ring_bytes: ring_bytes.saturating_add(margin_bytes).min(MAX_RETAINED_BYTES.max(ring_bytes)),
        split_output: exec_spec.streams() == StreamMode::Split,
        open_stdin: given_input.is_none() && exec_spec.stdin() == StdinSource::Open,
        stdin_given: given_input.is_some(),
        block_when_full: exec_spec.overflow() == OverflowMode::Block,
        time_limit_ms: exec_spec.time_limit().map_or(0, whole_millis),
        idle_limit_ms: exec_spec.idle_limit().map_or(0, whole_millis),
        kill_grace_ms: millis(exec_spec.kill_grace()),
        linger_ms: millis(times.linger),
        metadata,
        pty: exec_spec.streams().pty().map(pty_size),
        umask: Some(exec_spec.umask().bits()),
    }
}

/// A size, as the protocol has it.
fn pty_size(size: policy::PtySize) -> PtySize {
    PtySize { columns: size.columns().into(), rows: size.rows().into() }
}

/// The environment, in which the proxy's address is the sandbox's own and says which terminal uses it: only for the records, since a command
/// can say another.
fn env<'a>(
    exec_spec: &'a ExecSpec,
    terminal_id: &'a str,
    proxies: Ipv4Addr,
) -> impl Iterator<Item = Bytes> + 'a {
    exec_spec.env().iter().map(move |entry| match exec_spec.network() {
        Network::Proxy if entry.ends_with(format!("={PROXY_ADDRESS}").as_bytes()) => {
            let name = entry.split(|byte| *byte == b'=').next().unwrap_or_default();
            let value = format!("=http://{terminal_id}:x@{proxies}:{HTTP_PROXY_PORT}");
            Bytes::from([name, value.as_bytes()].concat())
        }
        Network::None | Network::Host | Network::Proxy => entry.clone(),
    })
}

/// The only files that may be executed. The program is not searched for again: its path is the one at which policy
/// found the file.
fn judged(exec_spec: &ExecSpec) -> Option<Judged> {
    let file = match exec_spec.resolved() {
        Resolved::File(file) => file,
        Resolved::Missing => return Some(Judged::default()),
        Resolved::Builtin | Resolved::Unknown => return None,
    };
    let interpreters = exec_spec.interpreters().iter().map(|interpreter| match &interpreter.file {
        Resolved::File(file) => JudgedFile { path: interpreter.path.clone().into(), ..judged_file(file) },
        // No file has inode 0, so a file that appears later is not executed.
        Resolved::Missing => {
            let identity = Some(FileIdentity::default());
            JudgedFile { path: interpreter.path.clone().into(), identity, is_immutable: false }
        }
        Resolved::Builtin | Resolved::Unknown => {
            JudgedFile { path: interpreter.path.clone().into(), identity: None, is_immutable: false }
        }
    });
    Some(Judged { files: std::iter::once(judged_file(file)).chain(interpreters).collect() })
}

fn judged_file(file: &FileId) -> JudgedFile {
    let FileId { device, inode, changed_nanos: changed_ns, .. } = *file;
    JudgedFile {
        path: bytes_of(&file.lookup_path),
        identity: Some(FileIdentity { device, inode, changed_ns }),
        is_immutable: file.stability == PathStability::Fixed,
    }
}

/// The arguments of a script whose interpreter is executed in its place, as execve(2) would build them: the
/// interpreter and its argument, the script, the script's own arguments.
fn argv(exec_spec: &ExecSpec) -> Vec<Bytes> {
    let (Some(file), false) = (exec_spec.resolved_file(), exec_spec.interpreters().is_empty()) else {
        return exec_spec.argv().to_vec();
    };
    let lines = exec_spec.interpreters().iter().map(|interpreter| {
        (Bytes::from(interpreter.path.clone()), interpreter.argument.clone().map(Bytes::from))
    });
    let script = bytes_of(&file.lookup_path);
    interpreted_argv(script, exec_spec.argv().iter().skip(1).cloned(), lines)
}

fn bytes_of(text: &str) -> Bytes {
    byte_text::to_bytes(text).into_owned().into()
}

fn limits(rules: &LimitRules) -> Limits {
    let leaf = &rules.terminal;
    Limits {
        memory_bytes: leaf.memory_bytes,
        swap_bytes: leaf.swap_bytes,
        pids: leaf.pids,
        cpu_millis: leaf.cpu_millis,
        rlimits: rlimits(rules),
        require: rules.requirement == Requirement::Require,
    }
}

/// The profile's limits, and no core files unless the profile sets that limit.
fn rlimits(rules: &LimitRules) -> Vec<Rlimit> {
    let unsaid = (!rules.rlimits.contains_key("core")).then(|| rlimit("core", 0)).flatten();
    rules.rlimits.iter().filter_map(|(name, value)| rlimit(name, *value)).chain(unsaid).collect()
}

/// A limit of setrlimit(2), capped at the gateway's own hard limit, which cannot be raised without privilege. A
/// lower limit than the profile's is no shortfall. Policy has refused unknown names.
fn rlimit(name: &str, value: u64) -> Option<Rlimit> {
    let resource = match name {
        "as" => Resource::RLIMIT_AS,
        "core" => Resource::RLIMIT_CORE,
        "cpu" => Resource::RLIMIT_CPU,
        "data" => Resource::RLIMIT_DATA,
        "fsize" => Resource::RLIMIT_FSIZE,
        "memlock" => Resource::RLIMIT_MEMLOCK,
        "msgqueue" => Resource::RLIMIT_MSGQUEUE,
        "nofile" => Resource::RLIMIT_NOFILE,
        "nproc" => Resource::RLIMIT_NPROC,
        "sigpending" => Resource::RLIMIT_SIGPENDING,
        "stack" => Resource::RLIMIT_STACK,
        _ => return None,
    };
    // If the limit cannot be read it is requested as it is; setting it then fails with its stage and errno.
    let hard = getrlimit(resource).map_or(u64::MAX, |(_, hard)| hard);
    let value = if resource == Resource::RLIMIT_CORE { value.max(NO_DUMP) } else { value };
    let value = value.min(hard);
    Some(Rlimit { resource: resource as u32, soft: value, hard: value })
}

/// Zero means "none" in the protocol, so shorter limits are rounded up to a millisecond.
fn whole_millis(time: Duration) -> u64 {
    millis(time).max(1)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn text(path: &Path) -> String {
    byte_text::from_path(path)
}
