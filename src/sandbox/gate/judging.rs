//! From a notified exec to its verdict: answered, held, or let go on under verification. Other calls are answered at once.

use std::os::fd::AsFd;

use nix::errno::Errno;

use super::{
    evaluation::evaluate,
    exec_call::ExecCall,
    process::Caller,
    reading::{ReadFailure, Wanted, describe_call, read},
    refusals::Refused,
    state::{Gate, HeldExec, JudgedExec, MAX_ASKED_EXECS, MAX_EXEC_BYTES, RECORD_TIMEOUT, Verification},
    verdicts::Decided,
};
use crate::{
    caller::{ModeCall, change_mode},
    policy::ExecDecision,
    proto::gate::{
        AskEnded, Exec, ExecAsked, ExecDenied, ask_ended::End, exec_denied::Cause, from_gate, report,
    },
    sys::{
        ptrace,
        seccomp_listener::{self, CallAnswer, NotifiedCall},
    },
};

impl Gate {
    /// Receives all calls that wait; there is one. Before it is received, a signal with a handler ends a caller's wait, and its exec fails
    /// with EINTR: so nothing is evaluated before the last one is received.
    pub(super) fn receive_calls(&mut self) {
        loop {
            if let Ok(Some(notified)) = seccomp_listener::receive(self.seccomp.as_fd()) {
                self.received.push_back(notified);
            }
            if !self.has_room() || !seccomp_listener::has_call(self.seccomp.as_fd()) {
                return;
            }
        }
    }

    /// Evaluates the first call that was received.
    pub(super) fn evaluate_next(&mut self) {
        let Some(notified) = self.received.pop_front() else { return };
        if i64::from(notified.number) == libc::SYS_clone {
            // It is remembered first: then each exec is looked at for it.
            self.shares_directories = true;
            let _ = seccomp_listener::answer(self.seccomp.as_fd(), notified.id, CallAnswer::Continue);
            return;
        }
        if let Some(call) = ModeCall::of(&notified) {
            let is_waiting = || seccomp_listener::is_waiting(self.seccomp.as_fd(), notified.id);
            let changed =
                call.and_then(|call| change_mode(&self.proc.viewpoint(), notified.thread, &call, is_waiting));
            let answer = changed.map_or_else(CallAnswer::Fail, |()| CallAnswer::Done);
            let _ = seccomp_listener::answer(self.seccomp.as_fd(), notified.id, answer);
            return;
        }
        match ExecCall::of(&notified) {
            Ok(call) => self.admit(&notified, call),
            Err(errno) => self.fail(notified.id, errno),
        }
    }

    /// One exec of a thread group at a time is verified: the kernel would let nobody seize a thread while another of its group
    /// is in its exec, and the gate would wait for that.
    fn admit(&mut self, notified: &NotifiedCall, call: ExecCall) {
        let (caller, opened) = match self.proc.caller(notified.thread) {
            Ok(known) => known,
            // It is gone, or cannot be seen: then nothing of it runs.
            Err(_) => return self.fail(call.id, Errno::EACCES),
        };
        self.spent.extend(opened);
        self.end_failed(&caller, notified.thread);
        if self.verifying.contains_key(&caller.group) {
            self.queued.entry(caller.group).or_default().push_back((call, caller));
        } else {
            self.judge(call, caller);
        }
    }

    /// A thread that calls again while its exec is in verification: that one has failed, and the interrupt found the thread here. It
    /// cannot stop before it is answered, so this is not waited for.
    fn end_failed(&mut self, caller: &Caller, thread: i32) {
        if self.verifying.get(&caller.group).is_some_and(|one| one.thread == thread) {
            self.seized.insert(thread);
            self.finish(thread, End::Gone);
        }
    }

    /// Judges the calls of a group whose verification is over, until one of them is in verification.
    pub(super) fn judge_queued(&mut self, group: i32) {
        while !self.verifying.contains_key(&group) {
            let Some(calls) = self.queued.get_mut(&group) else { return };
            let Some((call, caller)) = calls.pop_front() else {
                self.queued.remove(&group);
                return;
            };
            if seccomp_listener::is_waiting(self.seccomp.as_fd(), call.id) {
                self.judge(call, caller);
            }
        }
    }

    fn judge(&mut self, call: ExecCall, caller: Caller) {
        let Some(terminal_id) = self.terminal_of(&call, caller.cgroup) else {
            return self.deny(
                call.id,
                "",
                Exec::default(),
                Cause::Unavailable,
                "",
                "its terminal is not known",
            );
        };
        // The line that they were approved with may be over.
        if self.terminals.get(&terminal_id).is_some_and(|one| one.line.is_some() && !one.approved.is_empty())
        {
            self.receive_from_gateway();
        }
        let (policy, failed) = self.policy.current();
        if let Some(failed) = failed {
            self.send(from_gate::Message::PolicyInForce(failed));
        }
        let Some(policy) = policy else {
            let reason = "there is no policy";
            return self.deny(call.id, &terminal_id, Exec::default(), Cause::Unavailable, "", reason);
        };
        let has_approved = self.terminals.get(&terminal_id).is_some_and(|one| !one.approved.is_empty());
        let wanted = Wanted {
            env: policy.judges_environment_of_execs() || has_approved,
            directories: policy.judges_directory_of_execs(),
        };
        let exec = match read(&self.proc, &call, wanted, &mut self.lines) {
            Ok(exec) => exec,
            Err(ReadFailure::Gone) => return self.fail(call.id, Errno::EACCES),
            Err(ReadFailure::Errno(errno)) => return self.fail(call.id, errno),
            Err(ReadFailure::Unreadable(reason)) => {
                let exec = describe_call(&self.proc, &call);
                // Else it is another thread's that has the number now.
                if !seccomp_listener::is_waiting(self.seccomp.as_fd(), call.id) {
                    return;
                }
                return self.deny(call.id, &terminal_id, exec, Cause::Unreadable, "", &reason);
            }
        };
        let Some(terminal) = self.terminals.get_mut(&terminal_id) else {
            return self.fail(call.id, Errno::EACCES);
        };
        let decided = match self.verdicts.find(terminal, &exec, self.now) {
            Some(known) => known,
            None => {
                let decided =
                    Decided::new(evaluate(&policy, terminal, &exec, &self.proc, &self.names, caller.group));
                self.verdicts.keep(terminal, &exec, self.now, &decided);
                decided
            }
        };
        let decision = decided.verdict.decision;
        let judged = JudgedExec { call, group: caller.group, terminal_id, exec, decided, asked: None };
        match decision {
            // The kernel takes no answer for a caller that was gone meanwhile.
            ExecDecision::Allow => self.let_go_on(judged),
            // What was read by the thread's number may have been another one's.
            ExecDecision::Ask | ExecDecision::Deny
                if !seccomp_listener::is_waiting(self.seccomp.as_fd(), call.id) => {}
            ExecDecision::Ask | ExecDecision::Deny if self.is_refused_again(&judged, decision) => {
                self.fail(call.id, Errno::EACCES);
            }
            ExecDecision::Ask => self.ask(judged),
            ExecDecision::Deny => {
                let cause = if judged.rule().is_empty() { Cause::Default } else { Cause::Rule };
                let reason = judged.decided.verdict.reason.as_deref().unwrap_or_default();
                self.deny_judged(&judged, cause, reason);
            }
        }
    }

    /// Whether it was refused a moment ago in another directory of the search path.
    fn is_refused_again(&mut self, judged: &JudgedExec, decision: ExecDecision) -> bool {
        let refused = match decision {
            ExecDecision::Allow => return false,
            ExecDecision::Ask => Refused::Asks(judged.rule()),
            ExecDecision::Deny if judged.rule().is_empty() => Refused::Default,
            ExecDecision::Deny => Refused::Rule(judged.rule()),
        };
        let (thread, terminal_id) = (judged.call.thread, &judged.terminal_id);
        self.refusals.is_again(thread, terminal_id, judged.described(), refused, self.now)
    }

    fn terminal_of(&mut self, call: &ExecCall, cgroup: Option<u64>) -> Option<String> {
        if let Some(known) = cgroup.and_then(|cgroup| self.terminals.with_cgroup(cgroup)) {
            return Some(known.id.clone());
        }
        let leaves = self.proc.leaves_of(call.thread).unwrap_or_default();
        let known = |gate: &Self| {
            let terminal = match gate.has_cgroups {
                true => gate.terminals.with_leaf(&leaves),
                false => gate.terminals.only(),
            };
            terminal.map(|terminal| terminal.id.clone())
        };
        let found = known(self).or_else(|| {
            self.receive_from_gateway();
            known(self)
        })?;
        // Both were read of the caller, if it still waits.
        if let (Some(cgroup), Some(leaf), true) = (cgroup, &leaves.version_2, self.has_cgroups)
            && seccomp_listener::is_waiting(self.seccomp.as_fd(), call.id)
        {
            self.terminals.keep_cgroup(cgroup, leaf);
        }
        Some(found)
    }

    fn ask(&mut self, mut judged: JudgedExec) {
        if self.asked_execs() >= MAX_ASKED_EXECS {
            return self.deny_judged(&judged, Cause::Unavailable, "too many execs wait for a person");
        }
        if self.asked_bytes() + judged.exec.bytes() > MAX_EXEC_BYTES {
            let reason = "the arguments of all execs that wait for a person take too much memory";
            return self.deny_judged(&judged, Cause::Unavailable, reason);
        }
        // It may wait for long.
        judged.exec.opened.clear();
        let asked = ExecAsked {
            exec: Some(judged.described().clone()),
            rule: judged.rule().to_owned(),
            reason: judged.decided.verdict.reason.clone().unwrap_or_default(),
        };
        let terminal_id = judged.terminal_id.clone();
        let before = self.reports.last_number();
        self.report(&terminal_id, report::Report::Asked(asked));
        let number = self.reports.last_number();
        if number == before {
            // It is not kept: nobody would answer.
            return self.deny_judged(&judged, Cause::Unavailable, "too many reports wait for a gateway");
        }
        let id = judged.call.id;
        let alone_since = self.gateway.is_none().then_some(self.now);
        let judged = Box::new(JudgedExec { asked: Some(number), ..judged });
        self.held.insert(id, HeldExec::Asked { report: number, judged, alone_since });
        self.change_asking(&terminal_id, |asking| asking + 1);
    }

    /// Lets the kernel execute it, and stops it at the exec.
    pub(super) fn let_go_on(&mut self, judged: JudgedExec) {
        let (id, thread, group) = (judged.call.id, judged.call.thread, judged.group);
        let seized = match self.seized.remove(&thread) {
            true => Ok(()),
            false => ptrace::seize(thread),
        };
        match seized {
            Ok(()) => {}
            // It ends, or has ended.
            Err(_) if !seccomp_listener::is_waiting(self.seccomp.as_fd(), id) => {
                return self.end_ask(&judged, End::Gone);
            }
            Err(_) => {
                let reason = "another process traces it, so that it cannot be verified";
                self.deny_judged(&judged, Cause::Traced, reason);
                return;
            }
        }
        // Where this fails the thread is gone, which will be seen. Before the answer where that does not end its wait: an exec that fails
        // then stops on its way out of the kernel, and not in the program's next call, which would fail with EINTR.
        if self.waits_killable {
            let _ = ptrace::interrupt(thread);
        }
        // Fails where the caller is gone, and another thread has its number.
        let continued = seccomp_listener::answer(self.seccomp.as_fd(), id, CallAnswer::Continue).is_ok();
        if !self.waits_killable {
            let _ = ptrace::interrupt(thread);
        }
        let judged = match continued {
            true => Some(Box::new(judged)),
            false => {
                self.end_ask(&judged, End::Gone);
                None
            }
        };
        self.verifying.insert(group, Verification { thread, judged, condemned: None });
    }

    /// Denies an exec that was evaluated.
    pub(super) fn deny_judged(&mut self, judged: &JudgedExec, cause: Cause, reason: &str) {
        let (id, exec) = (judged.call.id, judged.described().clone());
        let before = self.reports.last_number();
        self.deny(id, &judged.terminal_id, exec, cause, judged.rule(), reason);
        let report = self.reports.last_number();
        // What was only counted because there are too many has no number.
        if report != before {
            let (thread, terminal_id) = (judged.call.thread, &judged.terminal_id);
            let decided = (cause, judged.rule(), report);
            self.refusals.keep(thread, terminal_id, judged.described(), decided, self.now);
        }
        self.end_ask(judged, End::Denied);
    }

    /// Reports a denial, and answers the caller when the journal has it.
    fn deny(&mut self, id: u64, terminal_id: &str, exec: Exec, cause: Cause, rule: &str, reason: &str) {
        let is_of_rule = matches!(cause, Cause::Rule | Cause::AskRefused | Cause::AskExpired);
        let rule = if is_of_rule { rule.to_owned() } else { String::new() };
        let denied = ExecDenied { exec: Some(exec), cause: cause.into(), rule, reason: reason.to_owned() };
        match self.report(terminal_id, report::Report::Denied(denied)) {
            Some(report) => {
                let until = self.now + RECORD_TIMEOUT;
                self.held.insert(id, HeldExec::Denied { report, until });
            }
            None => self.fail(id, Errno::EACCES),
        }
    }

    /// Reports how an exec that was asked about went on.
    pub(super) fn end_ask(&mut self, judged: &JudgedExec, end: End) {
        if let Some(number) = judged.asked {
            let ended = AskEnded { number, end: end.into() };
            self.report(&judged.terminal_id, report::Report::AskEnded(ended));
        }
    }

    /// Answers a caller, who may be gone.
    pub(super) fn fail(&self, id: u64, errno: Errno) {
        let _ = seccomp_listener::answer(self.seccomp.as_fd(), id, CallAnswer::Fail(errno));
    }
}
