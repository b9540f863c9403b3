//! What is deleted of a journal's older files by the retention rule: chosen when a file ends, deleted once the record of
//! it is written. Never the current file.

use std::{io, time::UNIX_EPOCH};

use super::{
    SyncRule, WriteFailure,
    clock::Clock,
    folder::{HeldFolder, JournalFile},
    line::{Line, Link},
    maintenance::FilesRemoved,
    reading::LineReader,
    record::Record,
    store::Store,
    written_before,
};

impl Store {
    /// Chooses what the retention rule deletes, and owes the record of it.
    pub(super) fn plan_removals(&mut self, clock: &mut dyn Clock) -> io::Result<()> {
        let files = self.held.folder().files()?;
        let rule = self.options.retention;
        let beyond_count = rule.files.map_or(0, |bound| files.len().saturating_sub(bound.get() as usize));
        let beyond_age = match rule.age {
            None => 0,
            Some(age) => {
                let at_most = files.len().saturating_sub(rule.files_at_least.get() as usize);
                let oldest_ns = u128::from(clock.now().wall_ns).saturating_sub(age.as_nanos());
                let is_old = |file: &&JournalFile| last_written_ns(&self.held, file) < oldest_ns;
                files.iter().take(at_most).take_while(is_old).count()
            }
        };
        // Never the current file, which is the last one; nor one with a record that is too young.
        let now = clock.now();
        let is_young = |file: &JournalFile| {
            let ended = written_before::last_written(self.held.folder(), file, &self.boot_id, now);
            !self.options.keep_at_least.is_zero() && ended < self.options.keep_at_least
        };
        let count = beyond_count.max(beyond_age).min(files.len().saturating_sub(1));
        let count = files.iter().take(count).take_while(|file| !is_young(file)).count();
        if count == 0 {
            return Ok(());
        }
        let Some(before) = self.link_before(&files[count])? else { return Ok(()) };
        self.removals = files[..count].to_vec();
        self.owed.push(Record::FilesRemoved(FilesRemoved {
            files: self.removals.iter().map(|file| file.name.clone()).collect(),
            last_sequence: before.sequence,
            last_hash: before.hash,
        }));
        Ok(())
    }

    /// The record before the first one of `file`, where that one can be read.
    fn link_before(&self, file: &JournalFile) -> io::Result<Option<Link>> {
        if *file == self.file {
            return Ok(Some(self.link));
        }
        let mut reader = LineReader::new(self.held.folder().open(file)?);
        let first = reader.next()?.and_then(|raw| Line::parse(raw.bytes).ok());
        Ok(first.map(|line| Link { sequence: line.sequence.saturating_sub(1), hash: line.previous }))
    }

    pub(super) fn remove_old_files(&mut self) -> Result<(), WriteFailure> {
        if self.removals.is_empty() {
            return Ok(());
        }
        if self.options.sync != SyncRule::Off {
            self.sync()?;
        }
        for file in std::mem::take(&mut self.removals) {
            // What cannot be deleted now is the oldest file at the next rotation again.
            let _ = self.held.remove(&file);
        }
        Ok(())
    }
}

/// Nanoseconds since 1970; for a file that cannot be looked at, the far future, so that it stays.
fn last_written_ns(held: &HeldFolder, file: &JournalFile) -> u128 {
    let found = held.folder().path().join(&file.name).metadata().and_then(|found| found.modified());
    let since = found.ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(u128::MAX, |since| since.as_nanos())
}
