//! A request to create a terminal, as its caller sent it.

use std::{collections::BTreeMap, os::fd::OwnedFd, sync::Arc, time::Duration};

use crate::{
    kept_shell::ShellKind,
    policy::Request,
    session::Session,
    terminal::spec::{OnAsk, ReaderKind, WhenLeft},
};

/// What a create is made of: the session, and the request within it.
#[derive(Debug)]
pub struct NewRequest {
    /// The caller's session.
    pub session: Arc<Session>,
    /// What policy judges.
    pub request: Request,
    /// As the caller gave them.
    pub labels: BTreeMap<String, String>,
    /// Makes a repeated request answer with the first terminal.
    pub request_id: Option<String>,
    /// The shell is kept to run lines in.
    pub kept_shell: Option<ShellKind>,
    /// For whom the output is.
    pub reader: ReaderKind,
    /// What becomes of it when nobody is attached.
    pub when_left: WhenLeft,
    /// What becomes of it when a rule asks a person.
    pub on_ask: OnAsk,
    /// How long the caller waits for a person's answer; absent: as long as it takes.
    pub time_limit: Option<Duration>,
    /// What the command is to have as its stdin, from its caller.
    pub given_input: Option<Arc<OwnedFd>>,
}
