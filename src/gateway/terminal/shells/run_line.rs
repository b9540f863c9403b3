//! Runs a line in a kept shell: takes its turn, judges it, records it, and has it driven.
//!
//! The shell outlives the caller, and so does the line. Policy judges each line before it is typed, and the gate each exec of it: without
//! a gate no line is run.

use std::{path::Path, sync::Arc, time::Duration};

use tokio::sync::{oneshot, watch};

use crate::{
    journal::Record,
    kept_shell::ShellKind,
    policy::{
        AbsPath, CommandSpec, OverflowMode, Permit, Request, StdinSource,
        command::shell::{Dialect, Word, parse},
        profile::{CgroupLimits, Network},
    },
    sandbox::control::{gate::SandboxGate, handle::Sandbox, requests::GateLine},
    terminal::{
        approvals::CallerGuard,
        control::{self, EndOfInput},
        errors::{CreateError, OperationError, RunLineError},
        kept_shell::{KeptShell, NoTurn, ShellKnowledge, Turn},
        permit, records,
        shells::{
            driver::{self, LineDriver, PromptState},
            running_line::{LineProgress, RunningLine},
        },
        spec::{OnAsk, ReaderKind, Requested, WhenLeft},
        stage::Stage,
        state::Terminal,
        terminals::Terminals,
    },
};

/// What a line does while another one runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenBusy {
    /// It is refused.
    Refuse,
    /// It waits.
    Queue,
}

/// A line to be run.
#[derive(Debug)]
pub(crate) struct NewLine {
    /// Not empty, not too long, no NUL.
    pub line: String,
    /// See [`WhenBusy`].
    pub when_busy: WhenBusy,
    /// What becomes of it when a rule asks a person.
    pub on_ask: OnAsk,
    /// How long the shell must wait for input, without output, to count as idle if marks are missing.
    pub quiet_limit: Duration,
    /// How long the caller waits for a person's answer; absent: as long as it takes.
    pub answer_timeout: Option<Duration>,
}

/// What a kept shell does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShellActivity {
    /// It is at its prompt.
    Idle,
    /// A line runs, or something that others have typed.
    Busy,
    /// The same, and it waits for input.
    WaitingForInput,
    /// The shell has ended.
    Ended,
}

/// A kept shell at this moment.
#[derive(Debug)]
pub(crate) struct ShellStatus {
    /// What it does.
    pub activity: ShellActivity,
    /// The directory that it named last; empty: none.
    pub cwd: String,
    /// The line that runs.
    pub line_id: Option<String>,
    /// How many lines wait.
    pub queued: u32,
}

/// The kept shell of a terminal.
fn shell_of(terminal: &Terminal) -> Result<&KeptShell, OperationError> {
    terminal.kept_shell.as_ref().ok_or(OperationError::NotAKeptShell)
}

impl Terminals {
    /// Runs a line. Returns when the shell is about to begin it.
    pub(crate) async fn run_line(
        self: &Arc<Self>,
        terminal: &Arc<Terminal>,
        new: NewLine,
    ) -> Result<RunningLine, RunLineError> {
        let shell = shell_of(terminal)?;
        let sandbox = terminal.running().await?;
        check_sandbox(terminal, &sandbox)?;
        if shell.kind == ShellKind::Bash && switches_line_editing(&new.line) {
            return Err(RunLineError::LineEditing);
        }
        let turn = match new.when_busy {
            WhenBusy::Refuse => shell.try_turn(),
            WhenBusy::Queue => shell.wait_turn().await,
        };
        let turn = turn.map_err(|none| match none {
            NoTurn::Taken => RunLineError::Busy,
            NoTurn::QueueFull => RunLineError::QueueFull,
        })?;
        let _not_begun = shell.begin_line();
        // The gate may have been lost meanwhile.
        check_sandbox(terminal, &sandbox)?;
        let line = self.permit_line(terminal, shell.kind, &sandbox, &new).await?;
        // From here on the caller may go away.
        let (begun, has_begun) = oneshot::channel();
        let (terminal, of) = (terminal.clone(), terminal.clone());
        tokio::spawn(async move {
            let (progress, followed) = watch::channel(LineProgress::default());
            let Some(shell) = &terminal.kept_shell else { return };
            let begin =
                LineDriver::begin(terminal.clone(), shell, turn, &new.line, new.quiet_limit, progress);
            let over = async {
                // A gate that is gone lets nothing run.
                let _ = sandbox.end_line(line).await;
            };
            match begin.await {
                Ok(driver) => {
                    let _ = begun.send(Ok((driver.id().to_owned(), followed)));
                    driver.drive(over).await;
                }
                Err(error) => {
                    over.await;
                    drop(begun.send(Err(error)));
                }
            }
        });
        // Its task neither panics nor is aborted.
        let (id, followed) = has_begun.await.map_err(|_| OperationError::Ended)??;
        Ok(RunningLine::new(of, id, followed))
    }

    /// Gets a permit for a line, records that it may run, and tells the gate.
    async fn permit_line(
        self: &Arc<Self>,
        terminal: &Arc<Terminal>,
        kind: ShellKind,
        sandbox: &Sandbox,
        new: &NewLine,
    ) -> Result<GateLine, RunLineError> {
        if self.is_draining() {
            return Err(CreateError::Draining.into());
        }
        let session = &terminal.session;
        let _entered = session.enter().ok_or(CreateError::SessionClosing)?;
        let request = self.request_of(terminal, kind, &new.line)?;
        let mut requested = Requested {
            session: session.clone(),
            request,
            labels: terminal.spec.labels.clone(),
            kept_shell: None,
            reader: ReaderKind::Stream,
            when_left: WhenLeft::RunsOn,
            request_id: None,
            on_ask: new.on_ask,
            answer_timeout: new.answer_timeout,
            given_input: None,
        };
        let (caller, _guard) = CallerGuard::begin(new.answer_timeout);
        let permitted = self.permit(&mut requested, &caller).await;
        let (permit, mut decision) = permitted.inspect_err(|_| self.counters.refused.inc())?;
        check_effects(terminal, &permit).inspect_err(|_| self.counters.refused.inc())?;
        let bytes = permit::command_bytes(&requested.request);
        self.recorder.check_share(session.principal, bytes).map_err(CreateError::from)?;
        decision.terminal = Some(terminal.id.to_string());
        let mut decision = Record::Decision(decision);
        self.known_secrets.redactor(&self.policy.current()).redact(&mut decision);
        terminal.record_before([&decision]).await.map_err(CreateError::from)?;
        let shell = terminal.live().map(|live| live.started.pid).ok_or(OperationError::Ended)?;
        let (id, principal) = (terminal.id.to_string(), session.principal.to_string());
        let line = GateLine::new(id, shell, &permit, principal, session.labels.clone());
        sandbox.begin_line(&line).await.map_err(|_| RunLineError::NoGate)?;
        Ok(line)
    }

    /// The line as a request of its own, which has what the shell has.
    fn request_of(&self, terminal: &Terminal, kind: ShellKind, line: &str) -> Result<Request, RunLineError> {
        let (session, spec) = (&terminal.session, &terminal.spec);
        let started_in = AbsPath::parse(&spec.cwd).map_err(|_| OperationError::Ended)?;
        // What the shell says can only choose between the caller's own directories; the gate sees the real one.
        let cwd = terminal.kept_shell.as_ref().and_then(|shell| AbsPath::parse(&shell.cwd()).ok());
        let cwd = cwd.filter(|cwd| session.roots.iter().any(|root| cwd.is_within(root)));
        let policy = self.policy.current();
        let profile = policy.profile(Some(spec.profile.as_str())).map(|(_, profile)| profile.shell.clone());
        let is_profile_shell = profile.as_deref().is_some_and(|shell| shell == Path::new(&spec.command));
        let command = match is_profile_shell {
            true => CommandSpec::ShellLine(line.to_owned()),
            // For the grammar of this shell.
            false => CommandSpec::Argv {
                command: spec.command.clone(),
                args: vec!["-c".to_owned(), line.to_owned()],
            },
        };
        tracing::debug!(terminal.id = %terminal.id, shell = kind.name(), "a line is judged");
        Ok(Request {
            labels: Arc::new(session.labels.clone()),
            session_env: session.env.clone(),
            profile: Some(spec.profile.to_string()),
            network: Network::from_name(spec.network),
            streams: spec.streams,
            stdin: StdinSource::Open,
            overflow: OverflowMode::DropOldest,
            ..Request::plain(
                session.principal.to_string(),
                session.roots.clone(),
                cwd.unwrap_or(started_in),
                command,
            )
        })
    }
}

impl Terminal {
    /// Writes to what a line runs.
    pub(crate) async fn write_line_input(
        &self,
        line_id: &str,
        data: prost::bytes::Bytes,
        end: EndOfInput,
    ) -> Result<(), OperationError> {
        if shell_of(self)?.line_id().as_deref() != Some(line_id) {
            return Err(OperationError::LineOver);
        }
        self.write_stdin(None, data, end).await.map(drop)
    }

    /// Sends SIGINT to what runs in the foreground of a kept shell.
    pub(crate) async fn interrupt_line(&self) -> Result<(), OperationError> {
        let shell = shell_of(self)?;
        let sandbox = self.running().await?;
        self.recorder.record_or_count(&records::signal_sent(self.subject(), libc::SIGINT));
        control::answered(sandbox.signal_foreground(self.id.to_string(), libc::SIGINT).await)?;
        shell.set_interrupted();
        if let Ok(turn) = shell.try_turn() {
            prepare_again(turn);
        }
        Ok(())
    }

    /// What a kept shell does.
    pub(crate) async fn shell_status(self: &Arc<Self>) -> Result<ShellStatus, OperationError> {
        let shell = shell_of(self)?;
        let line_id = shell.line_id();
        let activity = match self.wait_settled().await {
            Stage::Finished(_) | Stage::Released(_) => ShellActivity::Ended,
            Stage::Created | Stage::Running => match driver::foreground(self).await {
                Err(OperationError::Ended) => ShellActivity::Ended,
                Err(error) => return Err(error),
                Ok(_) if line_id.is_none() && shell.has_line_to_begin() => ShellActivity::Busy,
                Ok(foreground) if line_id.is_none() && foreground.is_leader => {
                    match driver::prompt_state(self).await {
                        PromptState::NoMarks | PromptState::AtPrompt => ShellActivity::Idle,
                        PromptState::Elsewhere if foreground.is_reading => ShellActivity::WaitingForInput,
                        PromptState::Answered | PromptState::Elsewhere => ShellActivity::Busy,
                    }
                }
                Ok(foreground) if foreground.is_reading => ShellActivity::WaitingForInput,
                Ok(_) => ShellActivity::Busy,
            },
        };
        Ok(ShellStatus { activity, cwd: shell.cwd(), line_id, queued: shell.queued() })
    }
}

/// A shell whose prompt did not come back writes its marks again after an interrupt.
fn prepare_again(mut turn: Turn) {
    if *turn == ShellKnowledge::Unknown {
        *turn = ShellKnowledge::Unprepared;
    }
}

fn check_sandbox(terminal: &Terminal, sandbox: &Sandbox) -> Result<(), RunLineError> {
    match sandbox.gate() {
        SandboxGate::Linked(gate) if gate.is_up() => {}
        SandboxGate::Linked(_) | SandboxGate::None | SandboxGate::Lost => return Err(RunLineError::NoGate),
    }
    if terminal.live().is_some_and(|live| live.masker.masks_any()) {
        return Err(RunLineError::HasSecrets);
    }
    if !sandbox.reports_foreground() {
        return Err(RunLineError::EarlierBuild);
    }
    Ok(())
}

/// What the rules give a command with its start cannot be given to a line in a shell that runs.
fn check_effects(terminal: &Terminal, permit: &Permit) -> Result<(), RunLineError> {
    let (spec, of_shell) = (permit.spec(), &terminal.spec);
    let (effects, times) = (spec.effects(), &of_shell.time_limits);
    // A shell that must end by then ends its lines, too.
    let is_shorter = |limit: Option<Duration>, shells: Option<Duration>| {
        limit.is_some_and(|limit| shells.is_none_or(|shells| limit < shells))
    };
    let needed = [
        ("profile", *spec.profile_name() != of_shell.profile),
        ("network", spec.network().name() != of_shell.network),
        ("secrets", !spec.secrets().is_empty()),
        ("environment", !effects.environment.is_empty()),
        ("time_limit", is_shorter(effects.time_limit, times.limit)),
        ("idle_limit", is_shorter(effects.idle_limit, times.idle)),
        ("limits", effects.limits != CgroupLimits::default()),
    ];
    let needed: Vec<_> = needed.into_iter().filter_map(|(name, is)| is.then_some(name)).collect();
    match needed.is_empty() {
        true => Ok(()),
        false => Err(RunLineError::OtherTerminal(needed)),
    }
}

/// The options that are line editing.
const MODES: [&str; 2] = ["vi", "emacs"];

/// Whether a line of bash switches line editing on or off: while bash evaluates a line, it dies of that.
///
/// It then reads on from another input in the middle of the line (`set_edit_mode` of its set.def), through a pointer that is not
/// set. What the parser of lines cannot see does the same; the call then says that the shell has ended. In a file that a line
/// reads it is harmless.
pub(in crate::terminal) fn switches_line_editing(line: &str) -> bool {
    parse(line, Dialect::Bash).commands.iter().any(|command| {
        let words: Vec<_> =
            command.words.iter().map(|word| Word::literal(word).unwrap_or_default()).collect();
        switches(&words)
    })
}

fn switches(words: &[&str]) -> bool {
    match words {
        ["builtin" | "command", "-p" | "--", rest @ ..] | ["builtin" | "command", rest @ ..] => {
            switches(rest)
        }
        ["set", options @ ..] => set_switches(options),
        ["shopt", options @ ..] => {
            let has = |flag| options.iter().any(|option| option.starts_with('-') && option.contains(flag));
            has('o') && (has('s') || has('u')) && options.iter().any(|option| MODES.contains(option))
        }
        _ => false,
    }
}

/// `-o NAME`, `+o NAME`, also as `-eo NAME`.
fn set_switches(options: &[&str]) -> bool {
    let mut takes_name = false;
    for option in options {
        if takes_name && MODES.contains(option) {
            return true;
        }
        let is_name = std::mem::take(&mut takes_name);
        if option.starts_with(['-', '+']) && *option != "--" {
            takes_name = option.contains('o');
        } else if !is_name {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_switches_line_editing_is_found() {
        for line in [
            "set -o vi",
            "set -o emacs",
            "set +o emacs",
            "cd src && set -e -o pipefail -o vi",
            "set -euo pipefail -o vi",
            "set -eo vi",
            "if true; then set -o \"vi\"; fi",
            "edit() { \\set -o vi; }",
            "builtin set -o vi",
            "command -p set -o emacs",
            "shopt -s -o vi",
            "shopt -so emacs",
            "shopt -u -o emacs",
        ] {
            assert!(switches_line_editing(line), "{line}");
        }
    }

    #[test]
    fn what_only_names_it_is_not() {
        for line in [
            "set -o",
            "set -euo pipefail",
            "set -- -o vi",
            "set vi emacs",
            "vi file; emacs file",
            "echo 'set -o vi' >>~/.inputrc",
            "echo set -o vi",
            "shopt -o vi",
            "shopt -s extglob",
            "bash -c 'set -o vi'",
            "git config core.editor vi",
        ] {
            assert!(!switches_line_editing(line), "{line}");
        }
    }
}
