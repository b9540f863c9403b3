//! What a command writes, as it goes to the person's own terminal: without what a terminal does elsewhere than on its screen.
//!
//! A terminal obeys the one who writes to it. Left out are the sequences with which a command could reach the person behind it: the
//! clipboard, notifications, images, files and printers; keys that are given another meaning; reports that repeat what the command wrote,
//! as if it had been typed. What draws, moves, names a window and asks for fixed answers passes unchanged. Of strings (OSC) only listed
//! ones pass, of others (DCS, SOS, PM, APC) none.
//!
//! The modes that a program has left the terminal in are put back at the end: only what was changed, so that nothing is written behind a
//! program that tidies up itself. Pure.

/// The longest control sequence; a longer one does not pass.
const CONTROL_MAX_BYTES: usize = 256;
/// The longest string.
const STRING_MAX_BYTES: usize = 4 << 10;
/// Strings that pass, by their number: titles, links, colours and their reset.
const PASSED_STRINGS: [u32; 26] = [
    0, 1, 2, 4, 5, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 104, 105, 110, 111, 112, 113, 114, 117, 118,
    119,
];
/// What a window may be asked (XTWINOPS): its size, and to keep its title and take it back.
const PASSED_WINDOW_REQUESTS: [u32; 5] = [14, 16, 18, 22, 23];

const ENQUIRY: u8 = 0x05;
const BELL: u8 = 0x07;
const CANCEL: u8 = 0x18;
const SUBSTITUTE: u8 = 0x1a;
const ESCAPE: u8 = 0x1b;
/// The first byte of the C1 characters U+0080 to U+009F in UTF-8.
const C1_LEAD: u8 = 0xc2;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Ground,
    /// After the first byte of what may be a C1 character.
    C1,
    Escape,
    /// After ESC and an intermediate byte.
    Intermediate,
    Control,
    /// In an operating system command (OSC).
    Command,
    /// In another string.
    Ignored,
    /// In a string, after the first byte of what may be a C1 character.
    StringC1(StringKind),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StringKind {
    Command,
    Ignored,
}

/// A command's output on its way to a person's terminal.
#[derive(Debug, Default)]
pub(in crate::cli) struct ShownOutput {
    state: State,
    /// A sequence so far, without ESC. It passes whole or not at all.
    sequence: Vec<u8>,
    modes: ShownModes,
}

impl ShownOutput {
    /// What is shown of the next bytes. A sequence that has begun is shown when it has ended.
    pub(in crate::cli) fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut shown = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            self.byte(byte, &mut shown);
        }
        shown
    }

    /// What puts the terminal back as the person's shell expects it. Nothing, if the program has done that itself.
    pub(in crate::cli) fn leave(&mut self) -> Vec<u8> {
        self.state = State::Ground;
        self.sequence.clear();
        std::mem::take(&mut self.modes).leave()
    }

    /// Whether the alternate screen is shown.
    pub(in crate::cli) fn is_alternate(&self) -> bool {
        self.modes.is_alternate()
    }

    fn byte(&mut self, byte: u8, shown: &mut Vec<u8>) {
        match (self.state, byte) {
            (State::Ground | State::C1, ESCAPE) => self.begin(State::Escape),
            (State::Ground, C1_LEAD) => self.state = State::C1,
            (State::Ground, ENQUIRY) => {}
            (State::Ground, _) => {
                self.modes.control(byte);
                shown.push(byte);
            }
            (State::C1, 0x80..=0x9f) => {
                self.begin(State::Escape);
                self.escape(byte - 0x40, shown);
            }
            (State::C1, 0xa0..=0xbf) => {
                self.state = State::Ground;
                shown.extend([C1_LEAD, byte]);
            }
            // Not UTF-8. Left in, the lead could make a control character with a byte behind what is left out.
            (State::C1, _) => {
                self.state = State::Ground;
                self.byte(byte, shown);
            }
            (State::Command, ESCAPE) => {
                self.end_command(shown);
                self.begin(State::Escape);
            }
            (State::StringC1(kind), _) => {
                let is_end = byte == 0x9c;
                match kind {
                    StringKind::Command if is_end => self.end_command(shown),
                    StringKind::Command => {
                        self.collect(C1_LEAD, STRING_MAX_BYTES);
                        self.state = State::Command;
                        self.byte(byte, shown);
                    }
                    StringKind::Ignored if is_end => self.state = State::Ground,
                    StringKind::Ignored => {
                        self.state = State::Ignored;
                        self.byte(byte, shown);
                    }
                }
            }
            (_, ESCAPE) => self.begin(State::Escape),
            (_, CANCEL | SUBSTITUTE) => self.state = State::Ground,
            (State::Command, BELL) => self.end_command(shown),
            (State::Command, C1_LEAD) => self.state = State::StringC1(StringKind::Command),
            (State::Command, 0x00..=0x1f | 0x7f) => {}
            (State::Command, _) => self.collect(byte, STRING_MAX_BYTES),
            (State::Ignored, BELL) => self.state = State::Ground,
            (State::Ignored, C1_LEAD) => self.state = State::StringC1(StringKind::Ignored),
            (State::Ignored, _) => {}
            // Done in the middle of a sequence.
            (_, 0x00..=0x1f) => {
                if byte != ENQUIRY {
                    shown.push(byte);
                }
            }
            (State::Escape, _) => self.escape(byte, shown),
            (State::Intermediate, 0x20..=0x2f) | (State::Control, 0x20..=0x3f) => {
                self.collect(byte, CONTROL_MAX_BYTES);
            }
            (State::Intermediate | State::Control, 0x40..=0x7e) | (State::Intermediate, 0x30..=0x3f) => {
                self.collect(byte, CONTROL_MAX_BYTES);
                self.end_sequence(shown);
            }
            (State::Intermediate | State::Control, _) => {}
        }
    }

    fn begin(&mut self, state: State) {
        self.state = state;
        self.sequence.clear();
    }

    fn collect(&mut self, byte: u8, limit: usize) {
        if self.sequence.len() <= limit {
            self.sequence.push(byte);
        }
    }

    fn escape(&mut self, byte: u8, shown: &mut Vec<u8>) {
        match byte {
            b']' => self.state = State::Command,
            b'P' | b'X' | b'^' | b'_' => self.state = State::Ignored,
            b'[' => {
                self.state = State::Control;
                self.sequence.push(byte);
            }
            0x20..=0x2f => {
                self.state = State::Intermediate;
                self.sequence.push(byte);
            }
            // The end of a string that has ended.
            b'\\' => self.state = State::Ground,
            0x30..=0x7e => {
                self.sequence.push(byte);
                self.end_sequence(shown);
            }
            _ => self.state = State::Ground,
        }
    }

    fn end_sequence(&mut self, shown: &mut Vec<u8>) {
        self.state = State::Ground;
        if self.sequence.len() <= CONTROL_MAX_BYTES && self.passes() {
            self.modes.sequence(&self.sequence);
            shown.push(ESCAPE);
            shown.append(&mut self.sequence);
        }
        self.sequence.clear();
    }

    /// Whether an escape or a control sequence passes.
    fn passes(&self) -> bool {
        let (last, before) =
            self.sequence.split_last().map_or((0, &[][..]), |(last, before)| (*last, before));
        let Some((b'[', parameters)) = before.split_first().map(|(first, rest)| (*first, rest)) else {
            // ESC % chooses another encoding of characters.
            return before.first() != Some(&b'%');
        };
        let has = |intermediate: u8| parameters.contains(&intermediate);
        match last {
            // Prints.
            b'i' => false,
            b't' => {
                let is_plain = parameters.iter().all(|byte| byte.is_ascii_digit() || *byte == b';');
                is_plain
                    && first_number(parameters).is_some_and(|number| PASSED_WINDOW_REQUESTS.contains(&number))
            }
            // Reports of what is on the screen, and of whole states.
            b'y' => !has(b'*'),
            b'w' | b'u' | b'}' | b'~' | b'|' => !has(b'$'),
            _ => true,
        }
    }

    fn end_command(&mut self, shown: &mut Vec<u8>) {
        self.state = State::Ground;
        let number = first_number(&self.sequence);
        let passes = number.is_some_and(|number| PASSED_STRINGS.contains(&number))
            && self.sequence.len() <= STRING_MAX_BYTES
            && std::str::from_utf8(&self.sequence).is_ok_and(|text| !text.chars().any(char::is_control));
        if passes {
            self.modes.command(number.unwrap_or_default());
            shown.extend([ESCAPE, b']']);
            shown.append(&mut self.sequence);
            shown.push(BELL);
        }
        self.sequence.clear();
    }
}

/// The number that parameters begin with.
fn first_number(parameters: &[u8]) -> Option<u32> {
    let end = parameters.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(parameters.len());
    std::str::from_utf8(&parameters[..end]).ok()?.parse().ok()
}

/// Private modes (DECSET) that are off in a usual terminal, and those that are on.
const PRIVATE_MODES: [(u16, Usual); 19] = [
    (1, Usual::Off),
    (5, Usual::Off),
    (6, Usual::Off),
    (7, Usual::On),
    (9, Usual::Off),
    (25, Usual::On),
    (66, Usual::Off),
    (69, Usual::Off),
    (1000, Usual::Off),
    (1002, Usual::Off),
    (1003, Usual::Off),
    (1004, Usual::Off),
    (1005, Usual::Off),
    (1006, Usual::Off),
    (1015, Usual::Off),
    (1016, Usual::Off),
    (2004, Usual::Off),
    (2026, Usual::Off),
    (2048, Usual::Off),
];
/// Modes of which terminals know that they show the alternate screen.
const ALTERNATE_SCREENS: [u16; 3] = [47, 1047, 1049];
/// Settings of a keyboard (kitty's protocol) that are taken back.
const MAX_KEYBOARDS: u16 = 16;

const SHIFT_OUT: u8 = 0x0e;
const SHIFT_IN: u8 = 0x0f;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Usual {
    Off,
    On,
}

/// What was changed and not changed back.
#[derive(Debug, Default)]
pub(in crate::cli) struct ShownModes {
    is_alternate: bool,
    /// By place in [`PRIVATE_MODES`].
    private: u32,
    inserts: bool,
    new_lines: bool,
    is_styled: bool,
    has_margins: bool,
    draws_lines: bool,
    is_shifted: bool,
    has_keypad: bool,
    has_cursor_style: bool,
    reports_other_keys: bool,
    has_keyboard: bool,
    keyboards: u16,
    has_tab_stops: bool,
    has_colours: bool,
}

impl ShownModes {
    /// A control character was shown.
    pub(super) fn control(&mut self, byte: u8) {
        match byte {
            SHIFT_OUT => self.is_shifted = true,
            SHIFT_IN => self.is_shifted = false,
            _ => {}
        }
    }

    /// A string (OSC) with this number was shown.
    pub(super) fn command(&mut self, number: u32) {
        match number {
            4 | 5 | 10..=19 => self.has_colours = true,
            _ => {}
        }
    }

    /// An escape or a control sequence was shown, given without ESC.
    pub(super) fn sequence(&mut self, sequence: &[u8]) {
        let Some((last, before)) = sequence.split_last() else { return };
        match (before, last) {
            ([b'[', parameters @ ..], _) => self.control_sequence(parameters, *last),
            ([], b'c') => *self = Self::default(),
            ([], b'=') => self.has_keypad = true,
            ([], b'>') => self.has_keypad = false,
            ([], b'H') => self.has_tab_stops = true,
            ([b'(' | b')' | b'*' | b'+', ..], b'B') => self.draws_lines = false,
            ([b'(' | b')' | b'*' | b'+' | b'-' | b'.' | b'/', ..], _) => self.draws_lines = true,
            ([], b'n' | b'o' | b'~' | b'}' | b'|') => self.is_shifted = true,
            _ => {}
        }
    }

    fn control_sequence(&mut self, parameters: &[u8], last: u8) {
        let (kind, numbers) = match parameters.split_first() {
            Some((kind @ b'<'..=b'?', rest)) => (*kind, rest),
            _ => (0, parameters),
        };
        let (numbers, intermediate) = match numbers.split_last() {
            Some((last @ 0x20..=0x2f, rest)) => (rest, *last),
            _ => (numbers, 0),
        };
        let is_nought = numbers.iter().all(|byte| matches!(byte, b'0' | b';'));
        let mut each = numbers.split(|byte| *byte == b';').map(number);
        match (kind, intermediate, last) {
            (b'?', 0, b'h' | b'l') => each.for_each(|mode| self.private_mode(mode, last == b'h')),
            (0, 0, b'h' | b'l') => each.for_each(|mode| match mode {
                4 => self.inserts = last == b'h',
                20 => self.new_lines = last == b'h',
                _ => {}
            }),
            (0, 0, b'm') => self.is_styled = !is_nought,
            (0, 0, b'r') => self.has_margins = !is_nought,
            (0, 0, b'g') => self.has_tab_stops = true,
            (b'?', 0, b'W') => self.has_tab_stops = false,
            (0, b' ', b'q') => self.has_cursor_style = !is_nought,
            (b'>', 0, b'm') if each.next() == Some(4) => {
                self.reports_other_keys = each.next().is_some_and(|level| level != 0);
            }
            (b'>', 0, b'u') => self.keyboards = (self.keyboards + 1).min(MAX_KEYBOARDS),
            (b'<', 0, b'u') => {
                self.keyboards = self.keyboards.saturating_sub(each.next().unwrap_or(1).max(1));
            }
            (b'=', 0, b'u') => self.has_keyboard = !is_nought,
            _ => {}
        }
    }

    fn private_mode(&mut self, mode: u16, is_on: bool) {
        if ALTERNATE_SCREENS.contains(&mode) {
            self.is_alternate = is_on;
        }
        let Some(place) = PRIVATE_MODES.iter().position(|(known, _)| *known == mode) else { return };
        let is_changed = is_on != (PRIVATE_MODES[place].1 == Usual::On);
        self.private = self.private & !(1 << place) | u32::from(is_changed) << place;
    }

    /// Whether the alternate screen is shown.
    pub(super) fn is_alternate(&self) -> bool {
        self.is_alternate
    }

    /// What puts back what was changed.
    pub(super) fn leave(&self) -> Vec<u8> {
        let mut leave = String::new();
        let mut put_back = |is_changed: bool, how: &str| leave.push_str(if is_changed { how } else { "" });
        // Each screen has its own.
        let keyboards = format!("\x1b[<{}u", self.keyboards);
        put_back(self.keyboards > 0, &keyboards);
        put_back(self.has_keyboard, "\x1b[=0u");
        put_back(self.is_alternate, "\x1b[?1049l");
        for (place, (mode, usual)) in PRIVATE_MODES.iter().enumerate() {
            let how = format!("\x1b[?{mode}{}", if *usual == Usual::On { 'h' } else { 'l' });
            put_back(self.private & 1 << place != 0, &how);
        }
        put_back(self.inserts, "\x1b[4l");
        put_back(self.new_lines, "\x1b[20l");
        put_back(self.is_styled, "\x1b[0m");
        put_back(self.draws_lines || self.is_shifted, "\x1b(B\x1b)B\x0f");
        put_back(self.has_keypad, "\x1b>");
        put_back(self.has_cursor_style, "\x1b[0 q");
        put_back(self.reports_other_keys, "\x1b[>4m");
        put_back(self.has_colours, "\x1b]104\x07\x1b]110\x07\x1b]111\x07\x1b]112\x07");
        // These move the cursor.
        put_back(self.has_margins, "\x1b7\x1b[r\x1b8");
        put_back(self.has_tab_stops, &usual_tab_stops());
        leave.into_bytes()
    }
}

fn number(digits: &[u8]) -> u16 {
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Every eighth column, in a window of any width.
fn usual_tab_stops() -> String {
    let stops = (9..=1000).step_by(8).map(|column| format!("\x1b[{column}G\x1bH"));
    ["\x1b7\x1b[3g".to_owned(), stops.collect(), "\x1b8".to_owned()].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn passed(bytes: &[u8]) -> Vec<u8> {
        let whole = ShownOutput::default().pass(bytes);
        let mut one_by_one = ShownOutput::default();
        let pieces: Vec<u8> = bytes.iter().flat_map(|byte| one_by_one.pass(&[*byte])).collect();
        assert_eq!(whole, pieces, "pieces make no difference");
        whole
    }

    #[test]
    fn what_reaches_beyond_the_screen_is_left_out() {
        for hostile in [
            // The clipboard, set and asked for.
            &b"\x1b]52;c;cm0gLXJmIH4K\x07"[..],
            b"\x1b]52;c;?\x1b\\",
            b"\x1b]0052;c;YQ==\x07",
            b"\xc2\x9d52;c;YQ==\xc2\x9c",
            b"\x1b]52\x05;c;YQ==\x07",
            // Reports that repeat what was written: the title, a request, a setting, the answer to ENQ, the screen.
            b"\x1b[21t",
            b"\x1b[20t",
            b"\xc2\x9b21t",
            b"\x1b[021;1t",
            b"\x1bP$qm;rm -rf ~\n\x1b\\",
            b"\x1bP+q544e\x1b\\",
            b"\x05",
            b"\x1b[1;1;1;1;24;80*y",
            b"\x1b[1$w",
            // Keys with another meaning, printers, files, windows, notifications, a shell's marks, other encodings.
            b"\x1bP0;1|17/6c73\x1b\\",
            b"\x1b[5i",
            b"\x1b[?5i",
            b"\x1b_Gf=100,t=f;L2V0Yy9wYXNzd2Q=\x1b\\",
            b"\x1b]1337;File=name=eA==:YQ==\x07",
            b"\x1b]777;notify;a;b\x07",
            b"\x1b]9;text\x07",
            b"\x1b]50;font\x07",
            b"\x1b]7;file:///etc\x07",
            b"\x1b]633;E;rm\x07",
            b"\x1b[3;0;0t",
            b"\x1b[>2t",
            b"\x1b%@",
            b"\x1b^message\x1b\\",
            b"\x1bXstring\x1b\\",
        ] {
            assert_eq!(passed(hostile), b"", "{:?}", String::from_utf8_lossy(hostile));
        }
        assert_eq!(passed(b"a\x1bP$q\x1b[31mred\x1b\\b"), b"a\x1b[31mredb");
        assert_eq!(passed(&[&b"\x1b]0;"[..], &b"x".repeat(100_000), b"\x07y"].concat()), b"y");
        assert_eq!(passed(&[&b"\x1b["[..], &b"1;".repeat(10_000), b"my"].concat()), b"y");
        // A title that would control its reader.
        assert_eq!(passed("\x1b]0;a\u{9b}31mb\x07".as_bytes()), b"");
    }

    #[test]
    fn what_programs_draw_with_passes_unchanged() {
        for drawn in [
            &b"plain text\r\n\ttabs\x08\x07\x0e\x0f\x0b\x0c"[..],
            b"\x1b[1;31;48;5;20mcolour\x1b[0m\x1b[?1049h\x1b[?25l\x1b[10;20H\x1b[2J\x1b[K\x1b[4:3m\x1b[38:2::1:2:3m",
            b"\x1b7\x1b8\x1bM\x1bD\x1bE\x1bc\x1b=\x1b>\x1b(0lqk\x1b(B\x1b)0\x1b#8\x1bH",
            b"\x1b[6n\x1b[c\x1b[>c\x1b[=c\x1b[>q\x1b[?1;2$p\x1b[18t\x1b[22;0;0t\x1b[23;0;0t\x1b[>4;2m\x1b[?u\x1b[>1u\x1b[<u",
            b"\x1b[2 q\x1b[!p\x1b[?2004h\x1b[?2026h\x1b[?2026l\x1b[5b\x1b[3J\x1b[2;5r\x1b[2'}x",
            b"\x1b]0;title\x07\x1b]8;;http://x\x07link\x1b]8;;\x07\x1b]11;?\x07\x1b]4;1;rgb:00/11/22\x07",
            "日本語 emoji 👍🏽 e\u{301} ñ £ ¢".as_bytes(),
            b"\xff\xfe\x9b31m\xc3(",
        ] {
            assert_eq!(String::from_utf8_lossy(&passed(drawn)), String::from_utf8_lossy(drawn));
        }
        assert_eq!(passed(b"\x1b]2;title\x1b\\x"), b"\x1b]2;title\x07x", "with another end");
    }

    fn left(shown: &[&str]) -> String {
        let mut output = ShownOutput::default();
        shown.iter().for_each(|bytes| drop(output.pass(bytes.as_bytes())));
        let leave = output.leave();
        assert_eq!(output.leave(), b"", "once is enough");
        String::from_utf8(leave).unwrap()
    }

    #[test]
    fn the_alternate_screen_is_left_however_it_was_entered() {
        for (shown, is_alternate) in [
            (&["text\x1b[?1049h"][..], true),
            (&["\x1b[?1049h", "text", "\x1b[?1049l"], false),
            (&["\x1b", "[", "?10", "49", "h"], true),
            (&["\x1b[?25;1047h"], true),
            (&["\x1b[?47h\x1b[?47", "l"], false),
            (&["\x1b[?10490h\x1b[1049h\x1b\x1b[31m"], false),
            (&["\x1b\x1b[?1049h"], true),
            (&["\u{9b}?1049h"], true),
        ] {
            assert_eq!(left(shown).contains("\x1b[?1049l"), is_alternate, "{shown:?}");
        }
    }

    #[test]
    fn what_a_program_changed_is_put_back_and_nothing_else() {
        for (shown, leave) in [
            ("text", ""),
            (
                "\x1b[31mred\x1b[0m\x1b[?25l\x1b[?25h\x1b[?7l\x1b[?7h\x1b(0\x1b(B\x0e\x0f\x1b=\x1b>\x1b[2;3r\x1b[r",
                "",
            ),
            ("\x1b[>4;2m\x1b[>4;0m\x1b[>1u\x1b[<u\x1b[4 q\x1b[0 q\x1b[=1u\x1b[=0u\x1b[4h\x1b[4l", ""),
            ("\x1b[1;31mred", "\x1b[0m"),
            ("\x1b[?1;1002;1006;2004h\x1b[?25l", "\x1b[?1l\x1b[?25h\x1b[?1002l\x1b[?1006l\x1b[?2004l"),
            ("\x1b[?6h\x1b[?7l", "\x1b[?6l\x1b[?7h"),
            ("\x1b[2;5r", "\x1b7\x1b[r\x1b8"),
            ("\x1b(0qqq", "\x1b(B\x1b)B\x0f"),
            ("\x1b)0\x0eqqq", "\x1b(B\x1b)B\x0f"),
            ("\x1b[>4;2m\x1b[>1u\x1b[>5u", "\x1b[<2u\x1b[>4m"),
            ("\x1b=\x1b[6 q\x1b[20h", "\x1b[20l\x1b>\x1b[0 q"),
            ("\x1b]11;#ff0000\x07", "\x1b]104\x07\x1b]110\x07\x1b]111\x07\x1b]112\x07"),
            ("\x1b[31m\x1b[?1000h\x1b=\x1bc", ""),
        ] {
            assert_eq!(left(&[shown]), leave, "{shown:?}");
        }
        let stops = left(&["\x1b[3g"]);
        assert!(stops.starts_with("\x1b7\x1b[3g\x1b[9G\x1bH") && stops.ends_with("\x1b8"), "{stops:?}");
        assert_eq!(left(&["\x1b[?1049h\x1b[?1006h"]), "\x1b[?1049l\x1b[?1006l");
    }

    proptest! {
        #[test]
        fn only_sequences_that_pass_are_ever_shown(
            bytes in prop::collection::vec(prop_oneof![
                any::<u8>(), Just(0x1b), Just(b']'), Just(b'['), Just(b'5'), Just(b'2'), Just(b';'), Just(0x07), Just(0xc2),
                Just(0x9d), Just(0x9b), Just(b'P'), Just(b'\\'),
            ], 0..300),
        ) {
            let shown = passed(&bytes);
            // Who reads it again finds nothing to leave out.
            prop_assert_eq!(&passed(&shown), &shown);
            prop_assert!(!shown.windows(4).any(|four| four == b"\x1b]52"));
        }
    }
}
