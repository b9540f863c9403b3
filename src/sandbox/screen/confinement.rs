//! What a screen process gives up before it reads a byte of output: everything but the descriptors that it was handed.
//!
//! Each step succeeds, or the process does not start. Only landlock is left out where the kernel does not have it: there is
//! no file to open, and the filter refuses to try.

use std::{
    ffi::CString,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, OFlag},
    mount::MntFlags,
    sys::{
        resource::{Resource, setrlimit},
        stat::Mode,
    },
    unistd::{Gid, Uid},
};

use super::filter;
use crate::{
    proto::screen::ScreenPlan,
    sys::{
        credentials, file,
        landlock::{self, Ruleset, TcpRights},
        mount::{self, Attributes, FsOption, MountScope},
        seccomp, signals,
    },
    wire::screen::MAX_TERMINALS,
};

/// A step that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StepFailure {
    /// Counted from 1.
    pub(super) step: u32,
    pub(super) errno: Errno,
}

pub(super) fn step(step: u32) -> impl Fn(Errno) -> StepFailure {
    move |errno| StepFailure { step, errno }
}

/// Descriptors that belong to no terminal.
const OTHER_DESCRIPTORS: u64 = 32;

/// Gives up everything but `kept`. In namespaces of its own, with its ids mapped.
pub(super) fn confine(
    plan: &ScreenPlan,
    joins: Vec<OwnedFd>,
    kept: &[BorrowedFd<'_>],
) -> Result<(), StepFailure> {
    // 0 is this process. Its memory is the session's from here on.
    joins.iter().try_for_each(|join| nix::unistd::write(join, b"0").map(drop)).map_err(step(20))?;
    drop(joins);
    if plan.privileged {
        let (uid, gid) = (Uid::from_raw(plan.host_uid), Gid::from_raw(plan.host_gid));
        nix::unistd::setgroups(&[]).map_err(step(21))?;
        nix::unistd::setresgid(gid, gid, gid).map_err(step(22))?;
        nix::unistd::setresuid(uid, uid, uid).map_err(step(23))?;
    }
    let null =
        nix::fcntl::open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty()).map_err(step(24))?;
    file::replace_standard(null.as_fd()).map_err(step(25))?;
    drop(null);
    enter_empty_root()?;
    file::close_all_except(kept).map_err(step(33))?;
    signals::reset();
    nix::sys::prctl::set_dumpable(false).map_err(step(35))?;
    nix::sys::prctl::set_no_new_privs().map_err(step(36))?;
    credentials::lock_secure_bits().map_err(step(37))?;
    credentials::keep_capabilities(&[]).map_err(|_| step(38)(Errno::EPERM))?;
    let descriptors = 3 * MAX_TERMINALS as u64 + OTHER_DESCRIPTORS;
    // A core file of one byte: with 0 the kernel would start a program that takes it (core(5)).
    for (resource, limit) in [
        (Resource::RLIMIT_AS, plan.memory_bytes),
        (Resource::RLIMIT_NOFILE, descriptors),
        (Resource::RLIMIT_CORE, 1),
    ] {
        lower(resource, limit).map_err(step(39))?;
    }
    let abi = landlock::abi();
    if abi > 0 {
        let ports = if abi >= landlock::ABI_WITH_TCP {
            TcpRights::BIND.and(TcpRights::CONNECT)
        } else {
            TcpRights::NONE
        };
        Ruleset::with_tcp(abi, ports).and_then(Ruleset::enforce).map_err(step(40))?;
    }
    seccomp::install(&filter::program()).map_err(step(41))
}

/// An empty file system that cannot be written, and nothing else.
fn enter_empty_root() -> Result<(), StepFailure> {
    let option = |name, value: &str| FsOption::Value(name, CString::new(value).unwrap_or_default());
    let options = [option(c"mode", "0555"), option(c"size", "4096"), option(c"nr_inodes", "2")];
    let attributes = Attributes::NO_SET_ID.and(Attributes::NO_DEVICES).and(Attributes::NO_EXEC);
    mount::make_private(c"/").map_err(step(26))?;
    let root = mount::make(c"tmpfs", &options, attributes).map_err(step(27))?;
    mount::attach(root.as_fd(), AT_FDCWD, c"/").map_err(step(28))?;
    nix::unistd::fchdir(&root).map_err(step(29))?;
    nix::unistd::pivot_root(".", ".").map_err(step(30))?;
    nix::mount::umount2(".", MntFlags::MNT_DETACH).map_err(step(31))?;
    nix::unistd::chdir(Path::new("/")).map_err(step(32))?;
    mount::restrict(root.as_fd(), Attributes::READ_ONLY, MountScope::Single).map_err(step(32))
}

fn lower(resource: Resource, limit: u64) -> Result<(), Errno> {
    let (_, hard) = nix::sys::resource::getrlimit(resource)?;
    let limit = limit.min(hard);
    setrlimit(resource, limit, limit)
}
