//! What the tests of the command line share: a workspace, the binary, a gateway, and waiting with a deadline.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// Longer than anything here takes on a slow machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);
/// How often what cannot be waited for is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A workspace of its own, and a place for sockets next to it.
pub(crate) struct Place {
    directory: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        std::fs::create_dir(directory.path().join("work")).expect("a directory can be made");
        Self { directory }
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.directory.path().join("work")
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// `provost`, in the workspace, that cannot find a gateway of this machine.
    pub(crate) fn provost(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_provost"));
        command.current_dir(self.work()).stdin(Stdio::null()).env_remove("PROVOST_GATEWAY");
        command
    }

    /// `provost run --policies (the default ones) OPTIONS -- COMMAND`, with an embedded gateway.
    pub(crate) fn run(&self, options: &[&str], command: &[&str]) -> Command {
        let mut run = self.provost();
        run.arg("run").arg("--policies").arg(self.policies()).args(options).arg("--").args(command);
        run
    }

    /// A directory with the default policy, its resource limits preferred as `provost run` prefers them by itself.
    pub(crate) fn policies(&self) -> PathBuf {
        let directory = self.directory.path().join("policies");
        if !directory.exists() {
            let text = include_str!("../../policies/default.toml");
            std::fs::create_dir(&directory).expect("a directory can be made");
            std::fs::write(
                directory.join("default.toml"),
                text.replace("requirement = \"require\"", "requirement = \"prefer\""),
            )
            .expect("a file can be written");
        }
        directory
    }

    pub(crate) fn output(&self, options: &[&str], command: &[&str]) -> Output {
        self.run(options, command).output().expect("provost starts")
    }
}

/// The exit status as a shell has it.
pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("provost itself died: {}", shown(output)))
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn shown(output: &Output) -> String {
    format!("{}\nstdout: {}\nstderr: {}", output.status, stdout(output), stderr(output))
}

/// The last line of stderr, as the object of `--report /dev/stderr`.
pub(crate) fn final_object(output: &Output) -> serde_json::Value {
    let text = stderr(output);
    let line = text.lines().last().unwrap_or_else(|| panic!("nothing on stderr"));
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// A child that is killed when a test ends before it does.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.spawn().expect("provost starts"))
    }

    /// The next line of the child's stdout.
    pub(crate) fn line(&mut self) -> String {
        let stdout = self.0.stdout.as_mut().expect("stdout is a pipe");
        let mut line = String::new();
        // One byte of buffer, so that nothing is taken beyond the line.
        BufReader::with_capacity(1, stdout).read_line(&mut line).expect("stdout can be read");
        line.trim_end().to_owned()
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.0.id()).expect("a pid"));
        nix::sys::signal::kill(pid, signal).expect("our own child can be signalled");
    }

    pub(crate) fn end(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("provost ends", || {
            status = self.0.try_wait().expect("our own child can be waited for");
            status.is_some()
        });
        status.expect("it has ended")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until it is so; fails at the deadline.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in {DEADLINE:?}: {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Processes of this machine that have `word` among their arguments.
pub(crate) fn processes_with(word: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").expect("/proc can be read").flatten();
    entries
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.split(' ').any(|argument| argument == word))
        .collect()
}

/// A number of seconds to sleep that no other test sleeps: a mark to find processes by.
pub(crate) fn mark() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{}{:03}", std::process::id(), 100 + NEXT.fetch_add(1, Ordering::Relaxed))
}
