//! Toolchains that users install in their homes: `policies/data/toolchains.toml`, compiled in, and what a profile has of
//! those that were found in a caller's home.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
};

use serde::Deserialize;

use super::profile::{Profile, ToolchainHomes};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolchainList {
    toolchain: Vec<Toolchain>,
}

/// What profiles call by one name: the parts of all tools that install it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Toolchain {
    /// As profiles name it.
    pub name: String,
    /// What each tool installs.
    pub part: Vec<ToolchainPart>,
}

/// What one tool installs. All paths are relative to a home.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolchainPart {
    /// The tool, for people.
    pub tool: String,
    /// Directories and files that are shown. With a `*` at its end: all of which the last part begins so.
    pub show: Vec<PathBuf>,
    /// Directories of the search path.
    #[serde(default)]
    pub path: Vec<PathBuf>,
    /// Variables, each with a path as its value.
    #[serde(default)]
    pub set: BTreeMap<String, PathBuf>,
    /// One of several versions.
    pub versions: Option<ToolchainVersions>,
    /// One version of each of several tools.
    pub tools: Option<ToolchainTools>,
}

/// Directories of tools next to one another, each with its versions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolchainTools {
    /// Where they are.
    pub directory: PathBuf,
    /// Files that name a version of a tool, the first that does counts: lines of `.tool-versions`, or the table `tools`
    /// of a TOML file.
    pub chosen: Vec<PathBuf>,
    /// Where the programs of a version are.
    pub below: PathBuf,
}

/// Versions next to one another, of which one joins the search path.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolchainVersions {
    /// Where they are.
    pub directory: PathBuf,
    /// How the names of all of them begin.
    #[serde(default)]
    pub prefix: String,
    /// A file that names one, or the beginning of one.
    pub chosen: Option<PathBuf>,
    /// Where its programs are.
    pub below: PathBuf,
}

/// A toolchain that was found in a caller's home. Paths are absolute and without links.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundToolchain {
    /// As profiles name it.
    pub name: String,
    /// What a sandbox shows of it, to be read.
    pub shown: Vec<PathBuf>,
    /// Directories of the search path.
    pub path: Vec<PathBuf>,
    /// Variables.
    pub set: BTreeMap<String, String>,
}

/// Whether the programs of a caller's home come before those of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolchainOrder {
    /// Programs of the host first: rules are written about those, and the caller could put any others in their place.
    #[default]
    HostFirst,
    /// As in the caller's own shell: policy and home belong to one user.
    HomeFirst,
}

static DATA: LazyLock<ToolchainList> = LazyLock::new(|| {
    let text = include_str!("policies/data/toolchains.toml");
    toml::from_str(text).expect("the data file is part of the build, and a test reads it")
});

/// All toolchains that profiles can name.
pub fn all() -> &'static [Toolchain] {
    &DATA.toolchain
}

/// The toolchain with a program at this path of a home, relative to it.
pub fn holding(path: &Path) -> Option<&'static Toolchain> {
    all().iter().find(|one| one.part.iter().flat_map(|part| &part.show).any(|shown| path.starts_with(shown)))
}

/// A profile with the toolchains that it names, as far as they were found.
pub fn adapt(profile: &Arc<Profile>, found: &[FoundToolchain], order: ToolchainOrder) -> Arc<Profile> {
    let used: Vec<&FoundToolchain> = used_by(profile, found, order).collect();
    if used.is_empty() {
        return profile.clone();
    }
    let mut adapted = Profile::clone(profile);
    let own = std::mem::take(&mut adapted.path);
    let of_home = used.iter().flat_map(|one| one.path.iter().cloned());
    adapted.path = match order {
        ToolchainOrder::HostFirst => own.into_iter().chain(of_home).collect(),
        ToolchainOrder::HomeFirst => of_home.chain(own).collect(),
    };
    for (name, value) in used.iter().flat_map(|one| &one.set) {
        adapted.environment.set.entry(name.clone()).or_insert_with(|| value.clone());
    }
    Arc::new(adapted)
}

/// Those toolchains that a profile names and shows to this caller.
pub fn used_by<'a>(
    profile: &'a Profile,
    found: &'a [FoundToolchain],
    order: ToolchainOrder,
) -> impl Iterator<Item = &'a FoundToolchain> {
    found.iter().filter(move |one| is_used(profile, &one.name, order))
}

/// Whether a profile names a toolchain and shows it to this caller.
pub fn is_used(profile: &Profile, name: &str, order: ToolchainOrder) -> bool {
    let is_shown = profile.toolchain_homes == ToolchainHomes::Callers || order == ToolchainOrder::HomeFirst;
    is_shown && profile.toolchains.iter().any(|one| one == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_file_shows_no_place_of_credentials() {
        let secret =
            [".cargo", ".npm", ".config", ".local", ".local/share", ".ssh", ".m2", ".gradle", "", "go"];
        for part in all().iter().flat_map(|toolchain| &toolchain.part) {
            let versions = part.versions.iter().flat_map(|one| [&one.directory, &one.below]);
            let tools =
                part.tools.iter().flat_map(|one| [&one.directory, &one.below].into_iter().chain(&one.chosen));
            for path in part.show.iter().chain(&part.path).chain(versions).chain(tools) {
                assert!(path.is_relative() && !path.starts_with(".."), "{path:?}");
            }
            for shown in &part.show {
                assert!(!secret.iter().any(|place| shown == Path::new(place)), "{shown:?}");
            }
        }
        assert_eq!(holding(Path::new(".cargo/bin/cargo")).map(|one| one.name.as_str()), Some("rust"));
        assert!(holding(Path::new(".cargo/credentials.toml")).is_none());
    }

    #[test]
    fn only_what_a_profile_names_joins_it_and_the_hosts_programs_come_first() {
        let found = ["rust", "node"].map(|name| FoundToolchain {
            name: name.into(),
            path: vec![format!("/home/me/{name}/bin").into()],
            set: [(name.to_uppercase(), "/home/me".to_owned())].into(),
            ..FoundToolchain::default()
        });
        let profile = Arc::new(Profile { toolchains: vec!["rust".into()], ..Profile::default() });
        let adapted = adapt(&profile, &found, ToolchainOrder::HostFirst);
        assert_eq!(adapted.path.last().unwrap(), Path::new("/home/me/rust/bin"));
        assert_eq!(adapted.path.len(), profile.path.len() + 1);
        assert!(
            adapted.environment.set.contains_key("RUST") && !adapted.environment.set.contains_key("NODE")
        );
        let first = adapt(&profile, &found, ToolchainOrder::HomeFirst);
        assert_eq!(first.path[0], Path::new("/home/me/rust/bin"));
        let plain = Arc::new(Profile::default());
        assert!(Arc::ptr_eq(&adapt(&plain, &found, ToolchainOrder::HomeFirst), &plain));
        let own = Profile { toolchain_homes: ToolchainHomes::Gateway, ..Profile::clone(&profile) };
        let own = Arc::new(own);
        assert!(Arc::ptr_eq(&adapt(&own, &found, ToolchainOrder::HostFirst), &own));
        assert_eq!(adapt(&own, &found, ToolchainOrder::HomeFirst).path[0], Path::new("/home/me/rust/bin"));
    }
}
