//! Listens for the sandbox's programs: for those that speak to a proxy, and for those that ask for names.

use std::{
    convert::Infallible,
    io,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use base64::Engine as _;
use hyper::{Method, Request, Response, StatusCode, body::Incoming, header::PROXY_AUTHORIZATION};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream, UdpSocket, UnixListener},
    sync::Semaphore,
};

use super::{
    accept::{Pace, accept},
    confine::{Confined, ResolverSockets},
    connector::{Connector, attempt},
    http::{self, Body, Origin, Tunnel},
    limits::ACCEPTS_PER_S,
    link::GatewayLink,
    names::Names,
    program::{ProgramEnd, Waiting},
    resolver::Resolver,
    socks, target,
    tls::ServerTls,
    tunnel, unix, websocket,
};
use crate::{
    network::{destination::Destination, http_request::Scheme},
    proto::net::{Protocol, Ready},
    wire::net::MAX_CONNECTIONS,
};

/// The longest claim about a terminal.
const MAX_TERMINAL_BYTES: usize = 64;

/// Serves until the gateway closes the socket.
///
/// # Errors
/// When the descriptors that the gateway sent cannot be used.
pub(super) async fn serve(confined: Confined) -> io::Result<()> {
    let Confined { socket, http, socks, resolver, unix, setup, landlock_abi } = confined;
    let (link, verdicts) = GatewayLink::start(socket, Ready { landlock_abi })?;
    let connector =
        Arc::new(Connector::new(link, Resolver::new(&setup), ServerTls::new(&setup.trusted_roots)?));
    let shared = connector.clone();
    tokio::spawn(async move { tokio::join!(shared.keep_budget(), shared.reevaluate()) });
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let shared = connector.clone();
    let serve_http = move |program| serve_http(shared.clone(), program);
    tokio::spawn(accept(TcpListener::from_std(http)?, places.clone(), Pace::new(ACCEPTS_PER_S), serve_http));
    let shared = connector.clone();
    let serve_socks = move |program| socks::serve(shared.clone(), program);
    tokio::spawn(accept(
        TcpListener::from_std(socks)?,
        places.clone(),
        Pace::new(ACCEPTS_PER_S),
        serve_socks,
    ));
    for (path, listener) in unix {
        let (listener, shared) = (UnixListener::from_std(listener)?, connector.clone());
        let serve = move |program| unix::serve(shared.clone(), program, path.clone());
        tokio::spawn(accept(listener, places.clone(), Pace::new(ACCEPTS_PER_S), serve));
    }
    if let Some(ResolverSockets { udp, tcp }) = resolver {
        let udp = UdpSocket::from_std(udp)?;
        let sandbox = match udp.local_addr()?.ip() {
            IpAddr::V4(address) => address,
            IpAddr::V6(_) => Ipv4Addr::LOCALHOST,
        };
        let names = Names::new(connector, places.clone(), sandbox);
        tokio::spawn(names.clone().answer_datagrams(udp));
        let answer = move |program| names.clone().answer_stream(program);
        tokio::spawn(accept(TcpListener::from_std(tcp)?, places, Pace::new(ACCEPTS_PER_S), answer));
    }
    verdicts.receive().await;
    Ok(())
}

/// Serves a program that speaks to the HTTP proxy. A tunnel is part of its connection.
async fn serve_http(connector: Arc<Connector>, program: TcpStream) {
    let (handover, mut tunnels) = tokio::sync::mpsc::channel(1);
    let (upgrades, mut upgraded) = tokio::sync::mpsc::channel(1);
    let end = ProgramEnd::of_tcp(&program);
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        let (connector, end) = (connector.clone(), end.clone());
        let (handover, upgrades) = (handover.clone(), upgrades.clone());
        async move { Ok::<_, Infallible>(respond(&connector, &end, request, handover, upgrades).await) }
    });
    let served = http::server().serve_connection(TokioIo::new(program), service).with_upgrades().await;
    drop((handover, upgrades));
    if let Some(upgrade) = upgraded.recv().await {
        return websocket::carry(upgrade).await;
    }
    if served.is_ok()
        && let Some(tunnel) = tunnels.recv().await
    {
        let OpenTunnel { upgrade, upstream, tunnel } = *tunnel;
        if let Ok(stream) = upgrade.await {
            tunnel::carry(&connector, TokioIo::new(stream), upstream, tunnel).await;
        }
    }
}

/// A tunnel that was answered with 200.
struct OpenTunnel {
    upgrade: hyper::upgrade::OnUpgrade,
    upstream: super::outcome::Upstream,
    tunnel: Tunnel,
}

async fn respond(
    connector: &Arc<Connector>,
    program: &ProgramEnd,
    mut request: Request<Incoming>,
    handover: tokio::sync::mpsc::Sender<Box<OpenTunnel>>,
    upgrades: tokio::sync::mpsc::Sender<websocket::Upgrade>,
) -> Response<Body> {
    let program = program.claiming(claimed_terminal(&request));
    if request.method() != Method::CONNECT {
        let target = target::of_proxied(&request);
        let origin = Origin {
            protocol: Protocol::Http,
            program,
            approval: String::new(),
            scheme: Scheme::Http,
            upgrades,
        };
        return http::forward(connector, request, target, origin).await;
    }
    let text = request.uri().authority().map(ToString::to_string).unwrap_or_default();
    let destination = match Destination::parse(&text) {
        Ok(destination) => destination,
        // The gateway writes it down.
        Err(error) => {
            let (host, port) = text.rsplit_once(':').unwrap_or((&text, "0"));
            let wanted = attempt(host.as_bytes(), port.parse().unwrap_or(0), Protocol::Connect, &program);
            let _ = connector.connect(wanted, Waiting::Elsewhere).await;
            return http::error_response(StatusCode::BAD_REQUEST, "network.name", &error.to_string());
        }
    };
    let host = destination.host.to_string();
    let wanted = attempt(host.as_bytes(), destination.port, Protocol::Connect, &program);
    // hyper drops this when the program has gone.
    match connector.connect(wanted, Waiting::Elsewhere).await {
        Err(refusal) => http::refused(&destination, &refusal),
        Ok(upstream) => {
            let tunnel =
                Tunnel { destination, protocol: Protocol::Connect, program, approval: String::new() };
            let open = OpenTunnel { upgrade: hyper::upgrade::on(&mut request), upstream, tunnel };
            // There is one place, and one CONNECT ends the requests of a connection.
            // A channel has room for many, and all but one are never used.
            match handover.try_send(Box::new(open)) {
                Ok(()) => Response::new(http::empty()),
                Err(_) => {
                    http::error_response(StatusCode::BAD_REQUEST, "network.request", "one CONNECT at a time")
                }
            }
        }
    }
}

/// The user of the proxy's address, which the gateway has set for the command.
fn claimed_terminal(request: &Request<Incoming>) -> String {
    let encoded = request.headers().get(PROXY_AUTHORIZATION).and_then(|value| value.to_str().ok());
    let decoded = encoded
        .and_then(|value| value.strip_prefix("Basic "))
        .and_then(|value| base64::engine::general_purpose::STANDARD.decode(value).ok())
        .and_then(|bytes| String::from_utf8(bytes).ok());
    let user = decoded.as_deref().and_then(|login| login.split(':').next()).unwrap_or_default();
    if user.len() <= MAX_TERMINAL_BYTES { user.to_owned() } else { String::new() }
}
