//! All gates of a gateway: the policy that they are sent, and the observer of their reports.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::{
    error::GateError,
    link::{GateHello, GateLink, GateObserver, GateOwner},
    policy_frame::PolicyEncoder,
};
use crate::policy::ActivePolicy;

/// The gates of a gateway.
#[derive(Debug)]
pub struct Gates {
    policy: Arc<PolicyEncoder>,
    observer: OnceLock<Arc<dyn GateObserver>>,
    /// As many as there are sandboxes.
    links: Mutex<Vec<Weak<GateLink>>>,
}

impl Gates {
    /// None yet. They are sent this policy.
    pub fn new(policy: Arc<ActivePolicy>) -> Arc<Self> {
        Arc::new(Self {
            policy: Arc::new(PolicyEncoder::new(policy)),
            observer: OnceLock::new(),
            links: Mutex::default(),
        })
    }

    /// Sets the observer of all reports, before any gate is connected.
    ///
    /// # Panics
    /// When there is one already.
    pub fn set_observer(&self, observer: Arc<dyn GateObserver>) {
        self.observer
            .set(observer)
            .expect("the observer of the gates is set once, by the terminals' context");
    }

    /// Sends the policy in force to all gates. What is spawned afterwards is announced behind it.
    pub fn push_policy(&self) {
        let policy = match self.policy.current() {
            Ok(policy) => policy,
            // A spawn is refused with the same error: it would be evaluated under the policy before.
            Err(error) => {
                tracing::error!(%error, "the gates keep the policy before");
                return;
            }
        };
        let links: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        links.iter().for_each(|link| link.push_policy(&policy));
    }

    /// Links a gate: it gets the policy, and its reports are taken.
    ///
    /// # Errors
    /// When the policy cannot be sent, or nobody would take its reports.
    pub fn link(&self, owner: GateOwner, hello: GateHello) -> Result<Arc<GateLink>, GateError> {
        let observer = self.observer.get().ok_or(GateError::Unobserved)?;
        let link = GateLink::start(&self.policy, observer, owner, hello)?;
        let mut links = self.lock();
        links.retain(|link| link.strong_count() > 0);
        links.push(Arc::downgrade(&link));
        Ok(link)
    }

    /// A sandbox was found without its gate.
    pub(crate) fn report_lost(&self, owner: &GateOwner) {
        if let Some(observer) = self.observer.get() {
            observer.lost(owner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<GateLink>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
