//! Finds the addresses of a name: in the table of hosts that the gateway sent, else by asking its name servers.
//!
//! Only names that the gateway allowed come here. Each question has a port and a number of its own.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket},
    time::timeout,
};

use super::limits::{MAX_NAMESERVERS, NAME_ATTEMPTS, NAME_TIMEOUT};
use crate::{
    network::{
        dns::{self, Answer, RecordType},
        name::HostName,
    },
    proto::net::{HostEntry, Setup},
    sys::random,
};

const DNS_PORT: u16 = 53;
const MAX_DATAGRAM_BYTES: usize = 4_096;

/// Why a name has no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ResolveError {
    /// The servers say so.
    #[error("there is no such name")]
    NoSuchName,
    /// No server has answered.
    #[error("no name server has answered")]
    NoAnswer,
}

/// The table, and the servers.
#[derive(Debug)]
pub(super) struct Resolver {
    hosts: HashMap<HostName, Vec<IpAddr>>,
    servers: Vec<SocketAddr>,
}

impl Resolver {
    /// What the gateway said. What cannot be read of it is left out.
    pub(super) fn new(setup: &Setup) -> Self {
        let mut hosts: HashMap<HostName, Vec<IpAddr>> = HashMap::new();
        for HostEntry { name, address } in &setup.hosts {
            if let (Ok(name), Ok(address)) = (HostName::parse(name), address.parse()) {
                hosts.entry(name).or_default().push(address);
            }
        }
        let server = |text: &String| {
            // "ADDRESS", or "ADDRESS:PORT" as a test's server has it.
            let address = text.parse::<IpAddr>().map(|address| SocketAddr::new(address, DNS_PORT));
            address.or_else(|_| text.parse::<SocketAddr>()).ok()
        };
        Self { hosts, servers: setup.nameservers.iter().filter_map(server).take(MAX_NAMESERVERS).collect() }
    }

    /// The addresses of a name, IPv4 first.
    pub(super) async fn resolve(&self, name: &HostName) -> Result<Vec<IpAddr>, ResolveError> {
        if let Some(addresses) = self.hosts.get(name) {
            return Ok(addresses.clone());
        }
        let (four, six) = tokio::join!(self.ask(name, RecordType::A), self.ask(name, RecordType::Aaaa));
        match (four, six) {
            (Ok(four), Ok(six)) => Ok(four.into_iter().chain(six).collect()),
            (Ok(addresses), Err(_)) | (Err(_), Ok(addresses)) if !addresses.is_empty() => Ok(addresses),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    async fn ask(&self, name: &HostName, record: RecordType) -> Result<Vec<IpAddr>, ResolveError> {
        for server in std::iter::repeat_n(&self.servers, NAME_ATTEMPTS).flatten() {
            match timeout(NAME_TIMEOUT, exchange(*server, name, record)).await {
                Ok(Ok(Answer::Addresses(addresses))) => return Ok(addresses),
                Ok(Ok(Answer::NoSuchName)) => return Err(ResolveError::NoSuchName),
                // Another server may know.
                Ok(Ok(Answer::Failed | Answer::Truncated) | Err(_)) | Err(_) => {}
            }
        }
        Err(ResolveError::NoAnswer)
    }
}

async fn exchange(server: SocketAddr, name: &HostName, record: RecordType) -> io::Result<Answer> {
    let number = u16::from_ne_bytes(random::bytes().map_err(io::Error::from)?);
    let question = dns::question(number, name, record);
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    // From then on only what the server sends is received.
    socket.connect(server).await?;
    socket.send(&question).await?;
    let mut bytes = vec![0; MAX_DATAGRAM_BYTES];
    loop {
        let count = socket.recv(&mut bytes).await?;
        match dns::answer(&question, bytes.get(..count).unwrap_or_default(), record) {
            Ok(Answer::Truncated) => return exchange_by_tcp(server, &question, record).await,
            Ok(answer) => return Ok(answer),
            Err(_) => {}
        }
    }
}

async fn exchange_by_tcp(server: SocketAddr, question: &[u8], record: RecordType) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_u16(question.len() as u16).await?;
    stream.write_all(question).await?;
    let mut bytes = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut bytes).await?;
    dns::answer(question, &bytes, record).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
