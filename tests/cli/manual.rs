//! `provost completions` and `provost man`: whole, like the help, and accepted by the programs that read them.

use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Output, Stdio},
};

use super::fixture::{Place, code, shown, stdout};

/// The subcommands below `path`, with their own, as the help lists them: under one heading, or in groups.
fn commands(place: &Place, path: &[String]) -> Vec<Vec<String>> {
    let help = help(place, path);
    let lists = help.split("\n\n").filter(|part| {
        let heading = part.lines().next().unwrap_or_default();
        heading == "Commands:" || heading.ends_with(" commands:")
    });
    let names = lists.flat_map(|list| list.lines().skip(1)).filter_map(|line| {
        let name = line.strip_prefix("  ")?.split(' ').next()?;
        (!name.is_empty() && name != "help").then(|| name.to_owned())
    });
    let mut all = vec![path.to_vec()];
    for name in names.collect::<Vec<_>>() {
        all.extend(commands(place, &[path, &[name]].concat()));
    }
    all
}

fn help(place: &Place, path: &[String]) -> String {
    let output = place.provost().args(path).arg("--help").output().expect("provost starts");
    assert_eq!(code(&output), 0, "{}", shown(&output));
    stdout(&output)
}

/// The long options that begin a line of help.
fn options_of_help(help: &str) -> BTreeSet<String> {
    let heads = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    heads.filter_map(|line| long_options(line).into_iter().next()).collect()
}

/// The long options that are printed in bold.
fn options_of_page(page: &str) -> BTreeSet<String> {
    let page = page.replace("\\-", "-");
    let heads = page.split("\\fB").skip(1).filter_map(|bold| bold.split("\\fR").next().map(str::to_owned));
    heads.flat_map(|bold| long_options(&bold)).collect()
}

fn long_options(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    words.filter(|word| word.starts_with("--") && word.len() > 2).map(str::to_owned).collect()
}

fn pages(place: &Place) -> std::path::PathBuf {
    let directory = place.path().join("man");
    std::fs::create_dir(&directory).expect("a directory can be made");
    let output = place.provost().arg("man").arg(&directory).output().expect("provost starts");
    assert_eq!(code(&output), 0, "{}", shown(&output));
    directory
}

/// Runs a program if it is there; none if it is not, which is said.
fn run_if_there(program: &str, arguments: &[&str], file: &Path) -> Option<Output> {
    let started = Command::new(program).args(arguments).arg(file).stdin(Stdio::null()).output();
    match started {
        Ok(output) => Some(output),
        Err(error) => {
            println!("SKIPPED: {program} cannot be started: {error}");
            None
        }
    }
}

#[test]
fn every_option_is_in_its_help_and_in_its_man_page() {
    let place = Place::new();
    let directory = pages(&place);
    let commands = commands(&place, &[]);
    assert!(commands.len() > 25, "{commands:?}");
    let mut options = 0;
    for path in &commands {
        let name = [&["provost".to_owned()], &path[..]].concat().join("-");
        let page = std::fs::read_to_string(directory.join(format!("{name}.1")))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let (in_help, in_page) = (options_of_help(&help(&place, path)), options_of_page(&page));
        assert!(in_help.contains("--help"), "{name}: {in_help:?}");
        assert_eq!(in_help, in_page, "{name}");
        options += in_help.len();
    }
    assert!(options > 80, "{options} options");
}

#[test]
fn man_pages_are_accepted_by_man_and_mandoc() {
    let place = Place::new();
    let directory = pages(&place);
    for entry in std::fs::read_dir(&directory).expect("the pages are there") {
        let page = entry.expect("an entry").path();
        if let Some(man) = run_if_there("man", &["--warnings", "-l"], &page) {
            assert!(man.status.success() && man.stderr.is_empty(), "{}: {}", page.display(), shown(&man));
            assert!(stdout(&man).contains("NAME"), "{}: {}", page.display(), shown(&man));
        }
        if let Some(mandoc) = run_if_there("mandoc", &["-T", "lint", "-W", "error"], &page) {
            assert!(mandoc.status.success(), "{}: {}", page.display(), shown(&mandoc));
        }
    }
    let one = place.provost().arg("man").output().expect("provost starts");
    let page = std::fs::read(directory.join("provost.1")).expect("the page is there");
    assert!(one.stdout == page, "{}", stdout(&one));
}

#[test]
fn completion_scripts_are_accepted_by_their_shells() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let output = place.provost().args(["completions", shell]).output().expect("provost starts");
        assert_eq!(code(&output), 0, "{}", shown(&output));
        for option in ["report", "workdir", "on-ask"] {
            assert!(stdout(&output).contains(option), "{shell} does not complete --{option}");
        }
        let file = place.path().join(shell);
        std::fs::write(&file, &output.stdout).expect("a file can be written");
        if let Some(checked) = run_if_there(shell, &["-n"], &file) {
            assert!(checked.status.success() && checked.stderr.is_empty(), "{}", shown(&checked));
        }
    }
}

#[test]
fn bash_completes_the_names_of_commands_and_options() {
    let place = Place::new();
    let script = place.path().join("provost.bash");
    let output = place.provost().args(["completions", "bash"]).output().expect("provost starts");
    std::fs::write(&script, &output.stdout).expect("a file can be written");
    let complete = "source \"$1\"; COMP_WORDS=(provost run --work); COMP_CWORD=2; _provost provost --work run; \
                    echo \"${COMPREPLY[@]}\"";
    let completed = Command::new("bash")
        .args(["--norc", "-c", complete, "bash"])
        .arg(&script)
        .output()
        .expect("bash starts");
    assert_eq!(stdout(&completed).trim(), "--workdir", "{}", shown(&completed));
}
