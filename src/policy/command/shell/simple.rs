//! Simple commands: assignments, words and redirections in any order, and the definitions that begin like one.
//!
//! Assignments are `NAME=VALUE`, `NAME+=VALUE`, elements and arrays. A value is only data, unless the shell comes to take it for
//! arithmetic: one that would run a command then is noted.

use super::{
    Dialect, LineCwd, OpaqueReason, Word, beginning, holds_substitution,
    parser::{ParseResult, Parser, Quoted, is_delimiter, is_reserved, name_length},
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
    /// The definition of a function; its name, if the definition is to be counted on.
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

/// Where something stands that may be an assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AssignmentPosition {
    /// Before the command word, where some shells take for a program what is no assignment to them.
    BeforeCommand,
    /// Among the arguments of `export` and its kind.
    Argument,
}

impl Parser<'_> {
    /// The assignment at the place, if there is one.
    pub(super) fn assignment(&mut self, standing: AssignmentPosition) -> ParseResult<Option<(String, Word)>> {
        let start = self.at;
        let rest = self.rest();
        let length = name_length(rest);
        // Letters beyond ASCII make a name to zsh, and to others where a byte is a letter.
        let is_of_name = |b: &&u8| !b.is_ascii() || b.is_ascii_alphanumeric() || **b == b'_';
        let longer = length + rest[length..].iter().take_while(is_of_name).count();
        if !rest[..longer].is_ascii() && matches!(rest.get(longer), Some(b'=' | b'+' | b'[')) {
            self.mark_opaque(start, OpaqueReason::Dialect);
        }
        if length == 0 {
            return Ok(None);
        }
        let subscript = match rest.get(length) {
            Some(b'[') => match self.subscript_length(&rest[length..])? {
                Some(subscript) => subscript,
                None => return Ok(None),
            },
            _ => 0,
        };
        let plus = usize::from(rest.get(length + subscript) == Some(&b'+'));
        if rest.get(length + subscript + plus) != Some(&b'=') {
            return Ok(None);
        }
        let name = self.text[start..start + length].to_owned();
        self.evaluated(start + length..start + length + subscript)?;
        self.at += length + subscript + plus + 1;
        let is_array = self.peek() == b'(';
        let value = if is_array { self.array()? } else { self.value()? };
        if holds_substitution(&value.value) {
            self.mark_opaque(start, OpaqueReason::Assignment);
        }
        // To dash, `a+=x` and `a[0]=x` are programs: with a slash, there may be such files. An array is an error.
        let is_program =
            standing == AssignmentPosition::BeforeCommand && (subscript > 0 || plus > 0) && !is_array;
        let may_be_path = value.reason.is_some() || self.text[start..self.at].contains('/');
        if self.dialect == Dialect::Posix && is_program && may_be_path {
            self.mark_opaque(start, OpaqueReason::Dialect);
        }
        Ok(Some((name, value.finish(self.text))))
    }

    /// The length of `[...]`, if it is the subscript of an assignment. One that is not plain is not read.
    fn subscript_length(&self, rest: &[u8]) -> ParseResult<Option<usize>> {
        let plain = |b: &u8| b.is_ascii_alphanumeric() || b"_@*+-$.{}#%\"'".contains(b);
        let length = 1 + rest[1..].iter().position(|b| !plain(b)).unwrap_or(rest.len() - 1);
        let count = |quote| rest[..length].iter().filter(|b| **b == quote).count();
        match rest.get(length) {
            Some(b']') if count(b'"') % 2 + count(b'\'') % 2 > 0 => self.fail(OpaqueReason::Dialect),
            Some(b']') if length > 1 => Ok(Some(length + 1)),
            Some(b']' | b'!' | b'^' | b'/' | b':') | None => Ok(None),
            Some(b) if is_delimiter(*b) => Ok(None),
            Some(_) => self.fail(OpaqueReason::Dialect),
        }
    }

    fn value(&mut self) -> ParseResult<WordBuilder> {
        if is_delimiter(self.peek()) && !self.is_before("<(") && !self.is_before(">(") {
            return Ok(WordBuilder { start: self.at, end: self.at, ..WordBuilder::default() });
        }
        self.any_word()
    }

    /// `(a b [c]=d)`. No shell but those that have arrays accepts it.
    fn array(&mut self) -> ParseResult<WordBuilder> {
        let mut array =
            WordBuilder { start: self.at, reason: Some(OpaqueReason::Expansion), ..WordBuilder::default() };
        self.operator(1)?;
        loop {
            self.inner_lines()?;
            match self.peek() {
                b')' => break,
                b'[' => {
                    let index = self.at;
                    while !matches!(self.peek(), b']' | b'\n' | 0) {
                        self.index_part(&mut array)?;
                    }
                    if self.peek() != b']' {
                        return self.fail(OpaqueReason::Syntax);
                    }
                    self.evaluated(index + 1..self.at)?;
                    self.at += 1;
                    if !is_delimiter(self.peek()) {
                        array.value.push_str(&self.any_word()?.value);
                    }
                }
                byte if is_delimiter(byte) && !self.is_before("<(") && !self.is_before(">(") => {
                    return self.fail(OpaqueReason::Syntax);
                }
                _ => {
                    array.value.push(' ');
                    let word = self.any_word()?;
                    array.value.push_str(&word.value);
                }
            }
        }
        self.at += 1;
        array.end = self.at;
        // `a=(b)c` is no assignment that shells agree on.
        if is_delimiter(self.peek()) { Ok(array) } else { self.fail(OpaqueReason::Syntax) }
    }

    fn index_part(&mut self, array: &mut WordBuilder) -> ParseResult<()> {
        match self.peek() {
            b'$' => self.dollar(Quoted::Double, array),
            b'`' => self.backquotes(Quoted::Double, array),
            b'"' | b'\'' | b'\\' | b' ' | b'\t' => self.fail(OpaqueReason::Dialect),
            byte if is_delimiter(byte) => self.fail(OpaqueReason::Syntax),
            _ => {
                self.at += 1;
                Ok(())
            }
        }
    }
}
