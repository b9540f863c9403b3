//! The workspaces that a terminal's command can write: scanned before it starts, and before its end is reported.
//!
//! A bounded number of changes goes into the outcome, and each is recorded when it is found. Where nothing can have changed,
//! neither start nor end waits.

use std::sync::{Arc, Mutex, MutexGuard, Weak};

use nix::sys::stat::fstat;

use crate::{
    policy::profile::{Access, Filesystem, OnChange, Profile},
    proto::v1::{self, Outcome, WorkspaceAction, WorkspaceChange},
    sandbox::roots::path_walk,
    session::Session,
    sys::rights::Rights,
    terminal::{
        recorder::Recorder,
        records::{self, Subject},
    },
    workspace::{
        ChangeAction, Completion, DangerousChange, Observer, ScanWaiter, WatchError, Watcher, WorkspaceRoot,
        Workspaces,
    },
};

/// The most changes in one outcome; there are at most as many records in the journal.
pub(in crate::terminal) const CHANGES_MAX: usize = 64;

/// The most of a path in an outcome; the journal has all of it.
const PATH_SHOWN_CHARS: usize = 1_024;

/// What a terminal holds of its workspaces. Notified of changes in them while its command runs.
#[derive(Debug)]
pub(in crate::terminal) struct WatchedWorkspaces {
    subject: Subject,
    recorder: Recorder,
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

/// What a terminal watches, and the scans that its start waits for.
pub(in crate::terminal) type Attached = (Arc<WatchedWorkspaces>, Vec<ScanWaiter>);

impl WatchedWorkspaces {
    /// Begins to look at what a command will be able to write; `None` where it can write nothing. The looks go on while
    /// its sandbox is brought up.
    ///
    /// # Errors
    /// [`WatchError`]: nobody would look, and the profile wants more than a report.
    pub(in crate::terminal) fn attach(
        session: &Session,
        subject: Subject,
        recorder: &Recorder,
        profile: &Profile,
        workspaces: &Workspaces,
    ) -> Result<Option<Attached>, WatchError> {
        if is_read_only(profile) {
            return Ok(None);
        }
        let (watches, observed, unwatched) = watch(session, &profile.filesystem, workspaces);
        if let Some(error) = unwatched
            && profile.filesystem.changes != OnChange::Report
        {
            return Err(error);
        }
        let watched = Self::new(subject, recorder, profile, watches, observed);
        let scans = watched.ensure_baselines(profile).collect();
        Ok(Some((watched, scans)))
    }

    /// Takes up a command that a gateway before this one has started; `None` where it can write nothing. Whatever differs
    /// from what that gateway knew has changed while the command ran. `reported`: the command's outcome, where that
    /// gateway has reported it.
    pub(in crate::terminal) fn adopt(
        session: &Session,
        subject: Subject,
        recorder: &Recorder,
        profile: &Profile,
        workspaces: &Workspaces,
        reported: Option<Outcome>,
    ) -> Option<Arc<Self>> {
        if is_read_only(profile) {
            return None;
        }
        let (watches, observed) = match reported {
            Some(reported) => {
                let observed = ObservedChanges {
                    changes: reported.workspace_changes,
                    omitted: reported.workspace_changes_omitted,
                    shortfall: Some(reported.workspace_shortfall).filter(|reason| !reason.is_empty()),
                };
                (Vec::new(), observed)
            }
            // It runs already: what is not watched is reported as a shortfall.
            None => {
                let (watches, observed, _) = watch(session, &profile.filesystem, workspaces);
                (watches, observed)
            }
        };
        let watched = Self::new(subject, recorder, profile, watches, observed);
        if !watched.watches.iter().all(|watch| watch.has_baseline()) {
            let reason = "the gateway before this one left no record of what was there before the command";
            watched.lock().shortfall = Some(reason.to_owned());
        }
        watched.observe();
        // The command runs already: nothing waits for these scans.
        watched.ensure_baselines(profile).for_each(drop);
        Some(watched)
    }

    fn new(
        subject: Subject,
        recorder: &Recorder,
        profile: &Profile,
        watches: Vec<Arc<Watcher>>,
        observed: ObservedChanges,
    ) -> Arc<Self> {
        let on_change = profile.filesystem.changes;
        Arc::new(Self {
            subject,
            recorder: recorder.clone(),
            watches,
            on_change,
            observed: Mutex::new(observed),
        })
    }

    fn ensure_baselines(&self, profile: &Profile) -> impl Iterator<Item = ScanWaiter> {
        self.watches.iter().filter_map(|watch| watch.ensure_baseline(&profile.filesystem.protected))
    }

    /// Waits for the scans, and begins to watch. The command may start.
    pub(in crate::terminal) async fn start(self: &Arc<Self>, scans: Vec<ScanWaiter>) {
        for scan in scans {
            if !scan.wait().await {
                let reason = "the look before the command did not come to its end";
                self.lock().shortfall = Some(reason.to_owned());
            }
        }
        self.observe();
    }

    /// Does what comes after a command's end, after a look at what it has changed where that is needed.
    pub(in crate::terminal) fn check_then(&self, conclude: impl FnOnce() + Send + Sync + 'static) {
        let id = self.subject.terminal.to_string();
        let active: Vec<_> = self.watches.iter().filter(|watch| !watch.end_if_unchanged(&id)).collect();
        if active.is_empty() {
            return conclude();
        }
        let ending = Completion::new(conclude);
        active.into_iter().for_each(|watch| watch.command_ended(id.clone(), ending.clone()));
    }

    /// A command that was about to start does not.
    pub(in crate::terminal) fn withdraw(&self) {
        let id = self.subject.terminal.to_string();
        self.watches.iter().for_each(|watch| watch.command_cancelled(&id));
    }

    /// Puts what was seen into the outcome. What was not watched, where something was not.
    pub(in crate::terminal) fn report_changes(&self, outcome: &mut Outcome) -> Option<String> {
        let mut seen = self.lock();
        let of_watches = || self.watches.iter().find_map(|watch| watch.shortfall());
        let shortfall = seen.shortfall.take().or_else(of_watches);
        outcome.workspace_shortfall = shortfall.clone().unwrap_or_default();
        outcome.workspace_changes = std::mem::take(&mut seen.changes);
        outcome.workspace_changes_omitted = seen.omitted;
        shortfall
    }

    fn observe(self: &Arc<Self>) {
        let observer: Weak<dyn Observer> = Arc::<Self>::downgrade(self) as Weak<dyn Observer>;
        for watch in &self.watches {
            watch.command_starting(self.subject.terminal.to_string(), observer.clone(), self.on_change);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ObservedChanges> {
        self.observed.lock().expect("no code panics while it holds what a terminal has seen")
    }
}

fn is_read_only(profile: &Profile) -> bool {
    profile.filesystem.workspace == Access::Read && profile.filesystem.writable.is_empty()
}

fn watch(
    session: &Session,
    files: &Filesystem,
    workspaces: &Workspaces,
) -> (Vec<Arc<Watcher>>, ObservedChanges, Option<WatchError>) {
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
            let owner = Rights { uid: stat.st_uid, gid: stat.st_gid, groups: Arc::default() };
            watch(&WorkspaceRoot { path: &path, descriptor: &descriptor, owner });
        }
    }
    (watches, seen, unwatched)
}

/// Nothing of a session runs any more: waits for what is left of looks that were cut short.
pub(in crate::terminal) async fn finish(session: &Session, workspaces: &Workspaces) {
    let mut looks = tokio::task::JoinSet::new();
    for rest in workspaces.finish_pending_scans(&session.id.to_string()) {
        looks.spawn(rest.wait());
    }
    // Their outcomes say so, too: a look that was cut short is told with the end of its command.
    if looks.join_all().await.contains(&false) {
        tracing::error!(session.id = %session.id, "not all that its commands left in its workspace was looked at");
    }
}

/// A session has ended, and nothing of it runs any more.
pub(in crate::terminal) fn forget(session: &Session, workspaces: &Workspaces) {
    workspaces.close_session(&session.id.to_string(), &roots(session));
}

fn roots(session: &Session) -> Vec<WorkspaceRoot<'_>> {
    // Commands are members of its groups.
    let groups = &session.rights.groups;
    let owner = || Rights { uid: session.owner.uid, gid: session.owner.gid, groups: groups.clone() };
    let open = session.open_roots().iter().filter(|root| root.role.max_access() == Access::Write);
    open.map(|root| WorkspaceRoot { path: &root.path, descriptor: &root.descriptor, owner: owner() })
        .collect()
}

impl Observer for WatchedWorkspaces {
    fn changed(&self, change: &DangerousChange) {
        let mut seen = self.lock();
        if seen.changes.len() >= CHANGES_MAX {
            seen.omitted += 1;
            return;
        }
        self.recorder.record_within_share(&records::workspace_change(self.subject, change));
        let (action, failure) = match &change.action {
            ChangeAction::Restored => (WorkspaceAction::Restored, String::new()),
            ChangeAction::Quarantined => (WorkspaceAction::Quarantined, String::new()),
            ChangeAction::Reported => (WorkspaceAction::Reported, String::new()),
            ChangeAction::Failed(reason) => (WorkspaceAction::Failed, reason.clone()),
        };
        seen.changes.push(v1::WorkspaceChange {
            path: crate::printable::path(&change.path).chars().take(PATH_SHOWN_CHARS).collect(),
            description: change.what.clone(),
            action: action.into(),
            failure,
        });
    }
}
