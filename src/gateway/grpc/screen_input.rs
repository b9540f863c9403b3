//! Parses input for a terminal, and how often a watcher wants to hear.

use std::time::Duration;

use super::request::FieldError;
use crate::{
    display::{
        input::Input,
        keys::{Key, Modifiers},
        mouse::{Action, Button, MouseEvent},
    },
    proto::v1::{
        KeyPress, MouseAction, MouseButton, MouseInput, NamedKey, TerminalInput, key_press,
        terminal_input::Input as Sent,
    },
};

/// Inputs of one request.
const INPUTS_MAX: usize = 64;
/// Bytes of text, pastes and raw input in one request.
const INPUT_BYTES_MAX: usize = 64 << 10;
/// Messages a second that a watcher may have.
const RATE_MAX: u32 = 30;

fn error(field: String, problem: impl ToString) -> FieldError {
    FieldError { field, problem: problem.to_string() }
}

/// The time between two messages.
pub(super) fn interval(max_per_second: u32) -> Result<Duration, FieldError> {
    match max_per_second {
        0 => Ok(Duration::from_secs(1) / RATE_MAX),
        1..=RATE_MAX => Ok(Duration::from_secs(1) / max_per_second),
        _ => Err(error("max_per_second".into(), format!("must be at most {RATE_MAX}"))),
    }
}

/// The inputs of a request.
pub(super) fn inputs(sent: Vec<TerminalInput>) -> Result<Vec<Input>, FieldError> {
    if sent.is_empty() || sent.len() > INPUTS_MAX {
        return Err(error("inputs".into(), format!("must be 1 to {INPUTS_MAX}")));
    }
    let bytes: usize = sent.iter().map(bytes_of).sum();
    if bytes > INPUT_BYTES_MAX {
        return Err(error("inputs".into(), format!("must have at most {INPUT_BYTES_MAX} bytes in all")));
    }
    sent.into_iter().enumerate().map(|(index, input)| one(&format!("inputs[{index}]"), input)).collect()
}

/// Whether input is the same in every mode of a terminal.
pub(super) fn is_independent_of_modes(input: &Input) -> bool {
    match input {
        Input::Text(_) | Input::Raw(_) => true,
        Input::Key(key, _) => matches!(
            key,
            Key::Character(_)
                | Key::Tab
                | Key::Backspace
                | Key::Escape
                | Key::Insert
                | Key::Delete
                | Key::PageUp
                | Key::PageDown
                | Key::Function(_)
        ),
        Input::Paste(_) | Input::Mouse(_) | Input::Focus(_) => false,
    }
}

fn bytes_of(input: &TerminalInput) -> usize {
    match &input.input {
        Some(Sent::Text(text) | Sent::Paste(text)) => text.len(),
        Some(Sent::Raw(bytes)) => bytes.len(),
        Some(Sent::Key(_) | Sent::Mouse(_) | Sent::Focus(_)) | None => 0,
    }
}

fn one(field: &str, input: TerminalInput) -> Result<Input, FieldError> {
    Ok(match input.input {
        None => return Err(error(field.into(), "must be one of the inputs")),
        Some(Sent::Text(text)) => Input::Text(text),
        Some(Sent::Paste(text)) => Input::Paste(text),
        Some(Sent::Raw(bytes)) => Input::Raw(bytes.to_vec()),
        Some(Sent::Focus(has_focus)) => Input::Focus(has_focus),
        Some(Sent::Key(press)) => {
            let held = Modifiers { shift: press.shift, alt: press.alt, control: press.control };
            Input::Key(key(field, press)?, held)
        }
        Some(Sent::Mouse(event)) => Input::Mouse(mouse(field, &event)?),
    })
}

fn key(field: &str, press: KeyPress) -> Result<Key, FieldError> {
    match press.key {
        Some(key_press::Key::Character(text)) => match single(&text) {
            Some(character) if !character.is_control() => Ok(Key::Character(character)),
            Some(_) | None => {
                Err(error(format!("{field}.key.character"), "must be one character that is shown"))
            }
        },
        Some(key_press::Key::Function(number)) => match u8::try_from(number) {
            Ok(number @ 1..=20) => Ok(Key::Function(number)),
            Ok(_) | Err(_) => Err(error(format!("{field}.key.function"), "must be 1 to 20")),
        },
        Some(key_press::Key::Keypad(text)) => match single(&text) {
            Some(shown @ ('0'..='9' | '+' | '-' | '*' | '/' | '.' | ',' | '=')) => Ok(Key::Keypad(shown)),
            Some(_) | None => Err(error(format!("{field}.key.keypad"), "must be a key of the keypad")),
        },
        Some(key_press::Key::Named(named)) => named_key(named)
            .ok_or_else(|| error(format!("{field}.key.named"), "must be one of the named keys")),
        None => Err(error(format!("{field}.key"), "must be a key")),
    }
}

fn single(text: &str) -> Option<char> {
    let mut characters = text.chars();
    characters.next().filter(|_| characters.next().is_none())
}

fn named_key(named: i32) -> Option<Key> {
    Some(match NamedKey::try_from(named).ok()? {
        NamedKey::Unspecified => return None,
        NamedKey::Enter => Key::Enter,
        NamedKey::Tab => Key::Tab,
        NamedKey::Backspace => Key::Backspace,
        NamedKey::Escape => Key::Escape,
        NamedKey::Up => Key::Up,
        NamedKey::Down => Key::Down,
        NamedKey::Right => Key::Right,
        NamedKey::Left => Key::Left,
        NamedKey::Home => Key::Home,
        NamedKey::End => Key::End,
        NamedKey::Insert => Key::Insert,
        NamedKey::Delete => Key::Delete,
        NamedKey::PageUp => Key::PageUp,
        NamedKey::PageDown => Key::PageDown,
    })
}

fn mouse(field: &str, event: &MouseInput) -> Result<MouseEvent, FieldError> {
    let button = match MouseButton::try_from(event.button) {
        Ok(MouseButton::Unspecified) => Button::None,
        Ok(MouseButton::Left) => Button::Left,
        Ok(MouseButton::Middle) => Button::Middle,
        Ok(MouseButton::Right) => Button::Right,
        Ok(MouseButton::WheelUp) => Button::WheelUp,
        Ok(MouseButton::WheelDown) => Button::WheelDown,
        Err(_) => return Err(error(format!("{field}.mouse.button"), "must be a button")),
    };
    let action = match MouseAction::try_from(event.action) {
        Ok(MouseAction::Press) => Action::Press,
        Ok(MouseAction::Release) => Action::Release,
        Ok(MouseAction::Move) => Action::Move,
        Ok(MouseAction::Unspecified) | Err(_) => {
            return Err(error(format!("{field}.mouse.action"), "must be press, release or move"));
        }
    };
    let narrow = |value: u32, name: &str| {
        u16::try_from(value).map_err(|_| error(format!("{field}.mouse.{name}"), "must be on the screen"))
    };
    Ok(MouseEvent {
        button,
        action,
        column: narrow(event.column, "column")?,
        row: narrow(event.row, "row")?,
        held: Modifiers { shift: event.shift, alt: event.alt, control: event.control },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::display::{mode::Modes, size::ScreenSize};

    fn field<T>(parsed: Result<T, FieldError>) -> String {
        parsed.err().map(|error| error.field).unwrap_or_default()
    }

    #[test]
    fn a_watcher_has_as_many_messages_a_second_as_it_wants_and_thirty_at_most() {
        for (rate, milliseconds) in [(1, 1_000), (4, 250), (20, 50)] {
            assert_eq!(interval(rate), Ok(Duration::from_millis(milliseconds)));
        }
        assert_eq!(interval(0), interval(30));
        assert_eq!(interval(30), Ok(Duration::from_nanos(33_333_333)));
        assert_eq!(field(interval(31)), "max_per_second");
    }

    #[test]
    fn inputs_are_bounded_by_number_and_bytes_in_all() {
        let many = |number, input: Sent| field(inputs(vec![TerminalInput { input: Some(input) }; number]));
        assert_eq!(many(0, Sent::Focus(true)), "inputs");
        assert_eq!(many(64, Sent::Focus(true)), "");
        assert_eq!(many(65, Sent::Focus(true)), "inputs");
        let kinds: [fn(usize) -> Sent; 3] = [
            |bytes| Sent::Text("t".repeat(bytes)),
            |bytes| Sent::Paste("p".repeat(bytes)),
            |bytes| Sent::Raw(vec![0; bytes].into()),
        ];
        for of in kinds {
            assert_eq!(many(2, of(32_768)), "");
            assert_eq!(many(1, of(65_537)), "inputs");
            assert_eq!(many(2, of(32_769)), "inputs");
        }
        assert_eq!(field(inputs(vec![TerminalInput { input: None }])), "inputs[0]");
    }

    #[test]
    fn keys_are_one_character_that_is_shown_or_have_a_name_or_a_number() {
        use key_press::Key as Pressed;
        let parsed = |pressed| key("in", KeyPress { key: Some(pressed), ..KeyPress::default() });
        for shown in ['a', ' ', 'é', '日'] {
            assert_eq!(parsed(Pressed::Character(shown.to_string())), Ok(Key::Character(shown)));
        }
        for wrong in ["", "ab", "\u{1b}", "\n", "\u{9b}"] {
            assert_eq!(field(parsed(Pressed::Character(wrong.into()))), "in.key.character", "{wrong:?}");
        }
        for number in [1, 20] {
            assert_eq!(parsed(Pressed::Function(number)), Ok(Key::Function(number as u8)));
        }
        for wrong in [0, 21, 257] {
            assert_eq!(field(parsed(Pressed::Function(wrong))), "in.key.function", "{wrong}");
        }
        assert_eq!(parsed(Pressed::Keypad("5".into())), Ok(Key::Keypad('5')));
        for wrong in ["", "55", "a"] {
            assert_eq!(field(parsed(Pressed::Keypad(wrong.into()))), "in.key.keypad", "{wrong:?}");
        }
        assert_eq!(parsed(Pressed::Named(NamedKey::PageUp.into())), Ok(Key::PageUp));
        assert_eq!(field(parsed(Pressed::Named(0))), "in.key.named");
        assert_eq!(field(key("in", KeyPress::default())), "in.key");
    }

    #[test]
    fn what_is_said_to_be_independent_of_modes_is_the_same_in_each() {
        let keys = |keys: &[Key]| {
            let of = |key: &Key| Input::Key(*key, Modifiers::default());
            keys.iter().map(of).collect::<Vec<_>>()
        };
        let mut independent = keys(&[
            Key::Character('c'),
            Key::Tab,
            Key::Backspace,
            Key::Escape,
            Key::Insert,
            Key::Delete,
            Key::PageUp,
            Key::PageDown,
            Key::Function(1),
            Key::Function(20),
        ]);
        independent.extend([Input::Text("a\n".into()), Input::Raw(vec![27])]);
        let size = ScreenSize::new(80, 24).unwrap();
        let bytes = |input: &Input, bit: u32| input.encode(Modes(bit), size).ok();
        for input in &independent {
            assert!(is_independent_of_modes(input), "{input:?}");
            for bit in 0..14 {
                assert_eq!(bytes(input, 1 << bit), bytes(input, 0), "{input:?} in mode {bit}");
            }
        }
        let mut dependent = keys(&[
            Key::Enter,
            Key::Up,
            Key::Down,
            Key::Right,
            Key::Left,
            Key::Home,
            Key::End,
            Key::Keypad('5'),
        ]);
        dependent.extend([Input::Paste("p".into()), Input::Focus(true)]);
        for input in &dependent {
            assert!(!is_independent_of_modes(input), "{input:?}");
            assert!((0..14).any(|bit| bytes(input, 1 << bit) != bytes(input, 0)), "{input:?}");
        }
    }
}
