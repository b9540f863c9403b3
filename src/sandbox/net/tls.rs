//! TLS that is opened: ended here with a certificate that the gateway has made for the one host, and begun again to the server, which
//! is verified as the host's own programs verify it. No key that signs is here.

use std::{io, sync::Arc};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};
use tokio_rustls::{
    TlsAcceptor, TlsConnector, client,
    rustls::{
        ClientConfig, RootCertStore, ServerConfig,
        crypto::{CryptoProvider, ring},
        pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName},
        server::NoServerSessionStorage,
    },
    server,
};

use super::{
    limits::{DIAL_TIMEOUT, FIRST_BYTES_TIMEOUT},
    outcome::Upstream,
};
use crate::{network::name::HostName, proto::net::ServerCertificate};

const HTTP_1: &[u8] = b"http/1.1";
const HTTP_2: &[u8] = b"h2";

/// The version of HTTP that both ends of TLS have agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HttpVersion {
    One,
    Two,
}

/// Begins TLS to servers.
#[derive(Debug)]
pub(super) struct ServerTls {
    /// Offering HTTP/1.1, and this or HTTP/2.
    one: Arc<ClientConfig>,
    either: Arc<ClientConfig>,
}

impl ServerTls {
    /// By which roots (DER) servers are verified. What is no certificate is left out; with none, no server is verified.
    pub(super) fn new(roots: &[Bytes]) -> io::Result<Self> {
        let offering = |version| client_config(roots, version).map(Arc::new);
        Ok(Self { one: offering(HttpVersion::One)?, either: offering(HttpVersion::Two)? })
    }

    /// Begins TLS to a server, for its name. `offered`: the highest version that the request can be sent in. The end of the connection says
    /// why there is none. `own_roots`: verified by these alone, if there are any.
    pub(super) async fn connect(
        &self,
        upstream: Upstream,
        name: &HostName,
        offered: HttpVersion,
        own_roots: &[Bytes],
    ) -> io::Result<(client::TlsStream<Upstream>, HttpVersion)> {
        let config = match (own_roots, offered) {
            ([], HttpVersion::One) => self.one.clone(),
            ([], HttpVersion::Two) => self.either.clone(),
            (own_roots, offered) => Arc::new(client_config(own_roots, offered)?),
        };
        let name = ServerName::try_from(name.as_str().to_owned()).map_err(io::Error::other)?;
        let begun = TlsConnector::from(config).connect(name, upstream).into_fallible();
        let stream = match timeout(DIAL_TIMEOUT, begun).await.map_err(|_| io::ErrorKind::TimedOut)? {
            Ok(stream) => stream,
            Err((error, mut upstream)) => {
                upstream.fail(&format!("TLS to the server: {error}"));
                return Err(error);
            }
        };
        let version = version(stream.get_ref().1.alpn_protocol());
        Ok((stream, version))
    }
}

/// By these roots (DER), offering HTTP/1.1, and HTTP/2 where that is the highest.
fn client_config(roots: &[Bytes], highest: HttpVersion) -> io::Result<ClientConfig> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(roots.iter().map(|root| CertificateDer::from(root.as_ref())));
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(store)
        .with_no_client_auth();
    config.alpn_protocols = match highest {
        HttpVersion::One => vec![HTTP_1.to_vec()],
        HttpVersion::Two => vec![HTTP_2.to_vec(), HTTP_1.to_vec()],
    };
    Ok(config)
}

/// Ends the TLS of a program that asks for this name.
pub(super) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    name: &HostName,
    certificate: ServerCertificate,
) -> io::Result<(server::TlsStream<S>, HttpVersion)> {
    let ServerCertificate { certificate, key } = certificate;
    let chain = vec![CertificateDer::from(certificate.to_vec())];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.to_vec()));
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(io::Error::other)?;
    config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1.to_vec()];
    // Each connection has its own certificate, so that none is resumed.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    let accepted = TlsAcceptor::from(Arc::new(config)).accept(stream);
    let stream = timeout(FIRST_BYTES_TIMEOUT, accepted).await.map_err(|_| io::ErrorKind::TimedOut)??;
    let connection = stream.get_ref().1;
    // A program that is asked for its first message again could name another host in it.
    if connection.server_name() != Some(name.as_str()) {
        return Err(io::Error::other("TLS asks for another host than at first"));
    }
    let version = version(connection.alpn_protocol());
    Ok((stream, version))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn version(protocol: Option<&[u8]>) -> HttpVersion {
    match protocol {
        Some(HTTP_2) => HttpVersion::Two,
        _ => HttpVersion::One,
    }
}
