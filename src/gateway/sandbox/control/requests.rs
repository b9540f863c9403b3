//! Requests to a sandbox's supervisor about its terminals: spawn, stop, signal, write, release.
//!
//! Each is one request and its response. A request to a sandbox that has ended fails; no new sandbox is started for
//! it.

use std::{collections::BTreeMap, os::fd::OwnedFd, sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};

use crate::{
    failpoint,
    policy::{ApprovedCommand, ApprovedFile, Permit, PtySize, Umask},
    proto::gate::{self, AddTerminal},
    proto::supervisor::{
        Foreground, GetForeground, HoldIdleClock, NotifyScreen, Release, Resize, Resume, SendSignal,
        SignalForeground, Started, StdinWritten, Stop, StopCause, WriteStdin, from_supervisor::Message,
        spawned, to_supervisor::Request,
    },
    sandbox::{
        control::{
            connection::ControlError,
            gate::SandboxGate,
            handle::Sandbox,
            listener::Listener,
            spawn_error::{SpawnFailure, SpawnFault},
            spawn_request::{self, SpawnExtras},
        },
        gate_link::GateError,
    },
    sys::{clocks::boot_ticks, ring},
};

/// How long a supervisor may take to confirm a stop or a signal. It never waits for the command before it answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a supervisor may take to start a command. It gives up on one whose exec takes longer than 10 s; others
/// may be ahead of it.
const SPAWN_TIMEOUT: Duration = Duration::from_secs(60);

/// Why nothing was spawned.
#[derive(Debug, thiserror::Error)]
pub enum SpawnRefused {
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
    Control(#[from] ControlError),
    /// The sandbox's gate cannot evaluate what the command would start.
    #[error("the command's execs cannot be evaluated")]
    Gate(#[from] GateError),
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
pub enum RequestError {
    /// The sandbox did not answer.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The supervisor could not do it: errno(3).
    #[error("the supervisor answered errno {0}")]
    Errno(i32),
}

/// Within a tick of the kernel's clock since the boot, which is 10 ms.
const TICK_FRACTION: Duration = Duration::from_millis(2);

/// A line of a kept shell, as the gate is told about it.
#[derive(Debug, Clone)]
pub struct GateLine(AddTerminal);

impl GateLine {
    /// A line that may run in this terminal, whose shell has this number in its sandbox.
    pub fn new(
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

/// A command that was started, and its output.
#[derive(Debug)]
pub struct Spawned {
    /// As the supervisor saw it.
    pub started: Started,
    /// The ring of stdout, or of the merged output.
    pub stdout: ring::RingReader,
    /// The ring of stderr, when it is separate.
    pub stderr: Option<ring::RingReader>,
}

impl Sandbox {
    /// Spawns what the permit allows. From then on the listener gets the terminal's events. The supervisor keeps
    /// the metadata for the next gateway.
    pub async fn spawn(
        &self,
        terminal_id: String,
        permit: Permit,
        extras: SpawnExtras,
        listener: Arc<dyn Listener>,
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
        self.announce(&terminal_id, &permit, &extras).await?;
        self.add_listener(terminal_id.clone(), listener);
        let spawned = self.request_spawn(terminal_id.clone(), permit, extras).await;
        if spawned.is_err() {
            self.remove_listener(&terminal_id);
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
    ) -> Result<(), GateError> {
        let gate = match self.gate() {
            SandboxGate::None => return Ok(()),
            SandboxGate::Lost => return Err(GateError::Lost),
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
        let request = spawn_request::build(terminal_id.clone(), permit.into_spec(), extras, self.own_address);
        let judged: Vec<String> = request
            .judged
            .iter()
            .flat_map(|judged| judged.files.iter().map(|file| crate::printable::bytes(&file.path)))
            .collect();
        let program = request.program.clone();
        let asked = async {
            let answer = self.control().send_with(Request::Spawn(request), &descriptors).await?;
            failpoint::reach("create.asked");
            answer.await.map_err(|_| ControlError::Lost)
        };
        let Ok(answer) = timeout(SPAWN_TIMEOUT, asked).await else {
            // It may still start the command later, and nothing would track that command.
            tracing::error!(sandbox.id = self.id(), terminal.id = %terminal_id, "the supervisor does not answer: its sandbox is killed");
            self.kill().await;
            return Err(ControlError::TimedOut.into());
        };
        let answer = answer?;
        failpoint::reach("create.answered");
        let Message::Spawned(spawned) = answer.message else {
            return Err(ControlError::UnexpectedMessage.into());
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
            None => return Err(ControlError::UnexpectedMessage.into()),
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
    pub async fn stop(
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
    pub async fn signal(&self, terminal_id: String, signal: i32) -> Result<(), RequestError> {
        self.request_done(Request::SendSignal(SendSignal { terminal_id, signal })).await
    }

    /// Writes to the command's stdin, and closes it after that when `eof` says so.
    pub async fn write_stdin(&self, request: WriteStdin) -> Result<StdinWritten, ControlError> {
        match self.control().request(Request::WriteStdin(request)).await?.message {
            Message::StdinWritten(written) => Ok(written),
            _ => Err(ControlError::UnexpectedMessage),
        }
    }

    /// Changes the size of a pseudo-terminal.
    pub async fn resize(&self, terminal_id: String, size: PtySize) -> Result<(), RequestError> {
        let size = Some(spawn_request::pty_size(size));
        self.request_done(Request::Resize(Resize { terminal_id, size })).await
    }

    /// Whether a command can have a stdin that its caller gives.
    pub fn takes_stdin(&self) -> bool {
        self.effective_confinement().is_some_and(|confinement| confinement.takes_stdin)
    }

    /// Whether it can be asked what runs in the foreground of a pseudo-terminal.
    pub fn reports_foreground(&self) -> bool {
        self.effective_confinement().is_some_and(|confinement| confinement.reports_foreground)
    }

    /// Lets a command's idle clock stand still, or go on. One that does not know how to has no such commands.
    pub async fn hold_idle_clock(&self, terminal_id: String, hold: bool) -> Result<(), RequestError> {
        if !self.effective_confinement().is_some_and(|confinement| confinement.holds_idle_clocks) {
            return Ok(());
        }
        self.request_done(Request::HoldIdleClock(HoldIdleClock { terminal_id, hold })).await
    }

    /// What runs in the foreground of a pseudo-terminal.
    pub async fn foreground(&self, terminal_id: String) -> Result<Foreground, RequestError> {
        let answer = self.control().request(Request::GetForeground(GetForeground { terminal_id }));
        let Ok(answer) = timeout(ANSWER_TIMEOUT, answer).await else {
            return Err(ControlError::TimedOut.into());
        };
        match answer?.message {
            Message::Foreground(foreground) if foreground.errno == 0 => Ok(foreground),
            Message::Foreground(foreground) => Err(RequestError::Errno(foreground.errno)),
            _ => Err(ControlError::UnexpectedMessage.into()),
        }
    }

    /// Sends a signal to the foreground process group of a pseudo-terminal.
    pub async fn signal_foreground(&self, terminal_id: String, signal: i32) -> Result<(), RequestError> {
        self.request_done(Request::SignalForeground(SignalForeground { terminal_id, signal })).await
    }

    /// Lets the gate know what a person has approved of a line that is about to run in a kept shell, which may be nothing, in place of what
    /// was approved before.
    pub async fn begin_line(&self, line: &GateLine) -> Result<(), GateError> {
        let SandboxGate::Linked(gate) = self.gate() else { return Err(GateError::Lost) };
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
    pub async fn end_line(&self, line: GateLine) -> Result<(), GateError> {
        self.begin_line(&GateLine(AddTerminal { approved: Vec::new(), ..line.0 })).await
    }

    /// Tells the supervisor that the reader of a full ring has advanced. The response is not awaited.
    pub async fn resume(&self, terminal_id: String) -> Result<(), ControlError> {
        self.control().send(Request::Resume(Resume { terminal_id })).await.map(drop)
    }

    /// Releases an ended command in the supervisor. The response is not awaited: it only frees the supervisor's own
    /// table, since processes and cgroup were gone before the end was reported.
    pub async fn release(&self, terminal_id: String) -> Result<(), ControlError> {
        self.remove_from_gate(&terminal_id);
        self.control().send(Request::Release(Release { terminal_id })).await.map(drop)
    }

    /// Lets the supervisor write to this socket whenever the terminal's ring has changed.
    pub async fn notify_screen(&self, terminal_id: String, socket: OwnedFd) -> Result<(), RequestError> {
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
        let answer = self.control().request_with(request, descriptors);
        let Ok(answer) = timeout(ANSWER_TIMEOUT, answer).await else {
            return Err(ControlError::TimedOut.into());
        };
        match answer?.message {
            Message::Done(done) if done.errno == 0 => Ok(()),
            Message::Done(done) => Err(RequestError::Errno(done.errno)),
            _ => Err(ControlError::UnexpectedMessage.into()),
        }
    }
}

fn open_rings(
    descriptors: Vec<OwnedFd>,
) -> Result<(ring::RingReader, Option<ring::RingReader>), SpawnRefused> {
    let mut files = descriptors.into_iter();
    let stdout = files.next().ok_or(ControlError::UnexpectedMessage)?;
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
