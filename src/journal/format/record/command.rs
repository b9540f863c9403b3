//! Texts from a caller, cut to what a record holds.
//!
//! Their length is bounded here; the code that makes a record redacts secret values first.

use serde::{Deserialize, Serialize};

use crate::byte_text;

/// The most bytes of a command that a record holds; the request's digest covers all of it.
pub const MAX_COMMAND_BYTES: usize = 32 * 1024;

/// A command, as far as it fits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedCommand {
    /// Program and arguments. Bytes that are no UTF-8 are `\\xNN`; the last one may be cut.
    pub argv: Vec<String>,
    /// Bytes that were left out, and one for each argument of which nothing is left.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut_bytes: u64,
}

/// Where the text of a command stands that is written once, and meant by several records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CommandLocation {
    /// In the record before this one.
    Preceding(PrecedingRecord),
    /// In the record of this number.
    Record(u64),
}

/// As `"before"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrecedingRecord {
    /// The only word.
    Before,
}

impl CommandLocation {
    /// In the record before this one.
    pub const PRECEDING: Self = Self::Preceding(PrecedingRecord::Before);

    /// The number of the record, where this one's is known.
    pub fn sequence(self, of_this: u64) -> u64 {
        match self {
            Self::Preceding(PrecedingRecord::Before) => of_this.saturating_sub(1),
            Self::Record(sequence) => sequence,
        }
    }
}

impl RecordedCommand {
    /// Whether there is none here.
    pub fn is_empty(&self) -> bool {
        self.argv.is_empty() && self.cut_bytes == 0
    }

    /// Keeps the first [`MAX_COMMAND_BYTES`] of the arguments.
    pub fn new(argv: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        let (argv, cut_bytes) = truncate_all(argv);
        Self { argv, cut_bytes }
    }
}

/// The commands that a request would run, as far as they could be seen and fit: each in its normal form.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgedCommands {
    /// One text for each, in the order in which they stand.
    pub commands: Vec<String>,
    /// Bytes that were left out, and one for each command of which nothing is left.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut_bytes: u64,
}

impl JudgedCommands {
    /// Keeps the first [`MAX_COMMAND_BYTES`] of the commands.
    pub fn new(commands: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        let (commands, cut_bytes) = truncate_all(commands);
        Self { commands, cut_bytes }
    }

    /// Whether nothing was judged: the request was refused before.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.cut_bytes == 0
    }
}

/// The first [`MAX_COMMAND_BYTES`] of the texts, and how many bytes that leaves out.
fn truncate_all(texts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> (Vec<String>, u64) {
    let (mut all, mut cut_bytes) = (Vec::new(), 0);
    let mut room = MAX_COMMAND_BYTES;
    for text in texts {
        let text = text.as_ref();
        let mut kept = text.len().min(room);
        // Not in the middle of a character: continuation bytes begin with 0b10.
        while kept > 0 && kept < text.len() && text[kept] & 0xC0 == 0x80 {
            kept -= 1;
        }
        cut_bytes += (text.len() - kept) as u64;
        if kept > 0 || text.is_empty() && room > 0 {
            all.push(byte_text::shown(&byte_text::from_bytes(&text[..kept])).into_owned());
        } else {
            cut_bytes += 1;
        }
        // A text costs something even when it is empty.
        room = if kept < text.len() { 0 } else { room.saturating_sub(kept + 1) };
    }
    (all, cut_bytes)
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_bounded_and_says_what_it_left_out() {
        let whole = RecordedCommand::new(["git", "", "status"]);
        assert_eq!((whole.argv.join("|").as_str(), whole.cut_bytes), ("git||status", 0));
        let long = "é".repeat(MAX_COMMAND_BYTES);
        let cut = RecordedCommand::new(["echo", &long, "more"]);
        assert_eq!(cut.argv.len(), 2);
        assert!(cut.argv[1].split("é").all(str::is_empty));
        let kept: usize = cut.argv.iter().map(String::len).sum();
        assert_eq!(kept as u64 + cut.cut_bytes, (4 + long.len() + 5) as u64);
        assert!(RecordedCommand::new(vec![""; 1_000_000]).argv.len() <= MAX_COMMAND_BYTES);
    }
}
