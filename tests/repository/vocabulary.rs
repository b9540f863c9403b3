//! Keeps the words that `docs/vocabulary.md` retires out of identifiers and prose.
//!
//! A word is retired by its row on that page. A word counts with and without a plural `s`, and an identifier counts as
//! the words that it is made of. Decisions are history and keep the words of their time. Reads text, runs nothing.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The list of retired words.
const PAGE: &str = "docs/vocabulary.md";
/// Where the words are looked for.
const PLACES: [&str; 14] = [
    "src",
    "tests",
    "benches",
    "proto",
    "docs",
    "policies",
    "deploy",
    ".ci",
    ".github",
    "README.md",
    "ARCHITECTURE.md",
    "SECURITY.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
];
/// The decisions, and the files that have to name the words.
const EXCLUDED: [&str; 4] =
    ["docs/internals/decisions", "docs/renamed.md", PAGE, "tests/repository/vocabulary.rs"];

/// A row of the page.
struct Retired {
    /// The words as lower-case parts: `["turned", "away"]`.
    words: Vec<String>,
    instead: String,
    /// The directories or files in which it is retired; empty: everywhere.
    places: Vec<String>,
    /// The lines that still use it. The number only gets smaller.
    lines_left: usize,
}

#[test]
fn no_retired_word_is_used() {
    let list = retired();
    let mut found: Vec<Vec<String>> = list.iter().map(|_| Vec::new()).collect();
    for path in files() {
        let name = relative(&path);
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for (number, line) in text.lines().enumerate() {
            let parts = parts(line);
            let used =
                list.iter().zip(&mut found).filter(|(row, _)| row.applies_to(&name) && row.is_in(&parts));
            used.for_each(|(_, found)| found.push(format!("{name}:{}", number + 1)));
        }
    }
    let mut wrong = Vec::new();
    for (row, found) in list.iter().zip(found).filter(|(row, found)| found.len() > row.lines_left) {
        let Retired { words, instead, lines_left, .. } = row;
        let (word, count) = (words.join(" "), found.len());
        wrong.push(format!(
            "\"{word}\" is used in {count} lines, {lines_left} may: write {instead}\n    {}",
            found.join("\n    ")
        ));
    }
    assert!(wrong.is_empty(), "{} retired words:\n{}\n", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_list_has_each_word_once_and_only_places_that_exist() {
    let list = retired();
    assert!(list.len() > 20, "the list was not found");
    let mut seen = Vec::new();
    for row in &list {
        for place in &row.places {
            assert!(root().join(place).exists(), "{:?} is retired in {place}, which is not there", row.words);
        }
        let key = (&row.words, &row.places);
        assert!(!seen.contains(&key), "{key:?} is in the list twice");
        seen.push(key);
    }
}

#[test]
fn a_word_is_found_in_identifiers_and_prose_and_not_within_other_words() {
    let row = |words: &str| Retired {
        words: parts(words),
        instead: String::new(),
        places: Vec::new(),
        lines_left: 0,
    };
    for line in ["fn turned_away()", "enum TurnedAway {", "Turned away:", "TURNED_AWAY"] {
        assert!(row("turned away").is_in(&parts(line)), "{line}");
    }
    assert!(row("folder").is_in(&parts("/// Its folders.")));
    assert!(row("folder").is_in(&parts("HTTPFolder")));
    assert!(!row("roll").is_in(&parts("the controller scrolls")));
    assert!(!row("turned away").is_in(&parts("turned right away")));
}

impl Retired {
    fn applies_to(&self, file: &str) -> bool {
        self.places.is_empty() || self.places.iter().any(|place| Path::new(file).starts_with(place))
    }

    fn is_in(&self, parts: &[String]) -> bool {
        let is_same = |part: &String, word: &String| part.strip_suffix('s') == Some(word) || part == word;
        parts
            .windows(self.words.len())
            .any(|window| window.iter().zip(&self.words).all(|(part, word)| is_same(part, word)))
    }
}

/// The rows of the page's table: a retired word, what to write instead, places in backticks, lines left.
fn retired() -> Vec<Retired> {
    let page = fs::read_to_string(root().join(PAGE)).expect("the list can be read");
    let mut list = Vec::new();
    let section = page.split("\n## Retired words\n").nth(1).expect("the page has the list");
    let section = section.split("\n## ").next().unwrap_or_default();
    for line in section.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 4, "a row has four cells: {line}");
        let places: Vec<String> = cells[2].split('`').skip(1).step_by(2).map(str::to_owned).collect();
        assert!(cells[2] == "everywhere" || !places.is_empty(), "a row says where: {line}");
        let lines_left = cells[3].parse().expect("the last cell is a number");
        list.push(Retired { words: parts(cells[0]), instead: cells[1].to_owned(), places, lines_left });
    }
    list
}

/// The words of a line in lower case, identifiers taken apart.
fn parts(line: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut before = ' ';
    for c in line.chars() {
        let begins = c.is_uppercase() && !before.is_uppercase();
        // The last capital of a row of capitals begins a word: `HTTPServer`.
        let follows_capitals = c.is_lowercase() && before.is_uppercase();
        if !c.is_alphanumeric() || begins {
            parts.push(String::new());
        }
        let last = parts.last_mut().expect("there is always one");
        if follows_capitals && last.chars().count() > 1 {
            let capital = last.pop().expect("it has two");
            parts.push(capital.to_string());
        }
        if c.is_alphanumeric() {
            parts.last_mut().expect("there is always one").extend(c.to_lowercase());
        }
        before = c;
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for place in PLACES {
        let path = root().join(place);
        if path.is_dir() { collect(&path, &mut files) } else { files.push(path) }
    }
    files.retain(|path| !EXCLUDED.iter().any(|excluded| Path::new(&relative(path)).starts_with(excluded)));
    assert!(files.len() > 300, "no files were found");
    files
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() { collect(&path, files) } else { files.push(path) }
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
