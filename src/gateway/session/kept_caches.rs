//! The kept caches of a session: what it begins with, and what of it is kept when it has ended.
//!
//! Only sandboxes that have the session's files have any: a terminal with secrets neither reads what another session
//! has left nor leaves anything.

use std::{
    collections::BTreeMap,
    os::fd::AsFd,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{LaunchContext, session::Session};
use crate::{
    kept_cache::{KeepError, Kept, LayerName, Scope},
    policy::{ExecSpec, cache, profile::KeptBetween},
    pool::PoolError,
    sandbox::{
        control::start::StartError,
        spec::{CacheBelow, SharedCache},
    },
};

/// How long the host's disk may take for what a session leaves.
const KEEP_TIMEOUT: Duration = Duration::from_secs(60);

/// What became of a cache when its session had ended.
#[derive(Debug)]
pub(crate) struct KeptReport {
    /// Relative to a home.
    pub place: PathBuf,
    /// What is kept, or why nothing is.
    pub outcome: Result<Kept, NotKept>,
}

/// Why what a session wrote to a cache is not kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotKept {
    /// The cache is as it was before.
    #[error(transparent)]
    Keep(#[from] KeepError),
    /// The disk does not answer.
    #[error(transparent)]
    Wait(#[from] PoolError),
}

impl Session {
    /// Adds to `own` what earlier sessions have left, where the profile says so.
    pub(super) async fn with_kept(
        &self,
        context: &LaunchContext,
        exec_spec: &ExecSpec,
        own: Vec<SharedCache>,
    ) -> Result<Vec<SharedCache>, StartError> {
        let rule = &exec_spec.profile().kept_caches;
        if rule.names.is_empty() {
            return Ok(own);
        }
        let (scope, places) = (self.scope_of(exec_spec), places(&rule.names).map(Path::to_owned).collect());
        let opened = self.kept_caches.layers(context, self.principal, &self.rights, scope, places);
        let layers = opened.await?;
        let mut below: BTreeMap<PathBuf, CacheBelow> =
            own.into_iter().map(|one| (one.place, one.below)).collect();
        for kept in layers {
            let own = below.get(&kept.name.place).and_then(CacheBelow::own).cloned();
            below.insert(kept.name.place.clone(), CacheBelow::Kept { kept, own });
        }
        Ok(below.into_iter().map(|(place, below)| SharedCache { place, below }).collect())
    }

    fn scope_of(&self, exec_spec: &ExecSpec) -> Scope {
        let rule = &exec_spec.profile().kept_caches;
        let mut roots: Vec<String> = self.writable_roots().map(ToString::to_string).collect();
        roots.sort();
        Scope {
            profile: exec_spec.profile_name().to_string(),
            confinement: exec_spec.confinement(),
            network: exec_spec.network().name().to_owned(),
            roots: (rule.between == KeptBetween::Workspace).then_some(roots),
            max_bytes: rule.max_bytes,
            max_age: rule.max_age,
        }
    }

    /// Keeps what was written to kept caches. Nothing of the session runs any more. Nothing for a session without
    /// such caches.
    pub(crate) async fn keep_caches(&self, context: &LaunchContext) -> Vec<KeptReport> {
        // What they began with is not mounted any more, and may go with the next generation.
        self.kept_caches.release().await;
        let mut reports = Vec::new();
        for (name, written) in self.files.layers().await {
            let Some(layer) = LayerName::parse(&name) else { continue };
            let place = layer.place.clone();
            let (store, rights) = (context.kept_caches.clone(), self.rights.clone());
            let keep = move || store.keep(&rights, &layer, written.as_fd());
            let outcome = match context.pool.run(self.principal.uid, KEEP_TIMEOUT, keep).await {
                Ok(Ok(None)) => continue,
                Ok(Ok(Some(kept))) => Ok(kept),
                Ok(Err(error)) => Err(error.into()),
                Err(error) => Err(error.into()),
            };
            reports.push(KeptReport { place, outcome });
        }
        reports
    }
}

/// The places of these caches.
fn places(names: &[String]) -> impl Iterator<Item = &'static Path> {
    let named = cache::all().iter().filter(move |cache| names.contains(&cache.name));
    named.flat_map(|cache| cache.directories.iter().map(PathBuf::as_path))
}
