//! A sandbox as the gateway holds it: launched or adopted, running, ended, removed.
//!
//! One task owns a sandbox from its launch until nothing of it is left: it reads the control connection, passes
//! each event to its terminal, watches the supervisor's pidfd, and cleans up. Requests to the supervisor are in
//! [`requests`](super::requests). A command can be killed without them.

use std::{
    collections::HashMap,
    fs,
    net::Ipv4Addr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{io::unix::AsyncFd, sync::watch, time::timeout};

use crate::{
    cgroup::kill,
    failpoint,
    proto::supervisor::{EffectiveConfinement, Identity, Shutdown, to_supervisor::Request},
    sandbox::{
        cgroup::SandboxCgroup,
        control::{
            cleanup::{Cleanup, KillOutcome},
            connection::{ControlConnection, SupervisorEvent},
            gate::SandboxGate,
            program_search::ProgramSearch,
            terminal_observer::{CommandEnd, TerminalObserver},
        },
        counters::SandboxCounters,
        protections::Protections,
        sandbox_state::SandboxState,
        session_network::OwnAddress,
        spec::Shortfall,
    },
    sys::{namespace, process::ProcessIdentity},
};

/// How long a supervisor may take to end beyond the grace of its commands, before it is killed.
const SUPERVISOR_END_TIMEOUT: Duration = Duration::from_secs(3);

/// How far the life of a sandbox has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SandboxLife {
    /// It answers.
    Up,
    /// It has ended and is being removed.
    Ended,
    /// Nothing is left of it, or the kernel does not end it and nobody waits any more.
    Gone,
}

/// What is connected of a sandbox that another gateway has launched.
#[derive(Debug)]
pub(crate) struct AnsweredSandbox {
    /// In force, as its supervisor says.
    pub(crate) effective_confinement: EffectiveConfinement,
    /// A pidfd of its supervisor.
    pub(crate) supervisor: AsyncFd<OwnedFd>,
    /// To its supervisor.
    pub(crate) control: ControlConnection,
    /// Its gate.
    pub(crate) gate: SandboxGate,
    /// It shares its session's directories.
    pub(crate) has_session_files: bool,
    /// It shares its session's network, and its supervisor can say which that is.
    pub(crate) has_session_network: bool,
}

/// A sandbox.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(super) id: String,
    pub(super) identity: Identity,
    pub(super) shortfalls: Vec<Shortfall>,
    pub(super) kept_caches: Vec<String>,
    pub(super) covered: Vec<String>,
    pub(super) protections: Protections,
    pub(super) effective_confinement: OnceLock<EffectiveConfinement>,
    pub(super) control: ControlConnection,
    pub(super) gate: SandboxGate,
    pub(super) terminals: Mutex<HashMap<String, Arc<dyn TerminalObserver>>>,
    pub(super) life: watch::Sender<SandboxLife>,
    /// This gateway has asked it to end.
    pub(super) ending: AtomicBool,
    pub(super) counters: Arc<SandboxCounters>,
    pub(super) cgroup: SandboxCgroup,
    pub(super) supervisor: AsyncFd<OwnedFd>,
    pub(super) has_session_files: bool,
    /// Its supervisor has the session's network for this gateway; of one that this gateway has launched, the session has it.
    pub(super) has_session_network: bool,
    /// Its address on its loopback, by which new commands know its proxies. One of an earlier gateway that shares a loopback takes no further
    /// command.
    pub(super) own_address: Ipv4Addr,
    /// So that no other sandbox is given that before nobody listens there any more.
    pub(super) held_address: Mutex<Option<Arc<OwnAddress>>>,
    /// Connections whose programs are looked for.
    pub(super) programs: Arc<ProgramSearch>,
}

impl Sandbox {
    /// Starts the task that owns an adopted sandbox.
    pub(crate) fn from_adopted(
        state: SandboxState,
        cleanup: Cleanup,
        answered: AnsweredSandbox,
        observers: HashMap<String, Arc<dyn TerminalObserver>>,
        counters: &Arc<SandboxCounters>,
    ) -> Arc<Self> {
        let AnsweredSandbox {
            effective_confinement,
            supervisor,
            control,
            gate,
            has_session_files,
            has_session_network,
        } = answered;
        counters.adopted.inc();
        let SandboxState { id, identity, shortfalls, kept_caches, covered, protections, cgroup, .. } = state;
        let sandbox = Arc::new(Self {
            id,
            identity,
            shortfalls,
            kept_caches,
            covered,
            protections,
            effective_confinement: OnceLock::from(effective_confinement),
            control,
            gate,
            terminals: Mutex::new(observers),
            life: watch::Sender::new(SandboxLife::Up),
            ending: AtomicBool::new(false),
            counters: counters.clone(),
            cgroup,
            supervisor,
            has_session_files,
            has_session_network,
            own_address: Ipv4Addr::LOCALHOST,
            held_address: Mutex::default(),
            programs: Arc::default(),
        });
        tokio::spawn(sandbox.clone().supervise(cleanup));
        sandbox
    }

    /// The task that owns a sandbox, until it is removed. Its pseudo-terminals are released last.
    pub(super) async fn supervise(self: Arc<Self>, cleanup: Cleanup) {
        let broken = self.control.serve(|event| self.dispatch(event)).await;
        if let Some(error) = broken {
            tracing::error!(sandbox.id = %self.id, error = %error, "control connection broken");
        }
        if !self.ending.load(Relaxed) {
            self.counters.lost.inc();
        }
        self.life.send_replace(SandboxLife::Ended);
        // The gate ends with the supervisor. What it has reported is recorded before the ends of the commands.
        if let SandboxGate::Linked(gate) = &self.gate {
            gate.wait_ended().await;
        }
        let ended = cleanup.kill_and_wait(&self.id, &self.supervisor).await;
        drop(self.lock_held_address().take());
        let orphaned: Vec<_> = self.lock_terminals().drain().collect();
        if !orphaned.is_empty() {
            tracing::error!(sandbox.id = %self.id, terminals = orphaned.len(), "sandbox lost");
        }
        for (id, terminal) in orphaned {
            let survivors = if ended == KillOutcome::Ended { 0 } else { cleanup.processes_left(&id) };
            terminal.ended(CommandEnd::SandboxLost { survivors });
        }
        if ended == KillOutcome::StillAlive {
            tracing::error!(sandbox.id = %self.id, "the kernel does not end a killed sandbox: its directory and cgroup are left until it has");
            self.life.send_replace(SandboxLife::Gone);
            cleanup.wait_for_end(&self.id, &self.supervisor).await;
        }
        cleanup.remove(&self.id).await;
        cleanup.release_ptys();
        self.counters.gone.inc();
        self.life.send_replace(SandboxLife::Gone);
        tracing::info!(sandbox.id = %self.id, "sandbox gone");
    }

    fn dispatch(&self, event: SupervisorEvent) {
        match event {
            SupervisorEvent::Progress(progress) => {
                let terminal = self.lock_terminals().get(&progress.terminal_id).cloned();
                if let Some(terminal) = terminal {
                    terminal.progressed();
                }
            }
            SupervisorEvent::Exited(exited) => {
                failpoint::reach("exit.reported");
                let exit = exited.exit.unwrap_or_default();
                if exit.end.is_none() {
                    let terminal = self.lock_terminals().get(&exited.terminal_id).cloned();
                    if let Some(terminal) = terminal {
                        terminal.given_up(exit.stopped());
                    }
                    return;
                }
                let terminal = self.lock_terminals().remove(&exited.terminal_id);
                if let Some(terminal) = terminal {
                    terminal.reported();
                    self.after_gate_backlog(move || terminal.ended(CommandEnd::Reported(Box::new(exit))));
                }
            }
            SupervisorEvent::GateLost => {
                tracing::error!(sandbox.id = %self.id, "gate lost: commands of the sandbox can execute nothing more");
                match &self.gate {
                    SandboxGate::Linked(gate) => gate.gate_lost(),
                    SandboxGate::None | SandboxGate::Lost => {}
                }
            }
        }
    }

    /// Does what comes after the reports that the gate made while no gateway was there: at once where there are none.
    pub(crate) fn after_gate_backlog(&self, then: impl FnOnce() + Send + 'static) {
        match &self.gate {
            SandboxGate::Linked(gate) if gate.has_backlog() => {
                let gate = gate.clone();
                tokio::spawn(async move {
                    gate.wait_backlog().await;
                    then();
                });
            }
            SandboxGate::Linked(_) | SandboxGate::None | SandboxGate::Lost => then(),
        }
    }

    /// Stops every command and ends the sandbox. Returns when it is removed.
    pub(crate) async fn shut_down(&self, grace: Duration) {
        self.ending.store(true, Relaxed);
        if let (SandboxGate::Linked(gate), true) = (&self.gate, self.is_up()) {
            gate.finish().await;
        }
        let request = Request::Shutdown(Shutdown { grace_ms: grace.as_millis() as u64 });
        let limit = grace + SUPERVISOR_END_TIMEOUT;
        let ended = async {
            let _ = self.control.send(request).await;
            self.wait_until(SandboxLife::Ended).await;
        };
        if timeout(limit, ended).await.is_err() {
            tracing::warn!(sandbox.id = %self.id, "sandbox did not end in time: killed");
            self.kill().await;
        }
        self.wait_until(SandboxLife::Gone).await;
    }

    /// Kills the supervisor, and with it the sandbox. Returns when it is removed.
    pub(crate) async fn kill(&self) {
        self.ending.store(true, Relaxed);
        if let Err(errno) = namespace::kill_pidfd(self.supervisor.get_ref().as_fd()) {
            tracing::error!(sandbox.id = %self.id, error = %errno, "cannot kill the supervisor");
        }
        self.wait_until(SandboxLife::Gone).await;
    }

    /// Whether it accepts requests.
    pub(crate) fn is_up(&self) -> bool {
        *self.life.borrow() == SandboxLife::Up
    }

    /// Whether a new command may be spawned in it: it is up, and so is its gate where it has one.
    pub(crate) fn takes_commands(&self) -> bool {
        self.is_up()
            && match &self.gate {
                SandboxGate::None => true,
                SandboxGate::Linked(gate) => gate.is_up(),
                SandboxGate::Lost => false,
            }
    }

    /// Its gate.
    pub(crate) fn gate(&self) -> &SandboxGate {
        &self.gate
    }

    /// `sbx_` and a ULID.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The identity of its commands.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The caches that it began with as earlier sessions have left them, relative to the home.
    pub(crate) fn kept_caches(&self) -> &[String] {
        &self.kept_caches
    }

    /// What it does not see of the host's directories, though it lies in them.
    pub(crate) fn covered(&self) -> &[String] {
        &self.covered
    }

    /// What its commands cannot change.
    pub(crate) fn protections(&self) -> &Protections {
        &self.protections
    }

    /// Protections that the profile prefers and this host lacks.
    pub(crate) fn shortfalls(&self) -> &[Shortfall] {
        &self.shortfalls
    }

    /// The confinement in force, as the supervisor has read it back from the kernel.
    pub(crate) fn effective_confinement(&self) -> Option<&EffectiveConfinement> {
        self.effective_confinement.get()
    }

    pub(super) async fn wait_until(&self, life: SandboxLife) {
        let mut watched = self.life.subscribe();
        // The sender is a field of `self`, so it cannot be dropped.
        let _ = watched.wait_for(|now| *now as u8 >= life as u8).await;
    }

    pub(crate) fn cgroup(&self) -> &SandboxCgroup {
        &self.cgroup
    }

    pub(crate) fn supervisor(&self) -> BorrowedFd<'_> {
        self.supervisor.get_ref().as_fd()
    }

    pub(crate) fn control(&self) -> &ControlConnection {
        &self.control
    }

    /// Registers the observer for a terminal's events.
    pub(crate) fn add_observer(&self, terminal_id: String, observer: Arc<dyn TerminalObserver>) {
        self.lock_terminals().insert(terminal_id, observer);
    }

    pub(crate) fn remove_observer(&self, terminal_id: &str) {
        self.lock_terminals().remove(terminal_id);
    }

    pub(super) fn lock_held_address(&self) -> std::sync::MutexGuard<'_, Option<Arc<OwnAddress>>> {
        self.held_address.lock().expect("no code panics while it holds the place of an address")
    }

    pub(super) fn lock_terminals(
        &self,
    ) -> std::sync::MutexGuard<'_, HashMap<String, Arc<dyn TerminalObserver>>> {
        self.terminals.lock().expect("no code panics while it holds the table of observers")
    }

    /// Kills everything in a command's cgroup, in every hierarchy, by its path and without the supervisor. The terminal decides when.
    /// Without cgroups nothing is done: the sandbox then serves one command and is killed as a whole.
    pub(crate) async fn kill_command(&self, terminal_id: &str) {
        let leaves = self.cgroup().leaves(terminal_id);
        let kill =
            move || leaves.iter().filter(|leaf| leaf.exists()).try_for_each(|leaf| kill::kill_cgroup(leaf));
        let problem = match tokio::task::spawn_blocking(kill).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::error!(
            sandbox.id = self.id(),
            terminal.id = terminal_id,
            problem,
            "cannot kill a command's cgroup"
        );
    }

    /// Whether a process of a command exists, without asking the supervisor.
    pub(crate) fn has_processes_of(&self, terminal_id: &str) -> bool {
        match self.cgroup().path() {
            Some(_) => self.cgroup().processes_left(terminal_id) > 0,
            None => has_children(self.supervisor()),
        }
    }
}

/// Whether the first process of a pid namespace has a child, dead or alive; `true` if that cannot be read.
fn has_children(supervisor: BorrowedFd<'_>) -> bool {
    let Ok(Some(ProcessIdentity { pid, .. })) = ProcessIdentity::of(supervisor) else { return false };
    let children = fs::read(format!("/proc/{pid}/task/{pid}/children"));
    children.map_or(true, |children| !children.is_empty())
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader},
        os::fd::{AsFd as _, OwnedFd},
        process::{Child, Command, Stdio},
    };

    use super::*;
    use crate::sys::pidfd::Pidfd;

    /// A shell that has said a word, and goes on until its input ends.
    fn shell(script: &str) -> (Child, OwnedFd) {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        let process = Pidfd::open(child.id().cast_signed()).unwrap();
        (child, process.into())
    }

    #[test]
    fn a_first_process_has_children_as_long_as_one_is_there_and_none_when_it_has_ended() {
        let (mut parent, process) = shell("exec 3<&0; cat <&3 >/dev/null & echo ready; wait");
        assert!(has_children(process.as_fd()));
        drop(parent.stdin.take());
        parent.wait().unwrap();
        assert!(!has_children(process.as_fd()), "what has ended has no child");

        let (mut alone, process) = shell("echo ready; read line");
        assert!(!has_children(process.as_fd()));
        drop(alone.stdin.take());
        alone.wait().unwrap();
    }
}
