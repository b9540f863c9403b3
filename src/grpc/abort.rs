//! A task that ends with what holds this.

use tokio::task::AbortHandle;

/// Ends a task when it is dropped.
#[derive(Debug)]
pub struct AbortOnDrop(pub AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
