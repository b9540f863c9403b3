//! The person's own terminal: what is shown there of a command's output, its raw mode, and the keys with which the person leaves.
//!
//! If stdout and stderr are a person's terminal while a command's output is shown there, it gets nothing that reaches beyond its screen,
//! and is put back as it was, also by a panic. A file or a pipe gets every byte. In raw mode every key reaches the command. The mode is
//! restored when the guard is dropped, by a panic of any thread, and before this process stops itself for the person's shell. SIGTERM,
//! SIGHUP and SIGINT end this process in order, so that the guard is dropped. Nothing helps against SIGKILL. What may be the beginning of
//! the keys for leaving is held back until the next key says.

use std::{
    borrow::Cow,
    io::{self, IsTerminal},
    os::fd::{AsFd, BorrowedFd},
    panic,
    str::FromStr,
    sync::{Mutex, Once, PoisonError, TryLockError},
};

use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, kill},
        termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr},
    },
    unistd::Pid,
};

use super::shown_output::ShownOutput;
use crate::stdio;

/// What stdout and stderr were shown, by all who show something there.
static SHOWN: [Mutex<Option<ShownOutput>>; 2] = [Mutex::new(None), Mutex::new(None)];

/// One of this process's own streams, for a command's output.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) struct OutputStream {
    /// In [`SHOWN`].
    place: usize,
    is_terminal: bool,
}

/// Where the cursor is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum LeaveAt {
    /// Where it is.
    Cursor,
    /// At the beginning of a line: the command goes on, and has not ended its own.
    NewLine,
}

impl OutputStream {
    /// Stdout, as it is now.
    pub(in crate::cli) fn stdout() -> Self {
        Self { place: 0, is_terminal: io::stdout().is_terminal() }
    }

    /// Stderr, as it is now.
    pub(in crate::cli) fn stderr() -> Self {
        Self { place: 1, is_terminal: io::stderr().is_terminal() }
    }

    /// What is to be written of a command's output.
    pub(in crate::cli) fn shown(self, output: &[u8]) -> Cow<'_, [u8]> {
        if !self.is_terminal {
            return Cow::Borrowed(output);
        }
        let mut shown = SHOWN[self.place].lock().unwrap_or_else(PoisonError::into_inner);
        Cow::Owned(shown.get_or_insert_default().pass(output))
    }
}

/// Puts the terminal back as a person's shell expects it. Does nothing if no command has changed it.
pub(in crate::cli) fn leave(at: LeaveAt) {
    if let Some(mut shown) = take(0) {
        let line: &[u8] = if at == LeaveAt::NewLine && !shown.is_alternate() { b"\r\n" } else { b"" };
        write(io::stdout(), &[&shown.leave()[..], line].concat());
    }
    if let Some(mut shown) = take(1) {
        write(io::stderr(), &shown.leave());
    }
}

fn take(place: usize) -> Option<ShownOutput> {
    match SHOWN[place].try_lock() {
        Ok(mut shown) => shown.take(),
        Err(TryLockError::Poisoned(shown)) => shown.into_inner().take(),
        // A thread that panics in the middle of it has the lock.
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Writes without the lock of the stream, which another thread may have. A terminal that is gone needs nothing.
fn write(to: impl AsFd, bytes: &[u8]) {
    let _ = stdio::write(to.as_fd(), bytes);
}

/// Leaves the terminal when it is dropped.
#[derive(Debug)]
#[must_use]
pub(in crate::cli) struct LeaveWhenDropped;

impl Drop for LeaveWhenDropped {
    fn drop(&mut self) {
        leave(LeaveAt::Cursor);
    }
}

/// How stdin was, while it is in raw mode.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Stdin in raw mode, until this is dropped.
#[derive(Debug)]
#[must_use]
pub(in crate::cli) struct RawTerminal(());

impl RawTerminal {
    /// Puts stdin, a terminal, into raw mode.
    pub(in crate::cli) fn enter() -> io::Result<Self> {
        static RESTORED_BY_PANICS: Once = Once::new();
        RESTORED_BY_PANICS.call_once(|| {
            let usual = panic::take_hook();
            panic::set_hook(Box::new(move |panic| {
                // Before the message, which would be a staircase, or on a screen that is left.
                leave(LeaveAt::Cursor);
                restore();
                usual(panic);
            }));
        });
        let before = make_raw(io::stdin().as_fd())?;
        *lock() = Some(before);
        Ok(Self(()))
    }

    /// Stops this process as Ctrl-Z stops programs, with the terminal as it was. Returns when it is continued.
    pub(in crate::cli) fn stop_process(&self) -> io::Result<()> {
        let before = lock().clone();
        restore();
        kill(Pid::this(), Signal::SIGSTOP)?;
        make_raw(io::stdin().as_fd())?;
        *lock() = before;
        Ok(())
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Puts a terminal into raw mode, and returns how it was.
fn make_raw(terminal: BorrowedFd<'_>) -> Result<Termios, Errno> {
    let before = tcgetattr(terminal)?;
    let mut raw = before.clone();
    cfmakeraw(&mut raw);
    tcsetattr(terminal, SetArg::TCSADRAIN, &raw)?;
    Ok(before)
}

/// Puts stdin back as it was, once.
fn restore() {
    if let Some(before) = lock().take() {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(io::stdin().as_fd(), SetArg::TCSADRAIN, &before);
    }
}

fn lock() -> std::sync::MutexGuard<'static, Option<Termios>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A sequence of keys, and how much of it was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct DetachKeys {
    keys: Vec<u8>,
    typed: usize,
}

/// What becomes of typed bytes.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cli) enum Typed {
    /// These are for the command.
    Pass(Vec<u8>),
    /// Leave, after these.
    Detach(Vec<u8>),
}

impl FromStr for DetachKeys {
    type Err = String;

    /// As docker has them: keys with commas between them, each a character or `ctrl-` and one of a-z @ [ \ ] ^ _.
    fn from_str(text: &str) -> Result<Self, String> {
        let key = |key: &str| match key.as_bytes() {
            [key] if key.is_ascii_graphic() => Ok(*key),
            [b'c', b't', b'r', b'l', b'-', key @ (b'a'..=b'z' | b'@' | b'['..=b'_')] => Ok(key & 0x1f),
            _ => Err(format!("{key:?} is no key: write a character, or ctrl- and a letter")),
        };
        let keys = text.split(',').filter(|_| !text.is_empty()).map(key).collect::<Result<_, _>>()?;
        Ok(Self { keys, typed: 0 })
    }
}

impl DetachKeys {
    /// No keys leave.
    pub(in crate::cli) fn none() -> Self {
        Self { keys: Vec::new(), typed: 0 }
    }

    /// Takes typed bytes.
    pub(in crate::cli) fn take(&mut self, typed: &[u8]) -> Typed {
        let mut passed = Vec::with_capacity(typed.len());
        for &byte in typed {
            if self.keys.get(self.typed) == Some(&byte) {
                self.typed += 1;
                if self.typed == self.keys.len() {
                    self.typed = 0;
                    return Typed::Detach(passed);
                }
                continue;
            }
            passed.extend_from_slice(&self.keys[..self.typed]);
            self.typed = usize::from(self.keys.first() == Some(&byte));
            if self.typed == 0 {
                passed.push(byte);
            }
        }
        Typed::Pass(passed)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        os::fd::OwnedFd,
        process::{Command, exit},
        thread,
    };

    use super::*;
    use crate::sys::pty::{self, PtyOwner, WindowSize};

    const CHILD: &str = "PROVOST_TEST_RAW_TERMINAL";
    const PANICS: &str = "panics";

    /// Whether a process that enters raw mode, and ends without leaving it, leaves the terminal as it was.
    fn leaves_terminal_as_it_was(how: &str) -> bool {
        let size = WindowSize { columns: 80, rows: 24 };
        let pair = pty::open_pair(size, PtyOwner::Own).unwrap();
        let slave: OwnedFd = pair.slave.try_clone().unwrap();
        let before = tcgetattr(&pair.slave).unwrap();
        let (_, module) = module_path!().split_once("::").unwrap();
        let name = format!("{module}::a_panic_of_any_thread_restores_the_terminal");
        let mut child = Command::new(env::current_exe().unwrap());
        let stdout: OwnedFd = pair.slave.try_clone().unwrap();
        // The name of the test comes first in its output.
        child.args([&name, "--exact", "--nocapture"]).env(CHILD, how).stdin(slave).stdout(stdout);
        let status = child.status().unwrap();
        assert_eq!(status.code(), Some(7));
        // What is written arrives at the other side later, in its order: up to this mark all of it has come.
        nix::unistd::write(&pair.slave, MARK.as_bytes()).unwrap();
        let (mut written, mut part) = (Vec::new(), [0; 4096]);
        while !written.ends_with(MARK.as_bytes()) {
            let length = nix::unistd::read(&pair.master, &mut part).unwrap();
            written.extend_from_slice(&part[..length]);
        }
        let written = String::from_utf8_lossy(&written[..written.len() - MARK.len()]).into_owned();
        assert!(written.contains(PROGRAM), "{written:?}");
        let has_left = written.ends_with("\x1b[?1049l\x1b[?1006l\x1b[?2004l");
        assert_eq!(has_left, how == PANICS, "{written:?}");
        tcgetattr(&pair.slave).unwrap() == before
    }

    /// What a full-screen program asks for.
    const PROGRAM: &str = "\x1b[?1049h\x1b[?2004h\x1b[?1006h";

    const MARK: &str = "<end>";

    #[test]
    fn a_panic_of_any_thread_restores_the_terminal() {
        if let Some(how) = env::var_os(CHILD) {
            let _raw = RawTerminal::enter().unwrap();
            let shown = OutputStream::stdout().shown(PROGRAM.as_bytes()).into_owned();
            nix::unistd::write(io::stdout(), &shown).unwrap();
            if how == PANICS {
                thread::spawn(|| panic!("on purpose")).join().unwrap_err();
            }
            // Without dropping anything.
            exit(7);
        }
        assert!(!leaves_terminal_as_it_was("exits"), "it was raw");
        assert!(leaves_terminal_as_it_was(PANICS));
    }

    fn keys(text: &str) -> DetachKeys {
        text.parse().unwrap()
    }

    #[test]
    fn keys_are_written_as_in_docker() {
        assert_eq!(keys("ctrl-p,ctrl-q").keys, [16, 17]);
        assert_eq!(keys("ctrl-@,ctrl-[,a").keys, [0, 27, b'a']);
        assert_eq!(keys(""), DetachKeys::none());
        for wrong in ["ctrl-", "ctrl-P", "ab", ",", "a,", "ctrl-é"] {
            assert!(wrong.parse::<DetachKeys>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_beginning_is_held_back_until_it_is_none() {
        let mut detach = keys("ctrl-p,ctrl-q");
        assert_eq!(detach.take(b"ab\x10"), Typed::Pass(b"ab".to_vec()));
        assert_eq!(detach.take(b"c"), Typed::Pass(b"\x10c".to_vec()));
        assert_eq!(detach.take(b"\x10\x10"), Typed::Pass(b"\x10".to_vec()));
        assert_eq!(detach.take(b"\x11never"), Typed::Detach(Vec::new()));
        assert_eq!(detach.take(b"x\x10\x11"), Typed::Detach(b"x".to_vec()));
        assert_eq!(DetachKeys::none().take(b"\x10\x11"), Typed::Pass(b"\x10\x11".to_vec()));
    }
}
