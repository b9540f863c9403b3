//! Programs that do a like job, run as whole processes.
//!
//! Each is tried once first: one that is absent, or does not work here, is left out and named.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// A command line whose whole life is measured.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// For the table.
    pub name: String,
    argv: Vec<String>,
    environment: Vec<(String, String)>,
    must_fail: bool,
}

impl Peer {
    /// A peer of this name and command line.
    pub(crate) fn new(name: &str, argv: &[&str]) -> Self {
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        Self { name: name.to_owned(), argv, environment: Vec::new(), must_fail: false }
    }

    /// The same with this variable set.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same where it is a failure that is measured.
    pub(crate) fn failing(self) -> Self {
        Self { must_fail: true, ..self }
    }

    /// Spawns it and waits: posix_spawn(3), as the standard library does where nothing runs between fork and exec.
    pub(crate) fn run(&self) -> Option<Duration> {
        let begun = Instant::now();
        let (program, arguments) = self.argv.split_first()?;
        let status = Command::new(program)
            .args(arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .ok()?;
        (status.success() != self.must_fail).then(|| begun.elapsed())
    }
}

/// Sandboxes of this host that can run the program.
pub(crate) fn sandboxes(program: &str) -> Vec<Peer> {
    let all = [
        Peer::new(
            "`bwrap --unshare-all`, whole process",
            &["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", program],
        ),
        Peer::new(
            "`unshare` with all namespaces, whole process",
            &[
                "unshare",
                "--user",
                "--map-root-user",
                "--mount",
                "--pid",
                "--fork",
                "--ipc",
                "--uts",
                "--net",
                "--cgroup",
                "--mount-proc",
                program,
            ],
        ),
        Peer::new(
            "`firejail --noprofile --net=none`, whole process",
            &["firejail", "--quiet", "--noprofile", "--net=none", program],
        ),
    ];
    let (working, skipped): (Vec<_>, Vec<_>) = all.into_iter().partition(|peer| peer.run().is_some());
    for peer in skipped {
        println!("SKIPPED: {}: {}", peer.name, why_not(&peer.argv[0]));
    }
    working
}

fn why_not(program: &str) -> &'static str {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|directory| Path::new(&directory).join(program).exists())
    });
    if found { "it does not work here" } else { "it is not installed" }
}
