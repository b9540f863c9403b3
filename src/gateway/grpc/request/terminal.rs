//! Parses the requests for a terminal, and for a line in a kept shell.

use std::{sync::Arc, time::Duration};

use prost::bytes::Bytes;

use crate::{
    byte_text,
    grpc::request::fields::{
        ARGUMENT_OVERHEAD_BYTES, ARGUMENTS_MAX_BYTES, FieldError, NAME_MAX_BYTES, directory, env,
        field_error, grace, labels, network, pty_size, request_id, text, texts, time_limit, unknown_value,
        variable_bytes,
    },
    kept_shell::{ShellKind, checked_line},
    policy::{self, AbsPath, CommandSpec, Request, StdinSource, StreamMode, Umask, environment::EnvEntry},
    proto::v1::{
        CreateTerminalRequest, OnAsk as OnAskWord, OutputMode, Overflow, Pty, RunLineRequest, StdinMode,
        WhenBusy as WhenBusyWord, create_terminal_request::Command,
    },
    session::Session,
    terminal::{NewLine, OnAsk, ReaderKind, Requested, WhenBusy, WhenLeft},
};

/// Bytes of a command or one argument: the kernel takes no longer one (execve(2), MAX_ARG_STRLEN).
const ARGUMENT_MAX_BYTES: usize = 131_071;
/// Directories of a caller's PATH.
const SEARCH_PATH_MAX: usize = 256;
/// The variable that says which control sequences a terminal understands.
const TERM: &str = "TERM";
/// Its value for a pseudo-terminal, unless the request has one.
const DEFAULT_TERM: &str = "xterm-256color";

/// A terminal to be created in a session. `within` is the place of the request's fields in the message, for names
/// of fields: empty, or `create.`.
pub(crate) fn new_terminal(
    within: &str,
    session: Arc<Session>,
    request: CreateTerminalRequest,
) -> Result<Requested, FieldError> {
    let at = |field: &str| format!("{within}{field}");
    let request = in_texts(within, request)?;
    let (program, kept_shell) = match request.kept_shell {
        None => (program(within, &request)?, None),
        Some(_) => {
            let (command, kind) = kept_shell(within, &request)?;
            (command, Some(kind))
        }
    };
    let network = network(&at("network"), request.network)?.or(session.network);
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
    let umask = request.umask.map(Umask::new).transpose().map_err(|error| field_error(at("umask"), error))?;
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
        umask,
        search_path: search_path(within, &request.search_path)?,
        virtual_env: directory(&at("virtual_env"), &byte_text::from_bytes(&request.virtual_env))?,
    };
    Ok(Requested {
        session,
        request: parsed,
        labels: labels(&at("labels"), request.labels)?,
        request_id: request_id(&at("request_id"), request.request_id)?,
        kept_shell,
        reader: ReaderKind::Stream,
        when_left: if request.stop_when_left { WhenLeft::IsStopped } else { WhenLeft::RunsOn },
        on_ask,
        answer_timeout: None,
        given_input: None,
    })
}

/// The request with the command, its arguments and its directory as texts, whichever way they were given.
fn in_texts(within: &str, request: CreateTerminalRequest) -> Result<CreateTerminalRequest, FieldError> {
    let at = |field: &str| format!("{within}{field}");
    Ok(CreateTerminalRequest {
        command: request.command.map(|command| match command {
            Command::Program(text) => Command::Program(byte_text::from_string(text)),
            Command::ProgramBytes(bytes) => Command::Program(byte_text::from_bytes(&bytes)),
            Command::ShellLine(text) => Command::ShellLine(byte_text::from_string(text)),
            Command::ShellLineBytes(bytes) => Command::ShellLine(byte_text::from_bytes(&bytes)),
        }),
        args: texts(&at("args"), request.args, &request.args_bytes)?,
        args_bytes: Vec::new(),
        cwd: text(&at("cwd"), request.cwd, &request.cwd_bytes)?,
        cwd_bytes: Bytes::new(),
        ..request
    })
}

/// The directories of the caller's PATH.
fn search_path(within: &str, directories: &[Bytes]) -> Result<Arc<[AbsPath]>, FieldError> {
    let at = |index: usize| format!("{within}search_path[{index}]");
    if directories.len() > SEARCH_PATH_MAX {
        let problem = format!("must be at most {SEARCH_PATH_MAX} directories");
        return Err(field_error(format!("{within}search_path"), problem));
    }
    let parse = |(index, bytes): (usize, &Bytes)| {
        AbsPath::parse(&byte_text::from_bytes(bytes)).map_err(|error| field_error(at(index), error))
    };
    directories.iter().enumerate().map(parse).collect()
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
pub(crate) fn arguments_fit(within: &str, request: &CreateTerminalRequest) -> Result<(), FieldError> {
    let check_length = |field: String, bytes: usize| match bytes {
        0..=ARGUMENT_MAX_BYTES => Ok(()),
        _ => Err(field_error(field, format!("must have at most {ARGUMENT_MAX_BYTES} bytes"))),
    };
    let command = command_bytes(request);
    check_length(format!("{within}command"), command)?;
    let of_text = request.args.iter().map(String::len);
    let lengths = || of_text.clone().chain(request.args_bytes.iter().map(Bytes::len));
    if let Some((index, bytes)) = lengths().enumerate().find(|(_, bytes)| *bytes > ARGUMENT_MAX_BYTES) {
        check_length(format!("{within}args[{index}]"), bytes)?;
    }
    let arguments: usize = lengths().map(|bytes| bytes + ARGUMENT_OVERHEAD_BYTES).sum();
    let variables: usize = request.env.iter().map(variable_bytes).sum();
    if command + arguments + variables > ARGUMENTS_MAX_BYTES {
        let problem = format!(
            "must have at most {ARGUMENTS_MAX_BYTES} bytes, with command and env, and {ARGUMENT_OVERHEAD_BYTES} for each"
        );
        return Err(field_error(format!("{within}args"), problem));
    }
    Ok(())
}

/// The length of the program or of the shell line.
fn command_bytes(request: &CreateTerminalRequest) -> usize {
    match &request.command {
        Some(Command::Program(text) | Command::ShellLine(text)) => text.len(),
        Some(Command::ProgramBytes(bytes) | Command::ShellLineBytes(bytes)) => bytes.len(),
        None => 0,
    }
}

/// The program or the shell line; empty if the request has neither.
fn command_text(request: &CreateTerminalRequest) -> &str {
    match &request.command {
        Some(Command::Program(text) | Command::ShellLine(text)) => text,
        Some(Command::ProgramBytes(_) | Command::ShellLineBytes(_)) | None => "",
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
        Some(Command::Program(_) | Command::ProgramBytes(_) | Command::ShellLineBytes(_)) | None => {
            Ok(CommandSpec::Argv { command: text.to_owned(), args: request.args.clone() })
        }
    }
}

/// The command of a kept shell: its own arguments, so that it reads no start file.
fn kept_shell(within: &str, request: &CreateTerminalRequest) -> Result<(CommandSpec, ShellKind), FieldError> {
    let refused = |field: &str, problem: &str| Err(field_error(format!("{within}{field}"), problem));
    let Some(Command::Program(program)) = &request.command else {
        return refused("command", "must be a program for a kept shell");
    };
    let Some(kind) = ShellKind::of(program).filter(|_| !program.contains('\0')) else {
        return refused("command", "must be bash, zsh, fish, sh, dash, ksh or mksh for a kept shell");
    };
    if !request.args.is_empty() {
        return refused("args", "must be empty for a kept shell");
    }
    if request.pty.is_none() {
        return refused("pty", "must be set for a kept shell");
    }
    if request.stdin_mode == i32::from(StdinMode::Closed) {
        return refused("stdin_mode", "must not be closed for a kept shell");
    }
    let args = kind.arguments().iter().map(|&argument| argument.to_owned()).collect();
    Ok((CommandSpec::Argv { command: program.clone(), args }, kind))
}

/// What the idle fallback waits for when the caller does not say.
const DEFAULT_QUIET_LIMIT: Duration = Duration::from_secs(5);
/// The shortest that a caller may ask for.
const MIN_QUIET_LIMIT: Duration = Duration::from_millis(100);
/// The longest.
const MAX_QUIET_LIMIT: Duration = Duration::from_secs(3_600);

/// A line to be run. `answer_timeout` is how long the caller waits.
pub(crate) fn new_line(
    request: RunLineRequest,
    answer_timeout: Option<Duration>,
) -> Result<NewLine, FieldError> {
    checked_line(&request.line).map_err(|error| field_error("line", error.to_string()))?;
    let when_busy = match WhenBusyWord::try_from(request.when_busy) {
        Ok(WhenBusyWord::Unspecified | WhenBusyWord::Refuse) => WhenBusy::Refuse,
        Ok(WhenBusyWord::Queue) => WhenBusy::Queue,
        Err(_) => return Err(unknown_value("when_busy", request.when_busy)),
    };
    let on_ask = match OnAskWord::try_from(request.on_ask) {
        Ok(OnAskWord::Unspecified | OnAskWord::Wait) => OnAsk::Wait,
        Ok(OnAskWord::Refuse) => OnAsk::Refuse,
        Err(_) => return Err(unknown_value("on_ask", request.on_ask)),
    };
    let quiet_limit = time_limit("quiet_limit", request.quiet_limit)?.unwrap_or(DEFAULT_QUIET_LIMIT);
    if !(MIN_QUIET_LIMIT..=MAX_QUIET_LIMIT).contains(&quiet_limit) {
        return Err(field_error("quiet_limit", "must be 100 ms to 1 hour"));
    }
    Ok(NewLine { line: request.line, when_busy, on_ask, quiet_limit, answer_timeout })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(command: Command, args: &[&str]) -> CreateTerminalRequest {
        let args = args.iter().map(|&argument| argument.to_owned()).collect();
        CreateTerminalRequest { command: Some(command), args, ..Default::default() }
    }

    fn program_of(name: &str, args: &[&str]) -> CreateTerminalRequest {
        request(Command::Program(name.into()), args)
    }

    #[test]
    fn a_command_is_there_holds_no_nul_and_a_shell_line_has_no_arguments() {
        let field = |request| program("create.", &request).unwrap_err().field;
        assert_eq!(field(CreateTerminalRequest::default()), "create.command");
        assert_eq!(field(program_of("", &["a"])), "create.command");
        assert_eq!(field(program_of("a\0", &[])), "create.command");
        assert_eq!(field(program_of("a", &["b", "c\0d"])), "create.args[1]");
        assert_eq!(field(request(Command::ShellLine("a".into()), &["b"])), "create.args");
        let line = program("", &request(Command::ShellLine("a b".into()), &[]));
        assert!(matches!(&line, Ok(CommandSpec::ShellLine(line)) if line == "a b"), "{line:?}");
        let argv = program("", &program_of("a", &["b"]));
        let is_it =
            matches!(&argv, Ok(CommandSpec::Argv { command, args }) if command == "a" && args == &["b"]);
        assert!(is_it, "{argv:?}");
    }

    #[test]
    fn what_is_no_utf_8_comes_in_fields_of_its_own_and_once() {
        let bytes = |text: &[u8]| Bytes::copy_from_slice(text);
        let in_bytes = CreateTerminalRequest {
            command: Some(Command::ProgramBytes(bytes(b"./\xff"))),
            args_bytes: vec![bytes(b"plain"), bytes(b"\xfe")],
            cwd_bytes: bytes(b"/\xfd"),
            ..Default::default()
        };
        let read = in_texts("", in_bytes.clone()).unwrap();
        assert!(matches!(&read.command, Some(Command::Program(text)) if byte_text::shown(text) == "./\\xff"));
        assert_eq!(read.args[0], "plain");
        assert_eq!(*byte_text::to_bytes(&read.args[1]), b"\xfe"[..]);
        assert_eq!(*byte_text::to_bytes(&read.cwd), b"/\xfd"[..]);
        let field = |request| in_texts("create.", request).unwrap_err().field;
        let twice = CreateTerminalRequest { args: vec!["a".into()], ..in_bytes.clone() };
        assert_eq!(field(twice), "create.args_bytes");
        assert_eq!(field(CreateTerminalRequest { cwd: "/a".into(), ..in_bytes }), "create.cwd_bytes");
        // A character that stands for a byte is that character, where it was sent as text.
        let text = "\u{10ffff}";
        let sent = in_texts("", program_of(text, &[text])).unwrap();
        assert_eq!(*byte_text::to_bytes(&sent.args[0]), *text.as_bytes());
    }

    #[test]
    fn a_pseudo_terminal_has_one_term() {
        let pty = |term: &str| Some(Pty { term: term.into(), ..Default::default() });
        let own = || vec![EnvEntry::new("TERM".into(), "vt100".into()).unwrap()];
        let term = |env: Vec<EnvEntry>, pty| {
            let env = with_term("", env, pty).map_err(|error| error.field)?;
            let values =
                env.iter().filter(|entry| entry.name() == TERM).map(|entry| entry.value().to_owned());
            Ok::<_, String>(values.collect::<Vec<_>>().join(","))
        };
        assert_eq!(term(Vec::new(), None).unwrap(), "");
        assert_eq!(term(Vec::new(), pty("")).unwrap(), DEFAULT_TERM);
        assert_eq!(term(Vec::new(), pty("vt220")).unwrap(), "vt220");
        assert_eq!(term(own(), pty("")).unwrap(), "vt100");
        assert_eq!(term(own(), pty("vt220")).unwrap_err(), "pty.term");
        assert_eq!(term(Vec::new(), pty(&"t".repeat(NAME_MAX_BYTES))).unwrap().len(), NAME_MAX_BYTES);
        assert_eq!(term(Vec::new(), pty(&"t".repeat(NAME_MAX_BYTES + 1))).unwrap_err(), "pty.term");
    }

    #[test]
    fn a_kept_shell_is_a_known_shell_in_a_pseudo_terminal_and_nothing_else() {
        let whole = || CreateTerminalRequest { pty: Some(Pty::default()), ..program_of("bash", &[]) };
        let field = |request| kept_shell("", &request).map(|(_, kind)| kind).map_err(|error| error.field);
        assert_eq!(field(whole()).unwrap(), ShellKind::of("bash").unwrap());
        assert_eq!(field(CreateTerminalRequest { pty: None, ..whole() }).unwrap_err(), "pty");
        assert_eq!(field(CreateTerminalRequest { args: vec!["-i".into()], ..whole() }).unwrap_err(), "args");
        let closed = i32::from(StdinMode::Closed);
        assert_eq!(field(CreateTerminalRequest { stdin_mode: closed, ..whole() }).unwrap_err(), "stdin_mode");
        for command in [Command::Program("python3".into()), Command::Program("/bin\0/bash".into())] {
            let other = CreateTerminalRequest { command: Some(command), ..whole() };
            assert_eq!(field(other).unwrap_err(), "command");
        }
        let line = CreateTerminalRequest { command: Some(Command::ShellLine("bash".into())), ..whole() };
        assert_eq!(field(line).unwrap_err(), "command");
    }
}
