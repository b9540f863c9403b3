//! An attempt to connect, as it is judged and written down.

use std::sync::Arc;

use crate::{
    journal::{ConnectionRecord, RecordedVerdict},
    printable,
    proto::net::{Attempt, Protocol},
    sandbox::net_link::{Asker, NetOwner},
    session::Principal,
    terminal::state::terminal::Terminal,
};

/// The most of a text that a program or its proxy wrote.
const TEXT_MAX_BYTES: usize = 320;

/// An attempt, and whose it is.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) owner: &'a NetOwner,
    pub(super) attempt: &'a Attempt,
    pub(super) terminal: Option<&'a Arc<Terminal>>,
    pub(super) asker: &'a Asker,
}

/// A refusal, as far as the attempt says.
pub(super) fn record(wanted: Wanted<'_>) -> ConnectionRecord {
    let protocol = match wanted.attempt.protocol() {
        Protocol::Unspecified => "",
        Protocol::Connect => "connect",
        Protocol::Http => "http",
        Protocol::Socks => "socks",
        Protocol::Transparent => "transparent",
        Protocol::Dns => "dns",
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
    }
}

/// Its port; 0: it has none.
pub(super) fn port(attempt: &Attempt) -> u16 {
    u16::try_from(attempt.port).unwrap_or_default()
}

/// Whose it is.
pub(super) fn principal(owner: &NetOwner) -> String {
    Principal { uid: owner.uid }.to_string()
}

/// As much of a text as is kept.
pub(super) fn bounded(text: &str) -> String {
    printable::truncate(text, TEXT_MAX_BYTES).to_owned()
}
