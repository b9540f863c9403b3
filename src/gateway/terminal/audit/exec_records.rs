//! Makes the audit records of execs within commands, from the reports of gates. Pure: writes nothing, waits for nothing.
//!
//! What a gate says is bounded here. Secrets are still in it.

use crate::{
    journal::{
        AllowedExecRecord, ExecAskEndedRecord, ExecAskedRecord, ExecDeniedAgainRecord, ExecDeniedRecord,
        ExecsAllowedRecord, GateLostRecord, Record, RecordedExec,
    },
    policy::Digest,
    printable,
    proto::{
        gate::{
            AskEnded, Exec, ExecAsked, ExecDenied, ExecDeniedAgain, ExecsAllowed, Report, ask_ended::End,
            exec_denied::Cause,
        },
        v1::{self, ExecDenialCause},
    },
    sandbox::gate_link::GateOwner,
    session::Principal,
};

/// The most of one text, in bytes.
const TEXT_MAX_BYTES: usize = 4_096;
/// The most arguments of a refused exec, and their bytes together.
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
    /// An exec was refused.
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

    /// A refused exec was tried in further directories.
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

/// A refused exec, as an outcome has it: as its record says, after the secrets were taken out.
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
