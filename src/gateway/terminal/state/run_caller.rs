//! Records whether a resumable run has its caller.
//!
//! Of the caller who comes back and the time that is over, one wins.

use std::sync::atomic::{AtomicU8, Ordering};

use super::claim::Claim;

/// Nobody has taken the run yet.
const NOBODY: u8 = 0;
/// Its caller is there.
const PRESENT: u8 = 1;
/// Its gateway or its caller's connection has ended, and the caller may come again.
const AWAITED: u8 = 2;
/// The caller did not come, and the run is stopped.
const GIVEN_UP: u8 = 3;

/// The caller of a run.
#[derive(Debug, Default)]
pub(in crate::terminal) struct RunCaller(AtomicU8);

impl RunCaller {
    /// The caller may come from now on. `Taken`: it is there already.
    pub(in crate::terminal) fn expect(&self) -> Claim {
        self.change(NOBODY, AWAITED)
    }

    /// The one who asked for the run is here to take it, for the first time or again. `Taken`: it has its caller, or is given up.
    pub(in crate::terminal) fn arrive(&self) -> Claim {
        match self.change(NOBODY, PRESENT) {
            Claim::Granted => Claim::Granted,
            Claim::Taken => self.come_back(),
        }
    }

    /// The caller has come back. `Taken`: nobody is awaited, or not any more.
    pub(in crate::terminal) fn come_back(&self) -> Claim {
        self.change(AWAITED, PRESENT)
    }

    /// The caller has not come in time. `Taken`: it has.
    pub(in crate::terminal) fn give_up(&self) -> Claim {
        self.change(AWAITED, GIVEN_UP)
    }

    fn change(&self, from: u8, to: u8) -> Claim {
        match self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Claim::Granted,
            Err(_) => Claim::Taken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_caller_comes_back_and_only_to_a_run_that_awaits_one() {
        let caller = RunCaller::default();
        assert_eq!(caller.come_back(), Claim::Taken, "nobody is awaited");
        assert_eq!(caller.expect(), Claim::Granted);
        assert_eq!(caller.come_back(), Claim::Granted);
        assert_eq!(caller.come_back(), Claim::Taken);
        assert_eq!(caller.give_up(), Claim::Taken, "it has its caller again");
        let caller = RunCaller::default();
        assert_eq!(caller.expect(), Claim::Granted);
        assert_eq!(caller.give_up(), Claim::Granted);
        assert_eq!(caller.come_back(), Claim::Taken);
        assert_eq!(caller.arrive(), Claim::Taken);
    }

    #[test]
    fn one_request_takes_a_run_and_its_repetition_only_where_it_is_awaited() {
        let caller = RunCaller::default();
        assert_eq!(caller.arrive(), Claim::Granted);
        assert_eq!(caller.arrive(), Claim::Taken, "it has its caller");
        assert_eq!(caller.expect(), Claim::Taken, "it is not taken away from its caller");
        let caller = RunCaller::default();
        assert_eq!(caller.expect(), Claim::Granted);
        assert_eq!(caller.arrive(), Claim::Granted);
        assert_eq!(caller.give_up(), Claim::Taken);
    }
}
