//! The places of a sandbox that commands cannot change, for who is to explain an error there. Pure.

use std::path::{Path, PathBuf};

use crate::{
    byte_text,
    policy::profile::{Access, Filesystem},
    proto::supervisor::{Mount, mount::Kind},
};

/// The places, as a sandbox was launched with them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Protections {
    /// The directories of the host that commands may write to.
    pub workspace: Vec<PathBuf>,
    /// What they cannot change, or not remove or rename.
    pub places: Vec<ProtectedPlace>,
}

/// A place, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectedPlace {
    /// Absolute.
    pub path: PathBuf,
    /// By which protection.
    pub kind: PlaceKind,
}

/// Why commands cannot change a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceKind {
    /// A path of `filesystem.protected`: read-only.
    Protected,
    /// A path of `filesystem.reserved`: likewise.
    Reserved,
    /// A directory above one of these: it can be written to, and not be renamed or removed.
    Above,
    /// A directory that the profile, or who opened the session, shows to be read.
    ReadOnly,
    /// The profile lets commands read the workspace and no more.
    ReadOnlyWorkspace,
    /// A socket of the host.
    Covered,
    /// What is mounted in the workspace, and is not worked in.
    Mount,
}

/// How a receipt calls covers of what is mounted, first.
pub(crate) const COVERED_MOUNT: &str = "mount";

impl Protections {
    /// Those of planned mounts.
    pub fn of_plan(mounts: &[Mount], files: &Filesystem) -> Self {
        let binds = || mounts.iter().filter(|mount| mount.kind() == Kind::Bind && mount.from_descriptor);
        let writable: Vec<_> =
            binds().filter(|mount| !mount.read_only).map(|mount| byte_text::to_path(&mount.target)).collect();
        let is_inside = |path: &Path| writable.iter().find(|root| path.starts_with(root) && **root != path);
        let mut found = Self::default();
        for mount in binds() {
            let path = byte_text::to_path(&mount.target);
            let kind = match (is_inside(&path), mount.read_only) {
                (None, false) => {
                    found.workspace.push(path.into_owned());
                    continue;
                }
                (Some(_), false) => PlaceKind::Above,
                (Some(_), true) if files.reserved.iter().any(|reserved| path.ends_with(reserved)) => {
                    PlaceKind::Reserved
                }
                (Some(_), true) => PlaceKind::Protected,
                (None, true) if files.workspace == Access::Read => PlaceKind::ReadOnlyWorkspace,
                (None, true) => PlaceKind::ReadOnly,
            };
            found.places.push(ProtectedPlace { path: path.into_owned(), kind });
        }
        let covers = mounts.iter().filter(|mount| mount.kind() == Kind::Cover);
        let covered = |mount: &Mount| ProtectedPlace {
            path: byte_text::to_path(&mount.target).into_owned(),
            // As the receipt calls it.
            kind: if mount.source.starts_with(COVERED_MOUNT) { PlaceKind::Mount } else { PlaceKind::Covered },
        };
        found.places.extend(covers.map(covered));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_by_their_mounts() {
        let bind = |target: &str, read_only| Mount {
            kind: Kind::Bind.into(),
            target: target.into(),
            read_only,
            from_descriptor: true,
            ..Mount::default()
        };
        let cover = Mount { kind: Kind::Cover.into(), target: "/w/s".into(), ..Mount::default() };
        let system = Mount { from_descriptor: false, ..bind("/usr", true) };
        let mounts = [
            system,
            bind("/w", false),
            bind("/w/.git", false),
            bind("/w/.git/hooks", true),
            bind("/w/.npmrc", true),
            bind("/shown", true),
            cover,
        ];
        let found = Protections::of_plan(&mounts, &Filesystem::default());
        assert_eq!(found.workspace, [Path::new("/w")]);
        let kinds: Vec<_> = found.places.iter().map(|one| (one.path.to_str().unwrap(), one.kind)).collect();
        assert_eq!(
            kinds,
            [
                ("/w/.git", PlaceKind::Above),
                ("/w/.git/hooks", PlaceKind::Reserved),
                ("/w/.npmrc", PlaceKind::Protected),
                ("/shown", PlaceKind::ReadOnly),
                ("/w/s", PlaceKind::Covered),
            ]
        );
        let read = Filesystem { workspace: Access::Read, ..Filesystem::default() };
        let found = Protections::of_plan(&[bind("/w", true)], &read);
        assert_eq!(found.places[0].kind, PlaceKind::ReadOnlyWorkspace);
    }
}
