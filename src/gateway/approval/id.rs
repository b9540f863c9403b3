//! Approval ids: `appr_` and a ULID, in one canonical spelling.

use std::fmt;

use ulid::Ulid;

use crate::session::parse_ulid;

/// An approval's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ApprovalId(Ulid);

impl ApprovalId {
    /// A new one; 80 of its bits are random.
    pub fn generate() -> Self {
        Self(Ulid::generate())
    }

    /// Reads an id; any other spelling names nothing.
    pub fn parse(text: &str) -> Option<Self> {
        parse_ulid("appr_", text).map(Self)
    }
}

impl fmt::Display for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "appr_{}", self.0)
    }
}
