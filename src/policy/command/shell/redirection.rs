//! Redirections and here-documents: where what a command reads comes from, and where what it writes goes.
//!
//! Files that are named are not evaluated: what a command may read and write is the profile's matter. A here-document is text that begins
//! behind the line and is data, but for what an unquoted one substitutes. Shells differ in when a line is the last one: bash reads lines
//! and then expands, dash expands as it reads. What the two would end at different places is not read.

use super::{
    Dialect, OpaqueReason,
    parser::{HereDocument, ParseResult, Parser, is_delimiter, name_length},
    quoting::QuoteEnd,
    word::WordBuilder,
};

/// Operators that take a word, longest first.
const OPERATORS: [&str; 11] = ["&>>", "<<<", "&>", ">>", ">&", ">|", "<&", "<>", "<<", ">", "<"];

impl Parser<'_> {
    /// Redirections behind a compound command; how many.
    pub(super) fn redirections(&mut self) -> ParseResult<usize> {
        let mut number = 0;
        loop {
            self.blanks();
            if !self.redirection()? {
                return Ok(number);
            }
            number += 1;
        }
    }

    /// The redirection at the place, if there is one.
    pub(super) fn redirection(&mut self) -> ParseResult<bool> {
        let digits = self.rest().iter().take_while(|b| b.is_ascii_digit()).count();
        let is_numbered = digits > 0 && matches!(self.peek_at(digits), b'<' | b'>');
        if is_numbered {
            // dash and zsh take no number of two digits; no shell one that is no descriptor.
            let max_digits = if self.dialect == Dialect::Bash { 3 } else { 1 };
            if digits > max_digits || self.peek_at(digits + 1) == b'(' {
                return self.fail(OpaqueReason::Dialect);
            }
            self.at += digits;
        } else if self.peek() == b'{' {
            return self.named_redirection();
        } else if matches!(self.peek(), b'<' | b'>') && self.peek_at(1) == b'(' {
            // A process substitution is a word.
            return Ok(false);
        }
        let Some(operator) = OPERATORS.iter().find(|operator| self.is_before(operator)) else {
            return Ok(false);
        };
        self.operate(operator)?;
        Ok(true)
    }

    /// `{NAME}>FILE` sets a variable. To dash, the first half is a word.
    fn named_redirection(&mut self) -> ParseResult<bool> {
        let length = name_length(&self.rest()[1..]);
        if length > 0 && self.peek_at(length + 1) == b'[' {
            // The subscript is an expression, if this is a redirection.
            self.mark_opaque(self.at, OpaqueReason::Assignment);
        }
        if length == 0 || self.peek_at(length + 1) != b'}' || !matches!(self.peek_at(length + 2), b'<' | b'>')
        {
            return Ok(false);
        }
        if self.dialect != Dialect::Bash || self.peek_at(length + 3) == b'(' {
            return self.fail(OpaqueReason::Dialect);
        }
        let name = self.text[self.at + 1..self.at + 1 + length].to_owned();
        self.assign([name])?;
        self.at += length + 2;
        self.redirection()
    }

    fn operate(&mut self, operator: &str) -> ParseResult<()> {
        self.operator(operator.len())?;
        if operator == "<<" {
            return self.here_operator();
        }
        self.blanks();
        let target = self.plain_word()?;
        // bash expands the name of a file behind `>&` twice.
        if operator == ">&" && target.reason.is_some() {
            self.mark_opaque(target.start, OpaqueReason::Substitution);
        }
        // bash ends the word behind `>&-`, dash does not.
        let written = &self.text[target.start..target.end];
        if operator != "<<<" && target.reason.is_some() {
            self.line.expanded_targets.push(format!("{operator} {written}"));
        }
        if operator.ends_with('&') && written.starts_with('-') && written != "-" {
            return self.fail(OpaqueReason::Dialect);
        }
        Ok(())
    }
}

impl Parser<'_> {
    /// What stands behind `<<`.
    pub(super) fn here_operator(&mut self) -> ParseResult<()> {
        let strips_tabs = self.peek() == b'-';
        if strips_tabs {
            self.operator(1)?;
        }
        self.blanks();
        let mut document = HereDocument { delimiter: String::new(), is_quoted: false, strips_tabs };
        let start = self.at;
        while !is_delimiter(self.peek()) {
            match self.peek() {
                quote @ (b'\'' | b'"') => {
                    let rest = &self.rest()[1..];
                    let Some(length) = rest.iter().position(|b| *b == quote) else {
                        return self.fail(OpaqueReason::Syntax);
                    };
                    let quoted = &self.text[self.at + 1..self.at + 1 + length];
                    if quoted.contains(['\n', '\\', '$', '`']) {
                        return self.fail(OpaqueReason::Dialect);
                    }
                    document.delimiter.push_str(quoted);
                    document.is_quoted = true;
                    self.at += length + 2;
                }
                b'\\' => {
                    self.at += 1;
                    document.is_quoted = true;
                    match self.peek() {
                        byte if byte.is_ascii_graphic() => document.delimiter.push(char::from(byte)),
                        _ => return self.fail(OpaqueReason::Dialect),
                    }
                    self.at += 1;
                }
                b'$' | b'`' => return self.fail(OpaqueReason::Dialect),
                _ => {
                    let Some(c) = self.text[self.at..].chars().next() else { break };
                    document.delimiter.push(c);
                    self.at += c.len_utf8();
                }
            }
        }
        if self.at == start {
            return self.fail(OpaqueReason::Syntax);
        }
        self.pending.push(document);
        Ok(())
    }

    /// The bodies of those that wait, at the beginning of a line.
    pub(super) fn here_documents(&mut self) -> ParseResult<()> {
        for document in std::mem::take(&mut self.pending) {
            let start = self.at;
            let end = self.end_of_body(&document)?;
            if !document.is_quoted {
                self.part(start..end, |reader| {
                    let mut body = WordBuilder::default();
                    reader.quoted_text(QuoteEnd::End, &mut body)
                })?;
            }
        }
        Ok(())
    }

    /// Goes behind the body, and says where its text ends.
    fn end_of_body(&mut self, document: &HereDocument) -> ParseResult<usize> {
        let mut was_continued = false;
        while !self.is_at_end() {
            let start = self.at;
            let length = self.rest().iter().position(|b| *b == b'\n').unwrap_or(self.rest().len());
            let line = &self.text[start..start + length];
            let line = if document.strips_tabs { line.trim_start_matches('\t') } else { line };
            self.at = (start + length + 1).min(self.end);
            if line == document.delimiter {
                return if was_continued { self.fail(OpaqueReason::Dialect) } else { Ok(start) };
            }
            // Within `$(...)`, bash takes `E)` for the end, too.
            let may_end = |rest: &str| self.substitutions > 0 && rest.contains(')');
            if line.strip_prefix(document.delimiter.as_str()).is_some_and(may_end) {
                return self.fail(OpaqueReason::Dialect);
            }
            let backslashes = line.bytes().rev().take_while(|b| *b == b'\\').count();
            was_continued = !document.is_quoted && backslashes % 2 == 1;
            // Joined with the next line it might be the last.
            if was_continued && document.delimiter.starts_with(&line[..line.len() - 1]) {
                return self.fail(OpaqueReason::Dialect);
            }
        }
        self.fail(OpaqueReason::Syntax)
    }
}
