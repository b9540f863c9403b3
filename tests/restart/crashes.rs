//! A crash at each step of a session's and a command's life: afterwards everything is as if the step had been taken,
//! or had not; never both, and never half.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{
    restart::{
        alone::each_its_own,
        lines::{Until, must_be_whole, starts, stop},
        lost::kill_sandboxes,
    },
    support::{
        Attack, Caller, Gateway, Terminal,
        api::{self, CloseSessionRequest, CreateSessionRequest, CreateTerminalRequest, TerminalState},
        code, new_workspace, within,
    },
};

/// How far a caller came before the gateway was gone.
#[derive(Debug, Default)]
struct Seen {
    session: Option<String>,
    terminal: Option<String>,
    outcome: Option<api::Outcome>,
}

/// What a caller asks for: the same requests, whichever gateway serves them.
struct Wishes {
    workspace: PathBuf,
    until: Until,
}

const NAME: &str = "witness";
const CODE: u32 = 7;

impl Wishes {
    fn new(gateway: &Gateway, until: Until) -> Self {
        let workspace = new_workspace(gateway, None);
        Attack::compiled("lines").placed_in(&workspace);
        Self { workspace, until }
    }

    fn session(&self) -> CreateSessionRequest {
        CreateSessionRequest {
            roots: vec![self.workspace.display().to_string()],
            request_id: "the session".into(),
            ..CreateSessionRequest::default()
        }
    }

    fn terminal(&self, session_id: &str) -> CreateTerminalRequest {
        let count = match self.until {
            Until::Lines(count) => count,
            Until::Stopped => 0,
        };
        CreateTerminalRequest {
            session_id: session_id.to_owned(),
            request_id: "the terminal".into(),
            command: Some(api::create_terminal_request::Command::Program(
                self.workspace.join("lines").display().to_string(),
            )),
            args: vec![NAME.into(), count.to_string(), "20".into(), CODE.to_string()],
            ..CreateTerminalRequest::default()
        }
    }

    /// Everything that a caller does with a terminal, until the gateway does not answer any more.
    async fn tell(&self, caller: &mut Caller, seen: &mut Seen, ending: Ending) -> Result<(), tonic::Status> {
        let session = within("a session", caller.sessions.create_session(self.session()))
            .await?
            .into_inner()
            .session
            .expect("it is set")
            .id;
        seen.session = Some(session.clone());
        let terminal = within("a terminal", caller.terminals.create_terminal(self.terminal(&session)))
            .await?
            .into_inner()
            .terminal
            .expect("it is set");
        seen.terminal = Some(terminal.id.clone());
        let named = api::WaitForExitRequest { terminal_id: terminal.id.clone(), ..Default::default() };
        if ending == Ending::Kill {
            within("its start", async {
                while starts(&self.workspace, NAME) == 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
            .await;
            let kill = api::KillTerminalRequest { terminal_id: terminal.id.clone(), ..Default::default() };
            within("a kill", caller.terminals.kill_terminal(kill)).await?;
        }
        if ending != Ending::Release {
            let ended = within("the end", caller.terminals.wait_for_exit(named)).await?.into_inner();
            seen.outcome = ended.outcome;
        }
        let release = api::ReleaseTerminalRequest { terminal_id: terminal.id, ..Default::default() };
        within("a release", caller.terminals.release_terminal(release)).await?;
        let close = CloseSessionRequest { session_id: session };
        within("a close", caller.sessions.close_session(close)).await?;
        Ok(())
    }
}

/// What ends the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Itself,
    Kill,
    Release,
}

/// How much of the terminal must be there after the crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// The terminal, once.
    Terminal,
    /// The terminal, or nothing of it.
    PerhapsTerminal,
}

/// Where the command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Isolation {
    Session,
    Terminal,
}

/// What becomes of the sandboxes while there is no gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sandboxes {
    GoOn,
    Die,
}

async fn crash_at(point: &str, ending: Ending, left: Left, isolation: Isolation, sandboxes: Sandboxes) {
    let gateway = match isolation {
        Isolation::Session => Gateway::start(),
        Isolation::Terminal => Gateway::with_policy(each_its_own),
    };
    let until = if ending == Ending::Itself { Until::Lines(3) } else { Until::Stopped };
    let wishes = Wishes::new(&gateway, until);
    gateway.crash();
    gateway.start_again_with(&[("PROVOST_CRASH_AT", point)]);
    let mut seen = Seen::default();
    let told = wishes.tell(&mut gateway.caller().await, &mut seen, ending).await;
    let error = told.expect_err("the gateway crashes on the way");
    let status = gateway.wait();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(libc::SIGKILL),
        "{point} was not reached: {error:?}, {seen:?}"
    );
    if sandboxes == Sandboxes::Die {
        kill_sandboxes(&gateway).await;
    }
    gateway.start_again();

    let mut caller = gateway.caller().await;
    let session = within("the session", caller.sessions.create_session(wishes.session()))
        .await
        .unwrap()
        .into_inner()
        .session
        .expect("it is set")
        .id;
    if let (Some(before), Left::Terminal) = (&seen.session, left) {
        assert_eq!(*before, session, "the same request has the same session");
    }
    let found =
        within("the terminals", caller.terminals.list_terminals(api::ListTerminalsRequest::default())).await;
    let found = found.unwrap().into_inner().terminals;
    assert!(found.len() <= 1, "{found:?}");
    match left {
        Left::Terminal => must_be_the_one(&mut caller, &wishes, &session, &seen, (ending, sandboxes)).await,
        Left::PerhapsTerminal => {
            for terminal in &found {
                assert_eq!(Some(&terminal.id), seen.terminal.as_ref());
            }
        }
    }
    assert!(starts(&wishes.workspace, NAME) <= 1, "nothing is run twice");
    let close = CloseSessionRequest { session_id: session };
    within("the close", caller.sessions.close_session(close)).await.unwrap();
    drop(caller);
    // Fails when a process, a group or a mount is left.
    gateway.stop();
    let sandboxes = gateway.state.join("sandboxes");
    assert_eq!(entries(&sandboxes) + entries(&gateway.state.join("sessions")), 0);
}

/// The terminal of the request is there, is the one that was answered, and has run once.
async fn must_be_the_one(
    caller: &mut Caller,
    wishes: &Wishes,
    session: &str,
    seen: &Seen,
    (ending, sandboxes): (Ending, Sandboxes),
) {
    let created = within("the terminal", caller.terminals.create_terminal(wishes.terminal(session))).await;
    let info = created.unwrap().into_inner().terminal.unwrap();
    if let Some(before) = &seen.terminal {
        assert_eq!(*before, info.id, "the same request has the same terminal");
    }
    let (id, caller) = (info.id.clone(), caller.clone());
    let terminal = Terminal { caller, id, session_id: session.to_owned(), info };
    if let Until::Stopped = wishes.until {
        stop(&wishes.workspace);
    }
    let (first, second) = (terminal.wait().await, terminal.wait().await);
    assert_eq!(first, second, "one outcome for all who wait");
    if let Some(before) = &seen.outcome {
        assert_eq!(*before, first, "the outcome that was told stays");
    }
    if sandboxes == Sandboxes::Die {
        // The gateway may have heard of the end before it crashed.
        match first.cause() {
            api::ExitCause::SandboxLost => assert_eq!(first.end, None, "no code is made up"),
            api::ExitCause::Exited => assert_eq!(code(&first), CODE),
            cause => assert!(cause == api::ExitCause::Killed && ending == Ending::Kill, "{first:?}"),
        }
    } else if first.cause() == api::ExitCause::Exited {
        assert_eq!(code(&first), CODE);
        must_be_whole(&terminal, NAME).await;
    }
    assert_eq!(terminal.get().await.unwrap().state(), TerminalState::Finished);
    match sandboxes {
        Sandboxes::GoOn => assert_eq!(starts(&wishes.workspace, NAME), 1, "run once"),
        // It may have died before it could write that it runs.
        Sandboxes::Die => assert!(starts(&wishes.workspace, NAME) <= 1, "not run again"),
    }
    terminal.release().await;
}

fn entries(directory: &Path) -> usize {
    std::fs::read_dir(directory).map_or(0, |entries| entries.count())
}

/// Longer than a sandbox waits for its first gateway, with room for a busy host.
const UNGREETED_DEADLINE: Duration = Duration::from_secs(150);

#[tokio::test]
async fn a_sandbox_that_no_gateway_has_greeted_ends_itself() {
    let gateway = Gateway::start();
    let wishes = Wishes::new(&gateway, Until::Stopped);
    gateway.crash();
    gateway.start_again_with(&[("PROVOST_CRASH_AT", "sandbox.launched")]);
    let told = wishes.tell(&mut gateway.caller().await, &mut Seen::default(), Ending::Itself).await;
    told.expect_err("the gateway crashes on the way");
    gateway.wait();
    let is_alone = || !gateway.group.processes().is_empty();
    assert!(is_alone(), "the sandbox lives on without its gateway");
    let begun = Instant::now();
    while is_alone() {
        assert!(begun.elapsed() < UNGREETED_DEADLINE, "it waits for a gateway that will never come");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    gateway.start_again();
    gateway.stop();
    assert_eq!(entries(&gateway.state.join("sandboxes")), 0, "the next gateway has taken away what was left");
}

macro_rules! crashes {
    ($isolation:ident, $sandboxes:ident; $($name:ident: $point:literal, $ending:ident, $left:ident;)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                let (isolation, sandboxes) = (Isolation::$isolation, Sandboxes::$sandboxes);
                crash_at($point, Ending::$ending, Left::$left, isolation, sandboxes).await;
            }
        )*
    };
}

crashes! {
    Session, GoOn;
    when_a_session_is_written: "session.kept", Itself, Terminal;
    when_a_session_is_open_and_not_answered: "session.opened", Itself, Terminal;
    when_a_command_is_permitted: "create.authorized", Itself, Terminal;
    when_a_sandbox_has_groups_and_is_not_written_down: "sandbox.grouped", Itself, Terminal;
    when_a_sandbox_is_written_down: "sandbox.recorded", Itself, Terminal;
    when_a_sandbox_is_launched: "sandbox.launched", Itself, Terminal;
    when_a_sandbox_has_answered: "sandbox.greeted", Itself, Terminal;
    when_a_terminal_is_on_the_roll: "create.enrolled", Itself, Terminal;
    when_a_spawn_is_in_the_journal: "create.recorded", Itself, Terminal;
    when_a_spawn_is_asked_for: "create.asked", Itself, Terminal;
    when_a_command_runs_and_is_not_taken_in: "create.answered", Itself, Terminal;
    when_a_command_runs_and_is_not_answered: "create.started", Itself, Terminal;
    when_an_end_is_reported: "exit.reported", Itself, Terminal;
    when_an_end_is_in_the_journal: "exit.recorded", Itself, Terminal;
    when_an_end_is_told: "exit.published", Itself, Terminal;
    when_a_kill_is_in_the_journal: "kill.recorded", Kill, Terminal;
    when_a_kill_is_under_way: "kill.answered", Kill, Terminal;
    when_a_release_begins: "release.claimed", Release, PerhapsTerminal;
    when_a_release_has_asked_for_the_end: "release.stopped", Release, PerhapsTerminal;
    when_a_release_has_seen_the_end: "release.over", Kill, PerhapsTerminal;
    when_a_release_has_made_it_forgotten: "release.forgotten", Itself, PerhapsTerminal;
    when_a_release_is_done_and_not_answered: "release.done", Itself, PerhapsTerminal;
    when_a_close_begins: "close.begun", Itself, PerhapsTerminal;
    when_a_close_has_released_all: "close.released", Itself, PerhapsTerminal;
    when_a_close_has_ended_the_sandboxes: "close.shut_down", Itself, PerhapsTerminal;
    when_a_close_has_forgotten_the_session: "close.forgotten", Itself, PerhapsTerminal;
}

// Every terminal has a sandbox of its own.
crashes! {
    Terminal, GoOn;
    alone_when_a_sandbox_is_written_down: "sandbox.recorded", Itself, Terminal;
    alone_when_a_sandbox_is_launched: "sandbox.launched", Itself, Terminal;
    alone_when_a_sandbox_has_answered: "sandbox.greeted", Itself, Terminal;
    alone_when_a_terminal_is_on_the_roll: "create.enrolled", Itself, Terminal;
    alone_when_a_spawn_is_in_the_journal: "create.recorded", Itself, Terminal;
    alone_when_a_spawn_is_asked_for: "create.asked", Itself, Terminal;
    alone_when_a_command_runs_and_is_not_answered: "create.started", Itself, Terminal;
    alone_when_an_end_is_told: "exit.published", Itself, Terminal;
    alone_when_a_kill_is_under_way: "kill.answered", Kill, Terminal;
    alone_when_a_release_has_asked_for_the_end: "release.stopped", Release, PerhapsTerminal;
    alone_when_a_release_has_made_it_forgotten: "release.forgotten", Itself, PerhapsTerminal;
    alone_when_a_close_has_released_all: "close.released", Itself, PerhapsTerminal;
}

// The sandboxes die, too.
crashes! {
    Session, Die;
    and_all_dies_when_a_terminal_is_on_the_roll: "create.enrolled", Itself, Terminal;
    and_all_dies_when_a_spawn_is_in_the_journal: "create.recorded", Itself, Terminal;
    and_all_dies_when_a_spawn_is_asked_for: "create.asked", Itself, Terminal;
    and_all_dies_when_a_command_runs_and_is_not_taken_in: "create.answered", Itself, Terminal;
    and_all_dies_when_a_command_runs_and_is_not_answered: "create.started", Itself, Terminal;
    and_all_dies_when_an_end_is_reported: "exit.reported", Itself, Terminal;
    and_all_dies_when_a_kill_is_under_way: "kill.answered", Kill, Terminal;
    and_all_dies_when_a_release_has_asked_for_the_end: "release.stopped", Release, PerhapsTerminal;
    and_all_dies_when_a_release_has_made_it_forgotten: "release.forgotten", Itself, PerhapsTerminal;
}

crashes! {
    Terminal, Die;
    alone_and_all_dies_when_a_terminal_is_on_the_roll: "create.enrolled", Itself, Terminal;
    alone_and_all_dies_when_a_spawn_is_asked_for: "create.asked", Itself, Terminal;
    alone_and_all_dies_when_a_command_runs_and_is_not_answered: "create.started", Itself, Terminal;
    alone_and_all_dies_when_a_release_has_asked_for_the_end: "release.stopped", Release, PerhapsTerminal;
}
