//! The table in docs/confinement.md: between two marks, and written by this program alone.

use std::{fs, path::Path};

use super::{attacks::AttackCase, sandboxes::Sandbox, trial::Verdict};

const BEGIN: &str = "<!-- begin: cargo bench --bench confinement -- --write -->";
const END: &str = "<!-- end: cargo bench --bench confinement -->";

/// The table in the making.
#[derive(Debug)]
pub(crate) struct Table<'a> {
    sandboxes: &'a [Sandbox],
    rows: Vec<(AttackCase, Verdict, Vec<Verdict>)>,
}

impl<'a> Table<'a> {
    /// An empty one.
    pub(crate) fn new(sandboxes: &'a [Sandbox]) -> Self {
        Self { sandboxes, rows: Vec::new() }
    }

    /// Adds an attack: what became of it without a sandbox, and in each.
    pub(crate) fn add(&mut self, attack: &AttackCase, unconfined: &Verdict, verdicts: Vec<Verdict>) {
        self.rows.push((*attack, unconfined.clone(), verdicts));
    }

    /// Facts, table, sum, and what each peer is.
    pub(crate) fn to_markdown(&self) -> String {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let who = if nix::unistd::geteuid().is_root() { "root" } else { "an ordinary user" };
        let mut text = format!("Linux {}, started by {who}, {} attacks.\n\n", kernel.trim(), self.rows.len());
        for sandbox in self.sandboxes {
            text += &format!("- {} ({}): {}\n", sandbox.name, sandbox.version(), sandbox.about);
        }
        text += "\n| attack | nothing |";
        for sandbox in self.sandboxes {
            text += &format!(" {} |", sandbox.name);
        }
        text += &format!("\n|---|---|{}\n", "---|".repeat(self.sandboxes.len()));
        for (attack, unconfined, verdicts) in &self.rows {
            let unconfined = match unconfined {
                Verdict::Worked => "worked".to_owned(),
                Verdict::Stopped(how) => format!("does not work here ({how})"),
                Verdict::NotApplicable => unconfined.to_string(),
            };
            text += &format!("| {} | {unconfined} |", attack.what);
            for verdict in verdicts {
                text += &format!(" {verdict} |");
            }
            text += "\n";
        }
        let worked = |verdict: &&Verdict| **verdict == Verdict::Worked;
        let all = self.rows.iter().filter(|(_, unconfined, _)| worked(&unconfined)).count();
        text += &format!("| **stopped, of {all}** | 0 |");
        for index in 0..self.sandboxes.len() {
            let got_through = self.rows.iter().map(|(.., verdicts)| &verdicts[index]).filter(worked).count();
            text += &format!(" {} |", all - got_through);
        }
        text + "\n"
    }
}

/// Puts the text between the marks.
pub(crate) fn write(text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/confinement.md");
    let page = fs::read_to_string(&path).expect("the page is there");
    let (before, rest) = page.split_once(BEGIN).expect("the page has the first mark");
    let (_, after) = rest.split_once(END).expect("the page has the second mark");
    fs::write(&path, format!("{before}{BEGIN}\n{text}{END}{after}")).expect("the page can be written");
}
