//! An attempt to connect, as it is judged and written down, and the bytes that the connections of a session were allowed, where its profile
//! bounds them.
//!
//! Net processes are allowed some bytes at a time, and carry none that were not allowed. What one of them had left when it died is spent.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use crate::{
    journal::{ConnectionRecord, RecordedVerdict},
    network::http_request::{HttpRequest, RequestPath, RequestPathError},
    policy::connect::ConnectingProgram,
    printable,
    proto::net::{Address, Attempt, Protocol},
    sandbox::net_link::{Asker, NetOwner},
    session::{Principal, Session, SessionId},
    terminal::{connections::questions::ConnectGrant, state::Terminal},
    wire::net::BYTES_AT_ONCE,
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
    /// The path of its HTTP request, without what is secret.
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

/// A denial, as far as the attempt says.
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

/// The bytes of all sessions.
#[derive(Debug, Default)]
pub(in crate::terminal) struct ConnectBytes(Mutex<HashMap<SessionId, Allowed>>);

#[derive(Debug)]
struct Allowed {
    session: Weak<Session>,
    bytes: u64,
}

impl ConnectBytes {
    /// Allows some more of at most so many. `None`: all were allowed.
    pub(in crate::terminal) fn allow(&self, session: &Arc<Session>, max_bytes: u64) -> Option<u64> {
        let mut all = self.lock();
        // There are no more than sessions.
        all.retain(|_, allowed| allowed.session.strong_count() > 0);
        let allowed =
            all.entry(session.id).or_insert_with(|| Allowed { session: Arc::downgrade(session), bytes: 0 });
        let more = max_bytes.saturating_sub(allowed.bytes).min(BYTES_AT_ONCE);
        allowed.bytes += more;
        (more > 0).then_some(more)
    }

    /// Whether a session may carry more than what one of its sandboxes has left.
    pub(in crate::terminal) fn has_more(&self, session: SessionId, max_bytes: u64, left: u64) -> bool {
        left > 0 || self.lock().get(&session).is_none_or(|allowed| allowed.bytes < max_bytes)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Allowed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
