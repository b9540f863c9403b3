//! Caches that tools keep in a home: `policies/data/caches.toml`, compiled in.

use std::{path::PathBuf, sync::LazyLock};

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CacheList {
    cache: Vec<Cache>,
}

/// The caches of one tool.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// As profiles name it.
    pub name: String,
    /// Relative to a home.
    pub directories: Vec<PathBuf>,
}

static DATA: LazyLock<CacheList> = LazyLock::new(|| {
    let text = include_str!("policies/data/caches.toml");
    toml::from_str(text).expect("the data file is part of the build, and a test reads it")
});

/// All caches that profiles can name.
pub fn all() -> &'static [Cache] {
    &DATA.cache
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path};

    use super::*;

    #[test]
    fn the_data_file_names_no_place_of_credentials_and_no_directory_twice() {
        let secret = [
            ".cargo", ".npm", ".cache", ".config", ".local", ".ccache", ".m2", ".gradle", "go", "go/bin",
            "go/pkg", "",
        ];
        let directories: Vec<&PathBuf> = all().iter().flat_map(|cache| &cache.directories).collect();
        for (index, directory) in directories.iter().enumerate() {
            assert!(!secret.iter().any(|place| *directory == Path::new(place)), "{directory:?}");
            assert!(directory.components().all(|part| matches!(part, Component::Normal(_))), "{directory:?}");
            let others = directories[..index].iter();
            assert!(
                others.clone().all(|other| !other.starts_with(directory) && !directory.starts_with(other))
            );
        }
    }
}
