//! Arithmetic: `$((...))`, `((...))`, and that of `for ((...))`.
//!
//! `$((` may also begin a substitution of a subshell; only what can be nothing but arithmetic is read. An expression of
//! anything but numbers is opaque, and so is what makes a shell take something else for one.

use std::ops::Range;

use super::{
    Dialect, OpaqueReason, Word,
    parser::{ParseResult, Parser, Quoted},
    word::{WordBuilder, holds_number},
};

/// Whether an expression may be several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expressions {
    One,
    Three,
}

impl Parser<'_> {
    /// `((...))` as a command: nested subshells to dash.
    pub(super) fn arithmetic_command(&mut self) -> ParseResult<()> {
        if self.dialect == Dialect::Posix {
            self.mark_opaque(self.at, OpaqueReason::Dialect);
        }
        self.operator(2)?;
        self.deeper(|reader| reader.arithmetic(Expressions::One))
    }

    pub(super) fn arithmetic_of_for(&mut self) -> ParseResult<()> {
        self.deeper(|reader| reader.arithmetic(Expressions::Three))
    }

    /// What stands behind `$((`.
    pub(super) fn arithmetic_expansion(&mut self) -> ParseResult<()> {
        self.deeper(|reader| reader.arithmetic(Expressions::One))
    }

    fn arithmetic(&mut self, expressions: Expressions) -> ParseResult<()> {
        let start = self.at;
        let mut open = 0_usize;
        // The value is a number; only what is expanded in it matters.
        let mut value = WordBuilder::default();
        loop {
            match self.peek() {
                b'(' => {
                    open += 1;
                    self.at += 1;
                }
                b')' if open > 0 => {
                    open -= 1;
                    self.at += 1;
                }
                b')' if self.peek_at(1) == b')' => break,
                b'$' => self.dollar(Quoted::Double, &mut value)?,
                b'`' => self.backquotes(Quoted::Double, &mut value)?,
                b'\n' => {
                    self.inner_newline()?;
                    self.at += 1;
                }
                b';' if expressions == Expressions::Three => self.at += 1,
                byte if is_of_arithmetic(byte) => self.at += 1,
                _ => return self.fail(OpaqueReason::Dialect),
            }
        }
        let expression = start..self.at;
        self.at += 2;
        self.evaluated(expression)
    }

    /// Text that the shell takes for arithmetic. Numbers are followed and nothing else: what stands in a variable is an expression,
    /// too, which sets others, and in which a shell runs what is substituted.
    pub(super) fn evaluated(&mut self, expression: Range<usize>) -> ParseResult<()> {
        if !is_number(&self.text[expression.clone()]) {
            self.mark_opaque(expression.start, OpaqueReason::Assignment);
        }
        Ok(())
    }

    /// Notes a simple command that takes a word for arithmetic.
    pub(super) fn note_evaluation(&mut self, assignments: &[(String, Word)], words: &[Word]) {
        let is_prefix = |word: &&Word| matches!(word.literal(), Some("command" | "builtin"));
        let words = words.get(words.iter().take_while(is_prefix).count()..).unwrap_or_default();
        let builtin = words.first().and_then(Word::literal).unwrap_or_default();
        let arguments = words.get(1..).unwrap_or_default();
        let sets_number = assignments
            .iter()
            .any(|(name, value)| holds_number(name) && !value.literal().is_some_and(is_number));
        if sets_number || evaluates(builtin, arguments) {
            self.mark_opaque(self.at.min(self.text.len()), OpaqueReason::Assignment);
        }
    }
}

/// Whether a builtin takes one of its arguments for arithmetic: an expression, or the subscript of a name.
fn evaluates(builtin: &str, arguments: &[Word]) -> bool {
    let mut texts = arguments.iter().filter_map(Word::literal);
    let mut texts_with_subscript = texts.clone().filter(|text| text.contains('['));
    match builtin {
        "let" | "integer" => true,
        "test" | "[" => {
            arguments.windows(2).any(|pair| may_ask_for_name(&pair[0]) && may_be_element(&pair[1]))
                || arguments.iter().any(may_be_several)
        }
        "declare" | "typeset" | "local" | "export" | "readonly" => {
            texts.clone().any(|text| text.starts_with('-') && text.contains('i'))
                || texts_with_subscript.next().is_some()
                || texts
                    .filter_map(|text| text.split_once('='))
                    .any(|(name, value)| holds_number(name.trim_end_matches('+')) && !is_number(value))
        }
        "read" | "getopts" | "unset" | "wait" => {
            texts_with_subscript.next().is_some() || (builtin != "unset" && texts.any(holds_number))
        }
        "printf" => {
            texts.next().is_some_and(|first| first.starts_with("-v"))
                && (texts_with_subscript.next().is_some()
                    || arguments.iter().filter_map(Word::literal).any(holds_number))
        }
        _ => false,
    }
}

/// Whether an argument of `test` is `-v`, or may become it.
fn may_ask_for_name(word: &Word) -> bool {
    match word {
        Word::Literal(text) => matches!(text.as_str(), "-v" | "-R"),
        Word::Opaque { text, .. } => text.contains(['$', '`']),
    }
}

/// Whether an argument may turn out to be several words, `-v` among them.
fn may_be_several(word: &Word) -> bool {
    let is_quoted = |text: &str| {
        text.len() > 1
            && text.starts_with('"')
            && text.ends_with('"')
            && !text[1..text.len() - 1].contains('"')
    };
    let is_number = |text: &str| {
        matches!(text, "$?" | "$#" | "$$" | "$!") || (text.starts_with("${#") && text.ends_with('}'))
    };
    matches!(word, Word::Opaque { text, .. } if text.contains(['$', '`']) && !is_quoted(text) && !is_number(text))
}

/// Whether an argument of `test` names an element of an array, or may come to.
fn may_be_element(word: &Word) -> bool {
    match word {
        Word::Literal(text) => text.contains('['),
        Word::Opaque { text, .. } => text.contains(['$', '`']),
    }
}

/// Whether an expression is of numbers only, and of parameters that are always one.
fn is_number(expression: &str) -> bool {
    let numbers =
        ["$?", "$#", "$$", "$!"].iter().fold(expression.to_owned(), |text, number| text.replace(number, "0"));
    let mut bytes = numbers.bytes();
    let mut before = 0;
    bytes.all(|byte| {
        let is_plain = byte.is_ascii_digit() || b" \t+-*/%<>!&|^~?:,()@".contains(&byte);
        let is_step = before == byte && matches!(byte, b'+' | b'-');
        before = byte;
        is_plain && !is_step
    })
}

fn is_of_arithmetic(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_ \t+-*/%<>=!&|^~?:,#[].@".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_from_what_names_a_variable() {
        for number in ["", "1", "1 + 2*(3 % 4)", "-1", "1<2 ? 3 : 4", "@", "*", "$?", "$# - 1"] {
            assert!(is_number(number), "{number}");
        }
        for other in
            ["x", "x=1", "$x", "$1", "${#x}", "$(x)", "`x`", "a[1]", "1=2", "--1", "0x1f", "16#ff", "'1'"]
        {
            assert!(!is_number(other), "{other}");
        }
    }
}
