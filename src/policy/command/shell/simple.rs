//! Simple commands: assignments, words and redirections in any order, and the definitions that begin like one.

use super::{
    Dialect, LineCwd, OpaqueReason, Word,
    assignment::AssignmentPosition,
    beginning,
    parser::{ParseResult, Parser, is_reserved, name_length},
    word::WordBuilder,
};

/// A simple command while it is read.
#[derive(Default)]
struct Parts {
    assignments: Vec<(String, Word)>,
    words: Vec<Word>,
    /// The command word, if it was written plainly.
    first: Option<String>,
    redirections: usize,
    /// dash takes what stands behind `&>` for another command.
    is_split: bool,
}

/// What began like a simple command.
enum SimpleKind {
    Command,
    /// Of a function; its name, if the definition is to be counted on.
    Definition(Option<String>),
}

impl Parser<'_> {
    pub(super) fn simple(&mut self) -> ParseResult<Option<String>> {
        let mut parts = Parts::default();
        match self.parts_of_simple(&mut parts) {
            Ok(SimpleKind::Definition(name)) => Ok(name),
            Ok(SimpleKind::Command) => {
                self.check_simple(&parts);
                self.emit_simple(parts)?;
                Ok(None)
            }
            Err(stop) => {
                // What was seen of it is evaluated, with whatever may stand behind.
                if !parts.words.is_empty() || !parts.assignments.is_empty() {
                    let text = beginning(self.text.get(stop.at..).unwrap_or(""));
                    parts.words.push(Word::Opaque { text, reason: stop.reason });
                    self.emit_simple(parts)?;
                }
                Err(stop)
            }
        }
    }

    fn parts_of_simple(&mut self, parts: &mut Parts) -> ParseResult<SimpleKind> {
        let start = self.at;
        loop {
            self.blanks();
            let before = self.at;
            if self.redirection()? {
                parts.redirections += 1;
                parts.is_split |= self.text.as_bytes()[before] == b'&';
                continue;
            }
            match self.peek() {
                0 | b'\n' | b';' | b'&' | b'|' | b')' => break,
                b'(' => {
                    let is_alone =
                        parts.words.len() == 1 && parts.assignments.is_empty() && parts.redirections == 0;
                    let Some(name) = parts.first.take().filter(|_| is_alone) else {
                        return self.fail(OpaqueReason::Syntax);
                    };
                    parts.words.clear();
                    self.operator(1)?;
                    return self.function_body(name).map(SimpleKind::Definition);
                }
                _ => {}
            }
            if parts.is_split && self.dialect == Dialect::Posix {
                self.mark_opaque(self.at, OpaqueReason::Dialect);
            }
            if self.assignment_into(parts)? {
                continue;
            }
            let word = self.any_word()?;
            self.check_word(&word, parts)?;
            if parts.words.is_empty() {
                parts.first = word.plain().map(str::to_owned);
            }
            parts.words.push(word.finish(self.text));
        }
        if self.at == start {
            return self.fail(OpaqueReason::Syntax);
        }
        Ok(SimpleKind::Command)
    }

    /// An assignment before the command, or an argument of `export` and its kind.
    fn assignment_into(&mut self, parts: &mut Parts) -> ParseResult<bool> {
        let declares = || matches!(parts.first.as_deref(), Some(name) if takes_assignments(name));
        if !parts.words.is_empty() && !declares() {
            return Ok(false);
        }
        let standing = if parts.words.is_empty() {
            AssignmentPosition::BeforeCommand
        } else {
            AssignmentPosition::Argument
        };
        match self.assignment(standing)? {
            Some(assignment) => {
                parts.assignments.push(assignment);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn emit_simple(&mut self, parts: Parts) -> ParseResult<()> {
        let before = self.state.place.clone();
        self.emit(parts.assignments, parts.words)?;
        if parts.is_split && self.dialect == Dialect::Posix && self.state.place != before {
            // dash runs it in the background, where a `cd` changes nothing here.
            self.state.place = LineCwd::Unknown;
        }
        Ok(())
    }

    fn check_word(&mut self, word: &WordBuilder, parts: &Parts) -> ParseResult<()> {
        let is_command = parts.words.is_empty();
        if word.is_continued {
            let may_go_on = matches!(self.peek(), b'<' | b'>' | b'(')
                || (is_command && word.plain().is_some_and(is_reserved));
            if may_go_on {
                return self.fail(OpaqueReason::Continuation);
            }
        }
        if self.dialect == Dialect::Posix && word.plain() == Some("[[") {
            // To busybox `&&` and `||` are words from here to `]]`, wherever in a command it stands.
            self.mark_opaque(word.start, OpaqueReason::Dialect);
        }
        Ok(())
    }

    /// Words before a command that one shell takes for its own, and another for a program.
    fn check_simple(&mut self, parts: &Parts) {
        let is_prefix = match parts.first.as_deref() {
            Some("coproc") => true,
            Some("time") => self.dialect == Dialect::Posix,
            _ => false,
        };
        let changes_meaning = |word: &Word| {
            word.literal().is_none_or(|text| is_reserved(text) || looks_like_assignment(text.as_bytes()))
        };
        if is_prefix && parts.words.iter().skip(1).take(3).any(changes_meaning) {
            self.mark_opaque(self.at, OpaqueReason::Dialect);
        }
    }
}

/// Whether a reserved word is read as a word of a simple command, whose meaning the evaluator of wrappers knows.
pub(super) fn takes_for_word(word: &str, dialect: Dialect) -> bool {
    match word {
        "coproc" => true,
        "time" => dialect == Dialect::Posix,
        _ => false,
    }
}

/// Builtins whose arguments of the form `NAME=VALUE` are assignments, unless the builtin's name is quoted.
pub(super) fn takes_assignments(name: &str) -> bool {
    matches!(name, "export" | "declare" | "typeset" | "readonly" | "local")
}

fn looks_like_assignment(text: &[u8]) -> bool {
    let length = name_length(text);
    length > 0 && matches!(text.get(length), Some(b'=' | b'+' | b'['))
}
