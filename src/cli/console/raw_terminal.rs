//! The person's own terminal in raw mode, so that every key reaches the command; and back as it was, whatever happens.
//!
//! What the command has changed by what it wrote is put back by `person_terminal`. It is restored when the guard is dropped, by a panic of any thread, and before this process stops itself for the person's
//! shell. SIGTERM, SIGHUP and SIGINT end this process in order, so that the guard is dropped. Nothing helps against SIGKILL.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    panic,
    sync::{Mutex, Once, PoisonError},
};

use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, kill},
        termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr},
    },
    unistd::Pid,
};

use super::person_terminal::{self, LeaveAt};

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
                person_terminal::leave(LeaveAt::Cursor);
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

#[cfg(test)]
mod tests {
    use std::{
        env,
        os::fd::OwnedFd,
        process::{Command, exit},
        thread,
    };

    use super::*;
    use crate::cli::console::person_terminal::OutputStream;
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
}
