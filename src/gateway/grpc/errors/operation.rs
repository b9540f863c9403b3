//! What is asked of a terminal that exists.

use tonic::Status;

use super::{ResourceKind, bad_field, control, describe_errno, not_found, status};
use crate::{
    grpc::request::FieldError,
    reason::Reason,
    terminal::{OperationError, TerminalReleased},
};

/// Asking something of a terminal.
pub(crate) fn terminal_request(error: &OperationError) -> Status {
    match error {
        OperationError::Released(TerminalReleased) => not_found(ResourceKind::Terminal),
        OperationError::Ended
        | OperationError::StdinClosed
        | OperationError::NoPty
        | OperationError::LineRunning
        | OperationError::LineOver
        | OperationError::NotAKeptShell
        | OperationError::RunNotAwaited => status(error, error.to_string(), []),
        OperationError::InputGap => {
            bad_field(FieldError { field: "offset".into(), problem: error.to_string() })
        }
        OperationError::Control(error) => control(error),
        OperationError::Errno(errno) => status(error, describe_errno(*errno), [("errno", errno.to_string())]),
    }
}

/// Writing to a command's stdin, of which the supervisor holds one write at a time.
pub(crate) fn input_write(error: &OperationError) -> Status {
    match error {
        OperationError::Errno(errno @ libc::EAGAIN) => status(
            Reason::InputBusy,
            "another write to the command's stdin is under way, and nothing of this one was taken".into(),
            [("errno", errno.to_string())],
        ),
        error => terminal_request(error),
    }
}

#[cfg(test)]
mod tests {
    use tonic_types::StatusExt;

    use super::*;

    #[test]
    fn a_second_writer_is_told_that_it_may_try_again() {
        let reason = |status: &Status| status.get_details_error_info().map(|info| info.reason);
        let busy = OperationError::Errno(libc::EAGAIN);
        let status = input_write(&busy);
        assert_eq!((status.code(), reason(&status).as_deref()), (tonic::Code::Aborted, Some("INPUT_BUSY")));
        for (status, expected) in [
            (terminal_request(&busy), "SUPERVISOR"),
            (input_write(&OperationError::Errno(libc::EIO)), "SUPERVISOR"),
            (input_write(&OperationError::StdinClosed), "STDIN_CLOSED"),
        ] {
            assert_eq!(reason(&status).as_deref(), Some(expected));
        }
    }
}
