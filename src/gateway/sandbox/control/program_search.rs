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
    time::Duration,
};

use tokio::sync::oneshot;

use super::connection_table::ConnectionTable;
use crate::{
    cgroup::directory::{self, CgroupError},
    policy::connect::ConnectingProgram,
    pool::{Pool, PoolError},
    proto::net::Attempt,
    sys::{ptrace, sock_diag, unix_peer},
};

/// The most processes and descriptors that one look is at; with more it is not known.
const MAX_PROCESSES: usize = 512;
const MAX_DESCRIPTORS: usize = 16_384;

/// How long a look may take, and how long one waits for those of the user's other sandboxes.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// The sandbox whose processes are looked at, and for whom.
#[derive(Debug, Clone)]
pub(super) struct SearchedSandbox {
    /// All its processes are in this cgroup.
    pub(super) cgroup: PathBuf,
    /// One of them, which is not looked at.
    pub(super) supervisor: u32,
    /// The user id of its principal.
    pub(super) uid: u32,
}

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
    connections: Batch,
    /// A look is under way, and the next one is for these.
    is_running: bool,
    /// A socket of sock_diag(7) of the sandbox's network.
    diag: Option<Arc<OwnedFd>>,
    /// The kernel finds TCP connections by it.
    finds_tcp: bool,
    /// The number of the last question to the kernel.
    number: u32,
}

/// Each is looked for after it has begun to wait. Who waits for one that is dropped is told that the program is not known.
type Batch = Vec<(Connection, oneshot::Sender<ConnectingProgram>)>;

impl ProgramSearch {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the kernel by this socket of sock_diag(7) from now on; without one the programs of unix sockets are not known. Where it does not
    /// find TCP connections, their table is read.
    pub(super) fn use_diag(&self, diag: Option<OwnedFd>, finds_tcp: bool) {
        let mut waiting = self.lock();
        (waiting.diag, waiting.finds_tcp) = (diag.map(Arc::new), finds_tcp);
    }

    /// The programs that have the connection of an attempt, of the sandbox's processes but for the supervisor.
    pub(super) async fn find(
        self: &Arc<Self>,
        attempt: &Attempt,
        sandbox: SearchedSandbox,
        looks: &Arc<Pool>,
    ) -> ConnectingProgram {
        let Some(connection) = connection(attempt) else { return ConnectingProgram::Unknown };
        let (answer, answered) = oneshot::channel();
        let was_running = {
            let mut waiting = self.lock();
            waiting.connections.push((connection, answer));
            std::mem::replace(&mut waiting.is_running, true)
        };
        if !was_running {
            // It serves others, too, when the one that asks here has gone.
            tokio::spawn(self.clone().run(sandbox, looks.clone()));
        }
        answered.await.unwrap_or(ConnectingProgram::Unknown)
    }

    /// Looks for all that wait, until none do. Between two looks another sandbox of the user has its turn.
    async fn run(self: Arc<Self>, sandbox: SearchedSandbox, looks: Arc<Pool>) {
        while let Some(batch) = self.next_batch() {
            let (search, sandbox, uid) = (self.clone(), sandbox.clone(), sandbox.uid);
            match looks.run(uid, LOOK_TIMEOUT, move || search.look(batch, &sandbox)).await {
                // What takes longer answers when it is done.
                Ok(()) | Err(PoolError::TimedOut(_)) => {}
                Err(error @ (PoolError::Busy(_) | PoolError::ThreadUnavailable)) => {
                    tracing::warn!(%error, "the programs of connections were not looked for");
                }
            }
        }
    }

    /// All that wait. `None`: none do, and the looking ends.
    fn next_batch(&self) -> Option<Batch> {
        let mut waiting = self.lock();
        let batch = std::mem::take(&mut waiting.connections);
        waiting.is_running = !batch.is_empty();
        waiting.is_running.then_some(batch)
    }

    fn look(&self, batch: Batch, sandbox: &SearchedSandbox) {
        let seen = Seen::look(sandbox);
        let sockets = self.sockets(sandbox, batch.iter().any(|(one, _)| matches!(one, Connection::Tcp(..))));
        for (connection, answer) in batch {
            let found = seen.as_ref().map_err(|error| *error);
            let program = match found.and_then(|seen| seen.programs(sockets.find(connection)?)) {
                Ok(programs) if !programs.is_empty() => ConnectingProgram::Known(programs),
                Ok(_) | Err(NotKnown) => ConnectingProgram::Unknown,
            };
            // The net process that has asked may be gone.
            let _ = answer.send(program);
        }
    }

    /// What finds the sockets of connections, of TCP if any are wanted.
    fn sockets(&self, sandbox: &SearchedSandbox, are_tcp_wanted: bool) -> Sockets<'_> {
        let (diag, finds_tcp) = {
            let waiting = self.lock();
            (waiting.diag.clone(), waiting.finds_tcp)
        };
        let is_listed = are_tcp_wanted && (diag.is_none() || !finds_tcp);
        let table = is_listed.then(|| ConnectionTable::of_process(sandbox.supervisor).ok().flatten());
        Sockets { search: self, diag, table }
    }

    fn next_number(&self) -> u32 {
        let mut waiting = self.lock();
        waiting.number = waiting.number.wrapping_add(1);
        waiting.number
    }
}

/// The sockets of connections, for one look.
struct Sockets<'a> {
    search: &'a ProgramSearch,
    diag: Option<Arc<OwnedFd>>,
    /// The table of TCP connections, where the kernel is not asked; within: `None`, it is too long.
    table: Option<Option<ConnectionTable>>,
}

impl Sockets<'_> {
    /// The inode of the program's end of a connection. One thread asks at a time, and the kernel answers at once.
    fn find(&self, connection: Connection) -> Result<u64, NotKnown> {
        let found = match (connection, &self.table, &self.diag) {
            (Connection::Tcp(program, listener), Some(table), _) => {
                table.as_ref().and_then(|table| table.find(program, listener))
            }
            (Connection::Tcp(program, listener), None, Some(diag)) => {
                sock_diag::find(diag.as_fd(), self.search.next_number(), program, listener).ok().flatten()
            }
            // The process that has connected may have handed the socket on since: the kernel knows the socket itself.
            (Connection::Unix(accepted), _, Some(diag)) => {
                let peer = unix_peer::peer_inode(diag.as_fd(), self.search.next_number(), accepted);
                peer.ok().flatten().map(u64::from)
            }
            (Connection::Tcp(..), None, None) | (Connection::Unix(_), _, None) => None,
        };
        found.ok_or(NotKnown)
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
    fn look(sandbox: &SearchedSandbox) -> Result<Self, NotKnown> {
        let mut seen = Self { sockets: HashMap::new() };
        let mut left = MAX_DESCRIPTORS;
        for pid in processes(&sandbox.cgroup)?.into_iter().filter(|pid| *pid != sandbox.supervisor) {
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

    /// The files of all processes that have this socket.
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
        if number.is_some_and(|thread| thread != pid && ptrace::share_descriptor_table(pid, thread)) {
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
