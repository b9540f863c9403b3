//! Lines in two equal directories: outside in one, through `provost run` in the other, compared one by one.

use std::{os::unix::process::ExitStatusExt, path::PathBuf, process::Output};

use crate::firsthour::person::Person;

/// One line, for a shell.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Line {
    /// Must end with the same status.
    Ends(&'static str),
    /// Must end with the same status, and print the same.
    Prints(&'static str),
}

/// The network that the user asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    /// None, as by default.
    None,
    /// The host's.
    Host,
}

/// A walk of one person in one project.
pub(crate) struct Walk<'a> {
    person: &'a Person,
    network: Network,
    probe: Option<&'a str>,
    outside: PathBuf,
    inside: PathBuf,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(person: &'a Person, name: &str, network: Network) -> Self {
        // The same name at the end, because tools take it for the project's.
        let place = |kind: &str| person.home().join("code").join(kind).join(name);
        Self { person, network, probe: None, outside: place("outside"), inside: place("inside") }
    }

    /// A line that outside says whether the tool and its registry are there.
    pub(crate) fn with_probe(mut self, probe: &'a str) -> Self {
        self.probe = Some(probe);
        self
    }

    /// Takes the walk.
    pub(crate) fn take(&self, lines: &[Line]) {
        for directory in [&self.outside, &self.inside] {
            self.person.make(directory);
        }
        if !self.can_be_taken() {
            return;
        }
        let failures: Vec<String> = lines.iter().filter_map(|line| self.step(*line)).collect();
        assert!(failures.is_empty(), "{} of {} lines:\n{}", failures.len(), lines.len(), failures.join("\n"));
    }

    fn can_be_taken(&self) -> bool {
        let Some(probe) = self.probe else { return true };
        let place = self.person.home().join("probe");
        self.person.make(&place);
        let probed = self.person.outside(probe, &place);
        if probed.status.success() {
            return true;
        }
        println!("SKIPPED: outside, the tool or its registry does not work: {}", shown(&probed));
        assert!(std::env::var("CI").is_err(), "CI must have the tool and its registry");
        false
    }

    /// What differs between the two runs of a line.
    fn step(&self, line: Line) -> Option<String> {
        let (Line::Ends(text) | Line::Prints(text)) = line;
        let outside = self.person.outside(text, &self.outside);
        let inside = self.inside(text);
        let prints = matches!(line, Line::Prints(_));
        let is_same = code(&outside) == code(&inside) && (!prints || outside.stdout == inside.stdout);
        (!is_same)
            .then(|| format!("$ {text}\n-- outside: {}\n-- inside: {}", shown(&outside), shown(&inside)))
    }

    fn inside(&self, line: &str) -> Output {
        let mut command = self.person.command(self.person.provost(), &self.inside);
        command.arg("run");
        if self.network == Network::Host {
            command.arg("--policies").arg(self.person.policies_with_hosts_network());
            command.args(["--network", "host"]);
        }
        command.args(["sh", "-c", line]).output().expect("provost starts")
    }
}

/// The exit status as a shell has it.
fn code(output: &Output) -> Option<i32> {
    output.status.code().or_else(|| output.status.signal().map(|signal| 128 + signal))
}

pub(crate) fn shown(output: &Output) -> String {
    let text =
        |bytes: &[u8]| String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(1500)..]).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}
