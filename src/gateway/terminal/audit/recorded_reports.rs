//! Which reports of gates the journal had when this gateway came: a gate sends again what was not confirmed to it, and what a
//! gateway has written and not confirmed must not be written twice.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use tokio::sync::Mutex;

use super::recorder::Recorder;

/// How far the clock may have been set between a report and its record.
const CLOCK_MARGIN: Duration = Duration::from_secs(600);

/// Reads the journal when first asked, and again for an older report.
#[derive(Debug)]
pub(in crate::terminal) struct RecordedReports {
    recorder: Recorder,
    known: Mutex<KnownReports>,
}

#[derive(Debug, Default)]
struct KnownReports {
    /// The last report of each sandbox.
    last: HashMap<String, u64>,
    /// Records since then are known.
    since: Option<SystemTime>,
}

impl RecordedReports {
    /// Of the journal of this recorder.
    pub(in crate::terminal) fn new(recorder: Recorder) -> Self {
        Self { recorder, known: Mutex::default() }
    }

    /// Whether the journal has a report that was made at `at`. Reports are written in the order of their numbers, so it has
    /// every one up to the last of its sandbox.
    pub(in crate::terminal) async fn contains(&self, sandbox_id: &str, report: u64, at: SystemTime) -> bool {
        let Some(journal) = self.recorder.journal() else { return false };
        let mut known = self.known.lock().await;
        let since = at.checked_sub(CLOCK_MARGIN).unwrap_or(SystemTime::UNIX_EPOCH);
        if known.since.is_none_or(|known| since < known) {
            let journal = journal.clone();
            let read = tokio::task::spawn_blocking(move || journal.last_reports(since)).await;
            match read.map_err(std::io::Error::other).and_then(|last| last) {
                Ok(last) => known.last = last,
                // Twice is better than not at all.
                Err(error) => tracing::error!(%error, "the journal's reports cannot be read"),
            }
            known.since = Some(since);
        }
        known.last.get(sandbox_id).is_some_and(|last| report <= *last)
    }
}
