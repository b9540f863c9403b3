//! Parses requests into typed values, or names the field that is invalid.
//!
//! A valid request may still be refused by policy.

use std::{collections::BTreeMap, collections::HashMap, sync::Arc, time::Duration};

use crate::{
    approval::{ApprovalId, ApproverDecision},
    journal::BypassReport,
    policy::{
        self, AbsPath, CommandSpec, PtySize, PtySizeError, Request, StdinSource, StreamMode,
        environment::{self, EnvEntry},
        profile,
    },
    printable,
    proto::v1::{
        ApprovalDecision, Bypass, CheckPolicyRequest, CreateSessionRequest, CreateTerminalRequest, EnvVar,
        Lifetime as LifetimeWord, Network, OnAsk as OnAskWord, OutputMode, OutputStream, Overflow,
        PolicyFile, Pty, ResolveApprovalRequest, StdinMode, WorkspaceExtent as WorkspaceExtentWord,
        create_terminal_request::Command,
    },
    session::{Lifetime, NewSession, Session, WorkspaceExtent},
    terminal::{Channel, NewRequest, OnAsk, ReaderKind, signal},
};

/// Roots of one session, of each kind.
const ROOTS_MAX: usize = 64;
/// Labels of one session or terminal.
const LABELS_MAX: usize = 64;
/// Bytes of a label's name, or of a request id.
const NAME_MAX_BYTES: usize = 128;
/// Bytes of a label's value.
const LABEL_VALUE_MAX_BYTES: usize = 1_024;
/// Policy files that are checked in one call; a gateway loads no more.
const POLICY_FILES_MAX: usize = 256;
/// Bytes of a command or one argument: the kernel takes no longer one (execve(2), MAX_ARG_STRLEN).
const ARGUMENT_MAX_BYTES: usize = 131_071;
/// Arguments of a command.
const ARGUMENTS_MAX: usize = 16_384;
/// Bytes of a command with its arguments and its variables: half of what the kernel takes by default.
const ARGUMENTS_MAX_BYTES: usize = 1 << 20;
/// Variables of a session, or of a command.
const VARIABLES_MAX: usize = 4_096;
/// Bytes of what an approver says.
const COMMENT_MAX_BYTES: usize = 1_024;
/// Bytes of the name of a person that an approver speaks for.
const ON_BEHALF_OF_MAX_BYTES: usize = 256;
/// How much of what is not the name of a signal is said again.
const SIGNAL_SHOWN_BYTES: usize = 64;
/// The variable that says which control sequences a terminal understands.
const TERM: &str = "TERM";
/// Its value for a pseudo-terminal, unless the request has one.
const DEFAULT_TERM: &str = "xterm-256color";
/// The longest grace: nobody may keep a release waiting for longer.
const GRACE_MAX: Duration = Duration::from_secs(600);

/// An invalid field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct FieldError {
    /// Its name in the request, with its place: `env[2].name`.
    pub field: String,
    /// The problem.
    pub problem: String,
}

fn field_error(field: impl Into<String>, problem: impl ToString) -> FieldError {
    FieldError { field: field.into(), problem: problem.to_string() }
}

/// A session to be opened.
pub fn new_session(request: CreateSessionRequest) -> Result<NewSession, FieldError> {
    if request.roots.is_empty() {
        return Err(field_error("roots", "must name at least one directory"));
    }
    let extent = match WorkspaceExtentWord::try_from(request.extent) {
        Ok(WorkspaceExtentWord::Unspecified) => WorkspaceExtent::Named,
        Ok(WorkspaceExtentWord::Repository) => WorkspaceExtent::Repository,
        Err(_) => return Err(unknown_value("extent", request.extent)),
    };
    let lifetime = match LifetimeWord::try_from(request.lifetime) {
        Ok(LifetimeWord::Unspecified | LifetimeWord::Explicit) => Lifetime::Explicit,
        Ok(LifetimeWord::OwnerProcess) => Lifetime::OwnerProcess,
        Err(_) => return Err(unknown_value("lifetime", request.lifetime)),
    };
    Ok(NewSession {
        roots: directories("roots", &request.roots)?,
        read_only_roots: directories("read_only_roots", &request.read_only_roots)?,
        extent,
        cwd: directory("cwd", &request.cwd)?,
        env: env("env", request.env)?,
        labels: labels("labels", request.labels)?,
        profile: Some(request.profile).filter(|name| !name.is_empty()),
        lifetime,
        name: session_name(request.name)?,
        request_id: request_id("request_id", request.request_id)?,
    })
}

/// A name that is the same in every terminal and file.
fn session_name(name: String) -> Result<Option<String>, FieldError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if name.len() > NAME_MAX_BYTES || !name.bytes().all(is_plain) {
        let problem = format!("must be at most {NAME_MAX_BYTES} of a-z, A-Z, 0-9, \".\", \"_\" and \"-\"");
        return Err(field_error("name", problem));
    }
    Ok(Some(name).filter(|name| !name.is_empty()))
}

/// A session's directories.
fn directories(field: &str, paths: &[String]) -> Result<Vec<AbsPath>, FieldError> {
    if paths.len() > ROOTS_MAX {
        return Err(field_error(field, format!("must name at most {ROOTS_MAX} directories")));
    }
    let parse = |(index, path): (usize, &String)| {
        AbsPath::parse(path).map_err(|error| field_error(format!("{field}[{index}]"), error))
    };
    paths.iter().enumerate().map(parse).collect()
}

/// A terminal to be created in a session. `within` is the place of the request's fields in the message, for names
/// of fields: empty, or `create.`.
pub fn new_terminal(
    within: &str,
    session: Arc<Session>,
    request: CreateTerminalRequest,
) -> Result<NewRequest, FieldError> {
    let at = |field: &str| format!("{within}{field}");
    let program = program(within, &request)?;
    let network = match Network::try_from(request.network) {
        Ok(Network::Unspecified) => None,
        Ok(Network::None) => Some(profile::Network::None),
        Ok(Network::Host) => Some(profile::Network::Host),
        Ok(Network::Proxy) => Some(profile::Network::Proxy),
        Err(_) => return Err(unknown_value(at("network"), request.network)),
    };
    let pty = request.pty.as_ref().map(|pty| pty_size(&at("pty."), pty.columns, pty.rows)).transpose()?;
    let streams = match (OutputMode::try_from(request.output_mode), pty) {
        (Ok(OutputMode::Unspecified | OutputMode::Merged), None) => StreamMode::Merged,
        (Ok(OutputMode::Unspecified | OutputMode::Merged), Some(size)) => StreamMode::Pty(size),
        (Ok(OutputMode::Split), None) => StreamMode::Split,
        (Ok(OutputMode::Split), Some(_)) => {
            return Err(field_error(
                at("output_mode"),
                "must not be split: a pseudo-terminal has one output",
            ));
        }
        (Err(_), _) => return Err(unknown_value(at("output_mode"), request.output_mode)),
    };
    let stdin = match StdinMode::try_from(request.stdin_mode) {
        Ok(StdinMode::Unspecified) if pty.is_some() => StdinSource::Open,
        Ok(StdinMode::Unspecified | StdinMode::Closed) => StdinSource::Closed,
        Ok(StdinMode::Open) => StdinSource::Open,
        Err(_) => return Err(unknown_value(at("stdin_mode"), request.stdin_mode)),
    };
    let overflow = match Overflow::try_from(request.overflow) {
        Ok(Overflow::Unspecified | Overflow::DropOldest) => policy::OverflowMode::DropOldest,
        Ok(Overflow::Block) => policy::OverflowMode::Block,
        Err(_) => return Err(unknown_value(at("overflow"), request.overflow)),
    };
    let on_ask = match OnAskWord::try_from(request.on_ask) {
        Ok(OnAskWord::Unspecified | OnAskWord::Wait) => OnAsk::Wait,
        Ok(OnAskWord::Refuse) => OnAsk::Refuse,
        Err(_) => return Err(unknown_value(at("on_ask"), request.on_ask)),
    };
    let cwd = match directory(&at("cwd"), &request.cwd)? {
        Some(cwd) => session.resolve(&cwd),
        None => session.cwd.clone(),
    };
    let profile = if request.profile.is_empty() { session.profile.clone() } else { request.profile };
    let parsed = Request {
        principal: session.principal.to_string(),
        labels: Arc::new(session.labels.clone()),
        roots: session.roots.clone(),
        session_env: session.env.clone(),
        command: program,
        env: with_term(within, env(&at("env"), request.env)?, request.pty)?,
        cwd,
        profile: Some(profile),
        network,
        output_limit_bytes: request.output_byte_limit,
        streams,
        stdin,
        overflow,
        time_limit: time_limit(&at("time_limit"), request.time_limit)?,
        idle_limit: time_limit(&at("idle_limit"), request.idle_limit)?,
        kill_grace: grace(&at("kill_grace"), request.kill_grace)?,
    };
    Ok(NewRequest {
        session,
        request: parsed,
        labels: labels(&at("labels"), request.labels)?,
        request_id: request_id(&at("request_id"), request.request_id)?,
        reader: ReaderKind::Stream,
        on_ask,
        time_limit: None,
    })
}

/// A call of Attach that does not begin with its start, or has another one.
pub fn attach_without_start() -> FieldError {
    field_error("start", "must be in the first message, and in no other")
}

/// The size of a pseudo-terminal. `within` is the place of its fields.
pub fn pty_size(within: &str, columns: u32, rows: u32) -> Result<PtySize, FieldError> {
    PtySize::new(columns, rows).map_err(|error| {
        let field = match error {
            PtySizeError::Columns => "columns",
            PtySizeError::Rows | PtySizeError::Cells => "rows",
        };
        field_error(format!("{within}{field}"), error)
    })
}

/// The variables, and TERM if there is a pseudo-terminal: for policy it is a variable like the others.
fn with_term(within: &str, mut env: Vec<EnvEntry>, pty: Option<Pty>) -> Result<Vec<EnvEntry>, FieldError> {
    let Some(Pty { mut term, .. }) = pty else { return Ok(env) };
    let field = || format!("{within}pty.term");
    if term.len() > NAME_MAX_BYTES {
        return Err(field_error(field(), format!("must have at most {NAME_MAX_BYTES} bytes")));
    }
    if env.iter().any(|entry| entry.name() == TERM) {
        if term.is_empty() {
            return Ok(env);
        }
        return Err(field_error(field(), "must be empty if env has TERM"));
    }
    if term.is_empty() {
        DEFAULT_TERM.clone_into(&mut term);
    }
    env.push(EnvEntry::new(TERM.to_owned(), term).map_err(|error| field_error(field(), error))?);
    Ok(env)
}

/// Whether a command is of a size that it can be executed with, before anything of it is judged.
///
/// # Errors
/// Names what is too long.
pub fn arguments_fit(within: &str, request: &CreateTerminalRequest) -> Result<(), FieldError> {
    let check_length = |field: String, text: &str| match text.len() {
        0..=ARGUMENT_MAX_BYTES => Ok(()),
        _ => Err(field_error(field, format!("must have at most {ARGUMENT_MAX_BYTES} bytes"))),
    };
    let command = command_text(request);
    check_length(format!("{within}command"), command)?;
    if request.args.len() > ARGUMENTS_MAX {
        return Err(field_error(format!("{within}args"), format!("must be at most {ARGUMENTS_MAX}")));
    }
    let too_long = request.args.iter().position(|argument| argument.len() > ARGUMENT_MAX_BYTES);
    if let Some(index) = too_long {
        check_length(format!("{within}args[{index}]"), &request.args[index])?;
    }
    let arguments: usize = request.args.iter().map(|argument| argument.len() + 1).sum();
    let variables: usize = request.env.iter().map(|one| one.name.len() + one.value.len() + 2).sum();
    if command.len() + arguments + variables > ARGUMENTS_MAX_BYTES {
        let problem = format!("must have at most {ARGUMENTS_MAX_BYTES} bytes, with command and env");
        return Err(field_error(format!("{within}args"), problem));
    }
    Ok(())
}

/// The program or the shell line; empty if the request has neither.
fn command_text(request: &CreateTerminalRequest) -> &str {
    match &request.command {
        Some(Command::Program(text) | Command::ShellLine(text)) => text,
        None => "",
    }
}

fn program(within: &str, request: &CreateTerminalRequest) -> Result<CommandSpec, FieldError> {
    let text = command_text(request);
    if text.is_empty() {
        return Err(field_error(format!("{within}command"), "must not be empty"));
    }
    if text.contains('\0') {
        return Err(field_error(format!("{within}command"), "must not hold a NUL byte"));
    }
    if let Some(index) = request.args.iter().position(|arg| arg.contains('\0')) {
        return Err(field_error(format!("{within}args[{index}]"), "must not hold a NUL byte"));
    }
    match &request.command {
        Some(Command::ShellLine(line)) if request.args.is_empty() => Ok(CommandSpec::ShellLine(line.clone())),
        Some(Command::ShellLine(_)) => {
            Err(field_error(format!("{within}args"), "must be empty for a shell line"))
        }
        Some(Command::Program(_)) | None => {
            Ok(CommandSpec::Argv { command: text.to_owned(), args: request.args.clone() })
        }
    }
}

fn directory(field: &str, text: &str) -> Result<Option<AbsPath>, FieldError> {
    if text.is_empty() {
        return Ok(None);
    }
    AbsPath::parse(text).map(Some).map_err(|error| field_error(field, error))
}

fn env(field: &str, variables: Vec<EnvVar>) -> Result<Vec<EnvEntry>, FieldError> {
    let bytes: usize = variables.iter().map(|one| one.name.len() + one.value.len() + 2).sum();
    if variables.len() > VARIABLES_MAX || bytes > ARGUMENTS_MAX_BYTES {
        let problem = format!("must be at most {VARIABLES_MAX}, with {ARGUMENTS_MAX_BYTES} bytes");
        return Err(field_error(field, problem));
    }
    environment::parse_list(variables.into_iter().map(|variable| (variable.name, variable.value))).map_err(
        |(index, error)| {
            let part = match error {
                environment::EnvVarError::EmptyName
                | environment::EnvVarError::EqualsInName
                | environment::EnvVarError::NulInName
                | environment::EnvVarError::Duplicate => "name",
                environment::EnvVarError::NulInValue | environment::EnvVarError::TooLong => "value",
            };
            field_error(format!("{field}[{index}].{part}"), error)
        },
    )
}

fn labels(field: &str, labels: HashMap<String, String>) -> Result<BTreeMap<String, String>, FieldError> {
    if labels.len() > LABELS_MAX {
        return Err(field_error(field, format!("must be at most {LABELS_MAX}")));
    }
    for (name, value) in &labels {
        if name.is_empty() || name.len() > NAME_MAX_BYTES {
            return Err(field_error(field, format!("a name must have 1 to {NAME_MAX_BYTES} bytes")));
        }
        if value.len() > LABEL_VALUE_MAX_BYTES {
            return Err(field_error(
                format!("{field}[{name}]"),
                format!("must have at most {LABEL_VALUE_MAX_BYTES} bytes"),
            ));
        }
    }
    Ok(labels.into_iter().collect())
}

fn request_id(field: &str, id: String) -> Result<Option<String>, FieldError> {
    if id.len() > NAME_MAX_BYTES {
        return Err(field_error(field, format!("must have at most {NAME_MAX_BYTES} bytes")));
    }
    Ok(Some(id).filter(|id| !id.is_empty()))
}

/// A limit in time: more than nothing.
fn time_limit(field: &str, time: Option<prost_types::Duration>) -> Result<Option<Duration>, FieldError> {
    match duration(field, time)? {
        Some(time) if time.is_zero() => Err(field_error(field, "must be more than 0")),
        time => Ok(time),
    }
}

/// A grace: may be nothing.
pub fn grace(field: &str, time: Option<prost_types::Duration>) -> Result<Option<Duration>, FieldError> {
    match duration(field, time)? {
        Some(time) if time > GRACE_MAX => {
            Err(field_error(field, format!("must be at most {} s", GRACE_MAX.as_secs())))
        }
        time => Ok(time),
    }
}

fn duration(field: &str, time: Option<prost_types::Duration>) -> Result<Option<Duration>, FieldError> {
    let Some(time) = time else { return Ok(None) };
    match (u64::try_from(time.seconds), u32::try_from(time.nanos)) {
        (Ok(seconds), Ok(nanos)) if nanos < 1_000_000_000 => Ok(Some(Duration::new(seconds, nanos))),
        (Ok(_) | Err(_), Ok(_) | Err(_)) => {
            Err(field_error(field, "must not be negative, with nanos from 0 to 999999999"))
        }
    }
}

/// An answer to an approval.
#[derive(Debug)]
pub struct ParsedAnswer {
    /// `None`: no approval has such an id.
    pub id: Option<ApprovalId>,
    /// Yes or no.
    pub decision: ApproverDecision,
    /// In the approver's words.
    pub comment: String,
    /// For whom, as the approver says.
    pub on_behalf_of: String,
}

/// Policy files to be checked.
pub fn policy_files(request: CheckPolicyRequest) -> Result<Vec<PolicyFile>, FieldError> {
    match request.files.len() {
        0 => Err(field_error("files", "must be at least one")),
        count if count > POLICY_FILES_MAX => {
            Err(field_error("files", format!("must be at most {POLICY_FILES_MAX}")))
        }
        _ => Ok(request.files),
    }
}

/// An answer to an approval.
pub fn approval_answer(request: ResolveApprovalRequest) -> Result<ParsedAnswer, FieldError> {
    let decision = match ApprovalDecision::try_from(request.decision) {
        Ok(ApprovalDecision::Approve) => ApproverDecision::Approve,
        Ok(ApprovalDecision::Deny) => ApproverDecision::Deny,
        Ok(ApprovalDecision::Unspecified) => return Err(field_error("decision", "must be APPROVE or DENY")),
        Err(_) => return Err(unknown_value("decision", request.decision)),
    };
    for (field, text, most) in [
        ("comment", &request.comment, COMMENT_MAX_BYTES),
        ("on_behalf_of", &request.on_behalf_of, ON_BEHALF_OF_MAX_BYTES),
    ] {
        if text.len() > most {
            return Err(field_error(field, format!("must have at most {most} bytes")));
        }
    }
    let id = ApprovalId::parse(&request.approval_id);
    Ok(ParsedAnswer { id, decision, comment: request.comment, on_behalf_of: request.on_behalf_of })
}

/// Which output.
pub fn channel(value: i32) -> Result<Channel, FieldError> {
    match OutputStream::try_from(value) {
        Ok(OutputStream::Unspecified | OutputStream::Stdout) => Ok(Channel::Stdout),
        Ok(OutputStream::Stderr) => Ok(Channel::Stderr),
        Err(_) => Err(unknown_value("stream", value)),
    }
}

/// How the gateway was bypassed.
pub fn bypass(value: i32) -> Result<BypassReport, FieldError> {
    match Bypass::try_from(value) {
        Ok(Bypass::CommandRun) => Ok(BypassReport::Bypassed),
        Ok(Bypass::Unspecified) => Err(field_error("bypass", "must say how the gateway was bypassed")),
        Err(_) => Err(unknown_value("bypass", value)),
    }
}

/// A signal by its name.
pub fn signal_number(name: &str) -> Result<i32, FieldError> {
    signal::number(name).ok_or_else(|| {
        let name = printable::bounded(name, SIGNAL_SHOWN_BYTES);
        field_error("signal", format!("{name:?} is not the name of a signal"))
    })
}

fn unknown_value(field: impl Into<String>, value: i32) -> FieldError {
    field_error(field, format!("{value} is not a known value"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_without_roots_or_with_bad_ones_names_the_field() {
        let error = |request| new_session(request).unwrap_err().field;
        assert_eq!(error(CreateSessionRequest::default()), "roots");
        let roots = |roots: &[&str]| CreateSessionRequest {
            roots: roots.iter().map(|&root| root.into()).collect(),
            ..Default::default()
        };
        assert_eq!(error(roots(&["/a", "b"])), "roots[1]");
        assert_eq!(error(CreateSessionRequest { cwd: "b".into(), ..roots(&["/a"]) }), "cwd");
        assert_eq!(error(CreateSessionRequest { lifetime: 9, ..roots(&["/a"]) }), "lifetime");
        let env = vec![EnvVar { name: "A=".into(), value: String::new() }];
        assert_eq!(error(CreateSessionRequest { env, ..roots(&["/a"]) }), "env[0].name");
    }

    #[test]
    fn times_that_are_none_are_refused() {
        let time = |seconds, nanos| Some(prost_types::Duration { seconds, nanos });
        assert_eq!(time_limit("f", None), Ok(None));
        assert_eq!(time_limit("f", time(1, 5)), Ok(Some(Duration::new(1, 5))));
        assert!(time_limit("f", time(0, 0)).is_err());
        assert!(time_limit("f", time(-1, 0)).is_err());
        assert!(time_limit("f", time(1, -5)).is_err());
        assert!(time_limit("f", time(1, 1_000_000_000)).is_err());
        assert_eq!(grace("f", time(0, 0)), Ok(Some(Duration::ZERO)));
        assert!(grace("f", time(601, 0)).is_err());
        assert!(time_limit("f", time(i64::MAX, 0)).is_ok());
    }
}
