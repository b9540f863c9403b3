//! Redirections: where what a command reads comes from, and where what it writes goes.
//!
//! Files that are named are not evaluated: what a command may read and write is the profile's matter.

use super::{
    Dialect, OpaqueReason,
    parser::{ParseResult, Parser, name_length},
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
