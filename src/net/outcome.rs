//! What becomes of one attempt: an open connection that counts its bytes, or a refusal.

use std::{
    io,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::link::GatewayLink;
use crate::proto::net::{Attempt, Ended};

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The policy says no, and the journal has it.
    Denied {
        /// The rule.
        rule: String,
        /// Why.
        reason: String,
    },
    /// It was allowed, and could not be made.
    Failed(String),
}

/// What was allowed.
#[derive(Debug, Clone)]
pub(super) struct Allowed {
    pub(super) attempt: Attempt,
    pub(super) connection_id: String,
    /// What is spoken is not looked at.
    pub(super) any_protocol: bool,
}

/// An open connection to where a program wanted. Its end is reported when it is dropped.
#[derive(Debug)]
pub(super) struct Upstream {
    stream: TcpStream,
    pub(super) allowed: Allowed,
    report: EndReport,
}

/// Reports the end of what was allowed, once.
#[derive(Debug)]
pub(super) struct EndReport {
    link: Arc<GatewayLink>,
    began: Instant,
    ended: Ended,
}

impl EndReport {
    pub(super) fn new(link: Arc<GatewayLink>, allowed: &Allowed) -> Self {
        let ended = Ended {
            attempt: Some(allowed.attempt.clone()),
            connection_id: allowed.connection_id.clone(),
            ..Ended::default()
        };
        Self { link, began: Instant::now(), ended }
    }

    pub(super) fn failed(&mut self, failure: &str) {
        failure.clone_into(&mut self.ended.failure);
    }
}

impl Drop for EndReport {
    fn drop(&mut self) {
        let duration_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.link.report(Ended { duration_ms, ..std::mem::take(&mut self.ended) });
    }
}

impl Upstream {
    pub(super) fn new(stream: TcpStream, address: IpAddr, allowed: Allowed, mut report: EndReport) -> Self {
        report.ended.address = address.to_string();
        Self { stream, allowed, report }
    }
}

impl AsyncRead for Upstream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.report.ended.received_bytes += (buffer.filled().len() - before) as u64;
        read
    }
}

impl AsyncWrite for Upstream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = written {
            self.report.ended.sent_bytes += count as u64;
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
