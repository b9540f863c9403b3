//! What a command runs by its arguments, and what else it may be.

use super::{
    super::{
        kinds,
        program::Resolved,
        readings,
        shell::{Dialect, LineCwd, OpaqueReason, Word},
        verdict::{Lookup, MAX_NESTING, MAX_UNITS},
        wrapper::WrappedCommand,
    },
    CommandSource, Evaluator, Outer, RuleAnswer, ShellScope,
};

impl Evaluator<'_> {
    /// Evaluates what a command runs. `within` ends with the command itself.
    pub(super) fn inner(&mut self, inner: Vec<WrappedCommand>, outer: &Outer<'_>, within: &mut Vec<String>) {
        for inner in inner {
            if within.len() > MAX_NESTING || self.units.len() >= MAX_UNITS {
                self.hide_words(outer.words, OpaqueReason::TooMany, within);
                break;
            }
            match inner {
                // `command NAME`, `exec NAME` and their kind name files or builtins, as a line does.
                WrappedCommand::Argv { assignments, removed, words } => {
                    let seen = match outer.seen {
                        CommandSource::InShell(dialect) | CommandSource::AsFunction(dialect)
                            if outer.is_builtin =>
                        {
                            CommandSource::InShell(dialect)
                        }
                        _ => CommandSource::FromArgv,
                    };
                    let is_changed = self.assignments(&assignments, within)
                        | self.is_other_without(&removed, &words)
                        | (self.context.lookup == Lookup::Changed);
                    if is_changed {
                        self.hide_words(&words, OpaqueReason::Assignment, within);
                    }
                    self.command(&words, outer.place, seen, within);
                }
                WrappedCommand::ShellLine(line, dialect) => {
                    let around = match outer.seen {
                        CommandSource::InShell(dialect) | CommandSource::AsFunction(dialect) => dialect,
                        CommandSource::FromArgv | CommandSource::AsProfileShell => Dialect::Posix,
                    };
                    if dialect.is_some() {
                        self.variables_of_shells.add_options(outer.words);
                    }
                    let reads = if dialect.is_some() { ShellScope::NewShell } else { ShellScope::SameShell };
                    self.line(&line, dialect.unwrap_or(around), reads, outer.place, within);
                }
                // Who allows `bash build.sh` by name has read build.sh, and who allows `strace` knows that nobody looks
                // into it. What is seen through otherwise hides nothing because of a rule for its name.
                WrappedCommand::Opaque(reason)
                    if outer.answered == RuleAnswer::AllowedByName
                        && kinds::is_taken_on_trust(outer.name, reason) => {}
                WrappedCommand::Opaque(reason)
                    if self.is_interpreting && self.is_the_scripts_own(outer.name, reason, within) => {}
                WrappedCommand::Opaque(reason) => self.hide_words(outer.words, reason, within),
            }
        }
    }

    /// Evaluates what else a command may be. Rules that deny or ask hold for it, and it needs no rule.
    pub(super) fn other_readings(
        &mut self,
        others: Vec<Vec<Word>>,
        file: &Resolved,
        place: &LineCwd,
        within: &mut Vec<String>,
    ) {
        if others.is_empty() {
            return;
        }
        self.is_other_reading = true;
        for words in others {
            self.apply_rules(&words, file.clone(), false, place, within, None);
            let name = words.first().and_then(Word::literal).unwrap_or_default();
            let outer = Outer {
                words: &words,
                name,
                place,
                seen: CommandSource::FromArgv,
                is_builtin: false,
                answered: RuleAnswer::Otherwise,
            };
            within.push(name.to_owned());
            self.inner(readings::unwrap(&words), &outer, within);
            within.pop();
        }
        self.is_other_reading = false;
    }
}
