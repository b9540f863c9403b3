//! Verifies an exec at its stop, before the first instruction: file, arguments, environment and directory are those that were
//! evaluated, or the process is killed. A file that was replaced meanwhile is evaluated in its place.

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{
    EvaluatedExec, Gate, RECORD_TIMEOUT, Verification,
    evaluation::{DescribedVerdict, evaluate_by_policy},
    exec_call::{ReadFile, executed_file, scripts_now},
};
use crate::{
    policy::ExecDecision,
    proto::gate::{ExecDenied, ask_ended::End, exec_denied::Cause, report},
    sys::ptrace::{self, TraceEvent, Traced},
};

impl Gate {
    /// Handles events of traced threads until no exec is in verification.
    pub(super) fn awaited_events(&mut self) {
        while !self.verifying.is_empty()
            && let Ok(Some(event)) = ptrace::next_event()
        {
            self.trace_event(event);
        }
    }

    /// Handles all events of traced threads.
    pub(super) fn trace_events(&mut self) {
        while let Ok(Some(event)) = ptrace::next_event() {
            self.trace_event(event);
        }
    }

    fn trace_event(&mut self, Traced { thread, event }: Traced) {
        self.seized.remove(&thread);
        match event {
            // From here on the thread has its group's number.
            TraceEvent::Execed => self.execed(thread),
            TraceEvent::Stopped { signal } => {
                // It goes on where it was, with an exec that has failed.
                let _ = ptrace::detach(thread, signal);
                self.finish(thread, End::Gone);
            }
            TraceEvent::Ended => self.finish(thread, End::Gone),
        }
    }

    fn execed(&mut self, process: i32) {
        let Some(verification) = self.verifying.get_mut(&process) else {
            // Nothing that this gate has let go on.
            return kill_traced(process);
        };
        verification.thread = process;
        let Some(evaluated) = verification.evaluated.take() else {
            let _ = ptrace::detach(process, 0);
            return self.finish(process, End::Gone);
        };
        let seen = match self.difference(process, &evaluated) {
            Ok(None) => Ok(evaluated),
            Ok(Some(replaced)) => {
                self.evaluated_again(process, &evaluated, replaced).map_err(|failed| (evaluated, failed))
            }
            Err(failed) => Err((evaluated, failed)),
        };
        match seen {
            Ok(evaluated) => {
                let _ = ptrace::detach(process, 0);
                self.count_run(&evaluated);
                self.finish(process, End::Ran);
            }
            // It was killed where it stood, and its end is the next event.
            Err((evaluated, _)) if ptrace::stack_pointer(process) == Err(Errno::ESRCH) => {
                self.end_ask(&evaluated, End::Gone)
            }
            Err((evaluated, (cause, reason))) => self.condemn(process, &evaluated, cause, reason),
        }
    }

    /// What is executed and was not evaluated: nothing, another file that is to be evaluated, or what is never executed.
    fn difference(&self, process: i32, evaluated: &EvaluatedExec) -> Result<Option<Replaced>, Failed> {
        let exec = &evaluated.exec;
        let unreadable = |_| (Cause::Unreadable, "what is executed cannot be read");
        let program = self.proc.program_of(process).map_err(unreadable)?;
        let is_program = exec.files.last().is_some_and(|file| exec.is_same_file(file, program));
        if !is_program && (exec.files.len() > 1 || !exec.holds_its_files()) {
            return Err(OTHER_FILE);
        }
        if !self.proc.has_arguments(process, &exec.final_argv).map_err(unreadable)? {
            return Err((Cause::Changed, "other arguments are executed than were evaluated"));
        }
        if let Some(env) = &exec.env
            && !self.proc.has_environment(process, env).map_err(unreadable)?
        {
            return Err((Cause::Changed, "another environment is executed than was evaluated"));
        }
        // Before the directory: it is this one's alone from here on.
        if self.shares_directories && self.proc.shares_directory(process).map_err(unreadable)? {
            return Err((
                Cause::Changed,
                "another process can change its directory: they share it (CLONE_FS)",
            ));
        }
        if self.proc.directory_identity(process).map_err(unreadable)? != exec.directories[0].id {
            return Err((Cause::Changed, "it is executed in another directory than was evaluated"));
        }
        if !is_program {
            return Ok(Some(Replaced::Program));
        }
        match scripts_now(&self.proc, process, exec) {
            Some(scripts) if exec.files.starts_with(&scripts) => Ok(None),
            Some(scripts) if exec.holds_its_files() => Ok(Some(Replaced::Scripts(scripts))),
            _ => Err(OTHER_SCRIPT),
        }
    }

    /// An exec of which a file was replaced since it was evaluated: what is executed instead is evaluated, and goes on if it is allowed.
    /// Honest programs replace what others execute.
    fn evaluated_again(
        &mut self,
        process: i32,
        evaluated: &EvaluatedExec,
        replaced: Replaced,
    ) -> Result<Box<EvaluatedExec>, Failed> {
        let (files, failed) = match replaced {
            Replaced::Program => {
                let program =
                    self.proc.open_program(process).and_then(|opened| executed_file(&self.proc, &opened));
                (vec![program.map_err(|_| OTHER_FILE)?], OTHER_FILE)
            }
            Replaced::Scripts(mut scripts) => {
                scripts.extend(evaluated.exec.files.last().cloned());
                (scripts, OTHER_SCRIPT)
            }
        };
        let exec = evaluated.exec.with_files(files);
        let (Some(policy), _) = self.policy.current() else { return Err(failed) };
        let terminal = self.terminals.get_mut(&evaluated.terminal_id).ok_or(failed)?;
        let verdict = evaluate_by_policy(&policy, terminal, &exec, &self.proc, &self.names, process);
        match verdict.decision {
            ExecDecision::Allow => Ok(Box::new(EvaluatedExec {
                exec,
                verdict: DescribedVerdict::new(verdict),
                terminal_id: evaluated.terminal_id.clone(),
                ..*evaluated
            })),
            ExecDecision::Ask | ExecDecision::Deny => Err(failed),
        }
    }

    /// It stands before its first instruction, and stays there until the journal has the report.
    fn condemn(&mut self, process: i32, evaluated: &EvaluatedExec, cause: Cause, reason: &str) {
        let denied = ExecDenied {
            exec: Some(evaluated.described().clone()),
            cause: cause.into(),
            rule: String::new(),
            reason: reason.to_owned(),
        };
        let number = self.report(&evaluated.terminal_id, report::Report::Denied(denied));
        self.end_ask(evaluated, End::Denied);
        match (number, self.verifying.get_mut(&process)) {
            (Some(number), Some(verification)) => {
                verification.condemned = Some((number, self.now + RECORD_TIMEOUT));
            }
            _ => kill_traced(process),
        }
    }

    fn count_run(&mut self, evaluated: &EvaluatedExec) {
        self.end_ask(evaluated, End::Ran);
        if let Some(terminal) = self.terminals.get_mut(&evaluated.terminal_id) {
            if let (None, Some(rule)) = (&terminal.starts_any_rule, &evaluated.verdict.by_policy.starts_any) {
                terminal.starts_any_rule = Some(rule.clone());
            }
            terminal.count_allowed(evaluated.described(), evaluated.rule());
        }
    }

    /// A thread is not traced any more. Others of its group may have their turn.
    pub(super) fn finish(&mut self, thread: i32, end: End) {
        let group = self.verifying.iter().find(|(_, one)| one.thread == thread).map(|(group, _)| *group);
        let Some(group) = group else { return };
        if let Some(Verification { evaluated: Some(evaluated), .. }) = self.verifying.remove(&group) {
            self.end_ask(&evaluated, end);
        }
        self.evaluate_queued(group);
    }

    /// Kills those whose report the journal has, or is waited for no longer.
    pub(super) fn kill_condemned(&mut self, recorded: impl Fn(u64) -> bool) {
        let now = self.now;
        for (process, verification) in &mut self.verifying {
            if verification.condemned.is_some_and(|(report, until)| recorded(report) || until <= now) {
                verification.condemned = None;
                kill_traced(*process);
            }
        }
    }
}

/// Another file than was evaluated.
#[derive(Debug)]
enum Replaced {
    /// The program, of an exec without a script.
    Program,
    /// Scripts; the program and its arguments, which have the lines of all scripts, are those that were evaluated.
    Scripts(Vec<ReadFile>),
}

/// Why something is not executed.
type Failed = (Cause, &'static str);

const OTHER_FILE: Failed = (Cause::Changed, "another file is executed than was evaluated");
const OTHER_SCRIPT: Failed = (Cause::Changed, "another script is executed than was evaluated");

/// The number is still its own: it is traced by this process, which has not reaped it.
fn kill_traced(process: i32) {
    let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
}
