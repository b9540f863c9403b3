//! Commands that print numbered lines, and the check that each line is there exactly once.

use std::{fs, path::Path};

use crate::support::{Collected, Command, Follow, Session, Terminal, api::OutputStream};

/// How a command that prints lines ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Until {
    /// After so many lines.
    Lines(u32),
    /// When [`stop`] is called for its workspace.
    Stopped,
}

/// A command that prints lines with this name, and ends with this code.
pub(crate) fn printing(session: &Session, name: &str, until: Until, code: u32) -> Command {
    let count = match until {
        Until::Lines(count) => count,
        Until::Stopped => 0,
    };
    session.attack("lines").args([name.to_owned(), count.to_string(), "100".into(), code.to_string()])
}

/// Ends the commands that print until they are stopped.
pub(crate) fn stop(workspace: &Path) {
    fs::write(workspace.join("stop"), "").expect("the workspace is ours");
}

/// How often a command of this name was started.
pub(crate) fn starts(workspace: &Path, name: &str) -> usize {
    let text = fs::read_to_string(workspace.join("starts")).unwrap_or_default();
    text.lines().filter(|line| *line == name).count()
}

/// All lines of an ended command, read to the end; fails unless each is there once and in order.
pub(crate) async fn must_be_whole(terminal: &Terminal, name: &str) {
    let all = Collected::all(terminal.stream(OutputStream::Unspecified, 0, Follow::Yes).await, 0).await;
    assert_eq!(all.lost(), 0, "{name}: {:?}", all.gaps);
    must_be_lines(&String::from_utf8(all.data).expect("the lines are text"), name);
}

/// Fails unless a text is the whole output of a command of this name.
pub(crate) fn must_be_lines(text: &str, name: &str) {
    let lines: Vec<&str> = text.lines().collect();
    let (last, numbered) = lines.split_last().expect("there are lines");
    for (number, line) in numbered.iter().enumerate() {
        assert_eq!(*line, format!("{name} {number}"));
    }
    assert_eq!(*last, format!("{name} end {}", numbered.len()));
}
