//! Many messages in one file, one after the other, each read back as it was written or known to be bad.
//!
//! ```text
//! "PROVOST\n"  version u32 LE  then for each message:
//! length u32 LE  its complement u32 LE  the first 8 bytes of SHA-256 over length and message  message
//! ```
//!
//! A message is one write(2), without a sync: a process that is killed leaves whole messages, and at most the beginning
//! of one more, which nobody was told of. Everything else that does not fit is damage, and said. Knows nothing of what
//! the messages mean, and never grows by itself: who appends says when it is to be written again.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use prost::Message;
use sha2::{Digest, Sha256};

use super::{MAGIC, StatefileError, StatefileProblem, TEMP_SUFFIX, create, read_at_most};

/// The version that is written, and the only one that is read.
const VERSION: u32 = 2;
/// Magic and version.
const HEADER_BYTES: usize = 8 + 4;
/// Length, complement, checksum.
const FRAME_BYTES: usize = 4 + 4 + 8;
/// The longest file that is read.
const FILE_MAX_BYTES: u64 = 256 << 20;

/// A file of messages, open for more.
#[derive(Debug)]
pub struct AppendLog {
    path: PathBuf,
    /// None: it is made with the first message.
    file: Option<File>,
    /// The length of what is whole in it.
    length: u64,
}

/// What a file held.
#[derive(Debug)]
pub struct LogContents<M> {
    /// All that can be read, in order.
    pub messages: Vec<M>,
    /// Bytes up to the end of the last whole message; of a damaged file, nothing is to be added there.
    pub length: u64,
    /// Whether something else was there.
    pub condition: LogCondition,
}

/// Whether a file is as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogCondition {
    /// It is; the beginning of a last message that nobody was told of may have been there.
    Intact,
    /// Something that is no message stands at this offset. What could be read behind it was read.
    Damaged {
        /// The offset of the first damage.
        at: u64,
    },
}

impl AppendLog {
    /// A file that is not there, or whose content is not to be kept: made with the first message.
    pub fn new(path: PathBuf) -> Self {
        Self { path, file: None, length: 0 }
    }

    /// A file that was read and is whole: goes on at its length.
    ///
    /// # Errors
    /// Those of open(2) and ftruncate(2).
    pub fn resume(path: PathBuf, length: u64) -> io::Result<Self> {
        if length == 0 {
            return Ok(Self::new(path));
        }
        let options = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
        let file = OpenOptions::new().write(true).custom_flags(options).open(&path)?;
        file.set_len(length)?;
        Ok(Self { path, file: Some(file), length })
    }

    /// Adds a message. After an error the file is as it was before.
    ///
    /// # Errors
    /// Those of open(2) and write(2).
    pub fn append(&mut self, message: &impl Message) -> io::Result<()> {
        let frame = frame(message)?;
        if let Some(file) = &self.file {
            let written = file.write_all_at(&frame, self.length);
            if written.is_err() {
                // A part of it would be damage. If even that fails, the next message is written over it.
                let _ = file.set_len(self.length);
            } else {
                self.length += frame.len() as u64;
            }
            return written;
        }
        let file = create(&self.path)?;
        let bytes = [&header()[..], &frame].concat();
        let written = file.write_all_at(&bytes, 0);
        if written.is_err() {
            // The beginning of a file is none: it is read as one without messages.
            let _ = fs::remove_file(&self.path);
        } else {
            self.length = bytes.len() as u64;
            self.file = Some(file);
        }
        written
    }

    /// Replaces everything in it by these messages. After an error everything is as it was before.
    ///
    /// # Errors
    /// Those of open(2), write(2) and rename(2).
    pub fn rewrite<M: Message>(&mut self, messages: impl IntoIterator<Item = M>) -> io::Result<()> {
        let mut bytes = header();
        for message in messages {
            bytes.extend(frame(&message)?);
        }
        let mut temporary = self.path.clone().into_os_string();
        temporary.push(TEMP_SUFFIX);
        let temporary = Path::new(&temporary);
        let written = create(temporary).and_then(|file| {
            file.write_all_at(&bytes, 0)?;
            fs::rename(temporary, &self.path)?;
            Ok(file)
        });
        match written {
            Ok(file) => {
                self.length = bytes.len() as u64;
                self.file = Some(file);
                Ok(())
            }
            Err(error) => {
                // It may not even have been made. The next start removes what stays.
                let _ = fs::remove_file(temporary);
                Err(error)
            }
        }
    }

    /// Bytes in the file.
    pub fn length(&self) -> u64 {
        self.length
    }
}

/// Reads a file of messages.
///
/// # Errors
/// [`StatefileError`] when nothing in it can be read.
pub fn read<M: Message + Default>(path: &Path) -> Result<LogContents<M>, StatefileError> {
    let contents =
        read_at_most(path, FILE_MAX_BYTES).map_err(StatefileProblem::Read).and_then(|bytes| decode(&bytes));
    contents.map_err(|problem| StatefileError { path: path.to_owned(), problem })
}

fn header() -> Vec<u8> {
    [&MAGIC[..], &VERSION.to_le_bytes()].concat()
}

fn frame(message: &impl Message) -> io::Result<Vec<u8>> {
    let length = u32::try_from(message.encoded_len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let message = message.encode_to_vec();
    let mut frame = Vec::with_capacity(FRAME_BYTES + message.len());
    frame.extend(length.to_le_bytes());
    frame.extend((!length).to_le_bytes());
    frame.extend(checksum(length, &message));
    frame.extend(message);
    Ok(frame)
}

fn checksum(length: u32, message: &[u8]) -> [u8; 8] {
    let whole: [u8; 32] =
        Sha256::new().chain_update(length.to_le_bytes()).chain_update(message).finalize().into();
    whole[..8].try_into().expect("the first 8 of 32 are 8")
}

fn decode<M: Message + Default>(bytes: &[u8]) -> Result<LogContents<M>, StatefileProblem> {
    let mut contents = LogContents { messages: Vec::new(), length: 0, condition: LogCondition::Intact };
    let Some((header, mut rest)) = bytes.split_at_checked(HEADER_BYTES) else {
        // A file whose first message was not written to its end.
        return if self::header().starts_with(bytes) {
            Ok(contents)
        } else {
            Err(StatefileProblem::BadMagic)
        };
    };
    if !header.starts_with(&MAGIC) {
        return Err(StatefileProblem::BadMagic);
    }
    let version = number(header, 8);
    if version != VERSION {
        return Err(StatefileProblem::Version(version));
    }
    contents.length = HEADER_BYTES as u64;
    while !rest.is_empty() {
        let at = (bytes.len() - rest.len()) as u64;
        let (step, message) = next(rest);
        match (message, &mut contents.condition) {
            (Some(message), _) => contents.messages.push(message),
            // The beginning of a message that was not written to its end.
            (None, _) if step == FrameStep::Truncated => {}
            (None, condition @ LogCondition::Intact) => *condition = LogCondition::Damaged { at },
            (None, LogCondition::Damaged { .. }) => {}
        }
        match step {
            FrameStep::Next(length) => {
                rest = &rest[length..];
                contents.length = (bytes.len() - rest.len()) as u64;
            }
            FrameStep::Truncated | FrameStep::Lost => break,
        }
    }
    Ok(contents)
}

/// Where the next message begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameStep {
    Next(usize),
    /// The file ends in the middle of this one.
    Truncated,
    /// Nobody knows.
    Lost,
}

fn next<M: Message + Default>(rest: &[u8]) -> (FrameStep, Option<M>) {
    let Some((head, behind)) = rest.split_at_checked(FRAME_BYTES) else {
        return (FrameStep::Truncated, None);
    };
    let length = number(head, 0);
    if number(head, 4) != !length {
        return (FrameStep::Lost, None);
    }
    let Some(message) = behind.get(..length as usize) else { return (FrameStep::Truncated, None) };
    let step = FrameStep::Next(FRAME_BYTES + message.len());
    if head[8..] != checksum(length, message) {
        return (step, None);
    }
    (step, M::decode(message).ok())
}

fn number(bytes: &[u8], from: usize) -> u32 {
    u32::from_le_bytes(bytes[from..from + 4].try_into().expect("a range of four is an array of four"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(texts: &[&str]) -> (tempfile::TempDir, AppendLog) {
        let directory = tempfile::tempdir().unwrap();
        let mut log = AppendLog::new(directory.path().join("one"));
        for text in texts {
            log.append(&(*text).to_owned()).unwrap();
        }
        (directory, log)
    }

    #[test]
    fn messages_are_read_in_order_and_can_be_rewritten() {
        let (directory, mut log) = written(&["a", "", "ccc"]);
        let contents = || read::<String>(&directory.path().join("one")).unwrap();
        assert_eq!(
            (contents().messages, contents().condition),
            (vec!["a".into(), "".into(), "ccc".into()], LogCondition::Intact)
        );
        log.rewrite(["ccc".to_owned()]).unwrap();
        log.append(&"d".to_owned()).unwrap();
        assert_eq!(contents().messages, ["ccc", "d"]);
        assert_eq!(log.length(), fs::metadata(directory.path().join("one")).unwrap().len());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_torn_end_is_nothing_and_no_bit_can_be_flipped_unnoticed() {
        let (directory, _log) = written(&["first", "second", "third"]);
        let whole = fs::read(directory.path().join("one")).unwrap();
        for length in 0..whole.len() {
            let contents = decode::<String>(&whole[..length]).unwrap();
            assert_eq!(contents.condition, LogCondition::Intact, "{length} bytes");
            assert!(
                ["first", "second", "third"]
                    .starts_with(&contents.messages.iter().map(|m| &**m).collect::<Vec<_>>())
            );
        }
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            match decode::<String>(&flipped) {
                Err(StatefileProblem::BadMagic | StatefileProblem::Version(_)) => {
                    assert!(bit < HEADER_BYTES * 8)
                }
                Err(error) => panic!("bit {bit}: {error}"),
                Ok(back) => {
                    assert!(matches!(back.condition, LogCondition::Damaged { .. }), "bit {bit}");
                    assert!(back.messages.len() < 3);
                    assert!(back.messages.iter().all(|m| ["first", "second", "third"].contains(&&**m)));
                }
            }
        }
    }

    #[test]
    fn a_file_with_a_torn_end_goes_on_behind_its_last_whole_message() {
        let (directory, _log) = written(&["first", "a longer second"]);
        let path = directory.path().join("one");
        let bytes = fs::read(&path).unwrap();
        for length in 0..bytes.len() {
            fs::write(&path, &bytes[..length]).unwrap();
            let contents = read::<String>(&path).unwrap();
            let mut log = AppendLog::resume(path.clone(), contents.length).unwrap();
            log.append(&"x".to_owned()).unwrap();
            let again = read::<String>(&path).unwrap();
            assert_eq!(again.condition, LogCondition::Intact);
            assert_eq!(again.messages, [contents.messages, vec!["x".to_owned()]].concat());
        }
    }

    #[test]
    fn one_damaged_message_does_not_take_those_behind_it_along() {
        let (directory, _log) = written(&["first", "second", "third"]);
        let mut bytes = fs::read(directory.path().join("one")).unwrap();
        bytes[HEADER_BYTES + FRAME_BYTES + 3] ^= 1;
        let contents = decode::<String>(&bytes).unwrap();
        assert_eq!(contents.messages, ["second", "third"]);
        assert_eq!(contents.condition, LogCondition::Damaged { at: HEADER_BYTES as u64 });
    }

    #[test]
    fn what_cannot_be_written_leaves_what_is_there() {
        let (directory, mut log) = written(&["first"]);
        let before = fs::read(directory.path().join("one")).unwrap();
        log.file = Some(File::open(directory.path().join("one")).unwrap());
        assert!(log.append(&"second".to_owned()).is_err(), "it is open for reading only");
        assert_eq!(fs::read(directory.path().join("one")).unwrap(), before);
        let mut nowhere = AppendLog::new(directory.path().join("none/one"));
        assert!(nowhere.append(&"first".to_owned()).is_err());
    }
}
