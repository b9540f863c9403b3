//! The bytes that keys send, as xterm sends them, in the terminal's current mode. Kitty's keyboard protocol is not offered.

use super::mode::Modes;

/// Modifiers that are held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Modifiers {
    /// Shift.
    pub shift: bool,
    /// Alt.
    pub alt: bool,
    /// Control.
    pub control: bool,
}

impl Modifiers {
    /// As xterm numbers them: 1 for none.
    fn parameter(self) -> u8 {
        1 + u8::from(self.shift) + 2 * u8::from(self.alt) + 4 * u8::from(self.control)
    }

    fn any(self) -> bool {
        self != Self::default()
    }
}

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// A character, with Shift already in it.
    Character(char),
    /// Return.
    Enter,
    /// Tab; with Shift backwards.
    Tab,
    /// Backspace: DEL, with Control BS.
    Backspace,
    /// Escape.
    Escape,
    /// Cursor up.
    Up,
    /// Cursor down.
    Down,
    /// Cursor right.
    Right,
    /// Cursor left.
    Left,
    /// Start of line.
    Home,
    /// End of line.
    End,
    /// Insert.
    Insert,
    /// Delete.
    Delete,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// F1 to F20.
    Function(u8),
    /// A key of the keypad, by what it shows: a digit or one of `+-*/.,=` and Enter as `\r`.
    Keypad(char),
}

/// A key that sends nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no terminal has this key")]
pub struct UnknownKey;

const ESCAPE: u8 = 0x1b;

/// The bytes of a key.
///
/// # Errors
/// [`UnknownKey`]: a function key above F20, or a keypad key that does not exist.
pub fn encode(key: Key, held: Modifiers, modes: Modes) -> Result<Vec<u8>, UnknownKey> {
    Ok(match key {
        Key::Character(character) => with_alt(held, character_bytes(character, held)),
        Key::Enter if modes.contains(Modes::NEW_LINE) => with_alt(held, b"\r\n".to_vec()),
        Key::Enter => with_alt(held, b"\r".to_vec()),
        Key::Tab if held.shift => with_alt(held, b"\x1b[Z".to_vec()),
        Key::Tab => with_alt(held, b"\t".to_vec()),
        Key::Backspace if held.control => with_alt(held, vec![0x08]),
        Key::Backspace => with_alt(held, vec![0x7f]),
        Key::Escape => with_alt(held, vec![ESCAPE]),
        Key::Up => cursor(b'A', held, modes),
        Key::Down => cursor(b'B', held, modes),
        Key::Right => cursor(b'C', held, modes),
        Key::Left => cursor(b'D', held, modes),
        Key::Home => cursor(b'H', held, modes),
        Key::End => cursor(b'F', held, modes),
        Key::Insert => numbered(2, held),
        Key::Delete => numbered(3, held),
        Key::PageUp => numbered(5, held),
        Key::PageDown => numbered(6, held),
        Key::Function(number) => function(number, held)?,
        Key::Keypad(shown) => keypad(shown, held, modes)?,
    })
}

fn with_alt(held: Modifiers, bytes: Vec<u8>) -> Vec<u8> {
    if held.alt { [&[ESCAPE], &bytes[..]].concat() } else { bytes }
}

fn character_bytes(character: char, held: Modifiers) -> Vec<u8> {
    let controlled = match character {
        _ if !held.control => None,
        'a'..='z' | 'A'..='Z' | '[' | '\\' | ']' | '^' | '_' | '@' => Some(character as u8 & 0x1f),
        ' ' | '2' => Some(0),
        '3'..='7' => Some(character as u8 - b'3' + ESCAPE),
        '8' | '?' => Some(0x7f),
        '/' | '-' => Some(0x1f),
        _ => None,
    };
    match controlled {
        Some(byte) => vec![byte],
        None => character.to_string().into_bytes(),
    }
}

fn cursor(last: u8, held: Modifiers, modes: Modes) -> Vec<u8> {
    match (held.any(), modes.contains(Modes::APPLICATION_CURSOR)) {
        (true, _) => format!("\x1b[1;{}{}", held.parameter(), last as char).into_bytes(),
        (false, true) => vec![ESCAPE, b'O', last],
        (false, false) => vec![ESCAPE, b'[', last],
    }
}

fn numbered(number: u8, held: Modifiers) -> Vec<u8> {
    match held.any() {
        true => format!("\x1b[{number};{}~", held.parameter()).into_bytes(),
        false => format!("\x1b[{number}~").into_bytes(),
    }
}

fn function(number: u8, held: Modifiers) -> Result<Vec<u8>, UnknownKey> {
    const NUMBERS: [u8; 16] = [15, 17, 18, 19, 20, 21, 23, 24, 25, 26, 28, 29, 31, 32, 33, 34];
    match number {
        1..=4 => {
            let last = (b'P' + number - 1) as char;
            Ok(match held.any() {
                true => format!("\x1b[1;{}{last}", held.parameter()).into_bytes(),
                false => format!("\x1bO{last}").into_bytes(),
            })
        }
        5..=20 => Ok(numbered(NUMBERS[usize::from(number) - 5], held)),
        _ => Err(UnknownKey),
    }
}

fn keypad(shown: char, held: Modifiers, modes: Modes) -> Result<Vec<u8>, UnknownKey> {
    let code = match shown {
        '0'..='9' => b'p' + (shown as u8 - b'0'),
        '*' => b'j',
        '+' => b'k',
        ',' => b'l',
        '-' => b'm',
        '.' => b'n',
        '/' => b'o',
        '=' => b'X',
        '\r' => b'M',
        _ => return Err(UnknownKey),
    };
    if modes.contains(Modes::APPLICATION_KEYPAD) {
        return Ok(vec![ESCAPE, b'O', code]);
    }
    Ok(with_alt(held, vec![shown as u8]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Modifiers = Modifiers { shift: false, alt: false, control: false };
    const CONTROL: Modifiers = Modifiers { control: true, ..NONE };
    const ALT: Modifiers = Modifiers { alt: true, ..NONE };

    fn sent(key: Key, held: Modifiers, modes: Modes) -> String {
        String::from_utf8(encode(key, held, modes).unwrap()).unwrap()
    }

    #[test]
    fn cursor_keys_follow_the_mode_unless_a_modifier_is_held() {
        let plain = Modes::default();
        assert_eq!(sent(Key::Up, NONE, plain), "\x1b[A");
        assert_eq!(sent(Key::Up, NONE, Modes::APPLICATION_CURSOR), "\x1bOA");
        assert_eq!(sent(Key::Home, CONTROL, Modes::APPLICATION_CURSOR), "\x1b[1;5H");
        assert_eq!(sent(Key::Left, Modifiers { shift: true, alt: true, control: true }, plain), "\x1b[1;8D");
    }

    #[test]
    fn characters_with_control_and_alt_are_what_xterm_sends() {
        let plain = Modes::default();
        assert_eq!(encode(Key::Character('c'), CONTROL, plain), Ok(vec![3]));
        assert_eq!(encode(Key::Character(' '), CONTROL, plain), Ok(vec![0]));
        assert_eq!(encode(Key::Character('['), CONTROL, plain), Ok(vec![0x1b]));
        assert_eq!(encode(Key::Character('5'), CONTROL, plain), Ok(vec![0x1d]));
        assert_eq!(sent(Key::Character('x'), ALT, plain), "\x1bx");
        assert_eq!(sent(Key::Character('\u{65e5}'), NONE, plain), "日");
        assert_eq!(encode(Key::Backspace, NONE, plain), Ok(vec![0x7f]));
    }

    #[test]
    fn function_and_keypad_keys_have_the_sequences_of_xterm() {
        let plain = Modes::default();
        assert_eq!(sent(Key::Function(1), NONE, plain), "\x1bOP");
        assert_eq!(sent(Key::Function(4), CONTROL, plain), "\x1b[1;5S");
        assert_eq!(sent(Key::Function(12), NONE, plain), "\x1b[24~");
        assert_eq!(sent(Key::PageDown, ALT, plain), "\x1b[6;3~");
        assert_eq!(encode(Key::Function(21), NONE, plain), Err(UnknownKey));
        assert_eq!(sent(Key::Keypad('5'), NONE, plain), "5");
        assert_eq!(sent(Key::Keypad('5'), NONE, Modes::APPLICATION_KEYPAD), "\x1bOu");
        assert_eq!(encode(Key::Keypad('x'), NONE, plain), Err(UnknownKey));
        assert_eq!(sent(Key::Enter, NONE, Modes::NEW_LINE), "\r\n");
        assert_eq!(sent(Key::Tab, Modifiers { shift: true, ..NONE }, plain), "\x1b[Z");
    }
}
