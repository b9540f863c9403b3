//! The shared sandboxes of a session: one for each profile, network and confinement, started when first needed.
//!
//! Callers that need the same sandbox at the same time share one launch. A sandbox that was lost is replaced by the next
//! caller that needs it, and never repaired.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::OnceCell;

use crate::{
    policy::{ExecSpec, ProfileName, profile::Network},
    sandbox::{handle::Sandbox, sandbox_state::SandboxState, start::StartError},
};

/// A profile that was changed by a reload is another: what runs goes on in the sandbox that it has.
pub(super) type SandboxKey = (ProfileName, Network, u64);

/// One launch, and what came of it for all who wait for it.
pub(super) type LaunchCell = OnceCell<Result<Arc<Sandbox>, Arc<StartError>>>;

/// A session's sandboxes.
#[derive(Debug, Default)]
pub struct Sandboxes {
    shared: Mutex<HashMap<SandboxKey, Arc<LaunchCell>>>,
    /// What runs there goes on, and nothing new comes: found after a restart in addition to another one for the same
    /// commands, or without their gates.
    extra: Mutex<Vec<Arc<Sandbox>>>,
}

pub(super) fn sandbox_key(exec_spec: &ExecSpec) -> SandboxKey {
    (exec_spec.profile_name().clone(), exec_spec.network(), exec_spec.confinement())
}

/// Of a sandbox that another gateway has launched.
pub(super) fn key_of(state: &SandboxState) -> SandboxKey {
    (state.profile.clone(), state.network, state.assignment.confinement)
}

impl Sandboxes {
    /// The launch to wait for. One that has failed, or whose sandbox was lost, is nobody's any more.
    pub(super) fn launch_cell(&self, key: SandboxKey) -> Arc<LaunchCell> {
        let mut shared = self.lock();
        let cell = shared.entry(key).or_default();
        match cell.get() {
            None => {}
            Some(Ok(sandbox)) if sandbox.takes_commands() => {}
            Some(launched) => {
                if let Ok(sandbox) = launched
                    && sandbox.is_up()
                {
                    self.lock_extra().push(sandbox.clone());
                }
                *cell = Arc::default();
            }
        }
        cell.clone()
    }

    /// Adds a shared sandbox that another gateway has launched.
    pub fn adopt(&self, state: &SandboxState, sandbox: Arc<Sandbox>) {
        match self.lock().entry(key_of(state)) {
            Entry::Vacant(place) => {
                place.insert(Arc::new(OnceCell::new_with(Some(Ok(sandbox)))));
            }
            Entry::Occupied(_) => self.lock_extra().push(sandbox),
        }
    }

    /// Ends all of them. Returns when nothing of them is left.
    pub async fn shut_down(&self, grace: Duration) {
        let cells: Vec<_> = self.lock().drain().map(|(_, cell)| cell).collect();
        let extra = std::mem::take(&mut *self.lock_extra());
        let mut ending = tokio::task::JoinSet::new();
        for sandbox in cells.iter().filter_map(|cell| cell.get()?.clone().ok()).chain(extra) {
            ending.spawn(async move { sandbox.shut_down(grace).await });
        }
        ending.join_all().await;
    }

    /// Kills all of them: their terminals are lost.
    pub async fn kill(&self) {
        let shared: Vec<_> = self.lock().values().filter_map(|cell| cell.get()?.clone().ok()).collect();
        let extra = self.lock_extra().clone();
        let mut killing = tokio::task::JoinSet::new();
        for sandbox in shared.into_iter().chain(extra) {
            killing.spawn(async move { sandbox.kill().await });
        }
        killing.join_all().await;
    }

    fn lock_extra(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Sandbox>>> {
        self.extra.lock().expect("no code panics while it holds the list of sandboxes")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SandboxKey, Arc<LaunchCell>>> {
        self.shared.lock().expect("no code panics while it holds the table of sandboxes")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn all_who_wait_for_a_launch_fail_with_it_and_the_next_tries_again() {
        let sandboxes = Sandboxes::default();
        let policy = crate::policy::PolicySet::compiled_in();
        let name = policy.profile(None).unwrap().0.clone();
        let launches = AtomicU32::new(0);
        let launch = async || {
            launches.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Err(Arc::new(StartError::TimedOut))
        };
        let cells: Vec<_> =
            (0..10).map(|_| sandboxes.launch_cell((name.clone(), Network::None, 0))).collect();
        let results = futures_util::future::join_all(cells.iter().map(|cell| cell.get_or_init(launch))).await;
        assert!(
            results
                .iter()
                .all(|result| matches!(result, Err(error) if matches!(**error, StartError::TimedOut)))
        );
        assert_eq!(launches.load(Ordering::Relaxed), 1);
        assert!(sandboxes.launch_cell((name, Network::None, 0)).get().is_none());
    }
}
