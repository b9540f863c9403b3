//! What is known of the values that a line gives to variables, as far as it matters: whether somebody else chose them.
//!
//! A shell takes a variable's value for an expression wherever it takes its name for arithmetic, and runs the commands
//! that are substituted in it (`a[$(...)]`). So a value that nobody knows hides commands there. Values that come with the
//! environment are for whoever knows that.

use super::{OpaqueReason, Word, arithmetic::names_in, reader::Reader};

impl Reader<'_> {
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
        let hides = texts().any(|text| (is_integer || evaluates(text)) && self.names_unknown(text))
            || is_integer
                && assignments
                    .iter()
                    .any(|(_, value)| value.literal().is_none_or(|text| self.names_unknown(text)));
        let evaluated = texts().filter(|text| is_integer || evaluates(text)).flat_map(names_in);
        self.line.evaluated.extend(evaluated.map(|(_, name)| name.to_owned()));
        if hides {
            self.note(self.at.min(self.text.len()), OpaqueReason::Assignment);
        }
        let unknown = assignments.iter().filter(|(_, value)| !is_number(value)).map(|(name, _)| name.clone());
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
