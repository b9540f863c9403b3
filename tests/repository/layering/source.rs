//! Reads the Rust files of this repository as code: without comments, without the contents of strings, without tests.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

/// One file of `src`.
pub(super) struct Source {
    /// Its path from the root of the repository.
    pub name: String,
    /// The member of the workspace and the module in it: `["journal", "format", "record"]` for `src/journal/format/record/mod.rs`. The
    /// package at the top is the member `provost`.
    pub path: Vec<String>,
    /// Lines of code: without tests, comments and blank lines.
    pub lines: usize,
    /// Code without comments, strings and tests.
    pub code: String,
}

impl Source {
    /// Whether it is this module or below it: `policy`, or `base/output`.
    pub(super) fn is_in(&self, module: &str) -> bool {
        module.split('/').enumerate().all(|(at, part)| self.path.get(at).is_some_and(|own| own == part))
    }

    /// Whether it is in one of these.
    pub(super) fn is_in_any(&self, modules: &[&str]) -> bool {
        modules.iter().any(|module| self.is_in(module))
    }
}

/// All files of `src`, read once.
pub(super) fn sources() -> &'static [Source] {
    static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
        let src = root().join("src");
        let files = rust_files(&src);
        assert!(files.len() > 15, "no files were found in src");
        files.iter().map(|path| source(&src, path)).collect()
    });
    &SOURCES
}

fn source(src: &Path, path: &Path) -> Source {
    let inner = path.strip_prefix(src).expect("the file is in src").with_extension("");
    let mut module: Vec<String> =
        inner.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    if !src.join(&module[0]).join("Cargo.toml").exists() {
        module.insert(0, "provost".to_owned());
    }
    if module.last().is_some_and(|last| last == "mod" || last == "lib" && module.len() == 2) {
        module.pop();
    }
    let text = read(path);
    let without_tests = text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
    Source {
        name: relative(path),
        path: module,
        lines: without_tests.lines().filter(|line| is_code(line)).count(),
        code: code_of(without_tests),
    }
}

fn is_code(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with("//")
}

/// Code with comments and the contents of strings removed.
pub(super) fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let removed = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            'r' if raw_string(rest).is_some() && !code.chars().next_back().is_some_and(is_word) => {
                raw_string(rest).unwrap_or(1)
            }
            '"' => string_length(rest),
            // A character, not a lifetime.
            '\'' if rest.starts_with("'\\") || rest.chars().nth(2) == Some('\'') => {
                // An escaped one may be the quote itself.
                let inner = if rest.starts_with("'\\") { 2 } else { 1 };
                let after: usize = rest.chars().take(inner + 1).map(char::len_utf8).sum();
                rest[after..].find('\'').map_or(rest.len(), |end| after + end + 1)
            }
            _ => {
                code.push(first);
                rest = &rest[first.len_utf8()..];
                continue;
            }
        };
        code.push(' ');
        rest = &rest[removed..];
    }
    code
}

/// The length of the raw string that `rest` begins with.
fn raw_string(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix('r')?;
    let hashes = after.chars().take_while(|c| *c == '#').count();
    let inner = after[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    Some(1 + hashes + 1 + inner.find(&close)? + close.len())
}

/// The length of the quoted string that `rest` begins with.
fn string_length(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The words and identifiers of a text.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_word(c)).filter(|word| !word.is_empty())
}

/// Whether a character can be part of an identifier.
pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The Rust files of a directory and of those below it, sorted.
pub(super) fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.expect("the directory can be read").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The root of the repository.
pub(super) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The text of a file.
pub(super) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A path from the root of the repository.
pub(super) fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
