//! The resolver of a sandbox: answers questions for names that some rule could allow, with an address that stands for the name.
//!
//! It asks the gateway and nobody else: nothing of a question leaves the host. A name that was answered has listeners, on its own address
//! and at the ports that rules name.

use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, SocketAddrV4},
    os::fd::OwnedFd,
    sync::Arc,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream, UdpSocket},
    sync::{Mutex, Semaphore},
    task::AbortHandle,
    time::timeout,
};

use super::{
    accept::{Pace, accept},
    connector::{Connector, NameVerdict, attempt},
    limits::{
        ACCEPTS_PER_S, FIRST_BYTES_TIMEOUT, MAX_ADDRESSES_TRIED, MAX_NAME_LISTENERS, MAX_NAMES,
        MAX_QUESTIONS, QUESTIONS_PER_S,
    },
    program::ProgramEnd,
    transparent,
};
use crate::{
    network::{
        address,
        destination::{Destination, Host},
        dns::{self, NameQuestion, QuestionError, QuestionType, Reply},
        name::HostName,
    },
    proto::net::Protocol,
};

const MAX_DATAGRAM_BYTES: usize = 1_232;
/// The kernel makes it as long as it allows.
const BACKLOG: u32 = 4_096;

/// The resolver.
#[derive(Debug)]
pub(super) struct Names {
    connector: Arc<Connector>,
    places: Arc<Semaphore>,
    questions: Arc<Semaphore>,
    pace: Pace,
    accepts: Pace,
    /// The sandbox's address on its loopback.
    sandbox: Ipv4Addr,
    /// Held while one question is answered: two for the same name would be in each other's way.
    table: Mutex<Table>,
}

impl Names {
    pub(super) fn new(connector: Arc<Connector>, places: Arc<Semaphore>, sandbox: Ipv4Addr) -> Arc<Self> {
        Arc::new(Self {
            connector,
            places,
            questions: Arc::new(Semaphore::new(MAX_QUESTIONS)),
            pace: Pace::new(QUESTIONS_PER_S),
            accepts: Pace::new(ACCEPTS_PER_S),
            sandbox,
            table: Mutex::default(),
        })
    }

    /// Answers by UDP for as long as the process runs.
    pub(super) async fn answer_datagrams(self: Arc<Self>, socket: UdpSocket) {
        let socket = Arc::new(socket);
        let mut bytes = vec![0; MAX_DATAGRAM_BYTES];
        loop {
            // Closed never.
            let Ok(place) = self.questions.clone().acquire_owned().await else { return };
            // An error is about a program that has gone.
            let Ok((count, program)) = socket.recv_from(&mut bytes).await else { continue };
            let question = bytes.get(..count).unwrap_or_default().to_vec();
            let (names, socket) = (self.clone(), socket.clone());
            tokio::spawn(async move {
                if let Some(answer) = names.answer(&question).await {
                    let _ = socket.send_to(&answer, program).await;
                }
                drop(place);
            });
            self.pace.wait().await;
        }
    }

    /// Answers by TCP until the program says nothing any more.
    pub(super) async fn answer_stream(self: Arc<Self>, mut program: TcpStream) {
        while let Ok(Ok(question)) = timeout(FIRST_BYTES_TIMEOUT, read_message(&mut program)).await {
            self.pace.wait().await;
            let Some(answer) = self.answer(&question).await else { return };
            let Ok(length) = u16::try_from(answer.len()) else { return };
            let message = [&length.to_be_bytes()[..], &answer].concat();
            if !matches!(timeout(FIRST_BYTES_TIMEOUT, program.write_all(&message)).await, Ok(Ok(()))) {
                return;
            }
        }
    }

    async fn answer(self: &Arc<Self>, bytes: &[u8]) -> Option<Vec<u8>> {
        let question = match dns::read_question(bytes) {
            Ok(question) => question,
            Err(QuestionError::Unreadable(answer)) => return Some(answer),
            Err(QuestionError::NoQuestion) => return None,
        };
        let reply = match question.kind {
            QuestionType::A => self.address(&question).await,
            // Programs ask for both, and take what there is.
            QuestionType::Aaaa => Reply::Nothing,
            QuestionType::Other => Reply::Refused,
        };
        Some(question.reply(reply))
    }

    async fn address(self: &Arc<Self>, question: &NameQuestion) -> Reply {
        let mut table = self.table.lock().await;
        let name = HostName::parse(&question.name).ok();
        let open_ports = name.as_ref().map(|name| table.open_ports(name)).unwrap_or_default();
        let asked = attempt(question.name.as_bytes(), 0, Protocol::Dns, &ProgramEnd::default());
        match (self.connector.name(&asked, open_ports).await, name) {
            (NameVerdict::Ports(ports, sockets), Some(name)) => {
                let address = table.open(self, name, &ports, sockets);
                address.map_or(Reply::Failed, Reply::Address)
            }
            (NameVerdict::Denied, name) => {
                if let Some(name) = name {
                    table.close(&name);
                }
                Reply::NoSuchName
            }
            (NameVerdict::Unavailable, _) | (NameVerdict::Ports(..), None) => Reply::Failed,
        }
    }

    /// Accepts connections to a name at one port.
    fn accept(&self, listener: TcpListener, destination: Destination) -> AbortHandle {
        let connector = self.connector.clone();
        let serve = move |program| transparent::serve(connector.clone(), program, destination.clone());
        let task = tokio::spawn(accept(listener, self.places.clone(), self.accepts.clone(), serve));
        task.abort_handle()
    }
}

async fn read_message(program: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::from(program.read_u16().await?)];
    program.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// The names that have an address.
#[derive(Debug, Default)]
struct Table {
    names: HashMap<HostName, NamedAddress>,
    asked: u64,
}

#[derive(Debug)]
struct NamedAddress {
    address: Ipv4Addr,
    listeners: HashMap<u16, AbortHandle>,
    last_asked: u64,
}

impl Drop for NamedAddress {
    fn drop(&mut self) {
        // Connections that were accepted go on.
        self.listeners.values().for_each(AbortHandle::abort);
    }
}

impl Table {
    fn open_ports(&self, name: &HostName) -> Vec<u32> {
        let known = self.names.get(name);
        known.map(|known| known.listeners.keys().map(|port| u32::from(*port)).collect()).unwrap_or_default()
    }

    fn close(&mut self, name: &HostName) {
        self.names.remove(name);
    }

    /// The address of a name that has listeners at these ports and at no others. `None`: something else listens everywhere.
    fn open(
        &mut self,
        names: &Names,
        name: HostName,
        ports: &[u16],
        sockets: Vec<OwnedFd>,
    ) -> Option<Ipv4Addr> {
        self.asked += 1;
        if let Some(known) = self.names.get_mut(&name) {
            known.last_asked = self.asked;
            known.listeners.retain(|port, task| {
                ports.contains(port) || {
                    task.abort();
                    false
                }
            });
        }
        let open = self.open_ports(&name);
        let mut missing: Vec<(u16, OwnedFd)> =
            ports.iter().copied().filter(|port| !open.contains(&u32::from(*port))).zip(sockets).collect();
        self.make_room(&name, missing.len());
        let known = self.names.get(&name).map(|known| known.address);
        let candidates = known.into_iter().chain(
            address::synthetic_candidates(&name, names.sandbox)
                .filter(|address| self.names.values().all(|known| known.address != *address))
                .take(if known.is_some() { 0 } else { MAX_ADDRESSES_TRIED }),
        );
        let candidates: Vec<Ipv4Addr> = candidates.collect();
        for address in candidates {
            let mut listeners = HashMap::new();
            for (port, socket) in std::mem::take(&mut missing) {
                let destination = Destination { host: Host::Name(name.clone()), port };
                match bind_to(&socket, SocketAddrV4::new(address, port)) {
                    Ok(listener) => drop(listeners.insert(port, names.accept(listener, destination))),
                    // A command listens there, or everywhere at this port.
                    Err(_) => missing.push((port, socket)),
                }
            }
            if listeners.is_empty() && known.is_none() {
                continue;
            }
            let last_asked = self.asked;
            let entry = self.names.entry(name.clone());
            let named =
                entry.or_insert_with(|| NamedAddress { address, listeners: HashMap::new(), last_asked });
            named.listeners.extend(listeners);
            return (!named.listeners.is_empty()).then_some(address);
        }
        None
    }

    /// Closes the names that were asked for the longest ago, but for this one.
    fn make_room(&mut self, name: &HostName, listeners: usize) {
        loop {
            let open: usize = self.names.values().map(|known| known.listeners.len()).sum();
            let is_new = usize::from(!self.names.contains_key(name));
            if self.names.len() + is_new <= MAX_NAMES && open + listeners <= MAX_NAME_LISTENERS {
                return;
            }
            let others = self.names.iter().filter(|(other, _)| *other != name);
            let oldest = others.min_by_key(|(_, known)| known.last_asked).map(|(other, _)| other.clone());
            match oldest {
                Some(oldest) => self.close(&oldest),
                None => return,
            }
        }
    }
}

/// Listens with a socket whose network is the sandbox's: every port of it may be bound.
fn bind_to(socket: &OwnedFd, address: SocketAddrV4) -> io::Result<TcpListener> {
    let socket = TcpSocket::from_std_stream(socket.try_clone()?.into());
    // Connections of an earlier listener may still be in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address.into())?;
    socket.listen(BACKLOG)
}
