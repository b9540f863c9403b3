//! The files of tools other than git: their paths in a workspace, and which content of one runs nothing.
//!
//! What the shipped list names counts wherever it is in the workspace, since people open and enter what is below a root, too;
//! what a profile adds is relative to the root. Pure.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use crate::policy::workspace_files;

/// The paths of tools' files and directories.
#[derive(Debug, Default)]
pub struct ToolPaths {
    /// Relative to the root.
    rooted: BTreeSet<PathBuf>,
    /// Wherever they are.
    nested: BTreeSet<PathBuf>,
    /// The last names of both: most paths have none of them.
    names: BTreeSet<OsString>,
    /// What was added last: most commands have the same profile.
    last_added: Vec<PathBuf>,
}

impl ToolPaths {
    /// Adds what a profile protects. Gives the directories in which these are new.
    pub fn add(&mut self, protected: &[PathBuf]) -> Vec<PathBuf> {
        let mut directories = Vec::new();
        if self
            .last_added
            .iter()
            .map(|path| path.as_os_str())
            .eq(protected.iter().map(|path| path.as_os_str()))
        {
            return directories;
        }
        self.last_added = protected.to_vec();
        if self.nested.is_empty() {
            let judged = workspace_files::inspected().iter().map(|judged| judged.path.clone());
            judged.for_each(|path| self.add_nested(path));
        }
        for path in protected {
            if !self.rooted.insert(path.clone()) {
                continue;
            }
            self.names.extend(path.file_name().map(OsStr::to_owned));
            directories.push(path.parent().unwrap_or(Path::new("")).to_owned());
            if workspace_files::is_nested(path) {
                self.add_nested(path.clone());
            }
        }
        directories
    }

    fn add_nested(&mut self, path: PathBuf) {
        self.names.extend(path.file_name().map(OsStr::to_owned));
        self.nested.insert(path);
    }

    /// Whether a place of that name can be a tool's, without being in a tool's directory.
    pub fn has_name(&self, name: &OsStr) -> bool {
        self.names.contains(name)
    }

    /// Whether a place is a tool's, or in a tool's directory.
    pub fn covers(&self, path: &Path) -> bool {
        self.split(path).is_some()
    }

    /// The part of a path that a tool knows it by: `.vscode/tasks.json` of `a/b/.vscode/tasks.json`.
    pub fn path_within_tool<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        let (above, _) = self.split(path)?;
        path.strip_prefix(above).ok()
    }

    /// The tool's own place, of a path in it.
    pub fn tool_root(&self, path: &Path) -> Option<PathBuf> {
        let (above, tool) = self.split(path)?;
        Some(above.join(tool))
    }

    /// Whether a place is in the list of the root itself, of which what is there is read-only in every sandbox.
    pub fn is_rooted(&self, path: &Path) -> bool {
        path.ancestors().any(|at| self.rooted.contains(at))
    }

    /// What is above the tool's place, and the tool.
    fn split<'a>(&'a self, path: &'a Path) -> Option<(&'a Path, &'a Path)> {
        if !path.components().any(|part| self.names.contains(part.as_os_str())) {
            return None;
        }
        let is_store = |at: &Path| at.components().any(|part| workspace_files::is_store(part.as_os_str()));
        // The outermost counts: a tool's directory may hold another one's.
        let ancestors: Vec<&Path> = path.ancestors().collect();
        ancestors.into_iter().rev().find_map(|at| {
            if let Some(tool) = self.rooted.get(at) {
                return Some((Path::new(""), tool.as_path()));
            }
            let tool = self.nested.iter().find(|tool| at.ends_with(tool))?;
            let above = at.ancestors().nth(tool.components().count())?;
            (!is_store(above)).then_some((above, tool.as_path()))
        })
    }

    /// Whether a file's content runs nothing.
    pub fn is_harmless(&self, path: &Path, bytes: &[u8]) -> bool {
        let Some((_, tool)) = self.split(path) else { return false };
        let judged = workspace_files::inspected().iter().find(|judged| judged.path == tool);
        judged.is_some_and(|judged| {
            if !judged.sections.is_empty() {
                return has_only(bytes, &judged.sections);
            }
            let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
            // A name can be written with escapes.
            !text.contains('\\') && !judged.without.iter().any(|word| text.contains(word))
        })
    }
}

/// Whether a file of sections has none but these, and takes in no other file.
fn has_only(bytes: &[u8], allowed: &[String]) -> bool {
    let mut is_allowed = false;
    String::from_utf8_lossy(bytes).lines().all(|line| {
        if let Some(section) = line.strip_prefix('[') {
            let name = section.split(']').next().unwrap_or_default();
            is_allowed = allowed.iter().any(|allowed| allowed == name);
            return is_allowed;
        }
        let is_nothing = line.trim().is_empty() || line.starts_with(['#', ';']);
        is_nothing || (is_allowed && !line.starts_with('%'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> ToolPaths {
        let mut tools = ToolPaths::default();
        tools.add(&[
            ".vscode".into(),
            ".cargo/config.toml".into(),
            "own".into(),
            ".pre-commit-config.yaml".into(),
        ]);
        tools
    }

    #[test]
    fn shipped_names_count_everywhere_but_where_packages_are_kept_and_others_at_the_root() {
        let tools = tools();
        for path in [".vscode", "a/b/.vscode", "a/.vscode/tasks.json", "a/.cargo/config.toml", "own/x", "own"]
        {
            assert!(tools.covers(Path::new(path)), "{path}");
        }
        for path in ["a/own", ".cargo", "node_modules/x/.vscode", "a/.pre-commit-config.yaml", "vscode", ""] {
            assert!(!tools.covers(Path::new(path)), "{path}");
        }
        assert_eq!(tools.path_within_tool(Path::new("a/.vscode/x/y")), Some(Path::new(".vscode/x/y")));
        assert_eq!(tools.tool_root(Path::new("a/.vscode/x/y")), Some("a/.vscode".into()));
    }

    #[test]
    fn content_that_runs_nothing_is_known() {
        let tools = tools();
        let is_harmless = |path: &str, text: &str| tools.is_harmless(Path::new(path), text.as_bytes());
        assert!(is_harmless("rust-toolchain.toml", "[toolchain]\nchannel = \"1.90\"\n"));
        assert!(!is_harmless("a/rust-toolchain.toml", "[toolchain]\npath = \"evil\"\n"));
        assert!(!is_harmless("rust-toolchain.toml", "[toolchain]\n\"p\\u0061th\" = \"evil\"\n"));
        assert!(is_harmless("c/.hg/hgrc", "# made by clone\n[paths]\ndefault = ssh://x/y\n"));
        assert!(!is_harmless("c/.hg/hgrc", "[paths]\ndefault = x\n[hooks]\nupdate = ./x\n"));
        assert!(!is_harmless("c/.hg/hgrc", "[paths]\n%include ../x\n"));
        assert!(!is_harmless(".vscode/tasks.json", "{}"));
    }
}
