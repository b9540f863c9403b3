//! Makes the gate of the launcher's clone: enters the sandbox's namespaces, drops privileges, arms the dead-man pipe.
//!
//! The gate stays in the host's pid namespace, in which the kernel numbers the threads that it is notified of, and which commands
//! cannot see. Landlock would forbid it to trace the commands, which are in a domain of their own (landlock(7), "Ptrace
//! restrictions").

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use caps::{CapSet, Capability, CapsHashSet};
use libc::c_long;
use nix::{
    errno::Errno,
    fcntl::OFlag,
    sched::{CloneFlags, setns},
    sys::stat::Mode,
    unistd::{Gid, Uid},
};
use prost::Message as _;

use super::{GateStart, SetupFailure};
use crate::{
    proto::supervisor::{Identity, ToGateProcess, to_gate_process::Message},
    sys::{
        call_list::CallList,
        credentials,
        fdpass::{FrameReceiver, ReceiveError},
        file, own_process, pidfd, ptrace, seccomp_listener, signals,
    },
};

/// To read other processes, to trace them, and to kill them although they have other ids.
const CAPABILITIES: [Capability; 2] = [Capability::CAP_SYS_PTRACE, Capability::CAP_KILL];

/// What a gate has when it is set up.
#[derive(Debug)]
pub(super) struct GateDescriptors {
    /// The listener of the sandbox's filter.
    pub(super) seccomp: OwnedFd,
    /// Kept open: see [`crate::sys::own_process::arm_dead_man`].
    pub(super) dead_man: OwnedFd,
    /// The host's /proc.
    pub(super) proc: OwnedFd,
}

fn step(index: usize) -> impl Fn(Errno) -> SetupFailure {
    move |errno| SetupFailure { index, errno }
}

/// Enters the sandbox. Each step succeeds, or the gate does not start.
pub(super) fn enter(start: &mut GateStart<'_>) -> Result<GateDescriptors, SetupFailure> {
    join_cgroups(std::mem::take(&mut start.join)).map_err(step(1))?;
    let directory = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let proc = nix::fcntl::open("/proc", directory, Mode::empty()).map_err(step(2))?;
    let Handover { seccomp, dead_man, namespaces } = receive(start.socket.as_fd()).map_err(step(3))?;
    namespaces.enter(start.identity)?;
    nix::unistd::chdir("/").map_err(step(9))?;
    let null =
        nix::fcntl::open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty()).map_err(step(10))?;
    file::replace_standard(null.as_fd()).map_err(step(10))?;
    drop(null);
    take_identity(start.identity)?;
    nix::sys::prctl::set_no_new_privs().map_err(step(17))?;
    nix::sys::prctl::set_dumpable(false).map_err(step(18))?;
    nix::sys::prctl::set_name(c"provost-gate").map_err(step(18))?;
    let kept = [&start.socket, &start.listener, &start.report, &seccomp, &dead_man, &proc];
    file::close_all_except(&kept.map(AsFd::as_fd)).map_err(step(19))?;
    signals::reset();
    own_process::arm_dead_man(dead_man.as_fd()).map_err(step(20))?;
    Ok(GateDescriptors { seccomp, dead_man, proc })
}

/// Where the kernel cannot clone into a cgroup, and in version 1.
fn join_cgroups(files: Vec<OwnedFd>) -> Result<(), Errno> {
    files.iter().try_for_each(|file| nix::unistd::write(file, b"0").map(drop))
}

/// What the supervisor hands over.
struct Handover {
    seccomp: OwnedFd,
    dead_man: OwnedFd,
    namespaces: Namespaces,
}

struct Namespaces {
    user: OwnedFd,
    others: [(OwnedFd, CloneFlags); 3],
    network: OwnedFd,
    cgroup: OwnedFd,
}

fn receive(socket: BorrowedFd<'_>) -> Result<Handover, Errno> {
    let frame = FrameReceiver::new().receive(socket).map_err(|error| match error {
        ReceiveError::Receive(errno) => errno,
        ReceiveError::TimedOut => Errno::ETIMEDOUT,
        ReceiveError::Decode(_)
        | ReceiveError::DescriptorsTruncated
        | ReceiveError::DescriptorsMissing { .. }
        | ReceiveError::DescriptorsUnannounced
        | ReceiveError::Truncated => Errno::EBADMSG,
    })?;
    let frame = frame.ok_or(Errno::ENODATA)?;
    let message = ToGateProcess::decode(frame.message.as_slice()).map_err(|_| Errno::EBADMSG)?.message;
    let (Some(Message::Setup(_)), Ok(descriptors)) = (message, <[OwnedFd; 8]>::try_from(frame.descriptors))
    else {
        return Err(Errno::EBADMSG);
    };
    let [seccomp, dead_man, user, mount, ipc, uts, network, cgroup] = descriptors;
    let others =
        [(mount, CloneFlags::CLONE_NEWNS), (ipc, CloneFlags::CLONE_NEWIPC), (uts, CloneFlags::CLONE_NEWUTS)];
    Ok(Handover { seccomp, dead_man, namespaces: Namespaces { user, others, network, cgroup } })
}

impl Namespaces {
    /// The user namespace first: in it an ordinary user's gate has the right to enter the others. A network namespace that the
    /// launcher has made belongs to the host, and the gate was cloned into it.
    fn enter(self, identity: &Identity) -> Result<(), SetupFailure> {
        let network_was_entered = is_own_network(self.network.as_fd()).map_err(step(4))?;
        if !network_was_entered && identity.privileged {
            setns(&self.network, CloneFlags::CLONE_NEWNET).map_err(step(4))?;
        }
        setns(&self.user, CloneFlags::CLONE_NEWUSER).map_err(step(5))?;
        for (namespace, kind) in &self.others {
            setns(namespace, *kind).map_err(step(6))?;
        }
        if !network_was_entered && !identity.privileged {
            setns(&self.network, CloneFlags::CLONE_NEWNET).map_err(step(7))?;
        }
        setns(&self.cgroup, CloneFlags::CLONE_NEWCGROUP).map_err(step(8))
    }
}

fn is_own_network(namespace: BorrowedFd<'_>) -> Result<bool, Errno> {
    let own = nix::sys::stat::stat(Path::new("/proc/self/ns/net"))?;
    let wanted = nix::sys::stat::fstat(namespace)?;
    Ok((own.st_dev, own.st_ino) == (wanted.st_dev, wanted.st_ino))
}

/// An id of its own, where there is one, the commands' rights to files, and two capabilities over the sandbox.
fn take_identity(ids: &Identity) -> Result<(), SetupFailure> {
    if ids.separate_ids {
        let members = ids.groups.iter().filter(|group| group.member);
        let groups: Vec<Gid> = members.map(|group| Gid::from_raw(group.inside_gid)).collect();
        let (uid, gid) = (Uid::from_raw(ids.gate_uid), Gid::from_raw(ids.gate_gid));
        credentials::keep_capabilities_over_change_of_ids().map_err(step(11))?;
        if ids.privileged {
            nix::unistd::setgroups(&groups).map_err(step(11))?;
        }
        nix::unistd::setresgid(gid, gid, gid).map_err(step(12))?;
        nix::unistd::setresuid(uid, uid, uid).map_err(step(13))?;
        raise_permitted().map_err(step(14))?;
        credentials::set_file_access_ids(Uid::from_raw(ids.command_uid), Gid::from_raw(ids.command_gid))
            .map_err(step(15))?;
    }
    credentials::lock_secure_bits().map_err(step(16))?;
    credentials::keep_capabilities(&CAPABILITIES).map_err(|_| step(16)(Errno::last()))
}

fn raise_permitted() -> Result<(), Errno> {
    let permitted: CapsHashSet = caps::read(None, CapSet::Permitted).map_err(|_| Errno::last())?;
    caps::set(None, CapSet::Effective, &permitted).map_err(|_| Errno::last())
}

const ALWAYS: &[c_long] = &[
    // The event loop and its connections.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_ctl,
    libc::SYS_accept4,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_close,
    // What callers and files are.
    libc::SYS_openat2,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_faccessat2,
    libc::SYS_process_vm_readv,
    libc::SYS_pread64,
    libc::SYS_pidfd_open,
    libc::SYS_wait4,
];

/// Calls about the listener, and about descriptors of threads, which say something and change nothing.
const IOCTLS: &[u32] = &[
    seccomp_listener::COMMANDS[0],
    seccomp_listener::COMMANDS[1],
    seccomp_listener::COMMANDS[2],
    pidfd::INFO_COMMAND,
];

const WITH_ARGUMENT: &[(c_long, u32, &[u32])] = &[
    (libc::SYS_ioctl, 1, IOCTLS),
    (libc::SYS_ptrace, 0, ptrace::REQUESTS),
    (libc::SYS_kcmp, 2, &[ptrace::KCMP_DIRECTORY]),
    (libc::SYS_kill, 1, &[libc::SIGKILL as u32]),
    // Whether a thread is there.
    (libc::SYS_tgkill, 2, &[0]),
    (libc::SYS_fcntl, 1, &[libc::F_GETFD as u32, libc::F_SETFD as u32, libc::F_GETFL as u32]),
];

/// What opens a file for more than to read it.
const TO_WRITE: u32 = (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) as u32;

/// The program of the filter: a list of what a gate does once it is set up. Everything else fails with `EPERM`.
///
/// A gate reads what commands have written: paths, arguments, files. Should one of them get the better of it, it can still execute nothing,
/// start and connect to nothing, make no memory executable, send no signal but KILL, change neither memory nor registers of what it traces,
/// and make no file set-user-id. The flags of openat2(2) lie in memory, where no filter sees them: to files it has the rights that commands
/// have.
pub(super) fn filter() -> Vec<u8> {
    CallList {
        always: ALWAYS,
        without_execute: &[libc::SYS_mmap, libc::SYS_mprotect],
        with_argument: WITH_ARGUMENT,
        without_bits: &[(libc::SYS_openat, 2, TO_WRITE), (libc::SYS_fchmodat, 2, libc::S_ISUID)],
    }
    .program()
}
