//! The gateway's journal: the section `[journal]` of its configuration, its opening, its first and last records.
//!
//! A configuration that cannot be kept to stops the gateway before it serves. A disk that refuses does not: then the
//! gateway serves, refuses every command, and says that it is not ready.

use std::{
    convert::Infallible,
    future::pending,
    num::{NonZeroU32, NonZeroU64},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use tokio::sync::watch;
use tonic_health::server::HealthReporter;

use crate::{
    grpc::{SessionsService, TerminalsService},
    journal::{
        self, GatewayStarted, GatewayStopped, Journal, JournalKey, JournalOptions, KeyError, PolicyLoaded,
        Record, Retention, Signing, SyncRule,
    },
    policy::{PolicySet, duration},
    proto::v1::{sessions_server::SessionsServer, terminals_server::TerminalsServer},
    terminal::Recorder,
};

/// How the journal is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalConfig {
    /// Its directory; absent: `journal` in the state directory.
    pub directory: Option<PathBuf>,
    /// When records reach the disk.
    pub sync: SyncRule,
    /// A file is ended once it is as long as this.
    pub rotate_bytes: u64,
    /// A file is ended when it is as old as this.
    pub rotate_after: Option<Duration>,
    /// What is deleted.
    pub retention: Retention,
    /// No record is deleted before it is as old as this; absent: by [`JournalConfig::retention_min`].
    pub keep_for_at_least: Option<Duration>,
    /// The private key (Ed25519, PEM) that signs it; absent: nothing is signed.
    pub signing_key: Option<PathBuf>,
    /// Signed at the latest after so many records.
    pub sign_every_records: NonZeroU64,
}

/// Records between two signatures: about what one busy second writes.
const SIGN_EVERY_RECORDS: NonZeroU64 = NonZeroU64::new(1_000).expect("it is not zero");

impl Default for JournalConfig {
    fn default() -> Self {
        let JournalOptions { sync, rotate_bytes, rotate_after, retention, .. } = JournalOptions::new("");
        Self {
            directory: None,
            sync,
            rotate_bytes,
            rotate_after,
            retention,
            keep_for_at_least: None,
            signing_key: None,
            sign_every_records: SIGN_EVERY_RECORDS,
        }
    }
}

/// The time that every record is kept for unless one is set, where the journal is large enough for it.
const RETENTION_MIN_DEFAULT: Duration = Duration::from_secs(3_600);
/// What one principal can write all the time without being refused, unless a time is set: some 100 commands a second.
const PRINCIPAL_BYTES_PER_S: u64 = 384 << 10;

impl JournalConfig {
    /// How long every record of a journal that keeps so many bytes is kept; 0 bytes: it keeps all of them.
    fn retention_min(&self, kept_bytes: u64) -> Duration {
        self.keep_for_at_least.unwrap_or_else(|| {
            let share_ms = kept_bytes.saturating_mul(1_000) / 3 / PRINCIPAL_BYTES_PER_S;
            let at_most = self.retention.age.unwrap_or(RETENTION_MIN_DEFAULT).min(RETENTION_MIN_DEFAULT);
            Duration::from_millis(share_ms).min(at_most)
        })
    }
}

/// Why the journal cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Its directory or its threads cannot be had.
    #[error("the journal cannot be opened")]
    Open(#[from] journal::OpenError),
    /// The key that is to sign it cannot be used.
    #[error("the journal's signing_key {} cannot be used", crate::printable::path(path))]
    Key {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: KeyError,
    },
}

/// The section, as it is meant: `None` where no journal is kept.
#[derive(Deserialize)]
#[serde(try_from = "JournalTable")]
pub(super) struct JournalSection(pub Option<JournalConfig>);

impl Default for JournalSection {
    fn default() -> Self {
        Self(Some(JournalConfig::default()))
    }
}

/// The section, as written. What is left out has its default.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JournalTable {
    enabled: Option<bool>,
    directory: Option<PathBuf>,
    sync: Option<SyncMode>,
    #[serde(default, with = "duration::optional")]
    sync_within: Option<Duration>,
    rotate_bytes: Option<u64>,
    #[serde(default, with = "duration::optional")]
    rotate_after: Option<Duration>,
    keep_files: Option<u32>,
    #[serde(default, with = "duration::optional")]
    keep_for: Option<Duration>,
    keep_files_at_least: Option<NonZeroU32>,
    #[serde(default, with = "duration::optional")]
    keep_for_at_least: Option<Duration>,
    signing_key: Option<PathBuf>,
    sign_every_records: Option<NonZeroU64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SyncMode {
    Always,
    Batch,
    Off,
}

/// What of the section cannot be meant.
#[derive(Debug, thiserror::Error)]
enum JournalConfigError {
    #[error("journal.{0} must be an absolute path")]
    RelativePath(&'static str),
    #[error("journal.sync_within is for sync = \"batch\"")]
    SyncWithin,
    #[error("journal.sync_within must be from 1ms to {}s", LONGEST_BATCH.as_secs())]
    SyncWithinRange,
    #[error("journal.rotate_bytes must be at least {SMALLEST_FILE_BYTES}")]
    RotateBytes,
    #[error("journal.{0} must be at least {secs}s", secs = SHORTEST_AGE.as_secs())]
    TooShort(&'static str),
    #[error("journal.keep_files_at_least is more than journal.keep_files")]
    KeepFiles,
    #[error("journal.keep_for_at_least is longer than journal.keep_for")]
    KeepFor,
    #[error("journal.sign_every_records is for a journal with a signing_key")]
    SignEvery,
}

/// Longer, and "written" would mean little.
const LONGEST_BATCH: Duration = Duration::from_secs(60);
/// The longest record fits twice.
const SMALLEST_FILE_BYTES: u64 = 2 << 20;
/// Shorter, and there would be more files than records.
const SHORTEST_AGE: Duration = Duration::from_secs(60);

impl TryFrom<JournalTable> for JournalSection {
    type Error = JournalConfigError;

    fn try_from(table: JournalTable) -> Result<Self, JournalConfigError> {
        let default = JournalConfig::default();
        for (name, path) in [("directory", &table.directory), ("signing_key", &table.signing_key)] {
            if path.as_ref().is_some_and(|path| !path.is_absolute()) {
                return Err(JournalConfigError::RelativePath(name));
            }
        }
        for (name, age) in [("rotate_after", table.rotate_after), ("keep_for", table.keep_for)] {
            if age.is_some_and(|age| age < SHORTEST_AGE) {
                return Err(JournalConfigError::TooShort(name));
            }
        }
        let rotate_bytes = table.rotate_bytes.unwrap_or(default.rotate_bytes);
        if rotate_bytes < SMALLEST_FILE_BYTES {
            return Err(JournalConfigError::RotateBytes);
        }
        let retention = Retention {
            // 0: all are kept.
            files: table.keep_files.map_or(default.retention.files, NonZeroU32::new),
            age: table.keep_for,
            files_at_least: table.keep_files_at_least.unwrap_or(default.retention.files_at_least),
        };
        if retention.files.is_some_and(|files| files < retention.files_at_least) {
            return Err(JournalConfigError::KeepFiles);
        }
        if table.keep_for_at_least.zip(table.keep_for).is_some_and(|(least, most)| least > most) {
            return Err(JournalConfigError::KeepFor);
        }
        if table.sign_every_records.is_some() && table.signing_key.is_none() {
            return Err(JournalConfigError::SignEvery);
        }
        let config = JournalConfig {
            sync: sync_rule(table.sync, table.sync_within, default.sync)?,
            directory: table.directory,
            rotate_bytes,
            rotate_after: table.rotate_after,
            retention,
            keep_for_at_least: table.keep_for_at_least,
            signing_key: table.signing_key,
            sign_every_records: table.sign_every_records.unwrap_or(default.sign_every_records),
        };
        Ok(Self((table.enabled != Some(false)).then_some(config)))
    }
}

fn sync_rule(
    mode: Option<SyncMode>,
    within: Option<Duration>,
    default: SyncRule,
) -> Result<SyncRule, JournalConfigError> {
    let in_range = |within: &Duration| (Duration::from_millis(1)..=LONGEST_BATCH).contains(within);
    match (mode, within) {
        (Some(SyncMode::Always), None) => Ok(SyncRule::Always),
        (Some(SyncMode::Off), None) => Ok(SyncRule::Off),
        (Some(SyncMode::Always | SyncMode::Off), Some(_)) => Err(JournalConfigError::SyncWithin),
        (Some(SyncMode::Batch) | None, None) => Ok(default),
        (Some(SyncMode::Batch) | None, Some(within)) => {
            in_range(&within).then_some(SyncRule::Batch { within }).ok_or(JournalConfigError::SyncWithinRange)
        }
    }
}

/// Opens the journal of a configuration, below this state directory when it names no other.
pub(super) fn open(config: Option<&JournalConfig>, state: &Path) -> Result<Recorder, JournalError> {
    let Some(config) = config else { return Ok(Recorder::disabled()) };
    let signing = match &config.signing_key {
        None => None,
        Some(path) => {
            let key =
                JournalKey::load(path).map_err(|source| JournalError::Key { path: path.clone(), source })?;
            Some(Signing { key, every_records: config.sign_every_records })
        }
    };
    let options = JournalOptions {
        directory: config.directory.clone().unwrap_or_else(|| state.join("journal")),
        sync: config.sync,
        rotate_bytes: config.rotate_bytes,
        rotate_after: config.rotate_after,
        retention: config.retention,
        keep_at_least: Duration::ZERO,
        signing,
    };
    let options = JournalOptions { keep_at_least: config.retention_min(options.kept_bytes()), ..options };
    Ok(Recorder::new(Journal::open(options)?))
}

/// Notes that a gateway has the journal from here on, and by which policy it judges.
pub(super) fn record_start(recorder: &Recorder, policy: &PolicySet) {
    recorder.record_best_effort(&Record::GatewayStarted(GatewayStarted {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        uid: nix::unistd::geteuid().as_raw(),
    }));
    recorder.record_best_effort(&policy_loaded_record(policy));
}

/// Says by the health service whether commands are started: not while the journal takes no records. Never ends.
pub(super) async fn report_health(recorder: &Recorder, health: &HealthReporter) -> Infallible {
    let Some(journal) = recorder.journal() else { return pending().await };
    let mut changes = journal.health_changes();
    let mut now = journal.health();
    // Only a change is said of a journal that is well from the start.
    if matches!(now, journal::Health::Writable) {
        now = next_health(&mut changes).await;
    }
    loop {
        match &now {
            journal::Health::Writable => {
                tracing::info!("the journal is written again: commands are started");
                health.set_serving::<TerminalsServer<TerminalsService>>().await;
                health.set_serving::<SessionsServer<SessionsService>>().await;
            }
            journal::Health::Unwritable(failure) => {
                tracing::error!(
                    step = failure.step.name(),
                    errno = failure.source.raw_os_error(),
                    cause = %failure.source,
                    directory = %crate::printable::path(journal.directory().path()),
                    "the journal cannot be written: no command is started until it can; kills and releases go on"
                );
                health.set_not_serving::<TerminalsServer<TerminalsService>>().await;
                health.set_not_serving::<SessionsServer<SessionsService>>().await;
            }
        }
        now = next_health(&mut changes).await;
    }
}

/// The health after its next change. Waits for ever once the journal is closed.
async fn next_health(changes: &mut watch::Receiver<journal::Health>) -> journal::Health {
    match changes.changed().await {
        Ok(()) => changes.borrow_and_update().clone(),
        Err(_) => pending().await,
    }
}

/// A policy is in force.
pub(super) fn policy_loaded_record(policy: &PolicySet) -> Record {
    Record::PolicyLoaded(PolicyLoaded {
        generation: policy.generation(),
        digest: policy.digest().to_string(),
        files: policy.files().to_vec(),
    })
}

/// How a gateway came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DrainOutcome {
    /// Every session was closed in time.
    InOrder,
    /// The drain took too long, and what was left was killed.
    TimedOut,
    /// A second signal came, and what was left was killed.
    Forced,
    /// What runs was left to the next gateway.
    LeftRunning {
        /// How many commands.
        live_terminals: u64,
    },
}

/// Notes the end of a gateway, and closes the journal: what was noted is on the disk when this answers.
pub(super) async fn close(recorder: &Recorder, outcome: DrainOutcome) {
    let Some(journal) = recorder.journal().cloned() else { return };
    let cause = match outcome {
        DrainOutcome::InOrder => "drained",
        DrainOutcome::TimedOut => "drain_timeout",
        DrainOutcome::Forced => "second_signal",
        DrainOutcome::LeftRunning { .. } => "left_running",
    };
    let live_terminals = match outcome {
        DrainOutcome::InOrder | DrainOutcome::TimedOut | DrainOutcome::Forced => 0,
        DrainOutcome::LeftRunning { live_terminals } => live_terminals,
    };
    recorder.write_counted_denials();
    recorder.record_best_effort(&Record::GatewayStopped(GatewayStopped {
        cause: cause.to_owned(),
        live_terminals,
    }));
    let closed = tokio::task::spawn_blocking(move || {
        journal.close();
        journal.health()
    });
    match closed.await {
        Ok(journal::Health::Writable) => recorder.clear_counted_denials(),
        Ok(journal::Health::Unwritable(failure)) => {
            tracing::error!(error = %failure, cause = %failure.source, "the journal's end could not be written");
        }
        Err(error) => tracing::error!(%error, "closing the journal failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    #[test]
    fn what_cannot_be_meant_is_refused_by_its_name() {
        for (section, problem) in [
            ("directory = 'journal'", "journal.directory must be an absolute path"),
            ("sync = 'always'\nsync_within = '5ms'", "journal.sync_within is for sync = \"batch\""),
            ("sync_within = '2m'", "journal.sync_within must be from 1ms to 60s"),
            ("rotate_bytes = 100", "journal.rotate_bytes must be at least"),
            ("rotate_after = '1s'", "journal.rotate_after must be at least 60s"),
            ("keep_files = 1", "journal.keep_files_at_least is more than journal.keep_files"),
            ("keep_for = '1h'\nkeep_for_at_least = '2h'", "journal.keep_for_at_least is longer than"),
            ("sign_every_records = 10", "journal.sign_every_records is for a journal with a signing_key"),
            ("sink = 'always'", "unknown field `sink`"),
            ("sync = 'sometimes'", "unknown variant `sometimes`"),
        ] {
            let error = Config::parse("c.toml", &format!("[journal]\n{section}\n")).unwrap_err().to_string();
            assert!(error.starts_with("c.toml:") && error.contains(problem), "{section}: {error}");
        }
        let off = Config::parse("c.toml", "[journal]\nenabled = false\n").unwrap();
        assert_eq!(off.journal, None);
        let on = Config::parse("c.toml", "[journal]\nkeep_files = 0\n").unwrap();
        assert_eq!(on.journal.unwrap().retention.files, None);
    }

    #[test]
    fn what_is_kept_for_an_hour_lets_a_busy_host_write() {
        let kept = |section: &str, bytes| {
            let config = Config::parse("c.toml", &format!("[journal]\n{section}\n")).unwrap();
            config.journal.unwrap().retention_min(bytes).as_secs()
        };
        assert_eq!(kept("", 64 * (64 << 20)), 3_600);
        assert_eq!(kept("", 2 * (2 << 20)), 3, "a small journal refuses nobody before a large one does");
        assert_eq!(kept("", 0), 0, "all is kept anyway");
        assert_eq!(kept("keep_for = '10m'", 64 * (64 << 20)), 600);
        assert_eq!(kept("keep_for_at_least = '24h'", 64 * (64 << 20)), 86_400);
        assert_eq!(kept("keep_for_at_least = '0s'", 64 * (64 << 20)), 0);
    }
}
