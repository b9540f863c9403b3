//! One terminal: its id, what was permitted, its stage, its output.
//!
//! Each stage is published once and never goes back. The steps from stage to stage are in `lease` and `steps`; this
//! file keeps their results.

use std::{
    sync::{Arc, Mutex, OnceLock, Weak},
    time::{Instant, SystemTime},
};

use tokio::sync::{Notify, broadcast, watch};

use super::{
    denials::Denials,
    end_claims::EndClaims,
    exec_denials::ExecDenials,
    kept_shell::{KeptShell, ShellKnowledge},
    lease::{Exited, Running},
    live::Live,
    person_waits::PersonWaits,
    pty::{AttachedGuard, PtyState},
    quota_tracker::Reservation,
    reader_holds::ReaderHolds,
    receipt,
    run_caller::RunCaller,
    stage::Stage,
    terminal_log::TerminalLog,
    workspace::WatchedWorkspaces,
};
use crate::{
    journal::Record,
    policy::PtySize,
    proto::v1::Receipt,
    sandbox::listener::CommandEnd,
    session::Session,
    sys::ring,
    terminal::{
        audit::{
            recorder::{Recorder, Unrecorded},
            subject::Subject,
        },
        counters::TerminalCounters,
        id::TerminalId,
        spec::TerminalSpec,
    },
};

/// One terminal.
#[derive(Debug)]
pub struct Terminal {
    /// Its id.
    pub id: TerminalId,
    /// Whose it is.
    pub session: Arc<Session>,
    /// What it is about.
    pub spec: TerminalSpec,
    /// When it was permitted.
    pub created_at: SystemTime,
    /// The request's id, where the caller gave one.
    pub request_id: Option<String>,
    pub(super) live: OnceLock<Live>,
    stage: watch::Sender<Stage>,
    pub(super) progress: Notify,
    pub(super) slot: Mutex<Slot>,
    pub(super) reservation: Mutex<Option<Reservation>>,
    pub(super) terminal_log: Arc<TerminalLog>,
    pub(super) finished_at: OnceLock<Instant>,
    /// Who ends it, for what, and by when.
    pub(in crate::terminal) end_claims: EndClaims,
    pub(in crate::terminal) pty: PtyState,
    pub(in crate::terminal) kept_shell: Option<KeptShell>,
    pub(in crate::terminal) holds: ReaderHolds,
    pub(in crate::terminal) run_caller: RunCaller,
    pub(in crate::terminal) recorder: Recorder,
    pub(in crate::terminal) counters: Arc<TerminalCounters>,
    pub(in crate::terminal) workspace: OnceLock<Arc<WatchedWorkspaces>>,
    pub(in crate::terminal) denials: Denials,
    pub(super) person_waits: PersonWaits,
    given_stdin: OnceLock<()>,
    changes: broadcast::Sender<Arc<Terminal>>,
    weak_self: Weak<Terminal>,
}

/// The step that a terminal is at, as a value that the next step consumes.
#[derive(Debug)]
pub(super) enum Slot {
    /// Being started. The end may be reported before the start has been taken in.
    Starting(Option<CommandEnd>),
    Running(Running),
    Exited(Exited),
    /// Taken by the one who releases it, or never to be filled.
    Empty,
}

/// What a new terminal is made of.
#[derive(Debug)]
pub(in crate::terminal) struct NewTerminal {
    pub id: TerminalId,
    pub created_at: SystemTime,
    pub session: Arc<Session>,
    pub spec: TerminalSpec,
    pub request_id: Option<String>,
    /// If it is a kept shell.
    pub shell: ShellKnowledge,
    pub reservation: Reservation,
    pub exec_denials: ExecDenials,
    pub terminal_log: Arc<TerminalLog>,
    pub counters: Arc<TerminalCounters>,
    pub changes: broadcast::Sender<Arc<Terminal>>,
    pub recorder: Recorder,
}

impl Terminal {
    pub(in crate::terminal) fn new(new: NewTerminal) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            weak_self: this.clone(),
            id: new.id,
            session: new.session,
            pty: PtyState::new(new.spec.streams),
            kept_shell: new.spec.kept_shell.map(|kind| KeptShell::new(kind, new.id, new.shell)),
            spec: new.spec,
            created_at: new.created_at,
            request_id: new.request_id,
            live: OnceLock::new(),
            stage: watch::Sender::new(Stage::Created),
            progress: Notify::new(),
            slot: Mutex::new(Slot::Starting(None)),
            reservation: Mutex::new(Some(new.reservation)),
            terminal_log: new.terminal_log,
            finished_at: OnceLock::new(),
            end_claims: EndClaims::default(),
            holds: ReaderHolds::default(),
            run_caller: RunCaller::default(),
            recorder: new.recorder,
            counters: new.counters,
            workspace: OnceLock::new(),
            denials: Denials::new(new.exec_denials),
            person_waits: PersonWaits::default(),
            given_stdin: OnceLock::new(),
            changes: new.changes,
        })
    }

    /// Its command has the stdin that its caller gave.
    pub(in crate::terminal) fn takes_given_stdin(&self) {
        // Once is enough.
        let _ = self.given_stdin.set(());
    }

    /// Whether its command has the stdin that its caller gave.
    pub fn has_given_stdin(&self) -> bool {
        self.given_stdin.get().is_some()
    }

    /// Itself, as everybody holds it.
    pub(in crate::terminal) fn upgrade(&self) -> Option<Arc<Self>> {
        self.weak_self.upgrade()
    }

    /// Whom the audit records of it are about.
    pub(in crate::terminal) fn subject(&self) -> Subject {
        Subject { terminal: self.id, session: self.session.id, principal: self.session.principal }
    }

    /// What confines its command in fact. `None` for one that was never started.
    pub fn receipt(&self) -> Option<Receipt> {
        let survivors = self.stage.borrow().outcome().map(|outcome| outcome.survivors);
        Some(receipt::of(self.id, &self.spec, &self.session, self.live()?, survivors))
    }

    /// Where it is in its life now.
    pub fn stage(&self) -> Stage {
        self.stage.borrow().clone()
    }

    /// What is there once the command runs, and after.
    pub fn live(&self) -> Option<&Live> {
        self.live.get()
    }

    /// Records what comes before its start, and answers with the first record's number; an error forbids the start.
    pub(in crate::terminal) async fn record_before<'a>(
        &self,
        records: impl IntoIterator<Item = &'a Record>,
    ) -> Result<Option<u64>, Unrecorded> {
        let begun = Instant::now();
        let recorded = self.recorder.record_all(records).await;
        self.counters.timings.record.observe(begun.elapsed());
        recorded
    }

    /// The present size of its pseudo-terminal. `None` for a terminal with pipes.
    pub fn pty_size(&self) -> Option<PtySize> {
        self.pty.size()
    }

    /// To see changes of the size of its pseudo-terminal.
    pub fn watch_pty_size(&self) -> Option<watch::Receiver<PtySize>> {
        self.pty.watch()
    }

    /// A caller is attached, until the guard is dropped.
    pub fn attach(&self) -> AttachedGuard {
        self.pty.attach()
    }

    /// How many callers are attached.
    pub fn attached(&self) -> usize {
        self.pty.attached()
    }

    /// To see callers attach and leave.
    pub(in crate::terminal) fn watch_attached(&self) -> tokio::sync::watch::Receiver<usize> {
        self.pty.watch_attached()
    }

    /// Wakes when an armed ring has changed, and with every change of the stage.
    pub fn progress(&self) -> &Notify {
        &self.progress
    }

    /// Whether what it wrote is gone: its sandbox ended while no gateway was there to hold the output.
    pub fn output_lost(&self) -> bool {
        self.live().is_none() && matches!(*self.stage.borrow(), Stage::Finished(_))
    }

    /// The terminal log of its session.
    pub(in crate::terminal) fn terminal_log(&self) -> &TerminalLog {
        &self.terminal_log
    }

    /// When it ended, by the gateway's clock.
    pub fn finished_at(&self) -> Option<Instant> {
        self.finished_at.get().copied()
    }

    /// Waits until the command runs, has ended, or will never run.
    pub async fn wait_settled(&self) -> Stage {
        self.wait_for(|stage| !matches!(stage, Stage::Created)).await
    }

    /// Waits until it was released, or will never run.
    pub async fn wait_released(&self) {
        self.wait_for(|stage| matches!(stage, Stage::Released(_))).await;
    }

    /// Waits until the command has ended, or was released.
    pub async fn wait_over(&self) -> Stage {
        self.wait_for(Stage::is_over).await
    }

    async fn wait_for(&self, wanted: impl Fn(&Stage) -> bool) -> Stage {
        let mut watched = self.stage.subscribe();
        match watched.wait_for(|stage| wanted(stage)).await {
            Ok(stage) => stage.clone(),
            // The sender is part of `self`: it cannot be gone.
            Err(_) => self.stage(),
        }
    }

    /// Bytes that its command has written so far.
    pub(in crate::terminal) fn written_bytes(&self) -> u64 {
        self.live.get().map_or(0, |live| {
            live.stdout.head().saturating_add(live.stderr.as_ref().map_or(0, ring::RingReader::head))
        })
    }

    pub(super) fn publish(&self, stage: Stage) {
        stage.publish(&self.stage);
        self.progress.notify_waiters();
        if self.changes.receiver_count() > 0
            && let Some(this) = self.weak_self.upgrade()
        {
            // The last watcher may have gone meanwhile.
            let _ = self.changes.send(this);
        }
    }

    pub(super) fn lock_slot(&self) -> std::sync::MutexGuard<'_, Slot> {
        self.slot.lock().expect("no code panics while it holds a terminal's slot")
    }
}
