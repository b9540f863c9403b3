//! What a result says of a command: how it ended, what of it was denied and what to do instead, and its output. The text
//! is for models; `_meta` has the same for programs.

use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde_json::{Value, json};

use super::{
    errors::{META, ToolError},
    output::Shown,
};
use crate::{
    client::{
        advice_when_denied, denial_json, denial_lines, ended_json, ended_line, hint_json, unreachable_json,
        workspace_lines,
    },
    printable,
    proto::v1::{self, ExitCause, outcome::End},
};

/// The longest command in a list, in bytes.
const LISTED_COMMAND_BYTES: usize = 200;

/// The result for a command. `failure`: why it has not got all of its input.
pub(super) fn of_command(
    terminal: &v1::Terminal,
    shown: &Shown,
    is_kept: bool,
    failure: Option<&ToolError>,
) -> CallToolResult {
    let mut text = state_line(terminal);
    text.push('\n');
    if let Some(failure) = failure {
        text.push_str(&failure.message);
        text.push('\n');
    }
    if let Some(outcome) = &terminal.outcome {
        for line in denial_lines(outcome) {
            text.push_str(&line);
            text.push('\n');
        }
        if let Some(line) = ended_line(outcome, "`start_command` starts one that goes on") {
            text.push_str(&line);
            text.push('\n');
        }
        if !outcome.exec_denials.is_empty() {
            text.push_str(&format!("Some of it did not run. Advice: {}.\n", advice_when_denied("")));
        }
        for line in workspace_lines(outcome) {
            text.push_str(&line);
            text.push('\n');
        }
    }
    if is_kept {
        text.push_str(&format!("id: {}\n", terminal.id));
    }
    if terminal.output_lost {
        text.push_str("The output is lost: the sandbox ended while no gateway ran.\n");
    } else if shown.written == 0 {
        text.push_str("There is no output.\n");
    } else {
        text.push_str(&format!("output ({} bytes):\n{}", shown.written, shown.text));
    }
    let mut details = details(terminal);
    details["output_bytes"] = shown.written.into();
    details["output_cut"] = shown.is_cut.into();
    if let Some(failure) = failure {
        details["error"] = failure.details_with_reason().into();
    }
    let mut result = with_meta(text, details);
    result.is_error = Some(failure.is_some());
    result
}

/// The result for a list.
pub(super) fn of_list(terminals: &[v1::Terminal]) -> CallToolResult {
    if terminals.is_empty() {
        return with_meta("There are no commands.".to_owned(), json!({ "commands": [] }));
    }
    let line = |terminal: &v1::Terminal| {
        // Without arguments it is a line for the shell, which is shown as it is.
        let command = match terminal.args.is_empty() {
            true => terminal.command.clone(),
            false => printable::command(std::iter::once(&terminal.command).chain(&terminal.args)),
        };
        let command = printable::bounded_line(&command, LISTED_COMMAND_BYTES).into_owned();
        format!("{}: {}: {command}", terminal.id, state_line(terminal))
    };
    let text = terminals.iter().map(line).collect::<Vec<_>>().join("\n");
    with_meta(text, json!({ "commands": terminals.iter().map(details).collect::<Vec<_>>() }))
}

/// A result of one sentence.
pub(super) fn of_text(text: String, details: Value) -> CallToolResult {
    with_meta(text, details)
}

/// How a command is, or how it ended, in one line.
pub(super) fn state_line(terminal: &v1::Terminal) -> String {
    let Some(outcome) = &terminal.outcome else { return "still running".to_owned() };
    let end = match &outcome.end {
        Some(End::ExitCode(code)) => format!("exit code {code}"),
        Some(End::Signal(name)) => format!("ended by {name}"),
        None => "its end is unknown".to_owned(),
    };
    match why(outcome.cause()) {
        Some(why) => format!("{why}; {end}"),
        None => end,
    }
}

/// Why a command ended, if not by itself.
fn why(cause: ExitCause) -> Option<&'static str> {
    match cause {
        ExitCause::Exited | ExitCause::Signalled | ExitCause::Unspecified => None,
        ExitCause::Killed => Some("stopped on request"),
        ExitCause::TimeLimit => Some("stopped: its time limit was reached"),
        ExitCause::IdleLimit => Some("stopped: it wrote nothing for too long"),
        ExitCause::MemoryLimit => Some("killed: it needed more memory than it may have"),
        ExitCause::SandboxLost => Some("lost: its sandbox has ended with all that ran in it"),
        ExitCause::Shutdown => Some("stopped: its session or the gateway ended"),
    }
}

fn details(terminal: &v1::Terminal) -> Value {
    let mut details = json!({
        "id": terminal.id,
        "state": if terminal.outcome.is_some() { "finished" } else { "running" },
    });
    let Some(outcome) = &terminal.outcome else { return details };
    match &outcome.end {
        Some(End::ExitCode(code)) => details["exit_code"] = (*code).into(),
        Some(End::Signal(name)) => details["signal"] = name.as_str().into(),
        None => {}
    }
    let cause = outcome.cause().as_str_name().trim_start_matches("EXIT_CAUSE_").to_ascii_lowercase();
    details["cause"] = cause.into();
    if !outcome.exec_denials.is_empty() {
        details["exec_denials"] = outcome.exec_denials.iter().map(denial_json).collect();
        details["exec_denials_omitted"] = outcome.exec_denials_omitted.into();
    }
    if let Some(ended) = ended_json(outcome) {
        details["ended"] = ended;
    }
    if !outcome.protection_hints.is_empty() {
        details["protection_hints"] = outcome.protection_hints.iter().map(hint_json).collect();
    }
    if let Some(unreachable) = &outcome.unreachable {
        details["unreachable"] = unreachable_json(unreachable);
    }
    details
}

fn with_meta(text: String, details: Value) -> CallToolResult {
    let mut meta = MetaObject::new();
    meta.insert(META.to_owned(), details);
    CallToolResult::success(vec![ContentBlock::text(text)]).with_meta(Some(meta))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(cause: ExitCause, end: Option<End>) -> v1::Terminal {
        let outcome = v1::Outcome { cause: cause.into(), end, ..Default::default() };
        v1::Terminal { id: "term_1".to_owned(), outcome: Some(outcome), ..Default::default() }
    }

    fn text(result: &CallToolResult) -> String {
        serde_json::to_value(&result.content[0]).unwrap()["text"].as_str().unwrap().to_owned()
    }

    #[test]
    fn an_end_that_is_not_the_commands_own_is_said_first() {
        let terminal = ended(ExitCause::TimeLimit, Some(End::ExitCode(0)));
        assert_eq!(state_line(&terminal), "stopped: its time limit was reached; exit code 0");
        assert_eq!(state_line(&ended(ExitCause::Exited, Some(End::ExitCode(3)))), "exit code 3");
        assert_eq!(state_line(&v1::Terminal::default()), "still running");
    }

    #[test]
    fn a_denied_exec_is_told_although_the_line_ended_well() {
        let mut terminal = ended(ExitCause::Exited, Some(End::ExitCode(0)));
        terminal.outcome.as_mut().unwrap().exec_denials = vec![v1::ExecDenial {
            program: "/usr/bin/git".into(),
            args: vec!["push".into()],
            rule: "no-push".into(),
            reason: "pushing is for people".into(),
            ..Default::default()
        }];
        let result = of_command(&terminal, &Shown::default(), false, None);
        let text = text(&result);
        assert!(
            text.starts_with(
                "exit code 0\ndenied: /usr/bin/git push: pushing is for people (rule \"no-push\")\n"
            ),
            "{text}"
        );
        assert!(text.contains("ask the user to change the policy"), "{text}");
        assert_eq!(result.meta.unwrap()[META]["exec_denials"][0]["rule"], "no-push");
    }

    #[test]
    fn input_that_was_not_written_is_an_error_although_the_command_ended_well() {
        let terminal = ended(ExitCause::Killed, Some(End::Signal("SIGTERM".to_owned())));
        let failure = ToolError::input_not_written(1, 3, &tonic::Status::internal("it broke"));
        let result = of_command(&terminal, &Shown::default(), false, Some(&failure));
        let said = "stopped on request; ended by SIGTERM\nThe standard input could not be written: it broke. 1 of 3 bytes";
        assert!(text(&result).starts_with(said), "{}", text(&result));
        assert_eq!(result.is_error, Some(true));
        assert_eq!(result.meta.unwrap()[META]["error"]["reason"], "INTERNAL");
    }
}
