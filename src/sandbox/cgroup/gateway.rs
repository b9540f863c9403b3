//! The gateway's own directories in the cgroup trees, below the group it was started in. Those of its sandboxes are made in
//! them.
//!
//! Never touches a group that no gateway has made, and makes nothing above its own.

use std::{
    collections::HashMap,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard},
};

use crate::{
    cgroup::{
        Hierarchy,
        directory::{self, CgroupError, PresenceLock},
        hierarchy::{self, GATEWAY_LEAF, OwnCgroup},
        limits::{self, CgroupLimitValues},
    },
    sandbox::cgroup::{
        principal,
        sandbox::{SandboxCgroup, SandboxCgroupDirectory},
    },
};

/// How the names of gateways' directories begin.
const PREFIX: &str = "provost-";

/// A gateway's directories: one in each hierarchy in which it can make any.
#[derive(Debug)]
pub struct GatewayCgroups {
    cgroups: Vec<GatewayCgroup>,
    missing: Vec<MissingController>,
}

#[derive(Debug)]
struct GatewayCgroup {
    path: PathBuf,
    hierarchy: Hierarchy,
    /// What sandboxes below can have.
    controllers: Vec<String>,
    /// Principals' directories whose bounds are set, by user id.
    principals: Mutex<HashMap<u32, principal::ConfiguredCgroup>>,
    _presence: PresenceLock,
}

/// A controller that sandboxes cannot have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingController {
    /// The kernel's name.
    pub controller: &'static str,
    /// Why, for people.
    pub reason: String,
}

/// Controllers that limits need.
const NEEDED: [&str; 3] = ["memory", "pids", "cpu"];

impl GatewayCgroups {
    /// Makes the directories of the gateway with this state directory, and removes what dead gateways have left beside them.
    /// Where nothing can be made, that is said by [`Self::missing`].
    #[must_use]
    pub fn make(own: &[OwnCgroup], state: &Path) -> Self {
        let name = gateway_name(state);
        let mut whys = Vec::new();
        let cgroups: Vec<_> = own.iter().filter_map(|group| make_cgroup(group, &name, &mut whys)).collect();
        let missing = NEEDED
            .into_iter()
            .filter(|needed| !cgroups.iter().any(|group| group.controllers.iter().any(|has| has == needed)))
            .map(|controller| MissingController {
                controller,
                reason: missing_reason(controller, own, &whys),
            })
            .collect();
        Self { cgroups, missing }
    }

    /// What limits cannot be had, and why.
    #[must_use]
    pub fn missing(&self) -> &[MissingController] {
        &self.missing
    }

    /// Whether there is a v2 tree, which makes kill and membership exact.
    #[must_use]
    pub fn has_v2(&self) -> bool {
        self.cgroups.iter().any(|group| group.hierarchy == Hierarchy::V2)
    }

    /// Removes the gateway's own directories, in which no sandbox can be made any more. One in which a sandbox lives on
    /// stays: the next gateway uses or removes it.
    pub fn remove(&self) {
        for group in &self.cgroups {
            principal::remove_empty(&group.path);
            let _ = std::fs::remove_dir(&group.path);
        }
    }

    /// Makes a sandbox's directories below its principal's and sets the limits of both; gives them to the supervisor's ids.
    ///
    /// # Errors
    /// [`DirectoryError`]; what was made is removed again.
    pub fn make_sandbox(
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
            limits::set(&path, hierarchy, &group.controllers, limits)?;
            directory::delegate(&path, hierarchy, owner.0, owner.1)
        };
        if let Err(error) = self.cgroups.iter().try_for_each(&mut make) {
            // Just made and empty: nothing can be in the way, and the first error is the one to tell.
            let _ = made.remove_now();
            return Err(error);
        }
        Ok(made)
    }
}

/// Whose sandboxes are made together, and within which bounds.
#[derive(Debug, Clone, Copy)]
pub struct PrincipalCgroup {
    /// Its user id.
    pub uid: u32,
    /// Of all its sandboxes.
    pub limits: CgroupLimitValues,
}

/// Principals whose directories are remembered; beyond that they are forgotten, and brought to their state once more.
const MAX_CACHED_PRINCIPALS: usize = 1_024;

/// How often a principal's directory may be removed, by the end of its last sandbox, before a new one is in it.
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
        match std::fs::create_dir(&path) {
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
    /// Removes the directories of sandboxes that are not known: of a launch that ended between making them and writing them
    /// down, or whose record was lost. Those in which something runs stay; their names.
    #[must_use]
    pub fn sweep(&self, is_known: impl Fn(&str) -> bool) -> Vec<String> {
        let mut occupied = Vec::new();
        let levels = self.cgroups.iter().flat_map(|group| {
            // Gateways before this one made sandboxes without a principal's level.
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

/// The same for a gateway that is started again on the same state directory, and another for any other gateway.
fn gateway_name(state: &Path) -> String {
    match std::fs::metadata(state) {
        Ok(directory) => format!("{PREFIX}{:x}-{:x}", directory.dev(), directory.ino()),
        Err(_) => format!("{PREFIX}{}", std::process::id()),
    }
}

fn make_cgroup(own: &OwnCgroup, name: &str, whys: &mut Vec<String>) -> Option<GatewayCgroup> {
    remove_abandoned(&own.path, name);
    let path = own.path.join(name);
    let presence = match directory::make_locked(&path) {
        Ok(presence) => presence,
        Err(error) => {
            whys.push(with_cause(&error));
            return None;
        }
    };
    if !directory::is_writable(&path) {
        // Of another user's gateway, whose state directory had the same number before it was removed.
        whys.push(format!("cgroup {} belongs to somebody else", crate::printable::path(&path)));
        return None;
    }
    let mut controllers = own.controllers.clone();
    if own.hierarchy == Hierarchy::V2 {
        if let Err(error) = vacate_own_cgroup(&own.path, &controllers) {
            whys.push(with_cause(&error));
            controllers.clear();
        }
        controllers.retain(|controller| match enable_controller(&own.path, &path, controller) {
            Ok(()) => true,
            Err(error) => {
                whys.push(with_cause(&error));
                false
            }
        });
    }
    if let Err(error) = limits::set(&path, own.hierarchy, &controllers, &principal::gateway_limits()) {
        // Nothing would hold all of them together: then there are no limits to be had.
        whys.push(with_cause(&error));
        controllers.clear();
    }
    let hierarchy = own.hierarchy;
    Some(GatewayCgroup { path, hierarchy, controllers, principals: Mutex::default(), _presence: presence })
}

/// Lets a controller through the own group and the gateway's directory.
fn enable_controller(own: &Path, gateway: &Path, controller: &str) -> Result<(), CgroupError> {
    let one = [controller.to_owned()];
    if !directory::has_enabled(own, &one) {
        directory::enable_controllers(own, &one)?;
    }
    directory::enable_controllers(gateway, &one)
}

/// Takes the gateway out of its own group if that does not hand these controllers down yet: a group with processes
/// cannot (cgroups(7), "no internal processes"). Looked at before anything is enabled, for `cpu` and `pids` can be:
/// they make such a group the root of threaded ones, below which nothing else can be had (cgroups(7), "EOPNOTSUPP").
/// Other programs' processes are left where they are, and then there are no controllers.
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

/// Removes directories of gateways that are gone and have nothing running in them.
fn remove_abandoned(own: &Path, mine: &str) {
    let Ok(entries) = std::fs::read_dir(own) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if !name.starts_with(PREFIX) || name == mine || name == GATEWAY_LEAF {
            continue;
        }
        // In the order that makes it safe: nobody may come in while it is looked at.
        let claimed = directory::open(&entry.path()).ok().and_then(directory::lock_abandoned);
        if claimed.is_some() && !directory::has_processes(&entry.path()) {
            // Whoever is faster has done the same.
            let _ = directory::remove(&entry.path());
        }
    }
}

fn missing_reason(controller: &str, own: &[OwnCgroup], whys: &[String]) -> String {
    if let Some(why) = whys.first() {
        return why.clone();
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

/// The groups that this process could make directories in.
///
/// # Errors
/// When /proc cannot be read.
pub fn find_own_cgroups() -> Result<Vec<OwnCgroup>, nix::errno::Errno> {
    hierarchy::find_own()
}
