//! Expands records for display: a command that is stored in one record is shown in each record that refers to it.
//!
//! The command is looked up among the records shown before, then in the files. When its record is deleted, the number of
//! that record is shown instead. Verifies nothing.

use std::{collections::VecDeque, io};

use serde_json::Value;

use crate::format::{
    directory::JournalDirectory,
    line::{JournalLine, LineReader},
    record::{CommandLocation, Record},
};

/// Commands that are remembered: the records that mean one mostly follow it.
const MAX_CACHED_COMMANDS: usize = 64;

/// Shows records, in the order in which they come.
#[derive(Debug, Default)]
pub struct CommandExpander {
    directory: Option<JournalDirectory>,
    recent: VecDeque<(u64, Vec<String>)>,
}

enum CommandLookup {
    Command(Vec<String>),
    Deleted,
    NotFound,
}

impl CommandExpander {
    /// An expander that looks into a journal's files. Without them ([`Default`]) only commands that were shown before are found.
    pub fn from_directory(directory: &JournalDirectory) -> Self {
        Self { directory: Some(directory.clone()), recent: VecDeque::new() }
    }

    /// A line as it was written, with its texts whole. What is not of this journal's form stays as it is.
    pub fn expand(&mut self, line: &mut Value) {
        let Some(sequence) = line["seq"].as_u64() else { return };
        let Ok(record) = serde_json::from_value::<Record>(line["record"].clone()) else { return };
        let (command, command_in) = match &record {
            Record::Decision(it) => (&it.command, it.command_in),
            Record::Spawn(it) => (&it.command, it.command_in),
            _ => return,
        };
        let shown = &mut line["record"];
        if let Record::Decision(it) = &record {
            if !it.reason.is_empty() {
                shown["reason"] = it.reason.clone().into();
            }
            if !it.judged.commands.is_empty() {
                shown["judged"]["commands"] = it.judged.commands.clone().into();
            }
        }
        match command_in {
            Some(command_in) => shown["command"] = self.expanded_argv(&command.argv, command_in, sequence),
            None => self.cache(sequence, &command.argv),
        }
    }

    fn expanded_argv(&self, first: &[String], command_in: CommandLocation, of_this: u64) -> Value {
        let sequence = command_in.sequence(of_this);
        match self.look_up(sequence) {
            CommandLookup::Command(argv) => {
                let whole = [first, &argv[..]].concat();
                serde_json::json!({ "argv": whole })
            }
            CommandLookup::Deleted => format!("(in record {sequence}, which is deleted)").into(),
            CommandLookup::NotFound => format!("(in record {sequence})").into(),
        }
    }

    fn look_up(&self, sequence: u64) -> CommandLookup {
        if let Some((_, argv)) = self.recent.iter().find(|(number, _)| *number == sequence) {
            return CommandLookup::Command(argv.clone());
        }
        match &self.directory {
            Some(directory) => look_up_in_files(directory, sequence).unwrap_or(CommandLookup::NotFound),
            None => CommandLookup::NotFound,
        }
    }

    fn cache(&mut self, sequence: u64, argv: &[String]) {
        if self.recent.len() >= MAX_CACHED_COMMANDS {
            self.recent.pop_front();
        }
        self.recent.push_back((sequence, argv.to_vec()));
    }
}

fn look_up_in_files(directory: &JournalDirectory, sequence: u64) -> io::Result<CommandLookup> {
    let files = directory.files()?;
    let Some(file) = files.iter().rev().find(|file| file.first_sequence <= sequence) else {
        return Ok(CommandLookup::Deleted);
    };
    let mut lines = LineReader::new(directory.open(file)?);
    let number = format!("\"seq\":{sequence},");
    while let Some(raw) = lines.next()? {
        // At its place, so that the others need not be parsed.
        if !raw.bytes.get(..64).unwrap_or(raw.bytes).windows(number.len()).any(|at| at == number.as_bytes()) {
            continue;
        }
        return Ok(match JournalLine::parse(raw.bytes).map(|line| line.record) {
            Ok(Record::Decision(it)) => CommandLookup::Command(it.command.argv),
            Ok(_) | Err(_) => CommandLookup::NotFound,
        });
    }
    Ok(CommandLookup::NotFound)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{Journal, JournalOptions};

    const DECISION: &str = r#"{"kind":"decision","principal":"uid:0","session":"s","terminal":"t","decision":"allow","generation":1,"command":{"argv":["git status --short"]},"judged":{"commands":["git status --short"]},"cwd":"/"}"#;
    const SPAWN: &str = r#"{"kind":"spawn","terminal":"t","session":"s","principal":"uid:0","sandbox":"b","profile":"p","request_digest":"d","generation":1,"command":{"argv":["sh","-c"]},"command_in":1}"#;

    #[test]
    fn a_command_is_expanded_from_any_file_and_a_deleted_one_is_marked() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("journal");
        let record = |text: &str| serde_json::from_str::<Record>(text).unwrap();
        let journal = Journal::open(JournalOptions::new(&path)).unwrap();
        let decision = journal.append(&record(DECISION)).unwrap();
        let spawn = SPAWN.replace("\"command_in\":1", &format!("\"command_in\":{decision}"));
        journal.append(&record(&spawn)).unwrap();
        let near = SPAWN.replace("\"command_in\":1", "\"command_in\":\"before\"");
        journal.close();
        let directory = JournalDirectory::new(&path);
        let file = directory.files().unwrap().remove(0);
        let text = fs::read_to_string(path.join(&file.name)).unwrap();
        assert_eq!(text.matches("git status").count(), 1, "{text}");
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |kind: &str| lines.iter().find(|line| line["record"]["kind"] == kind).unwrap().clone();

        let mut in_turn = CommandExpander::default();
        let mut shown = of("decision");
        in_turn.expand(&mut shown);
        assert_eq!(shown["record"]["judged"]["commands"][0], "git status --short");
        let mut shown = of("spawn");
        in_turn.expand(&mut shown);
        let whole = serde_json::json!(["sh", "-c", "git status --short"]);
        assert_eq!(shown["record"]["command"]["argv"], whole);
        let mut next = serde_json::json!({ "seq": decision + 1, "record": record(&near) });
        in_turn.expand(&mut next);
        assert_eq!(next["record"]["command"]["argv"], whole);

        let mut shown = of("spawn");
        CommandExpander::from_directory(&directory).expand(&mut shown);
        assert_eq!(shown["record"]["command"]["argv"], whole);
        let mut shown = of("spawn");
        CommandExpander::default().expand(&mut shown);
        assert_eq!(shown["record"]["command"], format!("(in record {decision})"));
        fs::rename(path.join(&file.name), path.join("journal-00000000000000000090.jsonl")).unwrap();
        let mut shown = of("spawn");
        CommandExpander::from_directory(&directory).expand(&mut shown);
        assert_eq!(shown["record"]["command"], format!("(in record {decision}, which is deleted)"));
    }
}
