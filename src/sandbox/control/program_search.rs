//! Which programs have a connection of a sandbox: the files of all processes in it that hold the socket, as the kernel says when it is
//! asked. They serve to restrict and never to grant: a socket can be handed on afterwards.
//!
//! Connections that are asked about at the same time are looked for together: a sandbox can have a thousand.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fs, io,
    net::SocketAddrV4,
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use crate::{
    cgroup::directory::{self, CgroupError},
    policy::connect::ConnectingProgram,
    proto::net::Attempt,
    sys::{descriptor_table, sock_diag, unix_peer},
};

/// The most processes and descriptors that are looked at; with more it is not known.
const MAX_PROCESSES: usize = 512;
const MAX_DESCRIPTORS: usize = 16_384;

/// What is looked for.
#[derive(Debug, Clone, Copy)]
enum Connection {
    /// The program's end, and the listener's.
    Tcp(SocketAddrV4, SocketAddrV4),
    /// The inode of the end of a unix socket that was accepted.
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
    /// Finds sockets of the sandbox's network.
    diag: Option<Arc<OwnedFd>>,
    /// Of the last question to it.
    number: u32,
}

impl ProgramSearch {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds sockets by this one of sock_diag(7) from now on. Without one no program is known.
    pub(super) fn use_diag(&self, diag: Option<OwnedFd>) {
        self.lock().diag = diag.map(Arc::new);
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

    /// The inode of the program's end of a connection. One thread asks at a time, and the kernel answers at once.
    fn socket(&self, connection: Connection) -> Result<u64, NotKnown> {
        let (diag, number) = {
            let mut waiting = self.lock();
            waiting.number = waiting.number.wrapping_add(1);
            (waiting.diag.clone().ok_or(NotKnown)?, waiting.number)
        };
        let found = match connection {
            Connection::Tcp(program, listener) => sock_diag::find(diag.as_fd(), number, program, listener),
            // The process that has connected may have handed the socket on since: the kernel knows the socket itself.
            Connection::Unix(accepted) => {
                unix_peer::peer_inode(diag.as_fd(), number, accepted).map(|peer| peer.map(u64::from))
            }
        };
        found.ok().flatten().ok_or(NotKnown)
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
                let found = seen
                    .as_ref()
                    .map_err(|error| *error)
                    .and_then(|seen| seen.programs(self.socket(connection)?));
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
    if attempt.socket_inode != 0 {
        return Some(Connection::Unix(attempt.socket_inode));
    }
    Some(Connection::Tcp(attempt.program_end.parse().ok()?, attempt.listener_end.parse().ok()?))
}

/// The processes of a sandbox at one time.
struct Seen {
    /// By process: the inodes of its sockets.
    sockets: HashMap<u32, HashSet<u64>>,
}

impl Seen {
    fn look(cgroup: &Path, supervisor: u32) -> Result<Self, NotKnown> {
        let mut seen = Self { sockets: HashMap::new() };
        let mut left = MAX_DESCRIPTORS;
        for pid in processes(cgroup)?.into_iter().filter(|pid| *pid != supervisor) {
            match sockets(pid, &mut left) {
                Ok(Some(sockets)) => drop(seen.sockets.insert(pid, sockets)),
                Ok(None) => return Err(NotKnown),
                // It has ended.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) => return Err(NotKnown),
            }
        }
        Ok(seen)
    }

    /// The files of the processes that hold the socket of this inode.
    fn programs(&self, wanted: u64) -> Result<Vec<String>, NotKnown> {
        let mut programs = BTreeSet::new();
        for (pid, sockets) in &self.sockets {
            if sockets.contains(&wanted) {
                let file: PathBuf = fs::read_link(format!("/proc/{pid}/exe"))?;
                programs.insert(file.into_os_string().into_string().map_err(|_| NotKnown)?);
            }
        }
        Ok(programs.into_iter().collect())
    }
}

/// All processes in a cgroup and below it. One below it may be removed meanwhile, with the end of its command: no process is in it then.
fn processes(cgroup: &Path) -> Result<Vec<u32>, NotKnown> {
    let mut found = Vec::new();
    let mut directories = vec![cgroup.to_owned()];
    while let Some(directory) = directories.pop() {
        match processes_in(&directory, &mut directories) {
            Ok(processes) => found.extend(processes),
            Err(error) if directory != cgroup && is_removed(&error) => {}
            Err(_) => return Err(NotKnown),
        }
        if found.len() > MAX_PROCESSES {
            return Err(NotKnown);
        }
    }
    Ok(found)
}

fn processes_in(directory: &Path, below: &mut Vec<PathBuf>) -> io::Result<Vec<u32>> {
    let found = directory::processes(directory).map_err(|error| match error {
        CgroupError::Open { cause, .. } => cause,
        other => io::Error::other(other),
    })?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            below.push(entry.path());
        }
    }
    Ok(found)
}

/// A file of a removed cgroup that is still open says `ENODEV`.
fn is_removed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

/// The inodes of a process's sockets; `None` if it has more descriptors, of whatever kind, than are left to be looked at. A thread can
/// have descriptors that the others do not have: unshare(2).
fn sockets(pid: u32, left: &mut usize) -> io::Result<Option<HashSet<u64>>> {
    let mut found = HashSet::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let thread = thread?;
        let number = thread.file_name().to_str().and_then(|name| name.parse().ok());
        if number.is_some_and(|thread| thread != pid && descriptor_table::is_shared(pid, thread)) {
            continue;
        }
        match add_sockets(&thread.path().join("fd"), left, &mut found) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            // It has ended, and its process may not have.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(found))
}

/// Whether all of them could be looked at.
fn add_sockets(descriptors: &Path, left: &mut usize, found: &mut HashSet<u64>) -> io::Result<bool> {
    for entry in fs::read_dir(descriptors)? {
        let Some(fewer) = left.checked_sub(1) else { return Ok(false) };
        *left = fewer;
        // A descriptor that is closed meanwhile is none.
        let Ok(target) = fs::read_link(entry?.path()) else { continue };
        let text = target.to_string_lossy();
        let number = text.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        found.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_of_every_kind_count_and_more_than_may_be_looked_at_are_not() {
        let own = std::process::id();
        let mut left = MAX_DESCRIPTORS;
        assert!(sockets(own, &mut left).unwrap().is_some());
        assert!(left < MAX_DESCRIPTORS);
        // Standard input, output and error are no sockets and are looked at.
        assert_eq!(sockets(own, &mut 2).unwrap(), None);
    }
}
