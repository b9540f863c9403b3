//! `provost shell-wrapper`, also started as `provost-shell`: takes the place of an agent's shell.
//!
//! Each call runs one line in the session of the agent that has started it, which the first call opens and which ends with the agent.
//! Without a gateway nothing runs: no shell of the host is ever started.
//!
//! The agent is found as far as /proc shows it. A shell that was only started to run one line (`sh -c LINE`) is not the agent: the process
//! that started it is. Nor is a process of another user, to whom nobody's session can be bound: cron(8), su(1) and login(1) stay root's.
//! There the outermost process of this user is the agent, down to this one itself.

use std::{
    ffi::OsString,
    fs,
    io::{self, IsTerminal},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use clap::Args;
use sha2::{Digest, Sha256};

use super::shell_call::{CarriedDirectory, ShellCall};
use crate::{
    cli::{
        console::{
            command_input::CommandInput,
            error::CliError,
            signals::TerminationSignals,
            stdio::{self, Input},
        },
        gateway_link::{
            approval_prompt::{self, AnswerWait},
            attached,
            connection::GatewayConnection,
        },
        request::{
            arguments::{EnvArgument, GatewayArguments},
            run_request::{named_current_directory, named_paths, real_paths, text},
        },
        run::{
            report::{RunEnd, RunReport},
            run::{ShortfallNotice, TerminalRelease, drive_with, no_input},
            run_attached,
            run_control::unless_interrupted,
        },
    },
    client::{self, FrontEnd},
    printable,
    proto::v1::{self, ProcessIdentity},
    sys::process::{parent_of, real_uid_of, start_ticks},
};

/// The name under which the program is a shell.
pub(in crate::cli) const SHELL_NAME: &str = "provost-shell";

/// Variables that are passed on: they describe the language and the place, and name no program and no file.
const PASSED_ON: [&str; 5] = ["LANG", "LANGUAGE", "TZ", "NO_COLOR", "CI"];
/// And all that begin so.
const PASSED_ON_PREFIX: &str = "LC_";
/// Set by Claude Code for what it runs.
const CLAUDE_VARIABLE: &str = "CLAUDECODE";
/// Bytes of output of the command that reads where a line has ended.
const DIRECTORY_OUTPUT_BYTES: u64 = 8_192;

/// `provost shell-wrapper`.
#[derive(Debug, Args)]
#[command(
    about = "Take the place of an agent's shell: run its lines in a sandbox",
    long_about = "Takes the arguments of a shell (`-c LINE`, or one argument, the line) and runs the line in a session of \
                  a running gateway. The first call opens the session, and all calls of one agent share it; it ends when \
                  the agent does. The agent is the process that started this one, or the one that started its `sh -c`. \
                  Working directory, stdin, output, window size and exit status are passed on, signals as by `provost \
                  run`, and of the environment LANG, LANGUAGE, LC_*, TZ, NO_COLOR and CI. Without a gateway nothing runs, and the status \
                  is 125. The program is the same under the name provost-shell, which takes no options of its own: \
                  set the variables.",
    after_help = "Exit status:\n  as of `provost run`\n\n\
                  Examples:\n  \
                  ln -s \"$(command -v provost)\" ~/.local/bin/provost-shell\n  \
                  SHELL=~/.local/bin/provost-shell some-agent\n  \
                  CLAUDE_CODE_SHELL_PREFIX=~/.local/bin/provost-shell claude"
)]
pub(in crate::cli) struct ShellWrapperArguments {
    #[command(flatten)]
    gateway: GatewayArguments,
    /// Confine the lines by this profile of the policy; default: the policy's default profile
    #[arg(long, value_name = "NAME", env = "PROVOST_SHELL_PROFILE")]
    profile: Option<String>,
    /// Let lines write to this directory; may be given several times, in the variable separated by colons; default: the git
    /// repository around the agent's working directory, else that directory
    #[arg(long, value_name = "DIR", env = "PROVOST_SHELL_ROOT", value_delimiter = ':')]
    root: Vec<PathBuf>,
    /// Pass on these variables, too, if they are set here; may be given several times, in the variable separated by commas
    #[arg(long, value_name = "NAME", env = "PROVOST_SHELL_ENV", value_delimiter = ',', value_parser = EnvArgument::parser())]
    env: Vec<EnvArgument>,
    /// The shell that runs the lines in the sandbox
    #[arg(long, value_name = "SHELL", env = "PROVOST_SHELL_PROGRAM", default_value = "bash")]
    shell: String,
    /// The arguments of the shell
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "-c LINE | LINE | ARG")]
    arguments: Vec<OsString>,
}

/// Runs the line and returns its exit status.
pub(in crate::cli) async fn run(arguments: ShellWrapperArguments) -> Result<u8, CliError> {
    let mut signals = TerminationSignals::install_for_command()
        .map_err(|error| CliError::caused_by("cannot take signals", error))?;
    let agent = AgentProcess::find()?;
    let named = named_paths(&arguments.root)?;
    let (mut create, carried) = request(&arguments, &real_paths(&named)?)?;
    let workspace = workspace(&agent, named, &arguments)?;
    create.session_name.clone_from(&workspace.name);
    let input = if create.pty.is_some() { Input::Forwarded } else { Input::of_stdin() };
    create.stdin_mode = match input {
        Input::Forwarded => v1::StdinMode::Open,
        Input::Empty => v1::StdinMode::Closed,
    }
    .into();
    let input = match create.pty {
        Some(_) => CommandInput::keys(input),
        None => CommandInput::open(input).map_err(no_input)?,
    };
    let search = GatewayConnection::find_giving(arguments.gateway.gateway.as_deref(), input.given());
    let connection = match unless_interrupted(&mut signals, search).await {
        Ok(found) => found?,
        Err(signal) => return Ok(RunEnd::interrupted_by(signal).exit_status),
    };
    let ended = in_agents_session(&connection, workspace, create, &input, &mut signals)
        .await
        .map_err(|failure| approval_prompt::advise(failure, AnswerWait::Never))?;
    let status = RunReport::of_line().print_end(&ended);
    if let (Some(carried), 0) = (carried, status) {
        carry(&connection, &carried, &ended).await;
    }
    Ok(status)
}

/// Runs the command in the agent's session. The session is opened when there is none, which the first answer says.
async fn in_agents_session(
    connection: &GatewayConnection,
    workspace: v1::CreateSessionRequest,
    create: v1::CreateTerminalRequest,
    input: &CommandInput,
    signals: &mut TerminationSignals,
) -> Result<RunEnd, CliError> {
    match drive(connection, create.clone(), input, ShortfallNotice::Omitted, signals).await {
        Err(failure) if failure.reason == "SESSION_NOT_FOUND" => {}
        ended => return ended,
    }
    let mut sessions = connection.client().sessions;
    match unless_interrupted(signals, sessions.create_session(workspace)).await {
        Ok(opened) => drop(opened?),
        Err(signal) => return Ok(RunEnd::interrupted_by(signal)),
    }
    drive(connection, create, input, ShortfallNotice::Printed, signals).await
}

/// Runs the command, and leaves nothing of it in the session, which goes on.
async fn drive(
    connection: &GatewayConnection,
    create: v1::CreateTerminalRequest,
    input: &CommandInput,
    notice: ShortfallNotice,
    signals: &mut TerminationSignals,
) -> Result<RunEnd, CliError> {
    let is_pty = create.pty.is_some();
    let ended = drive_with(connection, create, (input, notice), TerminalRelease::ByCall, signals).await?;
    if let (true, Some(terminal)) = (is_pty, &ended.terminal) {
        let request = v1::ReleaseTerminalRequest { terminal_id: terminal.id.clone(), ..Default::default() };
        // What is not released here goes with the session.
        let _ = connection.client().terminals.release_terminal(request).await;
    }
    Ok(ended)
}

/// The command, in this process's directory or the workspace's, and what is to be carried from its end.
fn request(
    arguments: &ShellWrapperArguments,
    roots: &[PathBuf],
) -> Result<(v1::CreateTerminalRequest, Option<CarriedDirectory>), CliError> {
    let mut call = ShellCall::of(arguments.arguments.iter().map(text).collect());
    let carried = match &mut call {
        ShellCall::Line(line) if std::env::var_os(CLAUDE_VARIABLE).is_some() => {
            CarriedDirectory::take_from(line)
        }
        ShellCall::Line(_) | ShellCall::Arguments(_) => None,
    };
    let is_at_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let directory = start_directory(roots, is_at_terminal)?;
    let create = v1::CreateTerminalRequest {
        command: Some(v1::create_terminal_request::Command::Program(arguments.shell.clone())),
        args: call.into_arguments(),
        env: passed_on(&arguments.env)?,
        cwd: text(directory),
        profile: arguments.profile.clone().unwrap_or_default(),
        output_mode: stdio::output_mode().into(),
        overflow: v1::Overflow::Block.into(),
        on_ask: v1::OnAsk::Refuse.into(),
        ..client::new_terminal()
    };
    let create = match attached::own_window().filter(|_| is_at_terminal) {
        Some(window) => run_attached::in_pty(create, window),
        None => create,
    };
    Ok((client::terminal_in_bytes(create), carried))
}

/// Where the command starts: where this process is, or in the first of the named directories if that is in none of them.
///
/// A login server and cron start a shell in the person's home or in `/`, which nobody has chosen and whose programs (scp, rsync, git)
/// read what is said: it is said to a person at a terminal alone. Another directory was chosen, and it is said to the caller who did.
fn start_directory(roots: &[PathBuf], is_at_terminal: bool) -> Result<PathBuf, CliError> {
    let here = std::env::current_dir();
    let Some(first) = roots.first() else {
        return here.map_err(|error| CliError::caused_by("cannot find the working directory", error));
    };
    let here = match here {
        Ok(here) if roots.iter().any(|root| here.starts_with(root)) => return Ok(here),
        here => here.ok(),
    };
    let home = std::env::var_os("HOME").and_then(|home| Path::new(&home).canonicalize().ok());
    let is_chosen =
        here.as_deref().is_some_and(|here| here != Path::new("/") && Some(here) != home.as_deref());
    if is_at_terminal || is_chosen {
        let here = here.as_deref().map_or("the working directory, which is gone,".into(), printable::path);
        stdio::print_notice(&format!(
            "{here} lies outside the workspace: the shell starts in {}",
            printable::path(first)
        ));
    }
    Ok(first.clone())
}

fn passed_on(named: &[EnvArgument]) -> Result<Vec<v1::EnvVar>, CliError> {
    let is_passed = |name: &str| PASSED_ON.contains(&name) || name.starts_with(PASSED_ON_PREFIX);
    let usual = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
    let mut env: Vec<v1::EnvVar> = usual
        .filter(|(name, _)| is_passed(name))
        .map(|(name, value)| v1::EnvVar { name, value, ..Default::default() })
        .collect();
    for variable in named {
        if let Some((name, value)) = variable.clone().resolve() {
            env.retain(|other| other.name != name);
            env.push(v1::EnvVar { name, value, ..Default::default() });
        }
    }
    Ok(env)
}

/// The session of the agent's lines. Its name tells it from those of other agents, workspaces and profiles.
fn workspace(
    agent: &AgentProcess,
    named: Vec<PathBuf>,
    arguments: &ShellWrapperArguments,
) -> Result<v1::CreateSessionRequest, CliError> {
    // One session, whichever links its callers have come by.
    let (identity, roots, extent) = match named {
        named if named.is_empty() => {
            let directory = agent.directory().map_err(|error| {
                CliError::caused_by("cannot find the agent's working directory", error)
                    .with_advice("name the workspace by --root or PROVOST_SHELL_ROOT")
            })?;
            (vec![directory.clone()], vec![by_own_name(directory)], v1::WorkspaceExtent::Repository)
        }
        named => (named.clone(), named, v1::WorkspaceExtent::Unspecified),
    };
    let identity: Vec<String> = identity.iter().map(text).collect();
    let roots: Vec<String> = roots.iter().map(text).collect();
    let profile = arguments.profile.clone().unwrap_or_default();
    let mut digest = Sha256::new();
    for part in identity.iter().chain([&profile]) {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    let digest: String = digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let v1::ProcessIdentity { pid, start_ticks } = agent.identity;
    Ok(FrontEnd::Shell.sign(client::session_in_bytes(v1::CreateSessionRequest {
        roots,
        extent: extent.into(),
        profile,
        lifetime: v1::Lifetime::OwnerProcess.into(),
        owner_process: Some(agent.identity),
        name: format!("shell-{pid}-{start_ticks}-{digest}"),
        labels: [("shell.agent".to_owned(), agent.program.clone())].into(),
        ssh_agent: client::ssh_agent_socket(),
        ..Default::default()
    })))
}

/// The agent's directory by the name that this process's caller has for it, where links lead to it: this process starts in it or below.
fn by_own_name(directory: PathBuf) -> PathBuf {
    let named = || {
        let below = std::env::current_dir().ok()?.strip_prefix(&directory).ok()?.to_owned();
        let here = named_current_directory().ok()?;
        let named = here.ancestors().nth(below.components().count())?.to_owned();
        (here.ends_with(below) && named.canonicalize().ok()? == directory).then_some(named)
    };
    named().unwrap_or(directory)
}

/// Reads where the line has ended, and writes it for the agent. An agent that learns nothing stays where it was.
async fn carry(connection: &GatewayConnection, carried: &CarriedDirectory, ended: &RunEnd) {
    let client = connection.client();
    let Some(session_id) = ended.terminal.as_ref().map(|terminal| terminal.session_id.clone()) else {
        return;
    };
    let (mut sessions, asked) = (client.sessions, v1::GetSessionRequest { session_id: session_id.clone() });
    let create = v1::CreateTerminalRequest {
        session_id,
        command: Some(carried.reading()),
        output_mode: v1::OutputMode::Split.into(),
        output_byte_limit: Some(DIRECTORY_OUTPUT_BYTES),
        stdin_mode: v1::StdinMode::Closed.into(),
        on_ask: v1::OnAsk::Refuse.into(),
        profile: ended.terminal.as_ref().map(|terminal| terminal.profile.clone()).unwrap_or_default(),
        ..client::new_terminal()
    };
    let delivered = async {
        let session = sessions.get_session(asked).await?.into_inner().session.unwrap_or_default();
        let printed = stdout_of(client.terminals, create).await?;
        let roots: Vec<String> = session.roots.into_iter().chain(session.read_only_roots).collect();
        carried
            .deliver(&printed, &roots)
            .map_err(|error| CliError::caused_by("cannot write the agent's file", error))
    };
    if let Err(failure) = delivered.await {
        stdio::print_notice(&format!("the agent does not learn of the directory: {failure}"));
    }
}

async fn stdout_of(
    mut terminals: crate::cli::gateway_link::connection::Terminals,
    create: v1::CreateTerminalRequest,
) -> Result<Vec<u8>, CliError> {
    use v1::run_response::Event;
    let request = v1::RunRequest { create: Some(create), resumable: false };
    let mut events = terminals.run(request).await?.into_inner();
    let mut printed = Vec::new();
    while let Some(response) = events.message().await? {
        if let Some(Event::Chunk(chunk)) = response.event
            && chunk.stream() == v1::OutputStream::Stdout
            && printed.len() < DIRECTORY_OUTPUT_BYTES as usize
        {
            printed.extend_from_slice(&chunk.data);
        }
    }
    Ok(printed)
}

/// How many shells may stand between the agent and this process.
const SHELLS_MAX: usize = 8;
/// The programs that run a line for another program.
const SHELLS: [&str; 10] = ["sh", "bash", "dash", "zsh", "fish", "ksh", "mksh", "ash", "busybox", "rbash"];

/// The agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AgentProcess {
    /// Its number, and when it started.
    pub(in crate::cli) identity: ProcessIdentity,
    /// The name of its program, as it was started.
    pub(in crate::cli) program: String,
}

impl AgentProcess {
    /// The agent of this process.
    pub(in crate::cli) fn find() -> Result<Self, CliError> {
        let unseen = |error| CliError::caused_by("cannot see the process that has started this one", error);
        let own = nix::unistd::getuid().as_raw();
        let is_own = |pid: i32| real_uid_of(pid).map(|uid| pid > 0 && uid == Some(own)).map_err(unseen);
        let mut pid = std::process::id().cast_signed();
        let mut words: Vec<String> =
            std::env::args_os().take(1).map(|name| name.to_string_lossy().into_owned()).collect();
        for _ in 0..=SHELLS_MAX {
            let parent = parent_of(pid).map_err(unseen)?.unwrap_or_default();
            if !is_own(parent)? {
                break;
            }
            pid = parent;
            words = command_line(pid).map_err(unseen)?;
            if !runs_one_line(&words) {
                break;
            }
        }
        let program = words.first().map(|word| base_name(word).to_owned());
        let start_ticks = start_ticks(pid).map_err(unseen)?;
        match start_ticks {
            Some(start_ticks) if pid > 0 => Ok(Self {
                identity: ProcessIdentity { pid, start_ticks },
                program: program.unwrap_or_default(),
            }),
            Some(_) | None => {
                Err(CliError::message_only("the process that has started this one is gone".to_owned()))
            }
        }
    }

    /// Where it works.
    pub(in crate::cli) fn directory(&self) -> io::Result<std::path::PathBuf> {
        fs::read_link(format!("/proc/{}/cwd", self.identity.pid))
    }
}

/// The arguments of a process; none when it has ended, or is the kernel's.
fn command_line(pid: i32) -> io::Result<Vec<String>> {
    let bytes = match fs::read(format!("/proc/{pid}/cmdline")) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let words = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|byte| *byte == 0);
    Ok(words.map(|word| String::from_utf8_lossy(word).into_owned()).collect())
}

/// `sh -c LINE`, `bash -lc LINE` and their kind.
fn runs_one_line(words: &[String]) -> bool {
    let Some((program, arguments)) = words.split_first() else { return false };
    let options = arguments.iter().take_while(|word| word.starts_with('-'));
    let has_line = options.filter(|word| !word.starts_with("--")).any(|word| word.contains('c'));
    has_line && SHELLS.contains(&base_name(program).trim_start_matches('-'))
}

fn base_name(program: &str) -> &str {
    let name = Path::new(program).file_name().map(|name| std::str::from_utf8(name.as_bytes()));
    name.and_then(Result::ok).unwrap_or(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_the_agent_unless_it_runs_one_line() {
        let runs =
            |words: &[&str]| runs_one_line(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
        assert!(runs(&["/bin/bash", "-c", "-l", "provost-shell 'x'"]));
        assert!(runs(&["-zsh", "-lc", "x"]));
        for agent in [
            &["bash"][..],
            &["bash", "agent.sh", "-c"],
            &["bash", "--rcfile"],
            &["node", "-c", "x"],
            &["python3", "-c", "x"],
            &[],
        ] {
            assert!(!runs(agent), "{agent:?}");
        }
    }

    #[test]
    fn the_agent_of_a_test_is_the_program_that_runs_it() {
        let agent = AgentProcess::find().unwrap();
        assert!(agent.identity.pid > 0 && agent.identity.start_ticks > 0, "{agent:?}");
        assert!(agent.directory().unwrap().is_absolute());
    }
}
