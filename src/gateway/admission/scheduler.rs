//! Schedules the calls of each user: polls a few of them at a time, within a share of CPU time.
//!
//! A call holds a permit only while it is polled, not while it waits. So a call of one user waits for at most a few calls of another user,
//! however many of those are ready.
//!
//! The share is a token bucket: a rate limit that allows bursts. Taking never blocks. Taking more than there is makes a debt, and returns
//! how long the debt lasts.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Sleep, sleep},
};

use crate::sys::own_process::thread_cpu_time;

/// Calls of one user that are driven at the same time.
const CONCURRENT_CALLS: usize = 2;
/// Calls in addition to these that end or hand over something: they wait for none of the others, nor for a
/// debt of theirs.
const CONCURRENT_PRIORITY_CALLS: usize = 1;

/// The turns of one user.
#[derive(Debug)]
pub(super) struct CallScheduler {
    normal: Arc<Semaphore>,
    priority: Arc<Semaphore>,
    cpu: TokenBucket,
}

impl CallScheduler {
    /// With so many seconds of a processor in each second, and at once.
    pub(super) fn new(per_s: f64, burst: f64) -> Arc<Self> {
        Arc::new(Self {
            normal: Arc::new(Semaphore::new(CONCURRENT_CALLS)),
            priority: Arc::new(Semaphore::new(CONCURRENT_PRIORITY_CALLS)),
            cpu: TokenBucket::new(per_s, burst),
        })
    }

    /// Pays for processor time that was spent on the user. Nothing waits for a debt here: the next turn of a call does, and the next
    /// read of a connection.
    pub(super) fn charge(&self, spent: Duration) {
        let _ = self.cpu.take(spent.as_secs_f64());
    }

    /// How long the user has to wait until what was spent on it is paid for; `None` when nothing is owed.
    pub(super) fn debt(&self) -> Option<Duration> {
        self.cpu.take(0.0)
    }
}

type Acquiring = Pin<Box<dyn Future<Output = OwnedSemaphorePermit> + Send>>;

/// Where a call waits for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallQueue {
    /// With the user's other ones.
    Normal,
    /// With those that end or hand over something.
    Priority,
}

/// A call that is driven in its user's turns.
pub(super) struct ScheduledCall<F> {
    call: Pin<Box<F>>,
    scheduler: Arc<CallScheduler>,
    queue: CallQueue,
    acquiring: Option<Acquiring>,
    /// A turn that waits for the user's debt to pass.
    paused: Option<(Pin<Box<Sleep>>, OwnedSemaphorePermit)>,
}

impl<F: Future> ScheduledCall<F> {
    pub(super) fn new(call: F, scheduler: Arc<CallScheduler>, queue: CallQueue) -> Self {
        Self { call: Box::pin(call), scheduler, queue, acquiring: None, paused: None }
    }

    fn poll_permit(&mut self, context: &mut Context<'_>) -> Poll<OwnedSemaphorePermit> {
        if self.paused.is_none() {
            let free = match self.queue {
                CallQueue::Normal => &self.scheduler.normal,
                CallQueue::Priority => &self.scheduler.priority,
            };
            let at_once = match self.acquiring {
                None => free.clone().try_acquire_owned().ok(),
                Some(_) => None,
            };
            let permit = match at_once {
                Some(turn) => turn,
                None => {
                    let free = free.clone();
                    let acquire = async move { free.acquire_owned().await.expect("turns are never closed") };
                    let acquiring = self.acquiring.get_or_insert_with(|| Box::pin(acquire));
                    let turn = ready!(acquiring.as_mut().poll(context));
                    self.acquiring = None;
                    turn
                }
            };
            match self.scheduler.debt() {
                Some(debt) if self.queue == CallQueue::Normal => {
                    self.paused = Some((Box::pin(sleep(debt)), permit))
                }
                _ => return Poll::Ready(permit),
            }
        }
        if let Some((pause, _)) = &mut self.paused {
            ready!(pause.as_mut().poll(context));
        }
        let (_, turn) = self.paused.take().expect("it was there just now");
        Poll::Ready(turn)
    }
}

impl<F: Future> Future for ScheduledCall<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let permit = ready!(self.poll_permit(context));
        let before = thread_cpu_time();
        let driven = self.call.as_mut().poll(context);
        let spent = thread_cpu_time().saturating_sub(before);
        self.scheduler.charge(spent);
        drop(permit);
        driven
    }
}

/// Tokens that come back with time.
#[derive(Debug)]
pub(super) struct TokenBucket {
    per_s: f64,
    burst: f64,
    level: Mutex<Level>,
}

#[derive(Debug)]
struct Level {
    tokens: f64,
    at: Instant,
}

impl TokenBucket {
    /// A full one.
    pub(super) fn new(per_s: f64, burst: f64) -> Self {
        Self { per_s, burst, level: Mutex::new(Level { tokens: burst, at: Instant::now() }) }
    }

    /// Takes so many tokens. `Some`: the bucket is in debt for this long.
    pub(super) fn take(&self, tokens: f64) -> Option<Duration> {
        self.take_at(tokens, Instant::now())
    }

    /// Takes one token, where there is one.
    pub(super) fn try_take_one(&self) -> bool {
        let mut level = self.level.lock().expect("no code panics while it holds a bucket");
        self.refill(&mut level, Instant::now());
        let is_there = level.tokens >= 1.0;
        if is_there {
            level.tokens -= 1.0;
        }
        is_there
    }

    fn refill(&self, level: &mut Level, now: Instant) {
        let passed = now.saturating_duration_since(level.at).as_secs_f64();
        level.tokens = (level.tokens + passed * self.per_s).min(self.burst);
        level.at = level.at.max(now);
    }

    fn take_at(&self, tokens: f64, now: Instant) -> Option<Duration> {
        let mut level = self.level.lock().expect("no code panics while it holds a bucket");
        self.refill(&mut level, now);
        // The debt is bounded too, so that what was refused does not count against the user for ever.
        level.tokens = (level.tokens - tokens).max(-self.burst);
        (level.tokens < 0.0).then(|| Duration::from_secs_f64(-level.tokens / self.per_s))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    #[tokio::test]
    async fn a_call_that_waits_for_something_leaves_its_turn_to_others() {
        let turns = CallScheduler::new(1_000.0, 1_000.0);
        let (release, released) = tokio::sync::watch::channel(false);
        let waiting: Vec<_> = (0..3 * CONCURRENT_CALLS)
            .map(|_| {
                let mut released = released.clone();
                tokio::spawn(ScheduledCall::new(
                    async move { released.wait_for(|is| *is).await.is_ok() },
                    turns.clone(),
                    CallQueue::Normal,
                ))
            })
            .collect();
        assert_eq!(ScheduledCall::new(async { 7 }, turns.clone(), CallQueue::Normal).await, 7);
        release.send(true).unwrap();
        for one in waiting {
            assert!(one.await.unwrap());
        }
    }

    #[tokio::test]
    async fn a_user_in_debt_pauses_and_its_calls_then_go_on() {
        let turns = CallScheduler::new(0.5, 1.0);
        // Two seconds.
        turns.cpu.take(2.0);
        let done = Arc::new(AtomicUsize::new(0));
        let calls: Vec<_> = (0..5)
            .map(|_| {
                let done = done.clone();
                tokio::spawn(ScheduledCall::new(
                    async move { done.fetch_add(1, SeqCst) },
                    turns.clone(),
                    CallQueue::Normal,
                ))
            })
            .collect();
        tokio::task::yield_now().await;
        assert_eq!(done.load(SeqCst), 0, "it is in debt");
        assert_eq!(
            ScheduledCall::new(async { 7 }, turns.clone(), CallQueue::Priority).await,
            7,
            "what ends waits for no debt"
        );
        assert_eq!(done.load(SeqCst), 0, "it is in debt");
        for call in calls {
            call.await.unwrap();
        }
        assert_eq!(done.load(SeqCst), 5);
    }

    #[test]
    fn more_than_is_there_is_a_debt_that_ends_with_time() {
        let bucket = TokenBucket::new(10.0, 20.0);
        let start = Instant::now();
        assert_eq!(bucket.take_at(20.0, start), None);
        assert_eq!(bucket.take_at(5.0, start), Some(Duration::from_millis(500)));
        assert_eq!(bucket.take_at(0.0, start + Duration::from_millis(600)), None);
        assert!(bucket.take_at(1e9, start + Duration::from_secs(60)).is_some_and(|debt| debt.as_secs() <= 2));
    }
}
