//! A claim on an action that only the first caller may do.

/// Who has claimed something that only one may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::terminal) enum Claim {
    Granted,
    Taken,
}
