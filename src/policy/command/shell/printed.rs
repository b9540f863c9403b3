//! What programs print, where a line by itself tells it: `cat` of a here-document, and programs that count.
//!
//! That a name is the program's is to be certain: a line that defines a function, or runs text that might, is told nothing
//! here ([`leaves_names_alone`]), nor is a line within such a one. Everything that is not one of a few forms to the
//! letter is unknown, as the output of commands is.

use super::{
    super::builtin::is_builtin,
    Dialect, OpaqueReason, ParsedLine, Word,
    parser::{Parser, is_reserved},
};

/// How much of what commands print is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Printed {
    /// Nothing.
    Unknown,
    /// That what counts prints a number.
    Numbers,
    /// That, and the text of here-documents.
    Texts,
}

/// Whether nothing in a line gives another meaning to the name of a program, or does so only where the line is asked about
/// for it.
pub fn leaves_names_alone(line: &ParsedLine) -> bool {
    let is_harmless = |words: &[Word]| match words.split_first() {
        None => true,
        Some((Word::Literal(name), arguments)) => is_harmless_command(name, arguments),
        Some((Word::Opaque { .. }, _)) => false,
    };
    line.defined.is_empty()
        && line.opaque.iter().all(|part| part.reason == OpaqueReason::Assignment)
        && line.commands.iter().all(|command| is_harmless(&command.words))
}

/// Programs, and builtins that run no text and define nothing.
fn is_harmless_command(name: &str, arguments: &[Word]) -> bool {
    let has_option = || arguments.iter().any(|word| word.literal().is_none_or(|text| text.starts_with('-')));
    match name {
        ":" | "[" | "[[" | "break" | "cd" | "continue" | "echo" | "exit" | "false" | "kill" | "printf"
        | "pwd" | "read" | "set" | "shift" | "test" | "true" | "umask" | "wait" => true,
        "export" => !has_option(),
        _ => !is_builtin(name) && !is_reserved(name),
    }
}

/// What stands for `$(cat <<'E'` ... `E` ... `)` in double quotes: the here-document, without the newlines at its end.
pub(super) fn document(substitution: &str) -> Option<&str> {
    const BLANK: [char; 2] = [' ', '\t'];
    let inner = substitution.strip_prefix("$(")?.strip_suffix(')')?.trim_start_matches(BLANK);
    let operator = inner.strip_prefix("cat")?.strip_prefix(BLANK)?.trim_start_matches(BLANK);
    let (mark, text) = operator.strip_prefix("<<")?.split_once('\n')?;
    let mark = mark.trim_matches(BLANK);
    let quoted = ['\'', '"'].iter().find_map(|quote| mark.strip_prefix(*quote)?.strip_suffix(*quote));
    let delimiter = quoted.unwrap_or(mark);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if delimiter.is_empty() || !delimiter.chars().all(is_plain) {
        return None;
    }
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        if line.strip_suffix('\n').unwrap_or(line) == delimiter {
            let document = &text[..end];
            let is_all = text[end + line.len()..].trim_matches([' ', '\t', '\n']).is_empty();
            let is_data = quoted.is_some() || !document.contains(['$', '`', '\\']);
            return (is_all && is_data).then(|| document.trim_end_matches('\n'));
        }
        end += line.len();
    }
    None
}

/// Whether a substitution prints a number and nothing else.
pub(super) fn is_count(substitution: &str, dialect: Dialect) -> bool {
    let Some(inner) = substitution.strip_prefix("$(").and_then(|text| text.strip_suffix(')')) else {
        return false;
    };
    let Some(parts) = parts_of_pipeline(&inner.replace(" 2>/dev/null", "")) else { return false };
    let line = Parser::new(inner, dialect).parse();
    let is_plain = line.opaque.is_empty() && line.defined.is_empty() && line.commands.len() == parts;
    let last = line.commands.last().filter(|command| is_plain && command.assignments.is_empty());
    let words: Option<Vec<&str>> = last.and_then(|last| last.words.iter().map(Word::literal).collect());
    matches!(
        words.as_deref(),
        Some(["wc", "-l" | "-c" | "-w" | "-m"] | ["date", "+%s"] | ["nproc"] | ["id", "-u" | "-g"])
    )
}

/// How many commands a pipeline has; none for what is anything else, or might be.
fn parts_of_pipeline(text: &str) -> Option<usize> {
    let mut parts = 1;
    let mut quote = None;
    let mut before = ' ';
    for c in text.chars() {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (Some('\''), '\n') => return None,
            (Some('\''), _) => {}
            (_, '\\' | '`' | '\n') => return None,
            (_, '(') if before == '$' => return None,
            (Some(_), _) => {}
            (None, '\'' | '"') if before == '$' => return None,
            (None, '\'' | '"') => quote = Some(c),
            (None, ';' | '&' | '>' | '(' | ')' | '{' | '}' | '#') => return None,
            (None, '|') if before == '|' => return None,
            (None, '|') => parts += 1,
            (None, _) => {}
        }
        before = c;
    }
    quote.is_none().then_some(parts)
}

/// An expression with a number in the place of every substitution that prints one.
pub(super) fn with_counts(expression: &str, dialect: Dialect) -> String {
    let mut text = String::with_capacity(expression.len());
    let mut rest = expression;
    while let Some(start) = rest.find("$(") {
        text.push_str(&rest[..start]);
        rest = &rest[start..];
        let length = rest.find(')').map_or(rest.len(), |end| end + 1);
        let is_number = !rest.starts_with("$((") && is_count(&rest[..length], dialect);
        let taken = if is_number { length } else { "$(".len() };
        text.push_str(if is_number { "0" } else { "$(" });
        rest = &rest[taken..];
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_here_document_is_known_where_nothing_else_is_printed() {
        assert_eq!(document("$(cat <<'EOF'\na `b` $c\n\n  d\nEOF\n)"), Some("a `b` $c\n\n  d"));
        assert_eq!(document("$(cat <<EOF\na\nEOF\n)"), Some("a"));
        assert_eq!(document("$( cat  << \"E\" \nE\n\n )"), Some(""));
        for other in [
            "$(cat <<EOF\n$x\nEOF\n)",
            "$(cat <<EOF\na\\b\nEOF\n)",
            "$(cat <<'EOF'\na\nEOF\necho b)",
            "$(cat <<'EOF' x\na\nEOF\n)",
            "$(cat <<'EOF' | sh\na\nEOF\n)",
            "$(cat <<'A' <<'B'\na\nA\nb\nB\n)",
            "$(cat <<-'EOF'\n\ta\nEOF\n)",
            "$(cat - <<'EOF'\na\nEOF\n)",
            "$(tac <<'EOF'\na\nEOF\n)",
            "$(catx <<'EOF'\na\nEOF\n)",
            "$(cat <<'EOF'\na\n)",
        ] {
            assert_eq!(document(other), None, "{other}");
        }
    }

    #[test]
    fn what_counts_is_told_from_what_may_print_anything() {
        for counts in [
            "$(wc -l < f)",
            "$(wc -l <f)",
            "$(ls *.rs | wc -l)",
            "$(ls 2>/dev/null | wc -l)",
            "$(grep 'a|b' x | wc -l)",
            "$(date +%s)",
            "$(nproc)",
        ] {
            assert!(is_count(counts, Dialect::Posix), "{counts}");
        }
        for other in [
            "$(wc -l f)",
            "$(wc -l < f 2>&1)",
            "$(cat f)",
            "$(cat f; wc -l)",
            "$(cat f || wc -l)",
            "$(cat f && wc -l < f)",
            "$(echo 'a|wc -l')",
            "$(echo a \\| wc -l)",
            "$(echo \"a\" '| wc -l')",
            "$(wc -l < f | cat x)",
            "$(./wc -l)",
            "$(x=1 wc -l)",
            "$(date +%s $x)",
            "$(wc -l $x)",
            "$(f() (cat x); wc -l)",
            "$(cat f # | wc -l)",
            "$(if cat f | wc -l)",
            "$(cat $(ls) | wc -l)",
            "$(cat f|& wc -l)",
            "$(eval cat f | wc -l >&2)",
        ] {
            assert!(!is_count(other, Dialect::Posix), "{other}");
        }
        assert_eq!(with_counts("$(date +%s) - n + $(cat f)", Dialect::Posix), "0 - n + $(cat f)");
    }
}
