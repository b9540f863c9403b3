//! Pseudo-terminals of commands: opens one in the sandbox's own devpts, connects it, resizes it, and types its end of file.
//!
//! Policy and bounds are the gateway's; the number of pseudo-terminals is bounded by the devpts.

use std::os::fd::AsFd;

use nix::{errno::Errno, sys::epoll::EpollFlags};

use super::{
    command::{ParsedSpawn, window_size},
    slot_map::{EventSource, SlotKey},
    state::Runtime,
    stdin_pipe::CommandStdin,
    terminal::{OutputStream, PipeState, TerminalPty},
};
use crate::{
    proto::supervisor::{Resize, Spawn},
    supervisor::ready::CommandIdentity,
    sys::{
        pty::{self, PtyOwner, PtyPair, WindowSize},
        ring::RingWriter,
    },
};

impl Runtime {
    pub(super) fn open_pty(&self, size: WindowSize) -> Result<TerminalPty, Errno> {
        let PtyPair { master, slave } = pty::open_pair(size, self.pty_owner())?;
        Ok(TerminalPty { master: Some(master), slave: Some(slave), size })
    }

    /// Whose the pseudo-terminals and the commands are.
    pub(super) fn pty_owner(&self) -> PtyOwner {
        match self.identity {
            CommandIdentity::Keep => PtyOwner::Own,
            CommandIdentity::Change { uid, gid } => PtyOwner::Other { uid, gid },
        }
    }

    /// The ends of a pseudo-terminal for output and input, each with a copy of the master.
    pub(super) fn connect_pty(
        &self,
        key: SlotKey,
        pty: &TerminalPty,
        request: &Spawn,
        parsed: &ParsedSpawn,
    ) -> Result<(OutputStream, CommandStdin), Errno> {
        let master = pty.master.as_ref().ok_or(Errno::EBADF)?;
        let copy = || master.try_clone().map_err(|_| Errno::EMFILE);
        let ring = RingWriter::create(parsed.layout, parsed.when_full)?;
        let output = copy()?;
        self.epoll.add(&output, EventSource::Output(key, 0), EpollFlags::EPOLLIN)?;
        let stdin = if request.open_stdin { CommandStdin::open(copy()?) } else { CommandStdin::Closed };
        Ok((OutputStream { ring, flow: PipeState::Reading(output) }, stdin))
    }

    /// The leader has exited, and the kernel has hung up its terminal: the output ends when the last process has closed it.
    pub(super) fn release_pty(&mut self, key: SlotKey) {
        if let Some(pty) = self.terminals.get_mut(key).and_then(|terminal| terminal.pty.as_mut()) {
            pty.slave = None;
        }
    }

    pub(super) fn resize(&mut self, request: &Resize) -> Result<(), Errno> {
        let size = window_size(request.size.ok_or(Errno::EINVAL)?)?;
        let key = self.key_of(&request.terminal_id)?;
        let terminal = self.terminals.get_mut(key).ok_or(Errno::ENOENT)?;
        let pty = terminal.pty.as_mut().ok_or(Errno::ENOTTY)?;
        let master = pty.master.as_ref().ok_or(Errno::ESRCH)?;
        pty::set_size(master.as_fd(), size)?;
        pty.size = size;
        Ok(())
    }
}

impl TerminalPty {
    /// What to type for the end of a file: after the beginning of a line the first character only ends that line.
    pub(super) fn end_of_file(&self, is_line_begun: bool) -> Result<Vec<u8>, Errno> {
        let master = self.master.as_ref().ok_or(Errno::EPIPE)?;
        let end = pty::end_of_file(master.as_fd())?;
        let times = if is_line_begun && end.ends_line { 2 } else { 1 };
        Ok(end.character.map(|character| vec![character; times]).unwrap_or_default())
    }
}
