//! The write quota: how much each principal may write in the time for which every record is kept.
//!
//! No file is deleted before its records have that age, so everything that is written in that time must fit into what the retention rule
//! keeps. A principal may write half of the bytes that are still free: a third of all bytes when it is alone, a quarter when another one
//! does the same, and so on, so that some are always left for others. Callers check the quota before they act; a record that has to be
//! written is counted even when the quota is exceeded.
//!
//! The usage is restored from the files of earlier gateways: from the last record of a closed file, and from the lines of a file that was
//! not closed. That verifies nothing: `verify` does. A line that cannot be read counts for no principal.

use std::{
    collections::{BTreeMap, HashMap},
    io::{self, Read as _, Seek as _, SeekFrom},
    os::unix::fs::MetadataExt as _,
    sync::Mutex,
    time::Duration,
};

use serde::Deserialize;

use super::lock;
use crate::format::{
    clock::{Clock as _, Moment, SystemClock, parse_utc},
    directory::{JournalDirectory, JournalFile},
    line::{JournalLine, LineEnd, LineReader},
    record::Record,
};

/// The number of slices of the time that are counted apart.
const SLICES: usize = 16;
/// Each principal may write one part in this many of all bytes, whatever the others have written.
const MIN_SHARE_DIVISOR: u64 = 256;
/// What the envelope adds to a record, about.
const TYPICAL_ENVELOPE_BYTES: u64 = 300;
/// The maximum number of principals in the last record of a file; the others are counted together.
const MAX_NAMED_PRINCIPALS: usize = 64;
/// The name of the others.
const OTHERS: &str = "";

/// A principal has written as much as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{cap} bytes of the journal's last {} s", within.as_secs())]
pub struct WriteQuotaReached {
    /// How much that is now.
    pub cap: u64,
    /// Within this time.
    pub within: Duration,
}

/// What principals have written.
#[derive(Debug)]
pub struct WriteQuota {
    total_bytes: u64,
    within: Duration,
    written: Mutex<WrittenBytes>,
}

#[derive(Debug, Default)]
struct WrittenBytes {
    /// The slice that it is now, counted since boot.
    now: u64,
    all: Window,
    principals: HashMap<String, Window>,
    /// What principals have written to the current file.
    file: HashMap<String, u64>,
}

/// One slice more than the time has, as the first and the last are not whole.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    slices: [u64; SLICES + 1],
    sum: u64,
}

impl Window {
    fn add(&mut self, slice: u64, bytes: u64) {
        self.slices[slot_of(slice)] += bytes;
        self.sum += bytes;
    }

    fn expire(&mut self, slice: u64) {
        self.sum -= std::mem::take(&mut self.slices[slot_of(slice)]);
    }
}

fn slot_of(slice: u64) -> usize {
    usize::try_from(slice % (SLICES as u64 + 1)).unwrap_or_default()
}

impl WriteQuota {
    /// For a journal that keeps so many bytes, and each record for at least this time. Zero: there is no quota.
    pub(crate) fn new(total_bytes: u64, within: Duration) -> Self {
        Self { total_bytes, within, written: Mutex::default() }
    }

    /// How long a record is kept at least.
    pub(crate) fn within(&self) -> Duration {
        self.within
    }

    /// Whether a principal may write so many bytes more.
    ///
    /// # Errors
    /// [`WriteQuotaReached`].
    pub fn has_room(&self, principal: &str, bytes: u64) -> Result<(), WriteQuotaReached> {
        if self.is_unbounded() {
            return Ok(());
        }
        let mut written = lock(&self.written);
        written.advance_to(self.slice(boot_ns()));
        let own = written.principals.get(principal).map_or(0, |window| window.sum);
        let cap = (self.total_bytes.saturating_sub(written.all.sum) / 2).max(self.min_share());
        if own.saturating_add(bytes) <= cap {
            Ok(())
        } else {
            Err(WriteQuotaReached { cap, within: self.within })
        }
    }

    /// Counts a record that is about to be written, for its principal if it has one.
    pub(crate) fn count(&self, principal: Option<&str>, body_bytes: usize) {
        if self.is_unbounded() {
            return;
        }
        let bytes = body_bytes as u64 + TYPICAL_ENVELOPE_BYTES;
        let mut written = lock(&self.written);
        let slice = self.slice(boot_ns());
        written.advance_to(slice);
        written.add(principal, slice, bytes);
        if let Some(principal) = principal {
            *entry(&mut written.file, principal) += bytes;
        }
    }

    /// Counts a record in the current file that an earlier gateway wrote, `ago` before now.
    pub(super) fn restore_in_current_file(&self, principal: Option<&str>, bytes: u64, ago: Duration) {
        if let Some(principal) = principal {
            *entry(&mut lock(&self.written).file, principal) += bytes;
        }
        self.restore(principal, bytes, ago);
    }

    /// Counts a file that was closed `ago` before now, by the totals in its last record.
    pub(super) fn restore_file(&self, held: &BTreeMap<String, u64>, file_bytes: u64, ago: Duration) {
        let mut of_nobody = file_bytes;
        for (principal, bytes) in held {
            of_nobody = of_nobody.saturating_sub(*bytes);
            self.restore((principal != OTHERS).then_some(principal), *bytes, ago);
        }
        self.restore(None, of_nobody, ago);
    }

    /// Counts a record in another file that an earlier gateway wrote, `ago` before now.
    pub(super) fn restore(&self, principal: Option<&str>, bytes: u64, ago: Duration) {
        if self.is_unbounded() || ago >= self.within {
            return;
        }
        let now = boot_ns();
        let mut written = lock(&self.written);
        written.advance_to(self.slice(now));
        // A boot ago, or a clock that was set: as if it were at the boot.
        let then = now.saturating_sub(u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX));
        let slice = self.slice(then).max(written.now.saturating_sub(SLICES as u64));
        written.add(principal, slice, bytes);
    }

    /// The bytes of the current file by principal.
    pub(super) fn current_file_usage(&self) -> BTreeMap<String, u64> {
        let file = &lock(&self.written).file;
        let mut all: Vec<(String, u64)> = file.iter().map(|(name, bytes)| (name.clone(), *bytes)).collect();
        all.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let others: u64 = all.iter().skip(MAX_NAMED_PRINCIPALS).map(|(_, bytes)| bytes).sum();
        all.truncate(MAX_NAMED_PRINCIPALS);
        all.extend((others > 0).then(|| (OTHERS.to_owned(), others)));
        all.into_iter().collect()
    }

    /// Starts counting for a new file.
    pub(super) fn begin_file(&self) {
        lock(&self.written).file.clear();
    }

    pub(super) fn is_unbounded(&self) -> bool {
        self.within.is_zero() || self.total_bytes == 0
    }

    fn min_share(&self) -> u64 {
        self.total_bytes / MIN_SHARE_DIVISOR
    }

    fn slice(&self, boot_ns: u64) -> u64 {
        let each = u64::try_from(self.within.as_nanos()).unwrap_or(u64::MAX) / SLICES as u64;
        boot_ns / each.max(1)
    }
}

fn boot_ns() -> u64 {
    SystemClock.now().boot_ns
}

fn entry<'a, V: Default>(map: &'a mut HashMap<String, V>, principal: &str) -> &'a mut V {
    if !map.contains_key(principal) {
        map.insert(principal.to_owned(), V::default());
    }
    map.get_mut(principal).expect("it is there by now")
}

impl WrittenBytes {
    fn add(&mut self, principal: Option<&str>, slice: u64, bytes: u64) {
        self.all.add(slice, bytes);
        if let Some(principal) = principal {
            entry(&mut self.principals, principal).add(slice, bytes);
        }
    }

    fn advance_to(&mut self, now: u64) {
        if now <= self.now {
            return;
        }
        let first = self.now + 1;
        // The slots of the slices that are new hold those that are over.
        for slice in first.max(now.saturating_sub(SLICES as u64))..=now {
            self.all.expire(slice);
            self.principals.values_mut().for_each(|window| window.expire(slice));
        }
        self.principals.retain(|_, window| window.sum > 0);
        self.now = now;
    }
}

/// The last line is looked for in this many bytes at the end of a file.
const TAIL_BYTES: u64 = 64 << 10;

/// The fields of a line that give its principal and age.
#[derive(Deserialize)]
struct UsageLine {
    time: String,
    boot: String,
    mono_ns: u64,
    record: UsageSubject,
}

#[derive(Deserialize)]
struct UsageSubject {
    #[serde(default)]
    principal: Option<String>,
}

/// Counts what was written within the time of the quota.
pub(super) fn restore_usage(
    directory: &JournalDirectory,
    boot_id: &str,
    now: Moment,
    shares: &WriteQuota,
) -> io::Result<()> {
    let files = directory.files()?;
    for (at, file) in files.iter().enumerate().rev() {
        let ago = time_since_last_write(directory, file, boot_id, now);
        let is_last = at + 1 == files.len();
        if ago >= shares.within() && !is_last {
            break;
        }
        match last_line(directory, file)?.map(|line| line.record) {
            Some(Record::FileClosed(closed)) => {
                let bytes = directory.open(file)?.metadata()?.len();
                shares.restore_file(&closed.written, bytes, ago);
            }
            Some(_) | None => restore_from_lines(directory, file, boot_id, now, |principal, bytes, ago| {
                if is_last {
                    shares.restore_in_current_file(principal, bytes, ago);
                } else {
                    shares.restore(principal, bytes, ago);
                }
            })?,
        }
    }
    Ok(())
}

fn restore_from_lines(
    directory: &JournalDirectory,
    file: &JournalFile,
    boot_id: &str,
    now: Moment,
    mut counted: impl FnMut(Option<&str>, u64, Duration),
) -> io::Result<()> {
    let mut lines = LineReader::new(directory.open(file)?);
    while let Some(raw) = lines.next()? {
        let bytes = raw.bytes.len() as u64;
        let line = match raw.ending {
            LineEnd::Newline => serde_json::from_slice::<UsageLine>(raw.bytes).ok(),
            LineEnd::EndOfFile | LineEnd::TooLong => None,
        };
        match line {
            Some(UsageLine { time, boot, mono_ns, record }) => {
                let ago = age(&boot, mono_ns, || parse_utc(&time), boot_id, now);
                counted(record.principal.as_deref(), bytes, ago);
            }
            None => counted(None, bytes, Duration::ZERO),
        }
    }
    Ok(())
}

/// How long ago a file was last written: by the boot clock where its last line is of this boot, and by wall time
/// otherwise. Not at all, for one that cannot be looked at.
pub(super) fn time_since_last_write(
    directory: &JournalDirectory,
    file: &JournalFile,
    boot_id: &str,
    now: Moment,
) -> Duration {
    let modified_ns = || {
        let found = directory.path().join(&file.name).metadata().ok()?;
        let seconds = u64::try_from(found.mtime()).ok()?;
        seconds.checked_mul(1_000_000_000)?.checked_add(u64::try_from(found.mtime_nsec()).ok()?)
    };
    match last_line(directory, file) {
        Ok(Some(line)) => age(&line.boot_id, line.boot_ns, modified_ns, boot_id, now),
        Ok(None) | Err(_) => age("", 0, modified_ns, boot_id, now),
    }
}

fn age(
    boot: &str,
    boot_ns: u64,
    wall_ns: impl FnOnce() -> Option<u64>,
    this_boot: &str,
    now: Moment,
) -> Duration {
    let ns = match boot == this_boot {
        true => now.boot_ns.saturating_sub(boot_ns),
        false => now.wall_ns.saturating_sub(wall_ns().unwrap_or(now.wall_ns)),
    };
    Duration::from_nanos(ns)
}

/// The last line of a file, where it is whole and not longer than is looked back.
fn last_line(directory: &JournalDirectory, file: &JournalFile) -> io::Result<Option<JournalLine>> {
    let mut source = directory.open(file)?;
    let length = source.metadata()?.len();
    source.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut tail = Vec::new();
    source.take(TAIL_BYTES).read_to_end(&mut tail)?;
    let Some(lines) = tail.strip_suffix(b"\n") else { return Ok(None) };
    let begin = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    Ok(JournalLine::parse(&lines[begin..]).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTAL: u64 = 1 << 30;

    fn shares() -> WriteQuota {
        WriteQuota::new(TOTAL, Duration::from_secs(3600))
    }

    fn fill(shares: &WriteQuota, principal: &str) -> u64 {
        let mut written = 0;
        while shares.has_room(principal, 100_000).is_ok() {
            shares.count(Some(principal), 100_000 - TYPICAL_ENVELOPE_BYTES as usize);
            written += 100_000;
        }
        written
    }

    #[test]
    fn one_principal_can_use_a_third_and_later_ones_still_get_a_share() {
        let shares = shares();
        let first = fill(&shares, "uid:1");
        assert!((TOTAL / 3 - first) < 200_000, "{first}");
        let others: Vec<u64> = (2..40).map(|uid| fill(&shares, &format!("uid:{uid}"))).collect();
        assert!(others.iter().all(|bytes| *bytes + 200_000 >= TOTAL / MIN_SHARE_DIVISOR), "{others:?}");
        let all = first + others.iter().sum::<u64>();
        assert!(all <= TOTAL + 40 * TOTAL / MIN_SHARE_DIVISOR, "{all}");
        assert!(shares.has_room("uid:1", 0).is_err());
        let reached = shares.has_room("uid:1", 1).unwrap_err();
        assert_eq!(reached.within, Duration::from_secs(3600));
    }

    #[test]
    fn bytes_expire_after_the_window_and_not_before() {
        let mut bytes = WrittenBytes::default();
        bytes.advance_to(100);
        bytes.add(Some("uid:1"), 100, 7);
        bytes.advance_to(100 + SLICES as u64);
        assert_eq!(bytes.principals["uid:1"].sum, 7, "its slice has ended {} slices ago", SLICES - 1);
        bytes.advance_to(101 + SLICES as u64);
        assert!(bytes.principals.is_empty());
        assert_eq!(bytes.all.sum, 0);
        bytes.add(Some("uid:1"), 117, 7);
        bytes.advance_to(1_000_000);
        assert_eq!(bytes.all.sum, 0);
    }

    #[test]
    fn a_closed_file_restores_the_usage_of_its_writers() {
        let shares = shares();
        for uid in 0..MAX_NAMED_PRINCIPALS + 10 {
            shares.count(Some(&format!("uid:{uid}")), 1_000 * uid);
        }
        let held = shares.current_file_usage();
        assert_eq!(held.len(), MAX_NAMED_PRINCIPALS + 1);
        shares.begin_file();
        assert!(shares.current_file_usage().is_empty(), "a new one holds nothing");
        let next = super::WriteQuota::new(TOTAL, Duration::from_secs(3600));
        let total: u64 = held.values().sum();
        next.restore_file(&held, total + 5_000, Duration::from_secs(60));
        next.restore_file(&held, total, Duration::from_secs(3600));
        let written = lock(&next.written);
        assert_eq!(written.all.sum, total + 5_000, "the second one is old");
        assert_eq!(written.principals["uid:73"].sum, 73_000 + TYPICAL_ENVELOPE_BYTES);
        assert!(!written.principals.contains_key(OTHERS));
    }

    #[test]
    fn no_window_means_no_quota() {
        for shares in [WriteQuota::new(TOTAL, Duration::ZERO), WriteQuota::new(0, Duration::from_secs(1))] {
            shares.count(Some("uid:1"), usize::MAX / 2);
            assert_eq!(shares.has_room("uid:1", TOTAL * 2), Ok(()));
        }
    }
}
