//! An attempt to connect, as it is judged and written down.

use std::sync::Arc;

use crate::{
    journal::{ConnectionRecord, RecordedVerdict},
    network::http_request::{HttpRequest, RequestPath, RequestPathError},
    policy::connect::ConnectingProgram,
    printable,
    proto::net::{Address, Attempt, Protocol},
    sandbox::net_link::{Asker, NetOwner},
    session::Principal,
    terminal::{connections::grants::ConnectGrant, state::terminal::Terminal},
};

/// The most of a text that a program or its proxy wrote.
const TEXT_MAX_BYTES: usize = 320;

/// The most programs of one connection that are recorded.
const PROGRAMS_MAX: usize = 8;

/// What a record says of TLS that is opened.
pub(in crate::terminal) const OPENED_TLS: &str = "terminate";

/// An attempt, and whose it is.
#[derive(Clone, Copy)]
pub(in crate::terminal) struct Wanted<'a> {
    pub(in crate::terminal) owner: &'a NetOwner,
    pub(in crate::terminal) attempt: &'a Attempt,
    /// Of its HTTP request, without what is secret.
    pub(in crate::terminal) path: &'a str,
    pub(in crate::terminal) terminal: Option<&'a Arc<Terminal>>,
    pub(in crate::terminal) program: &'a ConnectingProgram,
    pub(in crate::terminal) asker: &'a Asker,
}

/// A connection that was allowed.
#[derive(Clone, Copy)]
pub(in crate::terminal) struct OpenConnection<'a> {
    /// Its name in the journal.
    pub(in crate::terminal) id: &'a str,
    /// That was dialled.
    pub(in crate::terminal) address: Option<&'a Address>,
    /// What a person has approved of it, under whichever policy.
    pub(in crate::terminal) grant: Option<&'a ConnectGrant>,
}

/// Why a request cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::terminal) enum UnjudgedRequest {
    /// Its path.
    #[error(transparent)]
    Path(#[from] RequestPathError),
    /// Servers take it for another one.
    #[error("servers may take the request for another one because of {0}")]
    Overridden(String),
}

/// A refusal, as far as the attempt says.
pub(in crate::terminal) fn record(wanted: Wanted<'_>) -> ConnectionRecord {
    let protocol = match wanted.attempt.protocol() {
        Protocol::Unspecified => "",
        Protocol::Connect => "connect",
        Protocol::Http => "http",
        Protocol::Socks => "socks",
        Protocol::Transparent => "transparent",
        Protocol::Dns => "dns",
        Protocol::Unix => "unix",
    };
    ConnectionRecord {
        session: wanted.owner.session_id.clone(),
        principal: principal(wanted.owner),
        terminal: wanted.terminal.map(|terminal| terminal.id.to_string()),
        host: bounded(&wanted.attempt.host),
        port: port(wanted.attempt),
        verdict: RecordedVerdict::Deny,
        rule: None,
        sandbox: wanted.owner.sandbox_id.clone(),
        reason: String::new(),
        address: None,
        protocol: protocol.to_owned(),
        connection: None,
        observed: Vec::new(),
        method: bounded(&wanted.attempt.method),
        path: bounded(wanted.path),
        tls: if wanted.attempt.in_opened_tls { OPENED_TLS.to_owned() } else { String::new() },
        secrets: Vec::new(),
        programs: match wanted.program {
            ConnectingProgram::Known(programs) => {
                programs.iter().take(PROGRAMS_MAX).map(|one| bounded(one)).collect()
            }
            ConnectingProgram::Any | ConnectingProgram::Unknown => Vec::new(),
        },
    }
}

/// The HTTP request that an attempt is for, or why it cannot be judged.
pub(in crate::terminal) fn http_request(attempt: &Attempt) -> Option<Result<HttpRequest, UnjudgedRequest>> {
    let read = || {
        if !attempt.overridden_by.is_empty() {
            return Err(UnjudgedRequest::Overridden(bounded(&attempt.overridden_by)));
        }
        Ok(HttpRequest { method: attempt.method.clone(), path: RequestPath::parse(&attempt.path)? })
    };
    (!attempt.method.is_empty()).then(read)
}

/// Its port; 0: it has none.
pub(in crate::terminal) fn port(attempt: &Attempt) -> u16 {
    u16::try_from(attempt.port).unwrap_or_default()
}

/// Whose it is.
pub(in crate::terminal) fn principal(owner: &NetOwner) -> String {
    Principal { uid: owner.uid }.to_string()
}

/// As much of a text as is kept.
pub(in crate::terminal) fn bounded(text: &str) -> String {
    printable::truncate(text, TEXT_MAX_BYTES).to_owned()
}
