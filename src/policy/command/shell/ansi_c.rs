//! Strings in `$'...'`, as bash(1) describes them under QUOTING.
//!
//! Only escapes whose meaning depends neither on the locale nor on the shell's version are undone.

use std::{iter::Peekable, str::Chars};

/// The text of what stands between the quotes. None: a NUL, a control escape, a character that is none everywhere.
pub(super) fn decode(text: &str) -> Option<String> {
    let mut value = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            value.push(c);
            continue;
        }
        if chars.peek()?.is_digit(8) {
            value.push(ascii(number(&mut chars, 8, 3)?)?);
            continue;
        }
        let escaped = match chars.next()? {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'e' | 'E' => '\u{1b}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            c @ ('\\' | '\'' | '"' | '?') => c,
            'x' => ascii(number(&mut chars, 16, 2)?)?,
            'u' => ascii(number(&mut chars, 16, 4)?)?,
            'U' => ascii(number(&mut chars, 16, 8)?)?,
            'c' => return None,
            other => {
                value.push('\\');
                other
            }
        };
        value.push(escaped);
    }
    Some(value)
}

fn number(chars: &mut Peekable<Chars<'_>>, radix: u32, most_digits: usize) -> Option<u32> {
    let mut value = None;
    for _ in 0..most_digits {
        let Some(digit) = chars.peek().and_then(|c| c.to_digit(radix)) else { break };
        chars.next();
        value = Some(value.unwrap_or(0) * radix + digit);
    }
    value
}

/// A character by its number. A byte beyond ASCII is half a character, and a character beyond it depends on the
/// locale: not worth guessing.
fn ascii(number: u32) -> Option<char> {
    char::from_u32(number).filter(|c| c.is_ascii() && *c != '\0')
}
