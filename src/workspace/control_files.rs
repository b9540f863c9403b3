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
    gitconfig::{self, ConfigKind},
    rebase_todo,
    tree::{FileContent, QUARANTINE_MARK, RESTORE_MARK, Tree},
};

/// The maximum number of control files of a workspace in the baseline, and of files that its configurations name.
pub const MAX_CONTROL_FILES: usize = 4_096;
/// Directories of a repository that hold objects and names, and no configuration. They are not scanned, and nothing
/// may point into them.
pub const SKIPPED_DIRECTORIES: [&str; 3] = ["objects", "refs", "logs"];
/// The most bytes of a value that a person is shown.
const MAX_DISPLAY_BYTES: usize = 120;

/// What a control file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A configuration of git's.
    Config(ConfigKind),
    /// It contains the path of a repository or of a part of one: `.git` as a file, `commondir`.
    Pointer,
    /// It is run by git.
    Hook,
    /// The directory of hooks itself.
    Hooks,
    /// A file or directory that a tool other than git reads, or what is in it.
    Tool,
    /// What an interrupted rebase does when it goes on.
    RebaseTodo,
}

/// A control file: its path and content.
#[derive(Debug)]
pub struct ControlFile {
    /// Below the root.
    pub path: PathBuf,
    /// What it is for.
    pub role: Role,
    /// What is there.
    pub content: FileContent,
    /// When it last changed: [`Tree::content`].
    pub changed_at: i64,
}

/// Whether a directory is a repository's own, as git finds it: by name or by what is in it.
pub fn is_repository(path: &Path, has: impl Fn(&str) -> bool) -> bool {
    path.file_name().is_some_and(|name| name == ".git")
        || (has("objects") && has("refs"))
        || (has("HEAD") && has("commondir"))
}

/// Whether an event about this name in a directory can be about a control place.
pub fn is_interesting(name: &OsStr) -> bool {
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
    )
}

/// Whether git can run a file of that name in a directory of hooks.
pub fn is_hook(name: &OsStr) -> bool {
    !name.as_bytes().ends_with(b".sample") && !is_quarantine_name(name)
}

/// Whether a name is one that the gateway gives to quarantined files and to files that it is about to restore.
pub fn is_quarantine_name(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let ends = [QUARANTINE_MARK, RESTORE_MARK].map(|part| name.rsplit_once(part).map(|(_, end)| end));
    ends.into_iter().flatten().any(|end| end.len() == 26 && end.bytes().all(|b| b.is_ascii_alphanumeric()))
}

/// What a change makes people's tools run; `None` for a change that makes them run nothing.
pub fn assess_change(
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
        (Role::Hooks | Role::Config(_) | Role::Pointer, FileContent::Directory) => None,
        (Role::Hooks, FileContent::File { .. }) => None,
        (_, FileContent::Link(to)) => Some(format!("a link to {}", display_text(&to.to_string_lossy()))),
        (_, FileContent::Unsupported) => Some("something that cannot be read as a file".to_owned()),
        (Role::Config(flavour), FileContent::File { bytes, .. }) => assess_config(flavour, before, bytes)
            .or_else(|| assess_worktree(tree, repositories, before, &file.path, bytes)),
        (Role::RebaseTodo, FileContent::File { bytes, .. }) => {
            let first = rebase_todo::new_commands(bytes, before)?;
            Some(display_text(&first))
        }
        (Role::Pointer, FileContent::File { bytes, .. }) => {
            assess_pointer(tree, repositories, &file.path, bytes)
        }
        (Role::Hook, FileContent::Directory) => None,
        (Role::Hook, FileContent::File { .. }) => Some("a hook".to_owned()),
    }
}

fn assess_config(flavour: ConfigKind, before: Option<&FileContent>, bytes: &[u8]) -> Option<String> {
    let known = match before {
        Some(FileContent::File { bytes, .. }) => gitconfig::dangerous(bytes, flavour),
        _ => BTreeSet::new(),
    };
    let now = gitconfig::dangerous(bytes, flavour);
    let mut new = now.difference(&known);
    let first = new.next()?;
    let more = match new.count() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    Some(display_text(&format!("{} = {}", first.name(), first.value)) + &more)
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
        let Some(target) = resolve_beneath(tree, repository, Path::new(value)) else { return true };
        let is_in_repository = target.ancestors().any(|at| repositories.contains(at))
            || target.components().any(|part| part.as_os_str() == ".git");
        is_in_repository || tree.directory(&target).is_err()
    };
    let worktrees = gitconfig::worktrees(bytes);
    let elsewhere = worktrees.difference(&known).find(|value| leads_elsewhere(value))?;
    Some(display_text(&format!("core.worktree = {elsewhere}")))
}

/// A pointer may lead to a scanned directory of the same root only: changes elsewhere would not be found.
fn assess_pointer(
    tree: &Tree,
    repositories: &BTreeSet<PathBuf>,
    path: &Path,
    bytes: &[u8],
) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let is_git_file = path.file_name().is_some_and(|name| name == ".git");
    let target = match is_git_file {
        true => text.strip_prefix("gitdir:").map(str::trim)?,
        false => text.trim(),
    };
    let elsewhere = || Some(format!("leads to {}", display_text(target)));
    let Some(target) = resolve_beneath(tree, path.parent().unwrap_or(Path::new("")), Path::new(target))
    else {
        return elsewhere();
    };
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
pub fn resolve_beneath(tree: &Tree, directory: &Path, path: &Path) -> Option<PathBuf> {
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
