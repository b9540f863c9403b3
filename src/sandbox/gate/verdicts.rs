//! Verdicts on what was evaluated a moment ago: most tools execute the same thing again and again. Pure.
//!
//! A verdict is used again for the same terminal, path, arguments (those of the call and those that the kernel makes of them), directory,
//! files and first lines of scripts, under the same policy.

use std::{
    cell::OnceCell,
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    rc::Rc,
    time::{Duration, Instant},
};

use super::{evaluation::describe, process::FileVersion, reading::ReadExec, terminals::Terminal};
use crate::{
    policy::{ExecVerdict, command::program::Directory},
    proto::gate::Exec,
    resolve::shebang::Shebang,
};

/// Verdicts that are kept.
pub(super) const MAX_VERDICTS: usize = 1_024;
/// For so long: what a program's name means may change.
const VERDICT_LIFETIME: Duration = Duration::from_secs(1);
/// Bytes of path and arguments of an exec whose verdict is kept.
const MAX_KEPT_BYTES: usize = 4 << 10;

/// All that are kept.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    known: HashMap<u64, KnownVerdict>,
}

#[derive(Debug)]
struct KnownVerdict {
    found_at: Instant,
    terminal_id: String,
    starts_any_rule: Option<String>,
    path: Vec<u8>,
    /// With another descriptor the same path leads elsewhere, and has another name.
    absolute_path: Vec<u8>,
    argv: Vec<Vec<u8>>,
    final_argv: Vec<Vec<u8>>,
    cwd: Vec<u8>,
    directories: Vec<Directory>,
    files: Vec<(Vec<u8>, FileVersion)>,
    /// A file that is mapped can change without another version.
    lines: Vec<Shebang>,
    decided: Rc<Decided>,
}

/// A verdict, and what it is about.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) verdict: ExecVerdict,
    /// Made when it is first needed, which is mostly when the exec is over.
    described: OnceCell<Exec>,
}

impl Decided {
    pub(super) fn new(verdict: ExecVerdict) -> Rc<Self> {
        Rc::new(Self { verdict, described: OnceCell::new() })
    }

    /// The exec for people and for the journal. The same verdict is about the same exec.
    pub(super) fn describe(&self, exec: &ReadExec) -> &Exec {
        self.described.get_or_init(|| describe(exec))
    }
}

impl Verdicts {
    /// The policy, or what is known about a terminal, is another one.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }

    /// The verdict on the same exec, if it is new enough.
    pub(super) fn find(&self, terminal: &Terminal, exec: &ReadExec, now: Instant) -> Option<Rc<Decided>> {
        let known = self.known.get(&hash_of(terminal, exec))?;
        let is_new = now.saturating_duration_since(known.found_at) < VERDICT_LIFETIME;
        (is_new && known.is_about(terminal, exec)).then(|| known.decided.clone())
    }

    /// Keeps a verdict that depends on nothing else.
    pub(super) fn keep(&mut self, terminal: &Terminal, exec: &ReadExec, now: Instant, decided: &Rc<Decided>) {
        let bytes = exec.path.len() + exec.argv.iter().map(|one| one.len() + 1).sum::<usize>();
        // What a person has approved is not for every process of a terminal, and while it is approved of a line, what another process of
        // the terminal is asked about is none of the line's.
        let depends_on_process = terminal.line.is_some() && !terminal.approved.is_empty();
        if bytes > MAX_KEPT_BYTES
            || decided.verdict.env_was_read
            || decided.verdict.was_approved
            || depends_on_process
        {
            return;
        }
        if self.known.len() >= MAX_VERDICTS {
            self.known.clear();
        }
        let known = KnownVerdict {
            found_at: now,
            terminal_id: terminal.id.clone(),
            starts_any_rule: terminal.starts_any_rule.clone(),
            path: exec.path.clone(),
            absolute_path: exec.absolute_path.clone(),
            argv: exec.argv.clone(),
            final_argv: exec.final_argv.clone(),
            cwd: exec.cwd.clone(),
            directories: exec.directories.clone(),
            files: exec.files.iter().map(|file| (file.path.clone(), file.version)).collect(),
            lines: exec.lines.clone(),
            decided: decided.clone(),
        };
        self.known.insert(hash_of(terminal, exec), known);
    }
}

impl KnownVerdict {
    fn is_about(&self, terminal: &Terminal, exec: &ReadExec) -> bool {
        let files = exec.files.iter().map(|file| (&file.path, file.version));
        self.terminal_id == terminal.id
            && self.starts_any_rule == terminal.starts_any_rule
            && self.path == exec.path
            && self.absolute_path == exec.absolute_path
            && self.argv == exec.argv
            && self.final_argv == exec.final_argv
            && self.cwd == exec.cwd
            && self.directories == exec.directories
            && self.lines == exec.lines
            && self.files.iter().map(|(path, version)| (path, *version)).eq(files)
    }
}

/// Only to find it: what is found is compared.
fn hash_of(terminal: &Terminal, exec: &ReadExec) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&terminal.id, &exec.path, &exec.argv).hash(&mut hasher);
    exec.files.first().map(|file| file.version).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        gate::{reading::ReadFile, terminals::Terminals},
        policy::{ExecDecision, command::program::DirectoryId},
        proto::gate::AddTerminal,
    };

    fn exec(argument: &str, version: i64) -> ReadExec {
        let version = FileVersion { device: 1, inode: 2, changed_nanos: version };
        ReadExec {
            path: b"/bin/x".to_vec(),
            absolute_path: b"/bin/x".to_vec(),
            argv: vec![b"x".to_vec(), argument.into()],
            env: None,
            cwd: b"/w".to_vec(),
            directories: Vec::new(),
            files: vec![ReadFile { path: b"/bin/x".to_vec(), version, lookup_path: None }],
            lines: Vec::new(),
            final_argv: Vec::new(),
            opened: Vec::new(),
        }
    }

    fn allowed() -> ExecVerdict {
        ExecVerdict {
            decision: ExecDecision::Allow,
            rule: Some("r".to_owned()),
            reason: None,
            starts_any: None,
            observed: Vec::new(),
            env_was_read: false,
            was_approved: false,
        }
    }

    #[test]
    fn a_verdict_is_used_for_the_same_exec_of_the_same_terminal_and_for_a_short_time() {
        let mut terminals = Terminals::default();
        for id in ["term_1", "term_2"] {
            terminals.add(AddTerminal { terminal_id: id.into(), ..AddTerminal::default() }, 0);
        }
        let (mut verdicts, now) = (Verdicts::default(), Instant::now());
        let one = terminals.get_mut("term_1").unwrap();
        verdicts.keep(one, &exec("a", 1), now, &Decided::new(allowed()));
        assert_eq!(
            verdicts.find(one, &exec("a", 1), now).map(|known| known.verdict.clone()),
            Some(allowed())
        );
        assert!(verdicts.find(one, &exec("b", 1), now).is_none(), "another argument");
        assert!(verdicts.find(one, &exec("a", 2), now).is_none(), "the file was changed");
        let moved = ReadExec { cwd: b"/v".to_vec(), ..exec("a", 1) };
        assert!(verdicts.find(one, &moved, now).is_none(), "another directory");
        let line = Shebang { path: b"/bin/y".to_vec(), argument: None };
        let id = DirectoryId { device: 1, inode: 4 };
        let directories = vec![Directory { path: "/w".to_owned(), id, changed_nanos: 0 }];
        let renamed = ReadExec { directories, ..exec("a", 1) };
        assert!(verdicts.find(one, &renamed, now).is_none(), "another directory of that name");
        let rewritten = ReadExec { lines: vec![line], ..exec("a", 1) };
        assert!(verdicts.find(one, &rewritten, now).is_none(), "another first line");
        let named = ReadExec { final_argv: vec![b"push".to_vec()], ..exec("a", 1) };
        assert!(verdicts.find(one, &named, now).is_none(), "another name of a script");
        let elsewhere = ReadExec { absolute_path: b"/w/x".to_vec(), ..exec("a", 1) };
        assert!(verdicts.find(one, &elsewhere, now).is_none(), "of another descriptor");
        assert!(verdicts.find(one, &exec("a", 1), now + VERDICT_LIFETIME).is_none(), "too old");
        one.starts_any_rule = Some("any".to_owned());
        assert!(verdicts.find(one, &exec("a", 1), now).is_none(), "it may start anything now");
        let other = terminals.get_mut("term_2").unwrap();
        assert!(verdicts.find(other, &exec("a", 1), now).is_none(), "another terminal");
    }

    #[test]
    fn long_execs_and_those_that_were_judged_by_their_environment_are_not_kept() {
        let mut terminals = Terminals::default();
        terminals.add(AddTerminal { terminal_id: "term_1".into(), ..AddTerminal::default() }, 0);
        let terminal = terminals.get_mut("term_1").unwrap();
        let (mut verdicts, now) = (Verdicts::default(), Instant::now());
        let long = exec(&"a".repeat(MAX_KEPT_BYTES), 1);
        verdicts.keep(terminal, &long, now, &Decided::new(allowed()));
        assert!(verdicts.find(terminal, &long, now).is_none());
        let by_env = ExecVerdict { env_was_read: true, ..allowed() };
        verdicts.keep(terminal, &exec("a", 1), now, &Decided::new(by_env));
        let approved = ExecVerdict { was_approved: true, ..allowed() };
        verdicts.keep(terminal, &exec("a", 1), now, &Decided::new(approved));
        assert!(verdicts.find(terminal, &exec("a", 1), now).is_none());
        for index in 0..=MAX_VERDICTS {
            verdicts.keep(terminal, &exec(&index.to_string(), 1), now, &Decided::new(allowed()));
        }
        assert!(verdicts.known.len() <= MAX_VERDICTS);
    }

    #[test]
    fn while_something_is_approved_of_a_line_no_verdict_is_another_processs() {
        let mut terminals = Terminals::default();
        let approved = crate::proto::gate::ApprovedCommand::default();
        let of_line = |approved| AddTerminal {
            terminal_id: "term_1".into(),
            line_of_shell: 7,
            approved,
            ..AddTerminal::default()
        };
        for (approved, is_kept) in [(vec![approved], false), (Vec::new(), true)] {
            terminals.add(of_line(approved), 0);
            let terminal = terminals.get_mut("term_1").unwrap();
            let (mut verdicts, now) = (Verdicts::default(), Instant::now());
            let asked = ExecVerdict { decision: ExecDecision::Ask, ..allowed() };
            verdicts.keep(terminal, &exec("a", 1), now, &Decided::new(asked));
            assert_eq!(verdicts.find(terminal, &exec("a", 1), now).is_some(), is_kept);
        }
    }
}
