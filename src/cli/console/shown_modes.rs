//! The modes that a program has left the person's terminal in, and what puts it back when the person leaves the program.
//!
//! Reads only the sequences that switch to the alternate screen and back. Pure.

/// Modes of which terminals know that they show the alternate screen.
const ALTERNATE_SCREENS: [&[u8]; 3] = [b"47", b"1047", b"1049"];
/// The longest sequence that is read.
const SEQUENCE_MAX_BYTES: usize = 64;
/// Ends what programs ask a terminal for: application keys, mouse, focus, bracketed paste, a hidden cursor, a style.
const USUAL: &[u8] = b"\x1b[0m\x1b[?1l\x1b>\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1006l\x1b[?2004l\x1b[r\x1b[?25h\x1b[0 q";

/// What was shown so far.
#[derive(Debug, Default)]
pub(in crate::cli) struct ShownModes {
    is_alternate: bool,
    /// The end of what was shown, if it may be the beginning of a sequence.
    begun: Vec<u8>,
}

impl ShownModes {
    /// These bytes go to the terminal.
    pub(in crate::cli) fn show(&mut self, bytes: &[u8]) {
        self.begun.extend_from_slice(bytes);
        let all = std::mem::take(&mut self.begun);
        let mut at = 0;
        while let Some(next) = all[at..].iter().position(|byte| *byte == 0x1b) {
            let start = at + next;
            let Some(end) = self.read(&all[start..]) else {
                self.begun = all[start..].to_vec();
                return;
            };
            at = start + end;
        }
    }

    /// Reads what begins with ESC. Returns how much of it that was; `None`: more must come.
    fn read(&mut self, sequence: &[u8]) -> Option<usize> {
        let introducer = sequence.len().min(3);
        if sequence[..introducer] != b"\x1b[?"[..introducer] {
            return Some(1);
        }
        let parameters = sequence.get(3..)?;
        let ends = |byte: &u8| !matches!(byte, b'0'..=b'9' | b';');
        let Some(length) = parameters.iter().position(ends) else {
            return (sequence.len() > SEQUENCE_MAX_BYTES).then_some(1);
        };
        let is_screen = parameters[..length]
            .split(|byte| *byte == b';')
            .any(|parameter| ALTERNATE_SCREENS.contains(&parameter));
        match parameters[length] {
            b'h' if is_screen => self.is_alternate = true,
            b'l' if is_screen => self.is_alternate = false,
            _ => {}
        }
        Some(3 + length)
    }

    /// What makes the terminal usable for the person's shell.
    pub(in crate::cli) fn leave(&self) -> Vec<u8> {
        let screen: &[u8] = if self.is_alternate { b"\x1b[?1049l" } else { b"\r\n" };
        [USUAL, screen].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            let mut modes = ShownModes::default();
            shown.iter().for_each(|bytes| modes.show(bytes.as_bytes()));
            assert_eq!(modes.is_alternate, is_alternate, "{shown:?}");
        }
        let mut modes = ShownModes::default();
        modes.show(&b"\x1b[?1;".repeat(10_000));
        modes.show(&[&b"\x1b[?"[..], &b"1".repeat(100_000)].concat());
        assert!(modes.begun.len() <= SEQUENCE_MAX_BYTES, "{}", modes.begun.len());
    }
}
