//! Reload of the policies: when a file of the folder has changed, and on SIGHUP.
//!
//! The folder is looked at once a second, which sees every way of changing a file, on every file system. A set that
//! is wrong leaves the one in force, and is said.

use std::{
    convert::Infallible,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    signal::unix::Signal,
    time::{MissedTickBehavior, interval},
};

use super::config::PolicySource;
use crate::policy::InForce;

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(1);

/// What tells that a file is another: its name, its number, its length and its last change.
type Stamp = Vec<(PathBuf, u64, u64, i64, i64)>;

/// Keeps the policy in force as the files say. Never ends.
pub(super) async fn watch(source: &PolicySource, in_force: &Arc<InForce>, hangup: &mut Signal) -> Infallible {
    let PolicySource::Folder(folder) = source else {
        // What is compiled in does not change: a hangup is taken, and means nothing.
        loop {
            hangup.recv().await;
        }
    };
    let mut seen = stamp(folder);
    let mut looks = interval(PERIOD);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let asked = tokio::select! {
            _ = looks.tick() => false,
            _ = hangup.recv() => true,
        };
        let now = stamp(folder);
        if asked || now != seen {
            seen = now;
            load(source, in_force).await;
        }
    }
}

/// Loads once; what is wrong is said and remembered.
async fn load(source: &PolicySource, in_force: &Arc<InForce>) {
    let (source, in_force) = (source.clone(), in_force.clone());
    let loaded = tokio::task::spawn_blocking(move || match source.load() {
        Ok(set) => {
            let digest = set.digest();
            let generation = in_force.replace(set);
            tracing::info!(policy.generation = generation, policy.digest = %digest, "policy loaded");
        }
        Err(error) => {
            let problem = error.to_string();
            tracing::error!(
                policy.generation = in_force.current().generation(),
                problem,
                "policy refused: the one in force stays"
            );
            in_force.refuse(problem);
        }
    });
    if let Err(error) = loaded.await {
        tracing::error!(%error, "loading the policy failed");
    }
}

fn stamp(folder: &Path) -> Stamp {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let of = |path: PathBuf| {
        let metadata = fs::metadata(&path).ok()?;
        path.extension().filter(|extension| *extension == "toml")?;
        Some((path, metadata.ino(), metadata.len(), metadata.ctime(), metadata.ctime_nsec()))
    };
    let mut stamp: Stamp = entries.filter_map(|entry| of(entry.ok()?.path())).collect();
    stamp.sort();
    stamp
}
