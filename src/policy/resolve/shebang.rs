//! Parses the first line of a script as the kernel does (fs/binfmt_script.c, `load_script`; execve(2), "Interpreter scripts").
//!
//! Pure. Returns `None` where the kernel would refuse the line. What is not UTF-8 is no less a script: paths are bytes.

/// The kernel reads no more of a file (BINPRM_BUF_SIZE, since Linux 5.1).
pub const MAX_SHEBANG_BYTES: usize = 256;

/// The interpreter of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shebang {
    /// The interpreter's path, as written.
    pub path: Vec<u8>,
    /// The rest of the line, as one argument.
    pub argument: Option<Vec<u8>>,
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
    // It looks for a newline up to the first NUL.
    let line = match text.iter().position(|byte| matches!(byte, b'\n' | 0)) {
        Some(end) if text[end] == b'\n' => &text[..end],
        _ => {
            // The interpreter's name must be complete: something ends it. That may be the last byte, which is not of the line.
            let start = text.iter().position(|byte| !is_blank(byte))?;
            text[start..].iter().any(ends_a_word).then(|| &text[..text.len() - 1])?
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
    Some(Shebang { path: until_nul(name), argument: argument.map(until_nul) })
}

/// A C string.
fn until_nul(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().take_while(|byte| *byte != 0).collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, process::Command};

    use super::*;

    /// What the kernel makes of the same bytes: an interpreter that prints its arguments is put in place of `I`.
    fn assert_read_as_by_the_kernel(forms: impl IntoIterator<Item = Vec<u8>>) {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).into_os_string().into_encoded_bytes();
        let path = |name: &str| directory.path().join(name);
        // Not a shell script: an interpreter that is one would hide nothing, but takes its own name as an argument.
        fs::copy("/bin/echo", path("i")).unwrap();
        for form in forms {
            let bytes: Vec<u8> =
                form.iter().flat_map(|byte| if *byte == b'I' { at("i") } else { vec![*byte] }).collect();
            // A file that was open for writing a moment ago may still be, in a child of another test (ETXTBSY).
            fs::write(path("new"), &bytes).unwrap();
            fs::set_permissions(path("new"), fs::Permissions::from_mode(0o755)).unwrap();
            fs::rename(path("new"), path("script")).unwrap();
            let kernel = loop {
                match Command::new(path("script")).arg("END").output() {
                    Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) => {}
                    other => break other.ok().map(|output| output.stdout),
                }
            };
            // What has no such interpreter does not run either.
            let ours = parse(&bytes).filter(|line| line.path == at("i")).map(|line| {
                let argument = line.argument.map(|argument| [argument, b" ".to_vec()].concat());
                [argument.unwrap_or_default(), at("script"), b" END\n".to_vec()].concat()
            });
            let text = |bytes: Option<Vec<u8>>| bytes.map(|bytes| bytes.escape_ascii().to_string());
            assert_eq!(text(ours), text(kernel), "{}", form.escape_ascii());
        }
    }

    #[test]
    fn lines_are_read_as_the_kernel_reads_them() {
        assert_read_as_by_the_kernel(
            [
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
                "#!I a\0 \n",
                "#!I a \0\n",
                "#!\0I\n",
                "#! \n",
                "#!\n",
                "#!",
                "#!  ",
                "#!I a\nb\n",
                "# !I\n",
                " #!I\n",
                "#!I\ta\t b\t\n",
                "#!I \n",
                "#!I caf\u{e9}\n",
            ]
            .map(|form| form.as_bytes().to_vec()),
        );
        assert_read_as_by_the_kernel([
            b"#!I caf\xe9\n".to_vec(),
            b"#!I\xff\n".to_vec(),
            b"#!I \xff\xfe".to_vec(),
        ]);
    }

    /// Where the buffer ends, every kind of byte stands at each of its last places.
    #[test]
    fn long_lines_are_cut_where_the_kernel_cuts_them() {
        let directory = tempfile::tempdir().unwrap();
        let interpreter = directory.path().join("i").into_os_string().len();
        // The test's own directory has a name of the same length.
        let filled = |length: usize, with: u8| {
            let mut line = b"#!I ".to_vec();
            line.resize(length - interpreter + 1, with);
            line
        };
        let mut forms = Vec::new();
        for length in 250..=262 {
            for end in [
                &b""[..],
                b"\n",
                b"\necho\n",
                b" \n",
                b"  x\n",
                b"\tx",
                b"\0",
                b"\0x\n",
                "\u{e9}\n".as_bytes(),
            ] {
                forms.push([filled(length, b'a'), end.to_vec()].concat());
                forms.push([filled(length, b' '), end.to_vec()].concat());
                forms.push([filled(length, b' '), b"b".to_vec(), end.to_vec()].concat());
                // The name itself reaches the end: blanks before it move it there.
                let blanks = vec![b' '; length - interpreter - 2];
                forms.push([b"#!".to_vec(), blanks, b"I".to_vec(), end.to_vec()].concat());
            }
        }
        assert_read_as_by_the_kernel(forms);
    }

    #[test]
    fn an_interpreter_that_is_cut_is_none_and_an_argument_that_is_cut_is_cut() {
        let long = "/x".repeat(200);
        assert_eq!(parse(format!("#!{long}\n").as_bytes()), None);
        let cut = parse(format!("#!/i {long}\n").as_bytes()).unwrap();
        let argument = MAX_SHEBANG_BYTES - 1 - "#!/i ".len();
        assert_eq!((&cut.path[..], cut.argument.unwrap().len()), (&b"/i"[..], argument));
        // A name that ends just before the last byte is whole, if that byte says so.
        let name = format!("/{}", "x".repeat(252));
        assert_eq!(parse(format!("#!{name} x\n").as_bytes()).unwrap().path, name.as_bytes());
        assert_eq!(parse(format!("#!{name}xx\n").as_bytes()), None);
        assert_eq!(
            parse(b"#!/\xff \xfe\n"),
            Some(Shebang { path: b"/\xff".to_vec(), argument: Some(b"\xfe".to_vec()) })
        );
        assert_eq!(parse(b"\x7fELF"), None);
    }
}
