//! Holds the shape of the source: who may import whom, where unsafe code and input and output may be, and what a
//! file looks like.
//!
//! The import rule is read from the table in `ARCHITECTURE.md`, so that the page cannot say one thing and the code
//! do another. This reads text; it compiles nothing, and knows no more Rust than it needs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The most lines of code in a file: without its tests, comments and blank lines.
const LONGEST_FILE_LINES: usize = 400;
/// Modules without input and output, by promise.
const PURE: [&str; 5] = ["policy", "output", "wire", "masking", "printable"];
/// What a pure module may not name of the standard library.
const IMPURE_STD: [&str; 6] = ["fs", "net", "process", "env", "thread", "io"];
/// Modules that run where no runtime exists: in a sandbox, or before anything is started.
const WITHOUT_RUNTIME: [&str; 8] =
    ["policy", "output", "wire", "supervisor", "cgroup", "journal", "masking", "subreaper"];
/// Words that say nothing about what a thing is for.
const EMPTY_WORDS: [&str; 8] = ["manager", "handler", "helper", "helpers", "util", "utils", "common", "misc"];

#[test]
fn a_module_imports_only_what_the_architecture_page_allows() {
    let table = table();
    let mut wrong = Vec::new();
    for file in sources() {
        if file.module == "lib" {
            continue;
        }
        let Some(allowed) = table.get(&file.module) else {
            wrong.push(format!("{} is of a module that ARCHITECTURE.md does not know", file.name));
            continue;
        };
        let roots = if file.module == "main" { "provost" } else { "crate" };
        for import in names_below(roots, &file.code) {
            if import != file.module && !allowed.contains(&import) {
                wrong.push(format!("{} imports {import}, which `{}` may not", file.name, file.module));
            }
        }
        if longest_climb(&file.code) >= file.depth {
            wrong.push(format!("{} climbs to the root by `super`: write `crate::`", file.name));
        }
    }
    assert_none(&wrong);
}

#[test]
fn the_import_rule_has_no_circle() {
    let table = table();
    // Every module must be reachable only downwards: remove those without imports until none is left.
    let mut left = table.clone();
    while !left.is_empty() {
        let leaves: Vec<String> = left
            .iter()
            .filter(|(_, imports)| imports.iter().all(|import| !left.contains_key(import)))
            .map(|(module, _)| module.clone())
            .collect();
        assert!(!leaves.is_empty(), "these import one another in a circle: {:?}", left.keys());
        for leaf in leaves {
            left.remove(&leaf);
        }
    }
}

#[test]
fn every_module_of_the_page_exists() {
    let there: BTreeSet<String> = sources().into_iter().map(|file| file.module).collect();
    for (module, imports) in table() {
        assert!(there.contains(&module), "ARCHITECTURE.md knows `{module}`, src does not");
        for import in imports {
            assert!(
                there.contains(&import),
                "ARCHITECTURE.md lets `{module}` import `{import}`, src has none"
            );
        }
    }
}

#[test]
fn unsafe_code_is_in_sys_only() {
    let wrong: Vec<String> = sources()
        .iter()
        .filter(|file| file.module != "sys" && words(&file.whole_code).any(|word| word == "unsafe"))
        .map(|file| file.name.clone())
        .collect();
    assert_none(&wrong);
}

#[test]
fn pure_modules_do_no_input_or_output() {
    let mut wrong = Vec::new();
    for file in sources().iter().filter(|file| PURE.contains(&file.module.as_str())) {
        for name in names_below("std", &file.code) {
            if IMPURE_STD.contains(&name.as_str()) && !is_plain_net(&file.code, &name) {
                wrong.push(format!("{} uses std::{name}", file.name));
            }
        }
        for clock in ["SystemTime", "Instant"] {
            if words(&file.code).any(|word| word == clock) {
                wrong.push(format!("{} reads a clock ({clock})", file.name));
            }
        }
        for system in ["libc", "nix"] {
            if !names_below(system, &file.code).is_empty() {
                wrong.push(format!("{} calls the system ({system})", file.name));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn nothing_inside_a_sandbox_needs_a_runtime() {
    let wrong: Vec<String> = sources()
        .iter()
        .filter(|file| WITHOUT_RUNTIME.contains(&file.module.as_str()))
        // The gateway's own: registering a descriptor with the reactor is unsafe, and unsafe code has one place.
        .filter(|file| file.name != "src/sys/async_fd.rs")
        .filter(|file| ["tokio", "tonic"].iter().any(|root| !names_below(root, &file.code).is_empty()))
        .map(|file| file.name.clone())
        .collect();
    assert_none(&wrong);
}

#[test]
fn only_the_command_line_has_untyped_errors() {
    let wrong: Vec<String> = sources()
        .iter()
        .filter(|file| file.module != "cli" && words(&file.whole_code).any(|word| word == "anyhow"))
        .map(|file| file.name.clone())
        .collect();
    assert_none(&wrong);
}

#[test]
fn nothing_sleeps_for_luck() {
    let wrong: Vec<String> = sources()
        .iter()
        .filter(|file| file.code.contains("thread::sleep"))
        .map(|file| file.name.clone())
        .collect();
    assert_none(&wrong);
}

#[test]
fn a_file_opens_with_what_it_is_for() {
    let mut files: Vec<PathBuf> = Vec::new();
    for directory in ["src", "tests", "benches"] {
        files.extend(rust_files(&root().join(directory)));
    }
    let wrong: Vec<String> =
        files.iter().filter(|path| !read(path).starts_with("//! ")).map(|path| shown(path)).collect();
    assert_none(&wrong);
}

#[test]
fn a_file_has_at_most_400_lines_of_code() {
    let wrong: Vec<String> = sources()
        .iter()
        .filter(|file| file.lines > LONGEST_FILE_LINES)
        .map(|file| format!("{}: {} lines", file.name, file.lines))
        .collect();
    assert_none(&wrong);
}

#[test]
fn names_say_what_a_thing_is() {
    let mut wrong = Vec::new();
    for file in sources() {
        let stem = Path::new(&file.name).with_extension("");
        let of_path = stem.components().filter_map(|part| part.as_os_str().to_str()).map(str::to_owned);
        for name in of_path.chain(definitions(&file.code)) {
            if let Some(word) = parts(&name).into_iter().find(|part| EMPTY_WORDS.contains(&part.as_str())) {
                wrong.push(format!("{}: `{name}` has the empty word {word:?}", file.name));
            }
        }
    }
    assert_none(&wrong);
}

/// One file of `src`.
struct Source {
    /// Its path from the project's root.
    name: String,
    /// The module of the first level.
    module: String,
    /// How many modules deep it is: 1 for `src/x/mod.rs`.
    depth: usize,
    /// Lines of code: without tests, comments and blank lines.
    lines: usize,
    /// Code without comments, texts and tests.
    code: String,
    /// The same with tests.
    whole_code: String,
}

fn sources() -> Vec<Source> {
    let src = root().join("src");
    let files = rust_files(&src);
    assert!(files.len() > 15, "src was not found");
    files.iter().map(|path| source(&src, path)).collect()
}

fn source(src: &Path, path: &Path) -> Source {
    let inner = path.strip_prefix(src).expect("below src").with_extension("");
    let mut modules: Vec<String> =
        inner.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    if modules.last().is_some_and(|last| last == "mod") {
        modules.pop();
    }
    let text = read(path);
    let without_tests = text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
    Source {
        name: shown(path),
        module: modules[0].clone(),
        depth: modules.len(),
        lines: without_tests.lines().filter(|line| is_code(line)).count(),
        code: code_of(without_tests),
        whole_code: code_of(&text),
    }
}

fn is_code(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with("//")
}

/// The table of `ARCHITECTURE.md`: module to what it may import.
fn table() -> BTreeMap<String, BTreeSet<String>> {
    let page = read(&root().join("ARCHITECTURE.md"));
    let section = page.split("## Modules and imports").nth(1).expect("the page has its section on imports");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let table: BTreeMap<_, _> = rows
        .map(|row| {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            assert_eq!(cells.len(), 3, "a row has three cells: {row}");
            let module = cells[0].trim_matches('`').to_owned();
            let imports = cells[2].split('`').skip(1).step_by(2).map(str::to_owned).collect();
            (module, imports)
        })
        .collect();
    assert!(table.len() > 10, "the table was not found");
    table
}

/// The names of the first level that `code` reaches through `root::`, alone or in a group.
fn names_below(root: &str, code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let needle = format!("{root}::");
    for (at, _) in code.match_indices(&needle) {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| is_word(c) || c == ':') {
            continue;
        }
        let rest = code[at + needle.len()..].trim_start();
        if let Some(group) = rest.strip_prefix('{') {
            names.extend(first_level(group));
        } else {
            names.extend(words(rest).next().map(str::to_owned));
        }
    }
    names
}

/// The first word of each member of a group, whose opening brace has been taken off.
fn first_level(group: &str) -> Vec<String> {
    let mut depth = 0_usize;
    let mut members = vec![String::new()];
    for c in group.chars() {
        match c {
            '}' if depth == 0 => break,
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => members.push(String::new()),
            _ => {}
        }
        if let Some(last) = members.last_mut() {
            last.push(c);
        }
    }
    members.iter().filter_map(|member| words(member).next().map(str::to_owned)).collect()
}

/// The longest chain of `super::`.
fn longest_climb(code: &str) -> usize {
    let mut longest = 0;
    for (at, _) in code.match_indices("super::") {
        let mut rest = &code[at..];
        let mut climbs = 0;
        while let Some(next) = rest.strip_prefix("super::") {
            climbs += 1;
            rest = next;
        }
        longest = longest.max(climbs);
    }
    longest
}

/// An address is a value: only sockets are input and output.
fn is_plain_net(code: &str, name: &str) -> bool {
    name == "net" && !["TcpStream", "TcpListener", "UdpSocket"].iter().any(|socket| code.contains(socket))
}

/// Names of what a file defines.
fn definitions(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut words = words(code).peekable();
    while let Some(word) = words.next() {
        if ["struct", "enum", "trait", "fn", "mod", "type", "union"].contains(&word)
            && let Some(name) = words.peek()
        {
            names.push((*name).to_owned());
        }
    }
    names
}

/// `StateDirectory` and `state_directory` to "state", "directory".
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for c in name.chars() {
        if c == '_' || c == '-' {
            parts.push(String::new());
            continue;
        }
        if c.is_uppercase() {
            parts.push(String::new());
        }
        if let Some(last) = parts.last_mut() {
            last.extend(c.to_lowercase());
        }
    }
    parts
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c| !is_word(c)).filter(|word| !word.is_empty())
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Code with comments and the insides of texts taken out.
fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            'r' if raw_text(rest).is_some() && !code.chars().next_back().is_some_and(is_word) => {
                raw_text(rest).unwrap_or(1)
            }
            '"' => text_length(rest),
            // A character, not a lifetime.
            '\'' if rest.starts_with("'\\") || rest.chars().nth(2) == Some('\'') => {
                rest[2..].find('\'').map_or(rest.len(), |end| end + 3)
            }
            _ => {
                code.push(first);
                rest = &rest[first.len_utf8()..];
                continue;
            }
        };
        code.push(' ');
        rest = &rest[taken..];
    }
    code
}

/// The length of the raw text that `rest` begins with.
fn raw_text(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix('r')?;
    let hashes = after.chars().take_while(|c| *c == '#').count();
    let inner = after[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    Some(1 + hashes + 1 + inner.find(&close)? + close.len())
}

/// The length of the text in quotes that `rest` begins with.
fn text_length(rest: &str) -> usize {
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

fn rust_files(directory: &Path) -> Vec<PathBuf> {
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

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn the_reader_of_code_sees_through_comments_and_texts() {
    let code = code_of(
        "// crate::a\nlet x = \"crate::b \\\" crate::c\"; r#\"crate::d\"# /* crate::e */ use crate::f;",
    );
    assert_eq!(names_below("crate", &code), BTreeSet::from(["f".to_owned()]));
    let code = code_of("use crate::{a, b::{c, d}, e::f as g}; let c = '\"'; crate::h::i();");
    assert_eq!(names_below("crate", &code), ["a", "b", "e", "h"].map(str::to_owned).into());
    assert_eq!(longest_climb("use super::super::x; super::y"), 2);
    assert_eq!(parts("PolicyManager"), ["", "policy", "manager"]);
}
