//! One protobuf message in a file, so that it is either read back as it was written or known to be bad.
//!
//! ```text
//! "PROVOST\n"  version u32 LE  length u32 LE  SHA-256 of all the rest (32 bytes)  message
//! ```
//!
//! A file is written under another name and renamed, so that a process that is killed leaves the old one or the new
//! one. It is not synced: these files are about what runs, and nothing that runs survives the crash of a host. One
//! that such a crash has left empty or torn is told by its checksum. Knows nothing of what the messages mean, and
//! repairs nothing.

pub mod append_log;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use prost::Message;
use sha2::{Digest, Sha256};

/// What every file begins with.
const MAGIC: [u8; 8] = *b"PROVOST\n";
/// Magic, version, length, checksum.
const HEADER_BYTES: usize = 8 + 4 + 4 + 32;
/// The longest message.
pub const MESSAGE_MAX_BYTES: usize = 8 << 20;
/// The version that is written, and the only one that is read.
const VERSION: u32 = 2;
/// What the name of a file that is being written ends with.
pub const TEMP_SUFFIX: &str = ".new";

/// A file holds no message that can be used.
#[derive(Debug, thiserror::Error)]
#[error("the state file {}", crate::printable::path(path))]
pub struct StatefileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    #[source]
    pub problem: StatefileProblem,
}

impl StatefileError {
    /// Whether there is no such file.
    pub fn is_missing(&self) -> bool {
        matches!(&self.problem, StatefileProblem::Read(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum StatefileProblem {
    /// It cannot be read.
    #[error("cannot be read")]
    Read(#[source] io::Error),
    /// There is nothing in it.
    #[error("is empty")]
    Empty,
    /// It does not begin as one of these files does.
    #[error("is no file of Provost's")]
    BadMagic,
    /// It is of a version that this build does not know.
    #[error("is of version {0}, and this build reads version {VERSION}")]
    Version(u32),
    /// It is shorter than it says, or longer.
    #[error("holds {held} bytes where it says {said}")]
    Length {
        /// What it says.
        said: u64,
        /// What there is.
        held: u64,
    },
    /// It is not as it was written.
    #[error("has another checksum than its content")]
    Checksum,
    /// It is as it was written, and is not such a message.
    #[error("holds another message")]
    Message(#[source] prost::DecodeError),
}

/// Writes a file, or replaces it, readable by its owner only.
///
/// # Errors
/// Those of open(2), write(2) and rename(2). What was there before is still there then.
pub fn write(path: &Path, message: &impl Message) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(TEMP_SUFFIX);
    let temporary = Path::new(&temporary);
    let written = create(temporary)
        .and_then(|mut file| file.write_all(&encode(message)?))
        .and_then(|()| fs::rename(temporary, path));
    if written.is_err() {
        // It may not even have been made. What stays is no record, and the next start removes it.
        let _ = fs::remove_file(temporary);
    }
    written
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW)
        .open(path)
}

/// Reads a file.
///
/// # Errors
/// [`StatefileError`].
pub fn read<M: Message + Default>(path: &Path) -> Result<M, StatefileError> {
    let limit = (HEADER_BYTES + MESSAGE_MAX_BYTES) as u64 + 1;
    let message = read_at_most(path, limit).map_err(StatefileProblem::Read).and_then(|bytes| decode(&bytes));
    message.map_err(|problem| StatefileError { path: path.to_owned(), problem })
}

fn read_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // A pipe in its place is garbled, and not waited for.
    let options = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(options).open(path)?;
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn encode(message: &impl Message) -> io::Result<Vec<u8>> {
    let length = message.encoded_len();
    let length = u32::try_from(length).ok().filter(|_| length <= MESSAGE_MAX_BYTES);
    let length = length.ok_or(io::ErrorKind::FileTooLarge)?;
    let mut head = MAGIC.to_vec();
    head.extend(VERSION.to_le_bytes());
    head.extend(length.to_le_bytes());
    let message = message.encode_to_vec();
    let checksum = checksum(&head, &message);
    head.extend(checksum);
    head.extend(message);
    Ok(head)
}

fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M, StatefileProblem> {
    if bytes.is_empty() {
        return Err(StatefileProblem::Empty);
    }
    if !bytes.starts_with(&MAGIC) {
        return Err(StatefileProblem::BadMagic);
    }
    let Some((header, message)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Err(StatefileProblem::Length { said: HEADER_BYTES as u64, held: bytes.len() as u64 });
    };
    let number = |from: usize| {
        let four = header[from..from + 4].try_into().expect("a range of four is an array of four");
        u32::from_le_bytes(four)
    };
    // Before the checksum: another version may be made up otherwise.
    let version = number(8);
    if version != VERSION {
        return Err(StatefileProblem::Version(version));
    }
    let (stated, held) = (u64::from(number(12)), message.len() as u64);
    if stated != held {
        return Err(StatefileProblem::Length { said: stated, held });
    }
    if header[16..] != checksum(&header[..16], message) {
        return Err(StatefileProblem::Checksum);
    }
    M::decode(message).map_err(StatefileProblem::Message)
}

fn checksum(head: &[u8], message: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(head).chain_update(message).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("one");
        write(&path, &text.to_owned()).unwrap();
        (directory, path)
    }

    #[test]
    fn what_was_written_is_read_and_a_second_writing_replaces_it() {
        let (directory, path) = written("first");
        assert_eq!(read::<String>(&path).unwrap(), "first");
        write(&path, &"second".to_owned()).unwrap();
        assert_eq!(read::<String>(&path).unwrap(), "second");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn no_bit_can_be_flipped_and_no_byte_cut_off_unnoticed() {
        let (_directory, path) = written("a message of some length");
        let whole = fs::read(&path).unwrap();
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode::<String>(&flipped).is_err(), "bit {bit}");
        }
        for length in 0..whole.len() {
            assert!(decode::<String>(&whole[..length]).is_err(), "{length} bytes");
        }
        let longer = [&whole[..], b"x"].concat();
        assert!(matches!(decode::<String>(&longer), Err(StatefileProblem::Length { .. })));
    }

    #[test]
    fn another_version_is_distinguished_from_damage() {
        let (_directory, path) = written("later");
        let mut later = fs::read(&path).unwrap();
        for version in [1, 3] {
            later[8] = version;
            let refused = decode::<String>(&later);
            assert!(matches!(refused, Err(StatefileProblem::Version(read)) if read == u32::from(version)));
        }
        assert!(matches!(decode::<String>(b""), Err(StatefileProblem::Empty)));
        assert!(matches!(decode::<String>(b"[toml]"), Err(StatefileProblem::BadMagic)));
        let missing = read::<String>(Path::new("/proc/none")).unwrap_err();
        assert!(missing.is_missing());
        assert_eq!(missing.to_string(), "the state file /proc/none");
    }
}
