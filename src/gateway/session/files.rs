//! The `/tmp`, the home and the commands' id that the sandboxes of a session have in common.
//!
//! The first sandbox makes them, each supervisor keeps them, and the session holds them, so that they outlive any one sandbox and,
//! in a sandbox that runs, the gateway. Launches of a session take turns here: none makes a second `/tmp`.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, Mutex},
};

use tokio::sync::OwnedMutexGuard;

use crate::sandbox::{
    control::handle::Sandbox,
    spec::{SessionFiles, SessionFilesUse},
};

/// What a session's sandboxes have in common.
#[derive(Debug, Default)]
pub(super) struct SharedFiles {
    held: Arc<tokio::sync::Mutex<Option<SessionFiles>>>,
    /// Sandboxes of the gateway before, which have not been asked yet.
    adopted: Mutex<Vec<Arc<Sandbox>>>,
}

/// The turn to launch a sandbox that shares them.
#[derive(Debug)]
pub(super) struct FilesTurn {
    held: OwnedMutexGuard<Option<SessionFiles>>,
}

impl SharedFiles {
    /// Waits for the launches before this one.
    pub(super) async fn turn(&self) -> FilesTurn {
        let mut turn = FilesTurn { held: self.held.clone().lock_owned().await };
        // The newest first: before Linux 6.15 it may be the only one whose mounts can still be attached.
        while turn.held.is_none() {
            let next = self.lock_adopted().pop();
            let Some(sandbox) = next else { break };
            turn.fetch(&sandbox).await;
        }
        turn
    }

    /// What commands have written above kept caches, by the layers' names.
    pub(super) async fn layers(&self) -> Vec<(String, Arc<OwnedFd>)> {
        let held = self.held.lock().await;
        let mounts = held.iter().flat_map(|files| &files.mounts);
        mounts.map(|(name, written)| (name.clone(), written.clone())).collect()
    }

    /// A sandbox of the gateway before has them.
    pub(super) fn adopt(self: &Arc<Self>, sandbox: Arc<Sandbox>) {
        {
            let mut adopted = self.lock_adopted();
            adopted.push(sandbox);
            adopted.sort_by(|one, other| one.id().cmp(other.id()));
        }
        let files = self.clone();
        // So that the session has them when that sandbox ends.
        tokio::spawn(async move { drop(files.turn().await) });
    }

    fn lock_adopted(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Sandbox>>> {
        self.adopted.lock().expect("no code panics while it holds the list of adopted sandboxes")
    }
}

impl FilesTurn {
    /// What the launch is to do about them.
    pub(super) fn for_launch(&self) -> SessionFilesUse {
        self.held.clone().map_or(SessionFilesUse::First, SessionFilesUse::Given)
    }

    /// Gets them from the sandbox that was launched. The next turn begins when they are there; the caller need not wait.
    pub(super) fn end(mut self, launched: Arc<Sandbox>) {
        tokio::spawn(async move { self.fetch(&launched).await });
    }

    /// Forgets them: the kernel does not attach them any more.
    pub(super) fn forget(mut self) {
        *self.held = None;
    }

    async fn fetch(&mut self, sandbox: &Sandbox) {
        match sandbox.session_files().await {
            Ok(files) => match &mut *self.held {
                Some(held) => held.mounts.extend(files.mounts),
                held @ None => *held = Some(files),
            },
            Err(error) => {
                tracing::error!(sandbox.id = %sandbox.id(), %error, "the session's next sandbox will not share its files");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn launches_are_given_what_the_first_one_made_until_it_is_forgotten() {
        let shared = SharedFiles::default();
        let turn = shared.turn().await;
        assert!(matches!(turn.for_launch(), SessionFilesUse::First));
        assert!(shared.turn().now_or_never().is_none(), "one launch at a time");
        drop(turn);
        *shared.held.lock().await = Some(SessionFiles { mounts: BTreeMap::new(), command_id: None });
        // A launch that fails otherwise forgets nothing.
        drop(shared.turn().await);
        let turn = shared.turn().await;
        assert!(matches!(turn.for_launch(), SessionFilesUse::Given(_)));
        turn.forget();
        assert!(matches!(shared.turn().await.for_launch(), SessionFilesUse::First));
    }
}
