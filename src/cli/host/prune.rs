//! `provost prune` and `provost reap`: what is removed of what gateways and sessions have left.
//!
//! `prune` removes the terminals whose commands have ended. With `--caches` it removes caches that outlive their sessions, of which
//! `provost doctor` says something, too. It works on the directory itself then, with the locks that gateways take, so that it needs no
//! gateway and disturbs none. `reap` ends and removes what a gateway could not adopt, and only what the gateway has listed. What cannot be
//! ended is said, and the rest is reaped all the same.

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use serde::Serialize;
use tonic::Code;

use crate::{
    cli::{
        console::{
            error::CliError,
            table::{self, align_columns, print_to_stdout},
        },
        gateway_link::connection::GatewayConnection,
        request::{arguments::ReapArguments, terminal_arguments::PruneArguments},
        terminal::terminals,
    },
    gateway::{default_kept_caches, default_state, quarantine},
    kept_cache::{KeepError, KeptCaches, ListedCache},
    printable,
    proto::v1,
};

/// `provost prune`. Prints the id of each terminal that is removed.
pub(in crate::cli) async fn prune(arguments: PruneArguments) -> Result<u8, CliError> {
    if arguments.caches {
        return prune_kept_caches(arguments.kept_caches, arguments.older_than);
    }
    let connection = GatewayConnection::find(arguments.gateway.gateway.as_deref()).await?;
    let mut client = connection.client().terminals;
    let now = SystemTime::now();
    let ended = terminals::all(client.clone()).await?.into_iter().filter(|terminal| {
        arguments.session.as_ref().is_none_or(|session| *session == terminal.session_id)
            && ended_since(terminal, now).is_some_and(|since| since >= arguments.older_than)
    });
    let mut removed = String::new();
    for terminal in ended {
        let request = v1::ReleaseTerminalRequest { terminal_id: terminal.id.clone(), ..Default::default() };
        match client.release_terminal(request).await {
            Ok(_) => {
                removed.push_str(&terminal.id);
                removed.push('\n');
            }
            // Its owner was faster.
            Err(status) if status.code() == Code::NotFound => {}
            Err(status) => {
                table::print_to_stdout(&removed)?;
                return Err(status.into());
            }
        }
    }
    table::print_to_stdout(&removed)
}

/// How long ago a terminal's command has ended. `None`: it has not.
fn ended_since(terminal: &v1::Terminal, now: SystemTime) -> Option<Duration> {
    let ended = terminal.outcome.as_ref()?.ended_at?;
    let ended = SystemTime::try_from(ended).ok()?;
    // A clock that was set back makes nothing older.
    Some(now.duration_since(ended).unwrap_or_default())
}

/// Removes what no session has used for so long, of this user; root removes everybody's. Prints what was removed.
pub(super) fn prune_kept_caches(directory: Option<PathBuf>, unused_for: Duration) -> Result<u8, CliError> {
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

/// Reaps what is named.
pub(in crate::cli) fn reap(arguments: &ReapArguments) -> Result<u8, CliError> {
    let state = arguments.state.clone().unwrap_or_else(default_state);
    let ids = if arguments.all {
        let listed = quarantine::list(&state);
        let listed =
            listed.map_err(|error| CliError::caused_by("cannot read the list of what was left", error))?;
        listed.into_iter().map(|one| one.id).collect()
    } else {
        arguments.ids.clone()
    };
    let mut failed = None;
    let mut page = String::new();
    for id in ids {
        match quarantine::reap(&state, &id) {
            Ok(()) => page.push_str(&format!("{id} is gone\n")),
            Err(error) => {
                let failure = CliError::caused_by(format!("cannot reap {id}"), error);
                // All but the last are said here; the last is this command's own failure.
                if let Some(before) = failed.replace(failure) {
                    before.print_and_exit();
                }
            }
        }
    }
    let status = print_to_stdout(&page)?;
    failed.map_or(Ok(status), Err)
}
