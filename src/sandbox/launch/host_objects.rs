//! What other programs of the host have below a root and no command may use there: sockets on which they listen, and file
//! systems that are mounted below it, in which nobody looks for dangerous changes.
//!
//! Both are read from /proc when a sandbox is launched, and covered in it. What comes later is not known here. Opens
//! nothing for writing.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs, io,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Component, Path, PathBuf},
};

use nix::{
    fcntl::{OFlag, OpenHow, ResolveFlag, openat2},
    sys::stat::fstat,
};

use crate::sandbox::roots::Root;

const MOUNTS: &str = "/proc/self/mountinfo";
const SOCKETS: &str = "/proc/self/net/unix";
/// What stands before a socket's path in its line, and before a mount's.
const FIELDS_BEFORE_SOCKET: usize = 7;
const FIELDS_BEFORE_MOUNT: usize = 4;
/// The most of one root that are covered.
pub const MAX_COVERED: usize = 512;

/// The host's mounts and sockets.
#[derive(Debug, Default)]
pub struct HostObjects {
    mounts: Vec<PathBuf>,
    /// As they were bound: some relative to a directory that is not known.
    sockets: Vec<PathBuf>,
}

/// What is covered in a root.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CoveredObjects {
    /// Where file systems are mounted below it.
    pub mounts: BTreeSet<PathBuf>,
    /// Sockets of the host in it.
    pub sockets: BTreeSet<PathBuf>,
}

impl HostObjects {
    /// Reads what there is now.
    ///
    /// # Errors
    /// /proc cannot be read.
    pub fn read() -> io::Result<Self> {
        Ok(Self { mounts: mount_points(&fs::read(MOUNTS)?), sockets: bound_sockets(&fs::read(SOCKETS)?) })
    }

    /// What of it is below a root.
    pub fn below(&self, root: &Root) -> CoveredObjects {
        let is_below = |path: &&PathBuf| path.starts_with(&root.path) && **path != root.path;
        let mounts = self.mounts.iter().filter(is_below).cloned().collect();
        let sockets = self.sockets.iter().filter_map(|path| socket_below(root, path)).collect();
        CoveredObjects { mounts, sockets }
    }
}

/// The place of a socket below a root, if there is one. A relative path may be of any directory.
fn socket_below(root: &Root, bound: &Path) -> Option<PathBuf> {
    let below = if bound.is_absolute() { bound.strip_prefix(&root.path).ok()? } else { bound };
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if below.as_os_str().is_empty() || !below.components().all(is_plain) {
        return None;
    }
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC).resolve(
        ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_XDEV,
    );
    let found = fstat(openat2(root.descriptor.as_fd(), below, how).ok()?).ok()?;
    let below: PathBuf = below.components().filter(|part| *part != Component::CurDir).collect();
    (found.st_mode & libc::S_IFMT == libc::S_IFSOCK).then(|| root.path.join(below))
}

/// The mount points in a mountinfo (proc_pid_mountinfo(5)).
fn mount_points(text: &[u8]) -> Vec<PathBuf> {
    let lines = text.split(|byte| *byte == b'\n');
    let points = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(FIELDS_BEFORE_MOUNT));
    points.map(|point| PathBuf::from(OsStr::from_bytes(&unescaped(point)))).collect()
}

/// The kernel writes spaces, tabs, line feeds and backslashes as `\` and three octal digits.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let digits = |byte: &u8| (b'0'..=b'7').contains(byte);
        match (first, after) {
            (b'\\', [high, middle, low, behind @ ..]) if [high, middle, low].into_iter().all(digits) => {
                let value = [high, middle, low]
                    .iter()
                    .fold(0_u8, |sum, digit| sum.wrapping_mul(8).wrapping_add(**digit - b'0'));
                plain.push(value);
                rest = behind;
            }
            _ => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

/// The paths in a list of unix sockets. Abstract ones begin with `@`, and many have none.
fn bound_sockets(text: &[u8]) -> Vec<PathBuf> {
    let path = |line: &[u8]| {
        let mut rest = line;
        for _ in 0..FIELDS_BEFORE_SOCKET {
            let end = rest.trim_ascii_start().iter().position(|byte| *byte == b' ')?;
            rest = rest.trim_ascii_start().get(end..)?;
        }
        let path = rest.strip_prefix(b" ")?;
        (!path.is_empty() && !path.starts_with(b"@")).then(|| PathBuf::from(OsStr::from_bytes(path)))
    };
    text.split(|byte| *byte == b'\n').skip(1).filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::sandbox::roots::RootRole;

    fn root(directory: &Path) -> Root {
        let descriptor = fs::File::open(directory).unwrap().into();
        Root { path: directory.to_owned(), descriptor, role: RootRole::Work }
    }

    #[test]
    fn paths_are_read_as_the_kernel_writes_them() {
        let mounts = b"1 2 0:3 / / rw - tmpfs none rw\n4 1 0:5 /x /a\\040b\\134c rw,nosuid master:1 - ext4 /dev/a rw\n";
        assert_eq!(mount_points(mounts), ["/", "/a b\\c"].map(PathBuf::from));
        let sockets = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 12345 /a b/x.sock\n\
            0000000000000000: 00000002 00000000 00010000 0001 01   345 ./y.sock\n\
            0000000000000000: 00000002 00000000 00000000 0002 01 6 @abstract\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 7\n";
        assert_eq!(bound_sockets(sockets), ["/a b/x.sock", "./y.sock"].map(PathBuf::from));
    }

    #[test]
    fn sockets_below_a_root_are_found_however_they_were_bound_and_nothing_else_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        let other = tempfile::tempdir().unwrap();
        fs::create_dir(path.join("d")).unwrap();
        let _inside = UnixListener::bind(path.join("d/s.sock")).unwrap();
        let _outside = UnixListener::bind(other.path().join("s.sock")).unwrap();
        fs::write(path.join("file"), "").unwrap();
        std::os::unix::fs::symlink("d/s.sock", path.join("link")).unwrap();
        let found = HostObjects::read().unwrap().below(&root(&path));
        assert_eq!(found.sockets, BTreeSet::from([path.join("d/s.sock")]));
        assert_eq!(found.mounts, BTreeSet::new());
        let bound = ["d/s.sock", "./d/./s.sock", "../s.sock", "file", "link", "/d/s.sock"].map(PathBuf::from);
        let objects =
            HostObjects { mounts: vec![path.clone(), path.join("m"), "/m".into()], sockets: bound.into() };
        let found = objects.below(&root(&path));
        assert_eq!(found.sockets, BTreeSet::from([path.join("d/s.sock")]));
        assert_eq!(found.mounts, BTreeSet::from([path.join("m")]));
    }
}
