//! What all lines of a request do to variables, as far as it matters: one may set what another takes for arithmetic.
//!
//! The order in which they stand says nothing: a line may come back in a loop, run later as a function or a trap, or in a
//! shell that inherits the variable.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    builtin::changes_lookup,
    shell::{self, ParsedLine},
};

/// Variables that a shell fills with what came to it: arguments, what matched, what was read. Those of directories begin with
/// a slash, with which no expression does.
const FILLED: [&str; 6] = ["BASH_ARGV0", "BASH_COMMAND", "BASH_REMATCH", "OPTARG", "REPLY", "_"];

/// Variables that are numbers to a shell, so that what they are given is taken for arithmetic.
const NUMBERS: [&str; 9] =
    ["COLUMNS", "HISTCMD", "LINENO", "LINES", "OPTIND", "PPID", "RANDOM", "SECONDS", "TMOUT"];

/// What is known of the variables of a request.
#[derive(Debug, Default)]
pub(super) struct Values {
    lines: usize,
    renaming_lines: usize,
    evaluated: BTreeSet<String>,
    unknown: BTreeSet<String>,
    named: BTreeMap<String, BTreeSet<String>>,
}

impl Values {
    /// Whether no line so far gives another meaning to the names of programs, nor may do so.
    pub(super) fn leave_names_alone(&self) -> bool {
        self.renaming_lines == 0
    }

    /// Takes in what a line does.
    pub(super) fn take_in(&mut self, line: &ParsedLine) {
        self.lines += 1;
        self.renaming_lines += usize::from(!shell::leaves_names_alone(line));
        self.evaluated.extend(line.evaluated.iter().cloned());
        self.unknown.extend(line.unknown.iter().cloned());
        for (name, names) in &line.named {
            self.named.entry(name.clone()).or_default().extend(names.iter().cloned());
        }
    }

    /// What is taken for arithmetic and may do anything: a variable that nobody knows, or a value of the environment.
    pub(super) fn hidden_in_arithmetic(&self, env: &BTreeMap<String, String>) -> Option<String> {
        if self.lines == 0 {
            return None;
        }
        let numbers =
            NUMBERS.iter().filter(|name| self.unknown.contains(**name) || self.named.contains_key(**name));
        let mut open: Vec<String> =
            self.evaluated.iter().cloned().chain(numbers.map(|name| (*name).to_owned())).collect();
        let mut seen = BTreeSet::new();
        while let Some(name) = open.pop() {
            if self.unknown.contains(&name) || FILLED.contains(&name.as_str()) {
                return Some(name);
            }
            let value = env.get(&name);
            if let Some(value) = value.filter(|value| acts(value)) {
                return Some(value.clone());
            }
            open.extend(self.named.get(&name).into_iter().flatten().cloned());
            open.extend(value.into_iter().flat_map(|value| shell::names(value)));
            open.retain(|name| !seen.contains(name));
            seen.insert(name);
        }
        None
    }
}

/// Whether a value does something when it is taken for arithmetic.
fn acts(value: &str) -> bool {
    value.split_once('[').is_some_and(|(_, subscript)| shell::holds_substitution(subscript))
        || shell::sets_by_arithmetic(value, changes_lookup)
}
