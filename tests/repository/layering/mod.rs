//! Holds the shape of the source: who may import whom, where unsafe code and input and output may be, and what a
//! file looks like.
//!
//! The import rule is read from the table in `ARCHITECTURE.md`, so that the page cannot say one thing and the code
//! do another. This reads text; it compiles nothing, and knows no more Rust than it needs.

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
/// Files that are programs of their own, next to the library.
const PROGRAMS: [&str; 2] = ["main", "provost_shell"];
/// Modules without input and output, by promise.
const PURE: [&str; 9] =
    ["policy", "network", "output", "ssh_agent", "wire", "masking", "printable", "byte_text", "signal"];
/// What a pure module may not name of the standard library.
const IMPURE_STD: [&str; 6] = ["fs", "net", "process", "env", "thread", "io"];
/// Modules that run where no runtime exists: in a sandbox, or before anything is started.
const WITHOUT_RUNTIME: [&str; 8] =
    ["policy", "output", "wire", "supervisor", "cgroup", "journal", "masking", "subreaper"];
/// Modules without a runtime that may use `tokio::sync`: nothing of that part of tokio needs one.
const WITH_TOKIO_SYNC: [&str; 1] = ["journal"];
/// Import cycles between files of one module that are still there. The list only gets shorter: a cycle that is not in
/// it fails, and so does an entry that is no cycle any more.
const KNOWN_CYCLES: &[&[&str]] = &[];
/// Words that say nothing about what a thing is for.
const EMPTY_WORDS: [&str; 8] = ["manager", "handler", "helper", "helpers", "util", "utils", "common", "misc"];

#[test]
fn a_module_imports_only_what_the_architecture_page_allows() {
    let table = table();
    let mut wrong = Vec::new();
    for file in sources() {
        // Roots of members import for what is below them.
        if file.name.ends_with("/lib.rs") {
            continue;
        }
        let Some(allowed) = table.get(file.module()) else {
            wrong.push(format!("{} is of a module that ARCHITECTURE.md does not know", file.name));
            continue;
        };
        let roots = if PROGRAMS.contains(&file.module()) { "provost" } else { "crate" };
        for import in names_below(roots, &file.code) {
            if import != file.module() && !allowed.contains(&import) {
                wrong.push(format!("{} imports {import}, which `{}` may not", file.name, file.module()));
            }
        }
        if longest_climb(&file.code) >= file.path.len() {
            wrong.push(format!("{} climbs to the root by `super`: write `crate::`", file.name));
        }
    }
    assert_none(&wrong);
}

#[test]
fn the_import_rule_has_no_cycle() {
    let table = table();
    // Every module must be reachable only downwards: remove those without imports until none is left.
    let mut left = table.clone();
    while !left.is_empty() {
        let leaves: Vec<String> = left
            .iter()
            .filter(|(_, imports)| imports.iter().all(|import| !left.contains_key(import)))
            .map(|(module, _)| module.clone())
            .collect();
        assert!(!leaves.is_empty(), "these modules import one another in a cycle: {:?}", left.keys());
        for leaf in leaves {
            left.remove(&leaf);
        }
    }
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
fn every_module_of_the_page_exists() {
    let there: BTreeSet<String> = sources().iter().map(|file| file.module().to_owned()).collect();
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
        .filter(|file| file.module() != "sys" && words(&file.code_with_tests).any(|word| word == "unsafe"))
        .map(|file| file.name.clone())
        .collect();
    assert_none(&wrong);
}

#[test]
fn pure_modules_do_no_input_or_output() {
    let mut wrong = Vec::new();
    for file in sources().iter().filter(|file| PURE.contains(&file.module())) {
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
        .filter(|file| WITHOUT_RUNTIME.contains(&file.module()))
        // The gateway's own: registering a descriptor with the reactor is unsafe, and unsafe code has one place.
        .filter(|file| file.name != "src/base/sys/async_fd.rs")
        .filter(|file| {
            let may_sync = WITH_TOKIO_SYNC.contains(&file.module());
            let mut runtime = names_below("tokio", &file.code);
            runtime.retain(|part| !(may_sync && part == "sync"));
            runtime.extend(names_below("tonic", &file.code));
            !runtime.is_empty()
        })
        .map(|file| file.name.clone())
        .collect();
    assert_none(&wrong);
}

#[test]
fn only_the_command_line_has_untyped_errors() {
    let wrong: Vec<String> = sources()
        .iter()
        .filter(|file| file.module() != "cli" && words(&file.code_with_tests).any(|word| word == "anyhow"))
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
const FRONT_ENDS: [&str; 6] = ["cli", "client", "acp", "mcp", "exec_server", "local_http"];
/// Their one way to make files, and the reader of tokens, which lets no directory that others can write to be on its way; and what opens this
/// process's own pipes again.
const OUTPUT_FILES: [&str; 3] =
    ["src/cli/console/output_file.rs", "src/cli/agent/token_file.rs", "src/frontends/acp/wire/stdio.rs"];

/// clippy.toml holds for the whole package, and so cannot say this.
#[test]
fn front_ends_make_files_in_one_way() {
    let mut wrong = Vec::new();
    let of_front_ends = |file: &&source::Source| {
        FRONT_ENDS.contains(&file.module()) && !OUTPUT_FILES.iter().any(|name| file.name.ends_with(name))
    };
    for file in sources().iter().filter(of_front_ends) {
        let found = BY_PATH.into_iter().filter(|by_path| file.code.contains(by_path));
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
    assert_eq!(longest_climb("use super::super::x; super::y"), 2);
    assert_eq!(parts("PolicyManager"), ["", "policy", "manager"]);
}
