//! Finds the toolchains in a caller's home that profiles may show.
//!
//! By reading as data, with the caller's rights: no program of the home is run to ask it. What is found is held open, and
//! shown by descriptor. What a command of the session could change is left out, and so is what belongs to another user.

use std::{
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use nix::{fcntl::AT_FDCWD, unistd::geteuid};

use super::{
    home_search::HomeSearch,
    real_path::{self, Kind},
    small_file::{self, Links},
};
use crate::{
    policy::{
        profile::Profile,
        toolchain::{self, FoundToolchain, ToolchainOrder, ToolchainPart, ToolchainTools, ToolchainVersions},
    },
    sandbox::{
        governing::Governing,
        roots,
        spec::{Root, RootRole},
    },
    sys::rights::Rights,
};

/// Versions of one tool that are looked at.
const VERSIONS_MAX: usize = 256;
/// The most bytes of a file that names versions.
const CHOSEN_MAX_BYTES: u64 = 16 << 10;

/// The toolchains of a session's caller.
#[derive(Debug, Default)]
pub struct Toolchains {
    /// What was found.
    pub found: Vec<FoundToolchain>,
    /// Whether their programs come before the host's.
    pub order: ToolchainOrder,
    /// The directories and files of each, in the same order as `found`.
    pub(super) open: Vec<Vec<Root>>,
}

impl Toolchains {
    /// What a profile shows of them.
    pub(super) fn of_profile(&self, profile: &Profile) -> impl Iterator<Item = &Root> {
        let all = self.found.iter().zip(&self.open);
        all.filter(|(found, _)| toolchain::is_used(profile, &found.name, self.order))
            .flat_map(|(_, open)| open)
    }
}

/// Looks for all toolchains. `roots` is what commands of the session may change.
pub(super) fn find(rights: &Rights, roots: &[Root], governing: &Governing) -> Toolchains {
    let Some(home) = roots::home_of(rights.uid) else { return Toolchains::default() };
    let open_home = || real_path::open(None, &home, Kind::Directory);
    let Ok(Ok(home)) = rights.run_with(open_home) else { return Toolchains::default() };
    let home = home.found.path;
    let order = match rights.uid == geteuid().as_raw() {
        true => ToolchainOrder::HomeFirst,
        false => ToolchainOrder::HostFirst,
    };
    let writable: Vec<PathBuf> =
        roots.iter().filter(|root| root.role != RootRole::ReadOnly).map(|root| root.path.clone()).collect();
    let search = HomeSearch { home: &home, owner: rights.uid, writable: &writable };
    let look = || toolchain::all().iter().filter_map(|one| search.toolchain(&one.name, &one.part)).collect();
    let all: Vec<(FoundToolchain, Vec<Root>)> = rights.run_with(look).unwrap_or_default();
    let is_free =
        |open: &Vec<Root>| governing.check(&open.iter().map(roots::visible).collect::<Vec<_>>()).is_ok();
    let (found, open) = all.into_iter().filter(|(_, open)| is_free(open)).unzip();
    Toolchains { found, order, open }
}

impl HomeSearch<'_> {
    fn toolchain(&self, name: &str, parts: &[ToolchainPart]) -> Option<(FoundToolchain, Vec<Root>)> {
        let mut found = FoundToolchain { name: name.to_owned(), ..FoundToolchain::default() };
        let mut open = Vec::new();
        for part in parts {
            self.add_part(part, &mut found, &mut open);
        }
        found.shown = open.iter().map(|root| root.path.clone()).collect();
        (!open.is_empty()).then_some((found, open))
    }

    fn add_part(&self, part: &ToolchainPart, found: &mut FoundToolchain, open: &mut Vec<Root>) {
        // The home's own paths, and where they really are.
        let mut places: Vec<(PathBuf, PathBuf)> = Vec::new();
        for (index, shown) in part.show.iter().enumerate() {
            let before = places.len();
            for shown in self.listed(shown) {
                if let Some(root) = self.open_shown(&shown) {
                    places.push((shown, root.path.clone()));
                    open.push(root);
                }
            }
            if index == 0 && places.len() == before {
                return;
            }
        }
        let real = |path: &Path| {
            let moved = places.iter().find_map(|(shown, real)| {
                let rest = path.strip_prefix(shown).ok()?;
                Some(if rest.as_os_str().is_empty() { real.clone() } else { real.join(rest) })
            });
            moved.unwrap_or_else(|| self.home.join(path))
        };
        found.path.extend(part.path.iter().map(|path| real(path)));
        found.path.extend(part.versions.as_ref().and_then(|versions| self.version(versions, &real)));
        found.path.extend(part.tools.iter().flat_map(|tools| self.each_tool(tools, &real)));
        let values =
            part.set.iter().map(|(name, path)| (name.clone(), real(path).to_string_lossy().into_owned()));
        found.set.extend(values);
    }

    /// The paths that one of the list stands for: itself, or with a `*` at its end all that begin so.
    fn listed(&self, shown: &Path) -> Vec<PathBuf> {
        let text = shown.to_string_lossy();
        let Some((directory, begin)) = text.strip_suffix('*').and_then(|text| text.rsplit_once('/')) else {
            return vec![shown.to_owned()];
        };
        let opened = real_path::open(None, &self.home.join(directory), Kind::Directory).ok();
        let names = opened.and_then(|one| real_path::names(one.descriptor.as_fd(), VERSIONS_MAX).ok());
        let names = names.unwrap_or_default().into_iter().filter(|name| name.starts_with(begin));
        names.map(|name| Path::new(directory).join(name)).collect()
    }

    /// The programs of one version: of the chosen one, else of the newest.
    fn version(&self, versions: &ToolchainVersions, real: &impl Fn(&Path) -> PathBuf) -> Option<PathBuf> {
        let directory = real(&versions.directory);
        let chosen = versions.chosen.as_ref().and_then(|file| self.text(file));
        let newest = newest(&directory, &versions.prefix, chosen.as_deref().unwrap_or_default())?;
        Some(directory.join(newest).join(&versions.below))
    }

    /// The programs of one version of each tool: of the chosen one, else of the newest.
    fn each_tool(&self, tools: &ToolchainTools, real: &impl Fn(&Path) -> PathBuf) -> Vec<PathBuf> {
        let directory = real(&tools.directory);
        let chosen: Vec<String> = tools.chosen.iter().filter_map(|file| self.text(file)).collect();
        let mut names = names(&directory).unwrap_or_default();
        names.sort();
        let version = |name: String| {
            let chosen = chosen.iter().find_map(|text| chosen_version(text, &name)).unwrap_or_default();
            let tool = directory.join(name);
            let newest = newest(&tool, "", &chosen)?;
            Some(tool.join(newest).join(&tools.below))
        };
        names.into_iter().filter_map(version).filter(|programs| programs.is_dir()).collect()
    }

    /// A small file of the home.
    fn text(&self, file: &Path) -> Option<String> {
        let bytes =
            small_file::read(AT_FDCWD, &self.home.join(file), Links::Followed, CHOSEN_MAX_BYTES).ok()?;
        String::from_utf8(bytes).ok()
    }
}

fn names(directory: &Path) -> Option<Vec<String>> {
    let opened = real_path::open(None, directory, Kind::Directory).ok()?;
    real_path::names(opened.descriptor.as_fd(), VERSIONS_MAX).ok()
}

/// The newest version in a directory, of those that begin as the chosen one.
fn newest(directory: &Path, prefix: &str, chosen: &str) -> Option<String> {
    let chosen = numbers(chosen.trim());
    let all = names(directory)?.into_iter().filter(|name| name.starts_with(prefix));
    let numbered = all.map(|name| (numbers(&name), name));
    numbered.filter(|(version, _)| version.starts_with(&chosen)).max().map(|(_, name)| name)
}

/// The version of a tool that a file names: a line `TOOL VERSION`, or in TOML `tools.TOOL = "VERSION"`, a list of
/// versions, or a table.
fn chosen_version(text: &str, tool: &str) -> Option<String> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next() == Some(tool)).then(|| words.next().map(str::to_owned))?
    };
    let in_toml = || {
        let table: toml::Table = text.parse().ok()?;
        // A directory's name has a `-` for the `:` and the `/` of "npm:@scope/name".
        let is_it = |name: &str| name.replace([':', '/'], "-").replace('@', "") == tool.replace('@', "");
        let (_, value) = table.get("tools")?.as_table()?.iter().find(|(name, _)| is_it(name))?;
        let one = value.as_array().and_then(|all| all.first()).unwrap_or(value);
        one.get("version").unwrap_or(one).as_str().map(str::to_owned)
    };
    in_toml().or_else(|| text.lines().find_map(line))
}

/// The numbers of a version: of "v22.1.0" and "go1.22" what follows the letters. None for a name without one.
fn numbers(version: &str) -> Vec<u64> {
    let digits = version.trim_start_matches(|c: char| !c.is_ascii_digit());
    let digits: &str = digits.split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap_or_default();
    digits.split('.').map_while(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs, path::Path};

    use super::{HomeSearch, ToolchainPart, chosen_version, numbers};

    #[test]
    fn a_part_is_there_where_its_first_directory_is() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let parts = [ToolchainPart {
            tool: "tool".into(),
            show: ["first", "second", "below/third*"].map(Into::into).into(),
            path: vec!["first/bin".into()],
            set: BTreeMap::from([("SECOND".to_owned(), "second".into())]),
            versions: None,
            tools: None,
        }];
        type Names<'a> = &'a [&'a str];
        let cases: [(&str, Names<'_>, Option<Names<'_>>); 5] = [
            ("a", &["second", "below/third-1"], None),
            ("b", &["first"], Some(&["first"])),
            ("c", &["first", "below/third-1", "below/other"], Some(&["first", "below/third-1"])),
            ("d", &["first", "second"], Some(&["first", "second"])),
            ("e", &[], None),
        ];
        for (name, made, shown) in cases {
            let home = place.join(name);
            for directory in std::iter::once(home.clone()).chain(made.iter().map(|one| home.join(one))) {
                fs::create_dir_all(directory).unwrap();
            }
            let owner = nix::unistd::geteuid().as_raw();
            let look = |writable: &[_]| {
                let search = HomeSearch { home: &home, owner, writable };
                search.toolchain("name", &parts).map(|(found, open)| {
                    assert_eq!(open.into_iter().map(|root| root.path).collect::<Vec<_>>(), found.shown);
                    found
                })
            };
            let found = look(&[]);
            assert_eq!(found.is_some(), shown.is_some(), "{name}");
            let Some((found, shown)) = found.zip(shown) else { continue };
            let at = |name: &&str| home.join(name);
            assert_eq!(found.name, "name");
            assert_eq!(found.shown, shown.iter().map(at).collect::<Vec<_>>(), "{name}");
            assert_eq!(found.path, [home.join("first/bin")], "{name}");
            assert_eq!(Path::new(&found.set["SECOND"]), home.join("second"), "{name}");
            assert_eq!(look(&[home.join("first")]), None, "{name}: commands can change it");
        }
    }

    #[test]
    fn a_version_is_chosen_by_a_line_or_in_toml() {
        let lines = "# mine\nnodejs 22.1.0 20.0.0\npython 3.12.4\n";
        assert_eq!(chosen_version(lines, "nodejs").as_deref(), Some("22.1.0"));
        assert_eq!(chosen_version(lines, "node"), None);
        let toml = "[tools]\nnode = \"22\"\ngo = [\"1.22\", \"1.21\"]\njava = { version = \"21\" }\n\
                    \"npm:@a/b\" = \"1\"\n";
        let chosen = ["node", "go", "java", "npm-a-b", "ruby"].map(|tool| chosen_version(toml, tool));
        let expected = [Some("22"), Some("1.22"), Some("21"), Some("1"), None];
        assert_eq!(chosen, expected.map(|one| one.map(str::to_owned)));
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert_eq!(numbers("v22.1.0"), [22, 1, 0]);
        assert_eq!(numbers("go1.22"), [1, 22]);
        assert_eq!(numbers("cpython-3.12.4-linux-x86_64-gnu"), [3, 12, 4]);
        assert!(numbers("lts/*").is_empty());
        assert!(numbers("v9.1") < numbers("v10.0"));
    }
}
