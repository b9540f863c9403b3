//! Makes the terminals and runs that requests ask for.

use std::{sync::Arc, time::Duration};

use tonic::Status;

use super::TerminalsService;
use crate::{
    grpc::{errors, request},
    policy::{OverflowMode, StdinSource},
    proto::v1::{CreateTerminalRequest, RunRequest, create_terminal_request::Command},
    session::{Peer, Session},
    terminal::{NewRequest, ReaderKind, Terminal, run::Run},
};

impl TerminalsService {
    /// A new terminal, or the one that the same request made before.
    pub(super) async fn create_requested(
        &self,
        peer: &Peer,
        mut request: CreateTerminalRequest,
        time_limit: Option<Duration>,
    ) -> Result<Arc<Terminal>, Status> {
        let session = self.session_of(peer, "", &request)?;
        self.name_shell(&session, &mut request);
        let new = new_request("", session, peer, request, time_limit)?;
        self.terminals.create(new).await.map_err(|error| errors::create(&error))
    }

    /// A new run.
    pub(super) async fn run_requested(
        &self,
        peer: &Peer,
        RunRequest { create, resumable }: RunRequest,
        time_limit: Option<Duration>,
    ) -> Result<Run, Status> {
        let create = create.unwrap_or_default();
        let session = self.session_of(peer, "create.", &create)?;
        let mut new = new_request("create.", session, peer, create, time_limit)?;
        new.request.overflow = OverflowMode::Block;
        new.reader = if resumable { ReaderKind::ResumableRun } else { ReaderKind::Run };
        if !resumable {
            // Such a run is one call of one caller: repeated, it is another run.
            new.request_id = None;
        }
        let terminal = self.terminals.create(new).await.map_err(|error| errors::create(&error))?;
        match resumable {
            true => self.terminals.take_run(terminal).map_err(|error| errors::terminal_request(&error)),
            false => Ok(self.terminals.run(terminal)),
        }
    }

    /// A kept shell without a name is the profile's.
    fn name_shell(&self, session: &Session, request: &mut CreateTerminalRequest) {
        if request.kept_shell.is_none() || request.command.is_some() {
            return;
        }
        let name = if request.profile.is_empty() { &session.profile } else { &request.profile };
        let policy = self.terminals.policy().current();
        let shell = policy.profile(Some(name)).and_then(|(_, profile)| profile.shell.to_str());
        request.command = shell.map(|shell| Command::Program(shell.to_owned()));
    }
}

/// The parsed request. `prefix` leads to it in its message.
fn new_request(
    prefix: &str,
    session: Arc<Session>,
    peer: &Peer,
    request: CreateTerminalRequest,
    time_limit: Option<Duration>,
) -> Result<NewRequest, Status> {
    let given = request.stdin_given && request.pty.is_none();
    request::arguments_fit(prefix, &request).map_err(errors::arguments_too_long)?;
    let mut new = request::new_terminal(prefix, session, request).map_err(errors::bad_field)?;
    new.time_limit = time_limit;
    if given && new.request.stdin == StdinSource::Open {
        new.given_input = peer.given_input.upgrade().and_then(|given| given.get().cloned());
    }
    Ok(new)
}
