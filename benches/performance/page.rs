//! The page docs/internals/performance.md: what a reader has to know, the facts of the host, the aims, and each benchmark's tables.

use std::{fs, path::Path};

/// A line that begins with this says whether an aim is met: `statistics::print_aim` prints it.
const AIM: &str = "Aim: ";

const HEAD: &str = "# Performance

Written by `cargo bench --bench performance -- --write` and by nothing else: change the benchmarks, not this page. All figures are of one
run on one host. Ratios count more than times: all candidates of a table took turns, so that other load moved them alike. A benchmark
starts the release build's programs and talks to them as any caller does. Decision 0060 says why they measure in this way.

Use an otherwise idle host: a command passes through three processes, and each hand-over waits for a free processor. Attacks of one user on
another one's commands are not in this page: `cargo bench --bench flood`. What stops which attack, beside other sandboxes, is in
[confinement.md](../confinement.md), which `cargo bench --bench confinement -- --write` writes. Each section below names its own benchmark:
`start`, `spawn`, `wrapper`, `gate`, `output`, `pty`, `screen`, `network`, `policy`, `journal`, `acp`, `restart`.

A release has no debug information; backtraces keep the names of functions, and panics their file and line. For a profiler, build with
`CARGO_PROFILE_RELEASE_DEBUG=line-tables-only CARGO_PROFILE_RELEASE_STRIP=none`.
";

/// What one benchmark printed.
#[derive(Debug)]
pub(crate) struct Section {
    pub name: &'static str,
    pub options: &'static [&'static str],
    pub printed: String,
}

/// The page in the making.
#[derive(Debug, Default)]
pub(crate) struct Page {
    sections: Vec<Section>,
}

impl Page {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn add(&mut self, section: Section) {
        self.sections.push(section);
    }

    /// The facts of the first benchmark stand for all; each keeps the load that it found.
    pub(crate) fn to_markdown(&self) -> String {
        let mut text = HEAD.to_owned();
        if let Some(first) = self.sections.first() {
            text += "\n## The host\n\n";
            for fact in facts(&first.printed).filter(|fact| !is_load(fact)) {
                text += &format!("{fact}\n");
            }
        }
        text += "\n## Aims\n\n| aim | result | |\n|---|---|---|\n";
        for aim in self.sections.iter().flat_map(|section| section.printed.lines()) {
            if let Some(row) = aim.strip_prefix(AIM) {
                text += &format!("| {row} |\n");
            }
        }
        for section in &self.sections {
            text += &section.to_markdown();
        }
        text
    }
}

impl Section {
    fn to_markdown(&self) -> String {
        let mut lines = self.printed.lines().filter(|line| !line.starts_with(AIM) && !line.starts_with("- "));
        let title = lines.find_map(|line| line.strip_prefix("## ")).unwrap_or(self.name);
        let mut text = format!("\n## {title}\n\n`cargo bench --bench {}", self.name);
        if !self.options.is_empty() {
            text += &format!(" -- {}", self.options.join(" "));
        }
        text += "`";
        if let Some(load) = facts(&self.printed).find(|fact| is_load(fact)) {
            text += &format!(", {}", load.trim_start_matches("- "));
        }
        text += "\n\n";
        // No two empty lines in a row, and none at the end.
        let mut was_empty = true;
        for line in lines {
            if !(was_empty && line.is_empty()) {
                text += &format!("{line}\n");
            }
            was_empty = line.is_empty();
        }
        text.truncate(text.trim_end().len());
        text + "\n"
    }
}

fn facts(printed: &str) -> impl Iterator<Item = &str> {
    printed.lines().filter(|line| line.starts_with("- "))
}

fn is_load(fact: &str) -> bool {
    fact.starts_with("- load")
}

/// Replaces the page.
pub(crate) fn write(text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/internals/performance.md");
    fs::write(path, text).expect("the page can be written");
}
