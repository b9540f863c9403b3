//! The registry of all terminals of the gateway, by their ids and by the requests that created them; the primary terminal of each
//! session; the callers who wait.
//!
//! A terminal exists only for the principal of its session. The primary terminal is the pseudo-terminal that is shown for a session: the
//! one that a caller has chosen, else the oldest. A session without pseudo-terminals has none, and no entry.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::{OnceCell, broadcast, watch};

use crate::{
    session::{Principal, SessionId},
    terminal::{
        errors::{CreateError, OperationError},
        spec::TerminalId,
        state::Terminal,
    },
};

/// Changes that a slow watcher may be behind before it is sent everything again.
const CHANGES_BUFFERED: usize = 1_024;

/// A request that is being answered, or was.
pub(in crate::terminal) type Attempt = Arc<OnceCell<Result<Arc<Terminal>, Arc<CreateError>>>>;

/// The table of terminals.
#[derive(Debug)]
pub(crate) struct Registry {
    changes: broadcast::Sender<Arc<Terminal>>,
    by_id: Mutex<BTreeMap<TerminalId, Arc<Terminal>>>,
    by_request: Mutex<HashMap<(SessionId, String), Attempt>>,
    /// Requests whose terminals are in sandboxes that could not be adopted: they may be running.
    quarantined: Mutex<HashMap<(SessionId, String), TerminalId>>,
    primary: PrimaryTerminals,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            changes: broadcast::Sender::new(CHANGES_BUFFERED),
            by_id: Mutex::default(),
            by_request: Mutex::default(),
            quarantined: Mutex::default(),
            primary: PrimaryTerminals::default(),
        }
    }
}

impl Registry {
    /// The caller's terminal of that id, of that session when one is named. `None` for a malformed, unknown,
    /// released or foreign one, without a difference.
    pub(crate) fn find(&self, principal: Principal, id: &str, session: &str) -> Option<Arc<Terminal>> {
        let id = TerminalId::parse(id)?;
        let terminal = self.lock().get(&id).cloned()?;
        let session_fits = session.is_empty() || SessionId::parse(session) == Some(terminal.session.id);
        (terminal.session.principal == principal && session_fits).then_some(terminal)
    }

    /// The primary terminal of a session: the chosen one, else the oldest pseudo-terminal that is not released.
    pub(crate) fn primary(&self, session: SessionId) -> Option<TerminalId> {
        self.primary.of(session)
    }

    /// Told after each change of any session's primary terminal.
    pub(crate) fn primary_changes(&self) -> tokio::sync::watch::Receiver<()> {
        self.primary.changes()
    }

    /// Makes a terminal the primary one of its session.
    ///
    /// # Errors
    /// It has pipes.
    pub(crate) fn set_primary(&self, terminal: &Terminal) -> Result<(), OperationError> {
        if terminal.pty_size().is_none() {
            return Err(OperationError::NoPty);
        }
        self.primary.choose(terminal);
        Ok(())
    }

    /// The caller's terminals, oldest first; of one session when it is named.
    pub(crate) fn list(&self, principal: Principal, session: Option<SessionId>) -> Vec<Arc<Terminal>> {
        self.list_after(principal, session, None)
    }

    /// As [`Self::list`], those after one that was listed before.
    pub(crate) fn list_after(
        &self,
        principal: Principal,
        session: Option<SessionId>,
        after: Option<TerminalId>,
    ) -> Vec<Arc<Terminal>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let listed = |terminal: &Terminal| {
            terminal.session.principal == principal
                && session.is_none_or(|session| terminal.session.id == session)
        };
        let all = self.lock();
        all.range((from, Bound::Unbounded)).map(|(_, one)| one).filter(|one| listed(one)).cloned().collect()
    }

    /// Terminals whose state has changed, from now on.
    pub(crate) fn changes(&self) -> broadcast::Receiver<Arc<Terminal>> {
        self.changes.subscribe()
    }

    /// The one attempt at a request of that id, which all who send it wait for.
    pub(in crate::terminal) fn attempt(&self, key: &(SessionId, String)) -> Attempt {
        self.lock_requests().entry(key.clone()).or_default().clone()
    }

    /// Lets the next one with that id try again.
    pub(in crate::terminal) fn forget_attempt(&self, key: &(SessionId, String), failed: &Attempt) {
        let mut requests = self.lock_requests();
        if requests.get(key).is_some_and(|current| Arc::ptr_eq(current, failed)) {
            requests.remove(key);
        }
    }

    /// Lets callers find a terminal that is being started.
    pub(in crate::terminal) fn insert_starting(&self, terminal: &Arc<Terminal>) {
        self.lock().insert(terminal.id, terminal.clone());
        self.primary.insert(terminal);
    }

    /// Removes a terminal that did not start. The caller who made the attempt forgets the attempt.
    pub(in crate::terminal) fn remove_starting(&self, terminal: &Terminal) {
        self.lock().remove(&terminal.id);
        self.primary.remove(terminal);
    }

    /// Adds a terminal that exists already.
    pub(in crate::terminal) fn insert_adopted(&self, terminal: &Arc<Terminal>) {
        self.insert_starting(terminal);
        if let Some(request_id) = terminal.request_id.clone() {
            let attempt = Arc::new(OnceCell::new_with(Some(Ok(terminal.clone()))));
            self.lock_requests().insert((terminal.session.id, request_id.clone()), attempt);
            self.unquarantine(terminal.session.id, request_id);
        }
    }

    /// Forgets a terminal of which nothing is left, and its request.
    pub(in crate::terminal) fn remove(&self, terminal: &Terminal) {
        self.remove_starting(terminal);
        if let Some(request_id) = &terminal.request_id {
            self.lock_requests().remove(&(terminal.session.id, request_id.clone()));
        }
    }

    /// What has become of a request's terminal is known.
    pub(in crate::terminal) fn unquarantine(&self, session: SessionId, request_id: String) {
        self.lock_quarantined().remove(&(session, request_id));
    }

    /// The terminal of that id, of any principal.
    pub(in crate::terminal) fn get(&self, id: TerminalId) -> Option<Arc<Terminal>> {
        self.lock().get(&id).cloned()
    }

    pub(in crate::terminal) fn has(&self, id: TerminalId) -> bool {
        self.lock().contains_key(&id)
    }

    /// Lets nothing be run for a request whose terminal may be running.
    pub(in crate::terminal) fn quarantine(&self, session: SessionId, request_id: String, id: TerminalId) {
        self.lock_quarantined().insert((session, request_id), id);
    }

    /// The terminal of a request for which nothing may be run.
    pub(in crate::terminal) fn quarantined(&self, key: &(SessionId, String)) -> Option<TerminalId> {
        self.lock_quarantined().get(key).copied()
    }

    pub(in crate::terminal) fn all(&self) -> Vec<Arc<Terminal>> {
        self.lock().values().cloned().collect()
    }

    pub(in crate::terminal) fn changes_sender(&self) -> &broadcast::Sender<Arc<Terminal>> {
        &self.changes
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<TerminalId, Arc<Terminal>>> {
        self.by_id.lock().expect("no code panics while it holds the table of terminals")
    }

    fn lock_quarantined(&self) -> std::sync::MutexGuard<'_, HashMap<(SessionId, String), TerminalId>> {
        self.quarantined.lock().expect("no code panics while it holds the table of quarantined requests")
    }

    fn lock_requests(&self) -> std::sync::MutexGuard<'_, HashMap<(SessionId, String), Attempt>> {
        self.by_request.lock().expect("no code panics while it holds the table of requests")
    }
}

/// The pseudo-terminals of all sessions. As many as there are terminals, which quotas bound.
#[derive(Debug, Default)]
pub(in crate::terminal) struct PrimaryTerminals {
    sessions: Mutex<HashMap<SessionId, Candidates>>,
    changes: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Candidates {
    /// By age.
    ptys: BTreeSet<TerminalId>,
    chosen: Option<TerminalId>,
}

impl PrimaryTerminals {
    /// A terminal is there.
    pub(in crate::terminal) fn insert(&self, terminal: &Terminal) {
        if terminal.pty_size().is_some() {
            self.lock().entry(terminal.session.id).or_default().ptys.insert(terminal.id);
            self.changes.send_replace(());
        }
    }

    /// A terminal is gone.
    pub(in crate::terminal) fn remove(&self, terminal: &Terminal) {
        {
            let mut sessions = self.lock();
            let Some(candidates) = sessions.get_mut(&terminal.session.id) else { return };
            candidates.ptys.remove(&terminal.id);
            candidates.chosen.take_if(|chosen| *chosen == terminal.id);
            if candidates.ptys.is_empty() {
                sessions.remove(&terminal.session.id);
            }
        }
        self.changes.send_replace(());
    }

    /// Chooses a pseudo-terminal that is there.
    pub(in crate::terminal) fn choose(&self, terminal: &Terminal) {
        if let Some(candidates) = self.lock().get_mut(&terminal.session.id)
            && candidates.ptys.contains(&terminal.id)
        {
            candidates.chosen = Some(terminal.id);
        }
        self.changes.send_replace(());
    }

    /// The primary terminal of a session.
    pub(in crate::terminal) fn of(&self, session: SessionId) -> Option<TerminalId> {
        let sessions = self.lock();
        let candidates = sessions.get(&session)?;
        candidates.chosen.or_else(|| candidates.ptys.first().copied())
    }

    /// Told after each change of any session's.
    pub(in crate::terminal) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Candidates>> {
        self.sessions.lock().expect("no code panics while it holds the primary terminals")
    }
}

/// How many callers wait for a terminal, so that a drain can wait for them.
///
/// Waits, runs, lines and the streams of one terminal count: its output, who is attached, a forwarded port. Watches do not,
/// because they never end.
#[derive(Debug, Clone)]
pub(crate) struct Waiters(Arc<watch::Sender<usize>>);

impl Default for Waiters {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl Waiters {
    /// One more, for as long as the answer lives.
    pub(crate) fn register(&self) -> WaiterGuard {
        self.0.send_modify(|count| *count += 1);
        WaiterGuard(self.0.clone())
    }

    /// Waits until there is nobody.
    pub(crate) async fn wait_until_none(&self) {
        // The sender is part of `self`: it cannot be gone.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

/// One caller who waits.
#[derive(Debug)]
pub(crate) struct WaiterGuard(Arc<watch::Sender<usize>>);

impl Drop for WaiterGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_who_send_a_request_wait_for_one_attempt_until_it_has_failed() {
        let registry = Registry::default();
        let key = (SessionId::generate(), "request".to_owned());
        let other = (SessionId::generate(), "request".to_owned());
        let first = registry.attempt(&key);
        let is_first = || Arc::ptr_eq(&registry.attempt(&key), &first);
        assert!(is_first() && !Arc::ptr_eq(&registry.attempt(&other), &first));
        registry.forget_attempt(&key, &Attempt::default());
        registry.forget_attempt(&other, &first);
        assert!(is_first(), "another one has failed");
        registry.forget_attempt(&key, &first);
        assert!(!is_first());
    }

    #[test]
    fn nothing_is_run_for_a_request_until_it_is_known_what_became_of_it() {
        let (registry, session, id) = (Registry::default(), SessionId::generate(), TerminalId::generate());
        let of = |session, request: &str| registry.quarantined(&(session, request.to_owned()));
        assert_eq!(of(session, "one"), None);
        registry.quarantine(session, "one".into(), id);
        assert_eq!(of(session, "one"), Some(id));
        assert_eq!((of(session, "two"), of(SessionId::generate(), "one")), (None, None));
        registry.unquarantine(session, "two".into());
        assert_eq!(of(session, "one"), Some(id));
        registry.unquarantine(session, "one".into());
        assert_eq!(of(session, "one"), None);
    }

    #[tokio::test]
    async fn nobody_is_there_when_the_last_has_gone() {
        let waiters = Waiters::default();
        waiters.wait_until_none().await;
        let (first, second) = (waiters.register(), waiters.register());
        drop(first);
        let waiting = tokio::spawn({
            let waiters = waiters.clone();
            async move { waiters.wait_until_none().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(second);
        waiting.await.unwrap();
    }
}
