//! Landlock: landlock_create_ruleset(2), landlock_add_rule(2), landlock_restrict_self(2).
//!
//! Never best effort: a right that the kernel does not know is not asked for, because the ABI was looked at
//! first, and whatever then fails is an error. Decides nothing about which paths get which rights.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;

/// Rights on files, `LANDLOCK_ACCESS_FS_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRights(u64);

impl FileRights {
    /// None.
    pub const NONE: Self = Self(0);
    /// Execute a file.
    pub const EXECUTE: Self = Self(1);
    /// Open a file for writing.
    pub const WRITE_FILE: Self = Self(1 << 1);
    /// Open a file for reading.
    pub const READ_FILE: Self = Self(1 << 2);
    /// List a directory.
    pub const READ_DIRECTORY: Self = Self(1 << 3);
    /// Truncate a file (ABI 3).
    pub const TRUNCATE: Self = Self(1 << 14);
    /// ioctl(2) on a device (ABI 5).
    pub const DEVICE_IOCTL: Self = Self(1 << 15);
    /// Connect to a unix socket by path (ABI 9). Sockets of the same domain need no right.
    pub const CONNECT_SOCKET: Self = Self(1 << 16);

    /// What can be done with a file, as opposed to a directory.
    const OF_FILES: Self = Self(
        Self::EXECUTE.0 | Self::WRITE_FILE.0 | Self::READ_FILE.0 | Self::TRUNCATE.0 | Self::DEVICE_IOCTL.0,
    );

    /// Every right that this ABI knows.
    #[must_use]
    pub const fn all(abi: u32) -> Self {
        Self(match abi {
            0 => 0,
            1 => (1 << 13) - 1,
            2 => (1 << 14) - 1,
            3 | 4 => (1 << 15) - 1,
            5..=8 => (1 << 16) - 1,
            _ => (1 << 17) - 1,
        })
    }

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These rights but those.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    const fn within(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// Rights on TCP ports, `LANDLOCK_ACCESS_NET_*` (ABI 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpRights(u64);

impl TcpRights {
    /// Neither.
    pub const NONE: Self = Self(0);
    /// bind(2) a socket to a port.
    pub const BIND: Self = Self(1);
    /// connect(2) to a port.
    pub const CONNECT: Self = Self(1 << 1);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The first ABI with rights on TCP ports.
pub const ABI_WITH_TCP: u32 = 4;

/// Scopes, `LANDLOCK_SCOPE_*` (ABI 6): abstract unix sockets, and signals, stay within the domain.
const SCOPES: u64 = 1 | (1 << 1);

#[repr(C)]
struct RulesetAttributes {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

#[repr(C)]
struct NetPort {
    allowed_access: u64,
    port: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

const CREATE_VERSION: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;
const RULE_NET_PORT: u32 = 2;

/// The version of the kernel's interface; 0 when there is none or it is switched off.
#[must_use]
pub fn abi() -> u32 {
    // SAFETY: with the version flag no memory is read.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, CREATE_VERSION)
    };
    u32::try_from(version).unwrap_or(0)
}

/// Rules in the making.
#[derive(Debug)]
pub struct Ruleset {
    descriptor: OwnedFd,
    handled: FileRights,
}

impl Ruleset {
    /// Starts one that refuses every file right of this ABI and, from ABI 6, keeps signals and abstract
    /// sockets inside.
    ///
    /// # Errors
    /// The errno of landlock_create_ruleset(2).
    pub fn new(abi: u32) -> Result<Self, Errno> {
        Self::with_tcp(abi, TcpRights::NONE)
    }

    /// As [`Ruleset::new`], and refuses these rights on every TCP port.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the ABI does not know rights on TCP ports; else the errno of landlock_create_ruleset(2).
    pub fn with_tcp(abi: u32, tcp: TcpRights) -> Result<Self, Errno> {
        if tcp != TcpRights::NONE && abi < ABI_WITH_TCP {
            return Err(Errno::EOPNOTSUPP);
        }
        let handled = FileRights::all(abi);
        let attributes = RulesetAttributes {
            handled_access_fs: handled.0,
            handled_access_net: tcp.0,
            scoped: if abi >= 6 { SCOPES } else { 0 },
        };
        // An older kernel refuses (E2BIG) what it does not know unless it is zero, which is what we give it.
        // SAFETY: the structure has the size that is said and outlives the call.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_landlock_create_ruleset,
                &raw const attributes,
                size_of::<RulesetAttributes>(),
                0_u32,
            )
        };
        // SAFETY: on success the kernel has just made this descriptor for us alone (it is close-on-exec).
        let descriptor = Errno::result(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as i32) })?;
        Ok(Self { descriptor, handled })
    }

    /// Close-on-exec.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Allows rights on what is open as `directory`, and on everything below it.
    ///
    /// # Errors
    /// The errno of landlock_add_rule(2).
    pub fn allow_below(&self, directory: BorrowedFd<'_>, rights: FileRights) -> Result<(), Errno> {
        self.allow(directory, rights.within(self.handled))
    }

    /// Allows rights on one file; those that only directories have are left out.
    ///
    /// # Errors
    /// The errno of landlock_add_rule(2).
    pub fn allow_file(&self, file: BorrowedFd<'_>, rights: FileRights) -> Result<(), Errno> {
        self.allow(file, rights.within(self.handled).within(FileRights::OF_FILES))
    }

    /// Allows rights on one TCP port.
    ///
    /// # Errors
    /// The errno of landlock_add_rule(2).
    pub fn allow_port(&self, port: u16, rights: TcpRights) -> Result<(), Errno> {
        let rule = NetPort { allowed_access: rights.0, port: port.into() };
        // SAFETY: the structure is laid out as the kernel's and outlives the call.
        let done = unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                self.descriptor.as_raw_fd(),
                RULE_NET_PORT,
                &raw const rule,
                0_u32,
            )
        };
        Errno::result(done).map(drop)
    }

    fn allow(&self, object: BorrowedFd<'_>, rights: FileRights) -> Result<(), Errno> {
        let rule = PathBeneath { allowed_access: rights.0, parent_fd: object.as_raw_fd() };
        // SAFETY: the structure is laid out as the kernel's (packed) and outlives the call.
        let done = unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                self.descriptor.as_raw_fd(),
                RULE_PATH_BENEATH,
                &raw const rule,
                0_u32,
            )
        };
        Errno::result(done).map(drop)
    }

    /// Puts the calling thread and all it will start under these rules, for ever. Needs `no_new_privs`.
    ///
    /// # Errors
    /// The errno of landlock_restrict_self(2).
    pub fn enforce(self) -> Result<(), Errno> {
        // SAFETY: only numbers are passed.
        let done =
            unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.descriptor.as_raw_fd(), 0_u32) };
        Errno::result(done).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abi_has_the_rights_of_the_one_before_it() {
        for abi in 0..12 {
            let (older, newer) = (FileRights::all(abi), FileRights::all(abi + 1));
            assert_eq!(older.within(newer), older, "{abi}");
        }
        assert_eq!(FileRights::all(4).within(FileRights::DEVICE_IOCTL), FileRights(0));
        assert_eq!(FileRights::all(8).within(FileRights::CONNECT_SOCKET), FileRights(0));
        assert_eq!(FileRights::all(9).within(FileRights::CONNECT_SOCKET), FileRights::CONNECT_SOCKET);
        assert_eq!(FileRights::all(9).without(FileRights::CONNECT_SOCKET), FileRights::all(8));
    }

    #[test]
    fn rights_on_ports_are_refused_where_the_kernel_has_none() {
        assert_eq!(Ruleset::with_tcp(3, TcpRights::BIND).map(drop), Err(Errno::EOPNOTSUPP));
    }
}
