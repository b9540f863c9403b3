//! Files of a workspace that people's tools run or read commands from: the data file, read once. Pure.

use std::{path::PathBuf, sync::LazyLock};

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Data {
    file: Vec<File>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    path: PathBuf,
    #[expect(dead_code, reason = "for who reads the data file")]
    reason: String,
}

static DATA: LazyLock<Data> = LazyLock::new(|| {
    let text = include_str!("../../policies/data/workspace-files.toml");
    toml::from_str(text).expect("the data file is part of the build, and a test reads it")
});

/// Their paths, relative to a root.
pub(super) fn paths() -> Vec<PathBuf> {
    DATA.file.iter().map(|file| file.path.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_file_is_whole() {
        assert!(paths().iter().all(|path| path.is_relative() && path.components().count() <= 2));
    }
}
