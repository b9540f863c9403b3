//! Quotes a line for a shell that reads it from a terminal: the shell gets exactly these bytes, and the terminal takes none for a key.

/// The longest line, in bytes.
pub const LINE_MAX_BYTES: usize = 32 << 10;
/// After this many bytes the typed text goes on in the next line: the kernel edits lines of 4096 bytes (N_TTY, termios(3)).
const TYPED_LINE_BYTES: usize = 1_000;

/// A line that cannot be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineTextError {
    /// It is empty.
    #[error("must not be empty")]
    Empty,
    /// It is too long.
    #[error("must have at most {LINE_MAX_BYTES} bytes")]
    TooLong,
    /// It has a NUL, which no shell reads.
    #[error("must not hold a NUL byte")]
    Nul,
}

/// A line that can be run.
///
/// # Errors
/// [`LineTextError`].
pub fn checked_line(line: &str) -> Result<&str, LineTextError> {
    match line {
        "" => Err(LineTextError::Empty),
        _ if line.len() > LINE_MAX_BYTES => Err(LineTextError::TooLong),
        _ if line.contains('\0') => Err(LineTextError::Nul),
        _ => Ok(line),
    }
}

/// How a shell is given quotes and control characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quoting {
    /// A control character as `$'\033'`.
    Dollar,
    /// A control character as `$(printf '\033')`, by a builtin.
    Printf,
    /// As fish reads it: a backslash escapes within quotes, and control characters are escapes outside of them. A newline is one, too:
    /// an editor would indent what comes behind it.
    Fish,
}

/// The line as one word of the shell.
pub(super) fn quote(quoting: Quoting, line: &str) -> String {
    let mut typed = String::with_capacity(line.len() + 64);
    typed.push('\'');
    let mut line_begin = 0;
    for character in line.chars() {
        match (character, quoting) {
            ('\'' | '\\', Quoting::Fish) => typed.extend(['\\', character]),
            ('\'', Quoting::Dollar | Quoting::Printf) => typed.push_str("'\\''"),
            ('\n', Quoting::Dollar | Quoting::Printf) => {
                typed.push('\n');
                line_begin = typed.len();
            }
            (control, quoting) if control.is_ascii_control() => {
                typed.push_str(&quoted_control(quoting, control));
            }
            (other, _) => typed.push(other),
        }
        if typed.len() - line_begin > TYPED_LINE_BYTES {
            typed.push_str("'\\\n'");
            line_begin = typed.len();
        }
    }
    typed.push('\'');
    typed
}

/// A control character within a quoted word.
fn quoted_control(quoting: Quoting, control: char) -> String {
    let code = u32::from(control);
    match quoting {
        Quoting::Dollar => format!("'$'\\{code:03o}''"),
        Quoting::Printf => format!("'\"$(printf '\\{code:03o}')\"'"),
        Quoting::Fish => format!("'\\x{code:02x}'"),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// What a shell makes of the quoted line.
    fn read_by(program: &str, quoting: Quoting, line: &str) -> Option<Vec<u8>> {
        let script = format!("printf %s {}", quote(quoting, line));
        let output = Command::new(program).args(["-c", &script]).output().ok()?;
        Some(output.stdout)
    }

    #[test]
    fn every_shell_reads_the_line_as_it_was() {
        let all: String = (1u8..=127).map(char::from).collect();
        let lines = [
            all.as_str(),
            "echo 'it'\"'s\" $HOME `x` \\ !! #",
            "a\n'b'\n\n\tc",
            &"é'\n\u{7f}€\\".repeat(900),
            &"x".repeat(5_000),
        ];
        let shells = [
            ("sh", Quoting::Printf),
            ("dash", Quoting::Printf),
            ("bash", Quoting::Dollar),
            ("zsh", Quoting::Dollar),
            ("mksh", Quoting::Dollar),
            ("fish", Quoting::Fish),
        ];
        for (program, quoting) in shells {
            for line in lines {
                // A shell that is not here is tested where it is; `sh` is everywhere.
                if let Some(read) = read_by(program, quoting, line) {
                    assert_eq!(String::from_utf8_lossy(&read), *line, "{program}");
                } else {
                    assert_ne!(program, "sh", "there is a shell");
                }
            }
        }
    }

    #[test]
    fn nothing_that_is_typed_is_a_key() {
        let all: String = (1u8..=127).map(char::from).collect();
        for quoting in [Quoting::Dollar, Quoting::Printf, Quoting::Fish] {
            let typed = quote(quoting, &all);
            assert!(typed.chars().all(|one| one == '\n' || !one.is_ascii_control()), "{typed:?}");
        }
    }

    #[test]
    fn a_line_that_no_shell_can_run_is_refused() {
        assert_eq!(checked_line(""), Err(LineTextError::Empty));
        assert_eq!(checked_line("a\0b"), Err(LineTextError::Nul));
        assert_eq!(checked_line(&"x".repeat(LINE_MAX_BYTES + 1)), Err(LineTextError::TooLong));
        assert_eq!(checked_line("x"), Ok("x"));
    }
}
