//! A person's terminal window, with the real `provost` in it.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::{AsFd, OwnedFd},
    path::Path,
    process::{Child, Command, ExitStatus},
    sync::{Arc, Mutex},
};

use nix::{
    pty::{Winsize, openpty},
    sys::{
        signal::{Signal, kill},
        termios::{Termios, tcgetattr},
    },
    unistd::Pid,
};
use provost_base::sys::pty::{WindowSize, set_size};

use crate::support::eventually;

pub(super) struct Window {
    keyboard: File,
    /// The other end, which stays open: its settings are looked at when the program has ended.
    slave: OwnedFd,
    shown: Arc<Mutex<Vec<u8>>>,
    child: Child,
    before: Settings,
}

/// What makes a terminal usable.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Settings(
    nix::libc::tcflag_t,
    nix::libc::tcflag_t,
    nix::libc::tcflag_t,
    nix::libc::tcflag_t,
);

impl From<Termios> for Settings {
    fn from(termios: Termios) -> Self {
        let raw = nix::libc::termios::from(termios);
        Self(raw.c_iflag, raw.c_oflag, raw.c_cflag, raw.c_lflag)
    }
}

impl Window {
    /// Opens a window of 80 by 24 with `provost ARGUMENTS` in it, as the leader of a session with this terminal.
    pub(super) fn open(directory: &Path, arguments: &[&str]) -> Self {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(&size, None).expect("a pseudo-terminal");
        let before = tcgetattr(&pair.slave).expect("it is a terminal").into();
        let end = || pair.slave.try_clone().expect("a descriptor can be copied");
        let child = Command::new("setsid")
            .args(["--ctty", env!("CARGO_BIN_EXE_provost")])
            .args(arguments)
            .current_dir(directory)
            .env_remove("PROVOST_GATEWAY")
            .env("TERM", "xterm")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("provost can be started");
        let shown = Arc::new(Mutex::new(Vec::new()));
        let mut screen = File::from(pair.master.try_clone().expect("a descriptor can be copied"));
        let seen = shown.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = screen.read(&mut bytes) {
                seen.lock().expect("no code panics with it").extend_from_slice(&bytes[..length]);
            }
        });
        Self { keyboard: File::from(pair.master), slave: pair.slave, shown, child, before }
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it is ours");
    }

    pub(super) fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("a window takes keys");
    }

    pub(super) fn resize(&self, columns: u16, rows: u16) {
        set_size(self.keyboard.as_fd(), WindowSize { columns, rows }).expect("a window has a size");
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().expect("no code panics with it")).into_owned()
    }

    /// Waits until this is shown.
    pub(super) async fn shows(&self, text: &str) {
        let shown = async { eventually(text, || self.text().contains(text).then_some(())).await };
        shown.await;
    }

    /// Types, and waits until this is shown after it.
    pub(super) async fn types_until(&mut self, keys: &str, text: &str) {
        let before = self.text().len();
        self.types(keys);
        eventually(text, || self.text().get(before..).is_some_and(|new| new.contains(text)).then_some(()))
            .await;
    }

    /// Whether keys reach the program one by one.
    pub(super) fn is_raw(&self) -> bool {
        Settings::from(tcgetattr(&self.slave).expect("it is a terminal")) != self.before
    }

    /// Waits for the end of the program, and fails unless the terminal is as it was.
    pub(super) async fn ends(&mut self) -> ExitStatus {
        let status = eventually("the end of provost", || self.child.try_wait().expect("it is ours")).await;
        let after = Settings::from(tcgetattr(&self.slave).expect("it is a terminal"));
        assert_eq!(after, self.before, "the terminal was left in another mode: {:?}", self.text());
        status
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("---- the window ----\n{}\n--------", self.text());
        }
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
