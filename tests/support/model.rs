//! A model on the loopback, for agents that are driven by one: a Python program that serves until its stdin ends.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

/// A model that serves; ended with the test.
pub struct Model {
    child: Child,
    /// On the loopback.
    pub port: u16,
}

impl Model {
    /// Starts the program at this path of the repository.
    pub fn start(script: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        let mut child = Command::new("python3")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(script))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python is there");
        let mut port = String::new();
        let stdout = child.stdout.take().expect("its stdout is piped");
        BufReader::new(stdout).read_line(&mut port).expect("it says its port");
        Self { child, port: port.trim().parse().expect("a port") }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
