//! What a caller asks of a new session, why there is none, and the process that the session ends with: the caller's own, or another one of
//! the caller's user that the request names.
//!
//! A process's number is believed only together with its start time, and only for a process under the caller's uid. A session that ends
//! with another process gives its caller nothing that one without an end would not, so that the process need not agree. What the answer
//! says of other users' processes is what it says of processes that are not there.

use std::{collections::BTreeMap, os::fd::AsFd};

use super::{
    descriptors::DescriptorQuotaReached,
    principal::Peer,
    session::{Lifetime, WorkspaceExtent},
};
use crate::{
    policy::{AbsPath, Denial, environment::EnvEntry, profile::Network},
    pool::PoolError,
    sandbox::roots::{RootError, governing::GoverningError},
    sys::process::{self, ProcessIdentity},
};

/// A session to be opened; every field checked for form.
#[derive(Debug)]
pub(crate) struct NewSession {
    /// At least one.
    pub roots: Vec<AbsPath>,
    /// Directories that commands may read and never write.
    pub read_only_roots: Vec<AbsPath>,
    /// Whether the repository around the first root takes its place.
    pub extent: WorkspaceExtent,
    /// Absent: the first root.
    pub cwd: Option<AbsPath>,
    /// No name twice.
    pub env: Vec<EnvEntry>,
    /// As the caller gave them.
    pub labels: BTreeMap<String, String>,
    /// By which front end it is opened, as the caller claims.
    pub front_end: String,
    /// Absent: the policy's default.
    pub profile: Option<String>,
    /// The network of its terminals that ask for none; absent: their profile's.
    pub network: Option<Network>,
    /// The socket of the caller's SSH agent.
    pub ssh_agent: Option<AbsPath>,
    /// When it ends by itself.
    pub lifetime: Lifetime,
    /// The process that it ends with, if that is not the caller's.
    pub owner_process: Option<NamedProcess>,
    /// Makes a request for the same session by another process answer with it.
    pub name: Option<String>,
    /// Makes a repeated request answer with the first session.
    pub request_id: Option<String>,
}

/// A process that a caller names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NamedProcess {
    /// In the gateway's pid namespace.
    pub pid: i32,
    /// Clock ticks from boot to its start.
    pub start_ticks: u64,
}

/// Opening a session failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// Policy refuses it.
    #[error(transparent)]
    Denied(#[from] Denial),
    /// A root cannot be used: its field in the request, and the reason.
    #[error("{0}")]
    Root(String, #[source] RootError),
    /// A root's own name, without links, is no text.
    #[error("{0} leads to a directory whose name is not text")]
    RootName(String),
    /// A session of this name is open, and is another one.
    #[error(
        "a session of this name is open, with another value: close it (`provost close NAME`), or take another name"
    )]
    OtherSession {
        /// The field of the request that differs; `name` for the policy, which has changed meanwhile.
        field: &'static str,
    },
    /// A session of this name is open, on a directory that was removed or replaced since.
    #[error(
        "a session of this name is open, and another directory is at {:?} now: close it (`provost close NAME`), or take another name",
        .0.as_path()
    )]
    RootReplaced(AbsPath),
    /// The session is to end with its owner's process, and the kernel does not tell which one that is.
    #[error("the calling process is not known, so the session cannot end with it")]
    NoOwnerProcess,
    /// The process that the caller names has ended, or is not the caller's. The two are not told apart.
    #[error("no process of the caller has this number and this start")]
    ForeignOwnerProcess,
    /// The gateway is going down.
    #[error("the gateway is draining")]
    Draining,
    /// What governs commands changed while the session was opened, and a root reaches it now.
    #[error(transparent)]
    Governing(GoverningError),
    /// It cannot be stored, and would not outlive this gateway.
    #[error("the session cannot be kept")]
    StateUnwritable(#[source] std::io::Error),
    /// Its roots could not be looked at in time.
    #[error("the roots cannot be opened")]
    Filesystem(#[from] PoolError),
    /// The principal has as many sessions as it may.
    #[error("{0} sessions are open, the most that one principal may have")]
    TooMany(u32),
    /// The principal's sessions and terminals hold as many of the gateway's descriptors as they may.
    #[error(transparent)]
    Descriptors(#[from] DescriptorQuotaReached),
}

/// The process that is to own a new session. `None`: none is, or it could not be seen.
///
/// # Errors
/// [`OpenError`]: there is to be one, and it cannot be.
pub(super) fn find_owner(peer: &Peer, new: &NewSession) -> Result<Option<ProcessIdentity>, OpenError> {
    match (new.lifetime, new.owner_process, &peer.process) {
        (Lifetime::Explicit, _, _) => Ok(None),
        (Lifetime::OwnerProcess, Some(named), _) => find_named(peer, named).map(Some),
        (Lifetime::OwnerProcess, None, Some(caller)) => {
            ProcessIdentity::of(caller.as_fd()).map_err(OpenError::StateUnwritable)
        }
        (Lifetime::OwnerProcess, None, None) => Err(OpenError::NoOwnerProcess),
    }
}

fn find_named(peer: &Peer, named: NamedProcess) -> Result<ProcessIdentity, OpenError> {
    let boot_id = process::boot_id().map_err(OpenError::StateUnwritable)?;
    let identity = ProcessIdentity { pid: named.pid, start_ticks: named.start_ticks, boot_id };
    let Some(opened) = identity.open().map_err(OpenError::StateUnwritable)? else {
        return Err(OpenError::ForeignOwnerProcess);
    };
    let uid = process::real_uid(opened.as_fd()).map_err(OpenError::StateUnwritable)?;
    if uid == Some(peer.principal.uid) { Ok(identity) } else { Err(OpenError::ForeignOwnerProcess) }
}

#[cfg(test)]
mod tests {
    use std::{process::Command, sync::Arc};

    use super::*;
    use crate::session::Principal;

    fn peer(uid: u32) -> Peer {
        Peer {
            principal: Principal { uid },
            gid: 0,
            groups: Arc::default(),
            process: None,
            given_input: std::sync::Weak::new(),
        }
    }

    #[test]
    fn a_named_process_must_be_the_callers_and_the_one_that_was_meant() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id().cast_signed();
        let start_ticks = process::start_ticks(pid).unwrap().unwrap();
        let own = nix::unistd::getuid().as_raw();
        let found = find_named(&peer(own), NamedProcess { pid, start_ticks }).unwrap();
        assert_eq!((found.pid, found.start_ticks), (pid, start_ticks));
        let refused = [
            find_named(&peer(own), NamedProcess { pid, start_ticks: start_ticks + 1 }),
            find_named(&peer(own + 1), NamedProcess { pid, start_ticks }),
        ];
        for refused in refused {
            assert!(matches!(refused, Err(OpenError::ForeignOwnerProcess)), "{refused:?}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let ended = find_named(&peer(own), NamedProcess { pid, start_ticks });
        assert!(matches!(ended, Err(OpenError::ForeignOwnerProcess)), "{ended:?}");
    }
}
