//! The mount API by descriptor: open_tree(2), move_mount(2), mount_setattr(2), fsopen(2).
//!
//! Mounts are made detached, given their attributes, and then attached, so that no process sees one with fewer
//! restrictions than planned.

use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use nix::errno::Errno;

use super::namespace::{IdPair, make_user_namespace, map_lines};

/// Whether a call affects the mounts below a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountScope {
    /// The one mount.
    Single,
    /// The mounts below it too.
    Recursive,
}

impl MountScope {
    fn flag(self) -> libc::c_uint {
        match self {
            Self::Single => 0,
            Self::Recursive => libc::AT_RECURSIVE as libc::c_uint,
        }
    }
}

/// Attributes of a mount, `MOUNT_ATTR_*` of mount_setattr(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes(u64);

impl Attributes {
    /// Set-id bits of programs are without effect.
    pub const NO_SET_ID: Self = Self(libc::MOUNT_ATTR_NOSUID);
    /// Device nodes cannot be opened.
    pub const NO_DEVICES: Self = Self(libc::MOUNT_ATTR_NODEV);
    /// Programs cannot be executed.
    pub const NO_EXEC: Self = Self(libc::MOUNT_ATTR_NOEXEC);
    /// Nothing can be written.
    pub const READ_ONLY: Self = Self(libc::MOUNT_ATTR_RDONLY);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Makes a detached copy of the mount at `path` (open_tree(2) with `OPEN_TREE_CLONE`). Links are not followed. Where the
/// mount is shared, the copy is its peer until [`leave_peer_group`].
/// An empty path means what `directory` itself is open on.
///
/// # Errors
/// The errno of open_tree(2).
pub fn copy(directory: BorrowedFd<'_>, path: &CStr, reach: MountScope) -> Result<OwnedFd, Errno> {
    let flags = libc::OPEN_TREE_CLONE
        | libc::OPEN_TREE_CLOEXEC
        | (libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW) as libc::c_uint
        | reach.flag();
    // SAFETY: `path` is NUL-terminated and outlives the call; the other arguments are plain numbers.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, directory.as_raw_fd(), path.as_ptr(), flags) };
    // SAFETY: on success the kernel has just made this descriptor for us alone.
    Errno::result(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Attaches a detached mount at `path` below `directory` (move_mount(2)). An empty path means `directory` itself.
///
/// # Errors
/// The errno of move_mount(2).
pub fn attach(mount: BorrowedFd<'_>, directory: BorrowedFd<'_>, path: &CStr) -> Result<(), Errno> {
    let mut flags = libc::MOVE_MOUNT_F_EMPTY_PATH;
    if path.is_empty() {
        flags |= libc::MOVE_MOUNT_T_EMPTY_PATH;
    }
    // SAFETY: both paths are NUL-terminated and outlive the call; the other arguments are plain numbers.
    let done = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_raw_fd(),
            c"".as_ptr(),
            directory.as_raw_fd(),
            path.as_ptr(),
            flags,
        )
    };
    Errno::result(done).map(drop)
}

/// Adds attributes to a mount (mount_setattr(2)).
///
/// # Errors
/// The errno of mount_setattr(2).
pub fn restrict(mount: BorrowedFd<'_>, attributes: Attributes, reach: MountScope) -> Result<(), Errno> {
    set(mount, reach, &libc::mount_attr { attr_set: attributes.0, attr_clr: 0, propagation: 0, userns_fd: 0 })
}

/// Maps the ids of a detached mount's files through a user namespace (mount_setattr(2), `MOUNT_ATTR_IDMAP`).
///
/// # Errors
/// `EINVAL` when the file system cannot do it; else the errno of mount_setattr(2).
pub fn map_ids(mount: BorrowedFd<'_>, user_namespace: BorrowedFd<'_>) -> Result<(), Errno> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: user_namespace.as_raw_fd() as u64,
    };
    set(mount, MountScope::Single, &attributes)
}

/// Tries [`map_ids`] on a detached copy of the mount of `object`, of whose owner the ids would be mapped to `id`.
///
/// # Errors
/// As [`map_ids`]; of open_tree(2); or of the user namespace that the ids are mapped by.
pub fn try_map_ids(object: BorrowedFd<'_>, (uid, gid): (u32, u32), id: u32) -> Result<(), Errno> {
    let lines = |inside| map_lines(&[IdPair { inside, outside: id }]);
    let ids = make_user_namespace(&lines(uid), &lines(gid))?;
    map_ids(copy(object, c"", MountScope::Single)?.as_fd(), ids.as_fd())
}

/// Makes a detached copy private: otherwise mounts inside it would propagate to the mount that it was copied from,
/// and back.
///
/// # Errors
/// The errno of mount_setattr(2).
pub fn leave_peer_group(mount: BorrowedFd<'_>, reach: MountScope) -> Result<(), Errno> {
    let attributes =
        libc::mount_attr { attr_set: 0, attr_clr: 0, propagation: libc::MS_PRIVATE, userns_fd: 0 };
    set(mount, reach, &attributes)
}

/// Stops mount propagation in both directions for everything at and below `path`.
///
/// # Errors
/// The errno of mount_setattr(2).
pub fn make_private(path: &CStr) -> Result<(), Errno> {
    let attributes =
        libc::mount_attr { attr_set: 0, attr_clr: 0, propagation: libc::MS_PRIVATE, userns_fd: 0 };
    // SAFETY: the path is NUL-terminated and the structure has the size that is said; both outlive the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    Errno::result(done).map(drop)
}

fn set(mount: BorrowedFd<'_>, reach: MountScope, attributes: &libc::mount_attr) -> Result<(), Errno> {
    let flags = libc::AT_EMPTY_PATH as libc::c_uint | reach.flag();
    // SAFETY: the path is NUL-terminated and the structure has the size that is said; both outlive the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(attributes),
            size_of::<libc::mount_attr>(),
        )
    };
    Errno::result(done).map(drop)
}

const FSCONFIG_SET_STRING: libc::c_uint = 1;
const FSCONFIG_SET_FLAG: libc::c_uint = 0;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;

/// An option of a new file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FsOption {
    /// A word that stands alone.
    Flag(&'static CStr),
    /// `name=value`.
    Value(&'static CStr, CString),
}

/// Makes a new file system of this kind and a detached mount of it (fsopen(2), fsconfig(2), fsmount(2)).
///
/// # Errors
/// The errno of the call that failed.
pub fn make(kind: &CStr, options: &[FsOption], attributes: Attributes) -> Result<OwnedFd, Errno> {
    // SAFETY: the name is NUL-terminated and outlives the call.
    let context = unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) };
    // SAFETY: on success the kernel has just made this descriptor for us alone.
    let context = Errno::result(context).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as i32) })?;
    for option in options {
        let (command, name, value) = match option {
            FsOption::Flag(name) => (FSCONFIG_SET_FLAG, name.as_ptr(), std::ptr::null()),
            FsOption::Value(name, value) => (FSCONFIG_SET_STRING, name.as_ptr(), value.as_ptr()),
        };
        configure(&context, command, name, value)?;
    }
    configure(&context, FSCONFIG_CMD_CREATE, std::ptr::null(), std::ptr::null())?;
    // SAFETY: only numbers are passed.
    let mount =
        unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, attributes.0) };
    // SAFETY: on success the kernel has just made this descriptor for us alone.
    Errno::result(mount).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn configure(
    context: &OwnedFd,
    command: libc::c_uint,
    name: *const libc::c_char,
    value: *const libc::c_char,
) -> Result<(), Errno> {
    // SAFETY: name and value are null where the command takes none, else NUL-terminated and alive.
    let done = unsafe { libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), command, name, value, 0) };
    Errno::result(done).map(drop)
}
