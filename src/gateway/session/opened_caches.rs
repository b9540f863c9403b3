//! The kept caches that a session's sandboxes have begun with: opened once, and held while the session lives, so that
//! nobody removes what is mounted.

use std::{fs::File, path::PathBuf, time::Duration};

use nix::fcntl::Flock;

use super::{HeldDescriptors, LaunchContext, Principal};
use crate::{
    kept_cache::{OpenedCache, Scope},
    sandbox::{
        control::start::StartError,
        spec::{KeptLayer, Root, RootRole},
    },
    sys::rights::Rights,
};

/// How long others of the same user may hold what is opened.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// What each cache takes: its directory, the one of the session's layer, the mount of both, and one more while it is
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

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc};

    use super::*;
    use crate::{
        kept_cache::KeptCaches,
        policy::{ActivePolicy, PolicySet},
        pool::Pool,
        sandbox::{
            gate_link::Gates,
            host::Host,
            net_link::{NameFiles, Nets},
        },
        session::DescriptorQuota,
    };

    /// The context of a gateway of this user that may open so many descriptors.
    fn context(place: &Path, descriptors: u64) -> LaunchContext {
        LaunchContext {
            host: Arc::new(Host::detect()),
            pool: Arc::new(Pool::new(2, 2)),
            large_request_pool: Pool::new(1, 0),
            state: place.join("state"),
            kept_caches: KeptCaches::new(place.join("kept")),
            descriptors: DescriptorQuota::new(Rights::own().uid, descriptors),
            governing: Arc::default(),
            die_with_gateway: true,
            without_gateway: None,
            gates: Gates::new(Arc::new(ActivePolicy::new(PolicySet::compiled_in(), 0))),
            nets: Nets::new(NameFiles::default(), place),
            agents: Arc::default(),
            counters: Arc::default(),
        }
    }

    #[tokio::test]
    async fn each_scope_has_caches_of_its_own_which_nobody_removes_until_they_are_released() {
        let place = tempfile::tempdir().unwrap();
        // The gateway's own user may hold half of them.
        let (context, rights) = (context(place.path(), 200), Rights::own());
        let principal = Principal { uid: rights.uid };
        let opened = OpenedCaches::default();
        let layers = async |profile: &str, places: &[&str]| -> Vec<PathBuf> {
            let scope = Scope {
                profile: profile.to_owned(),
                confinement: 0,
                network: "none".to_owned(),
                roots: None,
                max_bytes: 1 << 20,
                max_age: Duration::from_secs(3_600),
            };
            let places = places.iter().map(PathBuf::from).collect();
            let layers = opened.layers(&context, principal, &rights, scope, places).await.unwrap();
            layers.iter().map(|layer| layer.directory.path.clone()).collect()
        };
        let one = layers("one", &[".npm/_cacache", ".cache/pip", ".cache/uv"]).await;
        let other = layers("other", &[".npm/_cacache"]).await;
        assert_eq!((one.len(), other.len()), (3, 1));
        assert!(!one.contains(&other[0]), "{one:?} {other:?}");
        // What the first call has opened.
        assert_eq!(layers("one", &[]).await, one);
        assert_eq!(layers("other", &[]).await, other);
        let left = 100 - 4 * DESCRIPTORS_PER_CACHE;
        assert!(context.descriptors.reserve(principal, left + 1).is_err());
        assert!(context.descriptors.reserve(principal, left).is_ok());

        let prune = || context.kept_caches.prune(rights.uid, Duration::ZERO).unwrap().len();
        assert_eq!(prune(), 0, "they are mounted");
        opened.release().await;
        assert_eq!(prune(), 4);
        assert!(context.descriptors.reserve(principal, 100).is_ok());
    }
}
