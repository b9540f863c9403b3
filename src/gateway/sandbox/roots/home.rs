//! The homes of users: no root may be one or hold one.
//!
//! The caller's home is known also where it is in no file: this process's own user has its `HOME`, and the user database
//! (nsswitch.conf(5)) is asked for the caller. It is asked for nobody else, because others cannot be listed without delay where
//! there is a directory service: their homes are those of /etc/passwd. These are taken as they are written there, because looking
//! for their real names would mount them where an automounter does.

use std::path::{Component, Path, PathBuf};

use nix::unistd::{Uid, User, geteuid};

use crate::sys::rights::Rights;

/// The home of a caller. A caller with this process's user has this process's `HOME`, all others that of the user database.
/// Blocks as long as the database does.
#[must_use]
pub(crate) fn home_of(uid: u32) -> Option<PathBuf> {
    own_home(uid).or_else(|| listed_home(uid))
}

/// The home of a user of the host that a directory is or holds. `uid` is the caller's.
#[must_use]
pub(crate) fn home_in(directory: &Path, uid: u32) -> Option<PathBuf> {
    homes(uid).into_iter().find(|home| home.starts_with(directory))
}

/// The homes that a caller can have no root at or above. Those of the caller itself also by their real names: on many hosts
/// `/home` is a link.
pub(super) fn homes_for(caller: &Rights) -> Vec<PathBuf> {
    let mut homes = homes(caller.uid);
    let own: Vec<PathBuf> = [own_home(caller.uid), listed_home(caller.uid)].into_iter().flatten().collect();
    let real = || own.iter().filter_map(|home| std::fs::canonicalize(home).ok()).collect::<Vec<_>>();
    homes.extend(caller.run_with(real).unwrap_or_default().into_iter().filter(|home| is_home(home)));
    homes
}

fn homes(uid: u32) -> Vec<PathBuf> {
    let passwd = std::fs::read(Path::new("/etc/passwd")).unwrap_or_default();
    let mut homes = homes_in(&String::from_utf8_lossy(&passwd));
    homes.push("/root".into());
    homes.extend(own_home(uid));
    homes.extend(listed_home(uid));
    homes
}

/// This process's `HOME`, for its own user.
fn own_home(uid: u32) -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    home.filter(|home| uid == geteuid().as_raw() && is_home(home))
}

fn listed_home(uid: u32) -> Option<PathBuf> {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    user.map(|user| user.dir).filter(|home| is_home(home))
}

/// The homes that a file such as /etc/passwd lists.
pub(super) fn homes_in(passwd: &str) -> Vec<PathBuf> {
    let fields = passwd.lines().filter_map(|line| line.split(':').nth(5));
    fields.map(PathBuf::from).filter(|home| is_home(home)).collect()
}

/// `/` is nobody's.
fn is_home(path: &Path) -> bool {
    path.is_absolute() && path.components().any(|part| matches!(part, Component::Normal(_)))
}
