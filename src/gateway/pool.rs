//! A thread pool for work that may block for an unknown time, above all on callers' file systems.
//!
//! Each user has a few slots. The first slot of each user is reserved for that user; its other work takes threads that
//! all users share. A slot stays taken until its work returns, whether or not a caller still waits, so that work that
//! hangs costs its user a slot and delays no other user. The asynchronous workers and their blocking threads never do
//! such work.

#![forbid(unsafe_code)]

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::timeout,
};

/// A thread without work ends after this.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// First places, of so many users at once: threads in addition to the shared ones, at most.
const RESERVED_THREADS: usize = 512;
/// Users whose places are remembered although nothing is under way; beyond that they are forgotten.
const IDLE_USERS_MAX: usize = 1_024;

/// Work was not done, or is not known to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// It did not return in time. It may still do so.
    #[error("the file system has not answered within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// All places of this user stayed taken, and nothing of it returned, for that time.
    #[error("{0} requests of this user wait for a file system that does not answer, the most there may be")]
    Busy(usize),
    /// The system gives no thread, or the work has panicked.
    #[error("there is no thread for it")]
    ThreadUnavailable,
}

/// A pool of threads, with places for each user.
#[derive(Debug)]
pub struct Pool {
    per_user: usize,
    users: Mutex<HashMap<u32, Arc<UserSlots>>>,
    reserved_threads: Arc<Semaphore>,
    shared_threads: Arc<Semaphore>,
    workers: Arc<Workers>,
}

/// The places of one user, and how much of its work has returned.
#[derive(Debug)]
struct UserSlots {
    slots: Arc<Semaphore>,
    /// Its own one of these.
    reserved: Arc<Semaphore>,
    completed: AtomicU64,
}

/// What work holds until it returns: a place of its user, and a thread, by the user's first place or a shared one.
type Permits = Vec<OwnedSemaphorePermit>;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Workers {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers").finish_non_exhaustive()
    }
}

impl Pool {
    /// With so many places for each user. What a user has under way in addition to its first takes one of these that all share.
    pub fn new(per_user: usize, shared: usize) -> Self {
        Self {
            per_user,
            users: Mutex::default(),
            reserved_threads: Arc::new(Semaphore::new(RESERVED_THREADS)),
            shared_threads: Arc::new(Semaphore::new(shared)),
            workers: Arc::default(),
        }
    }

    /// Does this work on a thread of the pool, for this user.
    ///
    /// # Errors
    /// [`PoolError`]: when nothing of this user returns for `limit`. What the work returns later is dropped.
    pub async fn run<T: Send + 'static>(
        &self,
        uid: u32,
        limit: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        let user = self.slots_of(uid);
        let permits = self.acquire(&user, limit).await.ok_or(PoolError::Busy(self.per_user))?;
        let (answer, answered) = oneshot::channel();
        self.workers.submit(Box::new(move || {
            let result = work();
            user.completed.fetch_add(1, Relaxed);
            drop(permits);
            // Nobody waits any more: the result is dropped, and with it what it holds.
            let _ = answer.send(result);
        }))?;
        match timeout(limit, answered).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(_)) => Err(PoolError::ThreadUnavailable),
            Err(_) => Err(PoolError::TimedOut(limit)),
        }
    }

    /// A place of the user, and then a thread for it, so that waiting for the user's takes none of the others'.
    async fn acquire(&self, user: &UserSlots, limit: Duration) -> Option<Permits> {
        let permits = async {
            let own = acquire_one(&user.slots).await;
            let reserved =
                async { vec![acquire_one(&user.reserved).await, acquire_one(&self.reserved_threads).await] };
            let mut permits = tokio::select! {
                biased;
                first = reserved => first,
                shared = acquire_one(&self.shared_threads) => vec![shared],
            };
            permits.push(own);
            permits
        };
        tokio::pin!(permits);
        let mut returned = user.completed.load(Relaxed);
        loop {
            if let Ok(permits) = timeout(limit, &mut permits).await {
                return Some(permits);
            }
            // Much work of one user is no reason to refuse it, as long as it goes on.
            let now = user.completed.load(Relaxed);
            if std::mem::replace(&mut returned, now) == now {
                return None;
            }
        }
    }

    fn slots_of(&self, uid: u32) -> Arc<UserSlots> {
        let mut users = self.users.lock().expect("no code panics while it holds the users' places");
        if users.len() > IDLE_USERS_MAX && !users.contains_key(&uid) {
            users.retain(|_, user| Arc::strong_count(user) > 1);
        }
        let new = || UserSlots {
            slots: Arc::new(Semaphore::new(self.per_user)),
            reserved: Arc::new(Semaphore::new(1)),
            completed: AtomicU64::new(0),
        };
        users.entry(uid).or_insert_with(|| Arc::new(new())).clone()
    }
}

async fn acquire_one(places: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    places.clone().acquire_owned().await.expect("the places are never closed")
}

impl Workers {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no code panics while it holds the queue")
    }

    /// There are never more jobs than places, so that one which hangs delays no other: each finds a thread that is idle,
    /// or gets a new one.
    fn submit(self: &Arc<Self>, job: Job) -> Result<(), PoolError> {
        let mut queue = self.lock();
        queue.jobs.push_back(job);
        if queue.idle >= queue.jobs.len() {
            drop(queue);
            self.wake.notify_one();
            return Ok(());
        }
        let this = self.clone();
        let started = thread::Builder::new().name("provost-pool".into()).spawn(move || this.work());
        if started.is_err() {
            // The newest: the others have their threads.
            queue.jobs.pop_back();
            return Err(PoolError::ThreadUnavailable);
        }
        Ok(())
    }

    fn work(&self) {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                // A panic ends this work and not the thread; the caller who waits is answered by the dropped channel.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                queue = self.lock();
                continue;
            }
            queue.idle += 1;
            let (back, waited) =
                self.wake.wait_timeout(queue, IDLE_TIMEOUT).expect("no code panics while it holds the queue");
            queue = back;
            queue.idle -= 1;
            if waited.timed_out() && queue.jobs.is_empty() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    const SOON: Duration = Duration::from_millis(50);
    const LATE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn what_hangs_takes_its_user_s_places_and_nobody_else_s() {
        let pool = Pool::new(2, 8);
        let (release_one, one) = sync_channel::<()>(0);
        let (release_two, two) = sync_channel::<()>(0);
        for held in [one, two] {
            let hung = pool.run(1, SOON, move || held.recv().ok()).await;
            assert_eq!(hung, Err(PoolError::TimedOut(SOON)));
        }
        assert_eq!(pool.run(1, SOON, || 7).await, Err(PoolError::Busy(2)));
        assert_eq!(pool.run(2, LATE, || 7).await, Ok(7));
        release_one.send(()).unwrap();
        assert_eq!(pool.run(1, LATE, || 7).await, Ok(7), "the place is free again");
        drop(release_two);
    }

    #[tokio::test]
    async fn users_who_hold_all_that_is_shared_leave_each_other_one_its_first_place() {
        let pool = Pool::new(3, 4);
        let mut held = Vec::new();
        // Four users hang with all that they may: a first place each, and everything that is shared.
        for uid in 1..=4 {
            for _ in 0..2 {
                let (release, released) = sync_channel::<()>(0);
                held.push(release);
                let hung = pool.run(uid, SOON, move || released.recv().ok()).await;
                assert_eq!(hung, Err(PoolError::TimedOut(SOON)));
            }
            // What comes beyond waits in vain and takes nothing with it.
            if uid == 4 {
                assert_eq!(pool.run(uid, SOON, || 7).await, Err(PoolError::Busy(3)));
            }
        }
        for uid in 5..50 {
            assert_eq!(pool.run(uid, LATE, || 7).await, Ok(7), "uid {uid} has nothing under way");
        }
        drop(held);
    }

    #[tokio::test]
    async fn work_that_panics_frees_its_place() {
        let pool = Pool::new(1, 1);
        let panicked: Result<(), _> = pool.run(1, LATE, || panic!("of a test")).await;
        assert_eq!(panicked, Err(PoolError::ThreadUnavailable));
        assert_eq!(pool.run(1, LATE, || 7).await, Ok(7));
    }
}
