//! Plans the caches of a home: each is an overlay of what the session writes above what the caller's own tools and earlier sessions
//! have left, which is only read.

use super::{PlannedMount, RootfsPlanner, check_path};
use crate::{
    policy::profile::Filesystem,
    proto::supervisor::{Mount, mount::Kind},
    sandbox::{
        launch::{private_files, rootfs_error::RootfsError},
        roots::Root,
        spec::{CacheBelow, SessionFilesUse, SharedCache},
    },
};

impl RootfsPlanner<'_> {
    /// A cache of a home, at its place in the private home, with a private layer above it.
    pub(super) fn add_cache(
        &mut self,
        cache: &SharedCache,
        files: &Filesystem,
        session: &SessionFilesUse,
    ) -> Result<(), RootfsError> {
        let place = cache.place.to_string_lossy();
        let target = format!("{}/{place}", self.ids.home);
        for parent in private_files::between(&self.ids.home, &target) {
            self.add(Mount {
                kind: Kind::Directory.into(),
                target: parent,
                disk_uid: self.ids.command_uid,
                disk_gid: self.ids.command_gid,
                ..Mount::default()
            });
        }
        let (upper, lower) = match &cache.below {
            CacheBelow::Own(own) => (None, own),
            CacheBelow::Kept { kept, own: Some(own) } => (Some(&kept.directory), own),
            CacheBelow::Kept { kept, own: None } => (None, &kept.directory),
        };
        let kept = cache.below.kept();
        let name = kept.map_or_else(|| format!("cache {place}"), |kept| kept.name.overlay_name());
        let overlay = Mount {
            mode: 0o755,
            size_bytes: files.tmp_bytes,
            inodes: files.tmp_inodes,
            ..self.layer(Kind::Overlay, lower, &target)?
        };
        self.add(overlay);
        if self.share(&name, session)? {
            return Ok(());
        }
        let Some(PlannedMount { mut mount, .. }) = self.entries.pop() else { return Ok(()) };
        if let Some(upper) = upper {
            let layer = self.layer(Kind::Layer, upper, &target)?;
            self.add_held(layer, upper)?;
        }
        mount.from_descriptor = true;
        mount.written = kept.map(|kept| kept.name.to_string()).unwrap_or_default();
        self.add_held(mount, lower)
    }

    /// A directory that is held open, as a layer whose ids are mapped.
    fn layer(&self, kind: Kind, directory: &Root, target: &str) -> Result<Mount, RootfsError> {
        let unknown = |errno: nix::Error| RootfsError::ProfilePath {
            path: directory.path.clone(),
            cause: errno.into(),
        };
        let stat = nix::sys::stat::fstat(&directory.descriptor).map_err(unknown)?;
        Ok(Mount {
            kind: kind.into(),
            source: check_path(&directory.path)?,
            target: target.to_owned(),
            from_descriptor: true,
            idmap: self.ids.privileged,
            disk_uid: stat.st_uid,
            disk_gid: stat.st_gid,
            ..Mount::default()
        })
    }

    fn add_held(&mut self, mount: Mount, directory: &Root) -> Result<(), RootfsError> {
        let held = |cause| RootfsError::ProfilePath { path: directory.path.clone(), cause };
        let source = Some(directory.descriptor.try_clone().map_err(held)?);
        self.entries.push(PlannedMount { mount, source });
        Ok(())
    }
}
