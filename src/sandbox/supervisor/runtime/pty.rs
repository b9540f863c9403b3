//! Pseudo-terminals of commands: opens one in the sandbox's own devpts, connects it, resizes it, types its end of file, says what runs in its
//! foreground and whether that waits for input, and signals it.
//!
//! Policy and bounds are the gateway's; the number of pseudo-terminals is bounded by the devpts. What runs is asked of the kernel, never of
//! the output. What the kernel does not say counts as no.

use std::{
    fs,
    os::{fd::AsFd, unix::fs::MetadataExt},
};

use nix::{
    errno::Errno,
    sys::{epoll::EpollFlags, stat::fstat},
};

use super::{
    Runtime,
    poll::{EventSource, SlotKey},
    spawn::{make_ring, window_size},
    stdin::CommandStdin,
    terminal::{OutputStream, PipeState, SupervisedTerminal, TerminalPhase, TerminalPty},
};
use crate::{
    proto::supervisor::{Foreground, Resize, SignalForeground, Spawn},
    supervisor::ready::CommandIdentity,
    sys::pty::{self, PtyOwner, PtyPair, WindowSize},
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
    ) -> Result<(OutputStream, CommandStdin), Errno> {
        let master = pty.master.as_ref().ok_or(Errno::EBADF)?;
        let copy = || master.try_clone().map_err(|_| Errno::EMFILE);
        let ring = make_ring(request)?;
        let output = copy()?;
        self.epoll.add(&output, EventSource::Output(key, 0), EpollFlags::EPOLLIN)?;
        let stdin = if request.open_stdin { CommandStdin::open(copy()?) } else { CommandStdin::Closed };
        Ok((OutputStream { ring, flow: PipeState::Reading(output) }, stdin))
    }

    /// The main process has exited, and the kernel has hung up its terminal: the output ends when the last process has closed it.
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

/// Processes of a terminal that are looked at.
const MAX_PROCESSES: usize = 256;
/// The device of /dev/tty, by which a process names its controlling terminal (tty(4)).
const DEV_TTY: u64 = nix::sys::stat::makedev(5, 0);

impl Runtime {
    pub(super) fn foreground(&self, id: &str) -> Result<Foreground, Errno> {
        let terminal = self.terminals.get(self.key_of(id)?).ok_or(Errno::ENOENT)?;
        let pty = terminal.pty.as_ref().ok_or(Errno::ENOTTY)?;
        if !matches!(terminal.phase, TerminalPhase::Running) {
            return Err(Errno::ESRCH);
        }
        let (Some(master), Some(slave)) = (&pty.master, &pty.slave) else { return Err(Errno::ESRCH) };
        let group = pty::foreground_group(master.as_fd())?;
        let device = fstat(slave)?.st_rdev;
        let is_leader = group == terminal.pid;
        let takes_keys = !pty::edits_lines(slave.as_fd())?;
        let processes = self.foreground_candidates(terminal);
        // This /proc shows a process to its own user only (`hidepid`, proc(5)).
        let (is_reading, leader_name) = pty::with_ids_of(self.pty_owner(), || {
            let is_in_group = |pid: i32| Stat::read(pid).is_some_and(|stat| stat.group == group);
            let is_reading = processes.iter().any(|pid| is_in_group(*pid) && reads_terminal(*pid, device))
                || (is_leader && takes_keys && awaits_terminal(terminal.pid, device));
            Ok((is_reading, Stat::read(terminal.pid).map(|stat| stat.name).unwrap_or_default()))
        })?;
        Ok(Foreground { errno: 0, is_leader, is_reading, leader_name, takes_keys })
    }

    pub(super) fn signal_foreground(&self, request: &SignalForeground) -> Result<(), Errno> {
        let terminal = self.terminals.get(self.key_of(&request.terminal_id)?).ok_or(Errno::ENOENT)?;
        let pty = terminal.pty.as_ref().ok_or(Errno::ENOTTY)?;
        let master = pty.master.as_ref().ok_or(Errno::ESRCH)?;
        pty::signal_foreground(master.as_fd(), request.signal)
    }

    /// The main process first.
    fn foreground_candidates(&self, terminal: &SupervisedTerminal) -> Vec<i32> {
        let mut processes = vec![terminal.pid];
        match &terminal.leaf {
            Some(leaf) => processes.extend(self.leaves.processes(leaf, MAX_PROCESSES).unwrap_or_default()),
            // Its sandbox is its own.
            None => {
                let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
                let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
                processes.extend(pids.take(MAX_PROCESSES));
            }
        }
        processes
    }
}

/// A part of proc_pid_stat(5).
struct Stat {
    name: String,
    group: i32,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

    /// `PID (NAME) STATE PPID PGRP ...`; the name may hold anything.
    fn parse(text: &str) -> Option<Self> {
        let (begin, end) = (text.find('(')?, text.rfind(')')?);
        let group = text.get(end + 1..)?.split_whitespace().nth(2)?.parse().ok()?;
        Some(Self { name: text.get(begin + 1..end)?.to_owned(), group })
    }
}

/// Whether a process's first thread waits in a read of this terminal, or in a select(2) on nothing but its standard input
/// (proc_pid_syscall(5)).
fn reads_terminal(pid: i32, device: u64) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    read_descriptor(&text).is_some_and(|descriptor| is_terminal(pid, descriptor, device))
}

/// Whether a process's first thread waits for several descriptors at once, and its standard input is this terminal. The kernel does not say
/// which descriptors: for a shell with an editor of its own (fish), which reads keys, it is its input.
fn awaits_terminal(pid: i32, device: u64) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    awaits_descriptors(&text) && is_terminal(pid, 0, device)
}

fn is_terminal(pid: i32, descriptor: u64, device: u64) -> bool {
    let held = fs::metadata(format!("/proc/{pid}/fd/{descriptor}")).map(|held| held.rdev());
    held.is_ok_and(|held| held == device || held == DEV_TTY)
}

/// The descriptor that a system call waits for, if it waits to read one.
fn read_descriptor(text: &str) -> Option<u64> {
    let mut words = text.split_whitespace();
    let number: libc::c_long = words.next()?.parse().ok()?;
    let first = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    match number {
        libc::SYS_read | libc::SYS_readv => Some(first),
        // Its first argument is one more than the highest descriptor.
        libc::SYS_pselect6 if first == 1 => Some(0),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_select if first == 1 => Some(0),
        _ => None,
    }
}

/// Whether a system call waits for descriptors. Without any it is a sleep.
fn awaits_descriptors(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let number = words.next().and_then(|word| word.parse::<libc::c_long>().ok());
    let mut argument = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (first, second) = (argument(), argument());
    let count = match number {
        Some(libc::SYS_ppoll) => second,
        #[cfg(target_arch = "x86_64")]
        Some(libc::SYS_poll) => second,
        Some(libc::SYS_pselect6) => first,
        #[cfg(target_arch = "x86_64")]
        Some(libc::SYS_select) => first,
        _ => None,
    };
    count.is_some_and(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_brackets_hides_no_field() {
        let stat = Stat::parse("7 (a) b (c) S 1 42 7 34816 42 4194304").unwrap();
        assert_eq!((stat.name.as_str(), stat.group), ("a) b (c", 42));
        assert!(Stat::parse("7 (a").is_none());
        assert!(Stat::parse("7 (a) S 1").is_none());
    }

    #[test]
    fn a_process_that_reads_is_known_by_its_system_call() {
        let call =
            |number: libc::c_long, first: &str| format!("{number} {first} 0x1 0x2 0x0 0x0 0x0 0x7f 0x7f");
        assert_eq!(read_descriptor(&call(libc::SYS_read, "0x3")), Some(3));
        assert_eq!(read_descriptor(&call(libc::SYS_pselect6, "0x1")), Some(0));
        assert_eq!(read_descriptor(&call(libc::SYS_pselect6, "0x4")), None);
        assert_eq!(read_descriptor(&call(libc::SYS_write, "0x0")), None);
        assert_eq!(read_descriptor("running"), None);
        assert_eq!(read_descriptor("-1 0x7ffd 0x7f"), None);
    }

    #[test]
    fn a_process_that_waits_for_several_descriptors_is_known_by_their_number() {
        let call =
            |number: libc::c_long, first: &str, second: &str| format!("{number} {first} {second} 0x0 0x7f");
        assert!(awaits_descriptors(&call(libc::SYS_ppoll, "0x7ffd", "0x3")));
        assert!(awaits_descriptors(&call(libc::SYS_pselect6, "0x6", "0x7ffd")));
        for other in [
            call(libc::SYS_ppoll, "0x0", "0x0"),
            call(libc::SYS_pselect6, "0x0", "0x7ffd"),
            call(libc::SYS_wait4, "0x1", "0x1"),
            "running".into(),
            "-1 0x7ffd 0x7f".into(),
        ] {
            assert!(!awaits_descriptors(&other), "{other}");
        }
    }
}
