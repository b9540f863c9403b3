//! Opens the directories of a new session: those that the caller names, the repository around the first one where the
//! caller asks for it, and what the caller has mounted below them.
//!
//! A repository that cannot be taken is no reason to refuse the session: it gets the named directory, and is told why.

use std::path::Path;

use nix::sys::stat::fstat;

use super::{
    new_session::{NewSession, OpenError},
    real_path::{self, FoundPath},
    repository::{self, NotTaken},
    session::{NamedRoot, RepositoryOutcome, WorkspaceExtent},
};
use crate::{
    policy::AbsPath,
    sandbox::{
        roots::{self, Ownership, governing::Governing},
        spec::{Root, RootRole},
    },
    sys::rights::Rights,
};

/// The open directories of a session.
pub(super) struct WorkspaceRoots {
    /// By their own names, without links.
    pub(super) paths: Vec<AbsPath>,
    /// The same.
    pub(super) open: Vec<Root>,
    /// What the caller calls them.
    pub(super) named: Vec<NamedRoot>,
    /// The first directory that the caller named.
    pub(super) first: AbsPath,
    pub(super) repository: RepositoryOutcome,
}

/// Opens all directories of a session.
pub(super) fn open(
    new: &NewSession,
    rights: &Rights,
    governing: &Governing,
    ownership: Ownership,
) -> Result<WorkspaceRoots, OpenError> {
    let (mut open, mut named) = (Vec::new(), Vec::new());
    let fields = [
        ("roots", RootRole::Work, &new.roots),
        ("read_only_roots", RootRole::ReadOnly, &new.read_only_roots),
    ];
    for (field, role, paths) in fields {
        for (index, path) in paths.iter().enumerate() {
            let field = || format!("{field}[{index}]");
            let root = roots::open_owned(path.as_path(), role, rights, governing, ownership)
                .map_err(|error| OpenError::Root(field(), error))?;
            let real = text(&root.path).ok_or_else(|| OpenError::RootName(field()))?;
            named.push(NamedRoot { requested: path.clone(), real });
            open.push(root);
        }
    }
    let first = named[0].real.clone();
    let repository = match new.extent {
        WorkspaceExtent::Named => RepositoryOutcome::None,
        WorkspaceExtent::Repository => match take(&open[0], rights, governing, ownership) {
            Ok(None) => RepositoryOutcome::None,
            Ok(Some(taken)) => replace_first(&mut open, taken),
            Err(reason) => RepositoryOutcome::NotTaken(reason.to_string()),
        },
    };
    let volumes = roots::volumes_below(&open, rights, governing, ownership)
        .map_err(|error| OpenError::Root("roots".into(), error))?;
    // A root's name is text.
    open.extend(volumes.into_iter().filter(|volume| text(&volume.path).is_some()));
    let paths = open.iter().filter_map(|root| text(&root.path)).collect();
    Ok(WorkspaceRoots { paths, open, named, first, repository })
}

/// The repository around a directory, opened as roots are.
fn take(
    start: &Root,
    rights: &Rights,
    governing: &Governing,
    ownership: Ownership,
) -> Result<Option<(Root, Option<Root>)>, NotTaken> {
    let Some(found) = repository::enclosing(start, rights)? else { return Ok(None) };
    let worktree = reopen(&found.worktree, RootRole::Work, rights, governing, ownership)?;
    let git =
        found.git_directory.map(|git| reopen(&git, RootRole::GitDirectory, rights, governing, ownership));
    Ok(Some((worktree, git.transpose()?)))
}

fn reopen(
    found: &FoundPath,
    role: RootRole,
    rights: &Rights,
    governing: &Governing,
    ownership: Ownership,
) -> Result<Root, NotTaken> {
    let root = roots::open_owned(&found.path, role, rights, governing, ownership)?;
    let stat =
        fstat(&root.descriptor).map_err(|cause| NotTaken::Unreadable { path: root.path.clone(), cause })?;
    let is_same = real_path::object(&stat) == found.object && root.path == found.path;
    // A root's name is text.
    if is_same && text(&root.path).is_some() { Ok(root) } else { Err(NotTaken::Replaced(found.path.clone())) }
}

/// The repository takes the place of the first root.
fn replace_first(open: &mut Vec<Root>, (worktree, git): (Root, Option<Root>)) -> RepositoryOutcome {
    let name = |root: &Root| text(&root.path);
    let (Some(worktree_name), git_directory) = (name(&worktree), git.as_ref().and_then(name)) else {
        return RepositoryOutcome::None;
    };
    open[0] = worktree;
    open.splice(1..1, git);
    RepositoryOutcome::Taken { worktree: worktree_name, git_directory }
}

fn text(path: &Path) -> Option<AbsPath> {
    AbsPath::of_path(path).ok()
}

#[cfg(test)]
mod tests {
    use std::{
        ffi::OsStr,
        fs,
        os::unix::{ffi::OsStrExt, fs::symlink},
    };

    use super::{super::real_path::Kind, *};

    #[test]
    fn only_the_directory_that_was_found_becomes_a_root_and_only_under_its_own_name() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let (own, other, link) = (place.join("own"), place.join("other"), place.join("link"));
        let nameless = place.join(OsStr::from_bytes(b"\xff"));
        for path in [&own, &other, &nameless] {
            fs::create_dir(path).unwrap();
        }
        symlink(&own, &link).unwrap();
        let find = |path: &Path| real_path::open(None, path, Kind::Directory).unwrap().found;
        let reopened = |found: &FoundPath| {
            reopen(found, RootRole::GitDirectory, &Rights::own(), &Governing::default(), Ownership::Callers)
        };

        for path in [&own, &nameless] {
            let root = reopened(&find(path)).unwrap();
            assert_eq!((&root.path, root.role), (path, RootRole::GitDirectory));
        }
        let replaced = FoundPath { path: own.clone(), object: find(&other).object };
        let by_a_link = FoundPath { path: link, object: find(&own).object };
        for found in [replaced, by_a_link] {
            let refused = reopened(&found);
            assert!(matches!(&refused, Err(NotTaken::Replaced(path)) if *path == found.path), "{refused:?}");
        }
    }
}
