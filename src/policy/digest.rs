//! SHA-256 digests of requests and of policies.

use std::fmt;

/// A SHA-256 digest: of a request in its normal form, or of the files of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub(super) [u8; 32]);

impl Digest {
    /// The 32 bytes.
    pub fn bytes(&self) -> [u8; 32] {
        self.0
    }

    /// A digest that was read back from a file.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}
