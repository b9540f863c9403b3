//! A net process: started, given its listeners, confined, and ended.

use std::{
    io::{self, Read as _},
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt as _},
    },
    process::{Child, Stdio},
    time::Duration,
};

use nix::errno::Errno;
use prost::Message as _;

use super::{AuthorityError, Nets};
use crate::{
    proto::net::{FromNet, Setup, ToNet, from_net, to_net},
    sandbox::{
        host::{
            Host,
            host_ids::{HostIdClaim, HostIdError},
        },
        seccomp::{self, AnonymousPrograms, arch::Arch, notified::Listener},
    },
    sys::fdpass,
    wire::{self, EncodeError, HEADER_BYTES, net::PROCESS_NAME},
};

/// How long a net process may take to be ready.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest message by which a net process says that it is ready.
const MAX_READY_BYTES: usize = 1 << 10;

/// Why there is no net process.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// The supervisor has not answered with the listeners.
    #[error("the sandbox has no listeners of proxies")]
    Listeners,
    /// No host ids are left for it.
    #[error("claim the ids of the net process")]
    Ids(#[from] HostIdError),
    /// It cannot be started.
    #[error("start the net process")]
    Start(#[source] io::Error),
    /// What it is to have does not fit into a message.
    #[error("the table of hosts does not fit into a message")]
    TooLong(#[from] EncodeError),
    /// It cannot be given its listeners.
    #[error("send to the net process")]
    Send(#[source] Errno),
    /// It has not confined itself.
    #[error("the net process has not become ready")]
    NotReady(#[source] Option<io::Error>),
    /// The certificates of the session cannot be made or shown.
    #[error("prepare the certificates by which TLS is opened")]
    Certificates(#[from] AuthorityError),
    /// Nobody decides about connections.
    #[error("nobody decides about the connections of the sandbox")]
    Unobserved,
}

/// A net process that is ready. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct NetProcess {
    process: Child,
    pub(super) socket: UnixStream,
    has_resolver: bool,
    /// Its ids are its own while this is open.
    _claim: Option<HostIdClaim>,
}

impl NetProcess {
    /// Starts this program as a net process. Blocks for some milliseconds.
    ///
    /// # Errors
    /// [`NetError`]; nothing is left then.
    pub(crate) fn start(
        host: &Host,
        nets: &Nets,
        listeners: &[OwnedFd],
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
        let frame = wire::encode(&ToNet { message: Some(to_net::Message::Setup(setup)) }, listeners.len())?;
        let (socket, theirs) = UnixStream::pair().map_err(NetError::Start)?;
        socket
            .set_read_timeout(Some(READY_TIMEOUT))
            .and_then(|()| socket.set_write_timeout(Some(READY_TIMEOUT)))
            .map_err(NetError::Start)?;
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
        let started = Self { process, socket, has_resolver: proxies > 2, _claim: claim };
        let descriptors: Vec<BorrowedFd<'_>> = listeners.iter().map(|listener| listener.as_fd()).collect();
        fdpass::send(started.socket.as_fd(), &frame, &descriptors).map_err(NetError::Send)?;
        started.await_ready()?;
        Ok(started)
    }

    /// Reads the first message, and not a byte more: questions may be behind it.
    fn await_ready(&self) -> Result<(), NetError> {
        let mut header = [0; HEADER_BYTES];
        (&self.socket).read_exact(&mut header).map_err(|error| NetError::NotReady(Some(error)))?;
        let [a, b, c, d, descriptors] = header;
        let length = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if descriptors != 0 || length > MAX_READY_BYTES {
            return Err(NetError::NotReady(None));
        }
        let mut message = vec![0; length];
        (&self.socket).read_exact(&mut message).map_err(|error| NetError::NotReady(Some(error)))?;
        match FromNet::decode(message.as_slice()) {
            Ok(FromNet { message: Some(from_net::Message::Ready(_)) }) => Ok(()),
            Ok(_) | Err(_) => Err(NetError::NotReady(None)),
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
