//! Accepts connections of the sandbox's programs, within bounds, and serves each in a task of its own.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::Semaphore,
    time::{Instant, sleep, sleep_until},
};

/// How long a listener that fails, for want of descriptors, is left alone.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// How often something may happen. A second's worth may come at once.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    pause: Duration,
    next: Arc<Mutex<Instant>>,
}

impl Pace {
    /// So often in a second, of all copies together.
    pub(super) fn new(per_s: u32) -> Self {
        Self { pause: Duration::from_secs(1) / per_s, next: Arc::new(Mutex::new(Instant::now())) }
    }

    /// Counts one, and waits while there were too many.
    pub(super) async fn wait(&self) {
        let now = Instant::now();
        let next = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            *next = (*next).max(now) + self.pause;
            *next
        };
        if next > now + Duration::from_secs(1) {
            sleep_until(next - Duration::from_secs(1)).await;
        }
    }
}

/// What connections of programs come to.
pub(super) trait Listener {
    /// Such a connection.
    type Program;

    /// The next one.
    async fn next(&self) -> io::Result<Self::Program>;
}

impl Listener for TcpListener {
    type Program = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        let (program, _) = self.accept().await?;
        let _ = program.set_nodelay(true);
        Ok(program)
    }
}

impl Listener for UnixListener {
    type Program = UnixStream;

    async fn next(&self) -> io::Result<UnixStream> {
        Ok(self.accept().await?.0)
    }
}

/// Accepts for as long as the process runs, or until the task is aborted.
pub(super) async fn accept<L, F, S>(listener: L, places: Arc<Semaphore>, pace: Pace, serve: F)
where
    L: Listener,
    F: Fn(L::Program) -> S,
    S: Future<Output = ()> + Send + 'static,
{
    loop {
        // Closed never.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok(program) = listener.next().await else {
            sleep(ACCEPT_BACKOFF).await;
            continue;
        };
        let served = serve(program);
        tokio::spawn(async move {
            served.await;
            drop(place);
        });
        pace.wait().await;
    }
}
