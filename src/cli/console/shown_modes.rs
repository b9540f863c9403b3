//! The modes that a program has left the person's terminal in, and what puts it back.
//!
//! Only what was changed is put back, so that nothing is written behind a program that tidies up itself. Pure.

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
