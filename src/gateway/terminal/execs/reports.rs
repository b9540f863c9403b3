//! Takes the reports of gates: each is counted for its terminal, written into the journal, and then confirmed.
//!
//! A journal that cannot be written holds a report until it can: the gate confirms nothing to the exec meanwhile. A question
//! is put to a person when it is in the journal; `exec_questions` waits for the answer.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use futures_util::{FutureExt as _, future::BoxFuture};

use crate::{
    journal::{ExecAskedRecord, Record},
    policy::ActivePolicy,
    proto::gate::{
        AskEnded, ExecAsked, ExecDenied, ExecDeniedAgain, ExecsAllowed, Report, answer::Verdict,
        report::Report as Kind,
    },
    sandbox::{
        counters::SandboxCounters,
        gate_link::{GateLink, GateObserver, GateOwner},
    },
    terminal::{
        audit::{
            approval_records,
            exec_records::{self, ReportSource},
            recorded_reports::RecordedReports,
            recorder::{CountedOnly, Recorder, Unrecorded},
        },
        counters::TerminalCounters,
        execs::questions::ExecQuestions,
        id::TerminalId,
        secrets::{
            redact,
            redactor::{KnownSecrets, Redactor},
        },
        spec::OnAsk,
        state::{registry::Registry, terminal::Terminal},
    },
};

/// Between two attempts to write a report into a journal that cannot be written.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Takes the reports of all gates of a gateway.
#[derive(Debug)]
pub(in crate::terminal) struct GateReports {
    pub(in crate::terminal) registry: Arc<Registry>,
    pub(in crate::terminal) recorder: Recorder,
    pub(in crate::terminal) policy: Arc<ActivePolicy>,
    pub(in crate::terminal) known_secrets: Arc<KnownSecrets>,
    pub(in crate::terminal) counters: Arc<TerminalCounters>,
    pub(in crate::terminal) sandbox_counters: Arc<SandboxCounters>,
    pub(in crate::terminal) recorded_before: RecordedReports,
    pub(in crate::terminal) questions: ExecQuestions,
}

/// Whether the journal has a report already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recording {
    /// It has not.
    Needed,
    /// A gateway before this one has written it.
    Done,
}

impl GateObserver for GateReports {
    fn record(&self, link: Arc<GateLink>, report: Report) -> BoxFuture<'_, ()> {
        self.take(link, report).boxed()
    }

    fn lost(&self, owner: &GateOwner) {
        self.sandbox_counters.gates_lost.inc();
        self.recorder.record_best_effort(&exec_records::gate_lost(owner));
    }
}

impl GateReports {
    async fn take(&self, link: Arc<GateLink>, report: Report) {
        let recording = self.recording(&link, &report).await;
        let terminal = TerminalId::parse(&report.terminal_id).and_then(|id| self.registry.get(id));
        let source = ReportSource { owner: link.owner(), report: &report };
        match &report.report {
            Some(Kind::Denied(denied)) => self.denied(source, denied, terminal.as_deref(), recording).await,
            Some(Kind::Allowed(allowed)) => {
                self.allowed(source, allowed, terminal.as_deref(), recording).await
            }
            Some(Kind::Asked(asked)) => self.asked(&link, source, asked, terminal, recording).await,
            Some(Kind::DeniedAgain(again)) => self.denied_again(source, again, recording).await,
            Some(Kind::AskEnded(ended)) => self.ask_ended(source, ended, recording).await,
            // Of a newer gate: there is nothing that could be written.
            None => {}
        }
    }

    async fn recording(&self, link: &GateLink, report: &Report) -> Recording {
        if !link.is_backlog(report.number) {
            return Recording::Needed;
        }
        let at = UNIX_EPOCH.checked_add(Duration::from_nanos(report.at_unix_ns)).unwrap_or(UNIX_EPOCH);
        match self.recorded_before.contains(&link.owner().sandbox_id, report.number, at).await {
            true => Recording::Done,
            false => Recording::Needed,
        }
    }

    async fn denied(
        &self,
        source: ReportSource<'_>,
        denied: &ExecDenied,
        terminal: Option<&Terminal>,
        recording: Recording,
    ) {
        let mut record = Record::ExecDenied(source.denied(denied));
        self.redact(&mut record, terminal);
        if let (Some(terminal), Record::ExecDenied(record)) = (terminal, &record) {
            // Before it is in the journal: its command may end while the journal cannot be written.
            let denial = exec_records::denial(record, denied.cause());
            if let Some(entry) = terminal.denials.execs.count(record.report, denial) {
                terminal.terminal_log().add_denial(terminal.id, entry);
            }
        }
        if recording == Recording::Done {
            return;
        }
        self.counters.execs_denied.inc();
        // Those that are too many to be written one by one are counted in the journal.
        let _ = until_recorded(|| self.recorder.record_refusal(&record)).await;
    }

    async fn allowed(
        &self,
        source: ReportSource<'_>,
        allowed: &ExecsAllowed,
        terminal: Option<&Terminal>,
        recording: Recording,
    ) {
        if recording == Recording::Done {
            return;
        }
        let count = allowed.execs.iter().map(|exec| exec.count).fold(allowed.others, u64::saturating_add);
        self.counters.execs_allowed.add(count);
        let mut records = source.allowed(allowed);
        records.iter_mut().for_each(|record| self.redact(record, terminal));
        until_recorded(|| self.recorder.record_all_within_share(&records)).await;
    }

    async fn asked(
        &self,
        link: &Arc<GateLink>,
        source: ReportSource<'_>,
        asked: &ExecAsked,
        terminal: Option<Arc<Terminal>>,
        recording: Recording,
    ) {
        let mut record = Record::ExecAsked(source.asked(asked));
        self.redact(&mut record, terminal.as_deref());
        if recording == Recording::Needed {
            self.counters.execs_asked.inc();
            let written = until_recorded(|| self.recorder.record_refusal(&record)).await;
            if written == Err(CountedOnly) {
                // Nobody is asked about what is not in the journal.
                return link.answer(source.report.number, Verdict::NotAsked);
            }
        }
        let (Some(terminal), Record::ExecAsked(record)) = (terminal, record) else {
            return link.answer(source.report.number, Verdict::NotAsked);
        };
        match terminal.spec.on_ask {
            OnAsk::Refuse => link.answer(source.report.number, Verdict::NotAsked),
            OnAsk::Wait => self.ask(link, record, terminal).await,
        }
    }

    async fn ask(&self, link: &Arc<GateLink>, record: ExecAskedRecord, terminal: Arc<Terminal>) {
        // The number of an earlier gateway's policy says nothing here.
        let current = self.policy.current().generation();
        let generation = if link.is_backlog(record.report) { current } else { record.generation };
        let report = record.report;
        let request = match self.questions.request(record, &terminal, generation) {
            Ok(request) => request,
            Err(reached) => {
                let refused = approval_records::limit_reached(&terminal.session, &reached);
                // What cannot be written is refused all the same.
                let _ = self.recorder.record_refusal(&refused).await;
                return link.answer(report, Verdict::NotAsked);
            }
        };
        let (id, session) = (request.id, terminal.session.clone());
        let put = [self.questions.record(&request)];
        until_recorded(|| self.recorder.record_all(&put)).await;
        if let Err(reached) = self.questions.put(link.clone(), terminal, request, report) {
            // Another one was put while the question was written: it was never put, and that is written, too.
            self.recorder.record_best_effort(&approval_records::limit_reached(&session, &reached));
            self.recorder.record_best_effort(&approval_records::not_submitted(&session, id));
            return link.answer(report, Verdict::NotAsked);
        }
        // A policy may have come into force meanwhile.
        self.questions.supersede(self.policy.current().generation());
    }

    async fn denied_again(&self, source: ReportSource<'_>, again: &ExecDeniedAgain, recording: Recording) {
        if recording == Recording::Needed {
            let records = [source.denied_again(again)];
            until_recorded(|| self.recorder.record_all_within_share(&records)).await;
        }
    }

    async fn ask_ended(&self, source: ReportSource<'_>, ended: &AskEnded, recording: Recording) {
        self.questions.ended(&source.owner.sandbox_id, ended.number);
        if recording == Recording::Needed {
            let records = [source.ask_ended(ended)];
            until_recorded(|| self.recorder.record_all(&records)).await;
        }
    }

    /// Takes out what is secret: of the policy, and of the terminal.
    fn redact(&self, record: &mut Record, terminal: Option<&Terminal>) {
        let redactor: Redactor = self.known_secrets.redactor(&self.policy.current());
        redactor.redact(record);
        if let Some(live) = terminal.and_then(Terminal::live) {
            redact::redact_secrets(record, &live.masker.current());
        }
    }
}

/// Tries until the journal has taken it.
async fn until_recorded<T, F: Future<Output = Result<T, Unrecorded>>>(attempt: impl Fn() -> F) -> T {
    let mut is_logged = false;
    loop {
        match attempt().await {
            Ok(recorded) => return recorded,
            Err(error) => {
                if !std::mem::replace(&mut is_logged, true) {
                    tracing::error!(%error, "a gate's report waits for the journal: its execs wait, and fail");
                }
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }
}
