//! Finds the caches in a caller's home that profiles may name.
//!
//! With the caller's rights, as the toolchains are: each is held open, and what belongs to another user, what any user can write, what
//! a command of the session can change, and what a link leads to under another name is left out.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    home_search::HomeSearch,
    real_path::{self, Kind},
};
use crate::{
    policy::{cache, profile::Profile},
    sandbox::{
        governing::Governing,
        roots,
        spec::{CacheBelow, Root, SharedCache},
    },
    sys::rights::Rights,
};

/// A cache that was found.
#[derive(Debug)]
pub(super) struct FoundCache {
    /// As profiles name the tool.
    name: &'static str,
    /// Relative to the home.
    place: &'static Path,
    own: Arc<Root>,
}

impl FoundCache {
    /// For a sandbox of a profile, if that names it.
    pub(super) fn shared_by(&self, profile: &Profile) -> Option<SharedCache> {
        let is_named = profile.caches.iter().any(|name| name == self.name);
        is_named
            .then(|| SharedCache { place: self.place.to_owned(), below: CacheBelow::Own(self.own.clone()) })
    }
}

/// All caches of a home. `writable` is what commands of the session may change.
pub(super) fn find(rights: &Rights, writable: &[PathBuf], governing: &Governing) -> Vec<FoundCache> {
    let Some(home) = roots::home_of(rights.uid) else { return Vec::new() };
    let open_home = || real_path::open(None, &home, Kind::Directory);
    let Ok(Ok(home)) = rights.run_with(open_home) else { return Vec::new() };
    let search = HomeSearch { home: &home.found.path, owner: rights.uid, writable };
    let all =
        cache::all().iter().flat_map(|cache| cache.directories.iter().map(|place| (&*cache.name, &**place)));
    let look = || {
        let found = all.filter_map(|(name, place)| {
            let own = Arc::new(search.open_own_directory(place)?);
            Some(FoundCache { name, place, own })
        });
        found.collect()
    };
    let mut found: Vec<FoundCache> = rights.run_with(look).unwrap_or_default();
    found.retain(|one| governing.check(&[roots::visible(&one.own)]).is_ok());
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::spec::RootRole;

    #[test]
    fn a_sandbox_has_a_cache_only_where_its_profile_names_it() {
        let descriptor = std::fs::File::open("/").unwrap().into();
        let own = Arc::new(Root { path: "/".into(), descriptor, role: RootRole::ReadOnly });
        let found = FoundCache { name: "npm", place: Path::new(".npm/_cacache"), own };
        let shared = |names: &[&str]| {
            let caches = names.iter().map(|name| (*name).to_owned()).collect();
            let mut profile = Profile::default();
            profile.caches = caches;
            found.shared_by(&profile).map(|shared| shared.place)
        };
        for names in [&["npm"][..], &["cargo", "npm"]] {
            assert_eq!(shared(names).as_deref(), Some(Path::new(".npm/_cacache")), "{names:?}");
        }
        for names in [&[][..], &["cargo"], &["cargo", "npm2"]] {
            assert_eq!(shared(names), None, "{names:?}");
        }
    }
}
