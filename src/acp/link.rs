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
    away: Arc<Mutex<Option<Away>>>,
}

/// What is known of a gateway that does not answer.
#[derive(Debug, Clone, Copy)]
struct Away {
    since: Instant,
    /// When it was last called in vain.
    seen: Instant,
}

/// The tries of one call.
#[derive(Debug)]
pub(super) struct Tries<'a> {
    away: &'a Mutex<Option<Away>>,
    begun: Instant,
    /// Since when none has been answered.
    failing_since: Option<Instant>,
    /// The last error of a try that may have reached the gateway.
    lost: Option<Status>,
}

impl Link {
    pub(super) fn new(client: Client) -> Self {
        Self { client, away: Arc::default() }
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
        Tries { away: &self.away, begun: Instant::now(), failing_since: None, lost: None }
    }
}

impl Tries<'_> {
    /// The gateway has answered.
    pub(super) fn answered(&self) {
        *self.lock() = None;
    }

    /// A try has failed: returns when it is time for the next, which begins then. Otherwise with the error that says
    /// most: that of a try that may have reached the gateway.
    pub(super) async fn failed(&mut self, status: Status) -> Result<(), Status> {
        self.failed_at(Instant::now(), status)?;
        sleep(TRY_AGAIN).await;
        self.begun = Instant::now();
        Ok(())
    }

    fn failed_at(&mut self, now: Instant, status: Status) -> Result<(), Status> {
        if !is_no_answer(&status) {
            self.answered();
            return Err(status);
        }
        let had_reached = now - self.begun > REACHED_AFTER;
        let away_since = {
            let mut away = self.lock();
            // One that nobody has called for so long may have come back and gone again.
            let known = away.filter(|away| !had_reached && now - away.seen <= AWAY_LIMIT);
            let since = known.map_or(now, |away| away.since);
            *away = Some(Away { since, seen: now });
            since
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
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Away>> {
        self.away.lock().expect("no code panics while it holds the times")
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

#[cfg(test)]
mod tests {
    use super::*;

    fn lost_on_the_way() -> Status {
        Status::from_error(Box::new(std::io::Error::from(std::io::ErrorKind::BrokenPipe)))
    }

    fn not_sent() -> Status {
        let mut status = Status::unavailable("nobody listens");
        status.set_source(Arc::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)));
        status
    }

    /// A call from `begun` on, each try of which fails at once, until it is given up: after how long, and with what.
    fn give_up(
        away: &Mutex<Option<Away>>,
        begun: Instant,
        mut fail: impl FnMut() -> Status,
    ) -> (Duration, Status) {
        let mut now = begun;
        let mut tries = Tries { away, begun, failing_since: None, lost: None };
        loop {
            if let Err(status) = tries.failed_at(now, fail()) {
                return (now - begun, status);
            }
            now += TRY_AGAIN;
            tries.begun = now;
        }
    }

    #[test]
    fn what_a_gateway_answers_is_the_answer() {
        let away = Mutex::default();
        for status in
            [Status::unavailable("the journal is full"), Status::not_found("x"), Status::cancelled("x")]
        {
            assert!(!is_no_answer(&status));
            assert_eq!(give_up(&away, Instant::now(), || status.clone()).0, Duration::ZERO);
        }
        assert!(is_no_answer(&not_sent()) && !may_have_arrived(&not_sent()));
        assert!(may_have_arrived(&lost_on_the_way()));
    }

    #[test]
    fn a_gateway_that_is_away_is_waited_for_and_then_tried_once_by_everybody() {
        let (away, now) = (Mutex::default(), Instant::now());
        let waited = AWAY_LIMIT + TRY_AGAIN;
        assert_eq!(give_up(&away, now, not_sent).0, waited);
        let later = now + waited + Duration::from_secs(1);
        assert_eq!(give_up(&away, later, not_sent).0, Duration::ZERO);
        // It has answered somebody: the next time begins anew.
        Tries { away: &away, begun: later, failing_since: None, lost: None }.answered();
        assert_eq!(give_up(&away, later, not_sent).0, waited);
        // So it does when nobody has called for long.
        assert_eq!(give_up(&away, later + 3 * AWAY_LIMIT, not_sent).0, waited);
    }

    #[test]
    fn a_wait_that_lasted_had_reached_the_gateway() {
        let (away, mut now) = (Mutex::default(), Instant::now());
        let mut wait = Tries { away: &away, begun: now, failing_since: None, lost: None };
        for _ in 0..5 {
            now += Duration::from_secs(3_600);
            assert!(wait.failed_at(now, lost_on_the_way()).is_ok());
            wait.begun = now;
        }
    }

    #[test]
    fn one_call_is_given_up_although_others_are_answered() {
        let (away, now) = (Mutex::default(), Instant::now());
        let other = Tries { away: &away, begun: now, failing_since: None, lost: None };
        let draining = || {
            other.answered();
            not_sent()
        };
        assert_eq!(give_up(&away, now, draining).0, AWAY_LIMIT + TRY_AGAIN);
    }

    #[test]
    fn the_error_is_that_of_a_try_that_may_have_arrived() {
        let (away, mut first) = (Mutex::default(), true);
        let fail = || if std::mem::take(&mut first) { lost_on_the_way() } else { not_sent() };
        assert!(may_have_arrived(&give_up(&away, Instant::now(), fail).1));
    }
}
