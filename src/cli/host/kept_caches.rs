//! Caches that outlive their sessions, for people: `provost prune --caches`, and what `provost doctor` says of them.
//!
//! Works on the directory itself, with the locks that gateways take, so that it needs no gateway and disturbs none.

use std::{path::PathBuf, time::Duration};

use serde::Serialize;

use crate::{
    cli::console::{
        error::CliError,
        table::{align_columns, print_to_stdout},
    },
    gateway::default_kept_caches,
    kept_cache::{KeepError, KeptCaches, ListedCache},
    printable,
};

/// Removes what no session has used for so long, of this user; root removes everybody's. Prints what was removed.
pub(super) fn prune(directory: Option<PathBuf>, unused_for: Duration) -> Result<u8, CliError> {
    let store = KeptCaches::new(directory.unwrap_or_else(default_kept_caches));
    let failed = |error| CliError::caused_by("prune the kept caches", error);
    let own = nix::unistd::geteuid();
    let mut users: Vec<u32> = match own.is_root() {
        true => store.list(None).map_err(failed)?.into_iter().map(|cache| cache.uid).collect(),
        false => vec![own.as_raw()],
    };
    users.dedup();
    let mut rows = Vec::new();
    for uid in users {
        rows.extend(store.prune(uid, unused_for).map_err(failed)?.iter().map(row));
    }
    print_to_stdout(&if rows.is_empty() { String::new() } else { align_columns(&rows) })
}

/// User, cache, bytes, profile, network, workspace.
fn row(cache: &ListedCache) -> [String; 6] {
    let roots = cache.scope.roots.as_ref().map(|roots| roots.join(", "));
    [
        format!("uid:{}", cache.uid),
        cache.place.display().to_string(),
        cache.used_bytes.to_string(),
        cache.scope.profile.clone(),
        cache.scope.network.clone(),
        printable::line(&roots.unwrap_or_else(|| "any".to_owned())).into_owned(),
    ]
}

/// What `provost doctor` shows.
#[derive(Default, Serialize)]
pub(super) struct KeptCachesSection {
    directory: PathBuf,
    caches: Vec<KeptCacheRow>,
    /// Why it is not known.
    unknown: Option<String>,
}

#[derive(Serialize)]
struct KeptCacheRow {
    uid: u32,
    cache: PathBuf,
    bytes: u64,
    profile: String,
    network: String,
    /// Absent: of any workspace.
    roots: Option<Vec<String>>,
}

impl KeptCachesSection {
    pub(super) fn here() -> Self {
        let store = KeptCaches::new(default_kept_caches());
        let directory = store.root().to_owned();
        match store.list(None) {
            Ok(listed) => Self {
                directory,
                caches: listed.into_iter().map(KeptCacheRow::from).collect(),
                unknown: None,
            },
            Err(error) => Self { directory, caches: Vec::new(), unknown: Some(unknown(&error)) },
        }
    }

    pub(super) fn page(&self) -> String {
        let directory = printable::path(&self.directory);
        if let Some(unknown) = &self.unknown {
            return format!("\nThe kept caches in {directory} are not known: {unknown}\n");
        }
        if self.caches.is_empty() {
            return String::new();
        }
        let bytes: u64 = self.caches.iter().map(|cache| cache.bytes).sum();
        let count = self.caches.len();
        format!(
            "\nKept caches in {directory}: {count}, {bytes} bytes. `provost prune --caches` removes them.\n"
        )
    }
}

impl From<ListedCache> for KeptCacheRow {
    fn from(cache: ListedCache) -> Self {
        Self {
            uid: cache.uid,
            cache: cache.place,
            bytes: cache.used_bytes,
            profile: cache.scope.profile,
            network: cache.scope.network,
            roots: cache.scope.roots,
        }
    }
}

fn unknown(error: &KeepError) -> String {
    printable::line(&error.to_string()).into_owned()
}
