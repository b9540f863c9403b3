//! Words, with their quoting undone (plain text, quotes of every kind, and what is expanded in them), and words printed as a line that
//! means the same.
//!
//! In `$'...'` (bash(1), QUOTING) only escapes whose meaning depends neither on the locale nor on the shell's version are undone.
//! What is printed reads as what was printed. What cannot be seen is written as an escape: a person may have to evaluate the line
//! by looking at it.

use std::{fmt::Write as _, iter::Peekable, str::Chars};

use super::{
    Dialect, OpaqueReason, Word, is_unseen,
    parser::{ParseResult, Parser, Quoted, is_delimiter, is_reserved},
    simple::takes_assignments,
    word::WordBuilder,
};

/// Where a word stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Context {
    /// In a command.
    Plain,
    /// Behind `=~` in `[[`: parentheses and bars belong to it.
    Expression,
    /// Behind `==` in `[[`: `@(a|b)` and its kind belong to it.
    Pattern,
}

/// What ends quoted text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuoteEnd {
    /// `"`.
    Quote,
    /// The end of the part that is read.
    End,
}

impl Parser<'_> {
    /// A word of a command.
    pub(super) fn any_word(&mut self) -> ParseResult<WordBuilder> {
        self.word(Context::Plain)
    }

    /// A word that is no command: of a loop, a case, behind a redirection.
    pub(super) fn plain_word(&mut self) -> ParseResult<WordBuilder> {
        let word = self.any_word()?;
        match word.is_continued && matches!(self.peek(), b'<' | b'>' | b'(') {
            true => self.fail(OpaqueReason::Continuation),
            false => Ok(word),
        }
    }

    /// A word, of which there must be one.
    pub(super) fn word(&mut self, context: Context) -> ParseResult<WordBuilder> {
        let mut word = WordBuilder { start: self.at, ..WordBuilder::default() };
        let length = self.rest().iter().take_while(|b| is_plain(**b)).count();
        word.push_bare(&self.text[self.at..self.at + length]);
        self.at += length;
        let mut open = 0_usize;
        loop {
            match self.peek() {
                b'(' if self.opens_group(context, open) => {
                    open += 1;
                    self.take_bare(&mut word);
                }
                b')' if open > 0 => {
                    open -= 1;
                    self.take_bare(&mut word);
                }
                b'|' if open > 0 || (context == Context::Expression && self.peek_at(1) != b'|') => {
                    self.take_bare(&mut word);
                }
                b'<' | b'>' if self.peek_at(1) == b'(' => {
                    if open > 0 {
                        return self.fail(OpaqueReason::Dialect);
                    }
                    self.at += 1;
                    self.substitution(&mut word)?;
                }
                byte if is_delimiter(byte) => break,
                b'\\' if self.peek_at(1) == b'\n' => {
                    self.continuation()?;
                    word.is_continued = true;
                    break;
                }
                b'\\' => {
                    self.at += 1;
                    let Some(c) = self.text[self.at..self.end].chars().next() else {
                        return self.fail(OpaqueReason::Syntax);
                    };
                    word.push_quoted(c.encode_utf8(&mut [0; 4]));
                    self.at += c.len_utf8();
                }
                b'\'' => self.single_quotes(&mut word)?,
                b'"' => self.double_quotes(&mut word)?,
                b'$' => self.dollar(Quoted::No, &mut word)?,
                b'`' => self.backquotes(Quoted::No, &mut word)?,
                _ => self.take_bare(&mut word),
            }
        }
        word.end = self.at;
        if open > 0 || word.end == word.start {
            return self.fail(OpaqueReason::Syntax);
        }
        Ok(word)
    }

    fn opens_group(&self, context: Context, open: usize) -> bool {
        let before = self.at.checked_sub(1).map_or(0, |at| self.text.as_bytes()[at]);
        match context {
            Context::Plain => false,
            Context::Expression => true,
            Context::Pattern => open > 0 || matches!(before, b'?' | b'*' | b'+' | b'@' | b'!'),
        }
    }

    fn take_bare(&mut self, word: &mut WordBuilder) {
        if let Some(c) = self.text[self.at..].chars().next() {
            word.push_bare(c.encode_utf8(&mut [0; 4]));
            self.at += c.len_utf8();
        }
    }

    /// Escaped newlines behind a word. Where it would go on behind them, it is not read.
    fn continuation(&mut self) -> ParseResult<()> {
        let start = self.at;
        while self.is_before_continuation() {
            self.at += 2;
        }
        if is_delimiter(self.peek()) {
            return Ok(());
        }
        self.at = start;
        self.fail(OpaqueReason::Continuation)
    }

    fn single_quotes(&mut self, word: &mut WordBuilder) -> ParseResult<()> {
        let rest = &self.rest()[1..];
        let Some(length) = rest.iter().position(|b| *b == b'\'') else {
            return self.fail(OpaqueReason::Syntax);
        };
        let text = &self.text[self.at + 1..self.at + 1 + length];
        if text.contains('\n') {
            self.inner_newline()?;
        }
        word.push_quoted(text);
        self.at += length + 2;
        Ok(())
    }

    /// `"..."`, at its opening quote.
    pub(super) fn double_quotes(&mut self, word: &mut WordBuilder) -> ParseResult<()> {
        self.at += 1;
        word.is_quoted = true;
        self.quoted_text(QuoteEnd::Quote, word)
    }

    /// Text in double quotes or of a here-document, and what closes it.
    pub(super) fn quoted_text(&mut self, closing: QuoteEnd, word: &mut WordBuilder) -> ParseResult<()> {
        loop {
            let rest = self.rest();
            let plain = rest.iter().position(|b| matches!(b, b'"' | b'\\' | b'$' | b'`' | b'\n'));
            let plain = plain.unwrap_or(rest.len());
            word.push_quoted(&self.text[self.at..self.at + plain]);
            self.at += plain;
            match self.peek() {
                0 if closing == QuoteEnd::End => return Ok(()),
                0 => return self.fail(OpaqueReason::Syntax),
                b'"' if closing == QuoteEnd::Quote => {
                    self.at += 1;
                    return Ok(());
                }
                b'\\' => self.quoted_backslash(closing, word),
                b'$' => self.dollar(Quoted::Double, word)?,
                b'`' => self.backquotes(Quoted::Double, word)?,
                byte => {
                    if byte == b'\n' && closing == QuoteEnd::Quote {
                        self.inner_newline()?;
                    }
                    word.push_quoted(&self.text[self.at..=self.at]);
                    self.at += 1;
                }
            }
        }
    }

    fn quoted_backslash(&mut self, closing: QuoteEnd, word: &mut WordBuilder) {
        match self.peek_at(1) {
            b'\n' => self.at += 2,
            escaped @ (b'$' | b'`' | b'\\') => {
                word.push_quoted(char::from(escaped).encode_utf8(&mut [0; 4]));
                self.at += 2;
            }
            b'"' if closing == QuoteEnd::Quote => {
                word.push_quoted("\"");
                self.at += 2;
            }
            _ => {
                word.push_quoted("\\");
                self.at += 1;
            }
        }
    }

    /// `$'...'`, at its opening quote.
    pub(super) fn ansi_c_quotes(&mut self, word: &mut WordBuilder) -> ParseResult<()> {
        let start = self.at + 1;
        let mut end = start;
        loop {
            match self.text.as_bytes()[..self.end].get(end) {
                None => return self.fail(OpaqueReason::Syntax),
                Some(b'\'') => break,
                Some(b'\\') => end += 2,
                Some(b'\n') => {
                    self.inner_newline()?;
                    end += 1;
                }
                Some(_) => end += 1,
            }
        }
        let text = &self.text[start..end];
        // dash knows no such string.
        if self.dialect == Dialect::Posix {
            self.mark_opaque(start, OpaqueReason::Dialect);
        }
        match decode_ansi_c(text) {
            Some(value) => word.push_quoted(&value),
            None => word.hide(OpaqueReason::Dialect),
        }
        word.is_quoted = true;
        self.at = end + 1;
        Ok(())
    }

    /// `$"..."`, at its opening quote: translated by bash, a dollar sign before quotes to dash.
    pub(super) fn translated_quotes(&mut self, word: &mut WordBuilder) -> ParseResult<()> {
        if self.dialect != Dialect::Bash {
            self.mark_opaque(self.at, OpaqueReason::Dialect);
        }
        self.double_quotes(word)
    }
}

/// What stands for itself wherever it stands in a word.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'_' | b'-' | b'.' | b'/' | b':' | b',' | b'@' | b'%' | b'+' | b'=')
}

/// The text of what stands between the quotes. None: a NUL, a control escape, a character that is none everywhere.
pub(super) fn decode_ansi_c(text: &str) -> Option<String> {
    let mut value = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            value.push(c);
            continue;
        }
        if chars.peek()?.is_digit(8) {
            value.push(ascii(number(&mut chars, 8, 3)?)?);
            continue;
        }
        let escaped = match chars.next()? {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'e' | 'E' => '\u{1b}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            c @ ('\\' | '\'' | '"' | '?') => c,
            'x' => ascii(number(&mut chars, 16, 2)?)?,
            'u' => ascii(number(&mut chars, 16, 4)?)?,
            'U' => ascii(number(&mut chars, 16, 8)?)?,
            'c' => return None,
            other => {
                value.push('\\');
                other
            }
        };
        value.push(escaped);
    }
    Some(value)
}

fn number(chars: &mut Peekable<Chars<'_>>, radix: u32, most_digits: usize) -> Option<u32> {
    let mut value = None;
    for _ in 0..most_digits {
        let Some(digit) = chars.peek().and_then(|c| c.to_digit(radix)) else { break };
        chars.next();
        value = Some(value.unwrap_or(0) * radix + digit);
    }
    value
}

/// A character by its number. A byte beyond ASCII is half a character, and a character beyond it depends on the
/// locale: not worth guessing.
fn ascii(number: u32) -> Option<char> {
    char::from_u32(number).filter(|c| c.is_ascii() && *c != '\0')
}

/// Words as a line that means the same: quoted where they must be, and as written where they are not known.
pub fn print(words: &[Word]) -> String {
    let mut line = String::new();
    for (at, word) in words.iter().enumerate() {
        if at > 0 {
            line.push(' ');
        }
        match word {
            Word::Opaque { text, .. } => line.push_str(text),
            Word::Literal(text) if is_plain_text(text) && !(at == 0 && is_special(text, &words[1..])) => {
                line.push_str(text);
            }
            Word::Literal(text) if text.chars().any(is_unseen) => escape(text, &mut line),
            Word::Literal(text) => {
                line.push('\'');
                line.push_str(&text.replace('\'', "'\\''"));
                line.push('\'');
            }
        }
    }
    line
}

/// In the place of a command it would be a word of the grammar, or make assignments of what is not known. Quoted, it
/// does neither.
fn is_special(command: &str, arguments: &[Word]) -> bool {
    is_reserved(command)
        || (takes_assignments(command) && arguments.iter().any(|word| word.literal().is_none()))
}

fn is_plain_text(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./:,@%+".contains(&b))
}

fn escape(text: &str, line: &mut String) {
    line.push_str("$'");
    for c in text.chars() {
        match c {
            '\\' | '\'' => line.extend(['\\', c]),
            c if is_unseen(c) => {
                let number = u32::from(c);
                // A String takes everything that is written to it.
                let _ = if number < 0x80 {
                    write!(line, "\\x{number:02x}")
                } else {
                    write!(line, "\\U{number:08x}")
                };
            }
            c => line.push(c),
        }
    }
    line.push('\'');
}
