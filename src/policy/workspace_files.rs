//! Files of a workspace from which people's tools run commands: `policies/data/workspace-files.toml`, compiled in.

use std::{
    collections::HashSet,
    ffi::OsStr,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkspaceFileList {
    file: Vec<ListedFile>,
    judged: Vec<InspectedFile>,
    stores: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListedFile {
    /// In its last name `*` stands for any text.
    path: PathBuf,
    /// Whether it is dangerous in subdirectories, too.
    #[serde(default = "yes")]
    nested: bool,
    #[expect(dead_code, reason = "for who reads the data file")]
    reason: String,
}

/// A file that everyday work writes. Its contents decide whether it is dangerous.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InspectedFile {
    /// The path, relative to any directory of the workspace.
    pub path: PathBuf,
    /// The file is harmless without these words, in lower case.
    #[serde(default)]
    pub without: Vec<String>,
    /// The file is harmless if it has only these sections.
    #[serde(default)]
    pub sections: Vec<String>,
    /// The file is harmless if each of its lines is one of these keys with a value.
    #[serde(default)]
    pub keys: Vec<String>,
    /// A directory of this name, and what is in it, are not meant.
    #[serde(default)]
    pub only_file: bool,
    #[expect(dead_code, reason = "for who reads the data file")]
    reason: String,
}

fn yes() -> bool {
    true
}

static DATA: LazyLock<WorkspaceFileList> = LazyLock::new(|| {
    let text = include_str!("policies/data/workspace-files.toml");
    toml::from_str(text).expect("the data file is part of the build, and a test reads it")
});

/// The paths of the listed files, relative to a root.
pub(super) fn paths() -> Vec<PathBuf> {
    DATA.file.iter().map(|file| file.path.clone()).collect()
}

/// Those that are dangerous in subdirectories, too. A set: a new workspace asks for each path of its profile.
static NESTED: LazyLock<HashSet<&Path>> =
    LazyLock::new(|| DATA.file.iter().filter(|file| file.nested).map(|file| file.path.as_path()).collect());

/// Whether a listed path is dangerous in subdirectories, too.
pub fn is_nested(path: &Path) -> bool {
    NESTED.contains(path)
}

/// The files whose contents decide whether they are dangerous.
pub fn inspected() -> &'static [InspectedFile] {
    &DATA.judged
}

/// Whether a directory of this name is filled by a package manager.
pub fn is_store(name: &OsStr) -> bool {
    DATA.stores.iter().any(|store| name == store.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_file_is_whole() {
        for judged in inspected() {
            let ways = [&judged.without, &judged.sections, &judged.keys];
            assert_eq!(ways.iter().filter(|way| !way.is_empty()).count(), 1, "{:?}", judged.path);
        }
        let judged = inspected().iter().map(|judged| judged.path.clone());
        assert!(judged.clone().all(|path| !path.to_string_lossy().contains('*')));
        for path in paths().into_iter().chain(judged) {
            assert!(path.is_relative() && path.components().count() <= 3, "{path:?}");
            let directories = path.parent().map(Path::to_string_lossy).unwrap_or_default();
            assert!(!directories.contains('*'), "{path:?}");
        }
        assert!(is_nested(Path::new(".vscode")) && !is_nested(Path::new("own")));
        assert!(is_store(OsStr::new("node_modules")));
    }
}
