//! `provost run` asks its user for the approval that a rule requires.
//!
//! It asks only on a terminal: the question goes to stderr, and the answer is a line of stdin. Every answer but yes is a no.
//! The gateway decides whether this user may approve.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    io::{IsTerminal, Stdin},
};

use clap::ValueEnum;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tonic::Status;

use super::{
    connection::Approvals,
    reconnect::{Outage, Restarts},
};
use crate::{
    cli::console::{
        error::CliError,
        stdio::{self, Input},
    },
    printable,
    proto::v1::{self, ApprovalDecision, ApprovalState},
    stdio::Input as StandardInput,
};

/// The value of `--on-ask`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(in crate::cli) enum OnAskChoice {
    /// Wait until an approver answers with `provost approvals`
    Wait,
    /// Refuse the command at once
    Refuse,
}

/// What `provost run` does when a rule asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum ApprovalMode {
    /// Asks its own user.
    Prompt,
    /// Waits for an approver's answer.
    Wait,
    /// Ends at once.
    Refuse,
}

impl ApprovalMode {
    /// The mode that `--on-ask` chooses. Without it the user is asked if there is a terminal for question and answer, which
    /// there is not if stdin is passed on to the command.
    pub(in crate::cli) fn new(choice: Option<OnAskChoice>, stdin: Input) -> Self {
        match choice {
            Some(OnAskChoice::Wait) => Self::Wait,
            Some(OnAskChoice::Refuse) => Self::Refuse,
            None if stdin == Input::Forwarded => Self::Refuse,
            None if std::io::stdin().is_terminal() && std::io::stderr().is_terminal() => Self::Prompt,
            None => Self::Refuse,
        }
    }

    /// The same for the gateway.
    pub(in crate::cli) fn on_ask(self) -> v1::OnAsk {
        match self {
            Self::Prompt | Self::Wait => v1::OnAsk::Wait,
            Self::Refuse => v1::OnAsk::Refuse,
        }
    }
}

/// Asks about whatever waits in the session, one after another. Never ends: the run does.
pub(in crate::cli) async fn prompt(mut approvals: Approvals, session_id: String) -> Infallible {
    let mut asked = BTreeSet::new();
    let mut lines = BufReader::new(crate::stdio::stdin()).lines();
    let mut outage = Outage::new(Restarts::Followed);
    loop {
        let lost = match answer_all(&mut approvals, &session_id, &mut asked, &mut lines, &mut outage).await {
            Ok(lost) => lost,
            Err(failure) => {
                failure.print();
                break;
            }
        };
        if let Err(status) = outage.wait(lost).await {
            CliError::from(status).print();
            break;
        }
    }
    std::future::pending().await
}

/// Until the stream of questions ends, and returns with what.
async fn answer_all(
    approvals: &mut Approvals,
    session_id: &str,
    asked: &mut BTreeSet<String>,
    lines: &mut Lines<BufReader<StandardInput<Stdin>>>,
    outage: &mut Outage,
) -> Result<Status, CliError> {
    let request = v1::WatchApprovalsRequest { session_id: session_id.to_owned() };
    let mut changes = match approvals.watch_approvals(request).await {
        Ok(changes) => changes.into_inner(),
        Err(status) => return Ok(status),
    };
    outage.over();
    loop {
        let change = match changes.message().await {
            Ok(Some(change)) => change,
            // The session is closed.
            Ok(None) => return std::future::pending().await,
            Err(status) => return Ok(status),
        };
        let approval = change.approval.unwrap_or_default();
        if approval.state() != ApprovalState::Pending || !asked.insert(approval.id.clone()) {
            continue;
        }
        stdio::prompt(&question(&approval));
        let line =
            lines.next_line().await.map_err(|error| CliError::caused_by("cannot read the answer", error))?;
        let request = v1::ResolveApprovalRequest {
            approval_id: approval.id.clone(),
            decision: decision(line.as_deref()).into(),
            comment: String::new(),
            on_behalf_of: String::new(),
        };
        if let Err(status) = approvals.resolve_approval(request).await {
            // Another approver may answer, or has: the run ends as it ends.
            CliError::from(status)
                .with_advice(format!("an approver can answer it: provost approvals approve {}", approval.id))
                .print();
        }
    }
}

/// How a command line can have a question answered that was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum AnswerWait {
    /// By its own gateway: nobody else can answer.
    OnTerminal,
    /// It has `--on-ask wait`.
    ByOption,
    /// It does not wait, and the gateway that serves keeps the question.
    Never,
    /// It does not wait, and its own gateway ends with it.
    Nowhere,
}

/// Where nobody could be asked: who can say yes, and how.
pub(in crate::cli) fn advise(failure: CliError, waiting: AnswerWait) -> CliError {
    if failure.reason != "APPROVAL_REQUIRED" {
        return failure;
    }
    let id = failure.details.get("approval_id").filter(|_| !failure.details.contains_key("state"));
    let approved = |id: &str| format!("have `provost approvals approve {id}` done, and run the same again");
    const ELSEWHERE: &str = "run it through a gateway that serves, where others can answer";
    let advice = match (id, waiting) {
        (None, _) => "run it again: the policy that is in force then decides".to_owned(),
        (Some(_), AnswerWait::OnTerminal) => {
            format!("run it on a terminal to be asked; or {ELSEWHERE}")
        }
        (Some(id), AnswerWait::ByOption) => format!("{}; or wait with --on-ask wait", approved(id)),
        (Some(id), AnswerWait::Never) => approved(id),
        (Some(_), AnswerWait::Nowhere) => ELSEWHERE.to_owned(),
    };
    failure.with_advice(advice)
}

fn question(approval: &v1::Approval) -> String {
    let reason = match approval.reason.as_str() {
        "" => String::new(),
        reason => format!(": {}", printable::line(reason)),
    };
    let (within, wanted) = match (&approval.exec, &approval.connection) {
        (Some(_), _) => (" about an exec within the command", "run it?"),
        (None, Some(_)) => (" about a connection of the command", "connect?"),
        (None, None) => ("", "run it?"),
    };
    let mut question = format!(
        "provost: rule {} asks{within}{reason}\nprovost:   {}\n",
        printable::line(&approval.rule),
        printable::line(&approval.matched_command),
    );
    // The answer is for all of them.
    for other in &approval.others {
        let reason = match other.reason.as_str() {
            "" => String::new(),
            reason => format!(": {}", printable::line(reason)),
        };
        let (rule, command) = (printable::line(&other.rule), printable::line(&other.command));
        question.push_str(&format!("provost: and rule {rule} asks{reason}\nprovost:   {command}\n"));
    }
    let wanted = match approval.others.len() {
        0 => wanted.to_owned(),
        others => format!("run all {}?", others + 1),
    };
    let cwd = printable::line(&approval.cwd);
    question
        .push_str(&format!("provost: in {cwd}, session {}\nprovost: {wanted} [y/N] ", approval.session_id));
    question
}

/// Nothing, and the end of input, are a no.
fn decision(line: Option<&str>) -> ApprovalDecision {
    match line.map(str::trim) {
        Some("y" | "Y" | "yes" | "Yes" | "YES") => ApprovalDecision::Approve,
        _ => ApprovalDecision::Deny,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_yes_is_a_yes() {
        for yes in ["y", "Y", "yes", " y \r"] {
            assert_eq!(decision(Some(yes)), ApprovalDecision::Approve, "{yes:?}");
        }
        for no in [None, Some(""), Some("n"), Some("yn"), Some("yes please"), Some("\u{1b}[Ay")] {
            assert_eq!(decision(no), ApprovalDecision::Deny, "{no:?}");
        }
    }
}
