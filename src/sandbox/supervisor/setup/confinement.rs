//! Drops privileges and applies landlock and seccomp, once, for the supervisor and every command, reads back what is in force, and hands the
//! gate its listener and namespaces.
//!
//! The supervisor runs under the same rules, so they include its own needs: its cgroups, and three capabilities
//! where commands have their own ids.

use std::{
    collections::HashMap,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use caps::Capability;
use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, OFlag},
    sys::stat::Mode,
};

use super::{StageError, has_gate, new_root::NewRoot};
use crate::{
    byte_text,
    cgroup::CgroupDirectory,
    proto::supervisor::{
        EffectiveConfinement, GateSetup, Identity, LandlockPlan, SandboxPlan, Stage, ToGateProcess,
        mount::Kind, to_gate_process::Message,
    },
    supervisor::ready::SupervisedGate,
    sys::{
        credentials, fdpass,
        file::{self, CallNonce},
        landlock::{self, FileRights, Ruleset, TcpRights},
        seccomp,
    },
    wire::{encode, gate::NONCE_BYTES, launch::EXECUTABLE_PATHS_FROM},
};

/// Files of the sandbox's own ipc namespace, reached by mq_open(3) and by path.
const MESSAGE_QUEUES: &str = "/dev/mqueue";

/// What the kernel executes for dynamically linked programs: of glibc, then of musl. Execute rights are needed for them, too.
const DYNAMIC_LOADERS: [&str; 5] = [
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-linux.so.2",
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
];

/// To start commands under their own id, and to signal them. A command loses all three when it changes its ids.
const SUPERVISOR_CAPABILITIES: [Capability; 3] =
    [Capability::CAP_SETUID, Capability::CAP_SETGID, Capability::CAP_KILL];

/// Locks the secure bits and drops every capability but the supervisor's own.
pub(super) fn drop_privileges(ids: &Identity) -> Result<(), StageError> {
    credentials::lock_secure_bits().map_err(StageError::of_step(Stage::Capabilities, 0))?;
    let kept: &[Capability] = if ids.separate_ids { &SUPERVISOR_CAPABILITIES } else { &[] };
    // The library does not return the errno, but errno is still that of the failed call.
    credentials::keep_capabilities(kept).map_err(|_| StageError::at(Stage::Capabilities, 1, Errno::last()))
}

/// What landlock will allow, made while the supervisor can still reach what it is about.
#[derive(Debug)]
pub(super) struct LandlockRules {
    rules: Ruleset,
    abi: u32,
}

impl LandlockRules {
    /// Kept open until the rules are in force.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.rules.descriptor()
    }

    /// Puts them in force. Returns the ABI.
    pub(super) fn enforce(self) -> Result<u32, StageError> {
        self.rules.enforce().map_err(|errno| StageError::new(Stage::Landlock, errno))?;
        Ok(self.abi)
    }
}

/// The rules of landlock: only what the plan mounts writable can be written, even if a mount is changed, and where the plan
/// lists what may be executed nothing else can. They are about the objects that were mounted.
pub(super) fn landlock_rules(
    plan: &SandboxPlan,
    view: &NewRoot,
    directories: &[CgroupDirectory],
) -> Result<Option<LandlockRules>, StageError> {
    let Some(rights) = plan.landlock.as_ref().filter(|rights| rights.enabled) else {
        return Ok(None);
    };
    let abi = landlock::abi();
    let failed = |errno| StageError::new(Stage::Landlock, errno);
    let rules = Ruleset::with_tcp(abi, tcp_rights(rights)).map_err(failed)?;
    let execute = match rights.execute {
        Some(_) => FileRights::NONE,
        None => FileRights::EXECUTE,
    };
    let look = FileRights::READ_DIRECTORY;
    let read = look.and(FileRights::READ_FILE).and(execute);
    let devices = look
        .and(FileRights::READ_FILE)
        .and(FileRights::WRITE_FILE)
        .and(FileRights::TRUNCATE)
        .and(FileRights::DEVICE_IOCTL);
    // Sockets of the sandbox's own can be connected to without a right. The others are the host's.
    let unshared = FileRights::EXECUTE.and(FileRights::CONNECT_SOCKET);
    let everything = FileRights::all(abi).without(unshared).and(execute);

    allow_object(&rules, view.root.as_fd(), look).map_err(failed)?;
    for (index, object) in &view.mounted {
        let failed = StageError::of_step(Stage::Landlock, *index);
        let mount = plan.mounts.get(*index).ok_or_else(StageError::malformed_plan)?;
        let rights = match mount.kind() {
            Kind::Bind if mount.read_only => read,
            Kind::Bind | Kind::Tmpfs => everything,
            Kind::Proc => look.and(FileRights::READ_FILE),
            Kind::Dev => devices,
            Kind::File => FileRights::READ_FILE,
            Kind::Unspecified
            | Kind::Overlay
            | Kind::Layer
            | Kind::Symlink
            | Kind::Directory
            | Kind::Cover => continue,
        };
        if mount.kind() == Kind::Dev {
            match allow(&rules, MESSAGE_QUEUES, everything) {
                // The kernel has none.
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        allow_object(&rules, object.as_fd(), rights).map_err(failed)?;
    }
    for directory in directories {
        rules.allow_below(directory.descriptor.as_fd(), everything).map_err(failed)?;
    }
    if let Some(listed) = &rights.execute {
        allow_execution(&rules, &listed.paths, view)?;
    }
    allow_ports(&rules, rights).map_err(failed)?;
    Ok(Some(LandlockRules { rules, abi }))
}

/// Allows to execute what is listed, and the dynamic loaders.
fn allow_execution(rules: &Ruleset, listed: &[String], view: &NewRoot) -> Result<(), StageError> {
    let allow = |path: &str| {
        // Links of the system's own directories are followed: /bin, /lib.
        let open = || nix::fcntl::open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty());
        let object = view.rights.walk(open)?;
        allow_object(rules, object.as_fd(), FileRights::EXECUTE)
    };
    for (index, path) in listed.iter().enumerate() {
        allow(path).map_err(StageError::of_step(Stage::Landlock, EXECUTABLE_PATHS_FROM as usize + index))?;
    }
    for loader in DYNAMIC_LOADERS {
        match allow(loader) {
            Ok(()) | Err(Errno::ENOENT | Errno::ENOTDIR) => {}
            Err(errno) => return Err(StageError::new(Stage::Landlock, errno)),
        }
    }
    Ok(())
}

fn tcp_rights(plan: &LandlockPlan) -> TcpRights {
    let connect = if plan.tcp_connect.is_some() { TcpRights::CONNECT } else { TcpRights::NONE };
    let bind = if plan.tcp_bind.is_some() { TcpRights::BIND } else { TcpRights::NONE };
    connect.and(bind)
}

fn allow_ports(rules: &Ruleset, plan: &LandlockPlan) -> Result<(), Errno> {
    for (ports, right) in [(&plan.tcp_connect, TcpRights::CONNECT), (&plan.tcp_bind, TcpRights::BIND)] {
        for port in ports.iter().flat_map(|ports| &ports.ports) {
            rules.allow_port(u16::try_from(*port).map_err(|_| Errno::EINVAL)?, right)?;
        }
    }
    Ok(())
}

fn allow(rules: &Ruleset, path: &str, rights: FileRights) -> Result<(), Errno> {
    let path = byte_text::to_path(path);
    let object =
        nix::fcntl::open(&*path, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?;
    allow_object(rules, object.as_fd(), rights)
}

fn allow_object(rules: &Ruleset, object: BorrowedFd<'_>, rights: FileRights) -> Result<(), Errno> {
    let kind = nix::sys::stat::fstat(object)?.st_mode & libc::S_IFMT;
    if kind == libc::S_IFDIR { rules.allow_below(object, rights) } else { rules.allow_file(object, rights) }
}

/// Installs the plan's seccomp filter, if it has one. Returns the listener for the gate, or for the supervisor itself, if there is one.
pub(super) fn install_seccomp(plan: &SandboxPlan) -> Result<Option<OwnedFd>, StageError> {
    let installed = match &plan.seccomp {
        Some(filter) if filter.enabled && has_gate(plan) => {
            seccomp::install_with_listener(&filter.program).map(Some)
        }
        // What the supervisor is notified of is refused where it cannot be.
        Some(filter) if filter.enabled => seccomp::install_with_listener_or_refuse(&filter.program),
        // A gate without a filter would judge nothing.
        _ if has_gate(plan) => Err(Errno::EINVAL),
        _ => Ok(None),
    };
    installed.map_err(StageError::of(Stage::Seccomp))
}

/// What lets the supervisor's own calls pass the plan's filter.
pub(super) fn nonce_of(plan: &SandboxPlan) -> Option<CallNonce> {
    let bytes: [u8; NONCE_BYTES] = plan.seccomp.as_ref()?.exec_nonce.as_ref().try_into().ok()?;
    let mut words =
        bytes.as_chunks::<{ size_of::<usize>() }>().0.iter().map(|word| usize::from_ne_bytes(*word));
    Some([words.next()?, words.next()?, words.next()?])
}

const NAMESPACES: [&str; 7] = ["user", "pid", "mnt", "ipc", "uts", "cgroup", "net"];

/// CAP_KILL, CAP_SETGID, CAP_SETUID.
const SUPERVISOR_CAPABILITY_BITS: u64 = 1 << 5 | 1 << 6 | 1 << 7;

/// The index, in [`Stage::EffectiveConfinement`], of a supervisor whose memory commands could read.
const DUMPABLE: usize = 100;

/// The supervisor's cgroup as the host names it. Must be read before the supervisor has its own cgroup namespace.
pub(super) fn read_cgroup() -> Result<String, StageError> {
    let text = file::read_at(AT_FDCWD, Path::new("/proc/self/cgroup"))
        .map_err(StageError::of(Stage::EffectiveConfinement))?;
    let text = String::from_utf8_lossy(&text);
    let named = |prefix: &str| text.lines().find_map(|line| line.strip_prefix(prefix));
    Ok(named("0::").unwrap_or_default().to_owned())
}

/// Compares the kernel's state with the plan, and returns what is in force. Less than was planned is an error, and there is no
/// sandbox.
pub(super) fn read_back(
    plan: &SandboxPlan,
    ids: &Identity,
    landlock_abi: u32,
    cgroup: String,
) -> Result<EffectiveConfinement, StageError> {
    let status = file::read_at(AT_FDCWD, Path::new("/proc/self/status"))
        .map_err(StageError::of(Stage::EffectiveConfinement))?;
    let status = String::from_utf8_lossy(&status);
    if nix::sys::prctl::get_dumpable().map_err(StageError::of(Stage::EffectiveConfinement))? {
        return Err(StageError::at(Stage::EffectiveConfinement, DUMPABLE, Errno::EPERM));
    }
    let kept = if ids.separate_ids { SUPERVISOR_CAPABILITY_BITS } else { 0 };
    let filtered = plan.seccomp.as_ref().is_some_and(|plan| plan.enabled);
    let expected = [
        ("NoNewPrivs:", 10, 1),
        ("CapBnd:", 16, 0),
        ("CapInh:", 16, 0),
        ("CapAmb:", 16, 0),
        ("CapPrm:", 16, kept),
        ("CapEff:", 16, kept),
        ("Seccomp:", 10, if filtered { 2 } else { 0 }),
    ];
    for (index, (field, radix, wanted)) in expected.into_iter().enumerate() {
        let found = status
            .lines()
            .find_map(|line| line.strip_prefix(field))
            .and_then(|value| u64::from_str_radix(value.trim(), radix).ok());
        // Where the gateway itself is filtered the field is 2, whatever the plan says.
        let more_than_asked = field == "Seccomp:" && !filtered && found.is_some();
        if found != Some(wanted) && !more_than_asked {
            return Err(StageError::at(Stage::EffectiveConfinement, index, Errno::EPERM));
        }
    }
    let has_ptys = Path::new("/dev/ptmx").exists();
    Ok(EffectiveConfinement {
        namespaces: read_namespaces()?,
        landlock_abi,
        cgroup,
        has_ptys,
        makes_sockets: plan.own_network,
        reports_foreground: true,
        holds_idle_clocks: true,
        sets_umask: true,
        takes_stdin: true,
    })
}

fn read_namespaces() -> Result<HashMap<String, u64>, StageError> {
    let directory = nix::fcntl::open(
        "/proc/self/ns",
        nix::fcntl::OFlag::O_PATH | nix::fcntl::OFlag::O_CLOEXEC,
        nix::sys::stat::Mode::empty(),
    )
    .map_err(StageError::of(Stage::EffectiveConfinement))?;
    let inode = |name: &str| {
        nix::sys::stat::fstatat(directory.as_fd(), name, nix::fcntl::AtFlags::empty())
            .map(|stat| (name.to_owned(), stat.st_ino))
            .map_err(StageError::of(Stage::EffectiveConfinement))
    };
    NAMESPACES.iter().map(|name| inode(name)).collect()
}

/// The names of the namespaces in `GateSetup`, in its order.
const GATE_NAMESPACES: [&str; 6] = ["user", "mnt", "ipc", "uts", "net", "cgroup"];

/// Steps of [`Stage::Gate`] on this side; those of the gate's own set-up come before them.
const GATE_FIRST_STEP: usize = 32;

/// What the supervisor holds for its gate during set-up.
pub(super) struct GateHandover {
    socket: OwnedFd,
    namespaces: Vec<OwnedFd>,
    dead_man: (OwnedFd, OwnedFd),
    nonce: CallNonce,
}

impl GateHandover {
    /// To be called when all namespaces but the one of an ordinary user's commands are made, while the host's /proc is there.
    pub(super) fn open(plan: &SandboxPlan, socket: OwnedFd) -> Result<Self, StageError> {
        let step = |index: usize| StageError::of_step(Stage::Gate, GATE_FIRST_STEP + index);
        let open = |name: &&str| file::open_read(&Path::new("/proc/self/ns").join(name));
        let namespaces = GATE_NAMESPACES.iter().map(open).collect::<Result<_, _>>().map_err(step(0))?;
        let dead_man = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(step(1))?;
        let nonce = nonce_of(plan).ok_or(StageError::at(Stage::Gate, GATE_FIRST_STEP + 2, Errno::EINVAL))?;
        Ok(Self { socket, namespaces, dead_man, nonce })
    }

    /// What must stay open until then.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = &OwnedFd> {
        self.namespaces.iter().chain([&self.socket, &self.dead_man.0, &self.dead_man.1])
    }

    /// Sends all of it. From here on only the gate has the listener.
    pub(super) fn send(self, listener: OwnedFd) -> Result<SupervisedGate, StageError> {
        let step = |index: usize| StageError::of_step(Stage::Gate, GATE_FIRST_STEP + index);
        let Self { socket, namespaces, dead_man: (read_end, write_end), nonce } = self;
        let message = ToGateProcess { message: Some(Message::Setup(GateSetup {})) };
        let descriptors: Vec<_> =
            [&listener, &read_end].into_iter().chain(&namespaces).map(AsFd::as_fd).collect();
        let frame = encode(&message, descriptors.len())
            .map_err(|_| StageError::at(Stage::Gate, GATE_FIRST_STEP + 3, Errno::EMSGSIZE))?;
        fdpass::send(socket.as_fd(), &frame, &descriptors).map_err(step(3))?;
        Ok(SupervisedGate { socket, dead_man: write_end, nonce })
    }
}
