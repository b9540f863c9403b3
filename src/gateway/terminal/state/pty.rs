//! The pseudo-terminal of a terminal, as the gateway knows it: its present size, and the callers who are attached.

use tokio::sync::watch;

use crate::policy::{PtySize, StreamMode};

/// The pseudo-terminal of a terminal, and who is attached to it.
#[derive(Debug)]
pub(in crate::terminal) struct PtyState {
    /// `None` for pipes.
    size: Option<watch::Sender<PtySize>>,
    attached: watch::Sender<usize>,
}

/// A caller who is attached, until this is dropped.
#[derive(Debug)]
pub struct AttachedGuard(watch::Sender<usize>);

impl Drop for AttachedGuard {
    fn drop(&mut self) {
        self.0.send_modify(|attached| *attached -= 1);
    }
}

impl PtyState {
    /// At the size that was asked for.
    pub(super) fn new(streams: StreamMode) -> Self {
        Self { size: streams.pty().map(watch::Sender::new), attached: watch::Sender::default() }
    }

    /// The present size.
    pub(super) fn size(&self) -> Option<PtySize> {
        self.size.as_ref().map(|size| *size.borrow())
    }

    /// To see changes of the size.
    pub(super) fn watch(&self) -> Option<watch::Receiver<PtySize>> {
        self.size.as_ref().map(watch::Sender::subscribe)
    }

    /// One more caller is attached.
    pub(super) fn attach(&self) -> AttachedGuard {
        self.attached.send_modify(|attached| *attached += 1);
        AttachedGuard(self.attached.clone())
    }

    /// How many callers are attached.
    pub(super) fn attached(&self) -> usize {
        *self.attached.borrow()
    }

    /// To see callers come and go.
    pub(super) fn watch_attached(&self) -> watch::Receiver<usize> {
        self.attached.subscribe()
    }

    /// The terminal has this size.
    pub(in crate::terminal) fn set(&self, size: PtySize) {
        if let Some(sender) = &self.size {
            sender.send_if_modified(|before| std::mem::replace(before, size) != size);
        }
    }
}
