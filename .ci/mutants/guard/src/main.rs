//! Puts every mutant of a list into one copy of the tree, each behind a guard that is true for one mutant at a time.
//!
//! `guard LIST TREE EXCLUDED` reads the JSON of `cargo mutants --list --json`, rewrites the listed files below TREE, and writes
//! TREE/guarded.json: for each mutant its number, name and where it lies in the rewritten file, or why it has no guard. EXCLUDED
//! holds the names of mutants that do not compile, one a line. A mutant's number is its place in LIST, from 1.

mod render;
mod sites;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::ExitCode,
};

use serde::{Deserialize, Serialize};

/// A mutant as cargo-mutants lists it.
#[derive(Debug, Deserialize)]
pub struct Mutant {
    file: String,
    name: String,
    genre: String,
    replacement: String,
    span: Span,
    function: Option<Function>,
    #[serde(skip)]
    number: usize,
}

#[derive(Debug, Deserialize)]
struct Function {
    return_type: String,
}

#[derive(Debug, Deserialize)]
struct Span {
    start: Place,
    end: Place,
}

/// Both from 1; columns count characters.
#[derive(Debug, Deserialize)]
struct Place {
    line: usize,
    column: usize,
}

/// What became of a mutant.
#[derive(Debug, Serialize)]
struct Outcome<'a> {
    number: usize,
    name: &'a str,
    file: &'a str,
    /// The bytes of the rewritten file that a compiler's complaint about it lies in.
    bytes: Option<(usize, usize)>,
    /// The number by which a program records that it comes by.
    site: Option<usize>,
    /// Why it has no guard.
    unguarded: Option<&'static str>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [list, tree, excluded] = arguments.as_slice() else {
        eprintln!("usage: guard LIST TREE EXCLUDED");
        return ExitCode::from(2);
    };
    match guard(Path::new(list), Path::new(tree), Path::new(excluded)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("guard: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn guard(list: &Path, tree: &Path, excluded: &Path) -> Result<(), String> {
    let mut mutants: Vec<Mutant> = serde_json::from_str(&read(list)?).map_err(|e| format!("{}: {e}", list.display()))?;
    mutants.iter_mut().zip(1..).for_each(|(mutant, number)| mutant.number = number);
    // There is none before the first build.
    let excluded = fs::read_to_string(excluded).unwrap_or_default();
    let excluded: BTreeSet<&str> = excluded.lines().collect();
    let mut files: BTreeMap<&str, Vec<&Mutant>> = BTreeMap::new();
    for mutant in &mutants {
        files.entry(&mutant.file).or_default().push(mutant);
    }
    let mut outcomes = Vec::new();
    for (file, mutants) in files {
        let path = tree.join(file);
        let text = read(&path)?;
        let (sites, unguarded) = sites::find(&text, &mutants, &excluded).map_err(|e| format!("{file}: {e}"))?;
        let (rewritten, places) = render::render(&text, &sites);
        fs::write(&path, rewritten).map_err(|e| format!("{}: {e}", path.display()))?;
        for mutant in mutants {
            outcomes.push(Outcome {
                number: mutant.number,
                name: &mutant.name,
                file,
                bytes: places.get(&mutant.number).map(|place| place.bytes),
                site: places.get(&mutant.number).map(|place| place.site),
                unguarded: unguarded.get(&mutant.number).copied(),
            });
        }
    }
    let report = serde_json::to_string_pretty(&outcomes).map_err(|e| e.to_string())?;
    fs::write(tree.join("guarded.json"), report).map_err(|e| format!("guarded.json: {e}"))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}
