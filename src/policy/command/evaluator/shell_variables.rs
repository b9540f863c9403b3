//! Variables of a shell that are not in the environment (`for ENV in a b`, `n=1; echo $n`): they reach no program.
//!
//! Only what is certain not to be exported counts as such, and nothing that a shell reads itself.

use std::collections::BTreeSet;

use super::{
    super::{
        builtin::is_read_by_shells,
        shell::{ParsedLine, Word},
        verdict::AssignmentVerdict,
    },
    Evaluator,
};

/// What the lines of a request may have exported, and what they have set without it.
#[derive(Debug, Default)]
pub(super) struct ShellVariables {
    /// Whether any variable may be exported.
    exports_all: bool,
    exported: BTreeSet<String>,
    /// Set, and not in the environment so far.
    kept: BTreeSet<String>,
}

impl ShellVariables {
    /// Adds what a line may export, wherever in it: what comes last may run before what comes first.
    pub(super) fn add(&mut self, line: &ParsedLine) {
        let runs_again = !line.loops.is_empty() || !line.defined.is_empty();
        self.exports_all |= !line.opaque.is_empty();
        for command in &line.commands {
            let is_prefix = |word: &&Word| matches!(word.literal(), Some("command" | "builtin" | "--"));
            let mut words = command.words.iter().skip_while(is_prefix);
            let Some(first) = words.next() else { continue };
            match first.literal() {
                Some("export" | "declare" | "typeset" | "local" | "readonly") => {
                    self.exported.extend(command.assignments.iter().map(|(name, _)| name.clone()));
                    for word in words {
                        match word.literal() {
                            Some(text) => {
                                let name = text.split(['=', '[', '+']).next().unwrap_or(text);
                                self.exported.insert(name.to_owned());
                            }
                            None => self.exports_all = true,
                        }
                    }
                }
                Some("set") => self.exports_all |= words.any(exports_all),
                Some("setopt" | "emulate") => self.exports_all = true,
                Some("eval" | "." | "source" | "trap") | None => self.exports_all |= runs_again,
                Some(_) => {}
            }
        }
    }

    /// Adds the options of a shell.
    pub(super) fn add_options(&mut self, words: &[Word]) {
        self.exports_all |= words.iter().skip(1).any(exports_all);
    }

    /// Whether a variable of this name has been set, and was not in the environment then.
    pub(super) fn has_kept(&self, name: &str) -> bool {
        self.kept.contains(name)
    }
}

/// Whether a word is an option by which a shell exports what it sets: `-a`, `-o allexport`.
fn exports_all(word: &Word) -> bool {
    word.literal().is_none_or(|text| {
        text == "allexport" || (text.starts_with('-') && !text.starts_with("--") && text.contains('a'))
    })
}

impl Evaluator<'_> {
    /// Whether a variable that is set by itself, not for a command, stays within the shell. One that a profile denies, or the list
    /// of those that change every command, does not count, wherever it stands.
    pub(super) fn stays_in_shell(&mut self, name: &str) -> bool {
        let variables = &self.variables_of_shells;
        let is_in_environment = variables.exports_all
            || variables.exported.contains(name)
            || self.context.request.env.contains_key(name);
        let stays = !is_in_environment
            && !is_read_by_shells(name)
            && (self.context.assignment_verdict)(name, None) != AssignmentVerdict::Denied;
        if stays {
            self.variables_of_shells.kept.insert(name.to_owned());
        }
        stays
    }
}
