//! The text in the output of a pseudo-terminal, without what drives a terminal. Pure.
//!
//! Takes control sequences (ECMA-48) out of a stream of bytes, in pieces of any size: escape, control and string sequences, in
//! their 7-bit form and as C1 characters of UTF-8, and every control character but tab and line feed. It is no screen: what a
//! program has written over stays.

/// Where in a sequence the stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Text,
    /// After ESC.
    Escape,
    /// After ESC and an intermediate byte.
    Intermediate,
    /// In a control sequence, until its final byte.
    Control,
    /// In a string (OSC, DCS, SOS, PM, APC), until ST or BEL.
    String,
    /// In a string, after ESC.
    StringEscape,
    /// In a string, after the first byte of a C1 character.
    StringC1,
    /// After the first byte of what may be a C1 character.
    C1,
    /// In text, after a carriage return.
    Return,
}

/// Takes control sequences out of a stream.
#[derive(Debug)]
pub struct PlainText(State);

const ESC: u8 = 0x1b;
const BEL: u8 = 0x07;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;
/// The first byte of the C1 characters U+0080 to U+009F in UTF-8.
const C1_LEAD: u8 = 0xc2;

impl Default for PlainText {
    fn default() -> Self {
        Self(State::Text)
    }
}

impl PlainText {
    /// The text in the next bytes of the stream. A carriage return that does not belong to a line's end ends a line, too.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            self.0 = self.next(byte, &mut text);
        }
        text
    }

    fn next(&self, byte: u8, text: &mut Vec<u8>) -> State {
        match (self.0, byte) {
            (State::Return, b'\n') | (State::Text, b'\n' | b'\t') => {
                text.push(byte);
                State::Text
            }
            // Programs begin a line again with any number of them.
            (State::Return, b'\r') => State::Return,
            (State::Return, byte) if byte != ESC && byte >= 0x20 => {
                text.push(b'\n');
                Self(State::Text).next(byte, text)
            }
            (State::Return | State::Text, ESC) => State::Escape,
            (State::Text, b'\r') => State::Return,
            (State::Text, C1_LEAD) => State::C1,
            (State::Text, 0x20..=0x7e | 0x80..) => {
                text.push(byte);
                State::Text
            }
            (State::Text | State::Return, _) => State::Text,
            (State::C1, 0x9b) => State::Control,
            (State::C1, 0x90 | 0x98 | 0x9d..=0x9f) => State::String,
            (State::C1, 0x80..=0x9f) => State::Text,
            (State::C1, 0xa0..=0xbf) => {
                text.extend([C1_LEAD, byte]);
                State::Text
            }
            // Not UTF-8. Left in, the lead could make a control character with a byte behind a sequence.
            (State::C1, byte) => Self(State::Text).next(byte, text),
            // They end every sequence.
            (_, CAN | SUB) => State::Text,
            (State::Escape, b'[') => State::Control,
            (State::Escape, b']' | b'P' | b'X' | b'^' | b'_') => State::String,
            (State::Escape, 0x20..=0x2f) | (State::Intermediate, 0x20..=0x2f) => State::Intermediate,
            (State::Escape | State::Intermediate | State::Control, ESC) => State::Escape,
            (State::Escape | State::Intermediate, _) => State::Text,
            (State::Control, 0x40..=0x7e) => State::Text,
            (State::Control, _) => State::Control,
            (State::String, BEL) => State::Text,
            (State::String, ESC) => State::StringEscape,
            (State::String, C1_LEAD) => State::StringC1,
            (State::String, _) => State::String,
            (State::StringC1, 0x9c) => State::Text,
            (State::StringC1, byte) => Self(State::String).next(byte, text),
            (State::StringEscape, b'\\') => State::Text,
            // Another sequence begins.
            (State::StringEscape, byte) => Self(State::Escape).next(byte, text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(bytes: &[u8]) -> String {
        let whole = PlainText::default().take(bytes);
        let mut one_by_one = PlainText::default();
        let pieces: Vec<u8> = bytes.iter().flat_map(|byte| one_by_one.take(&[*byte])).collect();
        assert_eq!(whole, pieces, "pieces make no difference");
        String::from_utf8_lossy(&whole).into_owned()
    }

    #[test]
    fn what_drives_a_terminal_is_taken_out() {
        for (bytes, text) in [
            (&b"\xc2\x1b[m\x9b31m"[..], "\u{fffd}31m"),
            (&b"plain\tline\r\nnext\n"[..], "plain\tline\nnext\n"),
            (b"\x1b[1;31mred\x1b[0m \x1b[?25l\x1b[2J\x1b[10;5Hhere", "red here"),
            (b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x1bPq#0\x1b\\c", "abc"),
            (b"\x1b(B\x1b)0\x1b=\x1b>\x1bMx\x1b7\x1b8", "x"),
            ("\u{9b}31mred\u{9d}0;title\u{9c}é ü\u{85}".as_bytes(), "redé ü"),
            (b"10%\r20%\r\r\ndone\x08\x00\x07", "10%\n20%\ndone"),
            // A sequence that another one cuts short, and one that is cancelled.
            (b"\x1b[12\x1b[1mx\x1b]0;t\x18y", "xy"),
            ("日本語 🦀".as_bytes(), "日本語 🦀"),
        ] {
            assert_eq!(plain(bytes), text, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn no_control_is_ever_left() {
        let mut state = 12_345_u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Many escapes, brackets and leads.
            [0x1b, b'[', b']', 0xc2, 0x9b, (state >> 24) as u8, (state >> 16) as u8]
                [(state >> 8) as usize % 7]
        };
        let bytes: Vec<u8> = (0..100_000).map(|_| random()).collect();
        let text = plain(&bytes);
        let left = text.chars().find(|one| one.is_control() && !matches!(one, '\n' | '\t'));
        assert_eq!(left, None);
    }
}
