//! The process that a session ends with: the caller's own, or another one of the caller's user that the request names.
//!
//! A number is believed only together with the start time of its process, and only for a process under the caller's uid. A
//! session that ends with another process gives its caller nothing that one without an end would not, so that the process need
//! not agree. What the answer says of other users' processes is what it says of processes that are not there.

use std::os::fd::AsFd;

use super::{
    new_session::{NamedProcess, NewSession, OpenError},
    principal::Peer,
    session::Lifetime,
};
use crate::sys::process::{self, ProcessIdentity};

/// The process that is to own a new session. `None`: none is, or it could not be seen.
///
/// # Errors
/// [`OpenError`]: there is to be one, and it cannot be.
pub(super) fn find(peer: &Peer, new: &NewSession) -> Result<Option<ProcessIdentity>, OpenError> {
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
