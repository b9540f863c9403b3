//! Parses the first line of a script as the kernel does (fs/binfmt_script.c; execve(2), "Interpreter scripts").
//!
//! Pure. Returns `None` where the kernel would refuse the line, or where it is not UTF-8.

/// The kernel reads no more of a file (BINPRM_BUF_SIZE, since Linux 5.1).
pub const MAX_SHEBANG_BYTES: usize = 256;

/// The interpreter of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shebang {
    /// The interpreter's path, as written.
    pub path: String,
    /// The rest of the line, as one argument.
    pub argument: Option<String>,
}

/// Parses the beginning of a file, of which at most [`MAX_SHEBANG_BYTES`] bytes are looked at.
pub fn parse(beginning: &[u8]) -> Option<Shebang> {
    let (is_blank, ends_a_word) =
        (|byte: &u8| matches!(byte, b' ' | b'\t'), |byte: &u8| b" \t\0".contains(byte));
    let beginning = &beginning[..beginning.len().min(MAX_SHEBANG_BYTES)];
    // The kernel's buffer is zeroed behind a short file.
    let mut buffer = [0; MAX_SHEBANG_BYTES];
    buffer[..beginning.len()].copy_from_slice(beginning);
    let text = buffer.strip_prefix(b"#!")?;
    let line = match text.iter().position(|byte| *byte == b'\n') {
        Some(end) => &text[..end],
        None => {
            // The interpreter's name must be complete.
            let start = text.iter().position(|byte| !is_blank(byte))?;
            text[start..].iter().any(ends_a_word).then_some(text)?
        }
    };
    let line = &line[..line.iter().rposition(|byte| !is_blank(byte))? + 1];
    let line = &line[line.iter().position(|byte| !is_blank(byte))?..];
    let name_end = line.iter().position(ends_a_word).unwrap_or(line.len());
    let (name, rest) = line.split_at(name_end);
    let argument = match rest.first() {
        Some(0) | None => None,
        Some(_) => rest.iter().position(|byte| !is_blank(byte)).map(|start| &rest[start..]),
    };
    let argument = match argument {
        Some(argument) => Some(text_of(argument)?),
        None => None,
    };
    Some(Shebang { path: text_of(name)?, argument })
}

/// A C string that is UTF-8.
fn text_of(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8(bytes[..end].to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, process::Command};

    use super::*;

    /// What the kernel makes of the same bytes: an interpreter that prints its arguments is put in place of `I`.
    #[test]
    fn lines_are_read_as_the_kernel_reads_them() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).display().to_string();
        // Not a shell script: an interpreter that is one would hide nothing, but takes its own name as an argument.
        fs::copy("/bin/echo", at("i")).unwrap();
        for form in [
            "#!I\n",
            "#!I",
            "#! I\n",
            "#!\tI \t\n",
            "#!I a b\n",
            "#!I  a b  \n",
            "#!I a ",
            "#!I a\0b\n",
            "#!I\0 a\n",
            "#!I \0a\n",
            "#! \n",
            "#!\n",
            "#!",
            "#!  ",
            "#!I a\nb\n",
            "# !I\n",
            " #!I\n",
            "#!I\ta\t b\t\n",
            "#!I \n",
        ] {
            let script = at("script");
            let bytes = form.replace('I', &at("i"));
            // A file that was open for writing a moment ago may still be, in a child of another test (ETXTBSY).
            fs::write(at("new"), &bytes).unwrap();
            fs::set_permissions(at("new"), fs::Permissions::from_mode(0o755)).unwrap();
            fs::rename(at("new"), &script).unwrap();
            let kernel = loop {
                match Command::new(&script).arg("END").output() {
                    Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) => {}
                    other => {
                        break other.ok().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
                    }
                }
            };
            let ours = parse(bytes.as_bytes()).filter(|line| !line.path.is_empty()).map(|line| {
                let argument = line.argument.map(|argument| format!("{argument} ")).unwrap_or_default();
                format!("{argument}{script} END\n")
            });
            assert_eq!(ours, kernel, "{form:?}");
        }
    }

    #[test]
    fn an_interpreter_that_is_cut_is_none_and_an_argument_that_is_cut_is_cut() {
        let long = "/x".repeat(200);
        assert_eq!(parse(format!("#!{long}\n").as_bytes()), None);
        let cut = parse(format!("#!/i {long}\n").as_bytes()).unwrap();
        assert_eq!(
            (cut.path.as_str(), cut.argument.unwrap().len()),
            ("/i", MAX_SHEBANG_BYTES - "#!/i ".len())
        );
        assert_eq!(parse(b"#!/\xff\n"), None);
        assert_eq!(parse(b"\x7fELF"), None);
    }
}
