//! Reads a terminal's ring through a descriptor that can only read, and without trust: its writer may lie in its
//! header. What is read is then at worst wrong.

use std::{fs::File, io, os::fd::OwnedFd, os::unix::fs::FileExt as _};

use crate::output::ring::{Layout, MAGIC, field};

/// A ring.
#[derive(Debug)]
pub(super) struct RingSource {
    file: File,
    layout: Layout,
}

/// What was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RingPiece {
    /// Of the first byte; above what was asked for when that was overwritten.
    pub(super) offset: u64,
    pub(super) length: usize,
}

impl RingSource {
    pub(super) fn open(file: OwnedFd) -> io::Result<Self> {
        let file = File::from(file);
        let stat = nix::sys::stat::fstat(&file)?;
        let layout = u64::try_from(stat.st_size).ok().and_then(Layout::of_file);
        let source = Self { layout: layout.ok_or(io::ErrorKind::InvalidData)?, file };
        if source.word(field::MAGIC)? == MAGIC { Ok(source) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Bytes written since the start.
    pub(super) fn head(&self) -> io::Result<u64> {
        self.word(field::HEAD)
    }

    /// Whether no more will come after the head that is loaded next.
    pub(super) fn at_end(&self) -> io::Result<bool> {
        Ok(self.word(field::AT_END)? != 0)
    }

    /// Copies bytes from `offset` on, as many as there are and as `out` has room for.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<RingPiece> {
        let wanted = self.layout.readable(self.head()?, self.word(field::TAIL)?, offset, out.len() as u64);
        let mut length = 0;
        for range in self.layout.file_ranges(wanted.start, wanted.end - wanted.start) {
            let part = (range.end - range.start) as usize;
            self.file.read_exact_at(&mut out[length..length + part], range.start)?;
            length += part;
        }
        // What was overwritten while it was copied is before the tail now.
        let overtaken = self.word(field::TAIL)?.saturating_sub(wanted.start).min(length as u64);
        out.copy_within(overtaken as usize..length, 0);
        Ok(RingPiece { offset: wanted.start.saturating_add(overtaken), length: length - overtaken as usize })
    }

    fn word(&self, at: usize) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at as u64)?;
        Ok(u64::from_le_bytes(bytes))
    }
}
