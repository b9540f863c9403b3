//! The gateway's own folders in the cgroup trees, below the group it was started in. Those of its sandboxes are made in
//! them.
//!
//! Never touches a group that no gateway has made, and makes nothing above its own.

use std::{
    collections::HashMap,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard},
};

use super::{
    cgroup::{SandboxCgroup, SandboxFolder},
    principal,
};
use crate::cgroup::{
    Hierarchy,
    folder::{self, FolderError, Presence},
    hierarchy::{self, GATEWAY_LEAF, OwnGroup},
    limits::{self, FolderLimits},
};

/// How the names of gateways' folders begin.
const PREFIX: &str = "provost-";

/// A gateway's folders: one in each hierarchy in which it can make any.
#[derive(Debug)]
pub struct GatewayGroups {
    groups: Vec<GatewayGroup>,
    missing: Vec<MissingController>,
}

#[derive(Debug)]
struct GatewayGroup {
    path: PathBuf,
    hierarchy: Hierarchy,
    /// What sandboxes below can have.
    controllers: Vec<String>,
    /// Principals' folders whose bounds are set, by user id.
    principals: Mutex<HashMap<u32, principal::Made>>,
    _presence: Presence,
}

/// A controller that sandboxes cannot have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingController {
    /// The kernel's name.
    pub controller: &'static str,
    /// Why, for people.
    pub why: String,
}

/// Controllers that limits need.
const NEEDED: [&str; 3] = ["memory", "pids", "cpu"];

impl GatewayGroups {
    /// Makes the folders of the gateway with this state folder, and removes what dead gateways have left beside them.
    /// Where nothing can be made, that is said by [`Self::missing`].
    #[must_use]
    pub fn make(own: &[OwnGroup], state: &Path) -> Self {
        let name = gateway_name(state);
        let mut whys = Vec::new();
        let groups: Vec<_> = own.iter().filter_map(|group| make_group(group, &name, &mut whys)).collect();
        let missing = NEEDED
            .into_iter()
            .filter(|needed| !groups.iter().any(|group| group.controllers.iter().any(|has| has == needed)))
            .map(|controller| MissingController { controller, why: why_missing(controller, own, &whys) })
            .collect();
        Self { groups, missing }
    }

    /// What limits cannot be had, and why.
    #[must_use]
    pub fn missing(&self) -> &[MissingController] {
        &self.missing
    }

    /// Whether there is a v2 tree, which makes kill and membership exact.
    #[must_use]
    pub fn has_v2(&self) -> bool {
        self.groups.iter().any(|group| group.hierarchy == Hierarchy::V2)
    }

    /// Removes the gateway's own folders, in which no sandbox can be made any more. One in which a sandbox lives on
    /// stays: the next gateway uses or removes it.
    pub fn remove(&self) {
        for group in &self.groups {
            principal::remove_empty(&group.path);
            let _ = std::fs::remove_dir(&group.path);
        }
    }

    /// Makes a sandbox's folders below its principal's and sets the limits of both; gives them to the supervisor's ids.
    ///
    /// # Errors
    /// [`FolderError`]; what was made is removed again.
    pub fn make_sandbox(
        &self,
        sandbox_id: &str,
        principal: &PrincipalPlace,
        owner: (u32, u32),
        limits: &FolderLimits,
    ) -> Result<SandboxCgroup, FolderError> {
        let mut made = SandboxCgroup { folders: Vec::new() };
        let mut make = |group: &GatewayGroup| {
            let path = make_below(group, principal, sandbox_id)?;
            let (hierarchy, controllers) = (group.hierarchy, group.controllers.clone());
            made.folders.push(SandboxFolder { path: path.clone(), hierarchy, controllers });
            limits::set(&path, hierarchy, &group.controllers, limits)?;
            folder::give(&path, hierarchy, owner.0, owner.1)
        };
        if let Err(error) = self.groups.iter().try_for_each(&mut make) {
            // Just made and empty: nothing can be in the way, and the first error is the one to tell.
            let _ = made.remove_now();
            return Err(error);
        }
        Ok(made)
    }
}

/// Whose sandboxes are made together, and within which bounds.
#[derive(Debug, Clone, Copy)]
pub struct PrincipalPlace {
    /// Its user id.
    pub uid: u32,
    /// Of all its sandboxes.
    pub limits: FolderLimits,
}

/// Principals whose folders are remembered; beyond that they are forgotten, and brought to their state once more.
const REMEMBERED_PRINCIPALS: usize = 1_024;

/// How often a principal's folder may be removed, by the end of its last sandbox, before a new one is in it.
const MAKE_TRIES: u32 = 16;

fn make_below(
    group: &GatewayGroup,
    principal: &PrincipalPlace,
    sandbox_id: &str,
) -> Result<PathBuf, FolderError> {
    let above = principal::path(&group.path, principal.uid);
    let path = above.join(sandbox_id);
    for _ in 0..MAKE_TRIES {
        let made = group.lock_principals().get(&principal.uid).copied();
        if !made.is_some_and(|made| made.is_still(&above, &principal.limits)) {
            match principal::make(&above, group.hierarchy, &group.controllers, &principal.limits) {
                Ok(made) => group.remember(principal.uid, made),
                Err(_) if !above.exists() => continue,
                Err(error) => return Err(error),
            }
        }
        match std::fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {}
            Err(cause) => return Err(FolderError::Make { path, cause }),
        }
    }
    Err(FolderError::Claimed { path: above })
}

impl GatewayGroup {
    fn remember(&self, uid: u32, made: principal::Made) {
        let mut principals = self.lock_principals();
        if principals.len() >= REMEMBERED_PRINCIPALS {
            principals.clear();
        }
        principals.insert(uid, made);
    }

    fn lock_principals(&self) -> MutexGuard<'_, HashMap<u32, principal::Made>> {
        self.principals.lock().expect("no code panics while it holds the principals' folders")
    }
}

impl GatewayGroups {
    /// Removes the folders of sandboxes that are not known: of a launch that ended between making them and writing them
    /// down, or whose record was lost. Those in which something runs stay; their names.
    #[must_use]
    pub fn sweep(&self, is_known: impl Fn(&str) -> bool) -> Vec<String> {
        let mut occupied = Vec::new();
        let levels = self.groups.iter().flat_map(|group| {
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
                if folder::is_occupied(&entry.path()) || folder::remove(&entry.path()).is_err() {
                    occupied.push(name.to_owned());
                }
            }
        }
        self.groups.iter().for_each(|group| principal::remove_empty(&group.path));
        occupied
    }
}

impl Drop for GatewayGroups {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The same for a gateway that is started again on the same state folder, and another for any other gateway.
fn gateway_name(state: &Path) -> String {
    match std::fs::metadata(state) {
        Ok(folder) => format!("{PREFIX}{:x}-{:x}", folder.dev(), folder.ino()),
        Err(_) => format!("{PREFIX}{}", std::process::id()),
    }
}

fn make_group(own: &OwnGroup, name: &str, whys: &mut Vec<String>) -> Option<GatewayGroup> {
    remove_abandoned(&own.path, name);
    let path = own.path.join(name);
    let presence = match folder::make_present(&path) {
        Ok(presence) => presence,
        Err(error) => {
            whys.push(describe(&error));
            return None;
        }
    };
    if !folder::is_writable(&path) {
        // Of another user's gateway, whose state folder had the same number before it was removed.
        whys.push(format!("cgroup {} belongs to somebody else", crate::printable::path(&path)));
        return None;
    }
    let mut controllers = own.controllers.clone();
    if own.hierarchy == Hierarchy::V2 {
        if let Err(error) = make_room(&own.path, &controllers) {
            whys.push(describe(&error));
            controllers.clear();
        }
        controllers.retain(|controller| match hand_down(&own.path, &path, controller) {
            Ok(()) => true,
            Err(error) => {
                whys.push(describe(&error));
                false
            }
        });
    }
    if let Err(error) = limits::set(&path, own.hierarchy, &controllers, &principal::limits_of_all()) {
        // Nothing would hold all of them together: then there are no limits to be had.
        whys.push(describe(&error));
        controllers.clear();
    }
    let hierarchy = own.hierarchy;
    Some(GatewayGroup { path, hierarchy, controllers, principals: Mutex::default(), _presence: presence })
}

/// Lets a controller through the own group and the gateway's folder.
fn hand_down(own: &Path, gateway: &Path, controller: &str) -> Result<(), FolderError> {
    let one = [controller.to_owned()];
    if !folder::hands_down(own, &one) {
        folder::enable(own, &one)?;
    }
    folder::enable(gateway, &one)
}

/// Takes the gateway out of its own group if that does not hand these controllers down yet: a group with processes
/// cannot (cgroups(7), "no internal processes"). Looked at before anything is enabled, for `cpu` and `pids` can be:
/// they make such a group the root of threaded ones, below which nothing else can be had (cgroups(7), "EOPNOTSUPP").
/// Other programs' processes are left where they are, and then there are no controllers.
fn make_room(own: &Path, controllers: &[String]) -> Result<(), FolderError> {
    // The root of the hierarchy has no type, and may have processes.
    if folder::hands_down(own, controllers) || !own.join("cgroup.type").exists() {
        return Ok(());
    }
    let inside = folder::processes(own)?;
    let me = std::process::id();
    let others = inside.iter().filter(|&&pid| pid != me).count();
    if others > 0 {
        return Err(FolderError::Shared { path: own.to_owned(), others });
    }
    if inside.is_empty() { Ok(()) } else { step_aside(own) }
}

fn step_aside(own: &Path) -> Result<(), FolderError> {
    let leaf = own.join(GATEWAY_LEAF);
    folder::make(&leaf)?;
    let processes = leaf.join("cgroup.procs");
    std::fs::write(&processes, "0").map_err(|cause| FolderError::Set {
        path: processes,
        value: "0".into(),
        cause,
    })
}

/// Removes folders of gateways that are gone and have nothing running in them.
fn remove_abandoned(own: &Path, mine: &str) {
    let Ok(entries) = std::fs::read_dir(own) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if !name.starts_with(PREFIX) || name == mine || name == GATEWAY_LEAF {
            continue;
        }
        // In the order that makes it safe: nobody may come in while it is looked at.
        let claimed = folder::open(&entry.path()).ok().and_then(folder::claim_abandoned);
        if claimed.is_some() && !folder::is_occupied(&entry.path()) {
            // Whoever is faster has done the same.
            let _ = folder::remove(&entry.path());
        }
    }
}

fn why_missing(controller: &str, own: &[OwnGroup], whys: &[String]) -> String {
    if let Some(why) = whys.first() {
        return why.clone();
    }
    if own.is_empty() {
        return "no cgroup hierarchy is mounted here".into();
    }
    format!("no hierarchy offers the {controller} controller to the group this gateway was started in")
}

pub(super) fn describe(error: &FolderError) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("{error}{cause}")
}

/// The groups that this process could make folders in.
///
/// # Errors
/// When /proc cannot be read.
pub fn find_own() -> Result<Vec<OwnGroup>, nix::errno::Errno> {
    hierarchy::find_own()
}
