//! One terminal: its id, what was permitted, its stage, its output, and its steps from stage to stage: its command starts, ends,
//! is looked after, and is released.
//!
//! Each stage is published once and never goes back. A step consumes the value of the step before: [`Running`] becomes [`Finished`], and
//! [`Finished`] becomes [`Released`].

use std::{
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use tokio::sync::{Notify, broadcast, watch};

use crate::{
    failpoint,
    journal::Record,
    policy::{PtySize, StreamMode},
    proto::{
        supervisor::StopCause,
        v1::{Outcome, ProtectionHint, Receipt, outcome::End},
    },
    sandbox::{
        control::{
            handle::Sandbox,
            terminal_observer::{CommandEnd, TerminalObserver},
        },
        spec::Sharing,
    },
    session::Session,
    sys::ring::{self, RingReader},
    terminal::{
        counters::TerminalCounters,
        kept_shell::{KeptShell, ShellKnowledge},
        live::{self, Live},
        outcome::{self, TAIL_BYTES},
        quotas::Reservation,
        recorder::{Recorder, Unrecorded},
        records::{self, Subject},
        spec::{TerminalId, TerminalSpec},
        stage::{EndClaims, RunCaller, Stage},
        terminal_log::{Denials, ExecDenials, TerminalLog},
        workspace::WatchedWorkspaces,
    },
};

/// One terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
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
    live: OnceLock<Live>,
    stage: watch::Sender<Stage>,
    progress: Notify,
    slot: Mutex<Slot>,
    reservation: Mutex<Option<Reservation>>,
    terminal_log: Arc<TerminalLog>,
    finished_at: OnceLock<Instant>,
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
    pub(in crate::terminal) person_waits: PersonWaits,
    given_stdin: OnceLock<()>,
    changes: broadcast::Sender<Arc<Terminal>>,
    weak_self: Weak<Terminal>,
}

/// The step that a terminal is at, as a value that the next step consumes.
#[derive(Debug)]
enum Slot {
    /// Being started. The end may be reported before the start has been taken in.
    Starting(Option<CommandEnd>),
    Running(Running),
    Finished(Finished),
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
    pub(crate) fn has_given_stdin(&self) -> bool {
        self.given_stdin.get().is_some()
    }

    /// Itself, as everybody holds it.
    fn upgrade(&self) -> Option<Arc<Self>> {
        self.weak_self.upgrade()
    }

    /// Whom the audit records of it are about.
    pub(in crate::terminal) fn subject(&self) -> Subject {
        Subject { terminal: self.id, session: self.session.id, principal: self.session.principal }
    }

    /// What confines its command in fact. `None` for one that was never started.
    pub(crate) fn receipt(&self) -> Option<Receipt> {
        let survivors = self.stage.borrow().outcome().map(|outcome| outcome.survivors);
        Some(live::receipt(self.id, &self.spec, &self.session, self.live()?, survivors))
    }

    /// Where it is in its life now.
    pub(crate) fn stage(&self) -> Stage {
        self.stage.borrow().clone()
    }

    /// What is there once the command runs, and after.
    pub(crate) fn live(&self) -> Option<&Live> {
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
    pub(crate) fn pty_size(&self) -> Option<PtySize> {
        self.pty.size()
    }

    /// To see changes of the size of its pseudo-terminal.
    pub(crate) fn watch_pty_size(&self) -> Option<watch::Receiver<PtySize>> {
        self.pty.watch()
    }

    /// A caller is attached, until the guard is dropped.
    pub(crate) fn attach(&self) -> AttachedGuard {
        self.pty.attach()
    }

    /// How many callers are attached.
    pub(crate) fn attached(&self) -> usize {
        self.pty.attached()
    }

    /// To see callers attach and leave.
    pub(in crate::terminal) fn watch_attached(&self) -> tokio::sync::watch::Receiver<usize> {
        self.pty.watch_attached()
    }

    /// Wakes when an armed ring has changed, and with every change of the stage.
    pub(crate) fn progress(&self) -> &Notify {
        &self.progress
    }

    /// Whether what it wrote is gone: its sandbox ended while no gateway was there to hold the output.
    pub(crate) fn output_lost(&self) -> bool {
        self.live().is_none() && matches!(*self.stage.borrow(), Stage::Finished(_))
    }

    /// The terminal log of its session.
    pub(in crate::terminal) fn terminal_log(&self) -> &TerminalLog {
        &self.terminal_log
    }

    /// When it ended, by the gateway's clock.
    pub(crate) fn finished_at(&self) -> Option<Instant> {
        self.finished_at.get().copied()
    }

    /// Waits until the command runs, has ended, or will never run.
    pub(crate) async fn wait_settled(&self) -> Stage {
        self.wait_for(|stage| !matches!(stage, Stage::Created)).await
    }

    /// Waits until it was released, or will never run.
    pub(crate) async fn wait_released(&self) {
        self.wait_for(|stage| matches!(stage, Stage::Released(_))).await;
    }

    /// Waits until the command has ended, or was released.
    pub(crate) async fn wait_over(&self) -> Stage {
        self.wait_for(Stage::is_over).await
    }

    /// Waits until the end of the command has been reported, or was released. Between the report and the end that is published lies the scan
    /// of its workspaces, for which no supervisor is late.
    pub(in crate::terminal) async fn wait_end_reported(&self) {
        tokio::select! {
            () = self.end_claims.wait_reported() => {}
            _ = self.wait_over() => {}
        }
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

    fn publish(&self, stage: Stage) {
        stage.publish(&self.stage);
        self.progress.notify_waiters();
        if self.changes.receiver_count() > 0
            && let Some(this) = self.weak_self.upgrade()
        {
            // The last watcher may have gone meanwhile.
            let _ = self.changes.send(this);
        }
    }

    fn lock_slot(&self) -> std::sync::MutexGuard<'_, Slot> {
        self.slot.lock().expect("no code panics while it holds a terminal's slot")
    }
}

/// When the end of a command is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::terminal) enum Recording {
    /// By this gateway.
    Now,
    /// It was, by a gateway before this one.
    AlreadyRecorded,
}

impl Terminal {
    /// The command runs.
    pub(in crate::terminal) fn start(&self, running: Running, live: Live) {
        let pid = live.started.pid;
        self.set_live(live);
        self.counters.started.inc();
        // Before its end can be noted.
        if let Some(receipt) = self.receipt() {
            self.recorder.record_best_effort(&records::started(self.subject(), pid, receipt));
        }
        self.run(running);
    }

    /// The command has run since before this gateway was there.
    pub(in crate::terminal) fn adopt(&self, running: Running, live: Live) {
        let adopted = records::adopted(self.subject(), live.sandbox.id(), live.started.pid);
        self.set_live(live);
        self.counters.adopted.inc();
        self.recorder.record_best_effort(&adopted);
        self.run(running);
    }

    fn set_live(&self, live: Live) {
        if self.live.set(live).is_err() {
            unreachable!("a terminal is started or found once, by the one who made it");
        }
    }

    fn run(&self, running: Running) {
        let early_end = {
            let mut slot = self.lock_slot();
            match std::mem::replace(&mut *slot, Slot::Running(running)) {
                Slot::Starting(early_end) => early_end,
                Slot::Running(_) | Slot::Finished(_) | Slot::Empty => None,
            }
        };
        self.publish(Stage::Running);
        if let Some(end) = early_end {
            self.finish(end, Instant::now(), Recording::Now);
        }
    }

    /// The command has ended before this gateway was there.
    pub(in crate::terminal) fn ended_earlier(&self, end: CommandEnd, ago: Duration, recording: Recording) {
        let now = Instant::now();
        self.finish(end, now.checked_sub(ago).unwrap_or(now), recording);
    }

    /// The command has ended, and its sandbox is gone with all that it wrote. So much of its end is known.
    pub(in crate::terminal) fn ended_with_sandbox(
        &self,
        mut outcome: Outcome,
        ago: Duration,
        recording: Recording,
    ) {
        self.counters.adopted.inc();
        self.denials.report(&mut outcome);
        let finished = Finished::without_sandbox(outcome);
        let outcome = finished.outcome().clone();
        *self.lock_slot() = Slot::Finished(finished);
        let now = Instant::now();
        self.conclude(outcome, now.checked_sub(ago).unwrap_or(now), recording);
    }

    /// Takes back what a gateway that came now would hold for a command that began. A second time it does nothing.
    pub(in crate::terminal) fn withdraw(&self) {
        if let Some(watched) = self.workspace.get() {
            watched.withdraw();
        }
        self.terminal_log.remove(self.id);
    }

    /// The command will never run.
    pub(in crate::terminal) fn abandon(&self) {
        self.withdraw();
        *self.lock_slot() = Slot::Empty;
        self.reservation.lock().expect("no code panics while it holds a reservation").take();
        self.counters.failed.inc();
        self.publish(Stage::Released(None));
    }

    fn finish(&self, end: CommandEnd, at: Instant, recording: Recording) {
        let was_forced = matches!(&end, CommandEnd::Reported(exit) if exit.force_killed);
        let outcome = {
            let mut slot = self.lock_slot();
            match std::mem::replace(&mut *slot, Slot::Empty) {
                Slot::Starting(_) => {
                    *slot = Slot::Starting(Some(end));
                    return;
                }
                Slot::Running(running) => {
                    let finished = running.finished(self.outcome_of(end));
                    let outcome = finished.outcome().clone();
                    *slot = Slot::Finished(finished);
                    outcome
                }
                other @ (Slot::Finished(_) | Slot::Empty) => {
                    *slot = other;
                    return;
                }
            }
        };
        if was_forced {
            self.counters.force_killed.inc();
        }
        self.conclude(outcome, at, recording);
    }

    fn outcome_of(&self, end: CommandEnd) -> Outcome {
        let mut outcome = match end {
            CommandEnd::Reported(exit) => outcome::reported(&exit),
            CommandEnd::SandboxLost { survivors } => {
                let started = self.live().map(|live| &live.started);
                outcome::lost(started, self.end_claims.cause(), survivors, SystemTime::now())
            }
        };
        self.denials.report(&mut outcome);
        outcome.protection_hints = self.protection_hints(&outcome);
        if let Some(unreachable) = &mut outcome.unreachable {
            unreachable.set_network(live::network(self.spec.network));
            let offered = self.spec.offered.iter();
            unreachable.offered = offered.map(|network| live::network(network.name()).into()).collect();
        }
        if let Some(shortfall) = self.workspace.get().and_then(|watched| watched.report_changes(&mut outcome))
        {
            let sandbox_id = self.live().map(|live| live.sandbox.id().to_owned());
            let record =
                records::workspace_shortfall(self.subject(), sandbox_id, &self.spec.profile, &shortfall);
            self.recorder.record_best_effort(&record);
        }
        outcome
    }

    /// What may explain errors in the last output of a command that failed.
    fn protection_hints(&self, outcome: &Outcome) -> Vec<ProtectionHint> {
        let Some(live) = self.live().filter(|_| !matches!(outcome.end, None | Some(End::ExitCode(0)))) else {
            return Vec::new();
        };
        let tail = |ring: &RingReader| {
            let mut bytes = vec![0; TAIL_BYTES.min(ring.head()) as usize];
            let start = ring.head() - bytes.len() as u64;
            // What cannot be read explains nothing.
            let copied = ring.read_at(start, &mut bytes).ok()?.length;
            Some(String::from_utf8_lossy(&bytes[..copied]).into_owned())
        };
        let tails: Vec<_> =
            [Some(&live.stdout), live.stderr.as_ref()].into_iter().flatten().filter_map(tail).collect();
        outcome::hints(outcome, &tails, live.sandbox.protections(), Path::new(&self.spec.cwd))
    }

    /// Does what comes after the command's end, after a look at what it has changed where that is needed.
    pub(in crate::terminal) fn after_workspace_check(
        &self,
        conclude: impl FnOnce(&Self) + Send + Sync + 'static,
    ) {
        match (self.workspace.get(), self.upgrade()) {
            (Some(watched), Some(this)) => watched.check_then(move || conclude(&this)),
            (None, _) | (_, None) => conclude(self),
        }
    }

    /// What an end brings with it, once: only the end of a command that ran comes here, and only the first.
    fn conclude(&self, outcome: Arc<Outcome>, at: Instant, recording: Recording) {
        if let Some(reservation) =
            self.reservation.lock().expect("no code panics while it holds a reservation").as_mut()
        {
            reservation.finished();
        }
        // What this gateway publishes is what the next one publishes.
        self.terminal_log.set_outcome(self.id, &outcome);
        if recording == Recording::Now {
            self.recorder.record_best_effort(&records::exit(self.subject(), &outcome));
        }
        failpoint::reach("exit.recorded");
        let _ = self.finished_at.set(at);
        self.count_end(&outcome);
        self.publish(Stage::Finished(outcome));
        failpoint::reach("exit.published");
    }

    fn count_end(&self, outcome: &Outcome) {
        self.counters.ended.inc(crate::terminal::CountedCause(outcome.cause()));
        self.counters.stragglers_killed.add(outcome.stragglers_killed.into());
        self.counters.survivors.add(outcome.survivors.into());
        self.counters.output_bytes.add(self.written_bytes());
    }

    /// Takes the last step's value out, to release it.
    pub(in crate::terminal) fn take_finished(&self) -> Option<Finished> {
        let mut slot = self.lock_slot();
        match std::mem::replace(&mut *slot, Slot::Empty) {
            Slot::Finished(finished) => Some(finished),
            other @ (Slot::Starting(_) | Slot::Running(_) | Slot::Empty) => {
                *slot = other;
                None
            }
        }
    }

    /// Nothing is left of it.
    pub(in crate::terminal) fn mark_released(&self, outcome: Arc<Outcome>) {
        self.reservation.lock().expect("no code panics while it holds a reservation").take();
        self.counters.released.inc();
        self.publish(Stage::Released(Some(outcome)));
    }
}

impl TerminalObserver for Terminal {
    fn progressed(&self) {
        self.progress.notify_waiters();
    }

    fn reported(&self) {
        self.end_claims.set_reported();
    }

    fn given_up(&self, cause: StopCause) {
        // The supervisor counts the limits: what it says came first.
        self.end_claims.replace_cause(outcome::cause_of_stop(cause));
    }

    fn ended(&self, end: CommandEnd) {
        let at = Instant::now();
        // With its sandbox nothing was reported, and nothing is late any more.
        self.end_claims.set_reported();
        self.after_workspace_check(move |terminal| terminal.finish(end, at, Recording::Now));
    }
}

/// Where a command runs, and whether the place ends with it.
#[derive(Debug)]
pub(in crate::terminal) struct SandboxLease {
    pub sandbox: Arc<Sandbox>,
    pub sharing: Sharing,
}

impl SandboxLease {
    /// Leaves nothing of a sandbox that was the terminal's own.
    pub(in crate::terminal) async fn shut_down_if_sole(self, grace: Duration) {
        match self.sharing {
            Sharing::Shared => {}
            Sharing::Exclusive => self.sandbox.shut_down(grace).await,
        }
    }
}

/// Exec has succeeded: the supervisor holds the process.
#[derive(Debug)]
pub(in crate::terminal) struct Running {
    pub lease: SandboxLease,
}

impl Running {
    /// A command that a gateway before this one has started: that one held the permit.
    pub(in crate::terminal) fn adopted(sandbox: Arc<Sandbox>, sharing: Sharing) -> Self {
        Self { lease: SandboxLease { sandbox, sharing } }
    }

    /// The end, as it came to be known.
    pub(in crate::terminal) fn finished(self, outcome: Outcome) -> Finished {
        Finished { lease: Some(self.lease), outcome: Arc::new(outcome) }
    }
}

/// Ended, with its outcome. The output is still here, unless its sandbox ended while no gateway was there.
#[derive(Debug)]
pub(in crate::terminal) struct Finished {
    lease: Option<SandboxLease>,
    outcome: Arc<Outcome>,
}

impl Finished {
    /// The end of a command whose sandbox was gone before this gateway came.
    pub(in crate::terminal) fn without_sandbox(outcome: Outcome) -> Self {
        Self { lease: None, outcome: Arc::new(outcome) }
    }

    /// What every waiter gets.
    pub(in crate::terminal) fn outcome(&self) -> &Arc<Outcome> {
        &self.outcome
    }

    /// Frees what the supervisor keeps, and the sandbox when it was the terminal's own.
    pub(in crate::terminal) async fn release(self, id: TerminalId) -> Released {
        match self.lease {
            None => {}
            Some(place) if place.sharing == Sharing::Exclusive => {
                place.shut_down_if_sole(Duration::ZERO).await
            }
            // A sandbox that has gone has nothing to forget.
            Some(place) => drop(place.sandbox.release(id.to_string()).await),
        }
        Released { outcome: self.outcome }
    }
}

/// Nothing is left but how it ended.
#[derive(Debug)]
pub(in crate::terminal) struct Released {
    pub outcome: Arc<Outcome>,
}

/// The pseudo-terminal of a terminal, and who is attached to it.
#[derive(Debug)]
pub(in crate::terminal) struct PtyState {
    /// `None` for pipes.
    size: Option<watch::Sender<PtySize>>,
    attached: watch::Sender<usize>,
}

/// A caller who is attached, until this is dropped.
#[derive(Debug)]
pub(crate) struct AttachedGuard(watch::Sender<usize>);

impl Drop for AttachedGuard {
    fn drop(&mut self) {
        self.0.send_modify(|attached| *attached -= 1);
    }
}

impl PtyState {
    /// At the size that was asked for.
    fn new(streams: StreamMode) -> Self {
        Self { size: streams.pty().map(watch::Sender::new), attached: watch::Sender::default() }
    }

    /// The present size.
    fn size(&self) -> Option<PtySize> {
        self.size.as_ref().map(|size| *size.borrow())
    }

    /// To see changes of the size.
    fn watch(&self) -> Option<watch::Receiver<PtySize>> {
        self.size.as_ref().map(watch::Sender::subscribe)
    }

    /// One more caller is attached.
    fn attach(&self) -> AttachedGuard {
        self.attached.send_modify(|attached| *attached += 1);
        AttachedGuard(self.attached.clone())
    }

    /// How many callers are attached.
    fn attached(&self) -> usize {
        *self.attached.borrow()
    }

    /// To see callers come and go.
    fn watch_attached(&self) -> watch::Receiver<usize> {
        self.attached.subscribe()
    }

    /// The terminal has this size.
    pub(in crate::terminal) fn set(&self, size: PtySize) {
        if let Some(sender) = &self.size {
            sender.send_if_modified(|before| std::mem::replace(before, size) != size);
        }
    }
}

/// The rings that are held: stdout's (or the merged one), stderr's.
#[derive(Debug, Default)]
pub(in crate::terminal) struct ReaderHolds {
    rings: Mutex<[bool; 2]>,
    is_left: AtomicBool,
}

impl ReaderHolds {
    pub(in crate::terminal) fn lock(&self) -> MutexGuard<'_, [bool; 2]> {
        self.rings.lock().expect("no code panics while it holds a terminal's holds")
    }

    /// From now on holds stay when their readers go: with this gateway, to come back to the next one.
    pub(in crate::terminal) fn leave(&self) {
        self.is_left.store(true, Ordering::Release);
    }

    pub(in crate::terminal) fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Acquire)
    }
}

/// The questions of one command that wait for a person. Meanwhile the command's idle clocks stand still: the supervisor's, which
/// is told, and the gateway's own.
#[derive(Debug, Default)]
pub(in crate::terminal) struct PersonWaits {
    waiting: AtomicU32,
    /// How many have begun so far.
    begun: AtomicU32,
    telling: tokio::sync::Mutex<()>,
}

impl PersonWaits {
    /// Whether it waits for a person.
    pub(in crate::terminal) fn any(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// How many have begun so far: who looks now and then sees by it those that fell between two looks.
    pub(in crate::terminal) fn begun(&self) -> u32 {
        self.begun.load(Ordering::SeqCst)
    }

    /// One more. Whether it is the first.
    fn add(&self) -> bool {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.waiting.fetch_add(1, Ordering::SeqCst) == 0
    }

    /// One less. Whether it was the last.
    fn remove(&self) -> bool {
        self.waiting.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// Held by who tells the supervisor: of two that do, the later one says how it is.
    async fn telling(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.telling.lock().await
    }
}

/// One question that waits, until it is dropped.
#[derive(Debug)]
pub(in crate::terminal) struct PersonWait(Arc<Terminal>);

impl PersonWait {
    /// From now on the command is not idle.
    pub(in crate::terminal) fn begin(terminal: &Arc<Terminal>) -> Self {
        if terminal.person_waits.add() {
            tell(terminal.clone());
        }
        Self(terminal.clone())
    }
}

impl Drop for PersonWait {
    fn drop(&mut self) {
        if self.0.person_waits.remove() {
            tell(self.0.clone());
        }
    }
}

/// Tells the supervisor how it is. One that does not answer ends the command by its own clock.
fn tell(terminal: Arc<Terminal>) {
    if terminal.spec.time_limits.idle.is_none() {
        return;
    }
    tokio::spawn(async move {
        let _telling = terminal.person_waits.telling().await;
        let waits = terminal.person_waits.any();
        let Some(live) = terminal.live() else { return };
        if let Err(error) = live.sandbox.hold_idle_clock(terminal.id.to_string(), waits).await
            && !terminal.stage().is_over()
        {
            tracing::warn!(terminal.id = %terminal.id, %error, "the supervisor does not hold an idle clock");
        }
    });
}
