//! What a workspace's thread is asked to do. At most one start and one end of each command wait here, so that the bound on
//! terminals is the bound of the queue.
//!
//! Never loses an end: what is in a queue that is closed, or comes to one, is let go, and goes on without a look.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

/// What is asked for.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// All is to be known before a command starts.
    pub starts: Vec<oneshot::Sender<()>>,
    /// A command has ended.
    pub ends: Vec<(String, Arc<Completion>)>,
    is_closed: bool,
}

impl Requests {
    fn is_empty(&self) -> bool {
        self.starts.is_empty() && self.ends.is_empty()
    }
}

/// What is to be done after the last of the looks at a command's end. It is done even where a look cannot be had.
pub struct Completion(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Completion {
    /// Does this when the last one who holds it lets it go.
    pub fn new(done: impl FnOnce() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self(Some(Box::new(done))))
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done();
        }
    }
}

impl std::fmt::Debug for Completion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ending")
    }
}

/// The queue of one thread.
#[derive(Debug, Default)]
pub(super) struct RequestQueue {
    requests: Mutex<Requests>,
    changed: Condvar,
}

impl RequestQueue {
    /// Asks for something.
    pub fn submit(&self, ask: impl FnOnce(&mut Requests)) {
        let mut asked = self.lock();
        ask(&mut asked);
        let let_go = if asked.is_closed { Self::drain(&mut asked) } else { Requests::default() };
        drop(asked);
        drop(let_go);
        self.wake();
    }

    /// Lets the thread look around.
    pub fn wake(&self) {
        self.changed.notify_one();
    }

    /// All that is asked for, or nothing after a time or a wake; `None` when nobody asks any more.
    pub fn wait(&self, wait: Option<Duration>) -> Option<Requests> {
        let mut asked = self.lock();
        if asked.is_empty() && !asked.is_closed {
            asked = match wait {
                Some(wait) => {
                    self.changed.wait_timeout(asked, wait).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(asked).unwrap_or_else(PoisonError::into_inner),
            };
        }
        if asked.is_closed && asked.is_empty() {
            return None;
        }
        Some(Self::drain(&mut asked))
    }

    /// Nothing is done any more.
    pub fn close(&self) {
        self.submit(|asked| asked.is_closed = true);
    }

    /// Takes everything out, to be let go without the lock.
    fn drain(asked: &mut Requests) -> Requests {
        Requests {
            starts: std::mem::take(&mut asked.starts),
            ends: std::mem::take(&mut asked.ends),
            is_closed: asked.is_closed,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
