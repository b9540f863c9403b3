//! A task that ends with what holds this.

use tokio::task::AbortHandle;

/// Ends a task when it is dropped.
#[derive(Debug)]
pub(super) struct AbortOnDrop(pub AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_ends_with_what_holds_it() {
        let task = tokio::spawn(std::future::pending::<()>());
        let held = AbortOnDrop(task.abort_handle());
        tokio::task::yield_now().await;
        assert!(!task.is_finished());
        drop(held);
        let ended = tokio::time::timeout(std::time::Duration::from_secs(20), task).await;
        assert!(ended.expect("it has ended").expect_err("it was cut off").is_cancelled());
    }
}
