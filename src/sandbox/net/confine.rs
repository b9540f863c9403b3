//! Makes the process what it stays: one socket, the sandbox's listeners, an id of its own, no file, no capability, a filter.

use std::{
    net::{TcpListener, UdpSocket},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
};

use caps::Capability;
use nix::{
    errno::Errno,
    fcntl::OFlag,
    sys::{
        resource::{Resource, getrlimit, setrlimit},
        stat::Mode,
    },
    unistd::{Gid, Uid},
};
use prost::Message as _;

use super::limits::MAX_DESCRIPTORS;
use crate::{
    proto::net::{Setup, ToNet, to_net},
    sys::{
        credentials,
        fdpass::FrameReceiver,
        file,
        landlock::{self, Ruleset},
        seccomp, signals,
    },
};

/// What the process has.
#[derive(Debug)]
pub(super) struct Confined {
    pub(super) socket: UnixStream,
    pub(super) http: TcpListener,
    pub(super) socks: TcpListener,
    /// The sockets of the sandbox's resolver, if it has one.
    pub(super) resolver: Option<ResolverSockets>,
    /// In the place of the host's unix sockets, with their paths there.
    pub(super) unix: Vec<(String, UnixListener)>,
    pub(super) setup: Setup,
    pub(super) landlock_abi: u32,
}

/// The sockets on which programs ask for names.
#[derive(Debug)]
pub(super) struct ResolverSockets {
    pub(super) udp: UdpSocket,
    pub(super) tcp: TcpListener,
}

/// Receives the set-up on descriptor 0, and gives up everything else.
///
/// # Errors
/// The first step that fails. Nothing is served then.
pub(super) fn confine() -> Result<Confined, Errno> {
    let socket = file::dup_stdin().ok_or(Errno::EBADF)?;
    let frame = FrameReceiver::new().receive(socket.as_fd()).map_err(|_| Errno::EBADMSG)?;
    let frame = frame.ok_or(Errno::ENODATA)?;
    let message = ToNet::decode(frame.message.as_slice()).map_err(|_| Errno::EBADMSG)?.message;
    let Some(to_net::Message::Setup(setup)) = message else { return Err(Errno::EBADMSG) };
    let given = frame.descriptors;
    let proxies = given.len().saturating_sub(setup.unix_sockets.len());
    if ![2, 4].contains(&proxies) {
        return Err(Errno::EBADMSG);
    }
    let null = nix::fcntl::open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
    file::replace_standard(null.as_fd())?;
    drop(null);
    let kept: Vec<_> = std::iter::once(&socket).chain(&given).map(OwnedFd::as_fd).collect();
    file::close_all_except(&kept)?;
    signals::reset();
    limit()?;
    if setup.change_ids {
        take_ids(Uid::from_raw(setup.uid), Gid::from_raw(setup.gid))?;
    }
    nix::unistd::chdir("/")?;
    nix::sys::prctl::set_no_new_privs()?;
    nix::sys::prctl::set_dumpable(false)?;
    let landlock_abi = landlock::abi();
    if landlock_abi > 0 {
        // No file at all, and no signal or abstract socket out of here.
        Ruleset::new(landlock_abi)?.enforce()?;
    }
    if !setup.seccomp_program.is_empty() {
        seccomp::install(&setup.seccomp_program)?;
    }
    let mut given = given.into_iter();
    let (Some(http), Some(socks)) = (given.next(), given.next()) else { return Err(Errno::EBADMSG) };
    let resolver = if proxies > 2 { given.next().zip(given.next()) } else { None };
    let unix = setup.unix_sockets.iter().cloned().zip(given.map(UnixListener::from)).collect();
    Ok(Confined {
        socket: UnixStream::from(socket),
        http: http.into(),
        socks: socks.into(),
        resolver: resolver.map(|(udp, tcp)| ResolverSockets { udp: udp.into(), tcp: tcp.into() }),
        unix,
        setup,
        landlock_abi,
    })
}

fn limit() -> Result<(), Errno> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let descriptors = MAX_DESCRIPTORS.min(hard);
    setrlimit(Resource::RLIMIT_NOFILE, descriptors, descriptors)?;
    setrlimit(Resource::RLIMIT_FSIZE, 0, 0)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)
}

/// No group, no capability in any set, and no way back.
fn take_ids(uid: Uid, gid: Gid) -> Result<(), Errno> {
    nix::unistd::setgroups(&[])?;
    nix::unistd::setresgid(gid, gid, gid)?;
    credentials::lock_secure_bits()?;
    credentials::keep_capabilities(&[Capability::CAP_SETUID]).map_err(|_| Errno::last())?;
    // The last capability goes with the id.
    nix::unistd::setresuid(uid, uid, uid)
}
