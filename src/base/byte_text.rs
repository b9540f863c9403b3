//! Texts that stand for any bytes: what a caller or the kernel names need not be UTF-8, and rules, records and messages are text.
//!
//! A byte that is no part of a character is written as a stand-in, one of the last 128 characters of Unicode, which are private. A
//! character that is a stand-in itself is written as its bytes. So every text of valid UTF-8 without stand-ins is its own, each sequence
//! of bytes has exactly one text, and texts are the same where the bytes are the same. Pure.

use std::{
    borrow::Cow,
    ffi::{OsStr, OsString},
    fmt::Write,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// What is added to a byte from 0x80 on to get its stand-in.
const BASE: u32 = 0x10_ff00;
/// The first byte of every stand-in in UTF-8: where it is not, there is none.
const FIRST_BYTE: u8 = 0xf4;

/// The byte that a character stands for.
pub fn stand_in(c: char) -> Option<u8> {
    (c as u32).checked_sub(BASE).and_then(|byte| u8::try_from(byte).ok()).filter(|byte| *byte >= 0x80)
}

/// The text of bytes.
pub fn from_bytes(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes)
        && !may_hold_stand_ins(text)
    {
        return text.to_owned();
    }
    let mut text = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match stand_in(c) {
                None => text.push(c),
                Some(_) => push_stand_ins(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        push_stand_ins(&mut text, chunk.invalid());
    }
    text
}

/// The text of a string that a caller has sent.
pub fn from_string(text: String) -> String {
    if may_hold_stand_ins(&text) { from_bytes(text.as_bytes()) } else { text }
}

/// The text of a path.
pub fn from_path(path: &Path) -> String {
    from_bytes(path.as_os_str().as_bytes())
}

/// The bytes of a text.
pub fn to_bytes(text: &str) -> Cow<'_, [u8]> {
    if !may_hold_stand_ins(text) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match stand_in(c) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(bytes)
}

/// The path of a text.
pub fn to_path(text: &str) -> Cow<'_, Path> {
    match to_bytes(text) {
        Cow::Borrowed(bytes) => Cow::Borrowed(Path::new(OsStr::from_bytes(bytes))),
        Cow::Owned(bytes) => Cow::Owned(PathBuf::from(OsString::from_vec(bytes))),
    }
}

/// How many bytes a text stands for.
pub fn len(text: &str) -> usize {
    if may_hold_stand_ins(text) { to_bytes(text).len() } else { text.len() }
}

/// A text for people and programs that read it: each stand-in as the number of its byte, `\xNN`. All else is as it was.
pub fn shown(text: &str) -> Cow<'_, str> {
    if !may_hold_stand_ins(text) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match stand_in(c) {
            Some(byte) => {
                let _ = write!(shown, "\\x{byte:02x}");
            }
            None => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

fn may_hold_stand_ins(text: &str) -> bool {
    text.as_bytes().contains(&FIRST_BYTE)
}

fn push_stand_ins(text: &mut String, bytes: &[u8]) {
    text.extend(bytes.iter().filter_map(|byte| char::from_u32(BASE + u32::from(*byte))));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_is_its_own_and_what_is_none_is_shown_by_number() {
        for text in ["", "größer 漢字 \u{1f980}", "a\0b\n", "\u{10fe80}\u{100000}"] {
            assert_eq!(from_bytes(text.as_bytes()), text);
            assert_eq!(to_bytes(text), text.as_bytes());
            assert_eq!(shown(text), text);
        }
        let text = from_bytes(b"caf\xe9");
        assert_eq!((shown(&text).as_ref(), len(&text)), ("caf\\xe9", 4));
        assert_eq!(
            to_path(&from_path(Path::new(OsStr::from_bytes(b"/\xff")))).as_os_str().as_bytes(),
            b"/\xff"
        );
    }

    #[test]
    fn a_stand_in_that_was_sent_is_no_byte() {
        let sent = "\u{10ffe9}".to_owned();
        let text = from_string(sent.clone());
        assert_ne!(text, sent);
        assert_eq!(to_bytes(&text), sent.as_bytes());
    }

    proptest! {
        #[test]
        fn all_bytes_come_back_and_each_has_one_text(
            bytes in prop::collection::vec(any::<u8>(), 0..40), more in ".*", private in "[\u{10ff00}-\u{10ffff}]{0,3}",
        ) {
            let bytes = [more.as_bytes(), private.as_bytes(), &bytes].concat();
            let text = from_bytes(&bytes);
            prop_assert_eq!(&*to_bytes(&text), &bytes[..]);
            prop_assert_eq!(len(&text), bytes.len());
            prop_assert!(shown(&text).chars().all(|c| stand_in(c).is_none()));
            // A slash, a NUL and a dot are never made or lost.
            for byte in [b'/', b'\0', b'.', b'='] {
                let count = |bytes: &[u8]| bytes.iter().filter(|other| **other == byte).count();
                prop_assert_eq!(count(text.as_bytes()), count(&bytes));
            }
        }
    }
}
