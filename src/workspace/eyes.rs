//! What is known of a workspace, and what becomes of a change: it is accepted, undone, or only said.
//!
//! Whatever was there before a command ran is its owner's business and is accepted as it is. What changes while one runs
//! is judged. Acts by descriptor and with the rights of the thread that calls it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Instant,
};

use nix::errno::Errno;
use sha2::{Digest, Sha256};

use super::{
    budget::Share,
    control::{self, Role, Sight},
    todo,
    tree::{Content, Tree},
    walk::{CONTROL_FILES_MAX, Walk},
};
use crate::policy::profile::OnChange;

/// The most bytes of all control files of a root that are known.
const KNOWN_BYTES_MAX: usize = 16 << 20;

/// The most names of one directory, and the most directories in one another, that are compared with accepted ones.
const COPY_NAMES_MAX: usize = 256;
const COPY_DEPTH_MAX: usize = 8;

/// What was done about a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// It holds what it held before.
    Restored,
    /// It was moved aside.
    Quarantined,
    /// Nothing: the profile wants to be told, no more.
    Reported,
    /// It could not be undone.
    Failed(String),
}

/// A dangerous change of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Absolute.
    pub path: PathBuf,
    /// What it would have made people's tools run.
    pub what: String,
    /// What was done about it.
    pub action: Action,
    /// SHA-256 of what was there, where it was a file.
    pub sha256: Option<String>,
}

/// What becomes of what is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// No command runs: what is there is accepted.
    Accept,
    /// The first look is not done, and a command runs since this moment (as [`Sight::changed_at`]): what has changed
    /// since is judged, the rest accepted.
    AcceptBefore(i64, OnChange),
    /// A command runs.
    Judge(OnChange),
}

/// What is known of a workspace.
#[derive(Debug)]
pub struct Eyes {
    tree: Tree,
    walk: Walk,
    known: BTreeMap<PathBuf, (Role, Content)>,
    known_bytes: usize,
    /// Tools' places at the root that were there before any command: they are read-only in every sandbox, and what changes in
    /// them was changed outside.
    read_only: BTreeSet<PathBuf>,
    /// Lists that running commands may be working off: judged when none runs.
    put_off: BTreeSet<PathBuf>,
    is_last: bool,
    /// Could not be undone, and was said.
    failed: BTreeMap<PathBuf, Content>,
    /// The first look at everything has come to its end.
    pub has_baseline: bool,
    /// What is known has changed since it was last written down.
    pub is_unwritten: bool,
}

impl Eyes {
    /// Knows nothing yet, or all that a gateway before this one has known.
    pub(super) fn new(
        tree: Tree,
        share: Option<Share>,
        known: Option<Vec<(PathBuf, Role, Content)>>,
    ) -> Self {
        let mut this = Self {
            tree,
            walk: Walk::new(share),
            known: BTreeMap::new(),
            known_bytes: 0,
            read_only: BTreeSet::new(),
            put_off: BTreeSet::new(),
            is_last: false,
            failed: BTreeMap::new(),
            has_baseline: known.is_some(),
            is_unwritten: true,
        };
        for (path, role, content) in known.unwrap_or_default() {
            this.keep(Sight { path, role, content, changed_at: 0 }, Follow::Yes);
        }
        this
    }

    /// Whether nothing can have changed since the last look. Does not block.
    pub fn is_quiet(&mut self) -> bool {
        self.put_off.is_empty() && self.walk.is_quiet()
    }

    /// Whether the kernel has noticed anything since it was last asked. Does not block.
    pub fn has_word(&self) -> bool {
        self.walk.has_word()
    }

    /// Whether nothing is known that could change without a word.
    pub fn knows_nothing(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether the look at everything has come to its end.
    pub fn is_done(&self) -> bool {
        self.walk.is_done()
    }

    /// Whether nothing was heard of that was not looked at.
    pub fn has_no_news(&self) -> bool {
        self.walk.has_no_news()
    }

    /// Some of the workspace is not looked at.
    pub fn fall_short(&mut self, reason: &str) {
        self.walk.fall_short(reason.to_owned());
    }

    /// Why some of the workspace is not looked at.
    pub fn shortfall(&self) -> Option<&str> {
        self.walk.shortfall()
    }

    /// What is known, to be written down.
    pub fn known(&self) -> impl Iterator<Item = (&Path, Role, &Content)> {
        self.known.iter().map(|(path, (role, content))| (path.as_path(), *role, content))
    }

    /// Watches for these, too.
    pub fn add_tools(&mut self, tools: &[PathBuf]) {
        self.walk.add_tools(tools);
    }

    /// Looks at everything again where nothing can be heard of.
    pub fn look_again_if_deaf(&mut self) {
        self.walk.rescan_if_deaf();
    }

    /// Compares the known files themselves: a file that somebody holds mapped changes without a word. `is_last`: no command
    /// runs any more.
    pub fn compare(&mut self, is_last: bool) {
        self.is_last = is_last;
        if is_last {
            self.walk
                .reconsider(std::mem::take(&mut self.put_off).into_iter().map(|path| (path, Role::Todo)));
        }
        let changed = |path: &PathBuf, known: &Content| self.tree.content(path).0 != *known;
        let files = self.known.iter().filter(|(_, (_, content))| matches!(content, Content::File { .. }));
        let changed: Vec<(PathBuf, Role)> = files
            .filter(|(path, (_, content))| changed(path, content))
            .map(|(path, (role, _))| (path.clone(), *role))
            .collect();
        self.walk.reconsider(changed);
    }

    /// Takes what the kernel has noticed until now: what the next looks are about.
    pub fn hear(&mut self) {
        self.walk.hear();
    }

    /// Looks at what may have changed, until a moment.
    pub fn look(&mut self, mode: Mode, until: Instant) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut found = Vec::new();
        self.walk.look(&self.tree, until, &mut |sight| found.push(sight));
        // What has gone is forgotten last: what was renamed is compared with what it was.
        found.sort_by_key(|sight| sight.content == Content::Absent);
        // What was looked at twice is judged once: the second sight is older than what was done about the first.
        let mut judged = BTreeSet::new();
        for sight in found {
            if judged.insert(sight.path.clone()) {
                self.consider(mode, sight, &mut changes);
            }
        }
        self.has_baseline |= self.walk.is_done();
        changes
    }

    fn consider(&mut self, mode: Mode, sight: Sight, changes: &mut Vec<Change>) {
        let on_change = match mode {
            Mode::Accept => return self.keep(sight, Follow::Yes),
            Mode::AcceptBefore(moment, _) if sight.changed_at < moment => {
                return self.keep(sight, Follow::Yes);
            }
            Mode::AcceptBefore(_, on_change) | Mode::Judge(on_change) => on_change,
        };
        if sight.role == Role::Todo && !self.is_last {
            self.put_off.insert(sight.path);
            return;
        }
        if sight.role == Role::Tool && self.runs_nothing(&sight) {
            return self.keep(sight, Follow::No);
        }
        let before = self.known.get(&sight.path).map(|(_, content)| content);
        let Some(what) = control::judge(&self.tree, &self.walk.repositories, before, &sight) else {
            return self.keep(sight, Follow::No);
        };
        let cleaned = match (&sight.role, &sight.content) {
            (Role::Todo, Content::File { bytes, mode }) => {
                Some(Content::File { bytes: todo::without_new_commands(bytes, before), mode: *mode })
            }
            _ => None,
        };
        let before = cleaned.as_ref().or(before);
        let action = match (on_change, before) {
            (OnChange::Report, _) => Ok(Action::Reported),
            (on_change, Some(before @ (Content::File { .. } | Content::Link(_)))) => {
                let kept = match on_change {
                    OnChange::Quarantine => self.tree.set_aside(&sight.path),
                    OnChange::Undo | OnChange::Report => Ok(()),
                };
                match kept.and_then(|()| self.tree.put_back(&sight.path, before)) {
                    Ok(()) => Ok(Action::Restored),
                    // No room for what was there: what is there now must not stay.
                    Err(_) if kept.is_ok() && on_change == OnChange::Quarantine => Ok(Action::Quarantined),
                    Err(errno) => {
                        self.tree.set_aside(&sight.path).map(|()| Action::Quarantined).map_err(|_| errno)
                    }
                }
            }
            (_, _) => self.tree.set_aside(&sight.path).map(|()| Action::Quarantined),
        };
        if action == Err(Errno::ENOENT) {
            // It has gone meanwhile, or was moved aside with its directory.
            return;
        }
        let action = action.unwrap_or_else(|errno| Action::Failed(errno.to_string()));
        let sha256 = match &sight.content {
            Content::File { bytes, .. } => Some(base16(&Sha256::digest(bytes))),
            _ => None,
        };
        let is_failure = matches!(action, Action::Failed(_));
        let was_said = is_failure && self.failed.get(&sight.path) == Some(&sight.content);
        if !was_said {
            let path = self.tree.path().join(&sight.path);
            changes.push(Change { path, what, action: action.clone(), sha256 });
        }
        match action {
            // Said once, until it changes again.
            Action::Reported => self.keep(sight, Follow::Yes),
            Action::Failed(_) if self.failed.len() < CONTROL_FILES_MAX => {
                self.failed.insert(sight.path, sight.content);
            }
            Action::Failed(_) | Action::Restored | Action::Quarantined => {}
        }
    }

    /// Whether a tool's place runs nothing that was not accepted: it cannot be a command's, its content is harmless, or the
    /// same is known of another place: a copy, a worktree, a directory by another name.
    fn runs_nothing(&self, sight: &Sight) -> bool {
        if self.read_only.iter().any(|place| sight.path.starts_with(place)) {
            return true;
        }
        match &sight.content {
            Content::File { bytes, .. } => self.is_file_accepted(&sight.path, bytes),
            Content::Directory => {
                self.known.contains_key(&sight.path)
                    || self.is_directory_accepted(&sight.path, COPY_DEPTH_MAX)
            }
            Content::Absent | Content::Link(_) | Content::Strange => false,
        }
    }

    fn is_file_accepted(&self, path: &Path, bytes: &[u8]) -> bool {
        let Some(name) = self.walk.tools.known_as(path) else { return false };
        let is_copy = |(known, (role, content)): (&PathBuf, &(Role, Content))| {
            *role == Role::Tool
                && matches!(content, Content::File { bytes: known, .. } if known == bytes)
                && self.walk.tools.known_as(known) == Some(name)
        };
        self.walk.tools.is_harmless(path, bytes) || self.known.iter().any(is_copy)
    }

    fn is_directory_accepted(&self, path: &Path, depth: usize) -> bool {
        let Ok(names) = self.tree.directory(path).and_then(Tree::names) else { return false };
        depth > 0
            && names.len() <= COPY_NAMES_MAX
            && names.iter().filter(|(name, _)| !control::is_aside(name)).all(|(name, _)| {
                let path = path.join(name);
                match self.tree.content(&path).0 {
                    Content::File { bytes, .. } => self.is_file_accepted(&path, &bytes),
                    Content::Directory => self.is_directory_accepted(&path, depth - 1),
                    Content::Absent => true,
                    Content::Link(_) | Content::Strange => false,
                }
            })
    }

    fn keep(&mut self, sight: Sight, follow: Follow) {
        let Sight { path, role, content, .. } = sight;
        if let (Follow::Yes, Role::Config(_), Content::File { bytes, .. }) = (follow, role, &content) {
            self.walk.follow(&self.tree, &path, bytes);
        }
        if role == Role::Tool
            && let Some(place) = self.walk.tools.place(&path)
        {
            if content == Content::Absent {
                self.read_only.remove(&path);
            } else if follow == Follow::Yes
                && !self.has_baseline
                && self.walk.tools.is_rooted(&place)
                && matches!(content, Content::File { .. } | Content::Directory)
            {
                self.read_only.insert(place);
            }
        }
        let before = self.known.get(&path).map(|(_, content)| content);
        if before == Some(&content) {
            return;
        }
        // What is not there, and a directory where git wants a file, is as good as unknown.
        let is_nothing = content == Content::Absent || (content == Content::Directory && role != Role::Tool);
        let size =
            |content: &Content| if let Content::File { bytes, .. } = content { bytes.len() } else { 0 };
        let known_bytes = self.known_bytes - before.map_or(0, size) + size(&content);
        if known_bytes > KNOWN_BYTES_MAX || (before.is_none() && self.known.len() >= CONTROL_FILES_MAX) {
            self.walk.fall_short(format!(
                "more than {CONTROL_FILES_MAX} control files or {KNOWN_BYTES_MAX} bytes in them: the rest cannot be restored"
            ));
            return;
        }
        self.known_bytes = known_bytes;
        match is_nothing {
            true => drop(self.known.remove(&path)),
            false => drop(self.known.insert(path, (role, content))),
        }
        self.is_unwritten = true;
    }
}

/// Whether what a configuration names becomes a control place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Follow {
    Yes,
    No,
}

fn base16(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
