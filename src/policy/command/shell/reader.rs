//! The reader's place in the line, and what every part of the grammar needs: blanks, newlines, reserved words.
//!
//! Reading goes forward only. A part that cannot be understood stops it ([`Stop`]); one that can, but that another
//! shell of the dialect may understand otherwise, is noted and read on.

use std::{collections::BTreeSet, ops::Range};

use super::{
    DEEPEST, Dialect, Line, MOST_COMMANDS, Opaque, OpaqueReason, Place, SimpleCommand, Word, beginning,
    course::Course, here_document::HereDocument, printed::Printed,
};

/// Where reading stopped, and why. What was read before it stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) at: usize,
    pub(super) reason: OpaqueReason,
}

pub(super) type Reading<T> = Result<T, Stop>;

/// Reads one line.
pub(super) struct Reader<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    /// Where the part that is read ends: the line, or something with an end of its own within it.
    pub(super) end: usize,
    pub(super) dialect: Dialect,
    pub(super) line: Line,
    pub(super) course: Course,
    /// Variables that the line sets to what nobody knows.
    pub(super) unknown: BTreeSet<String>,
    /// Here-documents whose bodies begin behind the next newline.
    pub(super) pending: Vec<HereDocument>,
    /// Here-documents of the constructs around this one, which wait for a newline, too.
    pub(super) pending_outside: usize,
    /// Constructs around this one.
    pub(super) depth: usize,
    /// Substitutions in parentheses around this one.
    pub(super) substitutions: usize,
    /// What is known of the output of commands.
    pub(super) printed: Printed,
}

/// Whether text stands in double quotes or is read as if it did (a here-document, arithmetic).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quoted {
    No,
    Double,
}

impl<'a> Reader<'a> {
    pub(super) fn of(text: &'a str, dialect: Dialect) -> Self {
        Self {
            text,
            at: 0,
            end: text.len(),
            dialect,
            line: Line::default(),
            course: Course::default(),
            unknown: BTreeSet::new(),
            pending: Vec::new(),
            pending_outside: 0,
            depth: 0,
            substitutions: 0,
            printed: Printed::Unknown,
        }
    }

    /// The same, with more known of the output of commands.
    pub(super) fn knowing(self, printed: Printed) -> Self {
        Self { printed, ..self }
    }

    pub(super) fn read(mut self) -> Line {
        let whole = self.whole_line();
        if let Err(Stop { at, reason }) = whole {
            self.note(at, reason);
        }
        self.course.finish(&mut self.line.commands);
        self.line.unknown = self.unknown;
        self.line.defined = self.course.defined;
        self.line
    }

    /// What is read, but may be read otherwise.
    pub(super) fn note(&mut self, at: usize, reason: OpaqueReason) {
        // One of a kind says it all; a line of thousands would only be slow to judge.
        if self.line.opaque.iter().all(|opaque| opaque.reason != reason) {
            let text = beginning(self.text.get(at..).unwrap_or(""));
            self.line.opaque.push(Opaque { at, text, reason });
        }
    }

    pub(super) fn stop<T>(&self, reason: OpaqueReason) -> Reading<T> {
        Err(Stop { at: self.at, reason })
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
    pub(super) fn lines(&mut self) -> Reading<()> {
        loop {
            self.blanks();
            if self.peek() != b'\n' {
                return Ok(());
            }
            self.newline()?;
        }
    }

    /// As [`Self::lines`], within something that is no list: here-documents must not be waiting.
    pub(super) fn inner_lines(&mut self) -> Reading<()> {
        self.blanks();
        while self.peek() == b'\n' {
            self.inner_newline()?;
            self.at += 1;
            self.blanks();
        }
        Ok(())
    }

    fn newline(&mut self) -> Reading<()> {
        if self.pending_outside > 0 {
            // Whether the body begins here or behind the whole construct depends on the shell.
            return self.stop(OpaqueReason::Dialect);
        }
        self.at += 1;
        self.here_documents()
    }

    /// A newline in the middle of a word or an expression: here-documents must not be waiting for it.
    pub(super) fn inner_newline(&self) -> Reading<()> {
        match self.pending_outside + self.pending.len() {
            0 => Ok(()),
            _ => self.stop(OpaqueReason::Dialect),
        }
    }

    /// Goes past an operator. One that an escaped newline would lengthen is not guessed at.
    pub(super) fn operator(&mut self, length: usize) -> Reading<()> {
        self.at += length;
        if self.is_before_continuation() {
            let mut ahead = 0;
            while self.peek_at(ahead) == b'\\' && self.peek_at(ahead + 1) == b'\n' {
                ahead += 2;
            }
            if matches!(self.peek_at(ahead), b'<' | b'>' | b'&' | b'|' | b';' | b'(' | b')' | b'-' | b'!') {
                return self.stop(OpaqueReason::Continuation);
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

    pub(super) fn expect(&mut self, word: &'static str) -> Reading<()> {
        if self.reserved() != Some(word) {
            return self.stop(OpaqueReason::Syntax);
        }
        self.at += word.len();
        Ok(())
    }

    /// Reads a construct within the one that is being read.
    pub(super) fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Reading<T>) -> Reading<T> {
        if self.depth >= DEEPEST {
            return self.stop(OpaqueReason::TooMany);
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
        read: impl FnOnce(&mut Self) -> Reading<T>,
    ) -> Reading<T> {
        let (behind, end) = (self.at, self.end);
        (self.at, self.end) = (part.start, part.end);
        let result = read(self)?;
        (self.at, self.end) = (behind, end);
        Ok(result)
    }

    /// Puts a simple command into the line.
    pub(super) fn emit(&mut self, assignments: Vec<(String, Word)>, words: Vec<Word>) -> Reading<()> {
        self.follow_values(&assignments, &words);
        self.push(assignments, words)
    }

    fn push(&mut self, assignments: Vec<(String, Word)>, words: Vec<Word>) -> Reading<()> {
        if assignments.is_empty() && words.is_empty() {
            return Ok(());
        }
        if self.line.commands.len() >= MOST_COMMANDS {
            return self.stop(OpaqueReason::TooMany);
        }
        let of_function = self.course.named(&words);
        let place = self.course.place.clone();
        self.course.follow(&words, self.dialect);
        self.line.commands.push(SimpleCommand { assignments, words, place, of_function });
        Ok(())
    }

    /// Puts an assignment into the line that a construct makes by itself, to a value that is not known.
    pub(super) fn assign(&mut self, names: impl IntoIterator<Item = String>) -> Reading<()> {
        let unknown = || Word::Opaque { text: "...".into(), reason: OpaqueReason::Expansion };
        self.push(names.into_iter().map(|name| (name, unknown())).collect(), Vec::new())
    }

    /// What may or may not happen: afterwards, the working folder is known only if nothing in it changed it.
    pub(super) fn perhaps<T>(&mut self, read: impl FnOnce(&mut Self) -> Reading<T>) -> Reading<T> {
        let before = self.course.place.clone();
        let result = read(self)?;
        if self.course.place != before {
            self.course.place = Place::Unknown;
        }
        Ok(result)
    }

    /// A process of its own: what it does to the working folder ends with it.
    pub(super) fn apart<T>(&mut self, read: impl FnOnce(&mut Self) -> Reading<T>) -> Reading<T> {
        let before = self.course.place.clone();
        let result = read(self)?;
        self.course.place = before;
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
