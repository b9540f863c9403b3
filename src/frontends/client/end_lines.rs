//! What is to be known of a command's end in addition to its output and its status, in lines for people and agents: what of it was refused, what
//! was seen in its workspace, why it ended, and what ended with it. Every front end that gives text gives these.

use super::{denial::denial_lines, ended::ended_line};
use crate::{
    printable,
    proto::v1::{ExitCause, Outcome, WorkspaceAction, WorkspaceChange},
};

/// The most changes of the workspace that are told one by one.
const WORKSPACE_LINES_MAX: usize = 16;

/// All of them. `instead`: what to use for a process that is to go on.
pub fn end_lines(outcome: &Outcome, instead: &str) -> Vec<String> {
    let refused = denial_lines(outcome).chain(workspace_lines(outcome));
    refused.chain(unusual_end(outcome).map(str::to_owned)).chain(ended_line(outcome, instead)).collect()
}

/// What was seen in the workspace while the command ran.
pub fn workspace_lines(outcome: &Outcome) -> Vec<String> {
    let mut lines: Vec<String> =
        outcome.workspace_changes.iter().take(WORKSPACE_LINES_MAX).map(change_line).collect();
    let shown = u64::try_from(lines.len()).unwrap_or(u64::MAX);
    let all = u64::try_from(outcome.workspace_changes.len()).unwrap_or(u64::MAX);
    let left = (all - shown).saturating_add(outcome.workspace_changes_omitted);
    if left > 0 {
        lines.push(format!("workspace: {left} more dangerous changes, in the journal"));
    }
    lines
}

/// What of the workspace was not looked at. It is a matter of the host and not of the command, in whose output no agent looks for it.
pub fn workspace_shortfall_line(outcome: &Outcome) -> Option<String> {
    let shortfall = printable::line(&outcome.workspace_shortfall);
    (!shortfall.is_empty()).then(|| format!("workspace: not all of it was looked at: {shortfall}"))
}

fn change_line(change: &WorkspaceChange) -> String {
    let done = match change.action() {
        WorkspaceAction::Restored => "put back".into(),
        WorkspaceAction::Quarantined => "moved aside".into(),
        WorkspaceAction::Reported => "left as it is".into(),
        WorkspaceAction::Failed => format!("cannot be undone: {}", printable::line(&change.failure)),
        WorkspaceAction::Unspecified => "unknown".to_owned(),
    };
    format!("workspace: {}: {} ({done})", printable::line(&change.path), printable::line(&change.description))
}

/// Why a command ended, where its status alone does not tell.
fn unusual_end(outcome: &Outcome) -> Option<&'static str> {
    match outcome.cause() {
        ExitCause::TimeLimit => Some("the command was stopped at its time limit"),
        ExitCause::IdleLimit => Some("the command was stopped: no output for as long as the idle limit"),
        ExitCause::MemoryLimit => Some("the kernel killed the command, or a part of it, at its memory limit"),
        ExitCause::SandboxLost => {
            Some("the sandbox was lost, and how the command would have ended is not known")
        }
        ExitCause::Shutdown => Some("the command was stopped with its session or its gateway"),
        ExitCause::Unspecified | ExitCause::Exited | ExitCause::Signalled | ExitCause::Killed => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_undone_is_told_with_what_became_of_it_and_the_rest_is_counted() {
        let change = |number: usize| WorkspaceChange {
            path: format!("a\n{number}"),
            description: "a hook".to_owned(),
            action: WorkspaceAction::Quarantined.into(),
            ..Default::default()
        };
        let outcome = Outcome {
            workspace_changes: (0..WORKSPACE_LINES_MAX + 2).map(change).collect(),
            workspace_changes_omitted: 3,
            cause: ExitCause::TimeLimit.into(),
            ended_processes: 1,
            ..Default::default()
        };
        let lines = end_lines(&outcome, "use y");
        assert_eq!(lines[0], "workspace: a\\n0: a hook (moved aside)");
        assert_eq!(lines[WORKSPACE_LINES_MAX], "workspace: 5 more dangerous changes, in the journal");
        assert_eq!(lines[WORKSPACE_LINES_MAX + 1], "the command was stopped at its time limit");
        assert!(lines.last().is_some_and(|line| line.ends_with("; use y")), "{lines:?}");
    }
}
