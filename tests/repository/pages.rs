//! Holds what the pages say about the code: tests that promises name, constants that limits name, files that pages
//! point to, functions that the tour and the stories name, and that the index of decisions has each of them.
//!
//! Reads text and runs nothing. It cannot know whether a test holds its promise, only that it is there.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The requirements, by their letters: T terminals, P interactive terminals, S security, A ACP, O operations.
const REQUIREMENTS: [(char, usize); 5] = [('T', 16), ('P', 7), ('S', 12), ('A', 5), ('O', 11)];

const DECISIONS: &str = "docs/internals/decisions";

#[test]
fn every_requirement_has_its_row() {
    let page = read("docs/internals/promises.md");
    for (letter, count) in REQUIREMENTS {
        for number in 1..=count {
            let row = format!("| {letter}{number} |");
            let rows: Vec<&str> = page.lines().filter(|line| line.starts_with(&row)).collect();
            assert_eq!(
                rows.len(),
                1,
                "docs/internals/promises.md has {} rows for {letter}{number}",
                rows.len()
            );
            let says = rows[0].contains('`') || rows[0].contains("Not yet") || rows[0].contains("Not built");
            assert!(says, "names neither a test nor what is missing: {}", rows[0]);
        }
    }
}

#[test]
fn every_test_that_a_promise_names_is_there() {
    let page = read("docs/internals/promises.md");
    let named: Vec<&str> =
        quoted(&page).filter(|word| word.contains("::") && !word.starts_with("src/")).collect();
    assert!(named.len() > 20, "the names were not found");
    for name in named {
        let (suite, test) = name.split_once("::").expect("it has a suite");
        let test = test.rsplit("::").next().unwrap_or(test);
        let files = match suite {
            // Unit tests are in `src`.
            "unit" => rust_files(&root().join("src")),
            suite => {
                let [tests, repository] =
                    ["tests", "tests/repository"].map(|directory| root().join(directory));
                let mut files = rust_files(&tests.join(suite));
                files.extend(rust_files(&repository.join(suite)));
                files.push(repository.join(format!("{suite}.rs")));
                files
            }
        };
        let is_there = files
            .iter()
            .filter_map(|file| fs::read_to_string(file).ok())
            // A name before a colon is a test that a macro makes.
            .any(|code| code.contains(&format!("fn {test}(")) || code.contains(&format!("    {test}: [")));
        assert!(is_there, "docs/internals/promises.md names {name}, which is no test");
    }
}

/// `cargo test` covers every promise: of the tests in a row one at least is neither long nor for a build with failpoints.
#[test]
fn every_promise_has_a_test_that_is_not_long() {
    let long: BTreeSet<String> =
        rust_files(&root().join("tests")).iter().flat_map(|file| long_tests(&read_path(file))).collect();
    assert!(long.contains("of_twenty_thousand_short_commands_none_hangs_and_no_exit_is_lost"));
    for row in read("docs/internals/promises.md")
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains("::"))
    {
        let of_units = row.contains("`.ci/systemd` runs");
        let runs = quoted(row)
            .filter(|word| word.contains("::"))
            .any(|name| !long.contains(name.rsplit("::").next().unwrap_or_default()));
        assert!(runs || of_units, "only long tests hold this promise: {row}");
    }
}

/// A module `nightly` has what CI does not run, and nothing else: `.ci/run` skips it by that name.
#[test]
fn nightly_is_what_is_not_run_by_ci() {
    let mut wrong = Vec::new();
    for file in rust_files(&root().join("tests")) {
        let code = read_path(&file);
        for (at, marked) in code.match_indices("#[ignore = \"") {
            let reason = code[at + marked.len()..].split('"').next().unwrap_or_default();
            let is_indented = code[..at].ends_with(' ');
            let module = code[..at].rsplit_once("\nmod ").filter(|_| is_indented);
            let is_nightly = file.components().any(|part| part.as_os_str() == "nightly")
                || module.is_some_and(|(_, name)| name.starts_with("nightly "));
            if is_nightly != (reason.contains(".ci/long") || reason.starts_with("by hand")) {
                wrong.push(format!("{}: {reason}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Names of the tests of a file that `cargo test` leaves out.
fn long_tests(code: &str) -> Vec<String> {
    let marked = code.split("#[ignore = \"long: ").skip(1);
    let name = |after: &str| Some(after.split("fn ").nth(1)?.split('(').next()?.to_owned());
    marked.filter_map(name).collect()
}

fn read_path(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_constant_that_a_limit_or_a_clock_names_is_there() {
    let page = read("docs/internals/limits.md") + &read("docs/internals/stories.md");
    let named: Vec<&str> =
        quoted(&page).filter(|word| word.starts_with("src/") && word.contains("::")).collect();
    assert!(named.len() > 10, "the names were not found");
    let is_there = |name: &str| {
        let (file, constant) = name.split_once("::").expect("it has a name");
        fs::read_to_string(root().join(file)).is_ok_and(|code| code.contains(constant))
    };
    let missing: Vec<&str> = named.into_iter().filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty(), "limits.md or stories.md names these, which are not there: {missing:#?}");
}

#[test]
fn every_file_that_a_page_points_to_is_there() {
    let mut pages = vec!["README.md", "ARCHITECTURE.md", "SECURITY.md", "CONTRIBUTING.md"]
        .into_iter()
        .map(PathBuf::from)
        .collect::<Vec<_>>();
    for directory in ["docs", "docs/internals", DECISIONS] {
        let entries = fs::read_dir(root().join(directory)).expect("the directory is there").flatten();
        let inside = entries.map(|entry| Path::new(directory).join(entry.file_name()));
        pages.extend(inside.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    let mut wrong = Vec::new();
    for page in pages {
        let text = read(&page.display().to_string());
        let place = root().join(&page).parent().expect("it is in a directory").to_owned();
        for target in links(&text).filter(|target| !place.join(target).exists()) {
            wrong.push(format!("{} links to {target}", page.display()));
        }
        for word in quoted(&text).filter(|word| is_path(word)) {
            // `tests/lifecycle` is a suite, in a directory or in one file.
            let is_there = root().join(word).exists() || root().join(format!("{word}.rs")).exists();
            if !is_there {
                wrong.push(format!("{} points to {word}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn decisions_have_numbers_of_their_own() {
    let mut numbers = BTreeSet::new();
    for name in decisions() {
        let number = name.split('-').next().unwrap_or_default().to_owned();
        assert!(number.len() == 4 && number.chars().all(|c| c.is_ascii_digit()), "{name} has no number");
        let text = read(&format!("{DECISIONS}/{name}"));
        assert!(text.starts_with(&format!("# {number}: ")), "{name} does not open with its number");
        assert!(numbers.insert(number), "{name} has another's number");
    }
}

/// A reader finds a decision by its subject, and sees there when a later one has replaced it.
#[test]
fn the_index_of_decisions_has_each_once_by_its_title() {
    let index = read(&format!("{DECISIONS}/README.md"));
    let mut listed = BTreeSet::new();
    for line in index.lines().filter(|line| line.starts_with("- [")) {
        let name = links(line).next().unwrap_or_else(|| panic!("no link: {line}"));
        assert!(listed.insert(name.to_owned()), "{name} is in the index twice");
        let text = read(&format!("{DECISIONS}/{name}"));
        let heading = text.lines().next().unwrap_or_default().trim_start_matches("# ");
        let (number, title) = heading.split_once(": ").unwrap_or_else(|| panic!("no title: {name}"));
        let entry = format!("- [{number}]({name}) {title}");
        assert!(line.starts_with(&entry), "the index has {line}, the decision {title:?}");
        let is_replaced = text.contains("\nReplaced ");
        assert_eq!(line.contains("(**replaced "), is_replaced, "is it replaced? {line}");
    }
    assert_eq!(listed, decisions(), "the index, and the decisions that there are");
}

/// The names of the files of all decisions.
fn decisions() -> BTreeSet<String> {
    let entries = fs::read_dir(root().join(DECISIONS)).expect("the directory is there").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name != "README.md").collect()
}

#[test]
fn every_option_that_the_readme_shows_is_in_the_help() {
    let help = ["serve", "run", "ps", "logs", "stop", "kill", "wait", "rm", "doctor"].map(|command| {
        let output =
            std::process::Command::new(env!("CARGO_BIN_EXE_provost")).args([command, "--help"]).output();
        String::from_utf8_lossy(&output.expect("provost starts").stdout).into_owned()
    });
    let readme = read("README.md");
    let lines = readme.lines().filter(|line| line.contains("provost ") || line.contains("-- run "));
    for line in lines {
        // What follows a lone "--" is the command's, and what stands before is cargo's.
        let ours = line.split(" -- run ").last().unwrap_or(line).split(" -- ").next().unwrap_or(line);
        for word in ours.split_whitespace().filter(|word| word.starts_with("--") && word.len() > 2) {
            let option = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '-');
            assert!(help.iter().any(|help| help.contains(option)), "README.md shows {option}, no help does");
        }
    }
}

/// A reader follows at most four links from the README to the code that keeps a promise.
#[test]
fn the_tour_leads_from_the_readme_to_the_code_in_four_clicks() {
    let page = read("docs/internals/tour.md");
    let stops: Vec<Vec<Stop>> = page.split("\n## ").skip(1).map(stops).collect();
    assert_eq!(stops.len(), 10, "docs/internals/tour.md has ten promises");
    for (number, path) in stops.iter().enumerate().map(|(at, path)| (at + 1, path)) {
        assert!((2..=5).contains(&path.len()), "promise {number} has {} stops", path.len());
        assert_eq!(path[0].file, "README.md", "promise {number} begins at the README");
        let last = &path[path.len() - 1];
        assert!(last.file.starts_with("src/"), "promise {number} ends in the code: {}", last.file);
        for stop in path {
            assert!(stop.is_there(), "promise {number}: {} has no {:?}", stop.file, stop.sought);
        }
        for pair in path.windows(2) {
            let (from, to) = (read(&pair[0].file), &pair[1]);
            let name = Path::new(&to.file).file_name().unwrap_or_default().to_string_lossy().into_owned();
            let leads = from.contains(&name) || from.contains(&to.sought);
            assert!(leads, "promise {number}: {} does not lead to {}", pair[0].file, to.file);
        }
    }
}

/// A reader finds each file and each function of the stories, and the count of files is what the steps have.
#[test]
fn the_stories_name_files_and_functions_that_are_there_and_count_them() {
    let page = read("docs/internals/stories.md");
    let headed = page.replace("\n### ", "\n## ");
    let stories: Vec<(&str, Vec<Stop>)> =
        headed.split("\n## ").skip(1).map(|section| (section, stops(section))).collect();
    let numbered = stories.iter().filter(|(section, _)| section.starts_with(|c: char| c.is_ascii_digit()));
    assert_eq!(numbered.count(), 5, "docs/internals/stories.md has five stories");
    for (section, steps) in stories.iter().filter(|(_, steps)| !steps.is_empty()) {
        let title = section.lines().next().unwrap_or_default();
        for step in steps {
            let is_code = step.file.starts_with("src/") && step.file.ends_with(".rs");
            assert!(is_code && step.is_there(), "{title}: {} has no {:?}", step.file, step.sought);
        }
        let files: BTreeSet<&str> = steps.iter().map(|step| step.file.as_str()).collect();
        assert!(section.contains(&format!("**{} files**", files.len())), "{title}: {} files", files.len());
    }
}

/// A line of the tour or of a story: the file that it links to, and what a reader finds there, between backticks.
struct Stop {
    file: String,
    sought: String,
}

impl Stop {
    fn is_there(&self) -> bool {
        let (text, sought) = (flat(&read(&self.file)), &self.sought);
        match self.file.ends_with(".rs") {
            true => ["(", "<"].iter().any(|after| text.contains(&format!("fn {sought}{after}"))),
            false => text.contains(sought),
        }
    }
}

/// The stops of a section of a page in docs/internals.
fn stops(section: &str) -> Vec<Stop> {
    let lines = section.lines().skip(1).filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    let stop = |line: &str| {
        let link = line.split("](../../").nth(1)?.split([')', '#']).next()?;
        let sought = line.split("): `").nth(1)?.split('`').next()?;
        Some(Stop { file: link.to_owned(), sought: sought.to_owned() })
    };
    lines.map(|line| stop(line).unwrap_or_else(|| panic!("no stop of the tour: {line}"))).collect()
}

/// The text with its line breaks as blanks, and without backticks.
fn flat(text: &str) -> String {
    text.replace('`', "").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What stands between backticks, on one line.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// The files that a page links to, relative to its own directory, without the part after `#`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    targets.filter(|target| !target.is_empty() && !target.contains(':'))
}

/// Whether a quoted word is meant as a file of this repository.
fn is_path(word: &str) -> bool {
    let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    let starts = ["src/", "docs/", "tests/", "policies/", "proto/", "benches/", ".ci/", "deploy/"];
    let is_page = word.ends_with(".md") && !word.contains('/');
    plain && !word.contains("NNNN") && (is_page || starts.iter().any(|start| word.starts_with(start)))
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries
        .flatten()
        .flat_map(|entry| {
            let path = entry.path();
            if path.is_dir() { rust_files(&path) } else { vec![path] }
        })
        .collect()
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
