//! Adopts terminals that an earlier gateway has started.
//!
//! Each keeps its id, owner, output and end; nothing is judged again. A run ends, because its caller cannot come
//! back; the caller of a resumable one is awaited for a time. A terminal that stands in a session's terminal log and has no sandbox ended with its sandbox.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::{
    masking::{MaskError, Masker},
    policy::profile::Network,
    proto::supervisor::Exit,
    sandbox::{
        SandboxLinks,
        control::terminal_observer::{CommandEnd, TerminalObserver},
        restore::adopt::AdoptableSandbox,
        spec::Sharing,
    },
    session::Session,
    terminal::{
        kept_shell::ShellKnowledge,
        live::{Live, LiveMasker},
        metadata::{self, AdoptedMetadata, MetadataError},
        outcome,
        recorder::RecordedExits,
        screens::Questions,
        secrets::command_secrets::read_for_masking,
        spec::{Backpressure, TerminalId},
        state::{NewTerminal, Recording, Running, Terminal},
        terminal_log::{ExecDenials, LogEntry, TerminalLogError},
        terminals::Terminals,
        workspace::WatchedWorkspaces,
    },
};

/// Between TERM and KILL of a sandbox of its own in which there is nothing.
const EMPTY_GRACE: Duration = Duration::ZERO;

/// What has become of the sandboxes of the gateway before.
#[derive(Debug)]
pub(crate) struct SandboxStatuses {
    /// Adopted.
    pub alive: HashSet<String>,
    /// Left as they are: they may be alive.
    pub unknown: HashSet<String>,
    /// Ended, and nothing of them is left.
    pub gone: HashSet<String>,
    unchecked: UncheckedSandboxes,
}

/// What has become of sandboxes that were not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UncheckedSandboxes {
    /// There are none: all were looked at.
    Gone,
    /// They are as they were.
    Unchanged,
}

impl SandboxStatuses {
    /// Has the statuses of no sandbox yet.
    #[must_use]
    pub(crate) fn new(unchecked: UncheckedSandboxes) -> Self {
        Self { alive: HashSet::new(), unknown: HashSet::new(), gone: HashSet::new(), unchecked }
    }

    fn is_gone(&self, sandbox_id: &str) -> bool {
        let is_listed = self.alive.contains(sandbox_id) || self.unknown.contains(sandbox_id);
        self.gone.contains(sandbox_id) || (self.unchecked == UncheckedSandboxes::Gone && !is_listed)
    }
}

/// A sandbox cannot be adopted. It is left as it was.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdoptError {
    /// What it calls a terminal has no terminal's id.
    #[error("{0:?} is no terminal's id")]
    Id(String),
    /// What is known of a terminal cannot be read.
    #[error("what is known of {0}")]
    Metadata(TerminalId, #[source] MetadataError),
}

/// What has become of what a terminal wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputState {
    Held,
    Lost,
}

impl Terminals {
    /// Adopts a sandbox of a session, with all its terminals. Answers with their number.
    ///
    /// # Errors
    /// [`AdoptError`]: nothing was adopted.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        session: &Arc<Session>,
        mut found: AdoptableSandbox,
        recorded_exits: &mut RecordedExits,
    ) -> Result<usize, AdoptError> {
        let mut adopted = Vec::with_capacity(found.terminals.len());
        for held in std::mem::take(&mut found.terminals) {
            let id = TerminalId::parse(&held.id).ok_or_else(|| AdoptError::Id(held.id.clone()))?;
            let metadata =
                metadata::decode(&held.metadata).map_err(|error| AdoptError::Metadata(id, error))?;
            let masker = self
                .masker_of(session, &metadata)
                .map_err(|_| AdoptError::Metadata(id, MetadataError::Incomplete))?;
            adopted.push((self.adopt_terminal(session, id, metadata, OutputState::Held), held, masker));
        }
        let observer = |terminal: &Arc<Terminal>| {
            (terminal.id.to_string(), terminal.clone() as Arc<dyn TerminalObserver>)
        };
        let observers: HashMap<_, _> = adopted.iter().map(|(terminal, ..)| observer(terminal)).collect();
        let state = found.state.clone();
        let context = &self.launch_context;
        // Before its gate's reports come, which are about them.
        for (terminal, ..) in &adopted {
            if let Err(error) =
                terminal.terminal_log().add(terminal.id, &state.id, || metadata::without_arguments(terminal))
            {
                tracing::error!(terminal.id = %terminal.id, error = %error, "not in its session's terminal log");
            }
            self.registry.insert_adopted(terminal);
        }
        let links = SandboxLinks { gates: &context.gates, nets: &context.nets, agents: &context.agents };
        let uid = session.principal.uid;
        let sandbox = found.adopt(&context.host, uid, observers, links, &context.counters);
        session.adopt_sandbox_files(context, &state, &sandbox);
        let count = adopted.len();
        for (terminal, held, masker) in adopted {
            if let Some(size) = held.pty {
                terminal.pty.set(size);
            }
            let live = Live {
                started: held.started,
                stdout: held.stdout,
                stderr: held.stderr,
                sandbox: sandbox.clone(),
                masker: LiveMasker::new(masker),
            };
            self.adopt_running(&terminal, live, held.ended, state.assignment.sharing, recorded_exits);
        }
        match state.assignment.sharing {
            Sharing::Shared => session.sandboxes.adopt(&state, sandbox),
            // Its terminal was never spawned, or was released.
            Sharing::Exclusive if count == 0 => {
                tokio::spawn(async move { sandbox.shut_down(EMPTY_GRACE).await });
            }
            Sharing::Exclusive => {}
        }
        Ok(count)
    }

    /// What takes secrets out of the output of a terminal: those that it was given, and those that its requests are given now.
    fn masker_of(&self, session: &Session, metadata: &AdoptedMetadata) -> Result<Masker, MaskError> {
        let AdoptedMetadata { spec, secrets, .. } = metadata;
        let used = match spec.network == Network::Proxy.name() {
            true => self
                .policy()
                .current()
                .credential_secrets(&session.principal.to_string(), spec.profile.as_str()),
            false => Vec::new(),
        };
        Masker::new(secrets.iter().chain(&read_for_masking(&used)))
    }

    /// Reads which terminals a session had, before any of its sandboxes is adopted.
    ///
    /// # Errors
    /// [`TerminalLogError`]: some may be missing. The file was put aside.
    pub(crate) fn adopt_log(&self, session: &Session) -> Result<(), TerminalLogError> {
        self.logs.adopt(session.id).1
    }

    /// Removes the terminal logs of sessions that are not among these. Answers with the names of those put aside as damaged.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub(crate) fn remove_stale_logs(&self, sessions: &HashSet<String>) -> io::Result<Vec<String>> {
        self.logs.remove_stale(sessions)
    }

    /// Adopts what stands in a session's terminal log and was not found in a sandbox, after all sandboxes were looked at. The
    /// commands of those that are gone have ended with them; how many that were.
    pub(crate) fn adopt_ended(
        self: &Arc<Self>,
        session: &Arc<Session>,
        statuses: &SandboxStatuses,
        recorded_exits: &mut RecordedExits,
    ) -> usize {
        let log = self.logs.of(session.id);
        let mut lost = 0;
        for (id, entry) in log.entries() {
            let sandbox_id = &entry.begun.sandbox_id;
            if self.registry.has(id) {
                continue;
            }
            let request_id = entry.begun.terminal.as_ref().map(|record| record.request_id.clone());
            let request_id = request_id.filter(|id| !id.is_empty());
            if statuses.unknown.contains(sandbox_id) {
                if let Some(request_id) = request_id {
                    self.registry.quarantine(session.id, request_id, id);
                }
            } else if statuses.alive.contains(sandbox_id) {
                // Never spawned, or released: its supervisor would know.
                log.remove(id);
                if let Some(request_id) = request_id {
                    self.registry.unquarantine(session.id, request_id);
                }
            } else if statuses.is_gone(sandbox_id) {
                match self.adopt_lost(session, id, entry, recorded_exits) {
                    Ok(()) => lost += 1,
                    // It stays in the log: another build may read it.
                    Err(error) => {
                        tracing::error!(terminal.id = %id, error = %error, "an ended terminal is not adopted");
                    }
                }
            }
        }
        lost
    }

    /// Adopts a terminal whose sandbox is gone.
    fn adopt_lost(
        self: &Arc<Self>,
        session: &Arc<Session>,
        id: TerminalId,
        entry: LogEntry,
        recorded_exits: &mut RecordedExits,
    ) -> Result<(), MetadataError> {
        let outcome = entry.outcome();
        let metadata = metadata::from_record(entry.begun.terminal.unwrap_or_default())?;
        let terminal = self.adopt_terminal(session, id, metadata, OutputState::Lost);
        let now = SystemTime::now();
        let since = |at| now.duration_since(at).unwrap_or_default();
        let ended_at = outcome.as_ref().and_then(|outcome| SystemTime::try_from(outcome.ended_at?).ok());
        let recording =
            match recorded_exits.contains(&id.to_string(), since(ended_at.unwrap_or(terminal.created_at))) {
                true => Recording::AlreadyRecorded,
                false => Recording::Now,
            };
        let outcome = outcome.unwrap_or_else(|| outcome::lost(None, None, 0, now));
        self.registry.insert_adopted(&terminal);
        terminal.ended_with_sandbox(outcome, ended_at.map_or(Duration::ZERO, since), recording);
        match terminal.spec.backpressure {
            Backpressure::Never | Backpressure::ForStream => {}
            Backpressure::ForRun => self.release_run(&terminal),
            Backpressure::ForResumableRun => self.await_caller(&terminal),
        }
        Ok(())
    }

    /// Makes the terminal, which does not know yet where it runs.
    fn adopt_terminal(
        &self,
        session: &Arc<Session>,
        id: TerminalId,
        metadata: AdoptedMetadata,
        output: OutputState,
    ) -> Arc<Terminal> {
        let AdoptedMetadata { spec: summary, session_id, request_id, created_at, has_given_stdin, .. } =
            metadata;
        if session_id != session.id.to_string() {
            // The sandbox's record says whose it is: a terminal in it cannot belong to another session.
            tracing::error!(terminal.id = %id, session.id = %session.id, "the metadata of a terminal names another session");
        }
        let streams = summary.streams.count();
        let bytes = match output {
            OutputState::Held => summary.output_limit_bytes.saturating_mul(streams),
            OutputState::Lost => 0,
        };
        let terminal_log = self.logs.of(session.id);
        let terminal = Terminal::new(NewTerminal {
            id,
            created_at,
            session: session.clone(),
            spec: summary,
            request_id,
            shell: ShellKnowledge::Unknown,
            reservation: self.quotas.adopt(session, bytes),
            exec_denials: ExecDenials::adopted(terminal_log.denials(id)),
            terminal_log,
            counters: self.counters.clone(),
            recorder: self.recorder.clone(),
            changes: self.registry.changes_sender().clone(),
        });
        if has_given_stdin {
            terminal.takes_given_stdin();
        }
        terminal
    }

    fn adopt_running(
        self: &Arc<Self>,
        terminal: &Arc<Terminal>,
        live: Live,
        ended: Option<(Box<Exit>, Duration)>,
        sharing: Sharing,
        recorded_exits: &mut RecordedExits,
    ) {
        let sandbox = live.sandbox.clone();
        let reported = terminal.terminal_log().outcome(terminal.id);
        let policy = self.policy.current();
        // One that has gone from the policy: as a new profile would be.
        let profile = policy.profile(Some(terminal.spec.profile.as_str()));
        let profile = profile.map_or_else(Arc::default, |(_, profile)| profile.clone());
        let watched = WatchedWorkspaces::adopt(
            &terminal.session,
            terminal.subject(),
            &self.recorder,
            &profile,
            &self.workspaces,
            reported,
        );
        if let Some(watched) = watched
            && terminal.workspace.set(watched).is_err()
        {
            unreachable!("a terminal's workspaces are attached once, when it is adopted");
        }
        terminal.adopt(Running::adopted(sandbox.clone(), sharing), live);
        self.screens.begin(terminal, Questions::SomeOld);
        self.stop_when_left(terminal);
        match ended {
            None => terminal.enforce_time_limits(),
            Some((exit, ago)) => {
                let recording = match recorded_exits.contains(&terminal.id.to_string(), ago) {
                    true => Recording::AlreadyRecorded,
                    false => Recording::Now,
                };
                let terminal = terminal.clone();
                terminal.end_claims.set_reported();
                sandbox.after_gate_backlog(move || {
                    terminal.after_workspace_check(move |terminal| {
                        terminal.ended_earlier(CommandEnd::Reported(exit), ago, recording);
                    });
                });
            }
        }
        match terminal.spec.backpressure {
            Backpressure::Never => {}
            // The gateway before may have taken the word that its reader has moved, and not passed it on.
            Backpressure::ForStream | Backpressure::ForResumableRun => {
                let id = terminal.id.to_string();
                // A sandbox that is gone has nothing more to write.
                tokio::spawn(async move { sandbox.resume(id).await });
            }
            Backpressure::ForRun => self.release_run(terminal),
        }
        if terminal.spec.backpressure == Backpressure::ForResumableRun {
            self.await_caller(terminal);
        }
    }
}
