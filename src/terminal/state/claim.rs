//! What only one caller may do: the first who claims it.

/// Who has claimed something that only one may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::terminal) enum Claim {
    Granted,
    Taken,
}
