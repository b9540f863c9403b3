//! Pseudo-terminals (pty(7), ioctl_tty(2)): opens one of this process's own /dev, sets its size, reads its settings.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::{
    errno::Errno,
    fcntl::{OFlag, open},
    libc,
    sys::{
        stat::Mode,
        termios::{InputFlags, LocalFlags, SetArg, SpecialCharacterIndices, tcgetattr, tcsetattr},
    },
    unistd::{Gid, Uid, setfsgid, setfsuid, tcgetpgrp},
};

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize {
    /// Characters of a line.
    pub columns: u16,
    /// Lines.
    pub rows: u16,
}

/// Both ends of a pseudo-terminal, closed on exec.
#[derive(Debug)]
pub struct PtyPair {
    /// Reads what programs write, and types. Does not block.
    pub master: OwnedFd,
    /// What programs have as their terminal. Blocks.
    pub slave: OwnedFd,
}

/// Who owns the node `/dev/pts/N` of a pseudo-terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PtyOwner {
    /// This process.
    Own,
    /// These ids. Takes CAP_SETUID and CAP_SETGID, and one thread.
    Other {
        /// The user id.
        uid: u32,
        /// The group id.
        gid: u32,
    },
}

/// Opens a pseudo-terminal of the devpts at /dev/pts, with UTF-8 line editing.
///
/// # Errors
/// The errno of open(2): `ENOSPC` at the limit of the mount or of the host, `ENOENT` without a devpts. Or that of
/// ioctl_tty(2).
pub fn open_pair(size: WindowSize, owner: PtyOwner) -> Result<PtyPair, Errno> {
    let master = open_master(owner)?;
    let locked: libc::c_int = 0;
    // SAFETY: the kernel reads one int, which lives through the call.
    Errno::result(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const locked) })?;
    // By descriptor: a path could lead to another terminal.
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the argument is a number; the result is a new descriptor or -1.
    let slave = Errno::result(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags) })?;
    // SAFETY: just made for us.
    let slave = unsafe { OwnedFd::from_raw_fd(slave) };
    let mut settings = tcgetattr(&slave)?;
    settings.input_flags |= InputFlags::IUTF8;
    tcsetattr(&slave, SetArg::TCSANOW, &settings)?;
    set_size(master.as_fd(), size)?;
    Ok(PtyPair { master, slave })
}

fn open_master(owner: PtyOwner) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    // The node belongs to the file system ids of the one who opens the master (setfsuid(2)).
    with_ids_of(owner, || open("/dev/ptmx", flags, Mode::empty()))
}

/// Does something with these ids for access to files.
///
/// # Errors
/// `EPERM` if the ids could not be taken or given back; else what it answers.
pub fn with_ids_of<T>(owner: PtyOwner, act: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let PtyOwner::Other { uid, gid } = owner else { return act() };
    let (own_gid, own_uid) = (setfsgid(Gid::from_raw(gid)), setfsuid(Uid::from_raw(uid)));
    let result = act();
    // setfsuid(2) does not report failure, but returns what was in force before.
    let was_set = (setfsuid(own_uid), setfsgid(own_gid)) == (Uid::from_raw(uid), Gid::from_raw(gid));
    // A change of ids gives the process the dumpable flag of `fs.suid_dumpable`, which may be 1.
    nix::sys::prctl::set_dumpable(false)?;
    if was_set { result } else { Err(Errno::EPERM) }
}

/// The foreground process group, from the master; 0 if there is none.
///
/// # Errors
/// The errno of tcgetpgrp(3).
pub fn foreground_group(master: BorrowedFd<'_>) -> Result<i32, Errno> {
    tcgetpgrp(master).map(nix::unistd::Pid::as_raw)
}

/// TIOCSIG of ioctl_tty(2), which libc does not have for all of our targets: `_IOW('T', 0x36, int)`.
const TIOCSIG: libc::Ioctl = 0x4004_5436;

/// Sends a signal to the foreground process group, from the master.
///
/// # Errors
/// The errno of ioctl_tty(2): `EINVAL` for another signal than SIGINT, SIGQUIT and SIGTSTP.
pub fn signal_foreground(master: BorrowedFd<'_>, signal: i32) -> Result<(), Errno> {
    // SAFETY: the argument is a number, and nothing is read or written by way of it.
    Errno::result(unsafe { libc::ioctl(master.as_raw_fd(), TIOCSIG, signal) }).map(drop)
}

/// Sets the size of a terminal. If it differs, the foreground process group gets SIGWINCH.
///
/// # Errors
/// The errno of ioctl_tty(2).
pub fn set_size(terminal: BorrowedFd<'_>, size: WindowSize) -> Result<(), Errno> {
    let size = libc::winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel reads one winsize, which lives through the call.
    Errno::result(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }).map(drop)
}

/// The size of a terminal.
///
/// # Errors
/// The errno of ioctl_tty(2): `ENOTTY` for what is no terminal.
pub fn size(terminal: BorrowedFd<'_>) -> Result<WindowSize, Errno> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel writes one winsize, which lives through the call.
    Errno::result(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) })?;
    Ok(WindowSize { columns: size.ws_col, rows: size.ws_row })
}

/// How a terminal takes the end of a file that is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndOfFile {
    /// The character; `None`: there is none.
    pub character: Option<u8>,
    /// Input is read by lines, so that the character after the beginning of a line only ends that line.
    pub ends_line: bool,
}

/// Whether the kernel edits lines for those who read a terminal; else they get each key. From either end.
///
/// # Errors
/// The errno of tcgetattr(3).
pub fn edits_lines(terminal: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(tcgetattr(terminal)?.local_flags.contains(LocalFlags::ICANON))
}

/// Reads the settings of a terminal, from either end.
///
/// # Errors
/// The errno of tcgetattr(3).
pub fn end_of_file(terminal: BorrowedFd<'_>) -> Result<EndOfFile, Errno> {
    let settings = tcgetattr(terminal)?;
    let character = settings.control_chars[SpecialCharacterIndices::VEOF as usize];
    Ok(EndOfFile {
        // _POSIX_VDISABLE is 0.
        character: Some(character).filter(|character| *character != 0),
        ends_line: settings.local_flags.contains(LocalFlags::ICANON),
    })
}
