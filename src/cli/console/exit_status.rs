//! Exit statuses: what stands for an outcome or a signal in 8 bits.
//!
//! Pure. The statuses of Provost's own failures are in `error`.

use tokio::signal::unix::SignalKind;

use super::error;
use crate::{proto::v1, signal};

/// SIGPIPE of signal(7): what a program whose output nobody reads would have died of.
pub(in crate::cli) const BROKEN_PIPE: u8 = 128 + 13;

/// SIGKILL of signal(7).
const KILLED: u8 = 128 + 9;

/// The status that stands for an outcome, as the man page of timeout(1) and shells have it.
pub(in crate::cli) fn from_outcome(outcome: &v1::Outcome) -> u8 {
    use v1::outcome::End;
    match (outcome.cause(), &outcome.end) {
        (v1::ExitCause::TimeLimit | v1::ExitCause::IdleLimit, _) => error::TIME_LIMIT,
        // It went with its sandbox, which was killed because it outlived its own kill.
        (v1::ExitCause::Killed | v1::ExitCause::Shutdown, None) => KILLED,
        (v1::ExitCause::SandboxLost, _) | (_, None) => error::PROVOST_FAILED,
        (_, Some(End::ExitCode(code))) => u8::try_from(*code).unwrap_or(error::PROVOST_FAILED),
        (_, Some(End::Signal(name))) => signal_status(signal::number(name)),
    }
}

/// The status of a program that `signal` ended.
pub(in crate::cli) fn from_signal(signal: SignalKind) -> u8 {
    signal_status(Some(signal.as_raw_value()))
}

fn signal_status(number: Option<i32>) -> u8 {
    number.and_then(|number| u8::try_from(128 + number).ok()).unwrap_or(error::PROVOST_FAILED)
}

#[cfg(test)]
mod tests {
    use v1::outcome::End;

    use super::*;

    fn outcome(cause: v1::ExitCause, end: Option<End>) -> v1::Outcome {
        v1::Outcome { cause: cause.into(), end, ..Default::default() }
    }

    #[test]
    fn the_exit_status_is_that_of_the_command() {
        for code in [0_u8, 1, 42, 124, 255] {
            let ended = outcome(v1::ExitCause::Exited, Some(End::ExitCode(code.into())));
            assert_eq!(from_outcome(&ended), code);
        }
    }

    #[test]
    fn a_signal_is_128_and_its_number() {
        for (name, status) in
            [("SIGKILL", 137), ("SIGTERM", 143), ("SIG32", 160), ("SIGRTMIN", 162), ("SIGRTMIN+30", 192)]
        {
            let ended = outcome(v1::ExitCause::Signalled, Some(End::Signal(name.to_owned())));
            assert_eq!(from_outcome(&ended), status, "{name}");
        }
    }

    #[test]
    fn a_limit_of_time_is_124_whatever_the_command_made_of_it() {
        for end in [End::ExitCode(0), End::Signal("SIGTERM".to_owned())] {
            assert_eq!(from_outcome(&outcome(v1::ExitCause::TimeLimit, Some(end.clone()))), 124);
            assert_eq!(from_outcome(&outcome(v1::ExitCause::IdleLimit, Some(end))), 124);
        }
    }

    #[test]
    fn an_end_that_nobody_saw_is_never_0() {
        assert_eq!(from_outcome(&outcome(v1::ExitCause::SandboxLost, None)), 125);
        assert_eq!(from_outcome(&outcome(v1::ExitCause::Unspecified, None)), 125);
        assert_eq!(from_outcome(&outcome(v1::ExitCause::Killed, None)), 137);
        assert_eq!(from_outcome(&outcome(v1::ExitCause::Shutdown, None)), 137);
        assert_eq!(from_outcome(&outcome(v1::ExitCause::TimeLimit, None)), 124);
    }

    #[test]
    fn a_name_that_is_no_signal_is_a_failure_of_provost() {
        for name in ["", "SIGRTMIN-1", "SIGRTMIN+99", "SIGNOPE"] {
            let ended = outcome(v1::ExitCause::Signalled, Some(End::Signal(name.to_owned())));
            assert_eq!(from_outcome(&ended), error::PROVOST_FAILED, "{name:?}");
        }
    }
}
