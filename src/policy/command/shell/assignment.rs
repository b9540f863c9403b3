//! Assignments: `NAME=VALUE`, `NAME+=VALUE`, elements and arrays.
//!
//! A value is only data, unless the shell comes to take it for arithmetic: one that would run a command then is
//! noted.

use super::{
    Dialect, OpaqueReason, Word, holds_substitution,
    parser::{ParseResult, Parser, Quoted, is_delimiter, name_length},
    word::WordBuilder,
};

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
