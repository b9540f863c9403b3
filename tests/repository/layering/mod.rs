//! Holds the shape of the source: imports in one direction within each member of the workspace, where input and output may be, and what a
//! file looks like.
//!
//! Between members the compiler holds the direction, and that only `base` has unsafe code; `ARCHITECTURE.md` lists who builds on whom. This
//! reads text; it compiles nothing, and knows no more Rust than it needs.

mod imports;
mod source;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use imports::Imports;
use source::{code_of, is_word, read, relative, root, rust_files, sources, words};

/// The maximum lines of code in a file, without its tests, comments and blank lines.
const MAX_FILE_LINES: usize = 900;
/// Modules without input and output, by promise.
const PURE: [&str; 7] =
    ["policy", "base/output", "base/wire", "base/masking", "base/printable", "base/byte_text", "base/signal"];
/// What lies next to decisions and is not pure: it finds files, and makes keys.
const NOT_PURE: [&str; 2] = ["policy/resolve", "policy/certificate"];
/// What a pure module may not name of the standard library.
const IMPURE_STD: [&str; 6] = ["fs", "net", "process", "env", "thread", "io"];
/// Modules that run where no runtime exists: in a sandbox, or before anything is started.
const WITHOUT_RUNTIME: [&str; 8] = [
    "policy",
    "base/output",
    "base/wire",
    "base/cgroup",
    "base/masking",
    "sandbox/supervisor",
    "sandbox/subreaper",
    "journal",
];
/// Modules without a runtime that may use `tokio::sync`: nothing of that part of tokio needs one.
const WITH_TOKIO_SYNC: [&str; 1] = ["journal"];
/// Import cycles between files of one module that are still there. The list only gets shorter: a cycle that is not in
/// it fails, and so does an entry that is no cycle any more.
const KNOWN_CYCLES: &[&[&str]] = &[];
/// Words that say nothing about what a thing is for.
const EMPTY_WORDS: [&str; 8] = ["manager", "handler", "helper", "helpers", "util", "utils", "common", "misc"];

#[test]
fn the_page_lists_each_member_with_the_members_that_it_builds_on() {
    let members: BTreeMap<String, BTreeSet<String>> = ["src"]
        .into_iter()
        .flat_map(|src| std::fs::read_dir(root().join(src)).expect("src is there").flatten())
        .map(|entry| entry.path())
        .filter(|path| path.join("Cargo.toml").exists())
        .map(|path| {
            let name = path.file_name().expect("it has a name").to_string_lossy().into_owned();
            (name, built_on(&path.join("Cargo.toml")))
        })
        .chain([("provost".to_owned(), built_on(&root().join("Cargo.toml")))])
        .collect();
    assert_eq!(table(), members, "ARCHITECTURE.md says it otherwise than the manifests");
}

/// The members among the dependencies of a manifest.
fn built_on(manifest: &Path) -> BTreeSet<String> {
    let manifest: toml::Table = read(manifest).parse().expect("a manifest is TOML");
    let dependencies = manifest["dependencies"].as_table().expect("a table");
    dependencies.keys().filter_map(|name| name.strip_prefix("provost-")).map(str::to_owned).collect()
}

#[test]
fn files_of_a_module_do_not_import_one_another_in_a_cycle() {
    let found: BTreeSet<Vec<String>> = Imports::of(sources()).cycles().into_iter().collect();
    let known: BTreeSet<Vec<String>> =
        KNOWN_CYCLES.iter().map(|cycle| cycle.iter().map(|name| (*name).to_owned()).collect()).collect();
    let new = found.difference(&known).map(|cycle| format!("a new import cycle: {cycle:?}"));
    let stale = known.difference(&found).map(|cycle| format!("KNOWN_CYCLES is stale: {cycle:?}"));
    assert_none(&new.chain(stale).collect::<Vec<_>>());
}

#[test]
fn directories_of_a_module_do_not_import_one_another_in_a_cycle() {
    let found = Imports::of(sources()).cycles_of_parts();
    assert_none(&found.iter().map(|cycle| format!("an import cycle: {cycle:?}")).collect::<Vec<_>>());
}

#[test]
fn pure_modules_do_no_input_or_output() {
    let mut wrong = Vec::new();
    let pure = |file: &&source::Source| file.is_in_any(&PURE) && !file.is_in_any(&NOT_PURE);
    for file in sources().iter().filter(pure) {
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
        .filter(|file| file.is_in_any(&WITHOUT_RUNTIME) && !file.is_in_any(&NOT_PURE))
        .filter(|file| {
            let may_sync = file.is_in_any(&WITH_TOKIO_SYNC);
            let mut runtime = names_below("tokio", &file.code);
            runtime.retain(|part| !(may_sync && part == "sync"));
            runtime.extend(names_below("tonic", &file.code));
            !runtime.is_empty()
        })
        .map(|file| file.name.clone())
        .collect();
    assert_none(&wrong);
}

/// What follows a link that a command has left in a workspace, or changes what a path leads to.
const BY_PATH: [&str; 9] = [
    "fs::write(",
    "File::create",
    "OpenOptions",
    "set_permissions(",
    "UnixListener::bind(",
    "fs::rename(",
    "fs::copy(",
    "DirBuilder",
    "fs::create_dir",
];
/// The front ends, which run outside of every sandbox and next to workspaces.
const FRONT_ENDS: [&str; 2] = ["provost/cli", "frontends"];
/// Their one way to make files, and the reader of tokens, which lets no directory that others can write to be on its way.
const OUTPUT_FILES: [&str; 2] = ["src/cli/console/output_file.rs", "src/cli/agent/token_file.rs"];
/// Opens this process's own pipes again, and makes no file.
const OF_PIPES: &str = "pipe::OpenOptions";

/// clippy.toml holds for the whole package, and so cannot say this.
#[test]
fn front_ends_make_files_in_one_way() {
    let mut wrong = Vec::new();
    let of_front_ends = |file: &&source::Source| {
        file.is_in_any(&FRONT_ENDS) && !OUTPUT_FILES.iter().any(|name| file.name.ends_with(name))
    };
    for file in sources().iter().filter(of_front_ends) {
        let code = file.code.replace(OF_PIPES, "");
        let found = BY_PATH.into_iter().filter(|by_path| code.contains(by_path));
        wrong.extend(found.map(|by_path| format!("{} has {by_path}: see output_file", file.name)));
    }
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
        files.iter().filter(|path| !read(path).starts_with("//! ")).map(|path| relative(path)).collect();
    assert_none(&wrong);
}

#[test]
fn a_file_has_at_most_900_lines_of_code() {
    let wrong: Vec<String> = sources()
        .iter()
        .filter(|file| file.lines > MAX_FILE_LINES)
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

/// The table of `ARCHITECTURE.md`: member to those that it builds on.
fn table() -> BTreeMap<String, BTreeSet<String>> {
    let page = read(&root().join("ARCHITECTURE.md"));
    let (_, section) =
        page.split_once("| member | what it is | builds on |").expect("the page has its table");
    let rows = section.lines().skip(2).take_while(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 3, "a row has three cells: {row}");
        let built_on = cells[2].split('`').skip(1).step_by(2).map(str::to_owned).collect();
        (cells[0].trim_matches('`').to_owned(), built_on)
    })
    .collect()
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

/// Splits a name into its words in lower case: `policy_manager` into "policy" and "manager".
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

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn the_reader_of_code_sees_through_comments_and_texts() {
    let code = code_of(
        "// crate::a\nlet x = \"crate::b \\\" crate::c\"; r#\"crate::d\"# /* crate::e */ use crate::f;",
    );
    assert_eq!(names_below("crate", &code), BTreeSet::from(["f".to_owned()]));
    let code = code_of("use crate::{a, b::{c, d}, e::f as g,}; let c = '\"'; crate::h::i();");
    assert_eq!(names_below("crate", &code), ["a", "b", "e", "h"].map(str::to_owned).into());
    assert_eq!(parts("PolicyManager"), ["", "policy", "manager"]);
}
