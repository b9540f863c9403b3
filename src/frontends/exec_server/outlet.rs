//! Where a session's notifications go: to the connection that the session has at the moment, if it has one.
//!
//! What is sent while there is none, or is lost with one, is not sent again: the client reads it with `process/read`.

use std::sync::{Mutex, MutexGuard};

use super::lines::{LineSender, Receipt};

/// The connection of a session.
#[derive(Debug)]
pub(super) struct Outlet(Mutex<Option<LineSender>>);

impl Outlet {
    pub(super) fn new(to: LineSender) -> Self {
        Self(Mutex::new(Some(to)))
    }

    /// From now on notifications go here.
    pub(super) fn attach(&self, to: LineSender) {
        *self.lock() = Some(to);
    }

    /// There is no connection.
    pub(super) fn detach(&self) {
        *self.lock() = None;
    }

    /// Sends a notification; waits while the client does not read. The receipt is given when the client has it.
    pub(super) async fn send(&self, line: String, receipt: Receipt) {
        let to = self.lock().clone();
        if let Some(to) = to {
            // Without a reader it stays what it is: not received.
            let _ = to.send_for_receipt(line, receipt).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<LineSender>> {
        self.0.lock().expect("no code panics while it holds the connection")
    }
}
