//! The net process at the other end of one question: it can be told to wait, and can take its question back.

use std::{os::fd::OwnedFd, sync::Arc};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::proto::net::{Verdict, Waiting, verdict};

/// A verdict, and the sockets that go with it.
pub(super) type Answer = (Verdict, Vec<Arc<OwnedFd>>);

/// Who has asked.
#[derive(Debug)]
pub struct Asker {
    pub(super) number: u64,
    pub(super) answers: mpsc::Sender<Answer>,
    pub(super) withdrawn: CancellationToken,
}

impl Asker {
    /// Says that the verdict takes the time that a person takes.
    pub async fn wait_for_person(&self) {
        let waiting = Verdict { number: self.number, verdict: Some(verdict::Verdict::Waiting(Waiting {})) };
        // A process that is gone has taken its question back.
        let _ = self.answers.send((waiting, Vec::new())).await;
    }

    /// Resolves when the question is not asked any more: the program has gone. The end of the process drops who awaits this.
    pub async fn withdrawn(&self) {
        self.withdrawn.cancelled().await;
    }
}
