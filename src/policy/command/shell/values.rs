//! What is known of the values that a line gives to variables, as far as it matters: whether they come from
//! outside the line.
//!
//! A shell takes a variable's value for an expression wherever it takes its name for arithmetic, and runs the commands
//! that are substituted in it (`a[$(...)]`). So a value that nobody knows hides commands there. Values that come with the
//! environment are left to the code that knows it.

use super::{
    OpaqueReason, Word,
    arithmetic::names_in,
    parser::Parser,
    printed::{self, Printed},
};

impl Parser<'_> {
    /// Takes in what a simple command does to variables, and notes what it takes for arithmetic.
    pub(super) fn follow_values(&mut self, assignments: &[(String, Word)], words: &[Word]) {
        let is_prefix = |word: &&Word| matches!(word.literal(), Some("command" | "builtin"));
        let words = words.get(words.iter().take_while(is_prefix).count()..).unwrap_or_default();
        let builtin = words.first().and_then(Word::literal).unwrap_or_default();
        let arguments = words.get(1..).unwrap_or_default();
        let texts = || arguments.iter().filter_map(Word::literal);
        let is_integer =
            matches!(builtin, "declare" | "typeset" | "local" | "export" | "readonly" | "integer")
                && texts().any(|text| text.starts_with('-') && text.contains('i'));
        let evaluates = |text: &str| match builtin {
            "let" => true,
            "test" | "[" | "read" | "unset" | "wait" | "declare" | "typeset" | "local" | "export"
            | "readonly" => text.contains('['),
            "printf" => text.contains('[') && texts().next().is_some_and(|first| first.starts_with("-v")),
            _ => false,
        };
        // `test -v NAME` takes a subscript in it for arithmetic.
        let is_expanded =
            |word: &Word| matches!(word, Word::Opaque { text, .. } if text.contains(['$', '`']));
        let asks_for_name = |words: &[Word]| {
            (matches!(words[0].literal(), Some("-v" | "-R")) || is_expanded(&words[0]))
                && is_expanded(&words[1])
        };
        let is_name_hidden = matches!(builtin, "test" | "[") && arguments.windows(2).any(asks_for_name);
        let hides = is_name_hidden
            || texts().any(|text| (is_integer || evaluates(text)) && self.names_unknown(text))
            || is_integer
                && assignments
                    .iter()
                    .any(|(_, value)| value.literal().is_none_or(|text| self.names_unknown(text)));
        let evaluated = texts().filter(|text| is_integer || evaluates(text)).flat_map(names_in);
        self.line.evaluated.extend(evaluated.map(|(_, name)| name.to_owned()));
        if hides {
            self.mark_opaque(self.at.min(self.text.len()), OpaqueReason::Assignment);
        }
        // Text that is known may name others: `y=x`.
        for (name, value) in assignments {
            self.give(name, value.literal().unwrap_or_default());
        }
        if matches!(builtin, "export" | "declare" | "typeset" | "readonly" | "local") {
            for (name, text) in texts().filter_map(|text| text.split_once('=')) {
                self.give(name.trim_end_matches('+'), text);
            }
        }
        let is_unknown = |(_, value): &&(String, Word)| !self.is_number(value);
        let unknown: Vec<_> = assignments.iter().filter(is_unknown).map(|(name, _)| name.clone()).collect();
        self.unknown.extend(unknown);
        if matches!(builtin, "read" | "getopts" | "printf" | "mapfile" | "readarray" | "eval" | "wait") {
            let names = texts().flat_map(names_in).map(|(_, name)| name.to_owned());
            self.unknown.extend(names.chain(["REPLY".to_owned(), "MAPFILE".to_owned()]));
        }
    }

    /// Whether an expression reads a variable that the line has set to what nobody knows.
    pub(super) fn names_unknown(&self, expression: &str) -> bool {
        !self.unknown.is_empty() && names_in(expression).any(|(_, name)| self.unknown.contains(name))
    }

    /// Takes down which variables a value names, if it should come to be taken for arithmetic.
    pub(super) fn give(&mut self, name: &str, text: &str) {
        let names: Vec<String> = names_in(text).map(|(_, name)| name.to_owned()).collect();
        if !names.is_empty() {
            self.line.named.entry(name.to_owned()).or_default().extend(names);
        }
    }

    /// Whether a value is known to be no expression that does anything.
    fn is_number(&self, value: &Word) -> bool {
        let prints_number = |text: &str| {
            self.printed != Printed::Unknown && printed::is_count(text.trim_matches('"'), self.dialect)
        };
        is_number(value) || matches!(value, Word::Opaque { text, .. } if prints_number(text))
    }
}

/// Whether a value cannot be an expression that does anything: text that is known, or the result of arithmetic.
///
/// Known text that would do something is found where it is assigned.
fn is_number(value: &Word) -> bool {
    match value {
        Word::Literal(_) => true,
        Word::Opaque { text, .. } => {
            let text = text.trim_matches('"');
            let expression = text.strip_prefix("$((").and_then(|text| text.strip_suffix("))"));
            let is_count = text.starts_with("${#") && !text[2..].contains('$') && text.ends_with('}');
            is_count
                || matches!(text, "$?" | "$#" | "$$" | "$!")
                || expression.is_some_and(|text| !text.contains(['(', ')', '`']))
        }
    }
}
