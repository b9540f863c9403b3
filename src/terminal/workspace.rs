//! A terminal and the workspaces that its command can write: looked at before it starts, and before its end is told.
//!
//! Keeps what has changed for the outcome, bounded, and writes it in the journal as it is found. Where nothing can have
//! changed, neither start nor end waits for anything.

use std::sync::{Arc, Mutex, MutexGuard, Weak};

use nix::sys::stat::fstat;

use super::{Terminal, records};
use crate::{
    policy::profile::{Access, Filesystem, OnChange, Profile},
    proto::v1::{self, Outcome, WorkspaceAction, WorkspaceChange},
    sandbox::trace,
    session::Session,
    workspace::{Action, Change, Ending, Observer, Root, Settling, Watch, WatchError, Workspaces},
};

/// The most changes in one outcome; there are at most as many records in the journal.
pub(super) const CHANGES_MAX: usize = 64;

/// The most of a path in an outcome; the journal has all of it.
const PATH_SHOWN_CHARS: usize = 1_024;

/// What a terminal holds of its workspaces.
#[derive(Debug)]
pub(super) struct Attached {
    watches: Vec<Arc<Watch>>,
    on_change: OnChange,
    seen: Mutex<Seen>,
}

/// What was seen while its command ran.
#[derive(Debug, Default)]
struct Seen {
    changes: Vec<WorkspaceChange>,
    omitted: u64,
    shortfall: Option<String>,
}

/// Begins to look at what a command will be able to write. The looks go on while its sandbox is brought up.
///
/// # Errors
/// [`WatchError`]: nobody would look, and the profile wants more than to be told.
pub(super) fn attach(
    terminal: &Terminal,
    profile: &Profile,
    workspaces: &Workspaces,
) -> Result<Vec<Settling>, WatchError> {
    if profile.filesystem.workspace == Access::Read && profile.filesystem.writable.is_empty() {
        return Ok(Vec::new());
    }
    let (attached, unwatched) = Attached::to(terminal, &profile.filesystem, workspaces);
    if let Some(error) = unwatched
        && profile.filesystem.changes != OnChange::Report
    {
        return Err(error);
    }
    let settling =
        attached.watches.iter().filter_map(|watch| watch.settle(&profile.filesystem.protected)).collect();
    if terminal.workspace.set(attached).is_err() {
        unreachable!("a terminal is attached once, by whoever makes it");
    }
    Ok(settling)
}

/// Waits for the looks, and begins to judge. The command may start.
pub(super) async fn enter(terminal: &Arc<Terminal>, settling: Vec<Settling>) {
    let Some(attached) = terminal.workspace.get() else { return };
    for look in settling {
        if !look.wait().await {
            attached.lock().shortfall =
                Some("the look before the command did not come to its end".to_owned());
        }
    }
    attached.begin(terminal);
}

/// Takes up a command that a gateway before this one has started. Whatever differs from what that one knew has changed
/// while it ran. `told`: its outcome, where that gateway has told it.
pub(super) fn take_up(
    terminal: &Arc<Terminal>,
    profile: &Profile,
    workspaces: &Workspaces,
    told: Option<Outcome>,
) {
    if profile.filesystem.workspace == Access::Read && profile.filesystem.writable.is_empty() {
        return;
    }
    let attached = match told {
        Some(told) => Attached {
            watches: Vec::new(),
            on_change: profile.filesystem.changes,
            seen: Mutex::new(Seen {
                changes: told.workspace_changes,
                omitted: told.workspace_changes_omitted,
                shortfall: Some(told.workspace_shortfall).filter(|reason| !reason.is_empty()),
            }),
        },
        // It runs already: what is not watched is said.
        None => Attached::to(terminal, &profile.filesystem, workspaces).0,
    };
    if !attached.watches.iter().all(|watch| watch.has_baseline()) {
        let reason = "the gateway before this one left no record of what was there before the command";
        attached.lock().shortfall = Some(reason.to_owned());
    }
    attached.begin(terminal);
    // Nobody waits for it: the command runs.
    attached.watches.iter().for_each(|watch| drop(watch.settle(&profile.filesystem.protected)));
    if terminal.workspace.set(attached).is_err() {
        unreachable!("a terminal is attached once, by whoever makes it");
    }
}

/// Does what comes after a command's end, after a look at what it has changed where that is needed.
pub(super) fn look_then(terminal: &Terminal, conclude: impl FnOnce(&Terminal) + Send + Sync + 'static) {
    let (Some(attached), Some(this)) = (terminal.workspace.get(), terminal.this()) else {
        return conclude(terminal);
    };
    let id = terminal.id.to_string();
    let loud: Vec<_> = attached.watches.iter().filter(|watch| !watch.leave_quietly(&id)).collect();
    if loud.is_empty() {
        return conclude(terminal);
    }
    let ending = Ending::new(move || conclude(&this));
    loud.into_iter().for_each(|watch| watch.leave(id.clone(), ending.clone()));
}

/// A command that was about to start does not.
pub(super) fn withdraw(terminal: &Terminal) {
    if let Some(attached) = terminal.workspace.get() {
        attached.watches.iter().for_each(|watch| watch.withdraw(&terminal.id.to_string()));
    }
}

/// Puts what was seen into the outcome.
pub(super) fn tell(terminal: &Terminal, outcome: &mut Outcome) {
    let Some(attached) = terminal.workspace.get() else { return };
    let mut seen = attached.lock();
    let of_watches = || attached.watches.iter().find_map(|watch| watch.shortfall());
    if let Some(reason) = seen.shortfall.take().or_else(of_watches) {
        terminal.recorder.note(&records::workspace_shortfall(terminal, &reason));
        outcome.workspace_shortfall = reason;
    }
    outcome.workspace_changes = std::mem::take(&mut seen.changes);
    outcome.workspace_changes_omitted = seen.omitted;
}

/// Nothing of a session runs any more: waits for what is left of looks that were cut short.
pub(super) async fn finish(session: &Session, workspaces: &Workspaces) {
    for rest in workspaces.finish(&session.id.to_string()) {
        if !rest.wait().await {
            tracing::error!(session.id = %session.id, "not all that its commands left in its workspace was looked at");
        }
    }
}

/// A session has ended, and nothing of it runs any more.
pub(super) fn forget(session: &Session, workspaces: &Workspaces) {
    workspaces.forget(&session.id.to_string(), &roots(session));
}

fn roots(session: &Session) -> Vec<Root<'_>> {
    let owner = (session.owner.uid, session.owner.gid);
    let open = session.open_roots().iter();
    open.map(|root| Root { path: &root.path, descriptor: &root.descriptor, owner }).collect()
}

impl Attached {
    fn to(terminal: &Terminal, files: &Filesystem, workspaces: &Workspaces) -> (Self, Option<WatchError>) {
        let session = &terminal.session;
        let id = session.id.to_string();
        let (mut watches, mut seen, mut unwatched) = (Vec::new(), Seen::default(), None);
        let mut watch = |root: &Root<'_>| match workspaces.watch(root, &id) {
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
            let opened = path.canonicalize().and_then(|real| Ok((trace::open(&real)?, real)));
            let Ok((descriptor, path)) = opened else { continue };
            let Ok(stat) = fstat(&descriptor) else { continue };
            if stat.st_mode & libc::S_IFMT == libc::S_IFDIR {
                watch(&Root { path: &path, descriptor: &descriptor, owner: (stat.st_uid, stat.st_gid) });
            }
        }
        (Self { watches, on_change: files.changes, seen: Mutex::new(seen) }, unwatched)
    }

    fn begin(&self, terminal: &Arc<Terminal>) {
        let observer: Weak<dyn Observer> = Arc::<Terminal>::downgrade(terminal) as Weak<dyn Observer>;
        for watch in &self.watches {
            watch.enter(terminal.id.to_string(), observer.clone(), self.on_change);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no code panics while it holds what a terminal has seen")
    }
}

impl Observer for Terminal {
    fn changed(&self, change: &Change) {
        let Some(attached) = self.workspace.get() else { return };
        let mut seen = attached.lock();
        if seen.changes.len() >= CHANGES_MAX {
            seen.omitted += 1;
            return;
        }
        self.recorder.note_within_share(&records::workspace_change(self, change));
        let (action, failure) = match &change.action {
            Action::Restored => (WorkspaceAction::Restored, String::new()),
            Action::Quarantined => (WorkspaceAction::Quarantined, String::new()),
            Action::Reported => (WorkspaceAction::Reported, String::new()),
            Action::Failed(reason) => (WorkspaceAction::Failed, reason.clone()),
        };
        seen.changes.push(v1::WorkspaceChange {
            path: crate::printable::path(&change.path).chars().take(PATH_SHOWN_CHARS).collect(),
            what: change.what.clone(),
            action: action.into(),
            failure,
        });
    }
}
