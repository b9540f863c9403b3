//! Escapes untrusted text (paths, variables, programs, rules, whole commands) for display, so that it can neither control
//! the terminal that shows it nor pass for something else.
//!
//! There is one function for each destination: a line, a page, a bounded sentence, JSON. Pure. JSON values are the same
//! after parsing.

use std::{borrow::Cow, fmt::Write, path::Path};

use crate::byte_text;

/// Whether a character is escaped: terminal controls (C0, DEL, C1), characters that change the writing direction or end a
/// line, characters without a width, and those that stand for a byte that is no UTF-8.
pub fn needs_escape(c: char) -> bool {
    c.is_control()
        || byte_text::stand_in(c).is_some()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Escapes for one line: line ends and tabs are escaped too.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, needs_escape)
}

/// Escapes for a page: line ends and tabs stay.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| needs_escape(c) && !matches!(c, '\n' | '\t'))
}

/// Escapes for a page of at most `max_bytes`. A truncated text ends with its original length.
pub fn bounded(text: &str, max_bytes: usize) -> Cow<'_, str> {
    if text.len() <= max_bytes && !text.chars().any(needs_escape) {
        return Cow::Borrowed(text);
    }
    // An escaped text is not shorter, so no more of the text than this can be shown.
    let shown = lines(truncate(text, max_bytes));
    if shown.len() <= max_bytes && text.len() <= max_bytes {
        return Cow::Owned(shown.into_owned());
    }
    let mark = format!("... ({} bytes)", text.len());
    Cow::Owned(format!("{}{mark}", truncate(&shown, max_bytes.saturating_sub(mark.len()))))
}

/// Escapes for one line of at most `max_bytes`. A truncated text ends with its original length.
pub fn bounded_line(text: &str, max_bytes: usize) -> Cow<'_, str> {
    match bounded(text, max_bytes) {
        shown if shown.contains(['\n', '\t']) => {
            // Each line end and tab was one byte and is longer now.
            let shown = line(&shown).into_owned();
            let mark = format!("... ({} bytes)", text.len());
            match shown.len() <= max_bytes {
                true => Cow::Owned(shown),
                false => {
                    Cow::Owned(format!("{}{mark}", truncate(&shown, max_bytes.saturating_sub(mark.len()))))
                }
            }
        }
        shown => shown,
    }
}

/// The words of a command on one line: quoted where a shell would not take them as they are.
pub fn command<'a>(words: impl IntoIterator<Item = &'a String>) -> String {
    let mut shown = String::new();
    for word in words {
        if !shown.is_empty() {
            shown.push(' ');
        }
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./:,@%+=".contains(&b);
        if !word.is_empty() && word.bytes().all(is_plain) {
            shown.push_str(word);
        } else {
            let _ = write!(shown, "'{}'", line(&word.replace('\'', "'\\''")));
        }
    }
    shown
}

/// The first `max_bytes` of a text, without a partial character.
pub fn truncate(text: &str, max_bytes: usize) -> &str {
    let end = (0..=max_bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

/// Escapes a path, which may not be UTF-8.
pub fn path(path: &Path) -> String {
    bytes(path.as_os_str().as_encoded_bytes())
}

/// Escapes bytes that may not be UTF-8. Bytes that are not are written as `\\xNN`.
pub fn bytes(text: &[u8]) -> String {
    let mut shown = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        shown.push_str(&line(chunk.valid()));
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// Escapes JSON. The values are the same after parsing.
pub fn json(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| byte < 0x7f) {
        return Cow::Borrowed(text);
    }
    // Outside of strings JSON has none of these characters except white space, which stays.
    let is_hidden = |c: char| needs_escape(c) && !c.is_ascii_control() || c == '\u{7f}';
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_hidden(c) {
            true => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                let _ = write!(shown, "\\u{unit:04x}");
            }),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// As [`json`], for an encoder's bytes.
pub fn json_bytes(encoded: Vec<u8>) -> Vec<u8> {
    match std::str::from_utf8(&encoded).map(json) {
        Ok(Cow::Owned(shown)) => shown.into_bytes(),
        Ok(Cow::Borrowed(_)) | Err(_) => encoded,
    }
}

fn escaped(text: &str, is_hidden: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match (is_hidden(c), byte_text::stand_in(c)) {
            (true, Some(byte)) => {
                let _ = write!(shown, "\\x{byte:02x}");
            }
            (true, None) => shown.extend(c.escape_debug()),
            (false, _) => shown.push(c),
        }
    }
    // A few of these are printed as they are by `escape_debug`: they have a shape in some language.
    match shown.contains(&is_hidden) {
        true => Cow::Owned(shown.chars().map(|c| unicode_escape(c, &is_hidden)).collect()),
        false => Cow::Owned(shown),
    }
}

fn unicode_escape(c: char, is_hidden: &impl Fn(char) -> bool) -> String {
    if is_hidden(c) { c.escape_unicode().to_string() } else { c.to_string() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOSTILE: &str = "a\u{1b}[31m\u{7f}\u{9b}2J\u{202e}cod\u{2066}\u{61c}\u{200e}\u{2028}\u{feff}\r\0z";

    #[test]
    fn what_drives_a_terminal_or_turns_a_line_is_written_out() {
        let shown = line(HOSTILE);
        assert_eq!(
            shown,
            "a\\u{1b}[31m\\u{7f}\\u{9b}2J\\u{202e}cod\\u{2066}\\u{61c}\\u{200e}\\u{2028}\\u{feff}\\r\\0z"
        );
        assert_eq!(line("größer 漢字 \u{1f980}"), "größer 漢字 \u{1f980}");
        assert_eq!(line("a\n\tb"), "a\\n\\tb");
        assert_eq!(lines("a\n\tb\r"), "a\n\tb\\r");
    }

    #[test]
    fn bytes_that_are_no_text_are_numbers() {
        assert_eq!(bytes(b"a\xff\xc3\x28\x1b"), "a\\xff\\xc3(\\u{1b}");
        assert_eq!(line(&byte_text::from_bytes(b"a\xff\x1b")), "a\\xff\\u{1b}");
    }

    #[test]
    fn what_is_cut_says_how_long_it_was() {
        assert_eq!(bounded("short", 16), "short");
        let cut = bounded(&"x".repeat(10_000), 100).into_owned();
        assert!(cut.len() <= 100 && cut.ends_with("... (10000 bytes)"), "{cut}");
        assert!(bounded(&"\u{1b}".repeat(40), 50).len() <= 50);
        assert_eq!(bounded_line("a\n\tb", 16), "a\\n\\tb");
        let cut = bounded_line(&"\n".repeat(60), 64).into_owned();
        assert!(cut.len() <= 64 && cut.ends_with("... (60 bytes)"), "{cut}");
    }

    proptest! {
        #[test]
        fn no_text_gets_through(text in ".*", max in 40_usize..200) {
            prop_assert!(!line(&text).chars().any(needs_escape));
            prop_assert!(lines(&text).chars().all(|c| !needs_escape(c) || matches!(c, '\n' | '\t')));
            prop_assert!(bounded(&text, max).len() <= max);
            let one_line = bounded_line(&text, max);
            prop_assert!(one_line.len() <= max && !one_line.chars().any(needs_escape));
        }

        #[test]
        fn json_comes_back_as_it_was(text in "[\u{0}-\u{ffff}]*", other in ".*") {
            let value = serde_json::json!({ "a": format!("{text}{HOSTILE}\u{e0001}"), &text: [other] });
            for encoded in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                let shown = json(&encoded);
                prop_assert!(shown.chars().all(|c| !needs_escape(c) || c == '\n'));
                prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value.clone());
            }
        }
    }
}
