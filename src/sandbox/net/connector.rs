//! From an attempt to an open connection: asks about the host, finds its addresses, asks about those, dials one that was allowed.
//!
//! The address that is dialled is one of the very addresses that were asked about: a name that changes in between changes nothing.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::OwnedFd,
    sync::Arc,
};

use tokio::{
    net::{TcpStream, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::{
    budget::Budget,
    end_report::EndReport,
    limits::{DIAL_TIMEOUT, MAX_DIALS, MAX_STREAMS},
    link::{Answer, GatewayLink},
    open::OpenConnections,
    outcome::{Allowed, Carrier, Refusal, TlsParts, Upstream},
    program::{ProgramEnd, Waiting},
    resolver::{ResolveError, Resolver},
    tls::ServerTls,
};
use crate::{
    network::destination::{Destination, Host},
    proto::net::{
        AboutAddresses, AboutBytes, AboutHost, AboutName, AboutOpen, Address, Attempt, BadRequest, Denied,
        Dial, Disagreement, Protocol, Resolve, question::About, verdict::Verdict,
    },
    wire::net::MAX_HOST_BYTES,
};

/// The rule's name of a refusal that no rule made.
const UNAVAILABLE: &str = "network.gateway";

/// What a name may be used for, as the gateway says.
#[derive(Debug)]
pub(super) enum NameVerdict {
    /// Connections to it could be allowed at these ports. One socket for each that is not open.
    Ports(Vec<u16>, Vec<OwnedFd>),
    /// No rule could allow any.
    Denied,
    /// The gateway does not answer.
    Unavailable,
}

/// What every connection needs.
#[derive(Debug)]
pub(super) struct Connector {
    link: Arc<GatewayLink>,
    resolver: Resolver,
    open: Arc<OpenConnections>,
    budget: Arc<Budget>,
    tls: ServerTls,
    streams: Arc<Semaphore>,
}

/// An attempt, as a program makes it.
pub(super) fn attempt(host: &[u8], port: u16, protocol: Protocol, program: &ProgramEnd) -> Attempt {
    let host = host.get(..host.len().min(MAX_HOST_BYTES)).unwrap_or_default();
    let mut host = String::from_utf8_lossy(host).into_owned();
    // What stands for other bytes is longer than they were.
    while host.len() > MAX_HOST_BYTES {
        host.pop();
    }
    Attempt {
        host,
        port: port.into(),
        protocol: protocol.into(),
        terminal_id: program.terminal_id.clone(),
        socket_inode: program.socket_inode,
        program_end: program.own.clone(),
        listener_end: program.listener.clone(),
        ..Attempt::default()
    }
}

/// What was approved holds for the further questions about the same connection.
fn take_approval(attempt: &mut Attempt, approval: String) {
    if !approval.is_empty() {
        attempt.approval = approval;
    }
}

impl Connector {
    pub(super) fn new(link: Arc<GatewayLink>, resolver: Resolver, tls: ServerTls) -> Self {
        let streams = Arc::new(Semaphore::new(MAX_STREAMS));
        Self { link, resolver, open: Arc::default(), budget: Arc::default(), tls, streams }
    }

    /// By which TLS to servers is begun.
    pub(super) fn tls(&self) -> &ServerTls {
        &self.tls
    }

    /// Waits for the place of a request of HTTP/2, beyond that of its connection. `None`: never.
    pub(super) async fn stream_place(&self) -> Option<OwnedSemaphorePermit> {
        self.streams.clone().acquire_owned().await.ok()
    }

    /// Makes a connection, or says why there is none. `program` is watched while a person is asked; `None`: it is watched elsewhere.
    pub(super) async fn connect(
        &self,
        mut attempt: Attempt,
        program: Waiting<'_>,
    ) -> Result<Upstream, Refusal> {
        let host = About::Host(AboutHost { bytes_left: self.budget.left() });
        let (addresses, destination) = match self.ask(&attempt, host, program).await? {
            // An address is dialled when it was judged.
            Verdict::Dial(_) => return Err(unavailable()),
            Verdict::Denied(denied) => return Err(refusal(denied)),
            Verdict::Resolve(Resolve { approval }) => {
                take_approval(&mut attempt, approval);
                self.addresses(&attempt).await?
            }
            Verdict::Ports(_) | Verdict::Waiting(_) | Verdict::Bytes(_) => return Err(unavailable()),
        };
        let asked = addresses.iter().map(|address| Address {
            address: address.to_string(),
            is_hosts_own: is_hosts_own(*address, destination.port),
        });
        let about = About::Addresses(AboutAddresses { addresses: asked.collect() });
        let answer = self.link.ask(&attempt, about, program).await.map_err(|_| unavailable())?;
        match answer.verdict {
            Verdict::Dial(dial) => self.dial(attempt, dial, answer.report).await,
            Verdict::Denied(denied) => Err(refusal(denied)),
            Verdict::Resolve(_) | Verdict::Ports(_) | Verdict::Waiting(_) | Verdict::Bytes(_) => {
                Err(unavailable())
            }
        }
    }

    /// Asks about a unix socket of the host, which the gateway connects to.
    pub(super) async fn connect_socket(
        &self,
        attempt: Attempt,
        program: &UnixStream,
    ) -> Result<Upstream, Refusal> {
        let about = About::Host(AboutHost { bytes_left: self.budget.left() });
        let asked = self.link.ask(&attempt, about, Waiting::Unix(program)).await;
        let Answer { verdict, sockets, report } = asked.map_err(|_| unavailable())?;
        let dial = match verdict {
            Verdict::Dial(dial) if dial.is_connected => dial,
            Verdict::Denied(denied) => return Err(refusal(denied)),
            Verdict::Resolve(_)
            | Verdict::Dial(_)
            | Verdict::Ports(_)
            | Verdict::Waiting(_)
            | Verdict::Bytes(_) => return Err(unavailable()),
        };
        let connected = sockets.into_iter().next().map(std::os::unix::net::UnixStream::from);
        let mut report = report.ok_or_else(unavailable)?;
        let Some(stream) = connected.and_then(|socket| UnixStream::from_std(socket).ok()) else {
            report.failed("the connection cannot be used");
            return Err(unavailable());
        };
        let mut attempt = attempt;
        take_approval(&mut attempt, dial.approval);
        if dial.is_counted {
            self.budget.reopen();
        }
        let open = self.open.add(attempt.clone(), dial.connection_id.clone(), None);
        self.link.opened_under(dial.generation);
        let allowed =
            Allowed { attempt, connection_id: dial.connection_id, any_protocol: true, requests_only: false };
        report.begun();
        let budget = dial.is_counted.then(|| self.budget.clone());
        Ok(Upstream::new(Carrier::Unix(stream), allowed, report, open, budget, TlsParts::default()))
    }

    /// Asks what a name may be used for. Nothing of it leaves the host.
    pub(super) async fn name(&self, attempt: &Attempt, open_ports: Vec<u32>) -> NameVerdict {
        let about = About::Name(AboutName { open_ports });
        let Ok(answer) = self.link.ask(attempt, about, Waiting::Elsewhere).await else {
            return NameVerdict::Unavailable;
        };
        match answer.verdict {
            Verdict::Ports(ports) => {
                let ports = ports.ports.into_iter().filter_map(|port| u16::try_from(port).ok()).collect();
                NameVerdict::Ports(ports, answer.sockets)
            }
            Verdict::Denied(denied) if denied.rule == UNAVAILABLE => NameVerdict::Unavailable,
            Verdict::Denied(_) => NameVerdict::Denied,
            Verdict::Resolve(_) | Verdict::Dial(_) | Verdict::Waiting(_) | Verdict::Bytes(_) => {
                NameVerdict::Unavailable
            }
        }
    }

    /// Asks for more bytes whenever they run low, for as long as the process runs.
    pub(super) async fn keep_budget(&self) {
        loop {
            self.budget.wait_low().await;
            match self.ask(&Attempt::default(), About::Bytes(AboutBytes {}), Waiting::Elsewhere).await {
                Ok(Verdict::Bytes(bytes)) => self.budget.add(bytes.count),
                Ok(_) | Err(_) => self.budget.exhaust(),
            }
        }
    }

    /// Asks about each open connection whenever another policy is in force, for as long as the process runs.
    pub(super) async fn reevaluate(&self) {
        loop {
            self.link.wait_reevaluate().await;
            for open in self.open.list() {
                let address = open.address.map(|address| {
                    let port = u16::try_from(open.attempt.port);
                    let is_hosts_own = port.is_ok_and(|port| is_hosts_own(address, port));
                    Address { address: address.to_string(), is_hosts_own }
                });
                let about = About::Open(AboutOpen { connection_id: open.connection_id.clone(), address });
                match self.ask(&open.attempt, about, Waiting::Elsewhere).await {
                    Ok(Verdict::Resolve(_)) => {}
                    Ok(Verdict::Denied(Denied { rule, reason })) => {
                        open.close(format!("closed by rule {rule:?}: {reason}"));
                    }
                    Ok(_) | Err(_) => open.close("closed: the gateway does not answer".to_owned()),
                }
            }
        }
    }

    /// Reports that a program speaks of another host than was allowed. Resolves when the journal has it.
    pub(super) async fn disagree(&self, allowed: &Allowed, found: String) -> Refusal {
        let disagreement = Disagreement { found, connection_id: allowed.connection_id.clone() };
        match self.ask(&allowed.attempt, About::Disagreement(disagreement), Waiting::Elsewhere).await {
            Ok(Verdict::Denied(denied)) => refusal(denied),
            Ok(
                Verdict::Resolve(_)
                | Verdict::Dial(_)
                | Verdict::Ports(_)
                | Verdict::Waiting(_)
                | Verdict::Bytes(_),
            ) => unavailable(),
            Err(refusal) => refusal,
        }
    }

    /// Reports a request that names no host, or two. Resolves when the journal has it.
    pub(super) async fn refuse_request(&self, attempt: &Attempt, problem: String) {
        // It is refused whatever the gateway says.
        let _ = self.ask(attempt, About::BadRequest(BadRequest { problem }), Waiting::Elsewhere).await;
    }

    async fn ask(&self, attempt: &Attempt, about: About, program: Waiting<'_>) -> Result<Verdict, Refusal> {
        self.link.ask(attempt, about, program).await.map(|answer| answer.verdict).map_err(|_| unavailable())
    }

    async fn addresses(&self, attempt: &Attempt) -> Result<(Vec<IpAddr>, Destination), Refusal> {
        let host = Host::parse(&attempt.host).map_err(|_| unavailable())?;
        let port = u16::try_from(attempt.port).map_err(|_| unavailable())?;
        let addresses = match &host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => match self.resolver.resolve(name).await {
                Ok(addresses) if !addresses.is_empty() => addresses,
                Ok(_) => return Err(self.unresolved(attempt, ResolveError::NoSuchName)),
                Err(error) => return Err(self.unresolved(attempt, error)),
            },
        };
        Ok((addresses, Destination { host, port }))
    }

    /// A name that was allowed has no address, and that is reported.
    fn unresolved(&self, attempt: &Attempt, error: ResolveError) -> Refusal {
        drop(self.link.end_report(attempt.clone(), String::new(), &error.to_string()));
        Refusal::Failed(error.to_string())
    }

    async fn dial(
        &self,
        mut attempt: Attempt,
        dial: Dial,
        report: Option<EndReport>,
    ) -> Result<Upstream, Refusal> {
        let mut report = report.ok_or_else(unavailable)?;
        let port = u16::try_from(attempt.port).map_err(|_| unavailable())?;
        let Dial {
            addresses,
            connection_id,
            any_protocol,
            approval,
            is_counted,
            generation,
            requests_only,
            ..
        } = dial;
        let mut tls = TlsParts {
            certificate: dial.opens_tls,
            headers: dial.headers,
            trusted_roots: dial.trusted_roots,
        };
        take_approval(&mut attempt, approval);
        let allowed = Allowed { attempt, connection_id, any_protocol, requests_only };
        if is_counted {
            self.budget.reopen();
        }
        let mut failure = "it has no address".to_owned();
        for address in addresses.iter().filter_map(|text| text.parse::<IpAddr>().ok()).take(MAX_DIALS) {
            match timeout(DIAL_TIMEOUT, TcpStream::connect(SocketAddr::new(address, port))).await {
                Ok(Ok(stream)) => {
                    report.begun();
                    // Small messages must not wait for each other.
                    let _ = stream.set_nodelay(true);
                    let Allowed { attempt, connection_id, .. } = allowed.clone();
                    let open = self.open.add(attempt, connection_id, Some(address));
                    self.link.opened_under(generation);
                    let budget = is_counted.then(|| self.budget.clone());
                    return Ok(Upstream::new(
                        Carrier::Tcp(stream),
                        allowed,
                        report,
                        open,
                        budget,
                        std::mem::take(&mut tls),
                    ));
                }
                Ok(Err(error)) => failure = format!("{address}: {error}"),
                Err(_) => failure = format!("{address}: no answer within {} s", DIAL_TIMEOUT.as_secs()),
            }
        }
        report.failed(&failure);
        Err(Refusal::Failed(failure))
    }
}

fn refusal(Denied { rule, reason }: Denied) -> Refusal {
    Refusal::Denied { rule, reason }
}

fn unavailable() -> Refusal {
    Refusal::Denied { rule: UNAVAILABLE.to_owned(), reason: "the gateway does not answer".to_owned() }
}

/// Whether what is sent to an address stays on this host: then the kernel chooses that address as the sender's, too. Sends nothing.
fn is_hosts_own(address: IpAddr, port: u16) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let chosen = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, port))?;
        socket.local_addr()
    });
    // What cannot be reached is no own address.
    chosen.is_ok_and(|chosen| chosen.ip() == address)
}
