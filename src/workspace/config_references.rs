//! The files that an accepted configuration includes or runs: they count as a part of it, whether they exist yet or not.
//!
//! A value is read for the program that it names, and for the scripts that it gives to one. Links are followed to where they
//! lead, as far as that is below the root.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::{
    control_files::{self, MAX_CONTROL_FILES, Role},
    gitconfig::{self, ConfigKind},
    tree::{FileContent, Tree},
};

/// Programs that run the file that they are given.
const INTERPRETERS: [&str; 16] = [
    "sh", "bash", "dash", "zsh", "ksh", "python", "python2", "python3", "node", "deno", "bun", "ruby",
    "perl", "php", "lua", "source",
];

/// Files and directories that configurations name.
#[derive(Debug, Default)]
pub struct ConfigReferences {
    /// By which repository each is seen.
    files: BTreeMap<PathBuf, (PathBuf, Role)>,
    /// Of hooks.
    directories: BTreeSet<PathBuf>,
}

impl ConfigReferences {
    /// The repository by which a file is seen.
    pub fn file(&self, path: &Path) -> Option<&(PathBuf, Role)> {
        self.files.get(path)
    }

    /// Whether hooks are in this directory.
    pub fn has_directory(&self, path: &Path) -> bool {
        self.directories.contains(path)
    }

    /// The files that are named by a repository.
    pub fn files_of(&self, repository: &Path) -> Vec<(PathBuf, Role)> {
        let own = self.files.iter().filter(|(_, (by, _))| by == repository);
        own.map(|(path, (_, role))| (path.clone(), *role)).collect()
    }

    /// The files that are in a directory: it may have come with them in it.
    pub fn files_in(&self, directory: &Path) -> Vec<(PathBuf, Role)> {
        let in_it = self.files.iter().filter(|(path, _)| path.parent() == Some(directory));
        in_it.map(|(path, (_, role))| (path.clone(), *role)).collect()
    }

    /// Adds the references of a configuration, and returns the directories to scan.
    pub fn add_config(&mut self, tree: &Tree, config: &Path, bytes: &[u8]) -> Vec<PathBuf> {
        let repository = config.parent().unwrap_or(Path::new("")).to_owned();
        let worktree = match repository.file_name().is_some_and(|name| name == ".git") {
            true => repository.parent().unwrap_or(Path::new("")).to_owned(),
            false => repository.clone(),
        };
        let mut to_scan = Vec::new();
        for entry in gitconfig::dangerous(bytes, ConfigKind::Repository) {
            let is_include = entry.name().starts_with("include");
            let role = if is_include { Role::Config(ConfigKind::Repository) } else { Role::Hook };
            let from = if is_include { &repository } else { &worktree };
            let is_path = entry.is_path();
            let words = if is_path { vec![entry.value.as_str()] } else { script_words(&entry.value) };
            for word in words {
                let Some(named) = control_files::resolve_beneath(tree, from, Path::new(word)) else {
                    continue;
                };
                for named in [Some(named.clone()), tree.canonical_path(&named)].into_iter().flatten() {
                    to_scan.extend(self.add(tree, named, &repository, role, is_path));
                }
            }
        }
        to_scan
    }

    fn add(
        &mut self,
        tree: &Tree,
        named: PathBuf,
        repository: &Path,
        role: Role,
        is_path: bool,
    ) -> Option<PathBuf> {
        if self.files.len() >= MAX_CONTROL_FILES || self.directories.len() >= MAX_CONTROL_FILES {
            return None;
        }
        let may_be_directory = is_path && role == Role::Hook;
        match tree.content(&named).0 {
            FileContent::Directory if may_be_directory && self.directories.insert(named.clone()) => {
                Some(named)
            }
            FileContent::Directory => None,
            // It may become either.
            FileContent::Absent if may_be_directory && named.components().next().is_some() => {
                self.directories.insert(named.clone());
                self.add_file(named, repository, role)
            }
            _ => self.add_file(named, repository, role),
        }
    }

    fn add_file(&mut self, named: PathBuf, repository: &Path, role: Role) -> Option<PathBuf> {
        let is_new = self.files.insert(named, (repository.to_owned(), role)).is_none();
        is_new.then(|| repository.to_owned())
    }
}

/// The words of a command by which a shell finds files of the workspace to run: a program with a slash in its name, and what
/// an interpreter is given.
fn script_words(value: &str) -> Vec<&str> {
    let is_between = |c: char| c.is_whitespace() || "\"'`;|&()<>".contains(c);
    let words = value.trim_start_matches('!').split(is_between).filter(|word| !word.is_empty());
    let (mut found, mut is_script, mut is_first) = (Vec::new(), false, true);
    for word in words {
        let is_program = is_first || is_script;
        is_first = false;
        // An interpreter's options stand before its script.
        if is_script && word.starts_with('-') {
            continue;
        }
        let name = word.rsplit('/').next().unwrap_or(word);
        let is_interpreter = is_program && (INTERPRETERS.contains(&name) || name == "env");
        if word.starts_with("./") || is_script && !is_interpreter || is_program && word.contains('/') {
            found.push(word);
        }
        is_script = is_interpreter;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::script_words;

    #[test]
    fn scripts_are_found_where_an_interpreter_is_given_them_and_arguments_are_left_alone() {
        assert_eq!(script_words("!./run.sh src/main.py"), ["./run.sh"]);
        assert_eq!(script_words("python3 -u tools/clean.py %f"), ["tools/clean.py"]);
        assert_eq!(script_words("/usr/bin/env bash 'a.sh' b"), ["/usr/bin/env", "a.sh"]);
        assert_eq!(script_words("!git fetch && ./x.sh"), ["./x.sh"]);
        assert_eq!(script_words("less"), [""; 0]);
    }
}
