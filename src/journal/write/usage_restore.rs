//! Restores the write quota's usage from the files of earlier gateways: from the last record of a closed file, and from
//! the lines of a file that was not closed.
//!
//! Verifies nothing: `verify` does. A line that cannot be read counts for no principal.

use std::{
    io::{self, Read as _, Seek as _, SeekFrom},
    os::unix::fs::MetadataExt as _,
    time::Duration,
};

use serde::Deserialize;

use super::write_quota::WriteQuota;
use crate::format::{
    clock::{Moment, parse_utc},
    directory::{JournalDirectory, JournalFile},
    line::JournalLine,
    line_reader::{LineEnd, LineReader},
    record::Record,
};

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
