//! `provost approvals`: what waits for a person, and the person's answers.
//!
//! Needs a gateway that runs. Ids are whole ids, never prefixes, so that nobody says yes to another question than
//! they read. Whatever a caller wrote is shown with its controls escaped.

use clap::{Args, Subcommand};
use serde::Serialize;

use super::{
    console::{
        error::CliError,
        exit_status, json,
        stdio::{self, WriteOutcome},
        table::{align_columns, print_to_stdout, to_json_line},
    },
    gateway_link::connection::{Approvals, GatewayConnection},
    request::arguments::{OutputFormat, parse_gateway},
};
use crate::{
    printable,
    proto::v1::{self, ApprovalDecision, ApprovalState},
};

/// `provost approvals`.
#[derive(Debug, Args)]
#[command(
    about = "List, approve and deny the requests that wait for a person",
    long_about = "Shows the requests that a rule asks a person about, and answers them. You see your own; root, the \
                  gateway's own user and the approvers of its configuration see all. Without a command: list.",
    after_help = "Examples:\n  \
                  provost approvals\n  \
                  provost approvals approve appr_01JD3ZK6T0000000000000000 --comment 'release 1.2'\n  \
                  provost approvals watch -o json"
)]
pub(super) struct ApprovalsArguments {
    /// The gateway's socket. Without it: $PROVOST_GATEWAY, else the socket that `provost serve` has by default
    #[arg(long, value_name = "unix:PATH", value_parser = parse_gateway, global = true)]
    gateway: Option<String>,
    /// Print in this format; with json `list` prints an array, `watch` an object a line, the others an object
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = OutputFormat::Text, global = true)]
    output: OutputFormat,
    #[command(subcommand)]
    command: Option<ApprovalsCommand>,
}

/// The commands of `provost approvals`.
#[derive(Debug, Subcommand)]
enum ApprovalsCommand {
    /// List what waits for an answer, or for its request to use the answer
    List {
        /// Also what is over, as far as it is still known
        #[arg(long)]
        all: bool,
        /// Shows only those of this session
        #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
        session: String,
    },
    /// Print what waits, and then every change, until interrupted
    Watch {
        /// Follows only those of this session, until it is closed
        #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
        session: String,
    },
    /// Say yes: the request may run, once, exactly as it was asked
    Approve(AnswerArguments),
    /// Say no
    Deny(AnswerArguments),
}

/// An answer.
#[derive(Debug, Args)]
struct AnswerArguments {
    /// The approval's id
    #[arg(value_name = "ID")]
    id: String,
    /// Told to the one who asked, and recorded
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    comment: String,
    /// The person that you speak for; recorded as you say it
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    on_behalf_of: String,
}

/// Does what is asked; answers with the exit status.
pub(super) async fn run(arguments: ApprovalsArguments) -> Result<u8, CliError> {
    let connection = GatewayConnection::find(arguments.gateway.as_deref()).await?;
    let approvals = connection.client().approvals;
    let format = arguments.output;
    let default_command = ApprovalsCommand::List { all: false, session: String::new() };
    match arguments.command.unwrap_or(default_command) {
        ApprovalsCommand::List { all, session } => {
            let which = if all { ApprovalFilter::All } else { ApprovalFilter::Open };
            list(approvals, session, which, format).await
        }
        ApprovalsCommand::Watch { session } => watch(approvals, session, format).await,
        ApprovalsCommand::Approve(answer) => {
            resolve(approvals, answer, ApprovalDecision::Approve, format).await
        }
        ApprovalsCommand::Deny(answer) => resolve(approvals, answer, ApprovalDecision::Deny, format).await,
    }
}

/// Which are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ApprovalFilter {
    /// Those that wait.
    Open,
    /// Those that are still known.
    All,
}

async fn list(
    mut approvals: Approvals,
    session_id: String,
    which: ApprovalFilter,
    format: OutputFormat,
) -> Result<u8, CliError> {
    let mut request = v1::ListApprovalsRequest { session_id, ..v1::ListApprovalsRequest::default() };
    let mut answer = v1::ListApprovalsResponse::default();
    loop {
        let page = approvals.list_approvals(request.clone()).await?.into_inner();
        answer.approvals.extend(page.approvals);
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    let open = |it: &&v1::Approval| {
        which == ApprovalFilter::All || matches!(it.state(), ApprovalState::Pending | ApprovalState::Approved)
    };
    let shown: Vec<&v1::Approval> = answer.approvals.iter().filter(open).collect();
    match format {
        OutputFormat::Json => {
            print_to_stdout(&to_json_line(&shown.into_iter().map(ApprovalJson::from).collect::<Vec<_>>())?)
        }
        OutputFormat::Text => {
            let mut rows = vec![COLUMNS.map(str::to_owned)];
            rows.extend(shown.into_iter().map(row));
            print_to_stdout(&align_columns(&rows))
        }
    }
}

async fn watch(mut approvals: Approvals, session_id: String, format: OutputFormat) -> Result<u8, CliError> {
    let mut changes = approvals.watch_approvals(v1::WatchApprovalsRequest { session_id }).await?.into_inner();
    while let Some(change) = changes.message().await? {
        let approval = change.approval.unwrap_or_default();
        let line = match format {
            OutputFormat::Json => to_json_line(&ApprovalJson::from(&approval))?,
            OutputFormat::Text => format!("{}\n", row(&approval).join("  ")),
        };
        let written =
            stdio::print(&line).map_err(|error| CliError::caused_by("cannot write to stdout", error))?;
        if written == WriteOutcome::ReaderGone {
            return Ok(exit_status::BROKEN_PIPE);
        }
    }
    Ok(0)
}

async fn resolve(
    mut approvals: Approvals,
    answer: AnswerArguments,
    decision: ApprovalDecision,
    format: OutputFormat,
) -> Result<u8, CliError> {
    let request = v1::ResolveApprovalRequest {
        approval_id: answer.id,
        decision: decision.into(),
        comment: answer.comment,
        on_behalf_of: answer.on_behalf_of,
    };
    let resolved = approvals.resolve_approval(request).await?.into_inner().approval.unwrap_or_default();
    match format {
        OutputFormat::Json => print_to_stdout(&to_json_line(&ApprovalJson::from(&resolved))?),
        OutputFormat::Text => Ok(0),
    }
}

const COLUMNS: [&str; 8] =
    ["APPROVAL", "STATE", "PRINCIPAL", "SESSION", "EXPIRES", "RULE", "DIRECTORY", "ASKS ABOUT"];

fn row(approval: &v1::Approval) -> [String; 8] {
    [
        approval.id.clone(),
        json::approval_state(approval.state()).to_owned(),
        approval.principal.clone(),
        approval.session_id.clone(),
        approval.expires_at.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
        printable::line(&approval.rule).into_owned(),
        printable::line(&approval.cwd).into_owned(),
        asked_commands(approval),
    ]
}

/// All that the answer is for.
fn asked_commands(approval: &v1::Approval) -> String {
    let others = approval.others.iter().map(|other| &other.command);
    let all = std::iter::once(&approval.matched_command).chain(others);
    all.map(|command| printable::line(command).into_owned()).collect::<Vec<_>>().join("; and ")
}

/// An approval, as `-o json` prints it.
#[derive(Debug, Serialize)]
struct ApprovalJson {
    id: String,
    state: &'static str,
    session_id: String,
    principal: String,
    matched_command: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    others: Vec<AskedJson>,
    command: String,
    args: Vec<String>,
    shell_line: bool,
    cwd: String,
    profile: String,
    env_names: Vec<String>,
    rule: String,
    reason: String,
    request_digest: String,
    generation: u64,
    created_at: Option<String>,
    expires_at: Option<String>,
    has_waiting_call: bool,
    request_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    exec: Option<ExecJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection: Option<ConnectionJson>,
    answer: Option<AnswerJson>,
}

/// Another command of the request that a rule asks about.
#[derive(Debug, Serialize)]
struct AskedJson {
    command: String,
    rule: String,
    reason: String,
}

/// The exec that waits, within a command that runs.
#[derive(Debug, Serialize)]
struct ExecJson {
    terminal_id: String,
    file: String,
    interpreters: Vec<String>,
    args_omitted: u32,
}

/// The connection that waits, of a command that runs.
#[derive(Debug, Serialize)]
struct ConnectionJson {
    terminal_id: String,
    host: String,
    port: u32,
    addresses: Vec<String>,
}

/// What a person said.
#[derive(Debug, Serialize)]
struct AnswerJson {
    decision: &'static str,
    approver: String,
    on_behalf_of: String,
    comment: String,
    answered_at: Option<String>,
}

impl From<&v1::Approval> for ApprovalJson {
    fn from(approval: &v1::Approval) -> Self {
        let (command, shell_line) = match &approval.command {
            Some(v1::approval::Command::Program(name)) => (name.clone(), false),
            Some(v1::approval::Command::ShellLine(line)) => (line.clone(), true),
            None => (String::new(), false),
        };
        Self {
            id: approval.id.clone(),
            state: json::approval_state(approval.state()),
            session_id: approval.session_id.clone(),
            principal: approval.principal.clone(),
            matched_command: approval.matched_command.clone(),
            others: approval
                .others
                .iter()
                .map(|other| AskedJson {
                    command: other.command.clone(),
                    rule: other.rule.clone(),
                    reason: other.reason.clone(),
                })
                .collect(),
            command,
            args: approval.args.clone(),
            shell_line,
            cwd: approval.cwd.clone(),
            profile: approval.profile.clone(),
            env_names: approval.env_names.clone(),
            rule: approval.rule.clone(),
            reason: approval.reason.clone(),
            request_digest: approval.request_digest.clone(),
            generation: approval.generation,
            created_at: approval.created_at.as_ref().map(ToString::to_string),
            expires_at: approval.expires_at.as_ref().map(ToString::to_string),
            has_waiting_call: approval.has_waiting_call,
            request_id: approval.request_id.clone(),
            exec: approval.exec.as_ref().map(|exec| ExecJson {
                terminal_id: exec.terminal_id.clone(),
                file: exec.file.clone(),
                interpreters: exec.interpreters.clone(),
                args_omitted: exec.args_omitted,
            }),
            connection: approval.connection.as_ref().map(|connection| ConnectionJson {
                terminal_id: connection.terminal_id.clone(),
                host: connection.host.clone(),
                port: connection.port,
                addresses: connection.addresses.clone(),
            }),
            answer: approval.answer.as_ref().map(|answer| AnswerJson {
                decision: match answer.decision() {
                    ApprovalDecision::Unspecified => "unknown",
                    ApprovalDecision::Approve => "approve",
                    ApprovalDecision::Deny => "deny",
                },
                approver: answer.approver.clone(),
                on_behalf_of: answer.on_behalf_of.clone(),
                comment: answer.comment.clone(),
                answered_at: answer.answered_at.as_ref().map(ToString::to_string),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_caller_wrote_cannot_drive_the_terminal_that_shows_it() {
        let approval =
            v1::Approval { matched_command: "rm 'a\u{1b}[2Jb\r'\n".to_owned(), ..Default::default() };
        assert!(!row(&approval).iter().any(|cell| cell.chars().any(char::is_control)));
        // Would be read from right to left, or not at all.
        for unseen in ['\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}', '\u{9b}', '\u{e0041}'] {
            let text = printable::line(&format!("rm {unseen}gpj.x")).into_owned();
            assert!(!text.contains(unseen) && text.contains("\\u{"), "{text:?}");
        }
        assert_eq!(printable::line("grüße 漢字 'x'"), "grüße 漢字 'x'");
    }
}
