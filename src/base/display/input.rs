//! Input that a viewer gives, and the bytes that it becomes.

use super::{
    keys::{self, Key, Modifiers, UnknownKey},
    mode::Modes,
    mouse::{self, MouseError, MouseEvent},
    size::ScreenSize,
};

/// Input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// As if typed: a line's end is the Enter key.
    Text(String),
    /// A key.
    Key(Key, Modifiers),
    /// As if pasted: bracketed, if the program asked for that.
    Paste(String),
    /// An event of the mouse.
    Mouse(MouseEvent),
    /// The window got or lost the focus.
    Focus(bool),
    /// Bytes as they are.
    Raw(Vec<u8>),
}

/// Why input becomes no bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// There is no such key.
    #[error(transparent)]
    Key(#[from] UnknownKey),
    /// The mouse sends nothing.
    #[error(transparent)]
    Mouse(#[from] MouseError),
    /// The program did not ask for the focus.
    #[error("the program has not asked for the focus")]
    FocusNotWanted,
}

impl Input {
    /// The bytes in these modes.
    ///
    /// # Errors
    /// [`InputError`].
    pub fn encode(&self, modes: Modes, size: ScreenSize) -> Result<Vec<u8>, InputError> {
        Ok(match self {
            Self::Text(text) => with_returns(text).into_bytes(),
            Self::Key(key, held) => keys::encode(*key, *held, modes)?,
            Self::Paste(text) => paste(text, modes),
            Self::Mouse(event) => mouse::encode(event, modes, size)?,
            Self::Focus(_) if !modes.contains(Modes::FOCUS_EVENTS) => return Err(InputError::FocusNotWanted),
            Self::Focus(true) => b"\x1b[I".to_vec(),
            Self::Focus(false) => b"\x1b[O".to_vec(),
            Self::Raw(bytes) => bytes.clone(),
        })
    }
}

/// A pasted text cannot end its brackets: escapes and the other control characters but tabs and line ends are left out.
fn paste(text: &str, modes: Modes) -> Vec<u8> {
    let kept: String = text.chars().filter(|c| !c.is_control() || matches!(c, '\t' | '\n' | '\r')).collect();
    let kept = with_returns(&kept);
    match modes.contains(Modes::BRACKETED_PASTE) {
        true => format!("\x1b[200~{kept}\x1b[201~").into_bytes(),
        false => kept.into_bytes(),
    }
}

fn with_returns(text: &str) -> String {
    text.replace("\r\n", "\r").replace('\n', "\r")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(input: Input, modes: Modes) -> Result<Vec<u8>, InputError> {
        input.encode(modes, ScreenSize::new(80, 24).unwrap())
    }

    #[test]
    fn a_paste_cannot_leave_its_brackets() {
        let hostile = Input::Paste("a\x1b[201~rm -rf /\n\u{9b}201~\x03".into());
        assert_eq!(
            bytes(hostile.clone(), Modes::BRACKETED_PASTE).unwrap(),
            b"\x1b[200~a[201~rm -rf /\r201~\x1b[201~"
        );
        assert_eq!(bytes(hostile, Modes::default()).unwrap(), b"a[201~rm -rf /\r201~");
    }

    #[test]
    fn text_ends_lines_as_the_enter_key_does_and_raw_bytes_stay_as_they_are() {
        assert_eq!(bytes(Input::Text("a\r\nb\nc".into()), Modes::default()).unwrap(), b"a\rb\rc");
        assert_eq!(bytes(Input::Raw(b"a\n\x1b".to_vec()), Modes::default()).unwrap(), b"a\n\x1b");
        assert_eq!(bytes(Input::Focus(true), Modes::default()), Err(InputError::FocusNotWanted));
        assert_eq!(bytes(Input::Focus(true), Modes::FOCUS_EVENTS).unwrap(), b"\x1b[I");
    }
}
