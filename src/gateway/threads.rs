//! The runtime of a gateway, and the certainty that it has its threads before it begins.
//!
//! A runtime panics when the system refuses it a thread (`ulimit -u`, `pids.max`, a unit's `TasksMax`), and can hang while it
//! unwinds. Later, a call that blocks panics if its pool has no thread at all. So all threads that work cannot go on without are
//! started at the beginning, and kept. It refuses to begin with fewer. As many are started and ended before the runtime is built,
//! because a refusal is an error there: that costs about 0.3 ms.

use std::{
    io,
    sync::{Arc, Barrier, mpsc},
    thread,
    time::Duration,
};

use tokio::runtime::{Builder, Runtime};

use crate::sys::{allocator, signals};

/// Two workers serve thousands of terminals, because no byte of output passes through here unless someone reads it.
const WORKERS: usize = 2;
/// After so many tasks a worker looks for what has become ready: a caller's request waits for no more of them while others keep both
/// workers busy. A look costs a microsecond or two.
const EVENT_INTERVAL: u32 = 8;
/// Threads for calls that block, at most.
const MAX_BLOCKING_THREADS: usize = 16;
/// Those of them that are there from the start. A read of the terminal or of stdin can hold one for ever.
const MIN_BLOCKING_THREADS: usize = 4;
/// A thread that has nothing to do stays, because the system may not give another one.
const THREAD_KEEP_ALIVE: Duration = Duration::from_secs(365 * 86_400);
/// How long threads that were started may take to run.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// The runtime that a gateway is made for.
///
/// # Errors
/// What clone(2) or the runtime said; `WouldBlock` when the system gives this user or cgroup no more threads.
pub fn runtime() -> io::Result<Runtime> {
    allocator::return_large_blocks();
    signals::ignore_file_size_limit();
    signals::await_children();
    check_thread_limit(WORKERS + MIN_BLOCKING_THREADS)?;
    let runtime = Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .event_interval(EVENT_INTERVAL)
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .thread_keep_alive(THREAD_KEEP_ALIVE)
        .thread_name("provost")
        .enable_all()
        .build()?;
    match start_blocking_threads(&runtime) {
        Ok(()) => Ok(runtime),
        Err(error) => {
            runtime.shutdown_background();
            Err(error)
        }
    }
}

/// Starts that many threads at once and ends them.
fn check_thread_limit(count: usize) -> io::Result<()> {
    let (release, released) = mpsc::sync_channel::<()>(0);
    let released = Arc::new(std::sync::Mutex::new(released));
    let mut started = Vec::with_capacity(count);
    let mut refused = None;
    for _ in 0..count {
        let released = released.clone();
        // Each waits until the sender is gone; one holds the lock, and the others wait for it.
        let wait = move || drop(released.lock().map(|released| released.recv()));
        match thread::Builder::new().name("provost-check".to_owned()).spawn(wait) {
            Ok(thread) => started.push(thread),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    drop(release);
    for thread in started {
        // It does not panic: it only waits.
        let _ = thread.join();
    }
    refused.map_or(Ok(()), Err)
}

/// Has the pool start the threads that it keeps, by giving it that many calls that wait for one another.
fn start_blocking_threads(runtime: &Runtime) -> io::Result<()> {
    let all = Arc::new(Barrier::new(MIN_BLOCKING_THREADS));
    let (started_sender, started) = mpsc::sync_channel(MIN_BLOCKING_THREADS);
    for _ in 0..MIN_BLOCKING_THREADS {
        let (all, tell) = (all.clone(), started_sender.clone());
        runtime.spawn_blocking(move || {
            all.wait();
            // The receiver is gone only when the time was over.
            let _ = tell.send(());
        });
    }
    started.recv_timeout(START_TIMEOUT).map_err(|_| io::Error::from(io::ErrorKind::WouldBlock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_that_are_kept_are_there_from_the_start() {
        let runtime = runtime().unwrap();
        // All kept ones but one are held; what comes next still has a thread.
        let (release, released) = mpsc::sync_channel::<()>(0);
        let released = Arc::new(std::sync::Mutex::new(released));
        for _ in 1..MIN_BLOCKING_THREADS {
            let released = released.clone();
            runtime.spawn_blocking(move || drop(released.lock().map(|released| released.recv())));
        }
        assert_eq!(runtime.block_on(runtime.spawn_blocking(|| 7)).unwrap(), 7);
        drop(release);
    }
}
