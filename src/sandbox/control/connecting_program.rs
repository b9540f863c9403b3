//! Which programs have a connection of a sandbox: the files of all processes in it that hold the socket, as the kernel says when it is
//! asked. They serve to restrict and never to grant: a socket can be handed on afterwards.

use std::{
    collections::{BTreeSet, HashSet},
    fs, io,
    net::SocketAddrV4,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
};

use super::handle::Sandbox;
use crate::{cgroup::directory, policy::connect::ConnectingProgram, proto::net::Attempt, sys::process};

/// The most processes and descriptors that are looked at; with more it is not known.
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
#[derive(Debug)]
struct NotKnown;

impl From<io::Error> for NotKnown {
    fn from(_: io::Error) -> Self {
        Self
    }
}

impl Sandbox {
    /// The programs that have the connection of an attempt.
    pub(super) async fn find_program(&self, attempt: &Attempt) -> ConnectingProgram {
        let Some(connection) = connection(attempt) else { return ConnectingProgram::Unknown };
        let Some(cgroup) = self.cgroup.path().map(Path::to_owned) else { return ConnectingProgram::Unknown };
        let Ok(supervisor) = process::pid_of(self.supervisor.get_ref().as_fd()) else {
            return ConnectingProgram::Unknown;
        };
        let found = tokio::task::spawn_blocking(move || find(connection, &cgroup, supervisor)).await;
        match found {
            Ok(Ok(programs)) if !programs.is_empty() => ConnectingProgram::Known(programs),
            Ok(Ok(_) | Err(NotKnown)) | Err(_) => ConnectingProgram::Unknown,
        }
    }
}

fn connection(attempt: &Attempt) -> Option<Connection> {
    if attempt.peer_pid != 0 {
        return Some(Connection::Unix(attempt.peer_pid));
    }
    Some(Connection::Tcp(attempt.program_end.parse().ok()?, attempt.listener_end.parse().ok()?))
}

fn find(connection: Connection, cgroup: &Path, supervisor: u32) -> Result<Vec<String>, NotKnown> {
    let processes: Vec<u32> = processes(cgroup)?.into_iter().filter(|pid| *pid != supervisor).collect();
    let wanted: HashSet<u64> = match connection {
        Connection::Tcp(program, listener) => {
            let table = fs::read_to_string(format!("/proc/{supervisor}/net/tcp"))?;
            HashSet::from([inode(&table, program, listener).ok_or(NotKnown)?])
        }
        // Its number is another process's if that is not the sandbox's.
        Connection::Unix(peer) if processes.contains(&peer) => sockets(peer)?.into_iter().collect(),
        Connection::Unix(_) => return Err(NotKnown),
    };
    let mut programs = BTreeSet::new();
    let mut looked_at = 0;
    for pid in processes {
        let sockets = match sockets(pid) {
            Ok(sockets) => sockets,
            // It has ended.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(_) => return Err(NotKnown),
        };
        looked_at += sockets.len();
        if looked_at > MAX_DESCRIPTORS {
            return Err(NotKnown);
        }
        if sockets.iter().any(|socket| wanted.contains(socket)) {
            let file: PathBuf = fs::read_link(format!("/proc/{pid}/exe"))?;
            programs.insert(file.into_os_string().into_string().map_err(|_| NotKnown)?);
        }
    }
    Ok(programs.into_iter().collect())
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
fn sockets(pid: u32) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // A descriptor that is closed meanwhile is none.
        let Ok(target) = fs::read_link(entry?.path()) else { continue };
        let text = target.to_string_lossy();
        let number = text.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        found.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    Ok(found)
}

/// The inode of the socket with these ends.
fn inode(table: &str, program: SocketAddrV4, listener: SocketAddrV4) -> Option<u64> {
    let text =
        |end: SocketAddrV4| format!("{:08X}:{:04X}", u32::from_ne_bytes(end.ip().octets()), end.port());
    let (program, listener) = (text(program), text(listener));
    table.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_it = words.get(1) == Some(&program.as_str())
            && words.get(2) == Some(&listener.as_str())
            && words.get(3) == Some(&ESTABLISHED);
        if is_it { words.get(9)?.parse().ok() } else { None }
    })
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
        let inode = inode(&table, own, other).expect("it is established");
        assert!(sockets(std::process::id()).unwrap().contains(&inode));
        drop(client);
        assert_eq!(super::inode("", own, other), None);
    }
}
