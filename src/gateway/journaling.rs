//! The gateway's journal: the section `[journal]` of its configuration, its opening, its first and last records.
//!
//! A configuration that cannot be kept to stops the gateway before it serves. A disk that refuses does not: then the
//! gateway serves, refuses every command, and says that it is not ready.

use std::{
    num::{NonZeroU32, NonZeroU64},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;

use crate::{
    journal::{
        self, GatewayStarted, GatewayStopped, Journal, JournalKey, JournalOptions, KeyError, PolicyLoaded,
        Record, Retention, Signing, SyncRule,
    },
    policy::{PolicySet, duration},
    terminal::Recorder,
};

/// How the journal is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalConfig {
    /// Its folder; absent: `journal` in the state folder.
    pub folder: Option<PathBuf>,
    /// When records reach the disk.
    pub sync: SyncRule,
    /// A file is ended once it is as long as this.
    pub rotate_bytes: u64,
    /// A file is ended when it is as old as this.
    pub rotate_after: Option<Duration>,
    /// What is deleted.
    pub retention: Retention,
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
            folder: None,
            sync,
            rotate_bytes,
            rotate_after,
            retention,
            signing_key: None,
            sign_every_records: SIGN_EVERY_RECORDS,
        }
    }
}

/// Why the journal cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Its folder or its threads cannot be had.
    #[error("the journal cannot be opened")]
    Open(#[from] journal::OpenError),
    /// The key that is to sign it cannot be used.
    #[error("the journal's signing_key {} cannot be used", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: KeyError,
    },
}

/// The section, as written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JournalSection {
    enabled: Option<bool>,
    folder: Option<PathBuf>,
    sync: Option<SyncWord>,
    #[serde(default, with = "duration::optional")]
    sync_within: Option<Duration>,
    rotate_bytes: Option<NonZeroU64>,
    #[serde(default, with = "duration::optional")]
    rotate_after: Option<Duration>,
    keep_files: Option<u32>,
    #[serde(default, with = "duration::optional")]
    keep_for: Option<Duration>,
    keep_files_at_least: Option<NonZeroU32>,
    signing_key: Option<PathBuf>,
    sign_every_records: Option<NonZeroU64>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SyncWord {
    Always,
    Batch,
    Off,
}

impl JournalSection {
    /// What is left out has its default. `None`: no journal is kept.
    pub(super) fn into_config(self) -> Option<JournalConfig> {
        if self.enabled == Some(false) {
            return None;
        }
        let default = JournalConfig::default();
        let batch = match (self.sync_within, default.sync) {
            (Some(within), _) => SyncRule::Batch { within },
            (None, default) => default,
        };
        let Retention { files, age, files_at_least } = default.retention;
        Some(JournalConfig {
            folder: self.folder,
            sync: match self.sync {
                Some(SyncWord::Always) => SyncRule::Always,
                Some(SyncWord::Off) => SyncRule::Off,
                Some(SyncWord::Batch) | None => batch,
            },
            rotate_bytes: self.rotate_bytes.map_or(default.rotate_bytes, NonZeroU64::get),
            rotate_after: self.rotate_after,
            retention: Retention {
                files: self.keep_files.map_or(files, NonZeroU32::new),
                age: self.keep_for.or(age),
                files_at_least: self.keep_files_at_least.unwrap_or(files_at_least),
            },
            signing_key: self.signing_key,
            sign_every_records: self.sign_every_records.unwrap_or(default.sign_every_records),
        })
    }
}

/// Opens the journal of a configuration, below this state folder when it names no other.
pub(super) fn open(config: Option<&JournalConfig>, state: &Path) -> Result<Recorder, JournalError> {
    let Some(config) = config else { return Ok(Recorder::nowhere()) };
    let signing = match &config.signing_key {
        None => None,
        Some(path) => {
            let key =
                JournalKey::load(path).map_err(|source| JournalError::Key { path: path.clone(), source })?;
            Some(Signing { key, every_records: config.sign_every_records })
        }
    };
    let options = JournalOptions {
        folder: config.folder.clone().unwrap_or_else(|| state.join("journal")),
        sync: config.sync,
        rotate_bytes: config.rotate_bytes,
        rotate_after: config.rotate_after,
        retention: config.retention,
        signing,
    };
    Ok(Recorder::to(Journal::open(options)?))
}

/// Notes that a gateway has the journal from here on, and by which policy it judges.
pub(super) fn note_start(recorder: &Recorder, policy: &PolicySet) {
    recorder.note(&Record::GatewayStarted(GatewayStarted {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        uid: nix::unistd::geteuid().as_raw(),
    }));
    recorder.note(&policy_loaded(policy));
}

/// A policy is in force.
pub(super) fn policy_loaded(policy: &PolicySet) -> Record {
    Record::PolicyLoaded(PolicyLoaded {
        generation: policy.generation(),
        digest: policy.digest().to_string(),
        files: policy.files().to_vec(),
    })
}

/// How a gateway came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drained {
    /// Every session was closed in time.
    InOrder,
    /// The drain took too long, and what was left was killed.
    TooSlow,
    /// A second signal came, and what was left was killed.
    Hurried,
}

/// Notes the end of a gateway, and closes the journal: what was noted is on the disk when this answers.
pub(super) async fn end(recorder: &Recorder, drained: Drained) {
    let Some(journal) = recorder.journal().cloned() else { return };
    let cause = match drained {
        Drained::InOrder => "drained",
        Drained::TooSlow => "drain_timeout",
        Drained::Hurried => "second_signal",
    };
    recorder.note(&Record::GatewayStopped(GatewayStopped { cause: cause.to_owned(), live_terminals: 0 }));
    let closed = tokio::task::spawn_blocking(move || {
        journal.close();
        journal.health()
    });
    match closed.await {
        Ok(journal::Health::Writable) => {}
        Ok(journal::Health::Unwritable(failure)) => {
            tracing::error!(error = %failure, cause = %failure.source, "the journal's end could not be written");
        }
        Err(error) => tracing::error!(%error, "closing the journal failed"),
    }
}
