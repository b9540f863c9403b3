//! Reload of the policies: when a file of the folder has changed, on SIGHUP, and when a caller asks.
//!
//! The folder is looked at by its name once a second, which sees every way of changing a file on every file system:
//! in place, by rename, by a link or a whole folder that is swapped (decision 0090). A change is loaded when it has
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

use super::{config::PolicySource, governing, journaling};
use crate::{
    approval::Book,
    grpc::Reloaded,
    journal::{PolicyRefused, Record},
    policy::{InForce, PolicyFileError, Refusal, Replaced},
    sandbox::governing::Governing,
    session::Sessions,
    terminal::Recorder,
};

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(1);
/// A change that is younger may not be complete.
const REST: Duration = Duration::from_millis(100);
/// Looks at a change that does not come to rest, before it is loaded all the same.
const LOOKS_MAX: u32 = 20;

/// Keeps the policy in force as the files say.
#[derive(Debug)]
pub(super) struct Reloading {
    pub(super) source: PolicySource,
    pub(super) in_force: Arc<InForce>,
    /// Questions of an older policy end with it.
    pub(super) approvals: Arc<Book>,
    /// Writes down which policy is in force.
    pub(super) recorder: Recorder,
    /// What no session may reach.
    pub(super) governing: Arc<Governing>,
    /// Those that are open.
    pub(super) sessions: Arc<Sessions>,
    /// The files as they were before the policy in force was loaded.
    pub(super) seen: Seen,
}

/// What was there at a look. Files that may have changed within the look are as if not seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Seen(Vec<Stamp>);

/// What tells that a file is another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Stamp {
    path: PathBuf,
    device: u64,
    inode: u64,
    length: u64,
    changed: (i64, i64),
}

/// Why a load is done.
enum Why {
    Look,
    Hangup,
    Asked(oneshot::Sender<Reloaded>),
}

impl Reloading {
    /// Looks, and takes what is asked for. Never ends.
    pub(super) async fn watch(
        &self,
        mut hangup: Option<Signal>,
        asked: &mut mpsc::Receiver<oneshot::Sender<Reloaded>>,
    ) -> Infallible {
        let mut seen = self.seen.0.clone();
        let mut looks = interval(PERIOD);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let why = tokio::select! {
                _ = looks.tick() => Why::Look,
                () = hung_up(&mut hangup) => Why::Hangup,
                Some(answer) = asked.recv() => Why::Asked(answer),
            };
            match why {
                Why::Look => {
                    let now = self.look().await;
                    if now != seen {
                        seen = self.come_to_rest(now).await;
                        self.load().await;
                    }
                }
                Why::Hangup => {
                    seen = self.look().await;
                    self.load().await;
                }
                Why::Asked(answer) => {
                    seen = self.look().await;
                    // Who asked may have gone.
                    let _ = answer.send(self.load().await);
                }
            }
        }
    }

    /// Looks again until nothing has changed for a while.
    async fn come_to_rest(&self, mut now: Vec<Stamp>) -> Vec<Stamp> {
        for _ in 0..LOOKS_MAX {
            sleep(REST).await;
            let next = self.look().await;
            if next == now && is_at_rest(&next, SystemTime::now()) {
                break;
            }
            now = next;
        }
        now
    }

    /// Looks once, before the first load.
    pub(super) fn before(source: &PolicySource) -> Seen {
        match source {
            PolicySource::Folder(folder) => {
                let stamps = stamps(folder);
                Seen(if is_at_rest(&stamps, SystemTime::now()) { stamps } else { Vec::new() })
            }
            PolicySource::CompiledIn | PolicySource::CompiledInPreferringLimits => Seen::default(),
        }
    }

    async fn look(&self) -> Vec<Stamp> {
        let PolicySource::Folder(folder) = self.source.clone() else { return Vec::new() };
        // A file system that does not answer holds up nobody but this.
        tokio::task::spawn_blocking(move || stamps(&folder)).await.unwrap_or_default()
    }

    /// Loads once; what is wrong is said and remembered.
    async fn load(&self) -> Reloaded {
        let (source, governing, sessions) =
            (self.source.clone(), self.governing.clone(), self.sessions.clone());
        let before = self.in_force.current();
        let load = move || {
            governing::must_be_trusted(governing.policies()).map_err(refusal)?;
            let set = source.load().map_err(|error| error.refusal())?;
            let named = governing::of_policy(&source, &set);
            governing::must_be_trusted(&named).map_err(refusal)?;
            governing::replace(&governing, named, (&before, &set), &sessions).map_err(refusal)?;
            Ok(set)
        };
        let loaded = tokio::task::spawn_blocking(load).await;
        let loaded = loaded.unwrap_or_else(|panicked| Err((panicked.to_string(), None)));
        let at_unix_ms = now_unix_ms();
        match loaded {
            Ok(set) => {
                let replaced = self.in_force.replace(set, at_unix_ms);
                if let Replaced::By(generation) = replaced {
                    self.recorder.note(&journaling::policy_loaded(&self.in_force.current()));
                    self.approvals.supersede(generation);
                }
                let current = self.in_force.current();
                tracing::info!(
                    policy.generation = current.generation(),
                    policy.digest = %current.digest(),
                    policy.changed = matches!(replaced, Replaced::By(_)),
                    "policy loaded"
                );
                Reloaded::Taken(replaced)
            }
            Err((problem, place)) => {
                let generation = self.in_force.current().generation();
                let refused = PolicyRefused { generation, problem: problem.clone() };
                self.recorder.note(&Record::PolicyRefused(refused));
                tracing::error!(
                    policy.generation = generation,
                    problem,
                    "policy refused: the one in force stays"
                );
                self.in_force.refuse(Refusal { problem, place, at_unix_ms });
                Reloaded::Refused
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
fn refusal(error: impl std::error::Error) -> (String, Option<PolicyFileError>) {
    let cause = error.source().map(|cause| format!(": {cause}"));
    (format!("{error}{}", cause.unwrap_or_default()), None)
}

async fn hung_up(hangup: &mut Option<Signal>) {
    let came = match hangup {
        Some(hangup) => hangup.recv().await,
        None => None,
    };
    if came.is_none() {
        std::future::pending().await
    }
}

/// Whether the last change is old enough that the next one would have another time, whatever the clock's steps.
fn is_at_rest(stamps: &[Stamp], now: SystemTime) -> bool {
    let Some((seconds, nanos)) = stamps.iter().map(|stamp| stamp.changed).max() else { return true };
    let (Ok(seconds), Ok(nanos)) = (u64::try_from(seconds), u32::try_from(nanos)) else { return true };
    let changed = UNIX_EPOCH + Duration::new(seconds, nanos);
    // A time to come is another machine's clock: nothing can be told by it.
    now.duration_since(changed).is_ok_and(|age| age >= REST)
}

fn stamps(folder: &Path) -> Vec<Stamp> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let of = |path: PathBuf| {
        path.extension().filter(|extension| *extension == "toml")?;
        // Of the file that a link leads to.
        let metadata = fs::metadata(&path).ok()?;
        Some(Stamp {
            path,
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    };
    let mut stamps: Vec<Stamp> = entries.filter_map(|entry| of(entry.ok()?.path())).collect();
    stamps.sort();
    stamps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(at: SystemTime) -> Vec<Stamp> {
        let since = at.duration_since(UNIX_EPOCH).unwrap();
        let changed = (since.as_secs().cast_signed(), i64::from(since.subsec_nanos()));
        vec![Stamp { path: PathBuf::new(), device: 0, inode: 0, length: 0, changed }]
    }

    #[test]
    fn a_change_of_a_moment_ago_is_not_at_rest() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        assert!(is_at_rest(&[], now));
        assert!(is_at_rest(&changed(now - REST), now));
        assert!(!is_at_rest(&changed(now - REST / 2), now));
        assert!(!is_at_rest(&changed(now + Duration::from_secs(60)), now), "by another clock");
        let mixed = [changed(now - REST * 10), changed(now)].concat();
        assert!(!is_at_rest(&mixed, now), "the latest counts");
    }
}
