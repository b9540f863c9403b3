//! The kept caches that a session's sandboxes have begun with: opened once, and held while the session lives, so that
//! nobody removes what is mounted.

use std::{fs::File, path::PathBuf, time::Duration};

use nix::fcntl::Flock;

use super::{HeldDescriptors, Principal, launch_context::LaunchContext};
use crate::{
    kept_cache::{OpenedCache, Scope},
    sandbox::{
        spec::{KeptLayer, Root, RootRole},
        start::StartError,
    },
    sys::rights::Rights,
};

/// How long others of the same user may hold what is opened.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// Of each cache: its directory, the one of the session's layer, the mount of both, and one more while it is
/// launched.
const DESCRIPTORS_PER_CACHE: u64 = 4;

/// Kept caches, by who finds them.
#[derive(Debug, Default)]
pub(super) struct OpenedCaches(tokio::sync::Mutex<Vec<(Scope, OpenedScope)>>);

#[derive(Debug)]
struct OpenedScope {
    layers: Vec<KeptLayer>,
    _holds: Vec<Flock<File>>,
    _descriptors: HeldDescriptors,
}

impl OpenedCaches {
    /// The caches of a scope at these places, opened by the first call.
    pub(super) async fn layers(
        &self,
        context: &LaunchContext,
        principal: Principal,
        rights: &Rights,
        scope: Scope,
        places: Vec<PathBuf>,
    ) -> Result<Vec<KeptLayer>, StartError> {
        let mut opened = self.0.lock().await;
        if let Some((_, known)) = opened.iter().find(|(known, _)| *known == scope) {
            return Ok(known.layers.clone());
        }
        let count = DESCRIPTORS_PER_CACHE * places.len() as u64;
        let descriptors = context.descriptors.reserve_unchecked(principal, count);
        let (store, rights, of) = (context.kept_caches.clone(), rights.clone(), scope.clone());
        let open = move || store.open(&rights, &of, &places);
        let found = context.pool.run(principal.uid, OPEN_TIMEOUT, open).await;
        let found = found.map_err(StartError::KeptCachesWait)?.map_err(StartError::KeptCaches)?;
        let (layers, holds): (Vec<KeptLayer>, _) = found.into_iter().map(split).unzip();
        let scoped = OpenedScope { layers: layers.clone(), _holds: holds, _descriptors: descriptors };
        opened.push((scope, scoped));
        Ok(layers)
    }

    /// Lets others remove them. No sandbox of the session is left.
    pub(super) async fn release(&self) {
        self.0.lock().await.clear();
    }
}

fn split(opened: OpenedCache) -> (KeptLayer, Flock<File>) {
    let OpenedCache { layer, path, directory, hold } = opened;
    let directory = Root { path, descriptor: directory, role: RootRole::ReadOnly };
    (KeptLayer { name: layer, directory: directory.into() }, hold)
}
