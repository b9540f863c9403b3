//! Makes the listeners of the proxies on the sandbox's loopback, before any command runs: no command can be there first.
//!
//! The supervisor holds them and never accepts: the gateway gets copies, for the process that does.

use std::{
    net::{Ipv4Addr, TcpListener},
    os::fd::OwnedFd,
    sync::Arc,
};

use nix::errno::Errno;

use super::stage::StageError;
use crate::{
    network::{HTTP_PROXY_PORT, SOCKS_PORT},
    proto::supervisor::{SandboxPlan, Stage},
};

/// The step of the loopback stage that makes the listeners.
const LISTENERS_STEP: usize = 1;

/// The listeners of the plan: of HTTP, then of SOCKS5. They do not block who accepts.
pub(super) fn open(plan: &SandboxPlan) -> Result<Vec<Arc<OwnedFd>>, StageError> {
    if !plan.proxy.is_some_and(|proxy| proxy.enabled) {
        return Ok(Vec::new());
    }
    // In the host's network they would be everybody's.
    if !plan.own_network {
        return Err(StageError::malformed_plan());
    }
    let listen = |port: u16| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        Ok(Arc::new(OwnedFd::from(listener)))
    };
    let failed = |error: std::io::Error| {
        let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
        StageError::at(Stage::Loopback, LISTENERS_STEP, errno)
    };
    [HTTP_PROXY_PORT, SOCKS_PORT].into_iter().map(listen).collect::<Result<_, _>>().map_err(failed)
}
