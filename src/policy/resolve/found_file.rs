//! What is known of a file that was found: its identity, whether it is still the same, the first line of a script, and whether it is a
//! program of 32 bits.
//!
//! The first line is parsed as the kernel does (fs/binfmt_script.c, `load_script`; execve(2), "Interpreter scripts"), and is none where the
//! kernel would refuse it. What is not UTF-8 is no less a script: paths are bytes. The kernel starts a program of 32 bits (elf(5)) as it
//! does those of 64 bits, and its system calls have other numbers, which no filter of ours knows. What is for another processor is left to
//! the kernel, which refuses it or starts an emulator.

use std::{
    cell::RefCell,
    collections::HashMap,
    fs::{self, Metadata},
    io::{self, Read},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use crate::{
    byte_text,
    command::program::{FileId, PathStability, Resolved},
};

/// A file cannot be read, or was changed meanwhile.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unread;

/// The first line of a file, if it is a script.
type FirstLine = Result<Option<Shebang>, Unread>;

/// The first lines of files that may be exchanged at any moment: read from the same open file as their identity, so that they belong
/// together. What is executed is compared with the identity, and a file that is written to gets another one.
#[derive(Debug, Default)]
pub(super) struct FirstLines(RefCell<HashMap<(u64, u64, i64), FirstLine>>);

impl FirstLines {
    /// Reads the first line of a file that was found, which now has this identity; `None` where its path leads to another one by now.
    pub(super) fn read(&self, mut file: FileId) -> Option<FileId> {
        let line = match open(&file.path) {
            Ok(opened) => {
                let metadata = opened.metadata().ok()?;
                if !metadata.is_file() || (metadata.dev(), metadata.ino()) != (file.device, file.inode) {
                    return None;
                }
                file.changed_nanos = changed_nanos(&metadata);
                read_line(opened)
            }
            Err(error) if is_another(&error) => return None,
            Err(_) => Err(Unread),
        };
        self.0.borrow_mut().insert(identity(&file), line);
        Some(file)
    }

    /// The line of a file that was read.
    pub(super) fn get(&self, file: &FileId) -> FirstLine {
        self.0.borrow().get(&identity(file)).cloned().unwrap_or(Err(Unread))
    }
}

/// Whether a file that was there a moment ago has made room for a link, for nothing, or for another directory.
fn is_another(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ELOOP | libc::ENOTDIR | libc::ENXIO))
}

/// The first line of a file that nobody exchanges.
pub(super) fn first_line(file: &FileId) -> FirstLine {
    let opened = open(&file.path).map_err(|_| Unread)?;
    let metadata = opened.metadata().map_err(|_| Unread)?;
    if !metadata.is_file() || !is_identity(file, &metadata) {
        return Err(Unread);
    }
    read_line(opened)
}

/// Opens without blocking on a pipe in its place, and without following a link.
fn open(path: &str) -> io::Result<fs::File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    fs::File::options().read(true).custom_flags(flags).open(byte_text::to_path(path))
}

fn read_line(opened: fs::File) -> FirstLine {
    let mut beginning = Vec::with_capacity(MAX_SHEBANG_BYTES);
    opened.take(MAX_SHEBANG_BYTES as u64).read_to_end(&mut beginning).map_err(|_| Unread)?;
    Ok(parse_shebang(&beginning))
}

/// The file at a real path, which was looked for at another one.
pub(super) fn to_resolved(path: &Path, metadata: &Metadata, found_at: &Path, way: PathStability) -> Resolved {
    if !metadata.is_file() {
        return Resolved::Missing;
    }
    Resolved::File(FileId {
        path: byte_text::from_path(path),
        device: metadata.dev(),
        inode: metadata.ino(),
        changed_nanos: changed_nanos(metadata),
        lookup_path: byte_text::from_path(found_at),
        stability: way,
    })
}

fn changed_nanos(metadata: &Metadata) -> i64 {
    metadata.ctime().wrapping_mul(1_000_000_000).wrapping_add(metadata.ctime_nsec())
}

fn identity(file: &FileId) -> (u64, u64, i64) {
    (file.device, file.inode, file.changed_nanos)
}

fn is_identity(file: &FileId, metadata: &Metadata) -> bool {
    identity(file) == (metadata.dev(), metadata.ino(), changed_nanos(metadata))
}

/// Whether the same file is still there, with the same content.
pub(super) fn is_unchanged(file: &FileId) -> bool {
    fs::symlink_metadata(byte_text::to_path(&file.path))
        .is_ok_and(|metadata| metadata.is_file() && is_identity(file, &metadata))
}

/// Whether it is a program of 32 bits. One that cannot be read is none that is known.
pub(super) fn is_32_bit(file: &FileId) -> bool {
    let read = || {
        let mut beginning = [0; ELF_HEADER_BYTES];
        let mut opened = open(&file.path)?;
        opened.read_exact(&mut beginning).map(|()| beginning)
    };
    read().is_ok_and(|beginning| is_32_bit_program(&beginning))
}

/// Whether anybody may execute it.
pub(super) fn is_executable(file: &FileId) -> bool {
    fs::symlink_metadata(byte_text::to_path(&file.path)).is_ok_and(|metadata| metadata.mode() & 0o111 != 0)
}

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
pub fn parse_shebang(beginning: &[u8]) -> Option<Shebang> {
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

/// How much of a file is looked at: up to the machine in the header of an ELF file.
pub const ELF_HEADER_BYTES: usize = 20;

/// ELFCLASS32, and the machines of 32 bits that this one also runs.
const CLASS_32: u8 = 1;
const MACHINES_32: &[u16] = if cfg!(target_arch = "x86_64") {
    // EM_386, and x32.
    &[3, 62]
} else if cfg!(target_arch = "aarch64") {
    // EM_ARM
    &[40]
} else {
    &[]
};

/// Whether the file that begins so is one.
pub fn is_32_bit_program(beginning: &[u8]) -> bool {
    let Some(header) = beginning.first_chunk::<ELF_HEADER_BYTES>() else { return false };
    header.starts_with(b"\x7fELF")
        && header[4] == CLASS_32
        && MACHINES_32.contains(&u16::from_le_bytes([header[18], header[19]]))
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
            let ours = parse_shebang(&bytes).filter(|line| line.path == at("i")).map(|line| {
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
        assert_eq!(parse_shebang(format!("#!{long}\n").as_bytes()), None);
        let cut = parse_shebang(format!("#!/i {long}\n").as_bytes()).unwrap();
        let argument = MAX_SHEBANG_BYTES - 1 - "#!/i ".len();
        assert_eq!((&cut.path[..], cut.argument.unwrap().len()), (&b"/i"[..], argument));
        // A name that ends just before the last byte is whole, if that byte says so.
        let name = format!("/{}", "x".repeat(252));
        assert_eq!(parse_shebang(format!("#!{name} x\n").as_bytes()).unwrap().path, name.as_bytes());
        assert_eq!(parse_shebang(format!("#!{name}xx\n").as_bytes()), None);
        assert_eq!(
            parse_shebang(b"#!/\xff \xfe\n"),
            Some(Shebang { path: b"/\xff".to_vec(), argument: Some(b"\xfe".to_vec()) })
        );
        assert_eq!(parse_shebang(b"\x7fELF"), None);
    }

    #[test]
    fn a_program_of_32_bits_is_known_by_its_header() {
        let header = |class: u8, machine: u16| {
            let mut header = b"\x7fELF".to_vec();
            header.resize(ELF_HEADER_BYTES, 0);
            header[4] = class;
            header[18..].copy_from_slice(&machine.to_le_bytes());
            header
        };
        for machine in MACHINES_32 {
            assert!(is_32_bit_program(&header(CLASS_32, *machine)), "{machine}");
            assert!(!is_32_bit_program(&header(2, *machine)), "{machine}");
        }
        // MIPS.
        assert!(!is_32_bit_program(&header(CLASS_32, 8)));
        assert!(!is_32_bit_program(b"#!/bin/sh\necho a script\n") && !is_32_bit_program(b"\x7fELF\x01"));
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert!(!is_32_bit_program(&own));
    }
}
