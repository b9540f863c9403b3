//! Keeps a net process for a sandbox with the network `proxy`, as long as the sandbox lives.

use std::{
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
    time::Duration,
};

use futures_util::{FutureExt as _, future::BoxFuture};

use super::{
    handle::{Sandbox, SandboxLife},
    program_search::SearchedSandbox,
};
use crate::{
    policy::connect::ConnectingProgram,
    pool::Pool,
    proto::net::Attempt,
    proto::supervisor::{
        GetProxyListeners, MakeSockets, ProxyListeners, from_supervisor::Message, to_supervisor::Request,
    },
    sandbox::{
        host::Host,
        net_link::{AllowedConnections, NetError, NetOwner, NetProcess, Nets, ServedSandbox},
    },
    sys::process,
};

/// Between the end of a net process and the start of the next.
const RESTART_DELAY: Duration = Duration::from_millis(500);

/// How long a net process may take, after its sandbox has ended, to report the ends of the connections that ended with it.
const LAST_ENDS_TIMEOUT: Duration = Duration::from_secs(5);

impl Sandbox {
    /// Starts the net process, where there is to be one. It is started again when it ends before the sandbox.
    pub(crate) async fn start_net(
        self: &Arc<Self>,
        host: &Arc<Host>,
        nets: &Arc<Nets>,
        owner: Option<NetOwner>,
    ) -> Result<(), NetError> {
        let Some(owner) = owner else { return Ok(()) };
        let process = self.launch_net(host, nets).await?;
        self.keep_net(host, nets, owner, Some(process));
        Ok(())
    }

    /// As [`Sandbox::start_net`], without waiting: for a sandbox whose commands run already.
    pub(crate) fn resume_net(self: &Arc<Self>, host: &Arc<Host>, nets: &Arc<Nets>, owner: NetOwner) {
        self.keep_net(host, nets, owner, None);
    }

    fn keep_net(
        self: &Arc<Self>,
        host: &Arc<Host>,
        nets: &Arc<Nets>,
        owner: NetOwner,
        first: Option<NetProcess>,
    ) {
        let (sandbox, host, nets, owner) = (self.clone(), host.clone(), nets.clone(), Arc::new(owner));
        let address = self.lock_held_address().clone();
        tokio::spawn(async move {
            // Until its process is gone, which listens there.
            let _address = address;
            let open = Arc::default();
            tokio::select! {
                () = sandbox.serve_net(&host, &nets, &owner, first, &open) => {}
                () = sandbox.wait_carried(&open) => {}
            }
        });
    }

    /// Resolves when the sandbox has ended and so have its connections, or have not for too long.
    async fn wait_carried(&self, open: &AllowedConnections) {
        self.wait_until(SandboxLife::Ended).await;
        if tokio::time::timeout(LAST_ENDS_TIMEOUT, open.wait_none()).await.is_err() {
            tracing::warn!(sandbox.id = %self.id(), "the ends of its last connections were not reported");
        }
    }

    async fn serve_net(
        self: &Arc<Self>,
        host: &Arc<Host>,
        nets: &Arc<Nets>,
        owner: &Arc<NetOwner>,
        mut next: Option<NetProcess>,
        open: &Arc<AllowedConnections>,
    ) {
        loop {
            let started = match next.take() {
                Some(process) => Ok(process),
                None => self.launch_net(host, nets).await,
            };
            let served = match started {
                Ok(process) => process.serve(nets, owner, self.clone(), open).await,
                Err(error) => Err(error),
            };
            match served {
                Ok(()) => {
                    tracing::warn!(sandbox.id = %self.id(), "the net process has ended: another one is started")
                }
                Err(error) => {
                    tracing::error!(sandbox.id = %self.id(), %error, "no net process: nothing is carried");
                }
            }
            tokio::time::sleep(RESTART_DELAY).await;
        }
    }

    async fn launch_net(&self, host: &Arc<Host>, nets: &Arc<Nets>) -> Result<NetProcess, NetError> {
        let request = Request::GetProxyListeners(GetProxyListeners { with_sock_diag: true });
        let answer = self.control().request_in_time(request, &[]).await;
        let Ok(answer) = answer else { return Err(NetError::Listeners) };
        let Message::ProxyListeners(ProxyListeners { unix_sockets, has_sock_diag }) = answer.message else {
            return Err(NetError::Listeners);
        };
        let mut listeners = answer.descriptors;
        let diag = if has_sock_diag { listeners.pop() } else { None };
        let listeners: Vec<_> = listeners.into_iter().map(Arc::new).collect();
        let (host, nets) = (host.clone(), nets.clone());
        let address = self.lock_held_address().clone();
        let start = move || {
            let finds_tcp = diag.is_some() && host.finds_connections();
            let started = NetProcess::start(&host, &nets, &listeners, unix_sockets);
            started.map(|process| (address, process, diag, finds_tcp))
        };
        // The address is let go when the process has ended.
        let (_address, process, diag, finds_tcp) = tokio::task::spawn_blocking(start)
            .await
            .unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()))?;
        process.wait_ready().await?;
        if !finds_tcp {
            tracing::warn!(
                sandbox.id = %self.id(),
                "the programs of TCP connections are known only while there are few: sock_diag(7) does not find them"
            );
        }
        self.programs.use_diag(diag, finds_tcp);
        let has_resolver = process.has_resolver();
        tracing::info!(sandbox.id = %self.id(), pid = process.pid(), has_resolver, "net process up");
        if !has_resolver {
            tracing::warn!(
                sandbox.id = %self.id(),
                "programs that know no proxy find no names: /proc/sys/net could not be written"
            );
        }
        Ok(process)
    }
}

/// Which addresses a socket has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketFamily {
    Ipv4,
    Ipv6,
}

impl Sandbox {
    /// Makes TCP sockets of the sandbox's own network, not bound. `None`: it has none, or its supervisor is too old for it.
    pub(crate) async fn make_sockets(&self, count: usize, family: SocketFamily) -> Option<Vec<OwnedFd>> {
        if !self.effective_confinement().is_some_and(|confinement| confinement.makes_sockets) {
            return None;
        }
        let count = u32::try_from(count).ok()?;
        let request = Request::MakeSockets(MakeSockets { count, ipv6: family == SocketFamily::Ipv6 });
        match self.control().request_in_time(request, &[]).await {
            Ok(answer) if matches!(answer.message, Message::Sockets(_)) => {
                (answer.descriptors.len() == count as usize).then_some(answer.descriptors)
            }
            Ok(_) | Err(_) => None,
        }
    }
}

impl ServedSandbox for Sandbox {
    fn program<'a>(
        &'a self,
        attempt: &'a Attempt,
        (looks, uid): (&'a Arc<Pool>, u32),
    ) -> BoxFuture<'a, ConnectingProgram> {
        async move {
            let supervisor = process::pid_of(self.supervisor.get_ref().as_fd());
            match (self.cgroup.path(), supervisor) {
                (Some(cgroup), Ok(supervisor)) => {
                    let sandbox = SearchedSandbox { cgroup: cgroup.to_owned(), supervisor, uid };
                    self.programs.find(attempt, sandbox, looks).await
                }
                (None, _) | (_, Err(_)) => ConnectingProgram::Unknown,
            }
        }
        .boxed()
    }

    fn terminal_of(&self, claimed: &str) -> Option<String> {
        let terminals = self.lock_terminals();
        if terminals.contains_key(claimed) {
            return Some(claimed.to_owned());
        }
        let mut running = terminals.keys();
        running.next().filter(|_| running.next().is_none()).cloned()
    }

    fn sockets(&self, count: usize) -> BoxFuture<'_, Option<Vec<OwnedFd>>> {
        self.make_sockets(count, SocketFamily::Ipv4).boxed()
    }
}
