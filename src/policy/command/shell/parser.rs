//! The reader's place in the line, and what every part of the grammar needs: blanks, newlines, reserved words.
//!
//! Reading goes forward only. A part that cannot be understood stops it; one that can, but that another
//! shell of the dialect may understand otherwise, is noted and read on.

use std::ops::Range;

use super::{
    Dialect, LineCwd, MAX_COMMANDS, MAX_DEPTH, Opaque, OpaqueReason, ParsedLine, SimpleCommand, Word,
    beginning, shell_state::ShellState, word::holds_number,
};

/// Where reading stopped, and why. What was read before it stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ParseError {
    pub(super) at: usize,
    pub(super) reason: OpaqueReason,
}

pub(super) type ParseResult<T> = Result<T, ParseError>;

/// Reads one line.
pub(super) struct Parser<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    /// Where the part that is read ends: the line, or something with an end of its own within it.
    pub(super) end: usize,
    pub(super) dialect: Dialect,
    pub(super) line: ParsedLine,
    pub(super) state: ShellState,
    /// Here-documents whose bodies begin behind the next newline.
    pub(super) pending: Vec<HereDocument>,
    /// Here-documents of the constructs around this one, which wait for a newline, too.
    pub(super) pending_outside: usize,
    /// Constructs around this one.
    pub(super) depth: usize,
    /// Substitutions in parentheses around this one.
    pub(super) substitutions: usize,
}

/// A here-document whose body is still to come.
#[derive(Debug)]
pub(super) struct HereDocument {
    pub(super) delimiter: String,
    /// Whether the delimiter is quoted, so that the body is data and nothing else.
    pub(super) is_quoted: bool,
    /// `<<-`: tabs at the beginning of lines are taken away.
    pub(super) strips_tabs: bool,
}

/// Whether text stands in double quotes or is read as if it did (a here-document, arithmetic).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quoted {
    No,
    Double,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str, dialect: Dialect) -> Self {
        Self {
            text,
            at: 0,
            end: text.len(),
            dialect,
            line: ParsedLine::default(),
            state: ShellState::default(),
            pending: Vec::new(),
            pending_outside: 0,
            depth: 0,
            substitutions: 0,
        }
    }

    pub(super) fn parse(mut self) -> ParsedLine {
        let whole = self.whole_line();
        if let Err(ParseError { at, reason }) = whole {
            self.mark_opaque(at, reason);
        }
        self.state.finish(&mut self.line.commands);
        self.line.defined = self.state.defined;
        self.line
    }

    /// What is read, but may be read otherwise.
    pub(super) fn mark_opaque(&mut self, at: usize, reason: OpaqueReason) {
        // One of a kind says it all; a line of thousands would only be slow to evaluate.
        if self.line.opaque.iter().all(|opaque| opaque.reason != reason) {
            let text = beginning(self.text.get(at..).unwrap_or(""));
            self.line.opaque.push(Opaque { at, text, reason });
        }
    }

    pub(super) fn fail<T>(&self, reason: OpaqueReason) -> ParseResult<T> {
        Err(ParseError { at: self.at, reason })
    }

    /// The byte at the place, or NUL at the end: a line holds none.
    pub(super) fn peek(&self) -> u8 {
        self.peek_at(0)
    }

    pub(super) fn peek_at(&self, ahead: usize) -> u8 {
        let at = self.at + ahead;
        if at < self.end { self.text.as_bytes()[at] } else { 0 }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at >= self.end
    }

    /// What is left of the part that is read.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..self.end).unwrap_or(&[])
    }

    pub(super) fn is_before(&self, text: &str) -> bool {
        self.rest().starts_with(text.as_bytes())
    }

    pub(super) fn is_before_continuation(&self) -> bool {
        self.is_before("\\\n")
    }

    /// Blanks, escaped newlines, and a comment at the end.
    pub(super) fn blanks(&mut self) {
        loop {
            match self.peek() {
                b' ' | b'\t' => self.at += 1,
                b'\\' if self.peek_at(1) == b'\n' => self.at += 2,
                b'#' => {
                    let length = self.rest().iter().position(|b| *b == b'\n').unwrap_or(self.rest().len());
                    self.at += length;
                }
                _ => return,
            }
        }
    }

    /// Blanks, comments and newlines, with the here-documents that begin behind them.
    pub(super) fn lines(&mut self) -> ParseResult<()> {
        loop {
            self.blanks();
            if self.peek() != b'\n' {
                return Ok(());
            }
            self.newline()?;
        }
    }

    /// As [`Self::lines`], within something that is no list: here-documents must not be waiting.
    pub(super) fn inner_lines(&mut self) -> ParseResult<()> {
        self.blanks();
        while self.peek() == b'\n' {
            self.inner_newline()?;
            self.at += 1;
            self.blanks();
        }
        Ok(())
    }

    fn newline(&mut self) -> ParseResult<()> {
        if self.pending_outside > 0 {
            // Whether the body begins here or behind the whole construct depends on the shell.
            return self.fail(OpaqueReason::Dialect);
        }
        self.at += 1;
        self.here_documents()
    }

    /// A newline in the middle of a word or an expression: here-documents must not be waiting for it.
    pub(super) fn inner_newline(&self) -> ParseResult<()> {
        match self.pending_outside + self.pending.len() {
            0 => Ok(()),
            _ => self.fail(OpaqueReason::Dialect),
        }
    }

    /// Goes past an operator. One that an escaped newline would lengthen is not guessed at.
    pub(super) fn operator(&mut self, length: usize) -> ParseResult<()> {
        self.at += length;
        if self.is_before_continuation() {
            let mut ahead = 0;
            while self.peek_at(ahead) == b'\\' && self.peek_at(ahead + 1) == b'\n' {
                ahead += 2;
            }
            if matches!(self.peek_at(ahead), b'<' | b'>' | b'&' | b'|' | b';' | b'(' | b')' | b'-' | b'!') {
                return self.fail(OpaqueReason::Continuation);
            }
        }
        Ok(())
    }

    /// The reserved word at the place, which must be that of a command.
    pub(super) fn reserved(&self) -> Option<&'static str> {
        if !matches!(self.peek(), b'a'..=b'z' | b'{' | b'}' | b'!' | b'[') {
            return None;
        }
        let rest = self.rest();
        let length = rest.iter().position(|b| !matches!(b, b'a'..=b'z' | b'{' | b'}' | b'!' | b'['));
        let length = length.unwrap_or(rest.len());
        let ends = rest.get(length).is_none_or(|b| is_delimiter(*b));
        RESERVED.iter().find(|word| ends && word.as_bytes() == &rest[..length]).copied()
    }

    pub(super) fn expect(&mut self, word: &'static str) -> ParseResult<()> {
        if self.reserved() != Some(word) {
            return self.fail(OpaqueReason::Syntax);
        }
        self.at += word.len();
        Ok(())
    }

    /// Reads a construct within the one that is being read.
    pub(super) fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        if self.depth >= MAX_DEPTH {
            return self.fail(OpaqueReason::TooMany);
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// Reads a part of the line whose end is known as if nothing were behind it, and goes on there.
    pub(super) fn part<T>(
        &mut self,
        part: Range<usize>,
        read: impl FnOnce(&mut Self) -> ParseResult<T>,
    ) -> ParseResult<T> {
        let (behind, end) = (self.at, self.end);
        (self.at, self.end) = (part.start, part.end);
        let result = read(self)?;
        (self.at, self.end) = (behind, end);
        Ok(result)
    }

    /// Puts a simple command into the line.
    pub(super) fn emit(&mut self, assignments: Vec<(String, Word)>, words: Vec<Word>) -> ParseResult<()> {
        self.note_evaluation(&assignments, &words);
        self.push(assignments, words)
    }

    fn push(&mut self, assignments: Vec<(String, Word)>, words: Vec<Word>) -> ParseResult<()> {
        if assignments.is_empty() && words.is_empty() {
            return Ok(());
        }
        if self.line.commands.len() >= MAX_COMMANDS {
            return self.fail(OpaqueReason::TooMany);
        }
        let of_function = self.state.named(&words);
        let place = self.state.place.clone();
        self.state.follow(&words);
        self.line.commands.push(SimpleCommand { assignments, words, place, of_function });
        Ok(())
    }

    /// Puts an assignment into the line that a construct makes by itself, to a value that is not known.
    pub(super) fn assign(&mut self, names: impl IntoIterator<Item = String>) -> ParseResult<()> {
        let names: Vec<String> = names.into_iter().collect();
        if names.iter().any(|name| holds_number(name)) {
            self.mark_opaque(self.at, OpaqueReason::Assignment);
        }
        let unknown = || Word::Opaque { text: "...".into(), reason: OpaqueReason::Expansion };
        self.push(names.into_iter().map(|name| (name, unknown())).collect(), Vec::new())
    }

    /// What may or may not happen: afterwards, the working directory is known only if nothing in it changed it.
    pub(super) fn perhaps<T>(&mut self, read: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        let before = self.state.place.clone();
        let result = read(self)?;
        if self.state.place != before {
            self.state.place = LineCwd::Unknown;
        }
        Ok(result)
    }

    /// A process of its own: what it does to the working directory ends with it.
    pub(super) fn apart<T>(&mut self, read: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        let before = self.state.place.clone();
        let result = read(self)?;
        self.state.place = before;
        Ok(result)
    }
}

/// What ends a word, outside of quotes.
pub(super) fn is_delimiter(byte: u8) -> bool {
    matches!(byte, 0 | b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>')
}

const RESERVED: [&str; 21] = [
    "!", "{", "}", "[[", "case", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in",
    "select", "then", "time", "until", "while", "coproc",
];

/// Whether a word means something else than itself in the place of a command, in one of the shells.
pub(super) fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word) || matches!(word, "repeat" | "foreach" | "end" | "nocorrect" | "noglob" | "-")
}

/// The length of the name of a variable at the beginning of a text; 0 where there is none.
pub(super) fn name_length(text: &[u8]) -> usize {
    if !text.first().is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_') {
        return 0;
    }
    text.iter().position(|b| !(b.is_ascii_alphanumeric() || *b == b'_')).unwrap_or(text.len())
}
