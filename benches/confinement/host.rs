//! The host's side: what the attacks are after. Made for the purpose and removed at the end; nothing of the real host is
//! at stake.

use std::{
    fs::{self, File},
    io::Write,
    net::TcpListener,
    os::{
        fd::AsRawFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    sched::{CloneFlags, unshare},
};
use tempfile::TempDir;

/// What the file behind the open descriptor begins with.
pub(crate) const SECRET: &str = "a secret of the host's";

const METADATA_ADDRESS: &str = "169.254.169.254";

/// What is there to be reached. Everything ends with this value.
#[derive(Debug)]
pub(crate) struct HostSide {
    base: TempDir,
    victim: Child,
    left_open: File,
    port: u16,
    abstract_name: String,
    /// Connections are accepted by the kernel.
    _listeners: Vec<TcpListener>,
    _sockets: Vec<UnixListener>,
}

impl HostSide {
    /// Makes all of it. In a network namespace of its own where that is allowed: there the metadata address is ours.
    pub(crate) fn prepare() -> Self {
        let has_own_network = unshare(CloneFlags::CLONE_NEWNET).is_ok();
        if has_own_network {
            run("ip", &["link", "set", "lo", "up"]);
            run("ip", &["address", "add", &format!("{METADATA_ADDRESS}/32"), "dev", "lo"]);
        }
        // Not in /tmp, which some sandboxes let commands write to, and others hide.
        let base = tempfile::Builder::new()
            .prefix("provost-confinement-")
            .tempdir_in("/var/tmp")
            .expect("a directory");
        for directory in ["home/.ssh", "run"] {
            fs::create_dir_all(base.path().join(directory)).expect("a directory");
        }
        fs::write(base.path().join("home/.ssh/id_test"), SECRET).expect("a file");
        let left_open = base.path().join("secret");
        fs::write(&left_open, SECRET).expect("a file");
        let left_open = File::open(left_open).expect("it was just written");
        // As programs do that forget O_CLOEXEC.
        fcntl(&left_open, FcntlArg::F_SETFD(FdFlag::empty())).expect("the descriptor is ours");
        let loopback = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = loopback.local_addr().expect("it is bound").port();
        let metadata = has_own_network.then(|| TcpListener::bind((METADATA_ADDRESS, 80)).ok()).flatten();
        let abstract_name = format!("provost-confinement-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&abstract_name).expect("a short name");
        let sockets = vec![
            UnixListener::bind(base.path().join("run/agent.sock")).expect("a socket"),
            UnixListener::bind_addr(&address).expect("a socket"),
        ];
        let victim = Command::new("sleep")
            .arg("100000")
            .env("CONFINEMENT_SECRET", SECRET)
            .stdin(Stdio::null())
            .spawn()
            .expect("sleep starts");
        let listeners = [Some(loopback), metadata].into_iter().flatten().collect();
        Self { base, victim, left_open, port, abstract_name, _listeners: listeners, _sockets: sockets }
    }

    /// The directory of everything.
    pub(crate) fn base(&self) -> &Path {
        self.base.path()
    }

    /// The caller's home.
    pub(crate) fn home(&self) -> PathBuf {
        self.base().join("home")
    }

    /// A fresh workspace, with a repository in it that has no hooks.
    pub(crate) fn workspace(&self) -> TempDir {
        let workspace = tempfile::Builder::new().prefix("w").tempdir_in(self.base()).expect("a directory");
        for directory in ["objects", "refs/heads"] {
            fs::create_dir_all(workspace.path().join(".git").join(directory)).expect("a directory");
        }
        fs::create_dir(workspace.path().join("below")).expect("a directory");
        let write = |name: &str, text: &[u8]| {
            let mut file = File::create(workspace.path().join(".git").join(name)).expect("a file");
            file.write_all(text).expect("it can be written");
        };
        write("HEAD", b"ref: refs/heads/main\n");
        write("config", b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n");
        workspace
    }

    /// An argument with what its placeholders stand for.
    pub(crate) fn filled(&self, argument: &str, workspace: &Path, mark: &str) -> String {
        argument
            .replace("{W}", &workspace.display().to_string())
            .replace("{HOME}", &self.home().display().to_string())
            .replace("{PID}", &self.victim.id().to_string())
            .replace("{SOCKET}", &self.base().join("run/agent.sock").display().to_string())
            .replace("{ABSTRACT}", &self.abstract_name)
            .replace("{PORT}", &self.port.to_string())
            .replace("{FD}", &self.left_open.as_raw_fd().to_string())
            .replace("{SECRET}", SECRET)
            .replace("{TMP}", &format!("/tmp/{mark}"))
            .replace("{MARK}", mark)
            .replace("{DISK}", disk())
            .replace("{CGROUP}", &cgroup_of_all())
    }
}

impl Drop for HostSide {
    fn drop(&mut self) {
        // It may have been ended by an attack.
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

fn disk() -> &'static str {
    ["/dev/vda", "/dev/sda", "/dev/nvme0n1"]
        .into_iter()
        .find(|disk| Path::new(disk).exists())
        .unwrap_or("/dev/none")
}

/// The root's list of processes in the first cgroup hierarchy.
fn cgroup_of_all() -> String {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("proc(5)");
    let of_cgroups = |line: &&str| line.split(' ').nth(2).is_some_and(|kind| kind.starts_with("cgroup"));
    let at =
        mounts.lines().find(of_cgroups).and_then(|line| line.split(' ').nth(1)).unwrap_or("/sys/fs/cgroup");
    format!("{at}/cgroup.procs")
}

fn run(program: &str, arguments: &[&str]) {
    let done = Command::new(program).args(arguments).status();
    if !done.is_ok_and(|status| status.success()) {
        println!("SKIPPED: {program} {arguments:?} does not work here");
    }
}
