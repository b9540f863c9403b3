//! The link to a gateway, which may be away for a while.
//!
//! A gateway that was killed, or is started anew, takes its sessions and terminals back under their ids. So a call that
//! it has not answered is made again, for as long as it may be away; then whoever called is told, and so is everybody
//! else who calls, after one try, until it answers again. What it has answered is never asked twice, whatever it was.
//! Only calls that may be made twice belong here.

use std::{
    error::Error,
    future::Future,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::client::Client;

/// How long a gateway may be away before those who call it are told.
const AWAY_LIMIT: Duration = Duration::from_secs(10);
/// Between tries.
const TRY_AGAIN: Duration = Duration::from_millis(250);
/// A call that was under way for longer had reached the gateway.
const REACHED_AFTER: Duration = Duration::from_secs(1);
/// How long a gateway that is there may take to answer what it can answer at once.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// A gateway that may be away. All clones are one.
#[derive(Debug, Clone)]
pub(super) struct Link {
    client: Client,
    away_since: Arc<Mutex<Option<Instant>>>,
}

/// The tries of one call.
#[derive(Debug)]
pub(super) struct Tries<'a> {
    link: &'a Link,
    begun: Instant,
    /// Since when none has been answered.
    failing_since: Option<Instant>,
    /// The last error of a try that may have reached the gateway.
    lost: Option<Status>,
}

impl Link {
    pub(super) fn new(client: Client) -> Self {
        Self { client, away_since: Arc::default() }
    }

    /// The connection itself, for calls that are made once.
    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Calls until the gateway answers, or has been away for too long.
    pub(super) async fn call<T, F>(&self, mut call: impl FnMut(Client) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let mut tries = self.tries();
        loop {
            match call(self.client.clone()).await {
                Ok(answer) => {
                    tries.answered();
                    return Ok(answer);
                }
                Err(status) => tries.failed(status).await?,
            }
        }
    }

    /// As [`Link::call`], of what a gateway answers at once: one that hangs is an error, too.
    pub(super) async fn ask<T, F>(&self, mut call: impl FnMut(Client) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        self.call(|client| {
            let answer = call(client);
            async move { timeout(ANSWER_LIMIT, answer).await.unwrap_or_else(|_| Err(no_answer_in_time())) }
        })
        .await
    }

    /// For a call that is not one closure: it begins now.
    pub(super) fn tries(&self) -> Tries<'_> {
        Tries { link: self, begun: Instant::now(), failing_since: None, lost: None }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.away_since.lock().expect("no code panics while it holds the time")
    }
}

impl Tries<'_> {
    /// The gateway has answered.
    pub(super) fn answered(&self) {
        *self.link.lock() = None;
    }

    /// A try has failed: returns when it is time for the next, which begins then. Otherwise with the error that says
    /// most: that of a try that may have reached the gateway.
    pub(super) async fn failed(&mut self, status: Status) -> Result<(), Status> {
        if !is_no_answer(&status) {
            self.answered();
            return Err(status);
        }
        let now = Instant::now();
        let had_reached = now - self.begun > REACHED_AFTER;
        let away_since = {
            let mut away_since = self.link.lock();
            *away_since = away_since.filter(|_| !had_reached).or(Some(now));
            away_since.unwrap_or(now)
        };
        let failing_since = self.failing_since.filter(|_| !had_reached).unwrap_or(now);
        self.failing_since = Some(failing_since);
        if may_have_arrived(&status) {
            self.lost = Some(status.clone());
        }
        // Where others call and are answered, it is this call that it leaves to the next gateway.
        if now - away_since.min(failing_since) > AWAY_LIMIT {
            return Err(self.lost.take().unwrap_or(status));
        }
        sleep(TRY_AGAIN).await;
        self.begun = Instant::now();
        Ok(())
    }
}

/// Whether a call ended without the gateway's answer: the connection has failed, or the gateway ends and leaves the
/// answer to the next one. A status that came over the wire has no source.
pub(super) fn is_no_answer(status: &Status) -> bool {
    status.source().is_some() || status.get_details_error_info().is_some_and(|info| info.reason == "DRAINING")
}

/// Whether the gateway may have done what was asked, although it has not said so. Where no connection was made, it was
/// not asked.
pub(super) fn may_have_arrived(status: &Status) -> bool {
    is_no_answer(status) && status.code() != Code::Unavailable
}

fn no_answer_in_time() -> Status {
    Status::deadline_exceeded(format!("the gateway has not answered for {} s", ANSWER_LIMIT.as_secs()))
}
