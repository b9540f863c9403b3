//! Files of a workspace that people's tools run or read commands from: the data file, read once. Pure.

use std::{
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
    path: PathBuf,
    /// Whether it counts below the root, too.
    #[serde(default = "yes")]
    nested: bool,
    #[expect(dead_code, reason = "for who reads the data file")]
    reason: String,
}

/// A file that everyday work writes: it is dangerous by what is in it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InspectedFile {
    /// Wherever it is.
    pub path: PathBuf,
    /// It runs nothing without any of these words, in small letters.
    #[serde(default)]
    pub without: Vec<String>,
    /// It runs nothing with none but these sections.
    #[serde(default)]
    pub sections: Vec<String>,
    #[expect(dead_code, reason = "for who reads the data file")]
    reason: String,
}

fn yes() -> bool {
    true
}

static DATA: LazyLock<WorkspaceFileList> = LazyLock::new(|| {
    let text = include_str!("../../policies/data/workspace-files.toml");
    toml::from_str(text).expect("the data file is part of the build, and a test reads it")
});

/// Their paths, relative to a root.
pub(super) fn paths() -> Vec<PathBuf> {
    DATA.file.iter().map(|file| file.path.clone()).collect()
}

/// Whether a path of the list counts below the root, too.
pub fn is_nested(path: &Path) -> bool {
    DATA.file.iter().any(|file| file.nested && file.path == path)
}

/// Those that are judged by what is in them.
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
        assert!(inspected().iter().all(|judged| judged.without.is_empty() != judged.sections.is_empty()));
        let judged = inspected().iter().map(|judged| judged.path.clone());
        for path in paths().into_iter().chain(judged) {
            assert!(path.is_relative() && path.components().count() <= 3, "{path:?}");
        }
        assert!(is_nested(Path::new(".vscode")) && !is_nested(Path::new("own")));
        assert!(is_store(OsStr::new("node_modules")));
    }
}
