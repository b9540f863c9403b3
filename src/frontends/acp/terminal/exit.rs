//! A gateway's outcome in the protocol's words.
//!
//! Several agents read an absent exit code as success, so there is always one: after a signal it is 128 plus its
//! number, together with the signal's name. Why the command ended is in `_meta`, where it does not get in the way.

use agent_client_protocol_schema::v1::TerminalExitStatus;
use serde_json::{Value, json};

use crate::{
    client::{cause_word, denial_json, ended_json, hint_json, unreachable_json},
    proto::v1::{ExitCause, LineEnd, Outcome, WorkspaceChange, outcome::End},
    signal,
};

/// The exit status that stands for an outcome.
pub fn status_of(outcome: &Outcome) -> TerminalExitStatus {
    let (code, signal) = match (&outcome.end, forced_signal(outcome.cause())) {
        (Some(End::Signal(name)), _) => (128 + signal_number(name), Some(name.clone())),
        // It was told to end, and ended as if by itself: a client that reads only the code must not see success.
        (Some(End::ExitCode(0)), Some(name)) => (128 + signal_number(name), Some(name.to_owned())),
        (Some(End::ExitCode(code)), Some(name)) => (*code, Some(name.to_owned())),
        (Some(End::ExitCode(code)), None) => (*code, None),
        // PID 1 of the sandbox died, and the kernel killed everything in it: pid_namespaces(7).
        (None, _) => (128 + signal_number("SIGKILL"), Some("SIGKILL".to_owned())),
    };
    TerminalExitStatus::new().exit_code(code).signal(signal).meta(meta(outcome))
}

/// The exit status that stands for the end of a line in a kept shell. Without a code it is not known.
pub(super) fn status_of_line(end: &LineEnd) -> TerminalExitStatus {
    let mut status = match &end.outcome {
        Some(outcome) => status_of(outcome),
        None => TerminalExitStatus::new().exit_code(end.exit_status),
    };
    let ending = word_of(end.ending().as_str_name(), "LINE_ENDING_");
    let doubts: Vec<String> = end.doubts().map(|doubt| word_of(doubt.as_str_name(), "LINE_DOUBT_")).collect();
    let line = json!({ "ending": ending, "doubts": doubts, "cwd": end.cwd });
    let mut meta = status.meta.take().unwrap_or_default();
    let provost = meta.entry("provost").or_insert_with(|| json!({}));
    if let Value::Object(provost) = provost {
        provost.insert("line".to_owned(), line);
    }
    status.meta(meta)
}

fn word_of(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_lowercase()
}

/// The signal that a cause other than the command's own end began with.
fn forced_signal(cause: ExitCause) -> Option<&'static str> {
    match cause {
        ExitCause::TimeLimit | ExitCause::IdleLimit | ExitCause::Shutdown => Some("SIGTERM"),
        ExitCause::MemoryLimit | ExitCause::SandboxLost => Some("SIGKILL"),
        ExitCause::Unspecified | ExitCause::Exited | ExitCause::Signalled | ExitCause::Killed => None,
    }
}

/// What `_meta.provost` says: the cause, and the true end where the protocol's fields cannot.
fn meta(outcome: &Outcome) -> serde_json::Map<String, serde_json::Value> {
    let end = match &outcome.end {
        Some(End::ExitCode(code)) => json!({ "exitCode": code }),
        Some(End::Signal(name)) => json!({ "signal": name }),
        None => json!(null),
    };
    let mut details = json!({ "cause": cause_word(outcome.cause()), "end": end });
    if !outcome.workspace_changes.is_empty() {
        let change = |change: &WorkspaceChange| json!({ "path": change.path, "what": change.description, "action": change.action().as_str_name() });
        details["workspaceChanges"] = outcome.workspace_changes.iter().map(change).collect();
    }
    if !outcome.exec_denials.is_empty() {
        details["execDenials"] = outcome.exec_denials.iter().map(denial_json).collect();
        details["execDenialsOmitted"] = outcome.exec_denials_omitted.into();
    }
    if let Some(ended) = ended_json(outcome) {
        details["ended"] = ended;
    }
    if !outcome.protection_hints.is_empty() {
        details["protectionHints"] = outcome.protection_hints.iter().map(hint_json).collect();
    }
    if let Some(unreachable) = &outcome.unreachable {
        details["unreachable"] = unreachable_json(unreachable);
    }
    serde_json::Map::from_iter([("provost".to_owned(), details)])
}

/// The number of a signal; 0 for a name that is none.
fn signal_number(name: &str) -> u32 {
    signal::number(name).and_then(|number| u32::try_from(number).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(cause: ExitCause, end: Option<End>) -> (Option<u32>, Option<String>) {
        let status = status_of(&Outcome { cause: cause.into(), end, ..Default::default() });
        (status.exit_code, status.signal)
    }

    fn signal(name: &str) -> Option<End> {
        Some(End::Signal(name.to_owned()))
    }

    #[test]
    fn a_code_stays_what_it_is() {
        for code in [0, 1, 137, 255] {
            assert_eq!(status(ExitCause::Exited, Some(End::ExitCode(code))), (Some(code), None));
        }
    }

    #[test]
    fn a_signal_comes_with_its_name_and_128_and_its_number() {
        assert_eq!(status(ExitCause::Signalled, signal("SIGKILL")), (Some(137), Some("SIGKILL".into())));
        assert_eq!(status(ExitCause::Killed, signal("SIGTERM")), (Some(143), Some("SIGTERM".into())));
        assert_eq!(
            status(ExitCause::Signalled, signal("SIGRTMIN+3")),
            (Some(165), Some("SIGRTMIN+3".into()))
        );
    }

    #[test]
    fn no_limit_reads_as_success() {
        for cause in [ExitCause::TimeLimit, ExitCause::IdleLimit, ExitCause::MemoryLimit, ExitCause::Shutdown]
        {
            let (code, signal) = status(cause, Some(End::ExitCode(0)));
            assert!(code.is_some_and(|code| code > 128) && signal.is_some(), "{cause:?}");
        }
        assert_eq!(status(ExitCause::TimeLimit, Some(End::ExitCode(3))), (Some(3), Some("SIGTERM".into())));
        for cause in [ExitCause::SandboxLost, ExitCause::TimeLimit, ExitCause::Killed] {
            assert_eq!(status(cause, None), (Some(137), Some("SIGKILL".into())), "{cause:?}");
        }
    }
}
