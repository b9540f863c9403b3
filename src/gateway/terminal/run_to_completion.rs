//! Runs work to its end even when its caller goes away.
//!
//! A caller may disconnect in the middle of a create or a release, which must be completed or undone all the same. While the
//! caller waits, the work runs on the caller's task at no cost. When the caller drops it, the rest moves to its own task.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type OnDropped<T> = Box<dyn FnOnce(T) -> Work<()> + Send>;

/// Runs `work` to its end whatever becomes of the caller; when the caller has gone by then, `aftermath` gets the
/// result instead.
pub fn run_to_completion<T, W, A>(
    work: W,
    on_dropped: impl FnOnce(T) -> A + Send + 'static,
) -> RunToCompletion<T>
where
    T: Send + 'static,
    W: Future<Output = T> + Send + 'static,
    A: Future<Output = ()> + Send + 'static,
{
    RunToCompletion {
        work: Some(Box::pin(work)),
        on_dropped: Some(Box::new(|result| Box::pin(on_dropped(result)))),
    }
}

/// See [`run_to_completion`].
pub struct RunToCompletion<T: Send + 'static> {
    work: Option<Work<T>>,
    on_dropped: Option<OnDropped<T>>,
}

impl<T: Send + 'static> Future for RunToCompletion<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let work = self.work.as_mut().expect("a future is not polled after it was ready");
        let result = work.as_mut().poll(context);
        if result.is_ready() {
            self.work = None;
        }
        result
    }
}

impl<T: Send + 'static> Drop for RunToCompletion<T> {
    fn drop(&mut self) {
        let (Some(work), Some(aftermath)) = (self.work.take(), self.on_dropped.take()) else { return };
        // Outside of a runtime the gateway itself is ending, and its sandboxes with it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { aftermath(work.await).await });
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn dropped_work_is_completed_and_its_result_goes_to_on_dropped() {
        let (go, gone) = oneshot::channel::<u32>();
        let (sender, receiver) = oneshot::channel();
        let mut work = Box::pin(run_to_completion(async { gone.await.unwrap() }, |result| async move {
            sender.send(result).unwrap();
        }));
        assert!(std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context).is_pending())).await);
        drop(work);
        go.send(7).unwrap();
        assert_eq!(receiver.await, Ok(7));
    }

    #[tokio::test]
    async fn work_that_is_waited_for_answers_its_caller_only() {
        let result = run_to_completion(async { 7 }, |_| async { panic!("nobody has gone") }).await;
        assert_eq!(result, 7);
    }
}
