//! Writes docs/internals/performance.md: runs the other benchmarks one after the other and puts what they print into the page.
//!
//! The page is what this program prints and nothing else, so that all its figures are of one state of the code, of one host and of
//! one day. `cargo bench --bench performance -- [--only NAME] [--write]`; with `--only` nothing is written. Use an otherwise idle host.

mod page;

use std::process::{Command, ExitCode, Stdio};

use page::{Page, Section};

/// A benchmark, and what it is asked for: as few rounds as keep its medians within some percent from run to run.
const BENCHMARKS: [(&str, &[&str]); 12] = [
    ("start", &[]),
    ("spawn", &["--rounds", "400", "--cold-rounds", "50"]),
    ("wrapper", &["--rounds", "100"]),
    ("gate", &["--rounds", "6"]),
    ("output", &["--rounds", "5"]),
    ("pty", &["--rounds", "5"]),
    ("screen", &[]),
    ("network", &["--rounds", "4"]),
    ("policy", &[]),
    ("journal", &[]),
    ("acp", &[]),
    ("restart", &["--rounds", "5"]),
];

fn main() -> ExitCode {
    if !std::env::args().any(|argument| argument == "--bench") {
        println!("SKIPPED: a benchmark, run by `cargo bench`");
        return ExitCode::SUCCESS;
    }
    let only = std::env::args().skip_while(|argument| argument != "--only").nth(1);
    let mut page = Page::new();
    for (name, options) in BENCHMARKS {
        if only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        eprintln!("{name}");
        let Some(printed) = run(name, options) else {
            eprintln!("{name} failed: nothing is written");
            return ExitCode::FAILURE;
        };
        page.add(Section { name, options, printed });
    }
    let text = page.to_markdown();
    match only.is_none() && std::env::args().any(|argument| argument == "--write") {
        true => page::write(&text),
        false => println!("{text}"),
    }
    ExitCode::SUCCESS
}

/// What it prints, if it succeeds. Cargo builds it first, as it would for a person.
fn run(name: &str, options: &[&str]) -> Option<String> {
    let mut cargo = Command::new(env!("CARGO"));
    // What this program's own cargo says of it would have crates built again whose build scripts ask for it.
    for variable in std::env::vars_os().map(|(variable, _)| variable) {
        let text = variable.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&variable);
        }
    }
    let output = cargo
        .args(["bench", "--quiet", "--bench", name, "--"])
        .args(options)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
