//! HTTP on a loopback address, for processes of this user: what `provost mcp --http` and `provost exec-server --listen` have in common.
//!
//! A listener takes in connections of this user's processes alone, as many at once as it has places. A token and the names of the address
//! tell what a request may do; each front end asks them, because each has its own place for a token. A page in a browser that was led here
//! by another name is refused.
//!
//! Whose process is at the other end of a connection is what /proc/net/tcp says. Another uid is refused even with the right token. What is
//! not found there is refused, too, and so is a connection whose other end nobody holds any more: the kernel says that such a socket is
//! root's.

#![forbid(unsafe_code)]

use std::{
    convert::Infallible,
    fmt, fs,
    future::Future,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::fs::MetadataExt,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, WWW_AUTHENTICATE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use sha2::{Digest, Sha256};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::sleep,
};
use tokio_util::task::TaskTracker;

/// Connections at once that speak HTTP. Further ones wait to be taken in.
pub const CONNECTIONS_MAX: usize = 64;
/// How long the head of a request may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// How long nobody is taken in after the system has refused a connection.
const ACCEPT_ERROR_PAUSE: Duration = Duration::from_millis(200);
/// The shortest token that is taken, in characters: 128 bits in base64.
pub const TOKEN_MIN_CHARACTERS: usize = 22;
/// The longest token, in characters.
pub const TOKEN_MAX_CHARACTERS: usize = 512;

/// Why nothing listens.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is not on the loopback, so that others could reach it.
    #[error("{0} is not a loopback address")]
    NotLoopback(IpAddr),
    /// The address cannot be had.
    #[error("cannot listen on {address}")]
    Listen {
        /// Which one.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Bound, and not yet served.
#[derive(Debug)]
pub struct LocalListener {
    listener: TcpListener,
    address: LocalAddress,
}

impl LocalListener {
    /// Takes the address, which must be on the loopback. Port 0: any that is free.
    ///
    /// # Errors
    /// [`ListenError`]: nothing listens.
    pub async fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        if !address.ip().is_loopback() {
            return Err(ListenError::NotLoopback(address.ip()));
        }
        let bound = TcpListener::bind(address).await;
        let bound = bound.and_then(|listener| listener.local_addr().map(|address| (listener, address)));
        let (listener, address) = bound.map_err(|source| ListenError::Listen { address, source })?;
        Ok(Self { listener, address: LocalAddress(address) })
    }

    /// Where it listens.
    pub fn address(&self) -> LocalAddress {
        self.address
    }

    /// Answers the requests of this user's connections, each connection in a task of `connections`. Never ends.
    pub async fn serve<F, R>(&self, connections: &TaskTracker, answer: F) -> Infallible
    where
        F: Fn(Request<Incoming>) -> R + Clone + Send + 'static,
        R: Future<Output = Response<Body>> + Send + 'static,
    {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
            match self.listener.accept().await {
                Ok((stream, peer)) => match is_same_user(self.address.0, peer) {
                    Ok(true) => drop(connections.spawn(converse(stream, answer.clone(), place))),
                    Ok(false) => tracing::warn!(%peer, "a connection of another user was refused"),
                    Err(error) => {
                        tracing::warn!(%peer, %error, "a connection was refused: its user is not known")
                    }
                },
                Err(error) => {
                    tracing::warn!(%error, "a connection was not taken");
                    sleep(ACCEPT_ERROR_PAUSE).await;
                }
            }
        }
    }
}

/// Answers the requests of one connection, until it ends or becomes another protocol's.
async fn converse<F, R>(stream: TcpStream, answer: F, place: OwnedSemaphorePermit)
where
    F: Fn(Request<Incoming>) -> R + Send + 'static,
    R: Future<Output = Response<Body>> + Send + 'static,
{
    let answer = service_fn(move |request| {
        let answered = answer(request);
        async move { Ok::<_, Infallible>(answered.await) }
    });
    // An answer and the ping behind it are two small pieces: the second one would wait for the client's kernel.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::info!(%error, "what is sent may come late");
    }
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), answer)
        .with_upgrades()
        .await;
    if let Err(error) = served {
        tracing::info!(%error, "a connection has failed");
    }
    drop(place);
}

/// The body of an answer.
pub type Body = BoxBody<Bytes, Infallible>;

/// An answer that is a sentence.
pub fn text(status: StatusCode, message: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from_static(message.as_bytes())).boxed());
    *response.status_mut() = status;
    response
}

/// The answer to a request without the token.
pub fn unauthorized() -> Response<Body> {
    let mut refused = text(StatusCode::UNAUTHORIZED, "the token is missing or wrong\n");
    refused.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    refused
}

/// An address that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalAddress(SocketAddr);

impl LocalAddress {
    /// Where it is.
    pub fn socket(self) -> SocketAddr {
        self.0
    }

    /// What `Host` may be.
    pub fn hosts(self) -> [String; 2] {
        [self.0.to_string(), format!("localhost:{}", self.0.port())]
    }

    /// What `Origin` may be, if there is one.
    pub fn origins(self) -> [String; 2] {
        self.hosts().map(|host| format!("http://{host}"))
    }

    /// Whether a request with these headers means this address and comes from no other origin.
    ///
    /// # Errors
    /// The status and the sentence to refuse it with.
    pub fn admits(self, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
        match only(headers, &HOST) {
            Ok(Some(host)) if self.hosts().iter().any(|own| own.eq_ignore_ascii_case(host)) => {}
            _ => return Err((StatusCode::MISDIRECTED_REQUEST, "the host is not this address\n")),
        }
        match only(headers, &ORIGIN) {
            Ok(None) => Ok(()),
            Ok(Some(origin)) if self.origins().iter().any(|own| own == origin) => Ok(()),
            _ => Err((StatusCode::FORBIDDEN, "the origin is not this address\n")),
        }
    }
}

/// The one value of a header; an error if there are several, or one that is no text.
pub(crate) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| ()),
        (Some(_), Some(_)) => Err(()),
    }
}

/// A secret that clients have to bring. It is compared in the same time whatever it is compared with, and never shown.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl Token {
    /// From its text: letters, digits and `-._~+/=`, as RFC 6750 has them. `None`: it is another text, or too short or too long.
    pub fn parse(text: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        let is_token = (TOKEN_MIN_CHARACTERS..=TOKEN_MAX_CHARACTERS).contains(&text.len());
        (is_token && text.bytes().all(is_plain)).then(|| Self(Sha256::digest(text).into()))
    }

    /// Whether this is it. The digests are compared: how far they agree says nothing of the token.
    pub fn is(&self, given: &str) -> bool {
        let given: [u8; 32] = Sha256::digest(given).into();
        given.iter().zip(&self.0).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }

    /// Whether these headers bring it, and nothing else in its place: `Authorization: Bearer TOKEN`.
    pub fn is_in(&self, headers: &HeaderMap) -> bool {
        only(headers, &AUTHORIZATION)
            .unwrap_or_default()
            .and_then(|value| value.split_once(' '))
            .is_some_and(|(scheme, token)| scheme.eq_ignore_ascii_case("bearer") && self.is(token.trim()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// A socket as the table has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Holder {
    uid: u32,
    inode: u64,
}

/// Whether the process at `peer`, which has connected to `own`, runs under the uid of this one.
///
/// # Errors
/// When the kernel's table cannot be read, or has no connection that a process holds.
fn is_same_user(own: SocketAddr, peer: SocketAddr) -> io::Result<bool> {
    // Whose /proc/self is is the effective user.
    let user = fs::metadata("/proc/self")?.uid();
    let look = || -> io::Result<Option<Holder>> {
        let table = if own.is_ipv4() { "/proc/net/tcp" } else { "/proc/net/tcp6" };
        let known = holder_of(&fs::read_to_string(table)?, peer, own);
        match (mapped(peer), mapped(own)) {
            // A client's socket for both versions of the protocol is in the other table.
            (Some(peer), Some(own)) if known.is_none() => {
                Ok(fs::read_to_string("/proc/net/tcp6").ok().and_then(|table| holder_of(&table, peer, own)))
            }
            _ => Ok(known),
        }
    };
    match look()? {
        Some(Holder { uid, .. }) if uid != user => Ok(false),
        // The socket can be closed between the kernel's looks at its inode and at its uid. It was held then if it is held now.
        Some(holder) if look()? == Some(holder) => Ok(true),
        Some(_) | None => Err(io::Error::new(io::ErrorKind::NotFound, "no process holds its other end")),
    }
}

/// An IPv4 address as an IPv6 socket has it.
fn mapped(address: SocketAddr) -> Option<SocketAddr> {
    match address.ip() {
        IpAddr::V4(ip) => Some(SocketAddr::new(ip.to_ipv6_mapped().into(), address.port())),
        IpAddr::V6(_) => None,
    }
}

/// Who holds the socket with these local and remote addresses. A socket that was closed has no inode.
fn holder_of(table: &str, local: SocketAddr, remote: SocketAddr) -> Option<Holder> {
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let is_it = address(fields.next()?)? == local && address(fields.next()?)? == remote;
        // State, queues, timer, retransmits; then the uid, the unanswered probes and the inode.
        let uid = fields.nth(4).filter(|_| is_it)?.parse().ok()?;
        let inode = fields.nth(1)?.parse().ok()?;
        (inode != 0).then_some(Holder { uid, inode })
    })
}

/// An address as the table has it: words of 32 bits in this machine's order, in hexadecimal.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_mut(4).enumerate() {
                part.copy_from_slice(&word(at)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_request_names_this_address_once_and_comes_from_no_other_page() {
        let address = LocalAddress("127.0.0.1:7322".parse().unwrap());
        let admits = |pairs: &[(&HeaderName, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, value.parse().unwrap());
            }
            address.admits(&headers).map_err(|(status, _)| status.as_u16())
        };
        assert_eq!(admits(&[(&HOST, "127.0.0.1:7322")]), Ok(()));
        assert_eq!(admits(&[(&HOST, "LocalHost:7322"), (&ORIGIN, "http://localhost:7322")]), Ok(()));
        assert_eq!(admits(&[]), Err(421));
        assert_eq!(admits(&[(&HOST, "127.0.0.1")]), Err(421));
        assert_eq!(admits(&[(&HOST, "attacker.example:7322")]), Err(421));
        assert_eq!(admits(&[(&HOST, "127.0.0.1:7322"), (&HOST, "127.0.0.1:7322")]), Err(421));
        for origin in ["null", "https://attacker.example", "http://127.0.0.1:1", "ws://127.0.0.1:7322"] {
            assert_eq!(admits(&[(&HOST, "127.0.0.1:7322"), (&ORIGIN, origin)]), Err(403), "{origin}");
        }
    }

    #[test]
    fn a_token_is_only_itself() {
        let text = "abcdefghijklmnopqrstuvwxyz-012345";
        let token = Token::parse(text).unwrap();
        assert!(token.is(text) && !token.is(&text[1..]) && !token.is("") && !token.is(&text.to_uppercase()));
        assert!(Token::parse("short").is_none() && Token::parse(&text.replace('-', " ")).is_none());
        assert_eq!(format!("{token:?}"), "Token");
    }

    #[test]
    fn a_connection_of_this_process_is_this_users() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(host) else {
                println!("SKIPPED: this host has no {host}");
                continue;
            };
            let own = listener.local_addr().unwrap();
            let client = TcpStream::connect(own).unwrap();
            assert!(is_same_user(own, client.local_addr().unwrap()).unwrap());
            let nobodys = SocketAddr::new(own.ip(), 1);
            assert!(is_same_user(own, nobodys).is_err());
        }
    }

    #[test]
    fn a_connection_by_a_socket_of_both_versions_is_this_users() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        let Ok(client) = TcpStream::connect(mapped(own).unwrap()) else {
            println!("SKIPPED: this host has no IPv6");
            return;
        };
        let peer = SocketAddr::new(own.ip(), client.local_addr().unwrap().port());
        assert!(is_same_user(own, peer).unwrap());
        drop(client);
        assert!(is_same_user(own, peer).is_err());
    }

    #[test]
    fn a_connection_that_its_client_has_closed_is_nobodys() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        let client = TcpStream::connect(own).unwrap();
        let peer = client.local_addr().unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(is_same_user(own, peer).unwrap(), "it still reads");
        drop(client);
        assert!(is_same_user(own, peer).is_err());
    }

    #[test]
    fn the_holder_is_that_of_the_clients_socket_and_not_of_the_servers() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                     0: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 1 1\n   \
                     1: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 2 1\n   \
                     2: 0100007F:9C41 0100007F:1F90 05 00000000:00000000 00:00000000 00000000     0        0 0 1\n";
        let server = "127.0.0.1:8080".parse().unwrap();
        let of = |local, remote| holder_of(table, local, remote);
        let (client, gone) = ("127.0.0.1:40000".parse().unwrap(), "127.0.0.1:40001".parse().unwrap());
        if cfg!(target_endian = "little") {
            assert_eq!(of(client, server), Some(Holder { uid: 1000, inode: 2 }));
            assert_eq!(of(server, client), Some(Holder { uid: 0, inode: 1 }));
            assert_eq!(of(gone, server), None);
        }
    }
}
