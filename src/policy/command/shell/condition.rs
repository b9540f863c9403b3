//! `[[ ... ]]`: words and operators, none of which is a command.
//!
//! What dash would take for a program is noted. Words that the shell may take for arithmetic must not hide commands.

use super::{
    Dialect, OpaqueReason, Word, holds_substitution,
    parser::{ParseResult, Parser, is_delimiter},
    quoting::Context,
};

impl Parser<'_> {
    pub(super) fn condition(&mut self) -> ParseResult<()> {
        let start = self.at;
        self.at += "[[".len();
        let mut open = 0_usize;
        let mut words = 0_usize;
        let mut context = Context::Plain;
        // As a program would be given them.
        let mut written = vec![Word::Literal("[[".into())];
        // Where the word before this one stands, and whether it has this one taken for arithmetic.
        let (mut before, mut is_operand) = (self.at..self.at, false);
        loop {
            self.blanks();
            match self.peek() {
                b']' if self.is_before("]]") && self.rest().get(2).is_none_or(|b| is_delimiter(*b)) => break,
                b'(' if context == Context::Plain => {
                    open += 1;
                    self.operator(1)?;
                }
                b')' if open > 0 => {
                    open -= 1;
                    self.operator(1)?;
                }
                b'&' | b'|' if self.is_before("&&") || self.is_before("||") => {
                    self.operator(2)?;
                    self.inner_lines()?;
                }
                b'<' | b'>' if self.peek_at(1) != b'(' => self.operator(1)?,
                b'\n' | 0 => return self.fail(OpaqueReason::Syntax),
                _ => {
                    let word = self.word(context)?;
                    words += 1;
                    // `[[ A -eq B ]]` takes both for arithmetic.
                    if holds_substitution(&word.value) {
                        self.mark_opaque(word.start, OpaqueReason::Assignment);
                    }
                    let here = word.start..word.end;
                    let compares =
                        matches!(word.value.as_str(), "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge");
                    if compares {
                        self.evaluated(before)?;
                    }
                    if is_operand {
                        self.evaluated(here.clone())?;
                    }
                    is_operand = compares || matches!(word.value.as_str(), "-v" | "-R");
                    before = here;
                    context = match word.plain() {
                        Some("=~") if context == Context::Plain => Context::Expression,
                        Some("=" | "==" | "!=") if context == Context::Plain => Context::Pattern,
                        _ => Context::Plain,
                    };
                    written.push(word.finish(self.text));
                }
            }
        }
        if open > 0 || words == 0 || context != Context::Plain {
            return self.fail(OpaqueReason::Syntax);
        }
        // To dash these are words of a program, and operators between commands; to busybox words without them.
        let operators = ['&', '|', '<', '>', '(', ')', '\n', ';'];
        if self.dialect == Dialect::Posix {
            if self.text[start..self.at].contains(operators) {
                self.mark_opaque(start, OpaqueReason::Dialect);
            }
            written.push(Word::Literal("]]".into()));
            self.emit(Vec::new(), written)?;
        }
        self.at += "]]".len();
        Ok(())
    }
}
