//! A terminal and the workspaces that its command can write: looked at before it starts, and before its end is told.
//!
//! Keeps what has changed for the outcome, bounded, and writes it in the journal as it is found. Where nothing can have
//! changed, neither start nor end waits for anything.

use std::sync::{Arc, Mutex, MutexGuard, Weak};

use nix::sys::stat::fstat;

use super::terminal::Terminal;
use crate::{
    policy::profile::{Access, Filesystem, OnChange, Profile},
    proto::v1::{self, Outcome, WorkspaceAction, WorkspaceChange},
    sandbox::path_walk,
    session::Session,
    terminal::audit::records,
    workspace::{
        ChangeAction, Completion, DangerousChange, Observer, ScanWaiter, WatchError, Watcher, WorkspaceRoot,
        Workspaces,
    },
};

/// The most changes in one outcome; there are at most as many records in the journal.
pub(in crate::terminal) const CHANGES_MAX: usize = 64;

/// The most of a path in an outcome; the journal has all of it.
const PATH_SHOWN_CHARS: usize = 1_024;

/// What a terminal holds of its workspaces.
#[derive(Debug)]
pub(in crate::terminal) struct WatchedWorkspaces {
    watches: Vec<Arc<Watcher>>,
    on_change: OnChange,
    observed: Mutex<ObservedChanges>,
}

/// What was seen while its command ran.
#[derive(Debug, Default)]
struct ObservedChanges {
    changes: Vec<WorkspaceChange>,
    omitted: u64,
    shortfall: Option<String>,
}

/// Begins to look at what a command will be able to write. The looks go on while its sandbox is brought up.
///
/// # Errors
/// [`WatchError`]: nobody would look, and the profile wants more than to be told.
pub(in crate::terminal) fn attach(
    terminal: &Terminal,
    profile: &Profile,
    workspaces: &Workspaces,
) -> Result<Vec<ScanWaiter>, WatchError> {
    if profile.filesystem.workspace == Access::Read && profile.filesystem.writable.is_empty() {
        return Ok(Vec::new());
    }
    let (watched, unwatched) = WatchedWorkspaces::to(terminal, &profile.filesystem, workspaces);
    if let Some(error) = unwatched
        && profile.filesystem.changes != OnChange::Report
    {
        return Err(error);
    }
    let settling = watched
        .watches
        .iter()
        .filter_map(|watch| watch.ensure_baseline(&profile.filesystem.protected))
        .collect();
    if terminal.workspace.set(watched).is_err() {
        unreachable!("a terminal is attached once, by whoever makes it");
    }
    Ok(settling)
}

/// Waits for the looks, and begins to judge. The command may start.
pub(in crate::terminal) async fn start_watching(terminal: &Arc<Terminal>, settling: Vec<ScanWaiter>) {
    let Some(watched) = terminal.workspace.get() else { return };
    for look in settling {
        if !look.wait().await {
            watched.lock().shortfall = Some("the look before the command did not come to its end".to_owned());
        }
    }
    watched.observe(terminal);
}

/// Takes up a command that a gateway before this one has started. Whatever differs from what that one knew has changed
/// while it ran. `told`: its outcome, where that gateway has told it.
pub(in crate::terminal) fn resume_watching(
    terminal: &Arc<Terminal>,
    profile: &Profile,
    workspaces: &Workspaces,
    reported: Option<Outcome>,
) {
    if profile.filesystem.workspace == Access::Read && profile.filesystem.writable.is_empty() {
        return;
    }
    let watched = match reported {
        Some(reported) => WatchedWorkspaces {
            watches: Vec::new(),
            on_change: profile.filesystem.changes,
            observed: Mutex::new(ObservedChanges {
                changes: reported.workspace_changes,
                omitted: reported.workspace_changes_omitted,
                shortfall: Some(reported.workspace_shortfall).filter(|reason| !reason.is_empty()),
            }),
        },
        // It runs already: what is not watched is said.
        None => WatchedWorkspaces::to(terminal, &profile.filesystem, workspaces).0,
    };
    if !watched.watches.iter().all(|watch| watch.has_baseline()) {
        let reason = "the gateway before this one left no record of what was there before the command";
        watched.lock().shortfall = Some(reason.to_owned());
    }
    watched.observe(terminal);
    // Nobody waits for it: the command runs.
    watched.watches.iter().for_each(|watch| drop(watch.ensure_baseline(&profile.filesystem.protected)));
    if terminal.workspace.set(watched).is_err() {
        unreachable!("a terminal is attached once, by whoever makes it");
    }
}

/// Does what comes after a command's end, after a look at what it has changed where that is needed.
pub(in crate::terminal) fn check_then(
    terminal: &Terminal,
    conclude: impl FnOnce(&Terminal) + Send + Sync + 'static,
) {
    let (Some(watched), Some(this)) = (terminal.workspace.get(), terminal.upgrade()) else {
        return conclude(terminal);
    };
    let id = terminal.id.to_string();
    let active: Vec<_> = watched.watches.iter().filter(|watch| !watch.end_if_unchanged(&id)).collect();
    if active.is_empty() {
        return conclude(terminal);
    }
    let ending = Completion::new(move || conclude(&this));
    active.into_iter().for_each(|watch| watch.command_ended(id.clone(), ending.clone()));
}

/// A command that was about to start does not.
pub(in crate::terminal) fn withdraw(terminal: &Terminal) {
    if let Some(watched) = terminal.workspace.get() {
        watched.watches.iter().for_each(|watch| watch.command_cancelled(&terminal.id.to_string()));
    }
}

/// Puts what was seen into the outcome.
pub(in crate::terminal) fn report_changes(terminal: &Terminal, outcome: &mut Outcome) {
    let Some(watched) = terminal.workspace.get() else { return };
    let mut seen = watched.lock();
    let of_watches = || watched.watches.iter().find_map(|watch| watch.shortfall());
    if let Some(reason) = seen.shortfall.take().or_else(of_watches) {
        terminal.recorder.record_best_effort(&records::workspace_shortfall(terminal, &reason));
        outcome.workspace_shortfall = reason;
    }
    outcome.workspace_changes = std::mem::take(&mut seen.changes);
    outcome.workspace_changes_omitted = seen.omitted;
}

/// Nothing of a session runs any more: waits for what is left of looks that were cut short.
pub(in crate::terminal) async fn finish(session: &Session, workspaces: &Workspaces) {
    for rest in workspaces.finish_pending_scans(&session.id.to_string()) {
        if !rest.wait().await {
            tracing::error!(session.id = %session.id, "not all that its commands left in its workspace was looked at");
        }
    }
}

/// A session has ended, and nothing of it runs any more.
pub(in crate::terminal) fn forget(session: &Session, workspaces: &Workspaces) {
    workspaces.close_session(&session.id.to_string(), &roots(session));
}

fn roots(session: &Session) -> Vec<WorkspaceRoot<'_>> {
    let owner = (session.owner.uid, session.owner.gid);
    let open = session.open_roots().iter();
    open.map(|root| WorkspaceRoot { path: &root.path, descriptor: &root.descriptor, owner }).collect()
}

impl WatchedWorkspaces {
    fn to(terminal: &Terminal, files: &Filesystem, workspaces: &Workspaces) -> (Self, Option<WatchError>) {
        let session = &terminal.session;
        let id = session.id.to_string();
        let (mut watches, mut seen, mut unwatched) = (Vec::new(), ObservedChanges::default(), None);
        let mut watch = |root: &WorkspaceRoot<'_>| match workspaces.watch(root, &id) {
            Ok(watch) => watches.push(watch),
            Err(error) => {
                seen.shortfall = Some(error.to_string());
                unwatched = Some(error);
            }
        };
        if files.workspace == Access::Write {
            roots(session).iter().for_each(&mut watch);
        }
        for path in &files.writable {
            // As the sandbox shows it: written as its owner. One that is not there is refused with the sandbox.
            let opened = path.canonicalize().and_then(|real| Ok((path_walk::open(&real)?, real)));
            let Ok((descriptor, path)) = opened else { continue };
            let Ok(stat) = fstat(&descriptor) else { continue };
            if stat.st_mode & libc::S_IFMT == libc::S_IFDIR {
                watch(&WorkspaceRoot {
                    path: &path,
                    descriptor: &descriptor,
                    owner: (stat.st_uid, stat.st_gid),
                });
            }
        }
        (Self { watches, on_change: files.changes, observed: Mutex::new(seen) }, unwatched)
    }

    fn observe(&self, terminal: &Arc<Terminal>) {
        let observer: Weak<dyn Observer> = Arc::<Terminal>::downgrade(terminal) as Weak<dyn Observer>;
        for watch in &self.watches {
            watch.command_starting(terminal.id.to_string(), observer.clone(), self.on_change);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ObservedChanges> {
        self.observed.lock().expect("no code panics while it holds what a terminal has seen")
    }
}

impl Observer for Terminal {
    fn changed(&self, change: &DangerousChange) {
        let Some(watched) = self.workspace.get() else { return };
        let mut seen = watched.lock();
        if seen.changes.len() >= CHANGES_MAX {
            seen.omitted += 1;
            return;
        }
        self.recorder.record_within_share(&records::workspace_change(self, change));
        let (action, failure) = match &change.action {
            ChangeAction::Restored => (WorkspaceAction::Restored, String::new()),
            ChangeAction::Quarantined => (WorkspaceAction::Quarantined, String::new()),
            ChangeAction::Reported => (WorkspaceAction::Reported, String::new()),
            ChangeAction::Failed(reason) => (WorkspaceAction::Failed, reason.clone()),
        };
        seen.changes.push(v1::WorkspaceChange {
            path: crate::printable::path(&change.path).chars().take(PATH_SHOWN_CHARS).collect(),
            what: change.what.clone(),
            action: action.into(),
            failure,
        });
    }
}
