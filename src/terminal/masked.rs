//! Reading a ring as it may be seen: each byte that is part of a secret is covered.
//!
//! The ring holds what the command wrote. A part of it is read with as much around it as says what in it is secret, so
//! that it is the same whichever part is asked for, and whenever. At the end of what has come, the beginning of a
//! secret is held back until more comes or the command has ended.

use nix::errno::Errno;

use crate::{
    masking::{Begins, Ends, Masker},
    sys::ring::Reader,
};

/// A part of a stream.
#[derive(Debug)]
pub(super) struct Part {
    /// Of its first byte. After the one that was asked for when that is overwritten.
    pub offset: u64,
    /// May be empty.
    pub data: Vec<u8>,
    /// Up to where the stream was looked at: there is nothing more to see before it has more than this.
    pub seen: u64,
}

/// Reads at most `most` bytes from `from` on. `ends` says whether the command may still write.
pub(super) fn read(ring: &Reader, masker: &Masker, from: u64, most: u64, ends: Ends) -> Result<Part, Errno> {
    let reach = masker.reach() as u64;
    // What ends beyond this has all around it that matters.
    let beyond = from.saturating_add(most).saturating_add(reach);
    let start = from.saturating_sub(reach);
    let mut data = vec![0; ring.head().min(beyond).saturating_sub(start) as usize];
    let copied = ring.read_at(start, &mut data)?;
    data.truncate(copied.length);
    let seen = copied.offset + copied.length as u64;
    let begins = if copied.offset > start { Begins::Cut } else { Begins::Whole };
    let ends =
        if seen >= beyond || (ends == Ends::Whole && seen >= ring.head()) { Ends::Whole } else { Ends::Open };
    let certain = copied.offset + masker.cover(&mut data, begins, ends) as u64;
    let offset = from.max(copied.offset);
    let end = certain.min(from.saturating_add(most)).max(offset);
    data.truncate(end.saturating_sub(copied.offset) as usize);
    data.drain(..(offset - copied.offset).min(data.len() as u64) as usize);
    Ok(Part { offset, data, seen })
}
