//! Records whether a resumable run has its caller.
//!
//! Of the caller who comes back and the time that is over, one wins.

use std::sync::atomic::{AtomicU8, Ordering};

use super::claim::Claim;

/// The one who made the run is there.
const PRESENT: u8 = 0;
/// Its gateway has ended, and the caller may come to this one.
const AWAITED: u8 = 1;
/// The caller did not come, and the run is stopped.
const GIVEN_UP: u8 = 2;

/// The caller of a run.
#[derive(Debug, Default)]
pub(in crate::terminal) struct RunCaller(AtomicU8);

impl RunCaller {
    /// The caller may come back from now on.
    pub(in crate::terminal) fn expect_back(&self) {
        self.0.store(AWAITED, Ordering::Release);
    }

    /// The caller has come back. `Taken`: nobody is awaited, or not any more.
    pub(in crate::terminal) fn come_back(&self) -> Claim {
        self.change(PRESENT)
    }

    /// The caller has not come in time. `Taken`: it has.
    pub(in crate::terminal) fn give_up(&self) -> Claim {
        self.change(GIVEN_UP)
    }

    fn change(&self, to: u8) -> Claim {
        match self.0.compare_exchange(AWAITED, to, Ordering::AcqRel, Ordering::Acquire) {
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
        assert_eq!(caller.come_back(), Claim::Taken, "it has its caller");
        caller.expect_back();
        assert_eq!(caller.come_back(), Claim::Granted);
        assert_eq!(caller.come_back(), Claim::Taken);
        assert_eq!(caller.give_up(), Claim::Taken, "it has its caller again");
        caller.expect_back();
        assert_eq!(caller.give_up(), Claim::Granted);
        assert_eq!(caller.come_back(), Claim::Taken);
    }
}
