//! Absolute paths, as callers write them.
//!
//! Purely lexical: this file never looks at the file system and cannot know where a path leads. The kernel decides that
//! later, by descriptor. Paths whose text does not say where they lie are refused: relative ones, `..`, a NUL.

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
};

use crate::byte_text;

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
pub struct AbsPath {
    /// As [`byte_text`] writes it.
    text: String,
    /// Where that is not the path itself.
    of_bytes: Option<PathBuf>,
}

impl AbsPath {
    /// A path of the file system.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn of_path(path: &Path) -> Result<Self, PathError> {
        Self::parse(&byte_text::from_path(path))
    }

    /// Parses a path as a caller wrote it, in the form of [`byte_text`].
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
        if byte_text::len(text) >= PATH_MAX_BYTES {
            return Err(PathError::TooLong);
        }
        if text.split('/').any(|part| part == "..") {
            return Err(PathError::Parent);
        }
        Ok(Self::of_text(Path::new(text)))
    }

    fn of_text(text: &Path) -> Self {
        // `components` drops "." and what repeats a slash.
        let path: PathBuf = text.components().collect();
        let text = path.to_str().expect("an AbsPath is made from a str").to_owned();
        let of_bytes = match byte_text::to_path(&text) {
            Cow::Borrowed(_) => None,
            Cow::Owned(path) => Some(path),
        };
        Self { text, of_bytes }
    }

    /// Whether this path is `root` or below it, by whole components: `/ab` is not below `/a`.
    pub fn is_within(&self, root: &Self) -> bool {
        Path::new(&self.text).starts_with(&root.text)
    }

    /// This path with its beginning `from` replaced; `None` when it is not within `from`.
    pub fn rebase(&self, from: &Self, to: &Self) -> Option<Self> {
        let rest = Path::new(&self.text).strip_prefix(&from.text).ok()?;
        Some(Self::of_text(&Path::new(&to.text).join(rest)))
    }

    /// As a path.
    pub fn as_path(&self) -> &Path {
        self.of_bytes.as_deref().unwrap_or_else(|| Path::new(&self.text))
    }

    /// As text, in the form of [`byte_text`], which is exact.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// For people, and programs that only tell it to people.
    pub fn shown(&self) -> String {
        byte_text::shown(&self.text).into_owned()
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
