//! The gateway's own cgroups, below the cgroup that it was started in. The cgroups of its sandboxes are made in
//! them.
//!
//! Touches no cgroup that was not made by a gateway, and makes none above the gateway's own.

use std::{
    collections::HashMap,
    fs::Permissions,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard},
};

use crate::{
    cgroup::{
        Hierarchy,
        directory::{self, CgroupError, CgroupLimitValues, PresenceLock},
        hierarchy::{self, GATEWAY_LEAF, OwnCgroup},
    },
    sandbox::cgroup::{
        principal,
        sandbox::{SandboxCgroup, SandboxCgroupDirectory},
    },
};

/// The prefix of gateways' cgroups.
const PREFIX: &str = "provost-";

/// A gateway's cgroups: one in each hierarchy in which it can make any.
#[derive(Debug)]
pub(crate) struct GatewayCgroups {
    cgroups: Vec<GatewayCgroup>,
    missing: Vec<MissingController>,
}

#[derive(Debug)]
struct GatewayCgroup {
    path: PathBuf,
    hierarchy: Hierarchy,
    /// Controllers that sandboxes in it can have.
    controllers: Vec<String>,
    /// Principals' cgroups whose limits are set, by user id.
    principals: Mutex<HashMap<u32, principal::ConfiguredCgroup>>,
    presence: PresenceLock,
}

/// A controller that sandboxes cannot have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MissingController {
    /// The kernel's name.
    pub controller: &'static str,
    /// Why, for people.
    pub reason: String,
}

/// Controllers that limits need.
const NEEDED: [&str; 3] = ["memory", "pids", "cpu"];

impl GatewayCgroups {
    /// Makes the cgroups of the gateway with this state directory, and removes abandoned ones of dead gateways.
    /// When none can be made, [`Self::missing`] says so.
    #[must_use]
    pub(crate) fn make(own: &[OwnCgroup], state: &Path) -> Self {
        let name = gateway_name(state);
        let mut reasons = Vec::new();
        let cgroups: Vec<_> =
            own.iter().filter_map(|group| make_cgroup(group, &name, &mut reasons)).collect();
        let missing = NEEDED
            .into_iter()
            .filter(|needed| !cgroups.iter().any(|group| group.controllers.iter().any(|has| has == needed)))
            .map(|controller| MissingController {
                controller,
                reason: missing_reason(controller, own, &reasons),
            })
            .collect();
        Self { cgroups, missing }
    }

    /// The controllers whose limits cannot be set.
    #[must_use]
    pub(crate) fn missing(&self) -> &[MissingController] {
        &self.missing
    }

    /// Whether there is a v2 tree, which makes kill and membership exact.
    #[must_use]
    pub(crate) fn has_v2(&self) -> bool {
        self.cgroups.iter().any(|group| group.hierarchy == Hierarchy::V2)
    }

    /// Removes the gateway's own cgroups. After this no sandbox can be made. A cgroup in which a sandbox still runs
    /// stays for the next gateway to use or remove, and so does one that another gateway uses: a state directory that was
    /// removed may have given its inode number, and with it the name, to another one's.
    pub(crate) fn remove(&self) {
        for group in &self.cgroups {
            if directory::lock_alone(&group.presence, &group.path) {
                principal::remove_empty(&group.path);
                let _ = std::fs::remove_dir(&group.path);
            }
        }
    }

    /// Makes a sandbox's cgroups below its principal's, sets the limits of both, and delegates the sandbox's to the
    /// supervisor's ids.
    ///
    /// # Errors
    /// [`CgroupError`]; what was made is removed again.
    pub(crate) fn make_sandbox(
        &self,
        sandbox_id: &str,
        principal: &PrincipalCgroup,
        owner: (u32, u32),
        limits: &CgroupLimitValues,
    ) -> Result<SandboxCgroup, CgroupError> {
        let mut made = SandboxCgroup { directories: Vec::new() };
        let mut make = |group: &GatewayCgroup| {
            let path = make_below(group, principal, sandbox_id)?;
            let (hierarchy, controllers) = (group.hierarchy, group.controllers.clone());
            made.directories.push(SandboxCgroupDirectory { path: path.clone(), hierarchy, controllers });
            directory::set_limits(&path, hierarchy, &group.controllers, limits)?;
            directory::delegate(&path, hierarchy, owner.0, owner.1)
        };
        if let Err(error) = self.cgroups.iter().try_for_each(&mut make) {
            // The cgroups were just made and are empty, so removing them works. The first error is the one to
            // return.
            let _ = made.remove_now();
            return Err(error);
        }
        Ok(made)
    }
}

/// The cgroup that holds all sandboxes of one principal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PrincipalCgroup {
    /// Its user id.
    pub uid: u32,
    /// For all its sandboxes together.
    pub limits: CgroupLimitValues,
}

/// Principals whose cgroup is cached. When the cache is full it is cleared, and the cgroups are set up again on
/// use.
const MAX_CACHED_PRINCIPALS: usize = 1_024;

/// How often making a sandbox's cgroup is tried again when the principal's was removed at the end of its last
/// sandbox.
const MAX_MAKE_ATTEMPTS: u32 = 16;

fn make_below(
    group: &GatewayCgroup,
    principal: &PrincipalCgroup,
    sandbox_id: &str,
) -> Result<PathBuf, CgroupError> {
    let above = principal::path(&group.path, principal.uid);
    let path = above.join(sandbox_id);
    for _ in 0..MAX_MAKE_ATTEMPTS {
        let made = group.lock_principals().get(&principal.uid).copied();
        if !made.is_some_and(|made| made.is_current(&above, &principal.limits)) {
            match principal::make(&above, group.hierarchy, &group.controllers, &principal.limits) {
                Ok(made) => group.cache(principal.uid, made),
                Err(_) if !above.exists() => continue,
                Err(error) => return Err(error),
            }
        }
        // Commands read their own group, which they see as a mount, whatever umask the gateway was started with.
        let readable = || std::fs::set_permissions(&path, Permissions::from_mode(0o755));
        match std::fs::create_dir(&path).and_then(|()| readable()) {
            Ok(()) => return Ok(path),
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {}
            Err(cause) => return Err(CgroupError::Make { path, cause }),
        }
    }
    Err(CgroupError::Locked { path: above })
}

impl GatewayCgroup {
    fn cache(&self, uid: u32, made: principal::ConfiguredCgroup) {
        let mut principals = self.lock_principals();
        if principals.len() >= MAX_CACHED_PRINCIPALS {
            principals.clear();
        }
        principals.insert(uid, made);
    }

    fn lock_principals(&self) -> MutexGuard<'_, HashMap<u32, principal::ConfiguredCgroup>> {
        self.principals.lock().expect("no code panics while it holds the principals' directories")
    }
}

impl GatewayCgroups {
    /// Removes the cgroups of unknown sandboxes: those of a launch that ended before it was recorded, or whose
    /// record was lost. A cgroup in which something runs stays; its name is returned.
    #[must_use]
    pub(crate) fn sweep(&self, is_known: impl Fn(&str) -> bool) -> Vec<String> {
        let mut occupied = Vec::new();
        let levels = self.cgroups.iter().flat_map(|group| {
            // Earlier gateways made sandboxes without a cgroup for the principal.
            std::iter::once(group.path.clone()).chain(principal::all(&group.path))
        });
        for level in levels {
            let Ok(entries) = std::fs::read_dir(&level) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name();
                let Some(name) = name.to_str().filter(|name| name.starts_with("sbx_") && !is_known(name))
                else {
                    continue;
                };
                if directory::has_processes(&entry.path()) || directory::remove(&entry.path()).is_err() {
                    occupied.push(name.to_owned());
                }
            }
        }
        self.cgroups.iter().for_each(|group| principal::remove_empty(&group.path));
        occupied
    }
}

impl Drop for GatewayCgroups {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The name is the same for every gateway on this state directory, and differs between state directories.
fn gateway_name(state: &Path) -> String {
    match std::fs::metadata(state) {
        Ok(directory) => format!("{PREFIX}{:x}-{:x}", directory.dev(), directory.ino()),
        Err(_) => format!("{PREFIX}{}", std::process::id()),
    }
}

fn make_cgroup(own: &OwnCgroup, name: &str, reasons: &mut Vec<String>) -> Option<GatewayCgroup> {
    remove_abandoned(&own.path, name);
    let path = own.path.join(name);
    let presence = match directory::make_locked(&path) {
        Ok(presence) => presence,
        Err(error) => {
            reasons.push(with_cause(&error));
            return None;
        }
    };
    if !directory::is_writable(&path) {
        // It belongs to another user's gateway, whose state directory had the same inode number before it was
        // removed.
        reasons.push(format!("cgroup {} belongs to another user", crate::printable::path(&path)));
        return None;
    }
    let mut controllers = own.controllers.clone();
    if own.hierarchy == Hierarchy::V2 {
        if let Err(error) = vacate_own_cgroup(&own.path, &controllers) {
            reasons.push(with_cause(&error));
            controllers.clear();
        }
        controllers.retain(|controller| match enable_controller(&own.path, &path, controller) {
            Ok(()) => true,
            Err(error) => {
                reasons.push(with_cause(&error));
                false
            }
        });
    }
    if let Err(error) =
        directory::set_limits(&path, own.hierarchy, &controllers, &principal::gateway_limits())
    {
        // Without a limit on all principals together the host is not protected, so no limits are offered.
        reasons.push(with_cause(&error));
        controllers.clear();
    }
    let hierarchy = own.hierarchy;
    Some(GatewayCgroup { path, hierarchy, controllers, principals: Mutex::default(), presence })
}

/// Enables a controller in the own cgroup and in the gateway's.
fn enable_controller(own: &Path, gateway: &Path, controller: &str) -> Result<(), CgroupError> {
    let one = [controller.to_owned()];
    if !directory::has_enabled(own, &one) {
        directory::enable_controllers(own, &one)?;
    }
    directory::enable_controllers(gateway, &one)
}

/// Moves the gateway out of its own cgroup if that does not enable these controllers for children yet: a cgroup
/// with processes cannot (cgroups(7), "no internal processes"). This is checked before any controller is enabled,
/// because `cpu` and `pids` can be enabled: they would make the cgroup the root of threaded ones, below which
/// nothing else works (cgroups(7), "EOPNOTSUPP"). Other programs' processes are not moved; then there are no
/// controllers.
fn vacate_own_cgroup(own: &Path, controllers: &[String]) -> Result<(), CgroupError> {
    // The root of the hierarchy has no type, and may have processes.
    if directory::has_enabled(own, controllers) || !own.join("cgroup.type").exists() {
        return Ok(());
    }
    let inside = directory::processes(own)?;
    let me = std::process::id();
    let others = inside.iter().filter(|&&pid| pid != me).count();
    if others > 0 {
        return Err(CgroupError::Shared { path: own.to_owned(), others });
    }
    if inside.is_empty() { Ok(()) } else { move_to_leaf(own) }
}

fn move_to_leaf(own: &Path) -> Result<(), CgroupError> {
    let leaf = own.join(GATEWAY_LEAF);
    directory::make(&leaf)?;
    let processes = leaf.join("cgroup.procs");
    std::fs::write(&processes, "0").map_err(|cause| CgroupError::Set {
        path: processes,
        value: "0".into(),
        cause,
    })
}

/// Removes cgroups of dead gateways in which nothing runs.
fn remove_abandoned(own: &Path, mine: &str) {
    let Ok(entries) = std::fs::read_dir(own) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if !name.starts_with(PREFIX) || name == mine || name == GATEWAY_LEAF {
            continue;
        }
        // First lock, then check: no process can be added to a locked cgroup in between.
        let claimed = directory::open(&entry.path()).ok().and_then(directory::lock_abandoned);
        if claimed.is_some() && !directory::has_processes(&entry.path()) {
            // Another gateway may have removed it first.
            let _ = directory::remove(&entry.path());
        }
    }
}

fn missing_reason(controller: &str, own: &[OwnCgroup], reasons: &[String]) -> String {
    if let Some(reason) = reasons.first() {
        return reason.clone();
    }
    if own.is_empty() {
        return "no cgroup hierarchy is mounted here".into();
    }
    format!("no hierarchy offers the {controller} controller to the group this gateway was started in")
}

pub(crate) fn with_cause(error: &CgroupError) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("{error}{cause}")
}

/// The cgroups below which this process could make others.
///
/// # Errors
/// When /proc cannot be read.
pub(crate) fn find_own_cgroups() -> Result<Vec<OwnCgroup>, nix::errno::Errno> {
    hierarchy::find_own()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of a directory of its own stand for those of a hierarchy.
    fn own_cgroup(path: &Path) -> [OwnCgroup; 1] {
        [OwnCgroup { path: path.to_owned(), hierarchy: Hierarchy::V1, controllers: Vec::new() }]
    }

    #[test]
    fn of_two_gateways_with_one_name_the_first_to_end_leaves_the_cgroups_to_the_other() {
        let (hierarchy, state, other) = (tempfile::tempdir(), tempfile::tempdir(), tempfile::tempdir());
        let (hierarchy, state, other) = (hierarchy.unwrap(), state.unwrap(), other.unwrap());
        let make = |state: &Path| GatewayCgroups::make(&own_cgroup(hierarchy.path()), state);
        let (first, second) = (make(state.path()), make(state.path()));
        drop(first);
        let group = &second.cgroups[0];
        assert!(group.path.exists(), "the second one's, too");
        let principal = PrincipalCgroup { uid: 0, limits: CgroupLimitValues::default() };
        let sandbox = make_below(group, &principal, "sbx_1").unwrap();
        // Nothing runs in the sandbox yet.
        drop(make(other.path()));
        assert!(sandbox.exists(), "it is not abandoned");
        std::fs::remove_dir(&sandbox).unwrap();
        let path = group.path.clone();
        drop(second);
        assert!(!path.exists(), "the last one takes them away");
        // What was removed and is made again is another one's.
        let third = make(state.path());
        third.remove();
        let fourth = make(state.path());
        drop(third);
        assert!(fourth.cgroups[0].path.exists(), "the fourth one's");
    }
}
