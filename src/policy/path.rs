//! Absolute paths, as callers write them.
//!
//! Purely lexical: this file never looks at the file system and cannot know where a path leads. The kernel decides that
//! later, by descriptor. Paths whose text does not say where they lie are refused: relative ones, `..`, a NUL.

use std::path::{Path, PathBuf};

/// The longest path that the kernel takes, in bytes, with the closing NUL (PATH_MAX of path_resolution(7)).
const PATH_MAX_BYTES: usize = 4096;

/// Why a text is not accepted as a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It is empty.
    #[error("must not be empty")]
    Empty,
    /// Does not begin with a slash.
    #[error("must be absolute")]
    Relative,
    /// Holds `..`.
    #[error("must not hold \"..\"")]
    Parent,
    /// Holds a NUL byte.
    #[error("must not hold a NUL byte")]
    Nul,
    /// Longer than the kernel takes.
    #[error("must be shorter than 4096 bytes")]
    TooLong,
}

/// An absolute path without `.`, `..`, doubled or trailing slashes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AbsPath(PathBuf);

impl AbsPath {
    /// Parses a path as a caller wrote it.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        if text.is_empty() {
            return Err(PathError::Empty);
        }
        if text.contains('\0') {
            return Err(PathError::Nul);
        }
        if !text.starts_with('/') {
            return Err(PathError::Relative);
        }
        if text.len() >= PATH_MAX_BYTES {
            return Err(PathError::TooLong);
        }
        if text.split('/').any(|part| part == "..") {
            return Err(PathError::Parent);
        }
        // `components` drops "." and what repeats a slash.
        Ok(Self(Path::new(text).components().collect()))
    }

    /// Whether this path is `root` or below it, by whole components: `/ab` is not below `/a`.
    pub fn is_within(&self, root: &Self) -> bool {
        self.0.starts_with(&root.0)
    }

    /// This path with its beginning `from` replaced; `None` when it is not within `from`.
    pub fn rebase(&self, from: &Self, to: &Self) -> Option<Self> {
        self.0.strip_prefix(&from.0).ok().map(|rest| Self(to.0.join(rest).components().collect()))
    }

    /// As a path.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// As text. Exact, because it was parsed from text.
    pub fn as_str(&self) -> &str {
        self.0.to_str().expect("an AbsPath is made from a str")
    }
}

impl std::fmt::Display for AbsPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_judged_by_its_text_is_refused() {
        assert_eq!(AbsPath::parse(""), Err(PathError::Empty));
        assert_eq!(AbsPath::parse("work"), Err(PathError::Relative));
        assert_eq!(AbsPath::parse("~/work"), Err(PathError::Relative));
        assert_eq!(AbsPath::parse("/work/../etc"), Err(PathError::Parent));
        assert_eq!(AbsPath::parse("/work/.."), Err(PathError::Parent));
        assert_eq!(AbsPath::parse("/wo\0rk"), Err(PathError::Nul));
        assert_eq!(AbsPath::parse(&"/a".repeat(3000)), Err(PathError::TooLong));
    }

    #[test]
    fn a_path_is_within_a_root_by_whole_components() {
        let within = |path, root| AbsPath::parse(path).unwrap().is_within(&AbsPath::parse(root).unwrap());
        assert!(within("/a", "/a"));
        assert!(within("/a/", "/a"));
        assert!(within("/a/./b//c", "/a/b"));
        assert!(within("/a/..b", "/a"));
        assert!(!within("/ab", "/a"));
        assert!(!within("/", "/a"));
    }
}
