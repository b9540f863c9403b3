//! The registry of all terminals of the gateway, by their ids and by the requests that created them.
//!
//! A terminal exists only for the principal of its session.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
    sync::{Arc, Mutex},
};

use tokio::sync::{OnceCell, broadcast};

use super::{primary::PrimaryTerminals, terminal::Terminal};
use crate::{
    session::{Principal, SessionId},
    terminal::{errors::CreateError, id::TerminalId},
};

/// Changes that a slow watcher may be behind before it is sent everything again.
const CHANGES_BUFFERED: usize = 1_024;

/// A request that is being answered, or was.
pub(in crate::terminal) type Attempt = Arc<OnceCell<Result<Arc<Terminal>, Arc<CreateError>>>>;

/// The table of terminals.
#[derive(Debug)]
pub(in crate::terminal) struct Registry {
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
    pub fn find(&self, principal: Principal, id: &str, session: &str) -> Option<Arc<Terminal>> {
        let id = TerminalId::parse(id)?;
        let terminal = self.lock().get(&id).cloned()?;
        let session_fits = session.is_empty() || SessionId::parse(session) == Some(terminal.session.id);
        (terminal.session.principal == principal && session_fits).then_some(terminal)
    }

    /// The primary terminal of a session.
    pub fn primary(&self, session: SessionId) -> Option<TerminalId> {
        self.primary.of(session)
    }

    /// Told after each change of any session's primary terminal.
    pub fn primary_changes(&self) -> tokio::sync::watch::Receiver<()> {
        self.primary.changes()
    }

    /// Makes a pseudo-terminal the primary one of its session.
    pub fn set_primary(&self, terminal: &Terminal) {
        self.primary.choose(terminal);
    }

    /// The caller's terminals, oldest first; of one session when it is named.
    pub fn list(&self, principal: Principal, session: Option<SessionId>) -> Vec<Arc<Terminal>> {
        self.list_after(principal, session, None)
    }

    /// As [`Self::list`], those after one that was listed before.
    pub fn list_after(
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
    pub fn changes(&self) -> broadcast::Receiver<Arc<Terminal>> {
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
    pub(in crate::terminal) fn insert_existing(&self, terminal: &Arc<Terminal>) {
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
}
