//! Whether a path led to the same file before a moment, by the times of what is on the way to it.
//!
//! A file keeps its times when a directory above it is renamed, and when a directory becomes a repository by what is made
//! next to it. A name comes into a directory only with a change of that directory's times, and of those of what is renamed.
//! Decides nothing.

use std::{
    collections::BTreeSet,
    fs::{File, Metadata},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, fstatfs};

use super::tree::{Tree, nanoseconds};

/// By what git knows a directory as a repository, if it has another name than `.git`: by either pair.
const REPOSITORY_ENTRIES: [[&str; 2]; 2] = [["objects", "refs"], ["HEAD", "commondir"]];

/// Since when a path leads to what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PathAge {
    /// It did before the moment.
    Unchanged,
    /// A directory on the way was renamed, or got or lost an entry: its times do not say which.
    Uncertain,
    /// It does since the moment.
    New,
}

/// Since when a path leads to what is there. `moment`: as [`Tree::content`] has it.
pub(super) fn path_age(tree: &Tree, repositories: &BTreeSet<PathBuf>, path: &Path, moment: i64) -> PathAge {
    let way: Vec<&Path> = path.ancestors().collect();
    let mut age = PathAge::Unchanged;
    let Some(mut above) = times(tree, Path::new("")) else { return PathAge::New };
    for at in way.into_iter().rev().skip(1) {
        // What has gone meanwhile is judged: nothing is there to undo.
        let Some(found) = times(tree, at) else { return PathAge::New };
        age = age.max(entry_age(&above, &found, moment));
        if found.is_directory
            && repositories.contains(at)
            && at.file_name().is_some_and(|name| name != ".git")
        {
            age = age.max(repository_age(tree, at, &found, moment));
        }
        above = found;
    }
    // What is written for the first time there is a copy that has times of its own.
    let has_own_times =
        fstatfs(tree.root()).is_ok_and(|system| system.filesystem_type() != OVERLAYFS_SUPER_MAGIC);
    if has_own_times { age } else { age.min(PathAge::Uncertain) }
}

/// Since when a directory is a repository: since the younger part of the older pair is there.
fn repository_age(tree: &Tree, repository: &Path, found: &Times, moment: i64) -> PathAge {
    let age = |name: &&str| {
        let age = entry_age(found, &times(tree, &repository.join(name))?, moment);
        // Every checkout replaces this file.
        Some(if *name == "HEAD" { age.min(PathAge::Uncertain) } else { age })
    };
    let of_pair = |pair: [&str; 2]| pair.iter().map(age).collect::<Option<Vec<_>>>()?.into_iter().max();
    REPOSITORY_ENTRIES.into_iter().filter_map(of_pair).min().unwrap_or(PathAge::New)
}

/// Since when a name of a directory leads to what is there.
fn entry_age(directory: &Times, entry: &Times, moment: i64) -> PathAge {
    let is_before = |at: i64| at < moment;
    if is_before(directory.changed_at) {
        return PathAge::Unchanged;
    }
    // A copy of a whole file system in place of a directory has the times of the original.
    if entry.device != directory.device {
        return PathAge::Uncertain;
    }
    if is_before(entry.changed_at) {
        return PathAge::Unchanged;
    }
    // A directory that gets or loses an entry is written, too.
    let is_renamed = entry.is_directory && is_before(entry.written_at);
    match is_renamed || entry.made_at.is_some_and(|at| !is_before(at)) {
        true => PathAge::New,
        false => PathAge::Uncertain,
    }
}

/// The times of a file, in nanoseconds.
struct Times {
    is_directory: bool,
    device: u64,
    changed_at: i64,
    written_at: i64,
    /// Where the file system has it.
    made_at: Option<i64>,
}

fn times(tree: &Tree, path: &Path) -> Option<Times> {
    let place = match path.as_os_str().is_empty() {
        true => tree.directory(path),
        false => tree.open_path(path),
    };
    let found: Metadata = File::from(place.ok()?).metadata().ok()?;
    let made_at = found.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    Some(Times {
        is_directory: found.is_dir(),
        device: found.dev(),
        changed_at: nanoseconds(found.ctime(), found.ctime_nsec()),
        written_at: nanoseconds(found.mtime(), found.mtime_nsec()),
        made_at: made_at.and_then(|at| i64::try_from(at.as_nanos()).ok()),
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, thread, time::Duration, time::SystemTime};

    use super::*;

    /// More than the clock of files lags behind.
    const TICK: Duration = Duration::from_millis(30);

    /// What a person has; what a command does in a directory of it; a path, and its age then.
    fn age(path: &str, command: impl FnOnce(&Path)) -> PathAge {
        let root = tempfile::tempdir().unwrap();
        for directory in ["p/bare/objects", "p/bare/refs", "p/half/objects", "p/repo/.git", "p/vs", "p/old"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        for file in
            ["p/bare/config", "p/half/config", "p/half/HEAD", "p/repo/.git/config", "p/vs/tasks", "p/old/a"]
        {
            fs::write(root.path().join(file), "x").unwrap();
        }
        thread::sleep(TICK);
        let moment = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        thread::sleep(TICK);
        command(&root.path().join("p"));
        let tree = Tree::new(root.path().to_owned(), fs::File::open(root.path()).unwrap().into());
        let repositories = ["p/bare", "p/half", "p/repo/.git", "p/moved"].map(PathBuf::from);
        path_age(&tree, &BTreeSet::from(repositories), Path::new(path), i64::try_from(moment).unwrap())
    }

    #[test]
    fn what_came_to_its_place_by_another_name_is_new() {
        let make = |path: std::path::PathBuf| fs::create_dir(path).unwrap();
        let rename = |from: std::path::PathBuf, to: std::path::PathBuf| fs::rename(from, to).unwrap();
        assert_eq!(age("p/half/config", |p| make(p.join("half/refs"))), PathAge::New);
        assert_eq!(age("p/half/config", |p| rename(p.join("old"), p.join("half/refs"))), PathAge::New);
        assert_eq!(age("p/half/config", |p| fs::write(p.join("half/commondir"), "x").unwrap()), PathAge::New);
        assert_eq!(age("p/moved/config", |p| rename(p.join("bare"), p.join("moved"))), PathAge::New);
        assert_eq!(age("p/.vscode/tasks", |p| rename(p.join("vs"), p.join(".vscode"))), PathAge::New);
        assert_eq!(
            age("p/x/repo/.git/config", |p| {
                make(p.join("x"));
                rename(p.join("repo"), p.join("x/repo"));
            }),
            PathAge::New
        );
        assert_eq!(age("p/gone/config", |_| {}), PathAge::New);
    }

    #[test]
    fn what_was_renamed_and_then_written_is_uncertain_and_never_unchanged() {
        let hide = |p: &Path| {
            fs::rename(p.join("vs"), p.join(".vscode")).unwrap();
            fs::write(p.join(".vscode/new"), "").unwrap();
        };
        assert_eq!(age("p/.vscode/tasks", hide), PathAge::Uncertain);
        let hide = |p: &Path| {
            fs::rename(p.join("old"), p.join("half/refs")).unwrap();
            fs::write(p.join("half/refs/new"), "").unwrap();
        };
        assert_eq!(age("p/half/config", hide), PathAge::Uncertain);
    }

    #[test]
    fn work_around_a_file_leaves_it_as_it_was() {
        for path in ["p/bare/config", "p/repo/.git/config", "p/vs/tasks"] {
            assert_eq!(age(path, |_| {}), PathAge::Unchanged, "{path}");
            assert_eq!(age(path, |p| fs::write(p.join("new"), "").unwrap()), PathAge::Unchanged, "{path}");
            assert_eq!(age(path, |p| symlink("x", p.join("new")).unwrap()), PathAge::Unchanged, "{path}");
        }
        assert_eq!(
            age("p/bare/config", |p| fs::write(p.join("bare/objects/a"), "").unwrap()),
            PathAge::Unchanged
        );
        assert_eq!(
            age("p/repo/.git/config", |p| fs::write(p.join("repo/.git/index"), "").unwrap()),
            PathAge::Unchanged
        );
        let commit = |p: &Path| {
            fs::write(p.join("repo/new"), "").unwrap();
            fs::write(p.join("repo/.git/index"), "").unwrap();
        };
        assert_eq!(age("p/repo/.git/config", commit), PathAge::Uncertain, "not undone");
    }
}
