//! The link to a gateway, which may be away for a while.
//!
//! A gateway that was killed, or is started again, takes its sessions and terminals back under their ids. So a call that
//! it has not answered is made again, for as long as it may be away. Then the call fails, and so does every later call,
//! after one attempt, until the gateway answers again. What it has answered is never asked twice, whatever it was.
//! Only calls that may be made twice belong here.

use std::{
    error::Error,
    future::Future,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Response, Status};

use super::{
    connection::{Client, unless_gone},
    refusal::reason_of,
};
use crate::proto::v1;

/// How long a gateway may be away before those who call it are told.
const OUTAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Between attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// A call that was under way for longer had reached the gateway.
const RECEIVED_AFTER: Duration = Duration::from_secs(1);
/// How long a gateway that is there may take to answer what it can answer at once.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A gateway that may be away. All clones are one.
#[derive(Debug, Clone)]
pub(crate) struct RetryingClient {
    client: Client,
    outage: Arc<Mutex<Option<Outage>>>,
}

/// What is known of a gateway that does not answer.
#[derive(Debug, Clone, Copy)]
struct Outage {
    since: Instant,
    /// When it was last called in vain.
    last_failure: Instant,
}

/// The attempts of one call.
#[derive(Debug)]
pub(crate) struct Attempts<'a> {
    outage: &'a Mutex<Option<Outage>>,
    started_at: Instant,
    /// Since when none has been answered.
    failing_since: Option<Instant>,
    /// The last error of a try that may have reached the gateway.
    last_error: Option<Status>,
}

impl RetryingClient {
    /// Over this connection.
    pub(crate) fn new(client: Client) -> Self {
        Self { client, outage: Arc::default() }
    }

    /// The connection itself, for calls that are made once.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Calls until the gateway answers, or has been away for too long.
    pub(crate) async fn call<T, F>(&self, mut call: impl FnMut(Client) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let mut attempts = self.attempts();
        loop {
            match call(self.client.clone()).await {
                Ok(answer) => {
                    attempts.succeeded();
                    return Ok(answer);
                }
                Err(status) => attempts.failed(status).await?,
            }
        }
    }

    /// As [`RetryingClient::call`], of what a gateway answers at once: one that hangs is an error, too.
    pub(crate) async fn call_with_timeout<T, F>(&self, mut call: impl FnMut(Client) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        self.call(|client| {
            let answer = call(client);
            async move { timeout(ANSWER_TIMEOUT, answer).await.unwrap_or_else(|_| Err(timed_out())) }
        })
        .await
    }

    /// Opens a session.
    pub(crate) async fn open_session(
        &self,
        request: v1::CreateSessionRequest,
    ) -> Result<v1::Session, Status> {
        let opened = self.call_with_timeout(|client| {
            let request = request.clone();
            async move { client.sessions.clone().create_session(request).await }
        });
        Ok(opened.await?.into_inner().session.unwrap_or_default())
    }

    /// Starts a command. The request has an id, so that it can be sent again, and is one command all the same.
    pub(crate) async fn create_terminal(
        &self,
        request: v1::CreateTerminalRequest,
    ) -> Result<v1::Terminal, Status> {
        let created = self.call(|client| {
            let request = request.clone();
            async move { client.terminals.clone().create_terminal(request).await }
        });
        Ok(created.await?.into_inner().terminal.unwrap_or_default())
    }

    /// Writes to a command's standard input, at an offset: what was taken there is not taken twice. Returns how much it takes.
    pub(crate) async fn write_input(&self, request: v1::WriteInputRequest) -> Result<u64, Status> {
        let written = self.call(|client| {
            let request = request.clone();
            async move { client.terminals.clone().write_input(request).await }
        });
        Ok(written.await?.into_inner().written_bytes)
    }

    /// Waits for a command's end, however long that is.
    pub(crate) async fn wait_for_exit(
        &self,
        terminal_id: &str,
        session_id: &str,
    ) -> Result<v1::WaitForExitResponse, Status> {
        let (terminal_id, session_id) = (terminal_id.to_owned(), session_id.to_owned());
        let request = v1::WaitForExitRequest { terminal_id, session_id };
        let waited = self.call(|client| {
            let request = request.clone();
            async move { client.terminals.clone().wait_for_exit(request).await }
        });
        waited.await.map(Response::into_inner)
    }

    /// Begins to stop a command with all that it has started.
    pub(crate) async fn kill_terminal(&self, terminal_id: &str, session_id: &str) -> Result<(), Status> {
        let (terminal_id, session_id) = (terminal_id.to_owned(), session_id.to_owned());
        let request = v1::KillTerminalRequest { terminal_id, session_id, grace: None };
        let killed = self.call_with_timeout(|client| {
            let request = request.clone();
            async move { client.terminals.clone().kill_terminal(request).await }
        });
        killed.await.map(drop)
    }

    /// Stops a command and frees everything of it. One that is gone already is no error.
    pub(crate) async fn release_terminal(&self, terminal_id: &str, session_id: &str) -> Result<(), Status> {
        let (terminal_id, session_id) = (terminal_id.to_owned(), session_id.to_owned());
        let request = v1::ReleaseTerminalRequest { terminal_id, session_id, grace: None };
        let released = self.call(|client| {
            let request = request.clone();
            async move { client.terminals.clone().release_terminal(request).await }
        });
        unless_gone(released.await)
    }

    /// For a call that is not one closure: it begins now.
    pub(crate) fn attempts(&self) -> Attempts<'_> {
        Attempts { outage: &self.outage, started_at: Instant::now(), failing_since: None, last_error: None }
    }
}

impl Attempts<'_> {
    /// The gateway has answered.
    pub(crate) fn succeeded(&self) {
        *self.lock() = None;
    }

    /// A try has failed: returns when it is time for the next, which begins then. Otherwise with the error that says
    /// most: that of a try that may have reached the gateway.
    pub(crate) async fn failed(&mut self, status: Status) -> Result<(), Status> {
        self.failed_at(Instant::now(), status)?;
        sleep(RETRY_INTERVAL).await;
        self.started_at = Instant::now();
        Ok(())
    }

    fn failed_at(&mut self, now: Instant, status: Status) -> Result<(), Status> {
        if !is_unanswered(&status) {
            self.succeeded();
            return Err(status);
        }
        let had_reached = now - self.started_at > RECEIVED_AFTER;
        let outage_since = {
            let mut away = self.lock();
            // One that nobody has called for so long may have come back and gone again.
            let known = away.filter(|away| !had_reached && now - away.last_failure <= OUTAGE_TIMEOUT);
            let since = known.map_or(now, |away| away.since);
            *away = Some(Outage { since, last_failure: now });
            since
        };
        let failing_since = self.failing_since.filter(|_| !had_reached).unwrap_or(now);
        self.failing_since = Some(failing_since);
        if may_have_been_received(&status) {
            self.last_error = Some(status.clone());
        }
        // Where others call and are answered, it is this call that it leaves to the next gateway.
        if now - outage_since.min(failing_since) > OUTAGE_TIMEOUT {
            return Err(self.last_error.take().unwrap_or(status));
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Outage>> {
        self.outage.lock().expect("no code panics while it holds the times")
    }
}

/// Whether a call ended without the gateway's answer: the connection has failed, or the gateway ends and leaves the
/// answer to the next one. A status that came over the wire has no source.
pub(crate) fn is_unanswered(status: &Status) -> bool {
    status.source().is_some() || reason_of(status) == "DRAINING"
}

/// Whether the gateway may have done what was asked, although it has not said so. Where no connection was made, it was
/// not asked.
pub(crate) fn may_have_been_received(status: &Status) -> bool {
    is_unanswered(status) && status.code() != Code::Unavailable
}

fn timed_out() -> Status {
    Status::deadline_exceeded(format!("the gateway has not answered for {} s", ANSWER_TIMEOUT.as_secs()))
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
        away: &Mutex<Option<Outage>>,
        begun: Instant,
        mut fail: impl FnMut() -> Status,
    ) -> (Duration, Status) {
        let mut now = begun;
        let mut attempts =
            Attempts { outage: away, started_at: begun, failing_since: None, last_error: None };
        loop {
            if let Err(status) = attempts.failed_at(now, fail()) {
                return (now - begun, status);
            }
            now += RETRY_INTERVAL;
            attempts.started_at = now;
        }
    }

    #[test]
    fn what_a_gateway_answers_is_the_answer() {
        let away = Mutex::default();
        for status in
            [Status::unavailable("the journal is full"), Status::not_found("x"), Status::cancelled("x")]
        {
            assert!(!is_unanswered(&status));
            assert_eq!(give_up(&away, Instant::now(), || status.clone()).0, Duration::ZERO);
        }
        assert!(is_unanswered(&not_sent()) && !may_have_been_received(&not_sent()));
        assert!(may_have_been_received(&lost_on_the_way()));
    }

    #[test]
    fn a_gateway_that_is_away_is_waited_for_and_then_tried_once_by_everybody() {
        let (away, now) = (Mutex::default(), Instant::now());
        let waited = OUTAGE_TIMEOUT + RETRY_INTERVAL;
        assert_eq!(give_up(&away, now, not_sent).0, waited);
        let later = now + waited + Duration::from_secs(1);
        assert_eq!(give_up(&away, later, not_sent).0, Duration::ZERO);
        // The gateway has answered a call: the time limit starts again.
        Attempts { outage: &away, started_at: later, failing_since: None, last_error: None }.succeeded();
        assert_eq!(give_up(&away, later, not_sent).0, waited);
        // So it does when nobody has called for long.
        assert_eq!(give_up(&away, later + 3 * OUTAGE_TIMEOUT, not_sent).0, waited);
    }

    #[test]
    fn a_wait_that_lasted_had_reached_the_gateway() {
        let (away, mut now) = (Mutex::default(), Instant::now());
        let mut wait = Attempts { outage: &away, started_at: now, failing_since: None, last_error: None };
        for _ in 0..5 {
            now += Duration::from_secs(3_600);
            assert!(wait.failed_at(now, lost_on_the_way()).is_ok());
            wait.started_at = now;
        }
    }

    #[test]
    fn one_call_is_given_up_although_others_are_answered() {
        let (away, now) = (Mutex::default(), Instant::now());
        let other = Attempts { outage: &away, started_at: now, failing_since: None, last_error: None };
        let draining = || {
            other.succeeded();
            not_sent()
        };
        assert_eq!(give_up(&away, now, draining).0, OUTAGE_TIMEOUT + RETRY_INTERVAL);
    }

    #[test]
    fn the_error_is_that_of_a_try_that_may_have_arrived() {
        let (away, mut first) = (Mutex::default(), true);
        let fail = || if std::mem::take(&mut first) { lost_on_the_way() } else { not_sent() };
        assert!(may_have_been_received(&give_up(&away, Instant::now(), fail).1));
    }
}
