//! Reads a ring with the bytes of secrets masked.
//!
//! The ring holds what the command wrote. A part of it is read with enough context to know which of its bytes are
//! secret, so that the result does not depend on which part is read or when. At the end of what has come, a possible
//! beginning of a secret is held back until more comes or the command has ended.

use nix::errno::Errno;

use crate::{
    masking::{Masker, StreamEnd, StreamStart},
    sys::ring::RingReader,
};

/// A part of a stream.
#[derive(Debug)]
pub(in crate::terminal) struct RedactedPart {
    /// Of its first byte. After the one that was asked for when that is overwritten.
    pub offset: u64,
    /// May be empty.
    pub data: Vec<u8>,
    /// Up to where the stream was looked at: there is nothing more to see before it has more than this.
    pub scanned: u64,
}

/// Reads at most `most` bytes from `from` on. `ends` says whether the command may still write.
pub(in crate::terminal) fn read_redacted(
    ring: &RingReader,
    masker: &Masker,
    from: u64,
    max: u64,
    ends: StreamEnd,
) -> Result<RedactedPart, Errno> {
    let reach = masker.context_bytes() as u64;
    // What ends beyond this has all around it that matters.
    let context_end = from.saturating_add(max).saturating_add(reach);
    let start = from.saturating_sub(reach);
    let mut data = vec![0; ring.head().min(context_end).saturating_sub(start) as usize];
    let copied = ring.read_at(start, &mut data)?;
    data.truncate(copied.length);
    let scanned = copied.offset + copied.length as u64;
    let begins = if copied.offset > start { StreamStart::Truncated } else { StreamStart::Whole };
    let ends = if scanned >= context_end || (ends == StreamEnd::Whole && scanned >= ring.head()) {
        StreamEnd::Whole
    } else {
        StreamEnd::MayContinue
    };
    let certain = copied.offset + masker.mask_in_place(&mut data, begins, ends) as u64;
    let offset = from.max(copied.offset);
    let end = certain.min(from.saturating_add(max)).max(offset);
    data.truncate(end.saturating_sub(copied.offset) as usize);
    data.drain(..(offset - copied.offset).min(data.len() as u64) as usize);
    Ok(RedactedPart { offset, data, scanned })
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::fd::AsFd as _};

    use super::*;
    use crate::{
        masking::MASK_BYTE,
        output::ring::Layout,
        sys::ring::{RingWriter, WhenFull},
    };

    /// A small ring to which this was written.
    fn ring(bytes: &[u8]) -> (RingWriter, RingReader) {
        let mut writer = RingWriter::create(Layout::retaining(0).unwrap(), WhenFull::DropOldest).unwrap();
        let reader = RingReader::open(writer.file().try_clone().unwrap()).unwrap();
        let (pipe, mut end) = std::io::pipe().unwrap();
        for part in bytes.chunks(1_000) {
            end.write_all(part).unwrap();
            let head = writer.head();
            while writer.head() < head + part.len() as u64 {
                writer.fill_from(pipe.as_fd(), part.len()).unwrap();
            }
        }
        (writer, reader)
    }

    #[test]
    fn every_part_of_a_stream_is_masked_as_the_whole_of_it() {
        // Begins as a secret ends, which came whole, and ends as one begins.
        let bytes = b"cret a hunter2-secret bhunter2-secret c hunter2-se";
        let undecided = "hunter2-se".len() as u64;
        let masker = Masker::new(["hunter2-secret"]).unwrap();
        let mut whole = *bytes;
        masker.mask_in_place(&mut whole, StreamStart::Whole, StreamEnd::Whole);
        let (_writer, reader) = ring(bytes);
        let length = bytes.len() as u64;
        for (ends, decided) in [(StreamEnd::Whole, length), (StreamEnd::MayContinue, length - undecided)] {
            for from in 0..=length {
                for max in 0..=length {
                    let part = read_redacted(&reader, &masker, from, max, ends).unwrap();
                    let end = (from + max).min(decided).max(from);
                    assert_eq!(part.offset, from);
                    let expected = &whole[from as usize..end as usize];
                    assert_eq!(part.data, expected, "{max} from {from}, {ends:?}");
                    assert_eq!(part.scanned, length.min(from + max + masker.context_bytes() as u64));
                }
            }
        }
    }

    #[test]
    fn the_rest_of_a_secret_whose_beginning_was_overwritten_is_masked() {
        let secret = b"hunter2-secret";
        let masker = Masker::new([secret]).unwrap();
        let capacity = ring(&[]).1.capacity() as usize;
        let (_writer, reader) = ring(&secret.repeat(2 * capacity / secret.len()));
        let (tail, head) = (reader.tail(), reader.head());
        assert!(!tail.is_multiple_of(secret.len() as u64), "a secret's beginning is overwritten");
        let part = read_redacted(&reader, &masker, 0, u64::MAX, StreamEnd::Whole).unwrap();
        assert_eq!((part.offset, part.scanned), (tail, head));
        assert_eq!(part.data, vec![MASK_BYTE; (head - tail) as usize]);
    }
}
