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
