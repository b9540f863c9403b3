//! Reloads the policy: when a file of its directory has changed, on SIGHUP, and when a caller asks.
//!
//! The directory is looked at by its name once a second, which sees every way of changing a file on every file system:
//! in place, by rename, by a link or a whole directory that is swapped (decision 0090). A change is loaded when it has
//! come to rest, so that a file that is being written is not taken for a shorter one. A set that is wrong leaves the
//! one in force, and is said.

use std::{
    convert::Infallible,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{
    signal::unix::Signal,
    sync::{mpsc, oneshot},
    time::{MissedTickBehavior, interval, sleep},
};

use super::{config::PolicySource, journal_lifecycle, path_trust};
use crate::{
    approval::ApprovalStore,
    grpc::ReloadOutcome,
    journal::{PolicyRefused, Record},
    policy::{ActivePolicy, FailedLoad, LoadOutcome, PolicyFileError},
    sandbox::{gate_link::Gates, net_link::Nets, roots::governing::Governing},
    session::Sessions,
    sys::allocator,
    terminal::Recorder,
};

/// The time between two looks at the directory.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// A change is loaded once it is this old: a younger one may be incomplete.
const SETTLE_TIME: Duration = Duration::from_millis(100);
/// Looks at a change that does not come to rest, before it is loaded all the same.
const SETTLE_POLLS_MAX: u32 = 20;

/// Keeps the policy in force as the files say.
#[derive(Debug)]
pub(super) struct PolicyReloader {
    pub(super) source: PolicySource,
    pub(super) kept_caches: PathBuf,
    pub(super) in_force: Arc<ActivePolicy>,
    /// Questions of an older policy end with it.
    pub(super) approvals: Arc<ApprovalStore>,
    /// Writes down which policy is in force.
    pub(super) recorder: Recorder,
    /// Are sent every policy.
    pub(super) gates: Arc<Gates>,
    /// Are told of every policy.
    pub(super) nets: Arc<Nets>,
    /// What no session may reach.
    pub(super) governing: Arc<Governing>,
    /// Those that are open.
    pub(super) sessions: Arc<Sessions>,
    /// The files as they were before the policy in force was loaded.
    pub(super) loaded_stamps: FileStamps,
}

/// What was there at a look. Files that may have changed within the look are as if not seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FileStamps(Vec<FileStamp>);

/// What identifies a version of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FileStamp {
    path: PathBuf,
    device: u64,
    inode: u64,
    length: u64,
    changed: (i64, i64),
}

/// What becomes of a file that looks as if its write had been cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CutFiles {
    /// It is refused, where no user has asked for the load.
    Refused,
    /// It is loaded as it is.
    Taken,
}

/// Why a load is done.
enum ReloadTrigger {
    Poll,
    Hangup,
    Request(oneshot::Sender<ReloadOutcome>),
}

impl PolicyReloader {
    /// Looks, and takes what is asked for. Never ends.
    pub(super) async fn run(
        &self,
        mut hangup: Option<Signal>,
        requests: &mut mpsc::Receiver<oneshot::Sender<ReloadOutcome>>,
    ) -> Infallible {
        let mut last_stamps = self.loaded_stamps.0.clone();
        let mut polls = interval(POLL_INTERVAL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let trigger = tokio::select! {
                _ = polls.tick() => ReloadTrigger::Poll,
                () = next_hangup(&mut hangup) => ReloadTrigger::Hangup,
                Some(answer) = requests.recv() => ReloadTrigger::Request(answer),
            };
            match trigger {
                ReloadTrigger::Poll => {
                    let now = self.read_stamps().await;
                    if now != last_stamps {
                        last_stamps = self.wait_until_settled(now).await;
                        self.load(CutFiles::Refused).await;
                    }
                }
                ReloadTrigger::Hangup => {
                    self.look_at_directories_again();
                    last_stamps = self.read_stamps().await;
                    self.load(CutFiles::Taken).await;
                }
                ReloadTrigger::Request(answer) => {
                    self.look_at_directories_again();
                    last_stamps = self.read_stamps().await;
                    // Who asked may have gone.
                    let _ = answer.send(self.load(CutFiles::Taken).await);
                }
            }
        }
    }

    /// Who asks for a load means the directories that are there now, also where the files are the same.
    fn look_at_directories_again(&self) {
        self.in_force.current().known_directories().forget();
    }

    /// Looks again until nothing has changed for a while.
    async fn wait_until_settled(&self, mut now: Vec<FileStamp>) -> Vec<FileStamp> {
        for _ in 0..SETTLE_POLLS_MAX {
            sleep(SETTLE_TIME).await;
            let next = self.read_stamps().await;
            if next == now && is_settled(&next, SystemTime::now()) {
                break;
            }
            now = next;
        }
        now
    }

    /// Looks once, before the first load.
    pub(super) fn stamps_before_load(source: &PolicySource) -> FileStamps {
        match source {
            PolicySource::Directory(directory) => {
                let stamps = stamps(directory);
                FileStamps(if is_settled(&stamps, SystemTime::now()) { stamps } else { Vec::new() })
            }
            PolicySource::CompiledIn | PolicySource::CompiledInPreferringLimits => FileStamps::default(),
        }
    }

    async fn read_stamps(&self) -> Vec<FileStamp> {
        let PolicySource::Directory(directory) = self.source.clone() else { return Vec::new() };
        // A file system that does not answer holds up nobody but this.
        tokio::task::spawn_blocking(move || stamps(&directory)).await.unwrap_or_default()
    }

    /// Loads once; what is wrong is said and remembered.
    async fn load(&self, cut_files: CutFiles) -> ReloadOutcome {
        let (source, governing, sessions) =
            (self.source.clone(), self.governing.clone(), self.sessions.clone());
        let (before, kept_caches) = (self.in_force.current(), self.kept_caches.clone());
        let load = move || {
            path_trust::check_trust(governing.policies()).map_err(problem_of)?;
            let set = source.load().map_err(|error| error.into_problem())?;
            if let Some(cut) = before.cut_short(&set).filter(|_| cut_files == CutFiles::Refused) {
                return Err((cut.to_string(), Some(cut)));
            }
            let named = path_trust::policy_paths(&source, &kept_caches, &set);
            path_trust::check_trust(&named).map_err(problem_of)?;
            path_trust::replace(&governing, named, (&before, &set), &sessions).map_err(problem_of)?;
            Ok(set)
        };
        let loaded = tokio::task::spawn_blocking(load).await;
        // What was parsed, and the set of before, are much more than the set itself.
        allocator::trim();
        let loaded = loaded.unwrap_or_else(|panicked| Err((panicked.to_string(), None)));
        let at_unix_ms = now_unix_ms();
        match loaded {
            Ok(set) => {
                let replaced = self.in_force.replace(set, at_unix_ms);
                if let LoadOutcome::Replaced(generation) = replaced {
                    self.recorder.record_best_effort(&journal_lifecycle::policy_loaded_record(
                        &self.in_force.current(),
                    ));
                    self.gates.push_policy();
                    self.nets.policy_replaced();
                    self.approvals.supersede(generation);
                }
                let current = self.in_force.current();
                tracing::info!(
                    policy.generation = current.generation(),
                    policy.digest = %current.digest(),
                    policy.changed = matches!(replaced, LoadOutcome::Replaced(_)),
                    "policy loaded"
                );
                ReloadOutcome::Valid(replaced)
            }
            Err((problem, place)) => {
                let generation = self.in_force.current().generation();
                let refused = PolicyRefused { generation, problem: problem.clone() };
                self.recorder.record_best_effort(&Record::PolicyRefused(refused));
                tracing::error!(
                    policy.generation = generation,
                    problem,
                    "policy refused: the one in force stays"
                );
                self.in_force.record_failure(FailedLoad { problem, place, at_unix_ms });
                ReloadOutcome::Refused
            }
        }
    }
}

/// Milliseconds since 1970.
pub(super) fn now_unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// An error with its cause; it is about no place in a file.
fn problem_of(error: impl std::error::Error) -> (String, Option<PolicyFileError>) {
    let cause = error.source().map(|cause| format!(": {cause}"));
    (format!("{error}{}", cause.unwrap_or_default()), None)
}

async fn next_hangup(hangup: &mut Option<Signal>) {
    let received = match hangup {
        Some(hangup) => hangup.recv().await,
        None => None,
    };
    if received.is_none() {
        std::future::pending().await
    }
}

/// Whether the last change is old enough that the next one would have another time, whatever the clock's steps.
fn is_settled(stamps: &[FileStamp], now: SystemTime) -> bool {
    let Some((seconds, nanos)) = stamps.iter().map(|stamp| stamp.changed).max() else { return true };
    let (Ok(seconds), Ok(nanos)) = (u64::try_from(seconds), u32::try_from(nanos)) else { return true };
    let changed = UNIX_EPOCH + Duration::new(seconds, nanos);
    // A time to come is another machine's clock: nothing can be told by it.
    now.duration_since(changed).is_ok_and(|age| age >= SETTLE_TIME)
}

fn stamps(directory: &Path) -> Vec<FileStamp> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let stamp_of = |path: PathBuf| {
        path.extension().filter(|extension| *extension == "toml")?;
        // The file that a link leads to counts.
        let metadata = fs::metadata(&path).ok()?;
        Some(FileStamp {
            path,
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    };
    let mut stamps: Vec<FileStamp> = entries.filter_map(|entry| stamp_of(entry.ok()?.path())).collect();
    stamps.sort();
    stamps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(at: SystemTime) -> Vec<FileStamp> {
        let since = at.duration_since(UNIX_EPOCH).unwrap();
        let changed = (since.as_secs().cast_signed(), i64::from(since.subsec_nanos()));
        vec![FileStamp { path: PathBuf::new(), device: 0, inode: 0, length: 0, changed }]
    }

    #[test]
    fn a_change_of_a_moment_ago_is_not_at_rest() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        assert!(is_settled(&[], now));
        assert!(is_settled(&changed(now - SETTLE_TIME), now));
        assert!(!is_settled(&changed(now - SETTLE_TIME / 2), now));
        assert!(!is_settled(&changed(now + Duration::from_secs(60)), now), "by another clock");
        let mixed = [changed(now - SETTLE_TIME * 10), changed(now)].concat();
        assert!(!is_settled(&mixed, now), "the latest counts");
    }
}
