//! Measures the processor time that a connection's own work takes: HTTP/2 frames read, written, taken apart and put together.
//!
//! The HTTP/2 library gives no hook around this work, but all of it happens between one read or write of the connection and the
//! next. A read or write that must wait ends the connection's turn on its thread: what the thread does after it is not counted.

use std::{
    thread::{self, ThreadId},
    time::Duration,
};

use crate::sys::clocks::thread_cpu_time;

/// After so much of it in one turn a connection lets others have theirs.
const TURN: Duration = Duration::from_micros(100);

/// The clock of one connection.
#[derive(Debug, Default)]
pub(super) struct ConnectionClock {
    /// The thread's time at the last read or write of this turn.
    last: Option<(ThreadId, Duration)>,
    /// Spent in this turn.
    turn: Duration,
}

impl ConnectionClock {
    /// A read or write begins: the time since the one before it in the same turn.
    pub(super) fn lap(&mut self) -> Duration {
        self.lap_at(thread::current().id(), thread_cpu_time())
    }

    /// The turn ends here.
    pub(super) fn end_turn(&mut self) {
        *self = Self::default();
    }

    /// Whether this turn has been long enough.
    pub(super) fn is_over(&self) -> bool {
        self.turn >= TURN
    }

    fn lap_at(&mut self, thread: ThreadId, now: Duration) -> Duration {
        let before = self.last.replace((thread, now));
        let spent = match before {
            Some((same, then)) if same == thread => now.saturating_sub(then),
            // Moved to another thread: its turn had ended, and nothing was seen of that.
            Some(_) => {
                self.turn = Duration::ZERO;
                Duration::ZERO
            }
            None => Duration::ZERO,
        };
        self.turn += spent;
        spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_one_thread_does_within_a_turn_is_counted() {
        let (mut clock, here) = (ConnectionClock::default(), thread::current().id());
        let elsewhere = thread::spawn(|| thread::current().id()).join().unwrap();
        let at = Duration::from_micros;
        assert_eq!(clock.lap_at(here, at(1_000)), Duration::ZERO, "nothing is known of before");
        assert_eq!(clock.lap_at(here, at(1_060)), at(60));
        assert!(!clock.is_over());
        assert_eq!(clock.lap_at(here, at(1_100)), at(40));
        assert!(clock.is_over());
        clock.end_turn();
        assert_eq!(clock.lap_at(here, at(9_000)), Duration::ZERO, "others had the thread meanwhile");
        assert_eq!(clock.lap_at(here, at(9_100)), at(100));
        assert_eq!(clock.lap_at(elsewhere, at(50)), Duration::ZERO, "another thread has another clock");
        assert_eq!(clock.lap_at(elsewhere, at(60)), at(10));
    }
}
