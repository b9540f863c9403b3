//! Takes out of a terminal's output what would make the emulator's memory grow without bound, before it is emulated.
//!
//! The emulator keeps a string of any length until it ends, and a link for each cell. Of the strings only titles come
//! through, up to a length: of the others the emulator knows links and the clipboard, which a screen does not have.
//! Synchronized updates, for which the parser keeps megabytes, do not come through. A character is repeated so often that
//! it fills a row, for eight bytes could ask for 65,535 of them. Everything else passes unchanged.
//! The output is cut before each change of a mode, so that the emulator can look at a screen before another is shown.

use crate::display::{picture::MAX_TITLE_BYTES, size::MAX_COLUMNS};

/// Bytes of a title's sequence in front of the title.
const TITLE_PREFIX_BYTES: usize = 2;
/// Titles that are kept for the program (CSI 22 t), each of which takes memory.
const MAX_KEPT_TITLES: u32 = 16;
/// Bytes of a control sequence; a longer one does not come through, and no program writes it.
const MAX_CONTROL_BYTES: usize = 256;
/// How often a character is repeated (REP): once for each column of the widest screen. Programs fill a row with it at most.
const MAX_REPEATS: u32 = MAX_COLUMNS as u32;
/// The mode of synchronized updates.
const SYNCHRONIZED: u32 = 2026;

const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;
const CANCEL: u8 = 0x18;
const SUBSTITUTE: u8 = 0x1a;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ground,
    Escape,
    /// An escape sequence with intermediate bytes.
    Intermediate,
    /// A control sequence.
    Control,
    /// An operating system command (OSC).
    Command,
    /// Another string (DCS, SOS, PM, APC): it does not come through.
    Ignored,
}

/// The state between the pieces of an output.
#[derive(Debug)]
pub(super) struct Sieve {
    state: State,
    /// A sequence so far, or a command that may be a title. Sequences come through whole or not at all.
    sequence: Vec<u8>,
    is_title: bool,
    kept_titles: u32,
    /// A change of a mode, which starts the next part.
    mode_change: Vec<u8>,
}

impl Sieve {
    pub(super) fn new() -> Self {
        Self {
            state: State::Ground,
            sequence: Vec::new(),
            is_title: false,
            kept_titles: 0,
            mode_change: Vec::new(),
        }
    }

    /// Appends what comes through to `out`, up to the next change of a mode. Returns how many bytes were taken; the rest is to
    /// be passed in the next call.
    pub(super) fn pass(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> usize {
        out.append(&mut self.mode_change);
        let mut taken = 0;
        while let Some(byte) = bytes.get(taken) {
            if self.state == State::Ground {
                let rest = &bytes[taken..];
                let plain = memchr::memchr(ESCAPE, rest).unwrap_or(rest.len());
                if plain > 0 {
                    out.extend_from_slice(&rest[..plain]);
                    taken += plain;
                    continue;
                }
            }
            taken += 1;
            self.byte(*byte, out);
            if !self.mode_change.is_empty() {
                break;
            }
        }
        taken
    }

    /// Whether a change of a mode comes through with the next call.
    pub(super) fn has_mode_change(&self) -> bool {
        !self.mode_change.is_empty()
    }

    fn byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        match (self.state, byte) {
            (State::Ground, ESCAPE) => self.state = State::Escape,
            (State::Ground, _) => out.push(byte),
            (State::Command, ESCAPE) => {
                self.end_command(out);
                self.state = State::Escape;
            }
            (_, ESCAPE) => self.state = State::Escape,
            (_, CANCEL | SUBSTITUTE) => self.state = State::Ground,
            (State::Ignored, _) => {}
            (State::Command, _) => self.command(byte, out),
            // Executed in the middle of a sequence.
            (_, 0x00..=0x1f) => out.push(byte),
            (State::Escape, _) => self.escape(byte, out),
            (State::Intermediate, 0x20..=0x2f) | (State::Control, 0x20..=0x3f) => self.collect(byte),
            (State::Intermediate, 0x30..=0x7e) => self.end_sequence(byte, out),
            (State::Control, 0x40..=0x7e) => self.end_control(byte, out),
            (State::Intermediate | State::Control, _) => {}
        }
    }

    fn escape(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.sequence.clear();
        match byte {
            b']' => {
                self.is_title = true;
                self.state = State::Command;
            }
            b'P' | b'X' | b'^' | b'_' => self.state = State::Ignored,
            // The end of a string.
            b'\\' => self.state = State::Ground,
            b'[' => {
                self.sequence.push(byte);
                self.state = State::Control;
            }
            0x20..=0x2f => {
                self.sequence.push(byte);
                self.state = State::Intermediate;
            }
            b'c' => {
                self.kept_titles = 0;
                self.state = State::Ground;
                // It shows the primary screen.
                self.mode_change = vec![ESCAPE, byte];
            }
            0x30..=0x7e => self.end_sequence(byte, out),
            _ => {}
        }
    }

    fn collect(&mut self, byte: u8) {
        if self.sequence.len() <= MAX_CONTROL_BYTES {
            self.sequence.push(byte);
        }
    }

    fn end_sequence(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.state = State::Ground;
        if self.sequence.len() <= MAX_CONTROL_BYTES {
            out.push(ESCAPE);
            out.append(&mut self.sequence);
            out.push(byte);
        }
    }

    fn end_control(&mut self, byte: u8, out: &mut Vec<u8>) {
        let is_private = self.sequence.get(1) == Some(&b'?');
        match byte {
            b't' if !self.may_keep_title() => self.state = State::Ground,
            b'h' | b'l' if is_private && self.has_number(SYNCHRONIZED) => self.state = State::Ground,
            b'h' | b'l' => {
                let mut change = Vec::new();
                self.end_sequence(byte, &mut change);
                self.mode_change = change;
            }
            b'b' if self
                .numbers()
                .next()
                .is_some_and(|count| count.is_none_or(|count| count > MAX_REPEATS)) =>
            {
                self.sequence = format!("[{MAX_REPEATS}").into_bytes();
                self.end_sequence(byte, out);
            }
            _ => self.end_sequence(byte, out),
        }
    }

    fn has_number(&self, number: u32) -> bool {
        self.numbers().any(|each| each == Some(number))
    }

    fn numbers(&self) -> impl Iterator<Item = Option<u32>> {
        self.sequence
            .split(|byte| !byte.is_ascii_digit())
            .filter(|digits| !digits.is_empty())
            .map(|digits| std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()))
    }

    fn may_keep_title(&mut self) -> bool {
        let first = self.numbers().next().flatten();
        match first {
            Some(22) if self.kept_titles >= MAX_KEPT_TITLES => return false,
            Some(22) => self.kept_titles += 1,
            Some(23) => self.kept_titles = self.kept_titles.saturating_sub(1),
            Some(_) | None => {}
        }
        true
    }

    fn command(&mut self, byte: u8, out: &mut Vec<u8>) {
        match byte {
            BELL => {
                self.end_command(out);
                self.state = State::Ground;
            }
            0x00..=0x1f => {}
            _ if !self.is_title => {}
            _ => {
                self.sequence.push(byte);
                self.is_title = match self.sequence.len() {
                    1 => matches!(byte, b'0' | b'2'),
                    TITLE_PREFIX_BYTES => byte == b';',
                    length => length <= MAX_TITLE_BYTES + TITLE_PREFIX_BYTES,
                };
            }
        }
    }

    fn end_command(&mut self, out: &mut Vec<u8>) {
        if self.is_title && self.sequence.len() >= TITLE_PREFIX_BYTES {
            out.extend([ESCAPE, b']']);
            out.append(&mut self.sequence);
            out.push(BELL);
        }
        self.sequence.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn passed(pieces: &[&[u8]]) -> Vec<u8> {
        let (mut sieve, mut out) = (Sieve::new(), Vec::new());
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                let taken = sieve.pass(rest, &mut out);
                rest = &rest[taken..];
            }
        }
        sieve.pass(b"", &mut out);
        out
    }

    fn text(input: &str) -> String {
        String::from_utf8(passed(&[input.as_bytes()])).unwrap()
    }

    #[test]
    fn titles_come_through_and_no_other_string() {
        assert_eq!(text("a\x1b]0;one\x07b\x1b]2;two\x1b\\c"), "a\x1b]0;one\x07b\x1b]2;two\x07c");
        assert_eq!(text("a\x1b]8;;http://x\x07b\x1b]52;c;YQ==\x1b\\c\x1b]07;x\x07d"), "abcd");
        assert_eq!(text("a\x1bPq#0\x07;1\x1b\\b\x1b_x\x1b\\c\x1b^y\x18d\x1bXz\x1b[31me"), "abcd\x1b[31me");
        let long = format!("\x1b]0;{}\x07x", "y".repeat(100_000));
        assert_eq!(text(&long), "x");
    }

    #[test]
    fn an_output_is_cut_before_a_change_of_a_mode() {
        let (mut sieve, mut out) = (Sieve::new(), Vec::new());
        let output = b"abc\x1b[?1049hdef";
        assert_eq!((sieve.pass(output, &mut out), &out[..]), (11, &b"abc"[..]));
        out.clear();
        assert_eq!((sieve.pass(&output[11..], &mut out), &out[..]), (3, &b"\x1b[?1049hdef"[..]));
    }

    #[test]
    fn synchronized_updates_and_sequences_without_an_end_do_not_come_through() {
        assert_eq!(text("a\x1b[?2026hb\x1b[?02026;25hc\x1b[?2026ld"), "abcd");
        assert_eq!(text(&format!("a\x1b[{}mb", "1;".repeat(1000))), "ab");
        assert_eq!(text("a\x1b(\x1b]8;;x\x07bc\x1b\u{e9}0d"), "abc\x1b0d");
    }

    #[test]
    fn only_some_titles_are_kept() {
        let kept = passed(&["\x1b[22;0t".repeat(100).as_bytes()]);
        assert_eq!(kept.len(), MAX_KEPT_TITLES as usize * "\x1b[22;0t".len());
    }

    #[test]
    fn a_character_is_not_repeated_without_bound() {
        assert_eq!(
            text("a\x1b[79bb\x1b[65535bc\x1b[99999999999999999999b"),
            "a\x1b[79bb\x1b[1000bc\x1b[1000b"
        );
    }

    #[test]
    fn what_programs_write_passes_unchanged() {
        for sample in [
            "plain text\r\n\ttabs\x08\x07",
            "\x1b[1;31;48;5;20mcolour\x1b[0m\x1b[?1049h\x1b[?25l\x1b[10;20H\x1b[2J\x1b[K",
            "\x1b7\x1b8\x1bM\x1bD\x1bE\x1bc\x1b=\x1b>\x1b(0lqk\x1b(B\x1b)0\x0e\x0f\x1b#8",
            "\x1b[!p\x1b[?2004h\x1b[>c\x1b[6n\x1b[2 q\x1b[4:3m\x1b[38:2::1:2:3m",
            "日本語 emoji 👍🏽 e\u{301} ñ",
        ] {
            assert_eq!(text(sample), sample);
        }
    }

    proptest! {
        #[test]
        fn it_makes_no_difference_where_an_output_is_cut(
            bytes in prop::collection::vec(prop_oneof![
                any::<u8>(), Just(0x1b), Just(b']'), Just(b'['), Just(b';'), Just(b'0'), Just(0x07), Just(0xcc), Just(0x81),
            ], 0..200),
            cut in 1_usize..20,
        ) {
            let pieces: Vec<&[u8]> = bytes.chunks(cut).collect();
            prop_assert_eq!(passed(&pieces), passed(&[&bytes]));
        }
    }
}
