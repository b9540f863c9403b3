//! Keeps the counts of repeated records in files of the journal's directory, so that they survive a gateway that is
//! killed.
//!
//! Each count has a slot, which is written again as it grows by one pwrite(2) without a sync. There are two files: one
//! is counted into while the counts of the other go into the journal. A gateway that is killed between the journal's
//! write and the clearing of the file has them written once more by the next; none is lost. When a count cannot be
//! written, it is kept in memory only.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use crate::journal::Record;

/// The files' names.
const NAMES: [&str; 2] = ["counts-0", "counts-1"];
/// Of a slot. It divides a page, so that a write is not torn by the end of the process.
const SLOT_BYTES: usize = 1_024;
/// The longest file that is read: 65 counts of 1,024 principals.
const FILE_MAX_BYTES: u64 = 65 * 1_024 * SLOT_BYTES as u64;

/// The files; by default none.
#[derive(Debug, Default)]
pub(in crate::terminal) struct RepeatCountsFile {
    files: Option<[File; 2]>,
    /// The one that is counted into.
    current: usize,
    slots: u64,
}

impl RepeatCountsFile {
    /// Takes up the files of a directory, and what is counted in them.
    pub(in crate::terminal) fn open(directory: &Path) -> (Self, Vec<Record>) {
        match Self::load(directory) {
            Ok(opened) => opened,
            Err(error) => {
                tracing::error!(
                    error = %error,
                    "counts of repeated records cannot be kept in files: a gateway that is killed loses those of 10 s"
                );
                (Self::default(), Vec::new())
            }
        }
    }

    fn load(directory: &Path) -> io::Result<(Self, Vec<Record>)> {
        let paths = NAMES.map(|name| directory.join(name));
        let mut records = Vec::new();
        for path in &paths {
            records.extend(read(path)?);
        }
        // All of it in one file, before the others are emptied.
        let unfinished: PathBuf = directory.join("counts.new");
        let file = private_options().create(true).truncate(true).open(&unfinished)?;
        let mut slots = 0;
        for record in &records {
            write(&file, slots, record)?;
            slots += 1;
        }
        fs::rename(&unfinished, &paths[0])?;
        let other = private_options().create(true).truncate(true).open(&paths[1])?;
        Ok((Self { files: Some([file, other]), current: 0, slots }, records))
    }

    /// The slot of a new count.
    pub(in crate::terminal) fn free_slot(&self) -> u64 {
        self.slots
    }

    /// Writes how far a count has come.
    pub(in crate::terminal) fn write(&mut self, slot: u64, record: Record) {
        self.slots = self.slots.max(slot + 1);
        if let Some(files) = &self.files
            && (slot + 1) * SLOT_BYTES as u64 <= FILE_MAX_BYTES
        {
            // The disk may be full: the count is in memory all the same.
            let _ = write(&files[self.current], slot, &record);
        }
    }

    /// From here on the other file is counted into; what stands in this one is about to be written.
    pub(in crate::terminal) fn rotate(&mut self) {
        // Were it not empty, it would be what nobody has said to be written.
        self.current = 1 - self.current;
        self.slots = self.files.as_ref().map_or(0, |files| length_in_slots(&files[self.current]));
    }

    /// What stood in the other file is written.
    pub(in crate::terminal) fn clear_rotated(&mut self) {
        if let Some(files) = &self.files {
            let _ = files[1 - self.current].set_len(0);
        }
    }
}

fn length_in_slots(file: &File) -> u64 {
    file.metadata().map_or(0, |found| found.len().div_ceil(SLOT_BYTES as u64))
}

fn private_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600).custom_flags(nix::libc::O_NOFOLLOW);
    options
}

fn write(file: &File, slot: u64, record: &Record) -> io::Result<()> {
    file.write_all_at(&padded(record)?, slot * SLOT_BYTES as u64)
}

/// A count as its slot has it. Names that are too long for it are left out.
fn padded(record: &Record) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(record)?;
    if text.len() >= SLOT_BYTES {
        let mut shorter = record.clone();
        if let Record::RefusalsRepeated(it) = &mut shorter {
            (it.rule, it.limit) = (None, None);
        }
        text = serde_json::to_vec(&shorter)?;
    }
    if text.len() >= SLOT_BYTES {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    text.resize(SLOT_BYTES - 1, b' ');
    text.push(b'\n');
    Ok(text)
}

fn read(path: &Path) -> io::Result<Vec<Record>> {
    let file = match OpenOptions::new().read(true).custom_flags(nix::libc::O_NOFOLLOW).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(file, FILE_MAX_BYTES), &mut bytes)?;
    let mut records = Vec::new();
    for slot in bytes.chunks(SLOT_BYTES) {
        match serde_json::from_slice(slot) {
            Ok(record @ (Record::RefusalsRepeated(_) | Record::RecordsRepeated(_))) => records.push(record),
            Ok(_) | Err(_) => tracing::error!("a count of repeated records cannot be read"),
        }
    }
    Ok(records)
}
