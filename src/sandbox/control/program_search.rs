//! Which programs have a connection of a sandbox: the files of all processes in it that hold the socket, as the kernel says when it is
//! asked. They serve to restrict and never to grant: a socket can be handed on afterwards.
//!
//! Connections that are asked about at the same time are looked for together: a sandbox can have a thousand.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fs, io,
    net::SocketAddrV4,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use crate::{cgroup::directory, policy::connect::ConnectingProgram, proto::net::Attempt};

/// The most processes and sockets that are looked at; with more it is not known.
const MAX_PROCESSES: usize = 512;
const MAX_DESCRIPTORS: usize = 16_384;

/// The state of an established connection in /proc/net/tcp: proc_net_tcp(5).
const ESTABLISHED: &str = "01";

/// What is looked for.
#[derive(Debug, Clone, Copy)]
enum Connection {
    /// The program's end, and the listener's.
    Tcp(SocketAddrV4, SocketAddrV4),
    /// The process that has connected to a unix socket.
    Unix(u32),
}

/// It cannot be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NotKnown;

impl From<io::Error> for NotKnown {
    fn from(_: io::Error) -> Self {
        Self
    }
}

/// The connections of a sandbox that are looked for.
#[derive(Debug, Default)]
pub(super) struct ProgramSearch(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    connections: Vec<(Connection, oneshot::Sender<ConnectingProgram>)>,
    /// A thread looks, and will look for these next.
    is_running: bool,
}

impl ProgramSearch {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The programs that have the connection of an attempt, of the processes in this cgroup but for the supervisor.
    pub(super) async fn find(
        self: &Arc<Self>,
        attempt: &Attempt,
        cgroup: &Path,
        supervisor: u32,
    ) -> ConnectingProgram {
        let Some(connection) = connection(attempt) else { return ConnectingProgram::Unknown };
        let (answer, answered) = oneshot::channel();
        let was_running = {
            let mut waiting = self.lock();
            waiting.connections.push((connection, answer));
            std::mem::replace(&mut waiting.is_running, true)
        };
        if !was_running {
            let (search, cgroup) = (self.clone(), cgroup.to_owned());
            tokio::task::spawn_blocking(move || search.run(&cgroup, supervisor));
        }
        answered.await.unwrap_or(ConnectingProgram::Unknown)
    }

    /// Looks for all that wait, until none do. Each is looked for after it has begun to wait.
    fn run(&self, cgroup: &Path, supervisor: u32) {
        loop {
            let waiting = {
                let mut waiting = self.lock();
                if waiting.connections.is_empty() {
                    waiting.is_running = false;
                    return;
                }
                std::mem::take(&mut waiting.connections)
            };
            let seen = Seen::look(cgroup, supervisor);
            for (connection, answer) in waiting {
                let found = seen.as_ref().map_err(|error| *error).and_then(|seen| seen.programs(connection));
                let program = match found {
                    Ok(programs) if !programs.is_empty() => ConnectingProgram::Known(programs),
                    Ok(_) | Err(NotKnown) => ConnectingProgram::Unknown,
                };
                // The net process that has asked may be gone.
                let _ = answer.send(program);
            }
        }
    }
}

fn connection(attempt: &Attempt) -> Option<Connection> {
    if attempt.peer_pid != 0 {
        return Some(Connection::Unix(attempt.peer_pid));
    }
    Some(Connection::Tcp(attempt.program_end.parse().ok()?, attempt.listener_end.parse().ok()?))
}

/// The processes and connections of a sandbox at one time.
struct Seen {
    /// By process: the inodes of its sockets.
    sockets: HashMap<u32, HashSet<u64>>,
    /// The inodes of TCP sockets, by both ends as the kernel writes them.
    connections: HashMap<(String, String), u64>,
}

impl Seen {
    fn look(cgroup: &Path, supervisor: u32) -> Result<Self, NotKnown> {
        let connections = connections(&fs::read_to_string(format!("/proc/{supervisor}/net/tcp"))?);
        let mut seen = Self { sockets: HashMap::new(), connections };
        let mut count = 0;
        for pid in processes(cgroup)?.into_iter().filter(|pid| *pid != supervisor) {
            match sockets(pid) {
                Ok(sockets) => {
                    count += sockets.len();
                    if count > MAX_DESCRIPTORS {
                        return Err(NotKnown);
                    }
                    seen.sockets.insert(pid, sockets);
                }
                // It has ended.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) => return Err(NotKnown),
            }
        }
        Ok(seen)
    }

    fn programs(&self, connection: Connection) -> Result<Vec<String>, NotKnown> {
        let own: HashSet<u64>;
        let wanted = match connection {
            Connection::Tcp(program, listener) => {
                let inode = self.connections.get(&(hexadecimal(program), hexadecimal(listener)));
                own = HashSet::from([*inode.ok_or(NotKnown)?]);
                &own
            }
            // Its number is another process's if that is not the sandbox's.
            Connection::Unix(peer) => self.sockets.get(&peer).ok_or(NotKnown)?,
        };
        let mut programs = BTreeSet::new();
        for (pid, sockets) in &self.sockets {
            if !sockets.is_disjoint(wanted) {
                let file: PathBuf = fs::read_link(format!("/proc/{pid}/exe"))?;
                programs.insert(file.into_os_string().into_string().map_err(|_| NotKnown)?);
            }
        }
        Ok(programs.into_iter().collect())
    }
}

/// All processes in a cgroup and below it.
fn processes(cgroup: &Path) -> Result<Vec<u32>, NotKnown> {
    let mut found = Vec::new();
    let mut directories = vec![cgroup.to_owned()];
    while let Some(directory) = directories.pop() {
        found.extend(directory::processes(&directory).map_err(|_| NotKnown)?);
        if found.len() > MAX_PROCESSES {
            return Err(NotKnown);
        }
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                directories.push(entry.path());
            }
        }
    }
    Ok(found)
}

/// The inodes of a process's sockets.
fn sockets(pid: u32) -> io::Result<HashSet<u64>> {
    let mut found = HashSet::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // A descriptor that is closed meanwhile is none.
        let Ok(target) = fs::read_link(entry?.path()) else { continue };
        let text = target.to_string_lossy();
        let number = text.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        found.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    Ok(found)
}

/// The inodes of the established connections of a table, by both ends.
fn connections(table: &str) -> HashMap<(String, String), u64> {
    let connection = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ends = ((*words.get(1)?).to_owned(), (*words.get(2)?).to_owned());
        (words.get(3) == Some(&ESTABLISHED)).then_some((ends, words.get(9)?.parse().ok()?))
    };
    table.lines().skip(1).filter_map(connection).collect()
}

/// An end as the kernel writes it.
fn hexadecimal(end: SocketAddrV4) -> String {
    format!("{:08X}:{:04X}", u32::from_ne_bytes(end.ip().octets()), end.port())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_holder_of_a_connection_is_found_by_its_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let end = |address: std::net::SocketAddr| match address {
            std::net::SocketAddr::V4(four) => four,
            std::net::SocketAddr::V6(_) => unreachable!("it is bound to IPv4"),
        };
        let (own, other) = (end(client.local_addr().unwrap()), end(client.peer_addr().unwrap()));
        let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
        let connections = connections(&table);
        let inode = connections[&(hexadecimal(own), hexadecimal(other))];
        assert!(sockets(std::process::id()).unwrap().contains(&inode));
        // The listener's end is another socket.
        assert_ne!(connections.get(&(hexadecimal(other), hexadecimal(own))), Some(&inode));
        drop(client);
    }
}
