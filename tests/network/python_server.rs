//! A server of the tests in Python, which says when it is ready and ends with this.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

/// It runs.
pub(crate) struct PythonServer(Child);

impl PythonServer {
    /// Writes the program to the directory and starts it, with these arguments and the directory.
    pub(crate) fn start(program: &str, arguments: &[&str], directory: &Path) -> Self {
        let file = directory.join("server.py");
        fs::write(&file, program).expect("a file");
        let mut server = Command::new("python3")
            .arg(file)
            .args(arguments)
            .arg(directory)
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 can be started");
        let mut line = String::new();
        let ready = server.stdout.take().expect("a pipe");
        BufReader::new(ready).read_line(&mut line).expect("the server says that it is ready");
        assert_eq!(line, "ready\n");
        Self(server)
    }
}

impl Drop for PythonServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
