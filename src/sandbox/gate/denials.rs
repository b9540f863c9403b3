//! Execs that no verdict allows: asked about, or denied, which the journal has before the caller.
//!
//! What was denied a moment ago is remembered: a shell goes on along its search path after EACCES, and tries the same name in the next
//! directory. What is tried is evaluated all the same, and runs where a rule allows it: a name may be wrong in the first
//! directory only. Where it is denied by the same rule again, nobody is asked again, and it is counted instead of reported. The
//! first report does not wait for the count, because a denial is written before it is answered.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher as _, RandomState},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use nix::errno::Errno;

use super::{
    ASK_WITHOUT_GATEWAY, EvaluatedExec, Gate, HeldExec, MAX_ASKED_EXECS, MAX_EXEC_BYTES, RECORD_TIMEOUT,
};
use crate::{
    policy::ExecDecision,
    proto::gate::{
        AskEnded, Exec, ExecAsked, ExecDenied, ExecDeniedAgain, ask_ended::End, exec_denied::Cause, report,
    },
    sys::seccomp_listener,
};

/// Tasks whose last denial is remembered.
pub(super) const MAX_DENIALS: usize = 1_024;
/// For so long after it was answered: a shell goes on at once.
const DENIAL_LIFETIME: Duration = Duration::from_secs(5);
/// Directories in which one denied name is looked for. What is tried beyond them is reported again.
pub(super) const MAX_TRIED: usize = 64;
/// Denials with a count that was not reported yet.
pub(super) const MAX_COUNTED: usize = 256;

/// The last denial of each task, by the task's number.
#[derive(Debug, Default)]
pub(super) struct Denials {
    /// Keyed by chance: no command can choose paths that have one digest.
    digests: RandomState,
    last: HashMap<i32, Denial>,
    /// By the number of the denial's report.
    counted: BTreeMap<u64, (String, u64)>,
}

#[derive(Debug)]
struct Denial {
    until: Instant,
    terminal_id: String,
    argv_sha256: Vec<u8>,
    cwd: String,
    /// The last part of the paths that were denied.
    name: String,
    /// Their digests: the paths of all tasks together would be long.
    tried: Vec<u64>,
    cause: Cause,
    rule: String,
    report: u64,
}

/// What is about to be denied: by no rule, by one that denies, or by one that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeniedBy<'a> {
    Default,
    Rule(&'a str),
    Asks(&'a str),
}

impl Denials {
    /// Remembers a denial that is about to be answered.
    pub(super) fn keep(
        &mut self,
        thread: i32,
        terminal_id: &str,
        exec: &Exec,
        (cause, rule, report): (Cause, &str, u64),
        now: Instant,
    ) {
        if self.last.len() >= MAX_DENIALS {
            self.last.retain(|_, denial| denial.until > now);
        }
        if self.last.len() >= MAX_DENIALS {
            self.last.clear();
        }
        let denial = Denial {
            until: now + DENIAL_LIFETIME,
            terminal_id: terminal_id.to_owned(),
            argv_sha256: exec.argv_sha256.to_vec(),
            cwd: exec.cwd.clone(),
            name: name(&exec.path).to_owned(),
            tried: vec![self.digests.hash_one(&exec.path)],
            cause,
            rule: rule.to_owned(),
            report,
        };
        self.last.insert(thread, denial);
    }

    /// Whether this is the same denial once more, in a directory where it was not tried yet. It is counted then.
    pub(super) fn is_again(
        &mut self,
        thread: i32,
        terminal_id: &str,
        exec: &Exec,
        denied: DeniedBy<'_>,
        now: Instant,
    ) -> bool {
        let Some(last) = self.last.get_mut(&thread) else { return false };
        let path = self.digests.hash_one(&exec.path);
        let is_same = last.until > now
            && last.terminal_id == terminal_id
            && last.argv_sha256 == exec.argv_sha256
            && last.cwd == exec.cwd
            && last.is_by(denied)
            && last.name == name(&exec.path)
            && !last.tried.contains(&path)
            && last.tried.len() < MAX_TRIED;
        if !is_same || (self.counted.len() >= MAX_COUNTED && !self.counted.contains_key(&last.report)) {
            return false;
        }
        last.tried.push(path);
        self.counted.entry(last.report).or_insert_with(|| (terminal_id.to_owned(), 0)).1 += 1;
        true
    }

    /// Whether any count was not reported.
    pub(super) fn has_counted(&self) -> bool {
        !self.counted.is_empty()
    }

    /// The counts since the last time, of one terminal or of all.
    pub(super) fn take_counted(&mut self, of: Option<&str>) -> Vec<(String, ExecDeniedAgain)> {
        let is_taken = |terminal_id: &str| of.is_none_or(|of| of == terminal_id);
        let (taken, left) = std::mem::take(&mut self.counted)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(_, (terminal_id, _))| is_taken(terminal_id));
        self.counted = left;
        taken
            .into_iter()
            .map(|(number, (terminal_id, count))| (terminal_id, ExecDeniedAgain { number, count }))
            .collect()
    }

    /// What a denial meant may have changed with the policy.
    pub(super) fn forget(&mut self) {
        self.last.clear();
    }
}

impl Denial {
    fn is_by(&self, denied: DeniedBy<'_>) -> bool {
        match (self.cause, denied) {
            (Cause::Default, DeniedBy::Default) => true,
            (Cause::Rule, DeniedBy::Rule(rule))
            | (Cause::AskRefused | Cause::AskExpired, DeniedBy::Asks(rule)) => self.rule == rule,
            _ => false,
        }
    }
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

impl Gate {
    /// Whether it was denied a moment ago in another directory of the search path.
    pub(super) fn is_denied_again(&mut self, evaluated: &EvaluatedExec, decision: ExecDecision) -> bool {
        let denied = match decision {
            ExecDecision::Allow => return false,
            ExecDecision::Ask => DeniedBy::Asks(evaluated.rule()),
            ExecDecision::Deny if evaluated.rule().is_empty() => DeniedBy::Default,
            ExecDecision::Deny => DeniedBy::Rule(evaluated.rule()),
        };
        let (thread, terminal_id) = (evaluated.call.thread, &evaluated.terminal_id);
        self.denials.is_again(thread, terminal_id, evaluated.described(), denied, self.now)
    }

    pub(super) fn ask(&mut self, mut evaluated: EvaluatedExec) {
        if self.asked_execs() >= MAX_ASKED_EXECS {
            return self.deny_evaluated(&evaluated, Cause::Unavailable, "too many execs wait for a person");
        }
        if self.asked_bytes() + evaluated.exec.bytes() > MAX_EXEC_BYTES {
            let reason = "the arguments of all execs that wait for a person take too much memory";
            return self.deny_evaluated(&evaluated, Cause::Unavailable, reason);
        }
        // It may wait for long.
        evaluated.exec.opened.clear();
        let asked = ExecAsked {
            exec: Some(evaluated.described().clone()),
            rule: evaluated.rule().to_owned(),
            reason: evaluated.verdict.by_policy.reason.clone().unwrap_or_default(),
        };
        let terminal_id = evaluated.terminal_id.clone();
        let before = self.reports.last_number();
        self.report(&terminal_id, report::Report::Asked(asked));
        let number = self.reports.last_number();
        if number == before {
            // It is not kept: nobody would answer.
            return self.deny_evaluated(
                &evaluated,
                Cause::Unavailable,
                "too many reports wait for a gateway",
            );
        }
        let id = evaluated.call.id;
        let alone_since = self.gateway.is_none().then_some(self.now);
        let evaluated = Box::new(EvaluatedExec { asked: Some(number), ..evaluated });
        self.held.insert(id, HeldExec::Asked { report: number, evaluated, alone_since });
        self.change_asking(&terminal_id, |asking| asking + 1);
    }

    /// Denies an exec that was evaluated.
    pub(super) fn deny_evaluated(&mut self, evaluated: &EvaluatedExec, cause: Cause, reason: &str) {
        let (id, exec) = (evaluated.call.id, evaluated.described().clone());
        let before = self.reports.last_number();
        self.deny(id, &evaluated.terminal_id, exec, cause, evaluated.rule(), reason);
        let report = self.reports.last_number();
        // What was only counted because there are too many has no number.
        if report != before {
            let (thread, terminal_id) = (evaluated.call.thread, &evaluated.terminal_id);
            let by = (cause, evaluated.rule(), report);
            self.denials.keep(thread, terminal_id, evaluated.described(), by, self.now);
        }
        self.end_ask(evaluated, End::Denied);
    }

    /// Reports a denial, and answers the caller when the journal has it.
    pub(super) fn deny(
        &mut self,
        id: u64,
        terminal_id: &str,
        exec: Exec,
        cause: Cause,
        rule: &str,
        reason: &str,
    ) {
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
    pub(super) fn end_ask(&mut self, evaluated: &EvaluatedExec, end: End) {
        if let Some(number) = evaluated.asked {
            let ended = AskEnded { number, end: end.into() };
            self.report(&evaluated.terminal_id, report::Report::AskEnded(ended));
        }
    }

    /// Lets an exec that was asked about go on, or denies it.
    pub(super) fn settle(&mut self, id: u64, verdict: Result<(), (Cause, &str)>) {
        let Some(HeldExec::Asked { evaluated, .. }) = self.held.remove(&id) else { return };
        self.change_asking(&evaluated.terminal_id, |asking| asking.saturating_sub(1));
        match verdict {
            Ok(()) if !self.verifying.contains_key(&evaluated.group) => self.let_go_on(*evaluated),
            // Another thread of the process executes something: then this one is about to end. If that exec fails, the
            // approval was for nothing, which is better than to wait inside the kernel.
            Ok(()) => {
                self.deny_evaluated(
                    &evaluated,
                    Cause::Unavailable,
                    "another thread of the process was in its exec",
                );
            }
            Err((cause, reason)) => self.deny_evaluated(&evaluated, cause, reason),
        }
    }

    /// Ends the waiting of those that are gone, and of those that no gateway can answer.
    pub(super) fn look_at_asked(&mut self) {
        let (now, is_alone) = (self.now, self.gateway.is_none());
        let (mut gone, mut given_up) = (Vec::new(), Vec::new());
        for (id, held) in &mut self.held {
            let HeldExec::Asked { alone_since, .. } = held else { continue };
            *alone_since = if is_alone { alone_since.or(Some(now)) } else { None };
            if !seccomp_listener::is_waiting(self.seccomp.as_fd(), *id) {
                gone.push(*id);
            } else if alone_since.is_some_and(|since| since + ASK_WITHOUT_GATEWAY <= now) {
                given_up.push(*id);
            }
        }
        for id in gone {
            if let Some(HeldExec::Asked { evaluated, .. }) = self.held.remove(&id) {
                self.change_asking(&evaluated.terminal_id, |asking| asking.saturating_sub(1));
                self.end_ask(&evaluated, End::Gone);
            }
        }
        for id in given_up {
            self.settle(id, Err((Cause::AskExpired, "no gateway was connected to ask a person")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec(path: &str, digest: u8) -> Exec {
        Exec { path: path.into(), argv_sha256: vec![digest; 32].into(), ..Exec::default() }
    }

    #[test]
    fn the_next_directories_of_a_path_are_counted_and_everything_else_is_another_denial() {
        let (mut denials, now) = (Denials::default(), Instant::now());
        let mut again = |thread, terminal: &str, path: &str, digest, denied, now| {
            denials.is_again(thread, terminal, &exec(path, digest), denied, now)
        };
        let by = DeniedBy::Rule("r");
        assert!(!again(1, "t", "/a/git", 1, by, now), "the first one");
        denials.keep(1, "t", &exec("/a/git", 1), (Cause::Rule, "r", 7), now);
        let mut again = |thread, terminal: &str, path: &str, digest, denied, now| {
            denials.is_again(thread, terminal, &exec(path, digest), denied, now)
        };
        assert!(!again(1, "t", "/a/git", 1, by, now), "the same place");
        assert!(!again(2, "t", "/b/git", 1, by, now), "another task");
        assert!(!again(1, "u", "/b/git", 1, by, now), "another terminal");
        assert!(!again(1, "t", "/b/ssh", 1, by, now), "another name");
        assert!(!again(1, "t", "/b/git", 2, by, now), "other arguments");
        assert!(!again(1, "t", "/b/git", 1, DeniedBy::Rule("s"), now), "another rule");
        assert!(!again(1, "t", "/b/git", 1, DeniedBy::Asks("r"), now), "a rule that asks");
        assert!(!again(1, "t", "/b/git", 1, DeniedBy::Default, now), "no rule");
        assert!(!again(1, "t", "/b/git", 1, by, now + DENIAL_LIFETIME), "too late");
        assert!(again(1, "t", "/b/git", 1, by, now) && again(1, "t", "/c/git", 1, by, now));
        assert!(!again(1, "t", "/b/git", 1, by, now), "it was tried there");
        assert!(denials.take_counted(Some("u")).is_empty());
        let counted = denials.take_counted(Some("t"));
        assert_eq!(counted, [("t".to_owned(), ExecDeniedAgain { number: 7, count: 2 })]);
        assert!(!denials.has_counted());
    }

    #[test]
    fn an_answer_of_a_person_is_an_answer_for_the_next_directory_until_the_policy_changes() {
        let (mut denials, now) = (Denials::default(), Instant::now());
        for cause in [Cause::AskRefused, Cause::AskExpired] {
            denials.keep(1, "t", &exec("/a/git", 1), (cause, "r", 1), now);
            assert!(denials.is_again(1, "t", &exec("/b/git", 1), DeniedBy::Asks("r"), now));
            assert!(!denials.is_again(1, "t", &exec("/c/git", 1), DeniedBy::Rule("r"), now));
        }
        denials.forget();
        assert!(!denials.is_again(1, "t", &exec("/d/git", 1), DeniedBy::Asks("r"), now));
    }

    #[test]
    fn all_that_is_kept_is_bounded() {
        let (mut denials, now) = (Denials::default(), Instant::now());
        for thread in 0..=MAX_DENIALS as i32 {
            denials.keep(thread, "t", &exec("/a/git", 1), (Cause::Rule, "r", thread as u64), now);
            assert!(denials.last.len() <= MAX_DENIALS);
        }
        denials.forget();
        for thread in 0..=MAX_COUNTED as i32 {
            denials.keep(thread, "t", &exec("/a/git", 1), (Cause::Rule, "r", thread as u64), now);
            let is_counted = denials.is_again(thread, "t", &exec("/b/git", 1), DeniedBy::Rule("r"), now);
            assert_eq!(is_counted, thread < MAX_COUNTED as i32);
        }
        denials.take_counted(None);
        denials.keep(1, "t", &exec("/a/git", 1), (Cause::Rule, "r", 1), now);
        let tried = |index| exec(&format!("/{index}/git"), 1);
        let counted = (0..2 * MAX_TRIED)
            .filter(|index| denials.is_again(1, "t", &tried(*index), DeniedBy::Rule("r"), now));
        assert_eq!(counted.count(), MAX_TRIED - 1);
    }
}
