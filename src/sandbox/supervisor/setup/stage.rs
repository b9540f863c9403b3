//! The stage, index and errno at which set-up failed, and how they travel from supervisor to launcher.

use nix::errno::Errno;

use crate::proto::supervisor::{SandboxPlan, Stage, StageFailure};

/// The step of [`Stage::Identity`] that sets the supervisor's OOM score.
pub const OOM_SCORE_STEP: usize = 3;

/// A failed step. It carries no text: the gateway formats the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageError {
    stage: Stage,
    index: u32,
    errno: i32,
}

impl StageError {
    /// Length of the encoded form, in bytes.
    pub const BYTES: usize = 12;

    /// A failure of a stage that has only one step.
    #[must_use]
    pub fn new(stage: Stage, errno: Errno) -> Self {
        Self::at(stage, 0, errno)
    }

    /// A failure of the step with this number.
    #[must_use]
    pub fn at(stage: Stage, index: usize, errno: Errno) -> Self {
        Self { stage, index: u32::try_from(index).unwrap_or(u32::MAX), errno: errno as i32 }
    }

    /// The plan lacks something, or says something that no gateway sends.
    #[must_use]
    pub fn malformed_plan() -> Self {
        Self::new(Stage::Plan, Errno::EINVAL)
    }

    /// For `map_err`.
    pub fn of(stage: Stage) -> impl Fn(Errno) -> Self {
        move |errno| Self::new(stage, errno)
    }

    /// For `map_err`, with the step's number.
    pub fn of_step(stage: Stage, index: usize) -> impl Fn(Errno) -> Self {
        move |errno| Self::at(stage, index, errno)
    }

    /// The encoding for the pipe.
    #[must_use]
    pub fn encode(self) -> [u8; Self::BYTES] {
        Self::join(self.stage as i32, self.index, self.errno)
    }

    /// The encoding of success.
    #[must_use]
    pub fn encode_success() -> [u8; Self::BYTES] {
        Self::join(Stage::Unspecified as i32, 0, 0)
    }

    /// Decodes what came through the pipe; `None` is success.
    #[must_use]
    pub fn decode(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let number = |at: usize| i32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (stage, index, errno) = (number(0), number(4), number(8));
        if stage == Stage::Unspecified as i32 && errno == 0 {
            return None;
        }
        let stage = Stage::try_from(stage).unwrap_or(Stage::Unspecified);
        Some(Self { stage, index: index.cast_unsigned(), errno })
    }

    fn join(stage: i32, index: u32, errno: i32) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&stage.to_ne_bytes());
        bytes[4..8].copy_from_slice(&index.to_ne_bytes());
        bytes[8..].copy_from_slice(&errno.to_ne_bytes());
        bytes
    }
}

impl From<StageError> for StageFailure {
    fn from(error: StageError) -> Self {
        Self { stage: error.stage.into(), index: error.index, errno: error.errno }
    }
}

/// Fails when the plan names this stage and the build has failpoints.
#[cfg(feature = "failpoints")]
pub(super) fn inject(plan: &SandboxPlan, stage: Stage) -> Result<(), StageError> {
    if plan.fail_at == stage.as_str_name() { Err(StageError::new(stage, Errno::ECANCELED)) } else { Ok(()) }
}

/// Does nothing: this build has no failpoints.
#[cfg(not(feature = "failpoints"))]
#[allow(clippy::unnecessary_wraps)]
pub(super) fn inject(_: &SandboxPlan, _: Stage) -> Result<(), StageError> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_survives_the_pipe() {
        let failure = StageError::at(Stage::Mount, 7, Errno::EPERM);
        assert_eq!(StageError::decode(failure.encode()), Some(failure));
        assert_eq!(StageError::decode(StageError::encode_success()), None);
    }
}
