//! Arithmetic: `$((...))`, `((...))`, and that of `for ((...))`.
//!
//! `$((` may also begin a substitution of a subshell; only what can be nothing but arithmetic is read. Variables that
//! it sets are assignments like others.

use std::ops::Range;

use super::{
    Dialect, OpaqueReason,
    parser::{ParseResult, Parser, Quoted, name_length},
    printed::{Printed, with_counts},
    word::WordBuilder,
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

    /// Text that the shell takes for arithmetic: it may set variables, and what stands in those that it reads is taken for
    /// arithmetic, too, in which a shell runs what is substituted.
    pub(super) fn evaluated(&mut self, expression: Range<usize>) -> ParseResult<()> {
        let start = expression.start;
        let written = &self.text[expression];
        let counted = (self.printed != Printed::Unknown).then(|| with_counts(written, self.dialect));
        let expression = counted.as_deref().unwrap_or(written);
        if self.names_unknown(expression) || takes_in_text(expression) {
            self.mark_opaque(start, OpaqueReason::Assignment);
        }
        self.line.evaluated.extend(names_in(expression).map(|(_, name)| name.to_owned()));
        if !sets_variables(expression) {
            return Ok(());
        }
        if expression.contains(['"', '\'', '\\']) {
            self.mark_opaque(start, OpaqueReason::Assignment);
        }
        self.assign(names(expression))
    }
}

fn is_of_arithmetic(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_ \t+-*/%<>=!&|^~?:,#[].@".contains(&byte)
}

/// Whether text that nobody knows becomes a part of an expression: the output of a command, an argument of the shell or of
/// a function.
fn takes_in_text(expression: &str) -> bool {
    let mut behind_dollars = expression.split('$').skip(1);
    expression.contains('`')
        || behind_dollars.any(|behind| {
            let behind = behind.strip_prefix('{').unwrap_or(behind);
            behind.starts_with(|c: char| c.is_ascii_digit() || "@*".contains(c))
                || (behind.starts_with('(') && !behind.starts_with("(("))
        })
}

/// Whether an expression may set a variable: an assignment, or a step up or down.
fn sets_variables(expression: &str) -> bool {
    let bytes = expression.as_bytes();
    let at = |at: usize| bytes.get(at).copied().unwrap_or(0);
    bytes.iter().enumerate().any(|(place, byte)| match byte {
        b'+' | b'-' => at(place + 1) == *byte,
        b'=' => {
            let before = if place > 0 { at(place - 1) } else { 0 };
            let is_comparison = match before {
                b'=' | b'!' => true,
                b'<' | b'>' => place < 2 || at(place - 2) != before,
                _ => at(place + 1) == b'=',
            };
            !is_comparison
        }
        _ => false,
    })
}

/// Everything in an expression that may be the name of a variable.
pub fn names(expression: &str) -> Vec<String> {
    let mut names: Vec<String> = names_in(expression).map(|(_, name)| name.to_owned()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Names in a text, with where each ends.
pub(super) fn names_in(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            let start = at;
            let length = name_length(&bytes[at..]);
            // A number is passed with the letters that follow it.
            at += length.max(bytes[at..].iter().take_while(|b| b.is_ascii_alphanumeric()).count()).max(1);
            if length > 0 {
                return Some((start + length, &text[start..start + length]));
            }
        }
        None
    })
}

/// Whether text, taken for arithmetic, would give a variable of such a name a value.
pub fn sets_by_arithmetic(text: &str, is_meant: impl Fn(&str) -> bool) -> bool {
    names_in(text).any(|(end, name)| {
        let behind = text[end..].trim_start_matches([' ', '\t', '\n']);
        let operators = ["<<=", ">>=", "+=", "-=", "*=", "/=", "%=", "&=", "^=", "|=", "="];
        let value = operators.iter().find_map(|operator| behind.strip_prefix(operator));
        let is_operand = |value: &str| {
            let first = value.trim_start_matches([' ', '\t', '\n']).bytes().next();
            first.is_some_and(|b| b.is_ascii_alphanumeric() || b"_(+-~!$".contains(&b))
        };
        value.is_some_and(is_operand) && is_meant(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sets_a_variable_is_told_from_what_compares() {
        for expression in
            ["x=1", "x = y", "x+=1", "x<<=1", "x>>=1", "x++", "--x", "a[1]=2", "x==y?z=1:0", "=", "x|=2"]
        {
            assert!(sets_variables(expression), "{expression}");
        }
        for expression in ["x==1", "x!=1", "x<=1", "x>=1", "x+1", "x<<1", "-x", "x - -1", ""] {
            assert!(!sets_variables(expression), "{expression}");
        }
        assert_eq!(names("PATH=1+16#ff, x"), ["PATH", "ff", "x"]);
        let sets_path = |text| sets_by_arithmetic(text, |name| name == "PATH");
        for text in ["PATH=63", "x=1,PATH = 6", "a[PATH+=1]", "PATH<<=x", "PATH=-1"] {
            assert!(sets_path(text), "{text}");
        }
        for text in ["PATH=/usr/bin", "PATH==1", "MYPATH=1", "PATH=", "PATH", "PATH=\"x\"", "echo 'PATH=' x"]
        {
            assert!(!sets_path(text), "{text}");
        }
    }
}
