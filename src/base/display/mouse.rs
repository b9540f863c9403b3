//! The bytes that the mouse sends, as xterm sends them, if the program asked for them.

use super::{keys::Modifiers, mode::Modes, size::ScreenSize};

/// A button.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Button {
    /// None: only motion.
    None,
    /// Left.
    Left,
    /// Middle.
    Middle,
    /// Right.
    Right,
    /// The wheel, away from the user.
    WheelUp,
    /// The wheel, towards the user.
    WheelDown,
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The button was pressed.
    Press,
    /// The button was released.
    Release,
    /// The mouse was moved, with the button held.
    Move,
}

/// An event of the mouse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MouseEvent {
    /// Which button.
    pub button: Button,
    /// What was done with it.
    pub action: Action,
    /// From 0.
    pub column: u16,
    /// From 0.
    pub row: u16,
    /// Modifiers that are held.
    pub held: Modifiers,
}

/// Why the mouse sends nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MouseError {
    /// The program did not ask for it.
    #[error("the program has not asked for this event of the mouse")]
    NotWanted,
    /// The position is not on the screen, or cannot be said in the program's mode.
    #[error("the position is not on the screen, or cannot be said in the program's mode")]
    Position,
    /// There is no such event.
    #[error("the mouse has no such event")]
    NoEvent,
}

/// The bytes of an event.
///
/// # Errors
/// [`MouseError`].
pub fn encode(event: &MouseEvent, modes: Modes, size: ScreenSize) -> Result<Vec<u8>, MouseError> {
    if event.column >= size.columns() || event.row >= size.rows() {
        return Err(MouseError::Position);
    }
    let is_wheel = matches!(event.button, Button::WheelUp | Button::WheelDown);
    let is_wanted = match (event.action, event.button) {
        (Action::Press | Action::Release, Button::None) => return Err(MouseError::NoEvent),
        (Action::Release | Action::Move, _) if is_wheel => return Err(MouseError::NoEvent),
        (Action::Press | Action::Release, _) => modes.reports_mouse(),
        (Action::Move, Button::None) => modes.contains(Modes::MOUSE_MOTION),
        (Action::Move, _) => modes.contains(Modes::MOUSE_MOTION) || modes.contains(Modes::MOUSE_DRAGS),
    };
    if !is_wanted {
        return Err(MouseError::NotWanted);
    }
    let is_sgr = modes.contains(Modes::SGR_MOUSE);
    let mut code: u8 = match event.button {
        // Without decimal reports a release does not say which button.
        _ if event.action == Action::Release && !is_sgr => 3,
        Button::Left => 0,
        Button::Middle => 1,
        Button::Right => 2,
        Button::None => 3,
        Button::WheelUp => 64,
        Button::WheelDown => 65,
    };
    code += if event.action == Action::Move { 32 } else { 0 };
    code += 4 * u8::from(event.held.shift) + 8 * u8::from(event.held.alt) + 16 * u8::from(event.held.control);
    let (column, row) = (u32::from(event.column) + 1, u32::from(event.row) + 1);
    if is_sgr {
        let last = if event.action == Action::Release { 'm' } else { 'M' };
        return Ok(format!("\x1b[<{code};{column};{row}{last}").into_bytes());
    }
    let mut bytes = b"\x1b[M".to_vec();
    for value in [u32::from(code), column, row] {
        let value = value + 32;
        if modes.contains(Modes::UTF8_MOUSE) {
            let character = char::from_u32(value).filter(|_| value < 2048).ok_or(MouseError::Position)?;
            bytes.extend(character.to_string().bytes());
        } else {
            bytes.push(u8::try_from(value).map_err(|_| MouseError::Position)?);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mouse_sends_what_the_program_asked_for_and_nothing_else() {
        let size = ScreenSize::new(300, 50).unwrap();
        let press = MouseEvent {
            button: Button::Left,
            action: Action::Press,
            column: 4,
            row: 2,
            held: Modifiers::default(),
        };
        let drag = MouseEvent { action: Action::Move, ..press };
        let release = MouseEvent { action: Action::Release, ..press };
        assert_eq!(encode(&press, Modes::default(), size), Err(MouseError::NotWanted));
        assert_eq!(encode(&drag, Modes::MOUSE_CLICKS, size), Err(MouseError::NotWanted));
        assert_eq!(encode(&press, Modes::MOUSE_CLICKS, size).unwrap(), b"\x1b[M \x25\x23");
        assert_eq!(encode(&release, Modes::MOUSE_CLICKS, size).unwrap(), b"\x1b[M#\x25\x23");
        let decimal = Modes(Modes::MOUSE_DRAGS.0 | Modes::SGR_MOUSE.0);
        assert_eq!(encode(&drag, decimal, size).unwrap(), b"\x1b[<32;5;3M");
        assert_eq!(encode(&release, decimal, size).unwrap(), b"\x1b[<0;5;3m");
        let far = MouseEvent { column: 299, ..press };
        assert_eq!(encode(&far, Modes::MOUSE_CLICKS, size), Err(MouseError::Position));
        assert_eq!(encode(&far, decimal, size).unwrap(), b"\x1b[<0;300;3M");
        let outside = MouseEvent { row: 50, ..press };
        assert_eq!(encode(&outside, decimal, size), Err(MouseError::Position));
        let wheel = MouseEvent { button: Button::WheelDown, action: Action::Release, ..press };
        assert_eq!(encode(&wheel, decimal, size), Err(MouseError::NoEvent));
    }
}
