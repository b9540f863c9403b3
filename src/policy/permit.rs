//! The permit: the proof that policy has allowed one exact request.
//!
//! Its fields are private and it is neither `Clone` nor `Default`. Outside of `policy` the only way to get one is
//! [`Evaluation::decide`](super::Evaluation::decide), and the only way to the [`ExecSpec`] inside is to give the permit up.

use super::{digest::Digest, exec_spec::ExecSpec};

/// Permission to run one exact command, once.
#[derive(Debug)]
#[must_use = "a permit that is not used runs nothing"]
pub struct Permit {
    pub(super) digest: Digest,
    pub(super) generation: u64,
    pub(super) rule: Option<String>,
    pub(super) spec: ExecSpec,
}

impl Permit {
    /// The digest of the request that was allowed.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The generation of the policy that allowed it.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The rule that allowed it; absent where nothing in the request needed one.
    pub fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }

    /// The command, for choosing its sandbox.
    pub fn spec(&self) -> &ExecSpec {
        &self.spec
    }

    /// Gives the permit up for the command that it allows.
    pub fn into_spec(self) -> ExecSpec {
        self.spec
    }
}
