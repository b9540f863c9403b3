//! Questions about execs within commands: put to a person, answered to the gate.
//!
//! A question ends with the answer, the expiry, another policy, the exec's process, the terminal or the gate, whichever is
//! first. Each has a task, of which there are as many as questions may be open.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sha2::Digest as _;
use tokio_util::sync::CancellationToken;

use crate::{
    approval::{
        ApprovalLimitReached, ApprovalRequest, ApprovalStore, AskedExec, AskedWithin, RequestMode,
        RequestedAction, Resolution,
    },
    journal::{ExecAskedRecord, Record},
    policy::{ApprovalQuestion, CommandSpec, Digest},
    printable,
    proto::gate::answer::Verdict,
    sandbox::gate_link::GateLink,
    terminal::{
        records,
        state::{PersonWait, Terminal},
    },
};

/// A sandbox, and the number of the report that asked.
type QuestionKey = (String, u64);

/// The questions that wait.
#[derive(Debug)]
pub(in crate::terminal) struct ExecQuestions {
    approvals: Arc<ApprovalStore>,
    waiting: Arc<Mutex<HashMap<QuestionKey, CancellationToken>>>,
}

impl ExecQuestions {
    /// None yet.
    pub(in crate::terminal) fn new(approvals: Arc<ApprovalStore>) -> Self {
        Self { approvals, waiting: Arc::default() }
    }

    /// What a person is to be asked. Secrets were taken out of the record.
    ///
    /// # Errors
    /// When as many questions are open as may be.
    pub(in crate::terminal) fn request(
        &self,
        record: ExecAskedRecord,
        terminal: &Terminal,
        generation: u64,
    ) -> Result<ApprovalRequest, ApprovalLimitReached> {
        self.approvals.check_capacity(terminal.session.principal)?;
        let digest = digest(&record);
        let exec = record.exec;
        let program = exec.path.unwrap_or_else(|| exec.file.clone());
        let words = std::iter::once(&program).chain(exec.argv.iter().skip(1));
        let question = ApprovalQuestion {
            rule: record.rule,
            command: printable::command(words),
            reason: Some(record.reason).filter(|reason| !reason.is_empty()),
            others: Vec::new(),
            digest,
            generation,
        };
        let action = RequestedAction {
            principal: terminal.session.principal,
            session: terminal.session.id,
            question,
            program: CommandSpec::Argv { command: program, args: exec.argv.into_iter().skip(1).collect() },
            cwd: exec.cwd,
            profile: terminal.spec.profile.to_string(),
            env_names: Vec::new(),
            request_id: None,
            within: Some(AskedWithin::Exec(AskedExec {
                terminal: terminal.id.to_string(),
                file: exec.file,
                interpreters: exec.interpreters,
                args_omitted: exec.argv_omitted,
            })),
        };
        Ok(ApprovalRequest::new(action, RequestMode::Waiting))
    }

    /// The record of a question that is about to be put.
    pub(in crate::terminal) fn record(&self, request: &ApprovalRequest) -> Record {
        records::approval_requested(request, self.approvals.expiry())
    }

    /// Puts a question, and answers the gate when it has ended.
    ///
    /// # Errors
    /// When as many questions are open as may be.
    pub(in crate::terminal) fn put(
        &self,
        link: Arc<GateLink>,
        terminal: Arc<Terminal>,
        request: ApprovalRequest,
        report: u64,
        not_idle: PersonWait,
    ) -> Result<(), ApprovalLimitReached> {
        let waiting = self.approvals.submit(request)?;
        let key = (link.owner().sandbox_id.clone(), report);
        let gone = CancellationToken::new();
        self.lock().insert(key.clone(), gone.clone());
        let questions = self.waiting.clone();
        tokio::spawn(async move {
            let _not_idle = not_idle;
            let verdict = tokio::select! {
                // An answer counts before the end of what waited for it.
                biased;
                end = waiting.end() => match end {
                    Resolution::Approved(_) => Some(Verdict::Approved),
                    Resolution::Denied(_) => Some(Verdict::Refused),
                    Resolution::Withdrawn => Some(Verdict::NotAsked),
                    Resolution::Expired | Resolution::Superseded => Some(Verdict::Expired),
                },
                () = gone.cancelled() => None,
                () = link.ended() => None,
                _ = terminal.wait_over() => None,
            };
            lock(&questions).remove(&key);
            if let Some(verdict) = verdict {
                link.answer(report, verdict);
            }
        });
        Ok(())
    }

    /// The exec does not wait any more.
    pub(in crate::terminal) fn ended(&self, sandbox_id: &str, report: u64) {
        if let Some(gone) = self.lock().get(&(sandbox_id.to_owned(), report)) {
            gone.cancel();
        }
    }

    /// Ends the questions of older policies.
    pub(in crate::terminal) fn supersede(&self, generation: u64) {
        self.approvals.supersede(generation);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<QuestionKey, CancellationToken>> {
        lock(&self.waiting)
    }
}

fn lock(
    waiting: &Mutex<HashMap<QuestionKey, CancellationToken>>,
) -> MutexGuard<'_, HashMap<QuestionKey, CancellationToken>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The digest of the one exec that the answer is for.
fn digest(record: &ExecAskedRecord) -> Digest {
    let mut hash = sha2::Sha256::new();
    for part in [record.sandbox.as_bytes(), record.exec.file.as_bytes(), record.exec.argv_sha256.as_bytes()] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.update(record.report.to_le_bytes());
    Digest::from_bytes(hash.finalize().into())
}
