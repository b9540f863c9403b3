//! Accepts connections of the sandbox's programs, within bounds, and serves each in a task of its own.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
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

/// Accepts for as long as the process runs, or until the task is aborted.
pub(super) async fn accept<F, S>(listener: TcpListener, places: Arc<Semaphore>, pace: Pace, serve: F)
where
    F: Fn(TcpStream) -> S,
    S: Future<Output = ()> + Send + 'static,
{
    loop {
        // Closed never.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((program, _)) = listener.accept().await else {
            sleep(ACCEPT_BACKOFF).await;
            continue;
        };
        let _ = program.set_nodelay(true);
        let served = serve(program);
        tokio::spawn(async move {
            served.await;
            drop(place);
        });
        pace.wait().await;
    }
}
