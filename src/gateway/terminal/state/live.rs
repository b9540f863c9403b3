//! What a terminal has from its command's start on.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{
    masking::{MaskError, Masker},
    proto::supervisor::Started,
    sandbox::handle::Sandbox,
    sys::ring,
};

/// The most values that a running command's output is masked by.
const VALUES_MAX: usize = 256;

/// What is there once the command runs.
#[derive(Debug)]
pub struct Live {
    /// As the supervisor saw it.
    pub started: Started,
    /// Of stdout, or of the merged output.
    pub stdout: ring::RingReader,
    /// Of stderr, when it is kept apart.
    pub stderr: Option<ring::RingReader>,
    /// Where it runs.
    pub sandbox: Arc<Sandbox>,
    /// Takes its secrets out of what leaves the gateway.
    pub masker: LiveMasker,
}

/// What masks the output of a command. Secrets that its requests are given may change while it runs: their values are added, and none is
/// taken away.
#[derive(Debug)]
pub struct LiveMasker(Mutex<Masker>);

/// Why a value is not masked in a command's output.
#[derive(Debug, thiserror::Error)]
pub enum LiveMaskError {
    /// There are too many.
    #[error("its output is masked by {VALUES_MAX} values already")]
    TooMany,
    /// It cannot be masked.
    #[error(transparent)]
    Mask(#[from] MaskError),
}

impl LiveMasker {
    /// Masks what it is known to have when it begins.
    pub fn new(masker: Masker) -> Self {
        Self(Mutex::new(masker))
    }

    /// What is masked now.
    pub fn current(&self) -> Masker {
        self.lock().clone()
    }

    /// Whether anything is.
    pub fn masks_any(&self) -> bool {
        self.lock().count() > 0
    }

    /// Masks this value from now on, which the output cannot have yet.
    ///
    /// # Errors
    /// [`LiveMaskError`].
    pub fn add(&self, value: &[u8]) -> Result<(), LiveMaskError> {
        let mut masker = self.lock();
        if masker.has(value) {
            return Ok(());
        }
        if masker.count() >= VALUES_MAX {
            return Err(LiveMaskError::TooMany);
        }
        *masker = masker.with(value)?;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Masker> {
        // Every change of it is one assignment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_comes_later_is_masked_with_those_before_and_there_are_not_too_many() {
        let masker = LiveMasker::new(Masker::NONE);
        assert!(!masker.masks_any());
        masker.add(b"first-value").unwrap();
        masker.add(b"second-value").unwrap();
        masker.add(b"first-value").unwrap();
        assert_eq!(masker.current().mask_text("first-value second-value"), "*** ***");
        assert!(matches!(masker.add(b"abc"), Err(LiveMaskError::Mask(_))));
        for number in 2..VALUES_MAX {
            masker.add(format!("value-{number}").as_bytes()).unwrap();
        }
        assert!(matches!(masker.add(b"one-more"), Err(LiveMaskError::TooMany)));
        masker.add(b"second-value").unwrap();
    }
}
