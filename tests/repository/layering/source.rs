//! Reads the Rust files of this repository as code: without comments, without the contents of strings, without tests.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

/// One file of `src`.
pub struct Source {
    /// Its path from the root of the repository.
    pub name: String,
    /// The path of its module: `["journal", "format", "record"]` for `src/journal/format/record/mod.rs`.
    pub path: Vec<String>,
    /// Lines of code: without tests, comments and blank lines.
    pub lines: usize,
    /// Code without comments, strings and tests.
    pub code: String,
    /// The same with tests.
    pub code_with_tests: String,
}

impl Source {
    /// The module of the first level.
    pub fn module(&self) -> &str {
        &self.path[0]
    }
}

/// All files of `src`, read once.
pub fn sources() -> &'static [Source] {
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
    if module.last().is_some_and(|last| last == "mod" || last == "lib" && module.len() > 1) {
        module.pop();
    }
    let text = read(path);
    // A member of the workspace is a module of this name, or has some.
    let member = module[0].clone();
    let is_module_of_its_own = match member.as_str() {
        "base" | "frontends" | "sandbox" => true,
        "policy" => module.get(1).is_some_and(|second| OF_POLICY.contains(&second.as_str())),
        "gateway" => module.get(1).is_some_and(|second| OF_GATEWAY.contains(&second.as_str())),
        _ => false,
    };
    if module.len() > 1 && is_module_of_its_own {
        module.remove(0);
    }
    let text = match member.as_str() {
        "conformance" | "gateway" | "journal" | "policy" => with_names_of_the_whole(&text, &member),
        _ => text,
    };
    let text = text.replace("provost_base::", "crate::");
    let without_tests = text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
    Source {
        name: relative(path),
        path: module,
        lines: without_tests.lines().filter(|line| is_code(line)).count(),
        code: code_of(without_tests),
        code_with_tests: code_of(&text),
    }
}

/// What the member `policy` has next to the policy itself.
const OF_POLICY: [&str; 4] = ["certificate", "network", "resolve", "ssh_agent"];
/// What the member `gateway` has next to the composition itself.
const OF_GATEWAY: [&str; 10] = [
    "approval",
    "grpc",
    "kept_cache",
    "kept_shell",
    "pool",
    "reason",
    "sandbox",
    "session",
    "terminal",
    "workspace",
];
/// What members import of others at their roots.
const IMPORTED: [&str; 15] = [
    "byte_text",
    "cgroup",
    "counters",
    "display",
    "failpoint",
    "journal",
    "masking",
    "output",
    "printable",
    "proto",
    "signal",
    "statefile",
    "stdio",
    "sys",
    "wire",
];

/// The code of a member with the names that its items have in the library of all: `crate::command` of the member `policy` is
/// `crate::policy::command`.
fn with_names_of_the_whole(text: &str, member: &str) -> String {
    let named = |path: &str| {
        let path = path.trim();
        let first = path.split(|c: char| !is_word(c)).next().unwrap_or_default();
        let is_elsewhere = match member {
            "policy" => IMPORTED.contains(&first) || OF_POLICY.contains(&first),
            "gateway" => [&IMPORTED[..], &OF_GATEWAY, &OF_POLICY, &["policy"]].concat().contains(&first),
            _ => IMPORTED.contains(&first) && first != member,
        };
        if is_elsewhere { path.to_owned() } else { format!("{member}::{path}") }
    };
    let mut parts = text.split("crate::");
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        whole.push_str("crate::");
        match part.strip_prefix('{').and_then(group_length).map(|end| part[1..].split_at(end)) {
            Some((group, rest)) => {
                let names: Vec<String> = items(group).map(named).collect();
                whole.push_str(&format!("{{{}{rest}", names.join(", ")));
            }
            None => whole.push_str(&named(part)),
        }
    }
    whole
}

/// Where the group ends of which this is the inside.
fn group_length(inside: &str) -> Option<usize> {
    let mut depth = 1;
    inside.char_indices().find_map(|(at, c)| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        (depth == 0).then_some(at)
    })
}

/// The items of a group.
fn items(group: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let is_end = move |c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth == 0 && c == ','
    };
    group.split(is_end).filter(|item| !item.trim().is_empty())
}

fn is_code(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with("//")
}

/// Code with comments and the contents of strings removed.
pub fn code_of(text: &str) -> String {
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
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_word(c)).filter(|word| !word.is_empty())
}

/// Whether a character can be part of an identifier.
pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The Rust files of a directory and of those below it, sorted.
pub fn rust_files(directory: &Path) -> Vec<PathBuf> {
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
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The text of a file.
pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A path from the root of the repository.
pub fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
