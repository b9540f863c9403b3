//! Calls over an outage of the gateway: which errors mean one, and for how long to try again.
//!
//! It repeats only what its callers say may be repeated.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tonic::{Code, Status};

use crate::client;

/// How long a restarted gateway may take until it serves again.
const RECONNECT_FOR: Duration = Duration::from_secs(30);
/// A call that was under way for longer had reached a gateway.
const REACHED_AFTER: Duration = Duration::from_secs(1);
/// Between two attempts.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(100);

/// Whether a gateway that ends can be followed by another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Restarts {
    /// It serves others, too, and is started again.
    Followed,
    /// It is this process's own.
    Never,
}

/// The outage that a call has met, if any.
#[derive(Debug)]
pub(in crate::cli) struct Outage {
    restarts: Restarts,
    give_up_at: Option<Instant>,
}

impl Outage {
    /// None yet.
    pub(in crate::cli) fn new(restarts: Restarts) -> Self {
        Self { restarts, give_up_at: None }
    }

    /// The gateway has answered.
    pub(in crate::cli) fn over(&mut self) {
        self.give_up_at = None;
    }

    /// Returns when it is time to try again.
    ///
    /// # Errors
    /// The status, if it is the gateway's answer, or the gateway has been away for too long. May be dropped meanwhile.
    pub(in crate::cli) async fn wait(&mut self, status: Status) -> Result<(), Status> {
        let give_up_at = *self.give_up_at.get_or_insert_with(|| Instant::now() + RECONNECT_FOR);
        if self.restarts == Restarts::Never || !is_disconnect(&status) || Instant::now() >= give_up_at {
            return Err(status);
        }
        sleep(RECONNECT_INTERVAL).await;
        Ok(())
    }
}

/// Makes a call, which may be made twice, until the gateway answers.
pub(in crate::cli) async fn until_answered<T, F>(mut call: impl FnMut() -> F) -> Result<T, Status>
where
    F: Future<Output = Result<T, Status>>,
{
    let mut outage = Outage::new(Restarts::Followed);
    loop {
        match call().await {
            Ok(answer) => return Ok(answer),
            Err(status) => outage.wait(status).await?,
        }
    }
}

/// Makes a call that may take as long as a person does, and may be made twice, until a gateway answers it. The gateway may go away
/// more than once.
pub(in crate::cli) async fn over_restarts<T, F>(
    restarts: Restarts,
    mut call: impl FnMut() -> F,
) -> Result<T, Status>
where
    F: Future<Output = Result<T, Status>>,
{
    let mut outage = Outage::new(restarts);
    loop {
        let begun = Instant::now();
        match call().await {
            Ok(answer) => return Ok(answer),
            Err(status) => {
                if begun.elapsed() >= REACHED_AFTER {
                    outage.over();
                }
                outage.wait(status).await?;
            }
        }
    }
}

/// Whether the connection was lost, and not the call refused.
pub(super) fn is_disconnect(status: &Status) -> bool {
    let has_reason = !matches!(client::reason_of(status).as_str(), "" | "DRAINING");
    let codes = [Code::Unavailable, Code::Unknown, Code::Cancelled, Code::Internal];
    !has_reason && codes.contains(&status.code())
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[tokio::test]
    async fn a_lost_connection_is_tried_again_and_an_answer_is_an_answer() {
        let mut calls = 0;
        let answered = until_answered(|| {
            calls += 1;
            ready(if calls < 3 { Err(Status::unavailable("nobody listens")) } else { Ok(calls) })
        })
        .await;
        assert_eq!(answered.expect("it came back"), 3);
        let mut calls = 0;
        let answered = over_restarts(Restarts::Followed, || {
            calls += 1;
            ready(if calls < 3 { Err(Status::unavailable("nobody listens")) } else { Ok(calls) })
        });
        assert_eq!(answered.await.expect("it came back"), 3);
        let refused = until_answered(|| ready(Err::<(), _>(Status::not_found("x")))).await;
        assert_eq!(refused.expect_err("it is refused").code(), Code::NotFound);
        let own = Outage::new(Restarts::Never).wait(Status::unavailable("x")).await;
        assert!(own.is_err(), "a gateway of this process does not come back");
        let mut long = Outage { restarts: Restarts::Followed, give_up_at: Some(Instant::now()) };
        assert!(long.wait(Status::unavailable("x")).await.is_err(), "its time is over");
    }
}
