//! Converts what a supervisor reports into the outcome of a command. Pure.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{
    printable,
    proto::{
        supervisor::{Exit, Started, StopCause, exit},
        v1::{ExitCause, MemoryPeakSource, Outcome, Unreachable, Usage, outcome},
    },
    signal,
};

/// The most names of processes that ended with a command, and the bytes of each.
const ENDED_NAMES_MAX: usize = 8;
const ENDED_NAME_MAX_BYTES: usize = 64;

/// The outcome of a command whose end the supervisor saw.
pub fn reported(exit: &Exit) -> Outcome {
    let end = exit.end.map(|end| match end {
        exit::End::Code(code) => outcome::End::ExitCode(code),
        exit::End::Signal(number) => outcome::End::Signal(signal::name(number)),
    });
    let source = match exit.memory_peak_of_cgroup {
        true => MemoryPeakSource::Cgroup,
        false => MemoryPeakSource::LargestProcess,
    };
    Outcome {
        cause: cause(exit).into(),
        end,
        usage: Some(Usage {
            wall: Some(duration(Duration::from_micros(exit.wall_us))),
            cpu_user: Some(duration(Duration::from_micros(exit.cpu_user_us))),
            cpu_system: Some(duration(Duration::from_micros(exit.cpu_system_us))),
            memory_peak_bytes: exit.memory_peak_bytes,
            memory_peak_source: source.into(),
            io_read_bytes: exit.io_read_bytes,
            io_write_bytes: exit.io_write_bytes,
        }),
        started_at: Some(timestamp(nanoseconds(exit.started_at_ns))),
        ended_at: Some(timestamp(nanoseconds(exit.ended_at_ns))),
        survivors: exit.survivors,
        stragglers_killed: exit.stragglers_killed,
        ended_processes: exit.ended_processes,
        ended_commands: exit
            .ended_commands
            .iter()
            .take(ENDED_NAMES_MAX)
            .map(|name| shown_name(name))
            .collect(),
        core_dumped: exit.core_dumped,
        unreachable: exit.unreachable.as_ref().map(|reported| Unreachable {
            names: reported.names.clone(),
            names_omitted: reported.names_omitted,
            no_route: reported.no_route,
            ..Unreachable::default()
        }),
        ..Outcome::default()
    }
}

/// A command chooses its processes' names.
fn shown_name(name: &[u8]) -> String {
    printable::bounded_line(&String::from_utf8_lossy(name), ENDED_NAME_MAX_BYTES).into_owned()
}

/// The outcome of a command that went with its sandbox: nobody saw its end, so that there is no code. The cause is what it
/// was being ended for, if it was. The kernel had ended every process of the sandbox before this was known, but for those
/// that are counted as survivors.
pub fn lost(
    started: Option<&Started>,
    end_cause: Option<ExitCause>,
    survivors: u32,
    now: SystemTime,
) -> Outcome {
    let started_at = started.map(|started| nanoseconds(started.started_at_ns));
    let wall = started_at.and_then(|at| now.duration_since(at).ok());
    Outcome {
        end: None,
        cause: end_cause.unwrap_or(ExitCause::SandboxLost).into(),
        usage: wall.map(|wall| Usage { wall: Some(duration(wall)), ..Usage::default() }),
        started_at: started_at.map(timestamp),
        ended_at: Some(timestamp(now)),
        survivors,
        ..Outcome::default()
    }
}

/// What set the end in motion: ours if it was, else the kernel's, else the command's own.
fn cause(exit: &Exit) -> ExitCause {
    cause_of_stop(exit.stopped()).unwrap_or(match exit.end {
        _ if exit.memory_limit => ExitCause::MemoryLimit,
        Some(exit::End::Code(_)) => ExitCause::Exited,
        Some(exit::End::Signal(_)) => ExitCause::Signalled,
        None => ExitCause::SandboxLost,
    })
}

/// The cause of a stop that we began.
pub fn cause_of_stop(cause: StopCause) -> Option<ExitCause> {
    match cause {
        StopCause::Killed => Some(ExitCause::Killed),
        StopCause::TimeLimit => Some(ExitCause::TimeLimit),
        StopCause::IdleLimit => Some(ExitCause::IdleLimit),
        StopCause::Shutdown => Some(ExitCause::Shutdown),
        StopCause::Unspecified => None,
    }
}

fn nanoseconds(since_epoch: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(since_epoch)
}

/// A moment, in the protocol's words.
pub fn timestamp(at: SystemTime) -> prost_types::Timestamp {
    at.into()
}

fn duration(time: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        nanos: time.subsec_nanos().cast_signed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_did_wins_over_how_it_looks() {
        let mut exit = Exit { end: Some(exit::End::Signal(9)), ..Exit::default() };
        assert_eq!(cause(&exit), ExitCause::Signalled);
        exit.memory_limit = true;
        assert_eq!(cause(&exit), ExitCause::MemoryLimit);
        exit.stopped = StopCause::TimeLimit.into();
        assert_eq!(cause(&exit), ExitCause::TimeLimit);
    }

    #[test]
    fn a_lost_command_has_neither_code_nor_signal() {
        for (ends_for, cause) in
            [(None, ExitCause::SandboxLost), (Some(ExitCause::TimeLimit), ExitCause::TimeLimit)]
        {
            let outcome = lost(Some(&Started::default()), ends_for, 0, SystemTime::now());
            assert_eq!((outcome.end.clone(), outcome.cause()), (None, cause));
        }
        assert_eq!(reported(&Exit::default()).cause(), ExitCause::SandboxLost);
    }
}
