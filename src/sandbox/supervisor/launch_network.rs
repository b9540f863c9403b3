//! In the launcher: the network namespace of a sandbox.
//!
//! It is the host's, made by the supervisor's clone for that sandbox alone, made ahead by a privileged launcher, or one that sandboxes of
//! a session have in common because each of them runs one command. An ordinary user's of the last kind belongs to a user namespace in which
//! nothing runs. The sandboxes' user namespaces are made below that one, so that none of them has power over the network or over another.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::exit,
};

use nix::{
    errno::Errno,
    sched::{CloneFlags, setns},
    sys::wait::waitpid,
};

use super::{
    setup::{PreparedNames, StageError},
    subordinate_maps::{self, IdMaps, Mapped},
};
use crate::{
    proto::supervisor::{Identity, SandboxPlan, Stage},
    sys::{
        file, loopback,
        namespace::{self, Cloned, IdPair, Parent},
    },
    wire::launch::MAP_OF_SESSION_NETWORK,
};

const EXIT_NO_NETWORK: i32 = 73;

/// A network namespace with its loopback up, made while the launcher waits for its plan: it takes as long as the
/// rest of a sandbox together. It belongs to the host's user namespace, so no process inside has power over it.
pub(super) struct PreparedNetwork {
    host: OwnedFd,
}

impl PreparedNetwork {
    /// Enters a new network namespace. Without the privilege for it returns `None`, and stays in the host's.
    pub(super) fn make() -> Option<Self> {
        let host = file::open_read(Path::new(OWN_NETWORK)).ok()?;
        nix::sched::unshare(CloneFlags::CLONE_NEWNET).ok()?;
        let made = Self { host };
        if loopback::bring_up().is_ok() {
            return Some(made);
        }
        match made.restore_host_network() {
            Ok(()) => None,
            // A launcher in an unknown network namespace must not launch anything.
            Err(_) => exit(EXIT_NO_NETWORK),
        }
    }

    /// Returns to the host's network namespace.
    fn restore_host_network(self) -> Result<(), StageError> {
        setns(self.host, CloneFlags::CLONE_NEWNET).map_err(StageError::of(Stage::CloneNamespaces))
    }
}

const OWN_NETWORK: &str = "/proc/self/ns/net";

/// Where a supervisor gets its network namespace.
pub(super) enum LaunchNetwork {
    /// The host's: the launcher is in it.
    Host,
    /// Its clone makes it.
    Clone,
    /// The launcher is in it.
    Entered {
        /// As the plan wants it.
        names: PreparedNames,
        /// The descriptors of a session's network, which its next sandboxes are given. Empty: it is this sandbox's alone.
        session: Vec<OwnedFd>,
        /// Who has made that.
        maker: SessionNetworkMaker,
        /// Whose ids the launcher may map.
        user_namespace: UserNamespace,
    },
}

/// Which launch has made a session's network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionNetworkMaker {
    /// This one.
    This,
    /// One before.
    Earlier,
}

/// The user namespace of a launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UserNamespace {
    /// The gateway's.
    Gateways,
    /// That of a session's network, in which it has every capability.
    SessionNetworks,
}

impl LaunchNetwork {
    /// Enters what the plan says; `given` are the descriptors of a session's network that an earlier launch has made, or none.
    pub(super) fn enter(
        plan: &SandboxPlan,
        identity: &Identity,
        maps: &IdMaps,
        prepared: Option<PreparedNetwork>,
        given: Vec<OwnedFd>,
    ) -> Result<Self, StageError> {
        let (session, maker) = match (plan.own_network, prepared, plan.session_network) {
            (false, None, _) => return Ok(Self::Host),
            (false, Some(prepared), _) => return prepared.restore_host_network().map(|()| Self::Host),
            (true, None, None) => return Ok(Self::Clone),
            (true, Some(_), None) => (Vec::new(), SessionNetworkMaker::This),
            (true, _, Some(_)) if !given.is_empty() => {
                enter(&given)?;
                (given, SessionNetworkMaker::Earlier)
            }
            (true, Some(_), Some(_)) => {
                let own = file::open_read(Path::new(OWN_NETWORK)).map_err(step(4))?;
                (vec![own], SessionNetworkMaker::This)
            }
            (true, None, Some(_)) => {
                let made = make(maps)?;
                enter(&made)?;
                loopback::bring_up().map_err(StageError::of(Stage::Loopback))?;
                (made, SessionNetworkMaker::This)
            }
        };
        let user_namespace = match session.len() {
            0 | 1 => UserNamespace::Gateways,
            _ => UserNamespace::SessionNetworks,
        };
        let names = PreparedNames::prepare(plan, identity.command_host_gid)?;
        Ok(Self::Entered { names, session, maker, user_namespace })
    }
}

fn step(index: usize) -> impl Fn(Errno) -> StageError {
    StageError::of_step(Stage::CloneNamespaces, index)
}

/// Enters a session's network, and the user namespace to which it belongs.
fn enter(descriptors: &[OwnedFd]) -> Result<(), StageError> {
    let (network, user) = match descriptors {
        [network] => (network, None),
        [network, user] => (network, Some(user)),
        _ => return Err(StageError::malformed_plan()),
    };
    if let Some(user) = user {
        setns(user, CloneFlags::CLONE_NEWUSER).map_err(step(5))?;
        // Its files in /proc belong to root else, and so do those of the supervisor, whose maps it writes: proc(5).
        nix::sys::prctl::set_dumpable(true).map_err(step(6))?;
    }
    setns(network, CloneFlags::CLONE_NEWNET).map_err(step(7))
}

/// Makes a network namespace, and the user namespace to which it belongs. In it the ids of the sandboxes are what they are outside.
fn make(maps: &IdMaps) -> Result<Vec<OwnedFd>, StageError> {
    let (until_released, release) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(step(8))?;
    let namespaces = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET;
    match namespace::clone_into(namespaces, None, Parent::Caller).map_err(step(9))? {
        Cloned::Child => {
            drop(release);
            // Whatever comes, or the end: the namespaces are held by descriptors then.
            let _ = nix::unistd::read(&until_released, &mut [0]);
            exit(0)
        }
        Cloned::Parent { pid, pidfd: _ } => {
            drop(until_released);
            let process = PathBuf::from(format!("/proc/{pid}"));
            let made = map_as_outside(&process, pid, maps).and_then(|()| {
                let open = |name: &str| file::open_read(&process.join("ns").join(name)).map_err(step(10));
                Ok(vec![open("net")?, open("user")?])
            });
            drop(release);
            waitpid(pid, None).map_err(step(11))?;
            made
        }
    }
}

/// Maps the ids of the sandboxes to themselves; where the subordinate ones cannot be mapped, the user's alone.
fn map_as_outside(process: &Path, pid: nix::unistd::Pid, maps: &IdMaps) -> Result<(), StageError> {
    let to_itself = |pairs: &[IdPair]| -> Vec<IdPair> {
        let mut ids: Vec<u32> = pairs.iter().map(|pair| pair.outside).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().map(|id| IdPair { inside: id, outside: id }).collect()
    };
    let (uids, gids) = (to_itself(&maps.uids), to_itself(&maps.gids));
    if uids.len() > 1 && subordinate_maps::write(pid, &uids, &gids)? == Mapped::Written {
        return Ok(());
    }
    let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    file::write_once(&process.join("setgroups"), b"deny").map_err(step(12))?;
    namespace::write_map(process, "uid_map", &[IdPair { inside: uid, outside: uid }])
        .map_err(step(MAP_OF_SESSION_NETWORK as usize))?;
    namespace::write_map(process, "gid_map", &[IdPair { inside: gid, outside: gid }]).map_err(step(14))
}
