//! Finds in a caller's home what profiles may show of it: toolchains, and caches.
//!
//! It reads as data, with the caller's rights: no program of the home is run to ask it. What is found is held open, and shown by
//! descriptor. What belongs to another user and what a command of the session could change is left out, and so is a cache that any user can
//! write, or that a link leads to under another name.

use std::{
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::{fcntl::AT_FDCWD, sys::stat::fstat, unistd::geteuid};

use super::{
    real_path::{self, Kind},
    small_file::{self, Links},
};
use crate::{
    policy::{
        cache,
        profile::Profile,
        toolchain::{self, FoundToolchain, ToolchainOrder, ToolchainPart, ToolchainTools, ToolchainVersions},
    },
    sandbox::{
        roots::{self, governing::Governing},
        spec::{CacheBelow, Root, RootRole, SharedCache},
    },
    sys::rights::Rights,
};

/// Where it is looked for.
pub(super) struct HomeSearch<'a> {
    /// Without links.
    pub(super) home: &'a Path,
    /// Whose home it is.
    pub(super) owner: u32,
    /// What commands of the session can change.
    pub(super) writable: &'a [PathBuf],
}

impl HomeSearch<'_> {
    /// What is shown, if it is the caller's or root's alone and no command of the session can change it. A link must lead to something
    /// of the same name: a directory with the whole path that is listed, a file with its last part.
    pub(super) fn open_shown(&self, shown: &Path) -> Option<Root> {
        let opened = real_path::open(None, &self.home.join(shown), Kind::Any).ok()?;
        let stat = fstat(&opened.descriptor).ok()?;
        let (path, descriptor) = (opened.found.path, opened.descriptor);
        let is_own = stat.st_uid == self.owner || stat.st_uid == 0;
        let is_closed = stat.st_mode & libc::S_IWOTH == 0;
        let is_kind = matches!(stat.st_mode & libc::S_IFMT, libc::S_IFDIR | libc::S_IFREG);
        let overlaps = |root: &PathBuf| root.starts_with(&path) || path.starts_with(root);
        let is_home = self.home.starts_with(&path) || roots::home_in(&path, self.owner).is_some();
        let is_apart = !self.writable.iter().any(overlaps) && !is_home;
        // A command that once worked where a toolchain may lie can have left a link there, to what it could not read. Links are
        // followed at all because people move a toolchain to another disk. Which directories commands once worked in is not
        // remembered: such a list would grow, and be lost with the state.
        let is_file = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        let is_named = path.ends_with(shown) || (is_file && path.file_name() == shown.file_name());
        let is_text = path.to_str().is_some();
        (is_own && is_closed && is_kind && is_apart && is_named && is_text).then_some(Root {
            path,
            descriptor,
            role: RootRole::ReadOnly,
        })
    }

    /// A directory of the caller's own, as [`Self::open_shown`].
    pub(super) fn open_own_directory(&self, shown: &Path) -> Option<Root> {
        let opened = self.open_shown(shown)?;
        let stat = fstat(&opened.descriptor).ok()?;
        let is_own = stat.st_uid == self.owner && stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
        is_own.then_some(opened)
    }
}

/// Versions of one tool that are looked at.
const VERSIONS_MAX: usize = 256;
/// The most bytes of a file that names versions.
const CHOSEN_MAX_BYTES: u64 = 16 << 10;

/// The toolchains of a session's caller.
#[derive(Debug, Default)]
pub(crate) struct Toolchains {
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
pub(super) fn find_toolchains(rights: &Rights, roots: &[Root], governing: &Governing) -> Toolchains {
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

/// A cache that was found.
#[derive(Debug)]
pub(super) struct FoundCache {
    /// As profiles name the tool.
    name: &'static str,
    /// Relative to the home.
    place: &'static Path,
    own: Arc<Root>,
}

impl FoundCache {
    /// For a sandbox of a profile, if that names it.
    pub(super) fn shared_by(&self, profile: &Profile) -> Option<SharedCache> {
        let is_named = profile.caches.iter().any(|name| name == self.name);
        is_named
            .then(|| SharedCache { place: self.place.to_owned(), below: CacheBelow::Own(self.own.clone()) })
    }
}

/// All caches of a home. `writable` is what commands of the session may change.
pub(super) fn find_caches(rights: &Rights, writable: &[PathBuf], governing: &Governing) -> Vec<FoundCache> {
    let Some(home) = roots::home_of(rights.uid) else { return Vec::new() };
    let open_home = || real_path::open(None, &home, Kind::Directory);
    let Ok(Ok(home)) = rights.run_with(open_home) else { return Vec::new() };
    let search = HomeSearch { home: &home.found.path, owner: rights.uid, writable };
    let all =
        cache::all().iter().flat_map(|cache| cache.directories.iter().map(|place| (&*cache.name, &**place)));
    let look = || {
        let found = all.filter_map(|(name, place)| {
            let own = Arc::new(search.open_own_directory(place)?);
            Some(FoundCache { name, place, own })
        });
        found.collect()
    };
    let mut found: Vec<FoundCache> = rights.run_with(look).unwrap_or_default();
    found.retain(|one| governing.check(&[roots::visible(&one.own)]).is_ok());
    found
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        fs,
        os::unix::fs::{chown, symlink},
        path::Path,
    };

    use super::{HomeSearch, ToolchainPart, chosen_version, numbers, *};
    use crate::sandbox::spec::RootRole;

    fn real(directory: &tempfile::TempDir) -> PathBuf {
        directory.path().canonicalize().unwrap()
    }

    fn search(home: &Path) -> HomeSearch<'_> {
        HomeSearch { home, owner: nix::unistd::geteuid().as_raw(), writable: &[] }
    }

    fn shown(search: &HomeSearch<'_>, name: &str) -> Option<PathBuf> {
        search.open_shown(Path::new(name)).map(|root| root.path)
    }

    #[test]
    fn what_is_the_callers_or_roots_is_shown_and_a_cache_is_the_callers_own_directory() {
        if !nix::unistd::geteuid().is_root() {
            println!("SKIPPED: only root can give a directory to another user");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let home = real(&place);
        for (name, owner) in [("own", 4242), ("roots", 0), ("other", 4243)] {
            fs::create_dir(home.join(name)).unwrap();
            chown(home.join(name), Some(owner), Some(owner)).unwrap();
        }
        fs::write(home.join("file"), "").unwrap();
        chown(home.join("file"), Some(4242), Some(4242)).unwrap();
        let search = HomeSearch { owner: 4242, ..search(&home) };
        for (name, is_shown, is_own_directory) in
            [("own", true, true), ("roots", true, false), ("other", false, false), ("file", true, false)]
        {
            assert_eq!(shown(&search, name), is_shown.then(|| home.join(name)), "{name}");
            let own = search.open_own_directory(Path::new(name)).map(|root| root.path);
            assert_eq!(own, is_own_directory.then(|| home.join(name)), "{name}");
        }
    }

    #[test]
    fn a_link_shows_a_file_of_its_name_and_a_directory_only_at_the_whole_place() {
        let place = tempfile::tempdir().unwrap();
        let (home, store) = (real(&place).join("home"), real(&place).join("store"));
        for directory in [home.join(".other"), store.join(".tool/bin"), store.join("bin")] {
            fs::create_dir_all(directory).unwrap();
        }
        fs::write(store.join("run"), "").unwrap();
        for (target, link) in [
            (".tool", ".tool"),
            ("bin", ".other/bin"),
            ("run", ".other/run"),
            ("run", ".other/another"),
            (".tool/bin", ".other/tool"),
        ] {
            symlink(store.join(target), home.join(link)).unwrap();
        }
        for (name, expected) in [
            (".tool", Some(".tool")),
            (".tool/bin", Some(".tool/bin")),
            (".other/run", Some("run")),
            (".other/another", None),
            (".other/bin", None),
            (".other/tool", None),
        ] {
            assert_eq!(shown(&search(&home), name), expected.map(|path| store.join(path)), "{name}");
        }
    }

    #[test]
    fn neither_the_home_nor_what_holds_it_nor_what_a_command_can_change_is_shown() {
        let place = tempfile::tempdir().unwrap();
        let holder = real(&place).join("holder");
        let home = holder.join("home");
        fs::create_dir_all(home.join(".tool/work/below")).unwrap();
        fs::create_dir(home.join(".tool/apart")).unwrap();
        symlink(&holder, home.join("holder")).unwrap();
        symlink(&home, home.join("home")).unwrap();
        for name in ["holder", "home"] {
            assert_eq!(shown(&search(&home), name), None, "{name}");
        }
        let search = HomeSearch { writable: &[home.join(".tool/work")], ..search(&home) };
        for name in [".tool", ".tool/work", ".tool/work/below"] {
            assert_eq!(shown(&search, name), None, "{name}");
        }
        assert_eq!(shown(&search, ".tool/apart"), Some(home.join(".tool/apart")));
    }

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

    #[test]
    fn a_sandbox_has_a_cache_only_where_its_profile_names_it() {
        let descriptor = std::fs::File::open("/").unwrap().into();
        let own = Arc::new(Root { path: "/".into(), descriptor, role: RootRole::ReadOnly });
        let found = FoundCache { name: "npm", place: Path::new(".npm/_cacache"), own };
        let shared = |names: &[&str]| {
            let caches = names.iter().map(|name| (*name).to_owned()).collect();
            let mut profile = Profile::default();
            profile.caches = caches;
            found.shared_by(&profile).map(|shared| shared.place)
        };
        for names in [&["npm"][..], &["cargo", "npm"]] {
            assert_eq!(shared(names).as_deref(), Some(Path::new(".npm/_cacache")), "{names:?}");
        }
        for names in [&[][..], &["cargo"], &["cargo", "npm2"]] {
            assert_eq!(shared(names), None, "{names:?}");
        }
    }
}
