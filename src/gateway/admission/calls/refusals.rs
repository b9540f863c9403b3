//! What a caller is told whose call is refused before it is looked at.

use tonic::Status;

use super::{BODY_TIMEOUT, PIECE_MIN_BYTES, PIECES_FREE};
use crate::{
    admission::shares::{CallRefusal, UserShare},
    counters::Label,
    grpc::errors,
};

/// Why a request's body is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyRefusal {
    /// For what its user may have.
    Share(CallRefusal),
    /// One of the messages that follow one another has more bytes than one may have.
    MessageTooLong { bytes: u64, max: u64 },
}

impl From<CallRefusal> for BodyRefusal {
    fn from(refusal: CallRefusal) -> Self {
        Self::Share(refusal)
    }
}

/// A message of a caller who goes on sending.
pub(super) fn message_too_long(bytes: u64, max: u64) -> Status {
    let message = format!(
        "a message of a call that goes on may have {max} bytes with all its fields, and this one has {bytes}: send it in \
         pieces"
    );
    errors::share_reached("message_bytes", max, message)
}

/// What a caller is told.
pub(super) fn status(refusal: CallRefusal, share: &UserShare) -> Status {
    let (cap, message) = match refusal {
        CallRefusal::Slow => return errors::request_too_slow(BODY_TIMEOUT.as_secs()),
        CallRefusal::Calls => {
            let cap = share.calls_max as u64;
            (cap, format!("{cap} calls of this user are under way, the most there may be"))
        }
        CallRefusal::RequestBytes => {
            let cap = share.request_bytes_max;
            (cap, format!("this user's requests that are under way may have {cap} bytes together"))
        }
        CallRefusal::ResponseBytes => {
            let cap = share.responses.max();
            (cap, format!("this user's callers have not taken {cap} bytes of answers, the most there may be"))
        }
        CallRefusal::Pieces => {
            let message =
                format!("pieces of a request beyond {PIECES_FREE} must have {PIECE_MIN_BYTES} bytes");
            (PIECES_FREE, message)
        }
    };
    errors::share_reached(refusal.label(), cap, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::calls::CONTINUOUS_MESSAGE_MAX_BYTES;

    #[test]
    fn a_message_that_is_too_long_is_told_its_length_and_the_bound() {
        let status = message_too_long(CONTINUOUS_MESSAGE_MAX_BYTES + 1, CONTINUOUS_MESSAGE_MAX_BYTES);
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
        assert!(status.message().contains("65600 bytes") && status.message().contains("65601"), "{status}");
    }
}
