//! Tunnels: bytes both ways, after the first ones have shown that they are for the host that was allowed.
//!
//! Unless the rule lets anything be spoken, a tunnel to a name holds TLS whose first message asks for the same name, or HTTP requests,
//! which are judged one by one, also in TLS where the gateway has given a certificate for it. The server hears nothing before that.

use std::sync::Arc;

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};

use super::{
    connector::Connector,
    http::{self, Tunnel},
    idle,
    limits::FIRST_BYTES_TIMEOUT,
    outcome::Upstream,
    prefixed::Prefixed,
};
use crate::network::{
    client_hello::{self, ClientHello, HANDSHAKE_RECORD, HelloProgress, MAX_HELLO_BYTES},
    destination::Host,
};

const READ_BYTES: usize = 4 << 10;

/// What the first bytes of a program are.
enum FirstBytes {
    /// TLS for the right host, with all bytes so far.
    Agreeing(Vec<u8>),
    /// Perhaps HTTP.
    Other(Vec<u8>),
    /// The program said nothing, or has gone.
    Nothing,
    /// TLS for another host, or for none that can be read.
    Disagreeing(String),
}

/// Carries a tunnel until one side ends it.
pub(super) async fn carry<S>(
    connector: &Arc<Connector>,
    mut program: S,
    mut upstream: Upstream,
    mut tunnel: Tunnel,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    if upstream.allowed.any_protocol {
        return idle::copy(program, upstream).await;
    }
    let first = timeout(FIRST_BYTES_TIMEOUT, first_bytes(&mut program, &tunnel.destination.host)).await;
    match first.unwrap_or(FirstBytes::Nothing) {
        FirstBytes::Agreeing(bytes) if upstream.tls.certificate.is_some() => {
            let certificate = upstream.tls.certificate.take();
            // Each request makes a connection of its own.
            tunnel.approval.clone_from(&upstream.allowed.attempt.approval);
            drop(upstream);
            if let Some(certificate) = certificate {
                // Most tunnels are only carried, and need no room for this.
                let program = Prefixed::new(bytes, program);
                Box::pin(http::serve_opened(connector, program, tunnel, certificate)).await;
            }
        }
        FirstBytes::Agreeing(_) if upstream.allowed.requests_only => {
            let found = "rules are about requests to this host, and TLS hides them".to_owned();
            refuse(connector, program, &upstream, found).await;
        }
        FirstBytes::Agreeing(bytes) => idle::copy(Prefixed::new(bytes, program), upstream).await,
        FirstBytes::Other(bytes) => {
            // Each request makes a connection of its own.
            tunnel.approval.clone_from(&upstream.allowed.attempt.approval);
            drop(upstream);
            Box::pin(http::serve_tunnel(connector, Prefixed::new(bytes, program), tunnel)).await;
        }
        FirstBytes::Disagreeing(found) => refuse(connector, program, &upstream, found).await,
        FirstBytes::Nothing => {}
    }
}

/// Refuses TLS that is not what was allowed.
async fn refuse<S: AsyncWrite + Unpin>(
    connector: &Connector,
    mut program: S,
    upstream: &Upstream,
    found: String,
) {
    connector.disagree(&upstream.allowed, found).await;
    let _ = program.write_all(&ACCESS_DENIED_ALERT).await;
    let _ = program.shutdown().await;
}

/// A fatal alert of TLS, `access_denied` (RFC 8446, 6).
const ACCESS_DENIED_ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

async fn first_bytes<S: AsyncRead + Unpin>(program: &mut S, host: &Host) -> FirstBytes {
    let mut bytes = Vec::new();
    let mut buffer = [0; READ_BYTES];
    loop {
        let count = match program.read(&mut buffer).await {
            Ok(0) | Err(_) => return FirstBytes::Nothing,
            Ok(count) => count,
        };
        bytes.extend_from_slice(buffer.get(..count).unwrap_or_default());
        if bytes.first() != Some(&HANDSHAKE_RECORD) {
            return FirstBytes::Other(bytes);
        }
        match client_hello::read(bytes.get(..MAX_HELLO_BYTES.min(bytes.len())).unwrap_or_default()) {
            Ok(HelloProgress::Incomplete) => {}
            Ok(HelloProgress::Complete(hello)) => {
                return match disagreement(&hello, host) {
                    None => FirstBytes::Agreeing(bytes),
                    Some(found) => FirstBytes::Disagreeing(found),
                };
            }
            Err(error) => return FirstBytes::Disagreeing(error.to_string()),
        }
    }
}

/// What of the first message is not about this host.
fn disagreement(hello: &ClientHello, host: &Host) -> Option<String> {
    if hello.has_ech {
        return Some("the first message of TLS hides a name (ECH)".to_owned());
    }
    match (&hello.server_name, host) {
        (Some(named), Host::Name(name)) if named == name => None,
        (Some(named), _) => Some(format!("TLS asks for {named}")),
        (None, _) => Some("the first message of TLS names no host (SNI)".to_owned()),
    }
}
