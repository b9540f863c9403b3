//! Words as a line that means the same. The opposite of reading: what is printed reads as what was printed.
//!
//! What cannot be seen is written as an escape: a person may have to evaluate the line by looking at it.

use std::fmt::Write as _;

use super::{Word, is_unseen, parser::is_reserved, simple::takes_assignments};

/// Words as a line that means the same: quoted where they must be, and as written where they are not known.
pub fn print(words: &[Word]) -> String {
    let mut line = String::new();
    for (at, word) in words.iter().enumerate() {
        if at > 0 {
            line.push(' ');
        }
        match word {
            Word::Opaque { text, .. } => line.push_str(text),
            Word::Literal(text) if is_plain(text) && !(at == 0 && is_special(text, &words[1..])) => {
                line.push_str(text);
            }
            Word::Literal(text) if text.chars().any(is_unseen) => escape(text, &mut line),
            Word::Literal(text) => {
                line.push('\'');
                line.push_str(&text.replace('\'', "'\\''"));
                line.push('\'');
            }
        }
    }
    line
}

/// In the place of a command it would be a word of the grammar, or make assignments of what is not known. Quoted, it
/// does neither.
fn is_special(command: &str, arguments: &[Word]) -> bool {
    is_reserved(command)
        || (takes_assignments(command) && arguments.iter().any(|word| word.literal().is_none()))
}

fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./:,@%+".contains(&b))
}

fn escape(text: &str, line: &mut String) {
    line.push_str("$'");
    for c in text.chars() {
        match c {
            '\\' | '\'' => line.extend(['\\', c]),
            c if is_unseen(c) => {
                let number = u32::from(c);
                // A String takes everything that is written to it.
                let _ = if number < 0x80 {
                    write!(line, "\\x{number:02x}")
                } else {
                    write!(line, "\\U{number:08x}")
                };
            }
            c => line.push(c),
        }
    }
    line.push('\'');
}
