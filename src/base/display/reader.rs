//! Reads pictures out of memory that a screen process writes at the same time.
//!
//! The sequence number is odd while it writes. A hostile process may change anything at any time: what was read is checked as
//! a copy, the number of tries is bounded, and a picture is at worst wrong.

use std::io;

use super::picture::{HEAD_BYTES, Head, MAGIC, MAGIC_AT, PICTURE_AT, Picture, PictureError, SEQUENCE_AT};

/// Tries to read a picture that is written meanwhile.
const MAX_TRIES: u32 = 8;

/// Memory that can be copied from.
pub trait Memory {
    /// Copies all of `bytes` from this position.
    ///
    /// # Errors
    /// The errors are those of the system.
    fn copy(&self, at: u64, bytes: &mut [u8]) -> io::Result<()>;
}

/// Why no picture could be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadPictureError {
    /// The system refuses it.
    #[error("read the screen's memory")]
    System(#[from] io::Error),
    /// It was never written.
    #[error("the screen's memory holds no picture")]
    Empty,
    /// It was written at each try.
    #[error("the screen's memory was changed at each of {MAX_TRIES} tries to read it")]
    NeverStill,
    /// Its content is not a picture.
    #[error(transparent)]
    Malformed(#[from] PictureError),
}

/// Reads the picture.
///
/// # Errors
/// [`ReadPictureError`].
pub fn read(memory: &impl Memory, before: Option<&Picture>) -> Result<Picture, ReadPictureError> {
    for _ in 0..MAX_TRIES {
        let sequence = long(memory, SEQUENCE_AT)?;
        if long(memory, MAGIC_AT)? != MAGIC || sequence == 0 {
            return Err(ReadPictureError::Empty);
        }
        if sequence % 2 == 1 {
            std::thread::yield_now();
            continue;
        }
        let read = read_once(memory, before);
        if long(memory, SEQUENCE_AT)? == sequence {
            return read;
        }
    }
    Err(ReadPictureError::NeverStill)
}

fn read_once(memory: &impl Memory, before: Option<&Picture>) -> Result<Picture, ReadPictureError> {
    let mut head = [0; HEAD_BYTES];
    memory.copy(PICTURE_AT, &mut head)?;
    let head = Head::decode(&head)?;
    let mut body = vec![0; head.body_bytes()];
    memory.copy(PICTURE_AT + HEAD_BYTES as u64, &mut body)?;
    Ok(Picture::decode(&head, &body, before)?)
}

fn long(memory: &impl Memory, at: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    memory.copy(at, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Memory of zeroes, but for its first word and the sequence numbers that it shows one after another.
    struct Hostile {
        magic: u64,
        sequences: RefCell<Vec<u64>>,
        content: Vec<u8>,
    }

    impl Memory for Hostile {
        fn copy(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
            let word = match at {
                MAGIC_AT => self.magic,
                SEQUENCE_AT => self.sequences.borrow_mut().pop().unwrap_or(2),
                _ => {
                    for (byte, index) in bytes.iter_mut().zip((at - PICTURE_AT) as usize..) {
                        *byte = self.content.get(index).copied().unwrap_or_default();
                    }
                    return Ok(());
                }
            };
            bytes.copy_from_slice(&word.to_le_bytes());
            Ok(())
        }
    }

    fn hostile(sequences: impl IntoIterator<Item = u64>, content: Vec<u8>) -> Hostile {
        Hostile { magic: MAGIC, sequences: RefCell::new(sequences.into_iter().collect()), content }
    }

    #[test]
    fn memory_that_never_stands_still_is_given_up() {
        for sequences in [(1..100).collect::<Vec<u64>>(), vec![7; 100]] {
            let error = read(&hostile(sequences, vec![3; 100]), None).unwrap_err();
            assert!(matches!(error, ReadPictureError::NeverStill), "{error}");
        }
    }

    #[test]
    fn memory_without_a_picture_is_refused() {
        let mut memory = hostile([], Vec::new());
        assert!(matches!(read(&memory, None), Err(ReadPictureError::Malformed(PictureError::Size))));
        memory.magic = 1;
        assert!(matches!(read(&memory, None), Err(ReadPictureError::Empty)));
        assert!(matches!(read(&hostile([0], Vec::new()), None), Err(ReadPictureError::Empty)));
    }

    #[test]
    fn a_picture_that_changed_while_it_was_read_is_read_again() {
        let content = [5_u8, 0, 3, 0].to_vec();
        // The last is the first that is shown.
        let picture = read(&hostile([4, 4, 4, 2], content), None).unwrap();
        assert_eq!((picture.size.columns(), picture.size.rows()), (5, 3));
    }
}
