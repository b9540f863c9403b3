//! The files of tools other than git: their paths in a workspace, and which content of one runs nothing.
//!
//! What the shipped list names counts wherever it is in the workspace, since people open and enter what is below a root, too;
//! what a profile adds is relative to the root. A `*` in a name stands for any text. Pure.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use super::{
    control_files,
    links::{self, ExposedPaths},
};
use crate::policy::workspace_files;

/// The maximum number of accepted links in place of directories that tools' files are in.
const MAX_LINKS: usize = 256;

/// The paths of tools' files and directories.
#[derive(Debug, Default)]
pub(super) struct ToolPaths {
    /// Relative to the root.
    rooted: PlaceSet,
    /// Wherever they are.
    nested: PlaceSet,
    /// What was added last: most commands have the same profile.
    last_added: Vec<PathBuf>,
    /// Accepted links in place of tools' files and of directories that these are in, and where each leads.
    links: Vec<(PathBuf, PathBuf)>,
    /// The names of what they lead to.
    link_names: BTreeSet<OsString>,
    /// Places in stores that links lead to: tools' files in them count.
    pub exposed: ExposedPaths,
}

/// Places of tools: relative paths, in which `*` in a name stands for any text.
#[derive(Debug, Default)]
struct PlaceSet {
    exact: BTreeSet<PathBuf>,
    patterns: BTreeSet<PathBuf>,
    /// The last names of both: most paths have none of them.
    names: BTreeSet<OsString>,
    name_patterns: BTreeSet<String>,
    /// The directories on the way to them, except git's own.
    ways: BTreeSet<PathBuf>,
}

/// A tool's place, in a path.
#[derive(Debug, PartialEq, Eq)]
struct ToolPlace {
    /// The path, as the tool knows it.
    within: PathBuf,
    /// The place itself.
    root: PathBuf,
    /// As it is listed.
    tool: PathBuf,
}

impl PlaceSet {
    /// Adds a place. Returns whether it is new.
    fn insert(&mut self, path: PathBuf) -> bool {
        let is_pattern = path.to_string_lossy().contains('*');
        let is_new = match is_pattern {
            true => self.patterns.insert(path.clone()),
            false => self.exact.insert(path.clone()),
        };
        if let (true, Some(name)) = (is_new, path.file_name()) {
            match name.to_str().filter(|name| name.contains('*')) {
                Some(pattern) => self.name_patterns.insert(pattern.to_owned()),
                None => self.names.insert(name.to_owned()),
            };
            let ways =
                path.ancestors().skip(1).filter(|way| way.file_name().is_some() && !way.ends_with(".git"));
            self.ways.extend(ways.map(Path::to_owned));
        }
        is_new
    }

    fn has_name(&self, name: &OsStr) -> bool {
        self.names.contains(name) || self.name_patterns.iter().any(|pattern| is_match(pattern, name))
    }

    /// The place that is at the end of a path, or of all of it.
    fn find(&self, at: &Path, extent: Extent) -> Option<&Path> {
        let is_it = |place: &Path| match extent {
            Extent::Whole => at.iter().count() == place.iter().count(),
            Extent::End => true,
        };
        let exact = match extent {
            Extent::Whole => self.exact.get(at),
            Extent::End => self.exact.iter().find(|place| at.ends_with(place)),
        };
        let pattern = || self.patterns.iter().find(|place| is_it(place) && ends_with_pattern(at, place));
        exact.or_else(pattern).map(PathBuf::as_path)
    }
}

/// How much of a path is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    End,
}

impl ToolPaths {
    /// Adds what a profile protects. Gives the directories in which these are new.
    pub(super) fn add(&mut self, protected: &[PathBuf]) -> Vec<PathBuf> {
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
        if self.nested.exact.is_empty() {
            for judged in workspace_files::inspected() {
                self.nested.insert(judged.path.clone());
            }
        }
        for path in protected {
            if !self.rooted.insert(path.clone()) {
                continue;
            }
            directories.push(path.parent().unwrap_or(Path::new("")).to_owned());
            if workspace_files::is_nested(path) {
                self.nested.insert(path.clone());
            }
        }
        directories
    }

    /// Whether a place of that name can be a tool's, without being in a tool's directory.
    pub(super) fn has_name(&self, name: &OsStr) -> bool {
        self.rooted.has_name(name) || self.nested.has_name(name) || self.link_names.contains(name)
    }

    /// Whether a place is a tool's, or in a tool's directory.
    pub(super) fn covers(&self, path: &Path) -> bool {
        self.split(path).is_some()
    }

    /// The part of a path that a tool knows it by: `.vscode/tasks.json` of `a/b/.vscode/tasks.json`.
    pub(super) fn path_within_tool(&self, path: &Path) -> Option<PathBuf> {
        Some(self.split(path)?.within)
    }

    /// The tool's own place, of a path in it.
    pub(super) fn tool_root(&self, path: &Path) -> Option<PathBuf> {
        Some(self.split(path)?.root)
    }

    /// Whether a place is in the list of the root itself, of which what is there is read-only in every sandbox.
    pub(super) fn is_rooted(&self, path: &Path) -> bool {
        path.ancestors().any(|at| self.rooted.exact.contains(at))
    }

    /// Whether a directory at this place can have a tool's file in it: a link there leads the tool to another file.
    pub(super) fn is_on_the_way(&self, path: &Path) -> bool {
        self.rooted.ways.contains(path)
            || self.nested.ways.iter().any(|way| {
                path.ends_with(way)
                    && path.ancestors().nth(way.iter().count()).is_some_and(|above| !self.is_in_store(above))
            })
    }

    /// Adds an accepted link in place of such a directory, or of a tool's file. Returns whether it is new.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn add_link(&mut self, link: PathBuf, target: PathBuf) -> Result<bool, String> {
        // It may itself be behind another one: what counts is how the tool comes to it.
        let written = match self.split_directly(&link) {
            Some(_) => None,
            None => self
                .behind_links(&link)
                .map(|(written, _, _)| written)
                .find(|at| self.split_directly(at).is_some()),
        };
        let link = (written.unwrap_or(link), target);
        if self.links.contains(&link) {
            return Ok(false);
        }
        if self.links.len() >= MAX_LINKS {
            return Err(format!("more than {MAX_LINKS} links in place of tools' directories"));
        }
        self.link_names.extend(link.1.file_name().map(OsStr::to_owned));
        self.links.push(link);
        Ok(true)
    }

    /// A path as it is written by way of an accepted link.
    fn behind_links<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = (PathBuf, &'a Path, &'a Path)> {
        self.links.iter().filter_map(move |(link, target)| {
            let below = path.strip_prefix(target).ok()?;
            let written = if below.as_os_str().is_empty() { link.clone() } else { link.join(below) };
            Some((written, link.as_path(), target.as_path()))
        })
    }

    fn is_in_store(&self, path: &Path) -> bool {
        links::is_in_store(path) && !self.exposed.reaches(path)
    }

    /// The tool's place in a path, by itself or by way of an accepted link.
    fn split(&self, path: &Path) -> Option<ToolPlace> {
        if !path.iter().any(|name| self.has_name(name)) {
            return None;
        }
        self.split_directly(path).or_else(|| {
            self.behind_links(path).find_map(|(written, link, target)| {
                let place = self.split_directly(&written)?;
                let root = if link.starts_with(&place.root) {
                    // The tool's place, or something in it, is what is linked.
                    target.to_owned()
                } else {
                    // As much is below it by either way.
                    let below = written.strip_prefix(&place.root).ok()?.iter().count();
                    path.ancestors().nth(below).filter(|_| place.root.starts_with(link))?.to_owned()
                };
                Some(ToolPlace { root, ..place })
            })
        })
    }

    fn split_directly(&self, path: &Path) -> Option<ToolPlace> {
        // The outermost counts: a tool's directory may hold another one's.
        let ancestors: Vec<&Path> = path.ancestors().collect();
        ancestors.into_iter().rev().find_map(|at| {
            if let Some(tool) = self.rooted.find(at, Extent::Whole) {
                let (root, tool) = (at.to_owned(), tool.to_owned());
                return Some(ToolPlace { within: path.to_owned(), root, tool });
            }
            let tool = self.nested.find(at, Extent::End)?;
            if at != path && is_only_file(tool) {
                return None;
            }
            let above = at.ancestors().nth(tool.iter().count())?;
            let within = path.strip_prefix(above).ok()?;
            (!self.is_in_store(above)).then(|| ToolPlace {
                within: within.to_owned(),
                root: at.to_owned(),
                tool: tool.to_owned(),
            })
        })
    }

    /// Whether a directory at this place is not what a tool reads.
    pub(super) fn is_harmless_directory(&self, path: &Path) -> bool {
        self.split(path).is_some_and(|place| is_only_file(&place.tool))
    }

    /// Whether a file's content runs nothing.
    pub(super) fn is_harmless(&self, path: &Path, bytes: &[u8]) -> bool {
        let Some(ToolPlace { tool, .. }) = self.split(path) else { return false };
        let judged = workspace_files::inspected().iter().find(|judged| judged.path == tool);
        judged.is_some_and(|judged| {
            if !judged.sections.is_empty() {
                return has_only(bytes, &judged.sections);
            }
            if !judged.keys.is_empty() {
                return has_only_keys(bytes, &judged.keys);
            }
            let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
            // A name can be written with escapes.
            !text.contains('\\') && !judged.without.iter().any(|word| text.contains(word))
        })
    }
}

/// Whether a path ends with a place whose names have `*` in them.
fn ends_with_pattern(path: &Path, place: &Path) -> bool {
    let mut names = path.iter().rev();
    place.iter().rev().all(|pattern| {
        names.next().is_some_and(|name| pattern.to_str().is_some_and(|pattern| is_match(pattern, name)))
    })
}

/// Whether a name is one of a pattern's, in which `*` stands for any text. Names that the gateway gives are not.
fn is_match(pattern: &str, name: &OsStr) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return name == pattern };
    let text = name.to_string_lossy();
    let Some(mut left) = text.strip_prefix(start) else { return false };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(end) && !control_files::is_quarantine_name(name)
}

/// Whether a file of sections has none but these, and takes in no other file.
fn has_only(bytes: &[u8], allowed: &[String]) -> bool {
    let mut is_allowed = false;
    // Python ends a line at a carriage return alone, too.
    String::from_utf8_lossy(bytes).split(['\n', '\r']).all(|line| {
        if let Some(section) = line.strip_prefix('[') {
            let name = section.split(']').next().unwrap_or_default();
            is_allowed = allowed.iter().any(|allowed| allowed == name);
            return is_allowed;
        }
        let is_nothing = line.trim().is_empty() || line.starts_with(['#', ';']);
        is_nothing || (is_allowed && !line.starts_with('%'))
    })
}

/// Whether each line of a file is one of these keys with a value on it.
fn has_only_keys(bytes: &[u8], allowed: &[String]) -> bool {
    String::from_utf8_lossy(bytes).split(['\n', '\r']).all(|line| {
        let is_nothing = line.trim().is_empty() || line == "---" || line.starts_with('#');
        is_nothing
            || line.split_once(": ").is_some_and(|(key, _)| allowed.iter().any(|allowed| allowed == key))
    })
}

/// Whether a judged place is one only as a file.
fn is_only_file(place: &Path) -> bool {
    workspace_files::inspected().iter().any(|judged| judged.only_file && judged.path == place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> ToolPaths {
        let mut tools = ToolPaths::default();
        tools.add(&[
            ".vscode".into(),
            ".cargo/config.toml".into(),
            "own/deep/file".into(),
            "own/x".into(),
            ".pre-commit-config.yaml".into(),
            ".config/mise.*.toml".into(),
            "lefthook-local.*".into(),
        ]);
        tools
    }

    #[test]
    fn shipped_names_count_everywhere_but_where_packages_are_kept_and_others_at_the_root() {
        let tools = tools();
        for path in
            [".vscode", "a/b/.vscode", "a/.vscode/tasks.json", "a/.cargo/config.toml", "own/x/y", "own/x"]
        {
            assert!(tools.covers(Path::new(path)), "{path}");
        }
        for path in
            ["a/own/x", "own", ".cargo", "node_modules/x/.vscode", "a/.pre-commit-config.yaml", "vscode", ""]
        {
            assert!(!tools.covers(Path::new(path)), "{path}");
        }
        assert_eq!(tools.path_within_tool(Path::new("a/.vscode/x/y")), Some(".vscode/x/y".into()));
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
        assert!(is_harmless("c/.hg/hgrc", "[paths]\r\ndefault = x\r\n"));
        assert!(!is_harmless("c/.hg/hgrc", "[paths]\ndefault = x\r[hooks]\rupdate = ./x\r"));
        assert!(!is_harmless(".vscode/tasks.json", "{}"));
        assert!(is_harmless(".bundle/config", "---\nBUNDLE_PATH: \"vendor/bundle\"\nBUNDLE_JOBS: \"4\"\n"));
        for text in [
            "BUNDLE_BIN: \"x\"\n",
            " BUNDLE_PATH: x\n",
            "BUNDLE_PATH: x\rBUNDLE_BIN: x\n",
            "BUNDLE_PATH:\n- x\n",
            "{BUNDLE_BIN: x}",
        ] {
            assert!(!is_harmless(".bundle/config", text), "{text:?}");
        }
        assert!(!is_harmless("a/.jj/repo", "../../x") && !is_harmless(".jj/repo", ""));
        assert!(tools.is_harmless_directory(Path::new("a/.jj/repo")));
        assert!(!tools.is_harmless_directory(Path::new("a/.vscode")));
        assert!(
            !tools.covers(Path::new(".jj/repo/store")) && tools.covers(Path::new(".jj/repo/config.toml"))
        );
    }
    #[test]
    fn a_star_in_a_name_stands_for_any_text_but_for_the_gateways_own_names() {
        let tools = tools();
        for path in ["a/.config/mise.dev.toml", ".config/mise.a.local.toml", "lefthook-local.json"] {
            assert!(tools.covers(Path::new(path)), "{path}");
        }
        let own = format!("lefthook-local.yml.provost-quarantine-{}", "0".repeat(26));
        for path in [".config/mise.toml", "mise.dev.toml", "a/lefthook-local.json", own.as_str()] {
            assert!(!tools.covers(Path::new(path)), "{path}");
        }
        assert_eq!(
            tools.tool_root(Path::new("a/.config/mise.dev.toml")),
            Some("a/.config/mise.dev.toml".into())
        );
        assert!(!tools.is_rooted(Path::new("lefthook-local.json")), "no mount keeps it as it is");
        for (pattern, name, expected) in
            [("a*b*c", "axxbyc", true), ("a*b*c", "axxc", false), ("a*a", "a", false), ("*", "x", true)]
        {
            assert_eq!(is_match(pattern, OsStr::new(name)), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_directory_that_a_tools_file_is_in_is_on_the_way_to_it() {
        let tools = tools();
        for path in [".cargo", "a/.cargo", "a/.config", "own", "own/deep", "x/.hg", ".jj/repo"] {
            assert!(tools.is_on_the_way(Path::new(path)), "{path}");
        }
        for path in ["", "a", "a/own", ".vscode", ".git", "node_modules/x/.cargo"] {
            assert!(!tools.is_on_the_way(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn what_is_behind_an_accepted_link_counts_as_if_it_were_there() {
        let mut tools = tools();
        assert!(!tools.covers(Path::new("c/mise.dev.toml")));
        assert_eq!(tools.add_link("a/.config".into(), "c".into()), Ok(true));
        assert_eq!(tools.add_link("a/.config".into(), "c".into()), Ok(false));
        assert!(tools.covers(Path::new("c/mise.dev.toml")) && !tools.covers(Path::new("c/x")));
        assert_eq!(tools.tool_root(Path::new("c/mise.dev.toml")), Some("c/mise.dev.toml".into()));
        assert_eq!(
            tools.path_within_tool(Path::new("c/mise.dev.toml")),
            Some(".config/mise.dev.toml".into())
        );
        for (link, target, path, within) in [
            (".vscode", "cfg", "cfg", ".vscode"),
            (".vscode", "cfg", "cfg/a/b", ".vscode/a/b"),
            ("p/.vscode", "cfg2", "cfg2/tasks.json", ".vscode/tasks.json"),
            (".vscode/sub", "d/sub", "d/sub/x", ".vscode/sub/x"),
            ("cfg/tasks.json", "t.json", "t.json", ".vscode/tasks.json"),
        ] {
            assert!(tools.add_link(link.into(), target.into()).is_ok());
            assert_eq!(tools.path_within_tool(Path::new(path)), Some(within.into()), "{path}");
            assert_eq!(tools.tool_root(Path::new(path)), Some(target.into()), "{path}");
        }
        assert!(!tools.covers(Path::new("d")) && !tools.covers(Path::new("x/cfg")));
    }

    #[test]
    fn a_tools_file_in_a_store_counts_where_a_link_leads_to_it() {
        let mut tools = tools();
        assert!(!tools.covers(Path::new("target/y/.vscode/tasks.json")));
        tools.exposed.add("target/y".into());
        assert!(tools.covers(Path::new("target/y/.vscode/tasks.json")));
        assert!(!tools.covers(Path::new("target/z/.vscode/tasks.json")));
    }
}
