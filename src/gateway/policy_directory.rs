//! The policy directory: reads every `*.toml` file in it, as one policy.
//!
//! [`PolicySet`] parses the texts. Subdirectories are ignored, so that they can hold examples and tests of policies; and so are hidden
//! files, which editors keep next to the one that they change.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    policy::{PolicyFileError, PolicySet},
    sys::text_file,
};

/// Files that a directory may hold. More is refused.
const MOST_FILES: usize = 256;

/// Bytes that one file may hold. More is refused.
const LARGEST_FILE_BYTES: u64 = 4 << 20;

/// Why a directory is no policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyDirectoryError {
    /// It cannot be read.
    #[error("cannot read {}", crate::printable::path(path))]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is no policy in it.
    #[error("there is no *.toml in {}", crate::printable::path(.0))]
    Empty(PathBuf),
    /// More files, or larger, than are read.
    #[error("{}: more than {MOST_FILES} files, or a file of more than {LARGEST_FILE_BYTES} bytes", crate::printable::path(.0))]
    TooLarge(PathBuf),
    /// Something else than a file has a file's name. A pipe would be waited for, for ever.
    #[error("{} is no regular file", crate::printable::path(.0))]
    NotAFile(PathBuf),
    /// What they say is wrong.
    #[error("{0}")]
    File(#[from] PolicyFileError),
}

/// Reads a directory, or a single file.
pub fn read(path: &Path) -> Result<PolicySet, PolicyDirectoryError> {
    let files = read_texts(path)?;
    let borrowed: Vec<(&str, &str)> =
        files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    Ok(PolicySet::load(&borrowed)?)
}

/// The names and texts, in the order of the names.
fn read_texts(path: &Path) -> Result<Vec<(String, String)>, PolicyDirectoryError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| PolicyDirectoryError::Read { path, source }
    };
    let mut paths = Vec::new();
    if path.is_file() {
        paths.push(path.to_owned());
    } else {
        for entry in fs::read_dir(path).map_err(failed(path))? {
            let entry = entry.map_err(failed(path))?;
            let file = entry.path();
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            if file.extension().is_some_and(|extension| extension == "toml") && !file.is_dir() {
                paths.push(file);
            }
        }
        paths.sort();
    }
    if paths.is_empty() {
        return Err(PolicyDirectoryError::Empty(path.to_owned()));
    }
    if paths.len() > MOST_FILES {
        return Err(PolicyDirectoryError::TooLarge(path.to_owned()));
    }
    let text = |file: PathBuf| {
        let metadata = fs::metadata(&file).map_err(failed(&file))?;
        if !metadata.is_file() {
            return Err(PolicyDirectoryError::NotAFile(file));
        }
        if metadata.len() > LARGEST_FILE_BYTES {
            return Err(PolicyDirectoryError::TooLarge(file));
        }
        // What has taken its place meanwhile is not waited for either.
        let text = text_file::read_text(&file, LARGEST_FILE_BYTES).map_err(failed(&file))?;
        Ok((crate::printable::path(&file), text))
    };
    paths.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_all_its_toml_files_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(read(directory.path()), Err(PolicyDirectoryError::Empty(_))));
        assert!(matches!(read(&directory.path().join("none")), Err(PolicyDirectoryError::Read { .. })));
        fs::write(directory.path().join("b.toml"), "default_profile = 'a'\n[profile.a]\n").unwrap();
        fs::write(directory.path().join("a.toml"), "[[rule]]\nid='x'\ndecision='allow'\nargv=['ls']\n")
            .unwrap();
        fs::write(directory.path().join("notes.txt"), "not toml").unwrap();
        fs::create_dir(directory.path().join("examples.toml")).unwrap();
        std::os::unix::fs::symlink("nobody@nowhere.1", directory.path().join(".#a.toml")).unwrap();
        fs::write(directory.path().join(".a.toml"), "half of a file").unwrap();
        assert_eq!(read(directory.path()).unwrap().rules().len(), 1);
        let pipe = directory.path().join("p.toml");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(read(directory.path()), Err(PolicyDirectoryError::NotAFile(path)) if path == pipe));
        fs::remove_file(&pipe).unwrap();
        fs::write(directory.path().join("c.toml"), "invalid").unwrap();
        let error = read(directory.path()).unwrap_err().to_string();
        assert!(error.contains("c.toml:1:"), "{error}");
    }
}
