//! Drops privileges and applies landlock and seccomp, once, for the supervisor and every command.
//!
//! The supervisor runs under the same rules, so they include its own needs: its cgroups, and three capabilities
//! where commands have their own ids.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use caps::Capability;
use nix::{errno::Errno, fcntl::OFlag, sys::stat::Mode};

use super::{descriptors::has_gate, new_root::NewRoot, stage::StageError};
use crate::{
    byte_text,
    cgroup::CgroupDirectory,
    proto::supervisor::{Identity, LandlockPlan, SandboxPlan, Stage, mount::Kind},
    sys::{
        credentials,
        file::CallNonce,
        landlock::{self, FileRights, Ruleset, TcpRights},
        seccomp,
    },
    wire::{gate::NONCE_BYTES, launch::EXECUTABLE_PATHS_FROM},
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
pub fn drop_privileges(ids: &Identity) -> Result<(), StageError> {
    credentials::lock_secure_bits().map_err(StageError::of_step(Stage::Capabilities, 0))?;
    let kept: &[Capability] = if ids.separate_ids { &SUPERVISOR_CAPABILITIES } else { &[] };
    // The library does not return the errno, but errno is still that of the failed call.
    credentials::keep_capabilities(kept).map_err(|_| StageError::at(Stage::Capabilities, 1, Errno::last()))
}

/// What landlock will allow, made while the supervisor can still reach what it is about.
#[derive(Debug)]
pub struct LandlockRules {
    rules: Ruleset,
    abi: u32,
}

impl LandlockRules {
    /// Kept open until the rules are in force.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.rules.descriptor()
    }

    /// Puts them in force. Returns the ABI.
    pub fn enforce(self) -> Result<u32, StageError> {
        self.rules.enforce().map_err(|errno| StageError::new(Stage::Landlock, errno))?;
        Ok(self.abi)
    }
}

/// The rules of landlock: only what the plan mounts writable can be written, even if a mount is changed, and where the plan
/// lists what may be executed nothing else can. They are about the objects that were mounted.
pub fn landlock_rules(
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
pub fn install_seccomp(plan: &SandboxPlan) -> Result<Option<OwnedFd>, StageError> {
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
pub fn nonce_of(plan: &SandboxPlan) -> Option<CallNonce> {
    let bytes: [u8; NONCE_BYTES] = plan.seccomp.as_ref()?.exec_nonce.as_ref().try_into().ok()?;
    let mut words =
        bytes.as_chunks::<{ size_of::<usize>() }>().0.iter().map(|word| usize::from_ne_bytes(*word));
    Some([words.next()?, words.next()?, words.next()?])
}
