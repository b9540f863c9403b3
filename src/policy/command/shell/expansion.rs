//! What a shell puts in the place of something: variables, parameters, the output of commands.
//!
//! The word is opaque then. What matters here is where the construct ends, and which commands run within it.

use super::{
    OpaqueReason,
    lists::Until,
    parser::{ParseResult, Parser, Quoted, name_length},
    word::WordBuilder,
};

impl Parser<'_> {
    /// What begins with `$`.
    pub(super) fn dollar(&mut self, quoted: Quoted, word: &mut WordBuilder) -> ParseResult<()> {
        match self.peek_at(1) {
            b'(' if self.peek_at(2) == b'(' => {
                word.hide(OpaqueReason::Expansion);
                self.operator(3)?;
                self.arithmetic_expansion()
            }
            b'(' => {
                self.at += 1;
                self.substitution(word)
            }
            b'{' => {
                word.hide(OpaqueReason::Expansion);
                self.deeper(|reader| reader.parameter(quoted))
            }
            b'\'' if quoted == Quoted::No => {
                self.at += 1;
                self.ansi_c_quotes(word)
            }
            b'"' if quoted == Quoted::No => {
                self.at += 1;
                self.translated_quotes(word)
            }
            // Arithmetic to bash, text to dash.
            b'[' => self.fail(OpaqueReason::Dialect),
            b'\\' if self.peek_at(2) == b'\n' => self.fail(OpaqueReason::Continuation),
            b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!' | b'0'..=b'9' => {
                word.hide(OpaqueReason::Expansion);
                self.at += 2;
                Ok(())
            }
            _ => {
                self.at += 1;
                match name_length(self.rest()) {
                    0 => word.push_bare("$"),
                    length => {
                        word.hide(OpaqueReason::Expansion);
                        self.at += length;
                    }
                }
                Ok(())
            }
        }
    }

    /// `(...)` of a command or process substitution, at the parenthesis.
    pub(super) fn substitution(&mut self, word: &mut WordBuilder) -> ParseResult<()> {
        let outside = std::mem::take(&mut self.pending);
        let outside_before = self.pending_outside;
        self.pending_outside += outside.len();
        self.substitutions += 1;
        self.operator(1)?;
        self.apart(|reader| reader.list(Until::Parenthesis))?;
        // A here-document that has not come yet would begin behind the parenthesis, or nowhere.
        if !self.pending.is_empty() {
            return self.fail(OpaqueReason::Dialect);
        }
        self.at += 1;
        self.substitutions -= 1;
        self.pending_outside = outside_before;
        self.pending = outside;
        word.hide(OpaqueReason::Substitution);
        Ok(())
    }

    /// `` `...` ``. Within it, a backslash may mean something else than outside, and a quote within quotes as well.
    pub(super) fn backquotes(&mut self, quoted: Quoted, word: &mut WordBuilder) -> ParseResult<()> {
        word.hide(OpaqueReason::Substitution);
        let start = self.at + 1;
        let mut end = start;
        let mut is_ambiguous = false;
        loop {
            match self.text.as_bytes()[..self.end].get(end) {
                None => return self.fail(OpaqueReason::Syntax),
                Some(b'`') => break,
                Some(b'\\') => {
                    let escaped = self.text.as_bytes()[..self.end].get(end + 1);
                    is_ambiguous |= matches!(escaped, None | Some(b'$' | b'`' | b'\\' | b'\n' | b'"'));
                    end += 2;
                }
                Some(byte) => {
                    is_ambiguous |= *byte == b'"' && quoted == Quoted::Double;
                    end += 1;
                }
            }
        }
        if self.text[start..end].contains('\n') {
            self.inner_newline()?;
        }
        if is_ambiguous {
            self.mark_opaque(start - 1, OpaqueReason::Substitution);
        } else {
            self.part(start..end, |reader| reader.apart(Self::whole_part))?;
        }
        self.at = end + 1;
        Ok(())
    }

    fn whole_part(&mut self) -> ParseResult<()> {
        let outside = std::mem::take(&mut self.pending);
        self.list(Until::End)?;
        if !self.pending.is_empty() {
            return self.fail(OpaqueReason::Dialect);
        }
        self.pending = outside;
        Ok(())
    }

    /// `${...}`.
    fn parameter(&mut self, quoted: Quoted) -> ParseResult<()> {
        self.at += 2;
        let start = self.at;
        let is_length =
            self.peek() == b'#' && !matches!(self.peek_at(1), b'}' | b'#' | b'%' | b':' | b'-' | b'+');
        let is_indirect = self.peek() == b'!' && name_length(&self.rest()[1..]) > 0;
        if is_length || is_indirect {
            self.at += 1;
        }
        let name = self.at;
        let length = match (name_length(self.rest()), self.peek()) {
            (0, b'0'..=b'9') => self.rest().iter().take_while(|b| b.is_ascii_digit()).count(),
            (0, b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!') => 1,
            (0, _) => return self.fail(OpaqueReason::Dialect),
            (length, _) => length,
        };
        self.at += length;
        if is_indirect {
            // What is in it is taken for a name, and for arithmetic where that has a subscript.
            self.evaluated(name..self.at)?;
        }
        let name = &self.text[name..self.at];
        if self.peek() == b'[' {
            self.at += 1;
            let subscript = self.at;
            self.parameter_text(b']', quoted)?;
            self.evaluated(subscript..self.at - 1)?;
        }
        match (self.peek(), self.peek_at(1)) {
            (b'}', _) => {}
            (b'=', _) | (b':', b'=') => {
                self.assign([name.to_owned()])?;
                if is_indirect {
                    // What is set is the variable that this one names.
                    self.mark_opaque(start, OpaqueReason::Assignment);
                }
            }
            // What is in the variable is taken for a prompt, in which commands are substituted.
            (b'@', b'P') => self.mark_opaque(start, OpaqueReason::Substitution),
            (b':' | b'-' | b'?' | b'+' | b'#' | b'%' | b'/' | b'^' | b',' | b'@' | b'~' | b'*', _) => {}
            _ => return self.fail(OpaqueReason::Dialect),
        }
        let is_offset = self.peek() == b':' && !matches!(self.peek_at(1), b'-' | b'?' | b'+' | b'=');
        let offset = self.at + 1;
        self.parameter_text(b'}', quoted)?;
        if is_offset { self.evaluated(offset..self.at - 1) } else { Ok(()) }
    }

    /// The text in a parameter expansion, and what closes it.
    fn parameter_text(&mut self, closing: u8, quoted: Quoted) -> ParseResult<()> {
        // It is only data, but for what is expanded in it.
        let mut text = WordBuilder::default();
        loop {
            match self.peek() {
                byte if byte == closing => {
                    self.at += 1;
                    return Ok(());
                }
                b'$' => self.dollar(quoted, &mut text)?,
                b'`' => self.backquotes(quoted, &mut text)?,
                b'"' if quoted == Quoted::No => self.double_quotes(&mut text)?,
                b'\'' if quoted == Quoted::No => {
                    let rest = &self.rest()[1..];
                    match rest.iter().position(|b| matches!(b, b'\'' | b'\n')) {
                        Some(length) if rest[length] == b'\'' => self.at += length + 2,
                        _ => return self.fail(OpaqueReason::Dialect),
                    }
                }
                b'\\' if !matches!(self.peek_at(1), 0 | b'\n' | b'\'') => {
                    self.at += 1;
                    self.at += self.text[self.at..].chars().next().map_or(0, char::len_utf8);
                }
                b'<' | b'>' | b'=' if self.peek_at(1) == b'(' => return self.fail(OpaqueReason::Dialect),
                0 | b'\n' | b'\\' | b'"' | b'\'' | b'{' | b'}' => return self.fail(OpaqueReason::Dialect),
                _ => self.at += 1,
            }
        }
    }
}
