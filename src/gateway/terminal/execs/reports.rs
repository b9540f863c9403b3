//! Takes the reports of gates: each is counted for its terminal, written into the journal, and then confirmed.
//!
//! A journal that cannot be written holds a report until it can: the gate confirms nothing to the exec meanwhile. A question
//! is put to a person when it is in the journal; [`questions`](super::questions) waits for the answer. What a gate says is bounded in the
//! record that is made of it, and secrets are taken out of the record.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use futures_util::{FutureExt as _, future::BoxFuture};

use crate::{
    journal::{
        AllowedExecRecord, ExecAskEndedRecord, ExecAskedRecord, ExecDeniedAgainRecord, ExecDeniedRecord,
        ExecsAllowedRecord, GateLostRecord, Record, RecordedExec,
    },
    policy::{ActivePolicy, Digest},
    printable,
    proto::{
        gate::{
            AskEnded, Exec, ExecAsked, ExecDenied, ExecDeniedAgain, ExecsAllowed, Report, answer::Verdict,
            ask_ended::End, exec_denied::Cause, report::Report as Kind,
        },
        v1::{self, ExecDenialCause},
    },
    sandbox::{
        counters::SandboxCounters,
        gate_link::{GateLink, GateObserver, GateOwner},
    },
    session::Principal,
    terminal::{
        counters::TerminalCounters,
        execs::questions::ExecQuestions,
        recorder::{CountedOnly, RecordedReports, Recorder, Unrecorded},
        records,
        registry::Registry,
        secrets::{
            redact,
            redactor::{KnownSecrets, Redactor},
        },
        spec::{OnAsk, TerminalId},
        state::{PersonWait, Terminal},
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
enum InJournal {
    /// It has not.
    NotYet,
    /// A gateway before this one has written it.
    Already,
}

impl GateObserver for GateReports {
    fn record(&self, link: Arc<GateLink>, report: Report) -> BoxFuture<'_, ()> {
        self.take(link, report).boxed()
    }

    fn lost(&self, owner: &GateOwner) {
        self.sandbox_counters.gates_lost.inc();
        self.recorder.record_best_effort(&gate_lost(owner));
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
            // A newer gate has sent it: there is nothing that could be written.
            None => {}
        }
    }

    async fn recording(&self, link: &GateLink, report: &Report) -> InJournal {
        if !link.is_backlog(report.number) {
            return InJournal::NotYet;
        }
        let at = UNIX_EPOCH.checked_add(Duration::from_nanos(report.at_unix_ns)).unwrap_or(UNIX_EPOCH);
        match self.recorded_before.contains(&link.owner().sandbox_id, report.number, at).await {
            true => InJournal::Already,
            false => InJournal::NotYet,
        }
    }

    async fn denied(
        &self,
        source: ReportSource<'_>,
        denied: &ExecDenied,
        terminal: Option<&Terminal>,
        recording: InJournal,
    ) {
        let mut record = Record::ExecDenied(source.denied(denied));
        self.redact(&mut record, terminal);
        if let (Some(terminal), Record::ExecDenied(record)) = (terminal, &record) {
            // Before it is in the journal: its command may end while the journal cannot be written.
            let denial = denial(record, denied.cause());
            if let Some(entry) = terminal.denials.execs.count(record.report, denial) {
                terminal.terminal_log().add_denial(terminal.id, entry);
            }
        }
        if recording == InJournal::Already {
            return;
        }
        self.counters.execs_denied.inc();
        // Those that are too many to be written one by one are counted in the journal.
        let _ = until_recorded(|| self.recorder.record_denial(&record)).await;
    }

    async fn allowed(
        &self,
        source: ReportSource<'_>,
        allowed: &ExecsAllowed,
        terminal: Option<&Terminal>,
        recording: InJournal,
    ) {
        if recording == InJournal::Already {
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
        recording: InJournal,
    ) {
        // The exec waits from its question on, and a journal that cannot be written waits, too.
        let asks = terminal.as_ref().filter(|terminal| terminal.spec.on_ask == OnAsk::Wait);
        let not_idle = asks.map(PersonWait::begin);
        let mut record = Record::ExecAsked(source.asked(asked));
        self.redact(&mut record, terminal.as_deref());
        if recording == InJournal::NotYet {
            self.counters.execs_asked.inc();
            let written = until_recorded(|| self.recorder.record_denial(&record)).await;
            if written == Err(CountedOnly) {
                // Nobody is asked about what is not in the journal.
                return link.answer(source.report.number, Verdict::NotAsked);
            }
        }
        match (terminal, not_idle, record) {
            (Some(terminal), Some(not_idle), Record::ExecAsked(record)) => {
                self.ask(link, record, terminal, not_idle).await;
            }
            _ => link.answer(source.report.number, Verdict::NotAsked),
        }
    }

    async fn ask(
        &self,
        link: &Arc<GateLink>,
        record: ExecAskedRecord,
        terminal: Arc<Terminal>,
        not_idle: PersonWait,
    ) {
        // The number of an earlier gateway's policy says nothing here.
        let current = self.policy.current().generation();
        let generation = if link.is_backlog(record.report) { current } else { record.generation };
        let report = record.report;
        let request = match self.questions.request(record, &terminal, generation) {
            Ok(request) => request,
            Err(reached) => {
                let refused = records::approval_limit_reached(&terminal.session, &reached);
                // What cannot be written is refused all the same.
                let _ = self.recorder.record_denial(&refused).await;
                return link.answer(report, Verdict::NotAsked);
            }
        };
        let (id, session) = (request.id, terminal.session.clone());
        let put = [self.questions.record(&request)];
        until_recorded(|| self.recorder.record_all(&put)).await;
        if let Err(reached) = self.questions.put(link.clone(), terminal, request, report, not_idle) {
            // Another one was put while the question was written: it was never put, and that is written, too.
            self.recorder.record_best_effort(&records::approval_limit_reached(&session, &reached));
            self.recorder.record_best_effort(&records::approval_not_submitted(&session, id));
            return link.answer(report, Verdict::NotAsked);
        }
        // A policy may have come into force meanwhile.
        self.questions.supersede(self.policy.current().generation());
    }

    async fn denied_again(&self, source: ReportSource<'_>, again: &ExecDeniedAgain, recording: InJournal) {
        if recording == InJournal::NotYet {
            let records = [source.denied_again(again)];
            until_recorded(|| self.recorder.record_all_within_share(&records)).await;
        }
    }

    async fn ask_ended(&self, source: ReportSource<'_>, ended: &AskEnded, recording: InJournal) {
        self.questions.ended(&source.owner.sandbox_id, ended.number);
        if recording == InJournal::NotYet {
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

/// The most of one text, in bytes.
const TEXT_MAX_BYTES: usize = 4_096;
/// The most arguments of a denied exec, and their bytes together.
const ARGUMENTS_MAX: usize = 32;
const ARGUMENTS_MAX_BYTES: usize = 4_096;
/// The same of an allowed one: there are many, and the digest covers all arguments.
const ALLOWED_ARGUMENTS_MAX: usize = 8;
const ALLOWED_ARGUMENTS_MAX_BYTES: usize = 256;
/// The most interpreters.
const INTERPRETERS_MAX: usize = 8;
/// Bytes of texts in one record of allowed execs: as JSON each byte can become six.
const ALLOWED_RECORD_BYTES: usize = 96 << 10;
/// What one exec takes in such a record in addition to its texts.
const ALLOWED_EXEC_OVERHEAD_BYTES: usize = 256;
/// The most of the text of a reason in an outcome.
const REASON_SHOWN_BYTES: usize = 1_024;

/// A report, and whose it is.
#[derive(Debug, Clone, Copy)]
pub(in crate::terminal) struct ReportSource<'a> {
    /// Whose.
    pub(in crate::terminal) owner: &'a GateOwner,
    /// The report.
    pub(in crate::terminal) report: &'a Report,
}

impl ReportSource<'_> {
    /// An exec was denied.
    pub(in crate::terminal) fn denied(self, denied: &ExecDenied) -> ExecDeniedRecord {
        ExecDeniedRecord {
            sandbox: self.owner.sandbox_id.clone(),
            report: self.report.number,
            terminal: bounded(&self.report.terminal_id),
            session: self.owner.session_id.clone(),
            principal: principal(self.owner),
            generation: self.report.policy_generation,
            at_unix_ns: self.report.at_unix_ns,
            cause: cause_name(denied.cause()).to_owned(),
            rule: Some(bounded(&denied.rule)).filter(|rule| !rule.is_empty()),
            reason: bounded(&denied.reason),
            exec: exec(denied.exec.as_ref(), ARGUMENTS_MAX, ARGUMENTS_MAX_BYTES),
        }
    }

    /// A denied exec was tried in further directories.
    pub(in crate::terminal) fn denied_again(self, again: &ExecDeniedAgain) -> Record {
        Record::ExecDeniedAgain(ExecDeniedAgainRecord {
            sandbox: self.owner.sandbox_id.clone(),
            report: self.report.number,
            terminal: bounded(&self.report.terminal_id),
            session: self.owner.session_id.clone(),
            principal: principal(self.owner),
            denied_in: again.number,
            count: again.count,
        })
    }

    /// A person is to be asked about an exec.
    pub(in crate::terminal) fn asked(self, asked: &ExecAsked) -> ExecAskedRecord {
        ExecAskedRecord {
            sandbox: self.owner.sandbox_id.clone(),
            report: self.report.number,
            terminal: bounded(&self.report.terminal_id),
            session: self.owner.session_id.clone(),
            principal: principal(self.owner),
            generation: self.report.policy_generation,
            at_unix_ns: self.report.at_unix_ns,
            rule: bounded(&asked.rule),
            reason: bounded(&asked.reason),
            exec: exec(asked.exec.as_ref(), ARGUMENTS_MAX, ARGUMENTS_MAX_BYTES),
        }
    }

    /// How an exec that was asked about went on.
    pub(in crate::terminal) fn ask_ended(self, ended: &AskEnded) -> Record {
        let end = match ended.end() {
            End::Ran => "ran",
            End::Denied => "denied",
            End::Gone => "gone",
            End::Unspecified => "unknown",
        };
        Record::ExecAskEnded(ExecAskEndedRecord {
            sandbox: self.owner.sandbox_id.clone(),
            report: self.report.number,
            terminal: bounded(&self.report.terminal_id),
            session: self.owner.session_id.clone(),
            principal: principal(self.owner),
            asked_in: ended.number,
            end: end.to_owned(),
        })
    }

    /// Execs were allowed: as many records as their texts need.
    pub(in crate::terminal) fn allowed(self, allowed: &ExecsAllowed) -> Vec<Record> {
        let mut records = Vec::new();
        let (mut execs, mut bytes) = (Vec::new(), 0);
        for one in &allowed.execs {
            let record = AllowedExecRecord {
                count: one.count,
                rule: Some(bounded(&one.rule)).filter(|rule| !rule.is_empty()),
                exec: exec(one.exec.as_ref(), ALLOWED_ARGUMENTS_MAX, ALLOWED_ARGUMENTS_MAX_BYTES),
            };
            bytes += text_bytes(&record);
            if bytes > ALLOWED_RECORD_BYTES && !execs.is_empty() {
                records.push(self.allowed_record(std::mem::take(&mut execs), 0));
                bytes = text_bytes(&record);
            }
            execs.push(record);
        }
        records.push(self.allowed_record(execs, allowed.others));
        records
    }

    fn allowed_record(self, execs: Vec<AllowedExecRecord>, others: u64) -> Record {
        Record::ExecsAllowed(ExecsAllowedRecord {
            sandbox: self.owner.sandbox_id.clone(),
            report: self.report.number,
            terminal: bounded(&self.report.terminal_id),
            session: self.owner.session_id.clone(),
            principal: principal(self.owner),
            generation: self.report.policy_generation,
            execs,
            others,
        })
    }
}

/// The gate of a sandbox is gone.
pub(in crate::terminal) fn gate_lost(owner: &GateOwner) -> Record {
    Record::GateLost(GateLostRecord {
        sandbox: owner.sandbox_id.clone(),
        session: owner.session_id.clone(),
        principal: principal(owner),
    })
}

/// A denied exec, as an outcome has it: as its record says, after the secrets were taken out.
pub(in crate::terminal) fn denial(record: &ExecDeniedRecord, cause: Cause) -> v1::ExecDenial {
    let exec = &record.exec;
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(record.at_unix_ns);
    v1::ExecDenial {
        program: exec.path.as_ref().unwrap_or(&exec.file).clone(),
        args: exec.argv.iter().skip(1).cloned().collect(),
        args_omitted: exec.argv_omitted,
        cwd: exec.cwd.clone(),
        cause: match cause {
            Cause::Unspecified => ExecDenialCause::Unspecified,
            Cause::Rule => ExecDenialCause::Rule,
            Cause::Default => ExecDenialCause::Default,
            Cause::Changed => ExecDenialCause::Changed,
            Cause::Unreadable => ExecDenialCause::Unreadable,
            Cause::Traced => ExecDenialCause::Traced,
            Cause::Unavailable => ExecDenialCause::Unavailable,
            Cause::AskRefused => ExecDenialCause::AskRefused,
            Cause::AskExpired => ExecDenialCause::AskExpired,
        }
        .into(),
        rule: record.rule.clone().unwrap_or_default(),
        reason: printable::truncate(&record.reason, REASON_SHOWN_BYTES).to_owned(),
        denied_at: Some(at.into()),
    }
}

fn cause_name(cause: Cause) -> &'static str {
    match cause {
        Cause::Unspecified => "unknown",
        Cause::Rule => "rule",
        Cause::Default => "default",
        Cause::Changed => "changed",
        Cause::Unreadable => "unreadable",
        Cause::Traced => "traced",
        Cause::Unavailable => "unavailable",
        Cause::AskRefused => "ask_refused",
        Cause::AskExpired => "ask_expired",
    }
}

fn principal(owner: &GateOwner) -> String {
    Principal { uid: owner.uid }.to_string()
}

fn exec(exec: Option<&Exec>, arguments: usize, bytes: usize) -> RecordedExec {
    let Some(exec) = exec else { return RecordedExec::default() };
    let mut left = bytes;
    let fits = |argument: &&String| {
        let fits = argument.len() <= left;
        left -= argument.len().min(left);
        fits
    };
    let argv: Vec<String> = exec.argv.iter().take(arguments).take_while(fits).cloned().collect();
    let omitted = u32::try_from(exec.argv.len() - argv.len()).unwrap_or(u32::MAX);
    let digest = <[u8; 32]>::try_from(&exec.argv_sha256[..]).map(Digest::from_bytes);
    RecordedExec {
        file: bounded(&exec.file),
        path: Some(bounded(&exec.path)).filter(|path| *path != exec.file),
        argv_omitted: exec.argv_omitted.saturating_add(omitted),
        argv,
        argv_sha256: digest.map(|digest| digest.to_string()).unwrap_or_default(),
        cwd: bounded(&exec.cwd),
        interpreters: exec.interpreters.iter().take(INTERPRETERS_MAX).map(|one| bounded(one)).collect(),
    }
}

fn text_bytes(record: &AllowedExecRecord) -> usize {
    let exec = &record.exec;
    let lists = exec.argv.iter().chain(&exec.interpreters).map(String::len).sum::<usize>();
    let path = exec.path.as_ref().map_or(0, String::len) + record.rule.as_ref().map_or(0, String::len);
    ALLOWED_EXEC_OVERHEAD_BYTES + lists + path + exec.file.len() + exec.cwd.len()
}

fn bounded(text: &str) -> String {
    printable::truncate(text, TEXT_MAX_BYTES).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{journal::MAX_RECORD_BYTES, proto::gate::AllowedExec};

    #[test]
    fn allowed_execs_are_split_into_records_that_fit_and_their_counts_add_up() {
        let exec = Exec {
            file: "\u{1}".repeat(10_000),
            argv: vec!["\u{1}".repeat(200); 40],
            cwd: "\u{1}".repeat(10_000),
            ..Exec::default()
        };
        let one = AllowedExec { exec: Some(exec), rule: "r".to_owned(), count: 3 };
        let allowed = ExecsAllowed { execs: vec![one; 1_024], others: 5 };
        let owner = GateOwner { sandbox_id: "sbx_1".into(), session_id: "sess_1".into(), uid: 7 };
        let report = Report { number: 9, ..Report::default() };
        let records = ReportSource { owner: &owner, report: &report }.allowed(&allowed);
        let mut count = 0;
        for record in &records {
            assert!(serde_json::to_vec(record).unwrap().len() < MAX_RECORD_BYTES);
            let Record::ExecsAllowed(record) = record else { panic!("{record:?}") };
            assert_eq!((record.report, record.principal.as_str()), (9, "uid:7"));
            count += record.execs.iter().map(|exec| exec.count).sum::<u64>() + record.others;
            assert!(record.execs.iter().all(|exec| exec.exec.argv_omitted == 39));
        }
        assert_eq!(count, 3 * 1_024 + 5);
        let empty = ReportSource { owner: &owner, report: &report }.allowed(&ExecsAllowed::default());
        assert_eq!(empty.len(), 1, "the report's number is in the journal all the same");
    }
}
