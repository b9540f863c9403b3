//! Verifies an exec at its stop, before the first instruction: file, arguments, environment and directory are those that were
//! evaluated, or the process is killed.

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{
    reading::scripts_are_unchanged,
    state::{Gate, JudgedExec, RECORD_TIMEOUT, Verification},
};
use crate::{
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
        let Some(judged) = verification.judged.take() else {
            let _ = ptrace::detach(process, 0);
            return self.finish(process, End::Gone);
        };
        match self.difference(process, &judged) {
            None => {
                let _ = ptrace::detach(process, 0);
                self.count_run(&judged);
                self.finish(process, End::Ran);
            }
            // It was killed where it stood, and its end is the next event.
            Some(_) if ptrace::stack_pointer(process) == Err(Errno::ESRCH) => {
                self.end_ask(&judged, End::Gone)
            }
            Some((cause, reason)) => self.condemn(process, &judged, cause, reason),
        }
    }

    /// What is executed and was not evaluated.
    fn difference(&self, process: i32, judged: &JudgedExec) -> Option<(Cause, &'static str)> {
        let exec = &judged.exec;
        let unreadable = |_| (Cause::Unreadable, "what is executed cannot be read");
        let checks = || {
            let program = self.proc.program_of(process).map_err(unreadable)?;
            if exec.files.last().is_none_or(|file| file.version != program) {
                return Err((Cause::Changed, "another file is executed than was evaluated"));
            }
            if !self.proc.has_arguments(process, &exec.final_argv).map_err(unreadable)? {
                return Err((Cause::Changed, "other arguments are executed than were evaluated"));
            }
            if let Some(env) = &exec.env
                && !self.proc.has_environment(process, env).map_err(unreadable)?
            {
                return Err((Cause::Changed, "another environment is executed than was evaluated"));
            }
            if self.proc.directory_identity(process).map_err(unreadable)? != exec.directory {
                return Err((Cause::Changed, "it is executed in another directory than was evaluated"));
            }
            if !scripts_are_unchanged(&self.proc, process, &exec.files) {
                return Err((Cause::Changed, "another script is executed than was evaluated"));
            }
            Ok(())
        };
        checks().err()
    }

    /// It stands before its first instruction, and stays there until the journal has the report.
    fn condemn(&mut self, process: i32, judged: &JudgedExec, cause: Cause, reason: &str) {
        let denied = ExecDenied {
            exec: Some(judged.described().clone()),
            cause: cause.into(),
            rule: String::new(),
            reason: reason.to_owned(),
        };
        let number = self.report(&judged.terminal_id, report::Report::Denied(denied));
        self.end_ask(judged, End::Denied);
        match (number, self.verifying.get_mut(&process)) {
            (Some(number), Some(verification)) => {
                verification.condemned = Some((number, self.now + RECORD_TIMEOUT));
            }
            _ => kill_traced(process),
        }
    }

    fn count_run(&mut self, judged: &JudgedExec) {
        self.end_ask(judged, End::Ran);
        if let Some(terminal) = self.terminals.get_mut(&judged.terminal_id) {
            if let (None, Some(rule)) = (&terminal.starts_any_rule, &judged.decided.verdict.starts_any) {
                terminal.starts_any_rule = Some(rule.clone());
            }
            terminal.count_allowed(judged.described(), judged.rule());
        }
    }

    /// A thread is not traced any more. Others of its group may have their turn.
    pub(super) fn finish(&mut self, thread: i32, end: End) {
        let group = self.verifying.iter().find(|(_, one)| one.thread == thread).map(|(group, _)| *group);
        let Some(group) = group else { return };
        if let Some(Verification { judged: Some(judged), .. }) = self.verifying.remove(&group) {
            self.end_ask(&judged, end);
        }
        self.judge_queued(group);
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

/// The number is still its own: it is traced by this process, which has not reaped it.
fn kill_traced(process: i32) {
    let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
}
