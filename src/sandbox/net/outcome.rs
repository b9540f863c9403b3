//! What becomes of one attempt: an open connection that counts its bytes, or a refusal.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};

use super::{budget::Budget, end_report::EndReport, open::OpenPlace};
use crate::proto::net::{Attempt, Header, ServerCertificate};

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
    /// TLS hides what is judged.
    pub(super) requests_only: bool,
}

/// By which an open connection is carried.
#[derive(Debug)]
pub(super) enum Carrier {
    /// TCP, which this process has dialled.
    Tcp(TcpStream),
    /// A unix socket of the host, which the gateway has connected. Descriptors that come over it are closed by the kernel, because they are
    /// read without room for them: recvmsg(2).
    Unix(UnixStream),
}

/// An open connection to where a program wanted. Its end is reported when it is dropped.
#[derive(Debug)]
pub(super) struct Upstream {
    stream: Carrier,
    pub(super) allowed: Allowed,
    report: EndReport,
    open: OpenPlace,
    /// Where its bytes are counted.
    budget: Option<Arc<Budget>>,
    /// What opened TLS in it needs, until it is taken.
    pub(super) tls: TlsParts,
}

/// What opened TLS needs.
#[derive(Default)]
pub(super) struct TlsParts {
    /// By which the TLS of the program is ended; `None`: it is not opened.
    pub(super) certificate: Option<ServerCertificate>,
    /// That take the place of those of the program's request.
    pub(super) headers: Vec<Header>,
    /// By which certificates alone the server is verified; none: by the host's.
    pub(super) trusted_roots: Vec<Bytes>,
}

impl std::fmt::Debug for TlsParts {
    /// No key and no secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsParts")
    }
}

impl Upstream {
    pub(super) fn new(
        stream: Carrier,
        allowed: Allowed,
        mut report: EndReport,
        open: OpenPlace,
        budget: Option<Arc<Budget>>,
        tls: TlsParts,
    ) -> Self {
        report.ended.address = open.connection.address.map(|one| one.to_string()).unwrap_or_default();
        Self { stream, allowed, report, open, budget, tls }
    }

    /// It is of no use: its end says why.
    pub(super) fn fail(&mut self, failure: &str) {
        self.report.failed(failure);
    }

    /// How many of these bytes may be carried now.
    fn poll_allowed(&mut self, wanted: usize, context: &Context<'_>) -> Poll<io::Result<usize>> {
        if let Some(reason) = self.open.connection.poll_closed(context) {
            self.report.failed(reason);
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let Some(budget) = &self.budget else { return Poll::Ready(Ok(wanted)) };
        let reserved = budget.poll_reserve(wanted, context);
        if let Poll::Ready(Err(error)) = &reserved {
            self.report.failed(&error.to_string());
        }
        reserved
    }

    fn give_back(&self, bytes: usize) {
        if let Some(budget) = &self.budget {
            budget.give_back(bytes);
        }
    }
}

impl AsyncRead for Upstream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let allowed = ready!(self.poll_allowed(buffer.remaining(), context))?;
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(allowed));
        let read = match &mut self.stream {
            Carrier::Tcp(stream) => Pin::new(stream).poll_read(context, &mut part),
            Carrier::Unix(stream) => Pin::new(stream).poll_read(context, &mut part),
        };
        let count = part.filled().len();
        buffer.advance(count);
        self.give_back(allowed - count);
        self.report.ended.received_bytes += count as u64;
        read
    }
}

impl AsyncWrite for Upstream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let allowed = ready!(self.poll_allowed(bytes.len(), context))?;
        let part = bytes.get(..allowed).unwrap_or_default();
        let written = match &mut self.stream {
            Carrier::Tcp(stream) => Pin::new(stream).poll_write(context, part),
            Carrier::Unix(stream) => Pin::new(stream).poll_write(context, part),
        };
        let count = if let Poll::Ready(Ok(count)) = written { count } else { 0 };
        self.give_back(allowed - count);
        self.report.ended.sent_bytes += count as u64;
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Carrier::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Carrier::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Carrier::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Carrier::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
