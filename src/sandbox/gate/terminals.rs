//! The terminals of the sandbox, as the gateway has registered them, and the execs of each that were allowed. Pure.

use std::collections::{BTreeMap, HashMap};

use super::process::{Leaves, ShellLine};
use crate::{
    cgroup::leaf,
    policy::{ApprovedCommand, ApprovedFile, ProfileName, command::program::DirectoryId},
    proto::gate::{self, AddTerminal, AllowedExec, Exec, ExecsAllowed},
    wire::gate::MAX_TERMINALS,
};

/// Different execs of one terminal between two reports. Beyond this they are only counted.
pub(super) const MAX_DISTINCT_EXECS: usize = 1_024;
/// Encoded bytes of one report of allowed execs, about.
const MAX_REPORT_BYTES: usize = 512 << 10;

/// A terminal.
#[derive(Debug)]
pub(super) struct Terminal {
    pub(super) id: String,
    pub(super) principal: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) profile: ProfileName,
    /// Where relative patterns of rules that deny or ask begin, as they do in the directory of the process.
    pub(super) relative_from: Vec<String>,
    /// The rule by which its processes may execute what no rule matches.
    pub(super) starts_any_rule: Option<String>,
    /// What a person has approved of its request.
    pub(super) approved: Vec<ApprovedCommand>,
    /// Whose approvals these are, if not those of all its processes.
    pub(super) line: Option<ShellLine>,
    /// Execs that wait for a person.
    pub(super) asking: u32,
    allowed: AllowedExecs,
}

/// Execs that were allowed since the last report.
#[derive(Debug, Default)]
struct AllowedExecs {
    distinct: HashMap<(String, Vec<u8>, String), AllowedExec>,
    others: u64,
}

/// All of them, by the names of their cgroups.
#[derive(Debug, Default)]
pub(super) struct Terminals {
    by_leaf: HashMap<String, Terminal>,
    /// Names of leaves by the numbers of their cgroups of version 2.
    leaves: HashMap<u64, String>,
}

impl Terminals {
    /// Adds one, at this time of the kernel's clock since the boot.
    pub(super) fn add(&mut self, added: AddTerminal, now_ticks: u64) {
        let name = leaf::name_of(&added.terminal_id);
        if self.by_leaf.len() >= MAX_TERMINALS && !self.by_leaf.contains_key(&name) {
            return;
        }
        let since_ticks = if added.line_since_ticks == 0 { now_ticks } else { added.line_since_ticks };
        let terminal = Terminal {
            id: added.terminal_id,
            principal: added.principal,
            labels: added.labels.into_iter().collect(),
            profile: ProfileName::from_recorded(&added.profile),
            relative_from: added.relative_from,
            starts_any_rule: Some(added.starts_any_rule).filter(|rule| !rule.is_empty()),
            approved: added.approved.into_iter().map(approved).collect(),
            line: i32::try_from(added.line_of_shell)
                .ok()
                .filter(|shell| *shell > 0)
                .map(|shell| ShellLine { shell, since_ticks }),
            asking: 0,
            allowed: AllowedExecs::default(),
        };
        // A gateway that comes back may register it again: what was counted stays.
        let before = self.by_leaf.remove(&name);
        let kept = match before {
            Some(before) => Terminal {
                asking: before.asking,
                allowed: before.allowed,
                starts_any_rule: terminal.starts_any_rule.or(before.starts_any_rule),
                ..terminal
            },
            None => terminal,
        };
        self.by_leaf.insert(name, kept);
    }

    /// Forgets what was approved of lines.
    pub(super) fn end_lines(&mut self) {
        let of_lines = self.by_leaf.values_mut().filter(|terminal| terminal.line.is_some());
        of_lines.for_each(|terminal| terminal.approved.clear());
    }

    /// Forgets a terminal. What was allowed and not reported is returned.
    pub(super) fn remove(&mut self, id: &str) -> Vec<ExecsAllowed> {
        let name = leaf::name_of(id);
        self.leaves.retain(|_, leaf| *leaf != name);
        let removed = self.by_leaf.remove(&name);
        removed.map(|mut terminal| terminal.allowed.take()).unwrap_or_default()
    }

    /// The terminal with one of these cgroups.
    pub(super) fn with_leaf(&self, leaves: &Leaves) -> Option<&Terminal> {
        leaves.version_2.iter().chain(&leaves.version_1).find_map(|name| self.by_leaf.get(name))
    }

    /// The terminal with this cgroup, if that is known.
    pub(super) fn with_cgroup(&self, number: u64) -> Option<&Terminal> {
        self.leaves.get(&number).and_then(|name| self.by_leaf.get(name))
    }

    /// Remembers the number of a terminal's cgroup. No other one ever has it, and no process of the sandbox can change its own.
    pub(super) fn keep_cgroup(&mut self, number: u64, leaf: &str) {
        if self.by_leaf.contains_key(leaf) && self.leaves.len() < MAX_TERMINALS {
            self.leaves.insert(number, leaf.to_owned());
        }
    }

    /// The only one, in a sandbox without cgroups.
    pub(super) fn only(&self) -> Option<&Terminal> {
        let mut all = self.by_leaf.values();
        all.next().filter(|_| all.next().is_none())
    }

    pub(super) fn get(&self, id: &str) -> Option<&Terminal> {
        self.by_leaf.get(&leaf::name_of(id))
    }

    pub(super) fn get_mut(&mut self, id: &str) -> Option<&mut Terminal> {
        self.by_leaf.get_mut(&leaf::name_of(id))
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.by_leaf.values().map(|terminal| terminal.id.clone()).collect()
    }

    /// What was allowed since the last report, by terminal.
    pub(super) fn take_allowed(&mut self) -> Vec<(String, Vec<ExecsAllowed>)> {
        let dirty = self.by_leaf.values_mut().filter(|terminal| !terminal.allowed.is_empty());
        dirty.map(|terminal| (terminal.id.clone(), terminal.allowed.take())).collect()
    }

    pub(super) fn has_allowed(&self) -> bool {
        self.by_leaf.values().any(|terminal| !terminal.allowed.is_empty())
    }
}

impl Terminal {
    /// Counts an exec that was allowed and verified.
    pub(super) fn count_allowed(&mut self, exec: &Exec, rule: &str) {
        let distinct = &mut self.allowed.distinct;
        let key = (exec.file.clone(), exec.argv_sha256.to_vec(), rule.to_owned());
        if let Some(known) = distinct.get_mut(&key) {
            known.count += 1;
        } else if distinct.len() < MAX_DISTINCT_EXECS {
            let allowed = AllowedExec { exec: Some(exec.clone()), rule: rule.to_owned(), count: 1 };
            distinct.insert(key, allowed);
        } else {
            self.allowed.others += 1;
        }
    }
}

fn approved(command: gate::ApprovedCommand) -> ApprovedCommand {
    let file = match command.file {
        Some(gate::ApprovedFile { device, inode, changed_ns }) => {
            ApprovedFile::Exactly { device, inode, changed_nanos: changed_ns }
        }
        None => ApprovedFile::OfTrustedPath,
    };
    ApprovedCommand {
        rule: command.rule,
        argv: command.argv,
        file,
        directory: DirectoryId { device: command.directory_device, inode: command.directory_inode },
        env: command.env.into_iter().collect(),
    }
}

impl AllowedExecs {
    fn is_empty(&self) -> bool {
        self.distinct.is_empty() && self.others == 0
    }

    /// As many reports as the execs take.
    fn take(&mut self) -> Vec<ExecsAllowed> {
        let mut reports = Vec::new();
        let mut report = ExecsAllowed { execs: Vec::new(), others: std::mem::take(&mut self.others) };
        let mut bytes = 0;
        for exec in std::mem::take(&mut self.distinct).into_values() {
            bytes += prost::Message::encoded_len(&exec);
            report.execs.push(exec);
            if bytes > MAX_REPORT_BYTES {
                reports.push(std::mem::take(&mut report));
                bytes = 0;
            }
        }
        if !report.execs.is_empty() || report.others > 0 {
            reports.push(report);
        }
        reports
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec(file: &str) -> Exec {
        Exec { file: file.into(), ..Exec::default() }
    }

    fn with_one() -> Terminals {
        let mut terminals = Terminals::default();
        terminals.add(AddTerminal { terminal_id: "term_1".into(), ..AddTerminal::default() }, 0);
        terminals
    }

    #[test]
    fn equal_execs_are_counted_and_those_beyond_the_bound_too() {
        let mut terminals = with_one();
        let terminal = terminals.get_mut("term_1").unwrap();
        for index in 0..MAX_DISTINCT_EXECS + 5 {
            terminal.count_allowed(&exec(&format!("/bin/{index}")), "r");
            terminal.count_allowed(&exec("/bin/0"), "r");
        }
        assert!(terminals.has_allowed());
        let reported = terminals.take_allowed();
        let reports = &reported[0].1;
        let counted: u64 = reports.iter().flat_map(|report| &report.execs).map(|exec| exec.count).sum();
        let others: u64 = reports.iter().map(|report| report.others).sum();
        assert_eq!(counted + others, 2 * (MAX_DISTINCT_EXECS as u64 + 5));
        assert_eq!(others, 5);
        assert!(!terminals.has_allowed());
    }

    #[test]
    fn long_execs_are_reported_in_parts() {
        let mut terminals = with_one();
        let terminal = terminals.get_mut("term_1").unwrap();
        for index in 0..1_000 {
            terminal.count_allowed(&exec(&format!("/{}/{index}", "x".repeat(4_000))), "");
        }
        let reports = terminals.remove("term_1");
        assert!(reports.len() > 4);
        assert!(reports.iter().all(|report| prost::Message::encoded_len(report) < 1 << 20));
        assert_eq!(reports.iter().map(|report| report.execs.len()).sum::<usize>(), 1_000);
    }

    #[test]
    fn a_terminal_that_is_registered_again_keeps_what_was_counted() {
        let mut terminals = with_one();
        terminals.get_mut("term_1").unwrap().count_allowed(&exec("/bin/a"), "");
        terminals.add(AddTerminal { terminal_id: "term_1".into(), ..AddTerminal::default() }, 0);
        assert!(terminals.has_allowed());
        let leaves = Leaves { version_1: vec!["t-1".into()], ..Leaves::default() };
        assert!(terminals.with_leaf(&leaves).is_some() && terminals.only().is_some());
    }

    #[test]
    fn a_cgroup_means_a_terminal_until_that_is_removed() {
        let mut terminals = with_one();
        terminals.keep_cgroup(7, "t-1");
        terminals.keep_cgroup(8, "t-2");
        assert_eq!(terminals.with_cgroup(7).map(|terminal| terminal.id.as_str()), Some("term_1"));
        assert!(terminals.with_cgroup(8).is_none(), "no terminal has this leaf");
        terminals.remove("term_1");
        terminals.add(AddTerminal { terminal_id: "term_1".into(), ..AddTerminal::default() }, 0);
        assert!(terminals.with_cgroup(7).is_none(), "it was removed");
    }
}
