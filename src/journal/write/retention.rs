//! Applies the retention rule: old files are chosen when a file is closed, and deleted once the record of their deletion
//! is written. Never the current file.

use std::{io, time::UNIX_EPOCH};

use super::{store::LogStore, usage_restore};
use crate::{
    SyncRule, WriteFailure,
    format::{
        chain::ChainHead,
        clock::Clock,
        directory::{JournalFile, LockedDirectory},
        line::JournalLine,
        line_reader::LineReader,
        maintenance::FilesRemoved,
        record::Record,
    },
};

impl LogStore {
    /// Chooses the files that the retention rule deletes, and queues the record of their deletion.
    pub(super) fn plan_removals(&mut self, clock: &mut dyn Clock) -> io::Result<()> {
        let files = self.locked.directory().files()?;
        let rule = self.options.retention;
        let beyond_count = rule.files.map_or(0, |bound| files.len().saturating_sub(bound.get() as usize));
        let beyond_age = match rule.age {
            None => 0,
            Some(age) => {
                let at_most = files.len().saturating_sub(rule.files_at_least.get() as usize);
                let oldest_ns = u128::from(clock.now().wall_ns).saturating_sub(age.as_nanos());
                let is_old = |file: &&JournalFile| last_written_ns(&self.locked, file) < oldest_ns;
                files.iter().take(at_most).take_while(is_old).count()
            }
        };
        // Not the current file, which is the last one, and no file with a record that is too young.
        let now = clock.now();
        let is_young = |file: &JournalFile| {
            let ended =
                usage_restore::time_since_last_write(self.locked.directory(), file, &self.boot_id, now);
            !self.options.keep_at_least.is_zero() && ended < self.options.keep_at_least
        };
        let count = beyond_count.max(beyond_age).min(files.len().saturating_sub(1));
        let count = files.iter().take(count).take_while(|file| !is_young(file)).count();
        if count == 0 {
            return Ok(());
        }
        let Some(before) = self.chain_head_before(&files[count])? else { return Ok(()) };
        self.files_to_remove = files[..count].to_vec();
        self.pending.push(Record::FilesRemoved(FilesRemoved {
            files: self.files_to_remove.iter().map(|file| file.name.clone()).collect(),
            last_sequence: before.sequence,
            last_hash: before.hash,
        }));
        Ok(())
    }

    /// The record before the first one of `file`, where that one can be read.
    fn chain_head_before(&self, file: &JournalFile) -> io::Result<Option<ChainHead>> {
        if *file == self.file {
            return Ok(Some(self.chain_head));
        }
        let mut reader = LineReader::new(self.locked.directory().open(file)?);
        let first = reader.next()?.and_then(|raw| JournalLine::parse(raw.bytes).ok());
        Ok(first.map(|line| ChainHead { sequence: line.sequence.saturating_sub(1), hash: line.previous }))
    }

    pub(super) fn remove_old_files(&mut self) -> Result<(), WriteFailure> {
        if self.files_to_remove.is_empty() {
            return Ok(());
        }
        if self.options.sync != SyncRule::Off {
            self.sync()?;
        }
        for file in std::mem::take(&mut self.files_to_remove) {
            // A file that cannot be deleted now is tried again at the next rotation.
            let _ = self.locked.remove(&file);
        }
        Ok(())
    }
}

/// Nanoseconds since 1970; for a file that cannot be looked at, the far future, so that it stays.
fn last_written_ns(held: &LockedDirectory, file: &JournalFile) -> u128 {
    let found = held.directory().path().join(&file.name).metadata().and_then(|found| found.modified());
    let since = found.ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(u128::MAX, |since| since.as_nanos())
}
