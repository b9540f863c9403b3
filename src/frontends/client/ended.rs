//! What ended with a command because the command had left it running, in words for people and agents.

use serde_json::{Value, json};

use crate::proto::v1::Outcome;

/// `ended with the command: 2 processes that it had left running (python3, sleep); INSTEAD`: with what to use instead. `None` if the
/// command left nothing running.
pub fn ended_line(outcome: &Outcome, instead: &str) -> Option<String> {
    let count = outcome.ended_processes;
    let processes = match count {
        0 => return None,
        1 => "1 process that it had left running".to_owned(),
        more => format!("{more} processes that it had left running"),
    };
    // The gateway has bounded the names and written out what is not printable.
    let names = match outcome.ended_commands.as_slice() {
        [] => String::new(),
        names => format!(" ({})", names.join(", ")),
    };
    Some(format!("ended with the command: {processes}{names}; {instead}"))
}

/// The same for programs.
pub fn ended_json(outcome: &Outcome) -> Option<Value> {
    let count = outcome.ended_processes;
    (count > 0).then(|| json!({ "processes": count, "commands": outcome.ended_commands }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_is_counted_and_named() {
        let outcome = |ended_processes, names: &[&str]| Outcome {
            ended_processes,
            ended_commands: names.iter().map(|&name| name.to_owned()).collect(),
            ..Outcome::default()
        };
        assert_eq!(ended_line(&outcome(0, &[]), "x"), None);
        assert_eq!(
            ended_line(&outcome(3, &["python3", "sleep"]), "use y").as_deref(),
            Some("ended with the command: 3 processes that it had left running (python3, sleep); use y")
        );
        assert_eq!(
            ended_line(&outcome(1, &[]), "use y").as_deref(),
            Some("ended with the command: 1 process that it had left running; use y")
        );
    }
}
