//! Execs that were refused a moment ago: a shell goes on along its search path after EACCES, and tries the same name in the next
//! directory. Pure.
//!
//! What is tried is judged all the same, and runs where a rule allows it. Where it is refused by the same rule again, nobody is
//! asked again, and it is counted instead of reported.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher as _, RandomState},
    time::{Duration, Instant},
};

use crate::proto::gate::{Exec, ExecDeniedAgain, exec_denied::Cause};

/// Tasks whose last refusal is remembered.
pub(super) const MAX_REFUSALS: usize = 1_024;
/// For so long after it was answered: a shell goes on at once.
const REFUSAL_LIFETIME: Duration = Duration::from_secs(5);
/// Directories in which one refused name is looked for. What is tried beyond them is reported again.
pub(super) const MAX_TRIED: usize = 64;
/// Refusals with a count that was not reported yet.
pub(super) const MAX_COUNTED: usize = 256;

/// The last refusal of each task, by the task's number.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Keyed by chance: no command can choose paths that have one digest.
    digests: RandomState,
    last: HashMap<i32, Refusal>,
    /// By the number of the refusal's report.
    counted: BTreeMap<u64, (String, u64)>,
}

#[derive(Debug)]
struct Refusal {
    until: Instant,
    terminal_id: String,
    argv_sha256: Vec<u8>,
    cwd: String,
    /// The last part of the paths that were refused.
    name: String,
    /// Their digests: the paths of all tasks together would be long.
    tried: Vec<u64>,
    cause: Cause,
    rule: String,
    report: u64,
}

/// What is about to be refused: by no rule, by one that denies, or by one that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused<'a> {
    Default,
    Rule(&'a str),
    Asks(&'a str),
}

impl Refusals {
    /// Remembers a refusal that is about to be answered.
    pub(super) fn keep(
        &mut self,
        thread: i32,
        terminal_id: &str,
        exec: &Exec,
        (cause, rule, report): (Cause, &str, u64),
        now: Instant,
    ) {
        if self.last.len() >= MAX_REFUSALS {
            self.last.retain(|_, refusal| refusal.until > now);
        }
        if self.last.len() >= MAX_REFUSALS {
            self.last.clear();
        }
        let refusal = Refusal {
            until: now + REFUSAL_LIFETIME,
            terminal_id: terminal_id.to_owned(),
            argv_sha256: exec.argv_sha256.to_vec(),
            cwd: exec.cwd.clone(),
            name: name(&exec.path).to_owned(),
            tried: vec![self.digests.hash_one(&exec.path)],
            cause,
            rule: rule.to_owned(),
            report,
        };
        self.last.insert(thread, refusal);
    }

    /// Whether this is the same refusal once more, in a directory where it was not tried yet. It is counted then.
    pub(super) fn is_again(
        &mut self,
        thread: i32,
        terminal_id: &str,
        exec: &Exec,
        refused: Refused<'_>,
        now: Instant,
    ) -> bool {
        let Some(last) = self.last.get_mut(&thread) else { return false };
        let path = self.digests.hash_one(&exec.path);
        let is_same = last.until > now
            && last.terminal_id == terminal_id
            && last.argv_sha256 == exec.argv_sha256
            && last.cwd == exec.cwd
            && last.is_by(refused)
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

    /// What a refusal meant may have changed with the policy.
    pub(super) fn forget(&mut self) {
        self.last.clear();
    }
}

impl Refusal {
    fn is_by(&self, refused: Refused<'_>) -> bool {
        match (self.cause, refused) {
            (Cause::Default, Refused::Default) => true,
            (Cause::Rule, Refused::Rule(rule))
            | (Cause::AskRefused | Cause::AskExpired, Refused::Asks(rule)) => self.rule == rule,
            _ => false,
        }
    }
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec(path: &str, digest: u8) -> Exec {
        Exec { path: path.into(), argv_sha256: vec![digest; 32].into(), ..Exec::default() }
    }

    #[test]
    fn the_next_directories_of_a_path_are_counted_and_everything_else_is_another_refusal() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        let mut again = |thread, terminal: &str, path: &str, digest, refused, now| {
            refusals.is_again(thread, terminal, &exec(path, digest), refused, now)
        };
        let by = Refused::Rule("r");
        assert!(!again(1, "t", "/a/git", 1, by, now), "the first one");
        refusals.keep(1, "t", &exec("/a/git", 1), (Cause::Rule, "r", 7), now);
        let mut again = |thread, terminal: &str, path: &str, digest, refused, now| {
            refusals.is_again(thread, terminal, &exec(path, digest), refused, now)
        };
        assert!(!again(1, "t", "/a/git", 1, by, now), "the same place");
        assert!(!again(2, "t", "/b/git", 1, by, now), "another task");
        assert!(!again(1, "u", "/b/git", 1, by, now), "another terminal");
        assert!(!again(1, "t", "/b/ssh", 1, by, now), "another name");
        assert!(!again(1, "t", "/b/git", 2, by, now), "other arguments");
        assert!(!again(1, "t", "/b/git", 1, Refused::Rule("s"), now), "another rule");
        assert!(!again(1, "t", "/b/git", 1, Refused::Asks("r"), now), "a rule that asks");
        assert!(!again(1, "t", "/b/git", 1, Refused::Default, now), "no rule");
        assert!(!again(1, "t", "/b/git", 1, by, now + REFUSAL_LIFETIME), "too late");
        assert!(again(1, "t", "/b/git", 1, by, now) && again(1, "t", "/c/git", 1, by, now));
        assert!(!again(1, "t", "/b/git", 1, by, now), "it was tried there");
        assert!(refusals.take_counted(Some("u")).is_empty());
        let counted = refusals.take_counted(Some("t"));
        assert_eq!(counted, [("t".to_owned(), ExecDeniedAgain { number: 7, count: 2 })]);
        assert!(!refusals.has_counted());
    }

    #[test]
    fn an_answer_of_a_person_is_an_answer_for_the_next_directory_until_the_policy_changes() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        for cause in [Cause::AskRefused, Cause::AskExpired] {
            refusals.keep(1, "t", &exec("/a/git", 1), (cause, "r", 1), now);
            assert!(refusals.is_again(1, "t", &exec("/b/git", 1), Refused::Asks("r"), now));
            assert!(!refusals.is_again(1, "t", &exec("/c/git", 1), Refused::Rule("r"), now));
        }
        refusals.forget();
        assert!(!refusals.is_again(1, "t", &exec("/d/git", 1), Refused::Asks("r"), now));
    }

    #[test]
    fn all_that_is_kept_is_bounded() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        for thread in 0..=MAX_REFUSALS as i32 {
            refusals.keep(thread, "t", &exec("/a/git", 1), (Cause::Rule, "r", thread as u64), now);
            assert!(refusals.last.len() <= MAX_REFUSALS);
        }
        refusals.forget();
        for thread in 0..=MAX_COUNTED as i32 {
            refusals.keep(thread, "t", &exec("/a/git", 1), (Cause::Rule, "r", thread as u64), now);
            let is_counted = refusals.is_again(thread, "t", &exec("/b/git", 1), Refused::Rule("r"), now);
            assert_eq!(is_counted, thread < MAX_COUNTED as i32);
        }
        refusals.take_counted(None);
        refusals.keep(1, "t", &exec("/a/git", 1), (Cause::Rule, "r", 1), now);
        let tried = |index| exec(&format!("/{index}/git"), 1);
        let counted = (0..2 * MAX_TRIED)
            .filter(|index| refusals.is_again(1, "t", &tried(*index), Refused::Rule("r"), now));
        assert_eq!(counted.count(), MAX_TRIED - 1);
    }
}
