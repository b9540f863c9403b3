//! Control files: the files of a workspace by which people's tools find code to run, and which change of one is dangerous.
//!
//! Reads what it judges by descriptor, and changes nothing.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use super::{
    git_state::{self, STATE_DIRECTORIES},
    gitconfig::{self, ConfigEntry, ConfigKind},
    tree::{FileContent, QUARANTINE_MARK, RESTORE_MARK, Tree},
};

/// The maximum number of control files of a workspace in the baseline, and of files that its configurations name.
pub(super) const MAX_CONTROL_FILES: usize = 4_096;
/// Directories of a repository that hold objects and names, and no configuration. They are not scanned, and nothing
/// may point into them.
pub(super) const SKIPPED_DIRECTORIES: [&str; 3] = ["objects", "refs", "logs"];
/// The most bytes of a value that a person is shown.
const MAX_DISPLAY_BYTES: usize = 120;

/// What a control file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// A configuration of git's.
    Config(ConfigKind),
    /// It contains the path of a repository or of a part of one: `.git` as a file, `commondir`.
    Pointer,
    /// It is run by git.
    Hook,
    /// A directory in a repository from which git takes code: of hooks, or of its own state.
    Hooks,
    /// A file or directory that a tool other than git reads, or what is in it.
    Tool,
    /// What an interrupted rebase does when it goes on.
    RebaseTodo,
    /// Another file of a repository by which git runs code.
    State,
}

/// Why something is scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// It is found by a walk: its times say when it has changed.
    Walk,
    /// An event was about it, whatever its times say: a moved directory keeps the times of its files.
    Event,
}

/// A control file: its path and content.
#[derive(Debug)]
pub(super) struct ControlFile {
    /// Below the root.
    pub path: PathBuf,
    /// What it is for.
    pub role: Role,
    /// What is there.
    pub content: FileContent,
    /// When it last changed: [`Tree::content`].
    pub changed_at: i64,
    /// Why it was read.
    pub cause: Cause,
}

/// Whether a directory is a repository's own, as git finds it: by name or by what is in it.
pub(super) fn is_repository(path: &Path, has: impl Fn(&str) -> bool) -> bool {
    path.file_name().is_some_and(|name| name == ".git")
        || (has("objects") && has("refs"))
        || (has("HEAD") && has("commondir"))
}

/// Whether an event about this name in a directory can be about a control place.
pub(super) fn is_interesting(name: &OsStr) -> bool {
    matches!(
        name.as_bytes(),
        b".git"
            | b".gitmodules"
            | b"config"
            | b"config.worktree"
            | b"commondir"
            | b"hooks"
            | b"git-rebase-todo"
            | b"objects"
            | b"refs"
    ) || git_state::is_progress_name(name)
        || STATE_DIRECTORIES.iter().any(|directory| name == *directory)
}

/// Whether a directory is one of a repository whose files count whatever their names are, except of hooks.
pub(super) fn is_state_directory(repositories: &BTreeSet<PathBuf>, path: &Path) -> bool {
    path.file_name().is_some_and(git_state::counts_whole)
        && path.parent().is_some_and(|above| repositories.contains(above))
}

/// The role of a file that git itself goes on with or finds URLs in; `None` for another file.
pub(super) fn state_role(repositories: &BTreeSet<PathBuf>, directory: &Path, name: &OsStr) -> Option<Role> {
    let directory_name = directory.file_name()?;
    if directory_name == "rebase-merge" && name == "git-rebase-todo" {
        return Some(Role::RebaseTodo);
    }
    let counts = is_state_directory(repositories, directory) && !is_quarantine_name(name);
    (counts || git_state::is_progress(directory_name, name)).then_some(Role::State)
}

/// Whether git can run a file of that name in a directory of hooks.
pub(super) fn is_hook(name: &OsStr) -> bool {
    !name.as_bytes().ends_with(b".sample") && !is_quarantine_name(name)
}

/// Whether a name is one that the gateway gives to quarantined files and to files that it is about to restore.
pub(super) fn is_quarantine_name(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let ends = [QUARANTINE_MARK, RESTORE_MARK].map(|part| name.rsplit_once(part).map(|(_, end)| end));
    ends.into_iter().flatten().any(|end| end.len() == 26 && end.bytes().all(|b| b.is_ascii_alphanumeric()))
}

/// What a change makes people's tools run; `None` for a change that makes them run nothing.
pub(super) fn assess_change(
    tree: &Tree,
    repositories: &BTreeSet<PathBuf>,
    before: Option<&FileContent>,
    file: &ControlFile,
) -> Option<String> {
    if before == Some(&file.content) {
        return None;
    }
    match (file.role, &file.content) {
        (_, FileContent::Absent) => None,
        (Role::Tool, _) => Some("a file that tools run or read commands from".to_owned()),
        (Role::RebaseTodo, FileContent::Directory) => None,
        (Role::Hooks | Role::Config(_) | Role::Pointer | Role::State, FileContent::Directory) => None,
        (Role::Hooks, FileContent::File { .. }) => None,
        (_, FileContent::Link(to)) => Some(format!("a link to {}", display_text(&to.to_string_lossy()))),
        (_, FileContent::Unsupported(_)) => Some("something that cannot be read as a file".to_owned()),
        (Role::Config(flavour), FileContent::File { bytes, .. }) => {
            assess_config(tree, file, flavour, before, bytes)
                .or_else(|| assess_worktree(tree, repositories, before, &file.path, bytes))
        }
        (Role::RebaseTodo, FileContent::File { bytes, .. }) => {
            let first = git_state::new_commands(bytes, before)?;
            Some(display_text(&first))
        }
        (Role::State, FileContent::File { bytes, .. }) => {
            let part = git_state::dangerous_part(&file.path, bytes)?;
            Some(display_text(&part))
        }
        (Role::Pointer, FileContent::File { bytes, .. }) => {
            assess_pointer(tree, repositories, &file.path, bytes)
        }
        (Role::Hook, FileContent::Directory) => None,
        (Role::Hook, FileContent::File { .. }) => Some("a hook".to_owned()),
    }
}

fn assess_config(
    tree: &Tree,
    file: &ControlFile,
    flavour: ConfigKind,
    before: Option<&FileContent>,
    bytes: &[u8],
) -> Option<String> {
    let known = match before {
        Some(FileContent::File { bytes, .. }) => gitconfig::dangerous(bytes, flavour),
        _ => BTreeSet::new(),
    };
    let now = gitconfig::dangerous(bytes, flavour);
    let own_hooks = tree.path().join(file.path.with_file_name("hooks"));
    // They are judged where they are.
    let is_own =
        |entry: &&ConfigEntry| entry.is_hooks_path() && entry.value == own_hooks.as_os_str().as_bytes();
    let mut new = now.difference(&known).filter(|entry| !is_own(entry));
    let first = new.next()?;
    let more = match new.count() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    Some(display_text(&first.shown()) + &more)
}

/// The files of a repository may be in the same root, and not among repositories' own: a checkout writes them.
fn assess_worktree(
    tree: &Tree,
    repositories: &BTreeSet<PathBuf>,
    before: Option<&FileContent>,
    config: &Path,
    bytes: &[u8],
) -> Option<String> {
    let known = match before {
        Some(FileContent::File { bytes, .. }) => gitconfig::worktrees(bytes),
        _ => BTreeSet::new(),
    };
    let repository = config.parent().unwrap_or(Path::new(""));
    let leads_elsewhere = |value: &String| {
        // It stands for bytes that are no text: git reads another path.
        if value.contains(char::REPLACEMENT_CHARACTER) {
            return true;
        }
        let Some(target) = resolve_beneath(tree, repository, Path::new(value)) else { return true };
        let is_in_repository = target.ancestors().any(|at| repositories.contains(at))
            || target.components().any(|part| part.as_os_str() == ".git");
        is_in_repository || tree.directory(&target).is_err()
    };
    let worktrees = gitconfig::worktrees(bytes);
    let elsewhere = worktrees.difference(&known).find(|value| leads_elsewhere(value))?;
    Some(display_text(&format!("core.worktree = {elsewhere}")))
}

/// A pointer may lead to a scanned directory of the same root only: changes elsewhere would not be found. Both as git reads
/// it and as tools do that leave out spaces around it.
fn assess_pointer(
    tree: &Tree,
    repositories: &BTreeSet<PathBuf>,
    path: &Path,
    bytes: &[u8],
) -> Option<String> {
    let is_git_file = path.file_name().is_some_and(|name| name == ".git");
    let target = pointer_target(bytes, is_git_file)?;
    let trimmed = target.trim_ascii();
    let other = (trimmed != target).then_some(trimmed);
    [Some(target), other].into_iter().flatten().find_map(|target| {
        let target = Path::new(OsStr::from_bytes(target));
        assess_target(tree, repositories, path.parent().unwrap_or(Path::new("")), target)
    })
}

/// The path in a pointer, byte for byte as git takes it; `None` for a `.git` that git refuses.
pub(super) fn pointer_target(bytes: &[u8], is_git_file: bool) -> Option<&[u8]> {
    let text = match is_git_file {
        true => {
            let text = bytes.strip_prefix(b"gitdir:")?;
            text.strip_prefix(b" ").unwrap_or(text)
        }
        false => bytes,
    };
    let length = text.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    text.get(..length).map(gitconfig::until_nul)
}

fn assess_target(
    tree: &Tree,
    repositories: &BTreeSet<PathBuf>,
    directory: &Path,
    target: &Path,
) -> Option<String> {
    let elsewhere = || Some(format!("leads to {}", display_text(&target.to_string_lossy())));
    let Some(target) = resolve_beneath(tree, directory, target) else { return elsewhere() };
    if tree.directory(&target).is_err() || is_skipped(repositories, &target) {
        return elsewhere();
    }
    // In a repository's own directory, what is there has been judged; a directory of files may hold anything.
    let is_own = target.components().any(|part| part.as_os_str() == ".git");
    let config = match tree.content(&target.join("config")).0 {
        FileContent::File { bytes, .. } => gitconfig::dangerous(&bytes, ConfigKind::Repository),
        _ => BTreeSet::new(),
    };
    let hooks = tree.directory(&target.join("hooks")).and_then(Tree::names).unwrap_or_default();
    let has_code = !config.is_empty() || hooks.iter().any(|(name, _)| is_hook(name));
    (!is_own && has_code).then(elsewhere).flatten()
}

/// Where a path leads that is written in a file of this directory, if that is below the root. One that goes up after it
/// went down is not followed: a link on the way would lead it elsewhere.
pub(super) fn resolve_beneath(tree: &Tree, directory: &Path, path: &Path) -> Option<PathBuf> {
    let (mut at, path) = match path.is_absolute() {
        true => (PathBuf::new(), path.strip_prefix(tree.path()).ok()?),
        false => (directory.to_owned(), path),
    };
    let mut goes_up = true;
    for part in path.components() {
        match part {
            Component::Normal(name) => {
                goes_up = false;
                at.push(name);
            }
            Component::CurDir => {}
            Component::ParentDir if goes_up && at.pop() => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(at)
}

/// Whether a path is in a directory that is not scanned.
fn is_skipped(repositories: &BTreeSet<PathBuf>, path: &Path) -> bool {
    path.ancestors().any(|at| {
        let is_name =
            at.file_name().is_some_and(|name| SKIPPED_DIRECTORIES.iter().any(|skipped| name == *skipped));
        is_name && at.parent().is_some_and(|above| repositories.contains(above))
    })
}

/// So much of a text as a person is shown, on one line.
fn display_text(text: &str) -> String {
    let mut shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if shown.len() > MAX_DISPLAY_BYTES {
        let end = (0..=MAX_DISPLAY_BYTES).rev().find(|at| shown.is_char_boundary(*at)).unwrap_or(0);
        shown.truncate(end);
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_is_read_byte_for_byte_as_git_does() {
        let pointers: [(&[u8], &[u8]); 8] = [
            (b"gitdir: ../x\n", b"../x"),
            (b"gitdir: ../x \n", b"../x "),
            (b"gitdir: ../x\t\r\n\n", b"../x\t"),
            (b"gitdir:  x", b" x"),
            (b"gitdir: \xff\n", b"\xff"),
            (b"gitdir: a\0b\n", b"a"),
            (b"gitdir: a\nb\n", b"a\nb"),
            (b"gitdir: \n", b""),
        ];
        for (text, target) in pointers {
            assert_eq!(pointer_target(text, true), Some(target), "{text:?}");
        }
        assert_eq!(pointer_target(b"x", true), None);
        assert_eq!(pointer_target(b" ../.. \n", false), Some(&b" ../.. "[..]));
    }

    #[test]
    fn files_of_gits_own_state_are_known_by_their_directory() {
        let repositories = BTreeSet::from([PathBuf::from(".git")]);
        let role = |path: &str| {
            let path = Path::new(path);
            state_role(&repositories, path.parent()?, path.file_name()?)
        };
        assert_eq!(role(".git/rebase-merge/git-rebase-todo"), Some(Role::RebaseTodo));
        for path in [
            ".git/rebase-merge/strategy",
            ".git/rebase-apply/strategy",
            ".git/rebase-apply/apply-opt",
            ".git/sequencer/opts",
            "n/.git/sequencer/opts",
            ".git/remotes/a",
            ".git/branches/a",
            ".git/gitweb/a",
        ] {
            assert_eq!(role(path), Some(Role::State), "{path}");
        }
        for path in [
            "remotes/a",
            ".git/a",
            ".git/sequencer/todo",
            ".git/rebase-merge/onto",
            ".git/remotes/a/b",
            ".git/remotes/a.provost-quarantine-01ARZ3NDEKTSV4RRFFQ69G5FAV",
        ] {
            assert_eq!(role(path), None, "{path}");
        }
        assert!(is_interesting(OsStr::new("rebase-merge")) && is_interesting(OsStr::new("opts")));
    }
}
