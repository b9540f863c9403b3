//! A net process: started, given its listeners, waited for until it has confined itself, and ended.

use std::{
    io,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt as _},
    },
    process::{Child, Stdio},
    sync::Arc,
    time::Duration,
};

use super::{AuthorityError, Nets};
use crate::{
    link::{Connection, LinkError, Peer},
    proto::net::{FromNet, Setup, ToNet, from_net, to_net},
    sandbox::{
        host::{
            Host,
            host_ids::{HostIdClaim, HostIdError},
        },
        seccomp::{self, AnonymousPrograms, arch::Arch, notified::Listener},
    },
    wire::{MAX_MESSAGE_BYTES, net::PROCESS_NAME},
};

/// How long a net process may take to be ready.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no net process.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetError {
    /// The supervisor has not answered with the listeners.
    #[error("the sandbox has no listeners of proxies")]
    Listeners,
    /// No host ids are left for it.
    #[error("claim the ids of the net process")]
    Ids(#[from] HostIdError),
    /// It cannot be started.
    #[error("start the net process")]
    Start(#[source] io::Error),
    /// It cannot be given what it needs, does not answer as it should, or nobody decides about its connections.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The certificates of the session cannot be made or shown.
    #[error("prepare the certificates by which TLS is opened")]
    Certificates(#[from] AuthorityError),
}

/// A net process. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct NetProcess {
    process: Child,
    pub(super) connection: Connection<ToNet, FromNet>,
    has_resolver: bool,
    /// Its ids are its own while this is open.
    _claim: Option<HostIdClaim>,
}

impl NetProcess {
    /// Starts this program as a net process, which is to be waited for. Blocks for some milliseconds; within a runtime.
    ///
    /// # Errors
    /// [`NetError`]; nothing is left then.
    pub(crate) fn start(
        host: &Host,
        nets: &Nets,
        listeners: &[Arc<OwnedFd>],
        unix_sockets: Vec<String>,
    ) -> Result<Self, NetError> {
        // With a resolver or without.
        let proxies = listeners.len().saturating_sub(unix_sockets.len());
        if ![2, 4].contains(&proxies) {
            return Err(NetError::Listeners);
        }
        let claim = host.is_privileged().then(|| host.ids().claim(0)).transpose()?;
        let id = claim.as_ref().map_or(0, |claim| claim.supervisor);
        let program = |machine| seccomp::program(machine, AnonymousPrograms::Refused, Listener::None);
        let setup = Setup {
            change_ids: claim.is_some(),
            uid: id,
            gid: id,
            seccomp_program: Arch::native().map(program).unwrap_or_default().into(),
            nameservers: nets.nameservers(),
            hosts: nets.hosts(),
            trusted_roots: nets.trusted_roots().into_iter().map(Into::into).collect(),
            unix_sockets,
        };
        let (socket, theirs) = UnixStream::pair().map_err(NetError::Start)?;
        let connection = Connection::new(Peer::Net, socket, MAX_MESSAGE_BYTES).map_err(NetError::Start)?;
        let process = host
            .program()
            .map_err(NetError::Start)?
            .command(PROCESS_NAME)
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(NetError::Start)?;
        let started = Self { process, connection, has_resolver: proxies > 2, _claim: claim };
        let sent =
            started.connection.send(&ToNet { message: Some(to_net::Message::Setup(setup)) }, listeners);
        sent.map_err(|error| match error {
            LinkError::TooLong(peer, _, cause) => {
                LinkError::TooLong(peer, "the table of hosts with the trusted roots", cause)
            }
            other => other,
        })?;
        Ok(started)
    }

    /// Waits until it has confined itself, which its first message says.
    ///
    /// # Errors
    /// [`LinkError`].
    pub(crate) async fn wait_ready(&self) -> Result<(), LinkError> {
        let first = async {
            tokio::select! {
                first = self.connection.next() => first,
                ended = self.connection.keep_writing() => Err(ended),
            }
        };
        match Peer::Net.within(READY_TIMEOUT, first).await? {
            Some((FromNet { message: Some(from_net::Message::Ready(_)) }, descriptors))
                if descriptors.is_empty() =>
            {
                Ok(())
            }
            Some(_) => Err(LinkError::UnexpectedMessage(Peer::Net)),
            None => Err(LinkError::Lost(Peer::Net)),
        }
    }

    /// Whether it answers questions for names inside.
    pub(crate) fn has_resolver(&self) -> bool {
        self.has_resolver
    }

    /// Its process id, for reports.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for NetProcess {
    fn drop(&mut self) {
        // It is our child and not reaped, so that the id is its own. It holds nothing that could make it wait.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
