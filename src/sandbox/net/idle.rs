//! Carries bytes both ways, and knows when any last went through.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, sleep_until},
};

use super::limits::{COPY_BUFFER_BYTES, IDLE_TIMEOUT};

/// Carries bytes between two streams until one of them ends, or nothing is said for too long.
pub(super) async fn copy<A, B>(program: A, mut server: B)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let mut program = Idle::new(program);
    let last_bytes = program.last_bytes.clone();
    let carried = tokio::io::copy_bidirectional_with_sizes(
        &mut program,
        &mut server,
        COPY_BUFFER_BYTES,
        COPY_BUFFER_BYTES,
    );
    tokio::select! {
        // Both sides see the end, of whichever side it is.
        _ = carried => {}
        () = last_bytes.wait_idle(IDLE_TIMEOUT) => {}
    }
}

/// A stream that is watched in both directions.
pub(in crate::net) struct Idle<S> {
    stream: S,
    pub(in crate::net) last_bytes: Arc<LastBytes>,
}

/// When bytes last went through.
pub(in crate::net) struct LastBytes {
    began: Instant,
    /// Seconds since it began.
    at_s: AtomicU64,
}

impl LastBytes {
    fn touch(&self) {
        self.at_s.store(self.began.elapsed().as_secs(), Relaxed);
    }

    /// Resolves when nothing has gone through for so long.
    pub(in crate::net) async fn wait_idle(&self, limit: Duration) {
        loop {
            let due = self.began + Duration::from_secs(self.at_s.load(Relaxed)) + limit;
            if due <= Instant::now() {
                return;
            }
            sleep_until(due).await;
        }
    }
}

impl<S> Idle<S> {
    pub(in crate::net) fn new(stream: S) -> Self {
        Self { stream, last_bytes: Arc::new(LastBytes { began: Instant::now(), at_s: AtomicU64::new(0) }) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Idle<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() {
            self.last_bytes.touch();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Idle<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if written.is_ready() {
            self.last_bytes.touch();
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
