//! Where sockets of the host's processes are in what a sandbox shows: by the file that each is bound to, whatever it was called when it
//! was bound, and whatever it is called now.
//!
//! What is known of a socket is the name that it was bound by and its file's number. The name mostly leads to the file. Where it does
//! not (it was relative, in another root, or the file has moved or has further names), the directories in which processes
//! are come next, and then the directories that can be written, and the session's, are searched. What comes later is not known here. Changes nothing.

use std::{
    cell::OnceCell,
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs, io,
    os::{
        fd::AsFd,
        unix::{
            ffi::OsStrExt,
            fs::{FileTypeExt, MetadataExt},
        },
    },
    path::{Component, Path, PathBuf},
};

use nix::{
    dir::{Dir, Type},
    errno::Errno,
    fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2},
    sys::stat::{fstat, fstatat},
};

use super::shown::{ShownDirectory, ShownFor};
use crate::{
    sandbox::roots::path_walk::{self, MountTable},
    sys::unix_diag::{self, BoundFile, BoundSocket},
};

const SOCKETS: &str = "/proc/self/net/unix";
/// What stands before a socket's path in its line.
const FIELDS_BEFORE_SOCKET: usize = 7;
/// The most entries of directories that are searched for sockets.
pub(super) const MAX_SEARCHED: usize = 262_144;

const BY_NAME_ONLY: &str = "the kernel has no unix_diag: sockets of the host are known by their names alone, and one that has another is not covered";
const NOT_SEARCHED: &str = "a socket of the host is not where it was bound, and the directories in which commands work have too many files to be searched \
                            for it";

/// The sockets that the host's processes have bound to files, in this network namespace.
#[derive(Debug)]
pub(super) struct HostSockets<'a> {
    mounts: &'a MountTable,
    bound: Vec<BoundSocket>,
    /// What is not known of them.
    shortfall: Option<&'static str>,
    processes: OnceCell<ProcessDirectories>,
}

/// Where sockets were found.
#[derive(Debug, Default)]
pub(super) struct FoundSockets {
    /// Each, by every path at which it is shown.
    pub places: BTreeSet<PathBuf>,
    /// Why there may be more.
    pub shortfall: Option<&'static str>,
}

/// The working directories and the roots of the host's processes.
#[derive(Debug, Default)]
struct ProcessDirectories {
    working: BTreeSet<PathBuf>,
    roots: BTreeSet<PathBuf>,
}

/// A socket's file.
struct SocketFile {
    places: Vec<PathBuf>,
    device: OsString,
    inode: u64,
    links: u64,
}

impl<'a> HostSockets<'a> {
    /// Reads what there is now.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub(super) fn read(mounts: &'a MountTable) -> io::Result<Self> {
        let (bound, shortfall) = match unix_diag::bound() {
            Ok(bound) => (bound, None),
            Err(
                Errno::ENOENT | Errno::EPROTONOSUPPORT | Errno::EAFNOSUPPORT | Errno::EACCES | Errno::EPERM,
            ) => (bound_by_name(&fs::read(SOCKETS)?), Some(BY_NAME_ONLY)),
            Err(errno) => return Err(errno.into()),
        };
        Ok(Self { mounts, bound, shortfall, processes: OnceCell::new() })
    }

    /// Those that are shown.
    pub(super) fn below(&self, shown: &[ShownDirectory<'_>]) -> FoundSockets {
        let devices = self.devices(shown);
        let may_be_shown =
            |socket: &&BoundSocket| socket.file.is_none_or(|file| devices.contains(&device_text(file)));
        let mut found = FoundSockets { shortfall: self.shortfall, ..FoundSockets::default() };
        let mut wanted: Vec<BoundFile> = Vec::new();
        for socket in self.bound.iter().filter(may_be_shown) {
            let file = self.by_name(socket, shown, &mut found.places);
            if let Some(wanted_file) = socket.file
                && file.is_none_or(|file| file.links > 1)
            {
                wanted.push(wanted_file);
            }
        }
        if !wanted.is_empty() {
            let mut left = MAX_SEARCHED;
            let is_searched = |one: &&ShownDirectory<'_>| match one.shown_for {
                ShownFor::Session | ShownFor::Writable => true,
                // Whole systems and toolchains, which nobody works in.
                ShownFor::System | ShownFor::Profile | ShownFor::SessionToRead => false,
            };
            for directory in shown.iter().filter(is_searched) {
                self.search(directory, &wanted, &mut left, &mut found.places);
            }
            if left == 0 {
                found.shortfall = Some(NOT_SEARCHED);
            }
        }
        found.places.retain(|place| shown.iter().any(|one| place.starts_with(one.path)));
        found
    }

    /// The file systems that are shown.
    fn devices(&self, shown: &[ShownDirectory<'_>]) -> BTreeSet<OsString> {
        let mounts = shown.iter().flat_map(|one| {
            self.mounts.mount_of(one.path).into_iter().chain(self.mounts.mounted_below(one.path))
        });
        mounts.map(|mount| mount.location.device().to_owned()).collect()
    }

    /// The file of a socket by its name, and whatever else is a socket there.
    fn by_name(
        &self,
        socket: &BoundSocket,
        shown: &[ShownDirectory<'_>],
        places: &mut BTreeSet<PathBuf>,
    ) -> Option<SocketFile> {
        let is_it = |file: &SocketFile| {
            socket
                .file
                .is_none_or(|wanted| file.inode as u32 == wanted.inode && file.device == *device_text(wanted))
        };
        let mut look = |candidate: PathBuf| {
            let file = self.file_at(&candidate)?;
            places.extend(file.places.iter().cloned());
            is_it(&file).then_some(file)
        };
        let is_absolute = socket.name.is_absolute();
        let first = match is_absolute {
            true => look(socket.name.clone()),
            false => shown
                .iter()
                .filter(|one| one.shown_for != ShownFor::System)
                .find_map(|one| look(one.path.join(&socket.name))),
        };
        first.or_else(|| {
            let processes = self.processes.get_or_init(ProcessDirectories::read);
            let name = socket.name.strip_prefix("/").unwrap_or(&socket.name);
            let bases = if is_absolute { &processes.roots } else { &processes.working };
            bases.iter().find_map(|base| look(base.join(name)))
        })
    }

    /// The socket at a path, with each place at which its file system shows it.
    fn file_at(&self, path: &Path) -> Option<SocketFile> {
        let (above, name) = (path.parent()?, path.file_name()?);
        let real = above.canonicalize().ok()?.join(name);
        let found = real.symlink_metadata().ok().filter(|found| found.file_type().is_socket())?;
        let open = path_walk::open(&real).ok()?;
        let location = self.mounts.location_of(open.as_fd()).ok()?;
        let mut places = location.as_ref().map(|at| self.mounts.places_of(at)).unwrap_or_default();
        // What is mounted over it is something else.
        let is_it = |place: &PathBuf| {
            place.symlink_metadata().is_ok_and(|at| (at.dev(), at.ino()) == (found.dev(), found.ino()))
        };
        places.push(real);
        places.retain(is_it);
        let device = location.map(|at| at.device().to_owned()).unwrap_or_default();
        Some(SocketFile { places, device, inode: found.ino(), links: found.nlink() })
    }

    /// Looks for files in a directory of the session and below it, on the same file system.
    fn search(
        &self,
        shown: &ShownDirectory<'_>,
        wanted: &[BoundFile],
        left: &mut usize,
        places: &mut BTreeSet<PathBuf>,
    ) {
        let Ok(top) = path_walk::open(shown.path) else { return };
        let Ok(Some(location)) = self.mounts.location_of(top.as_fd()) else { return };
        let inodes: BTreeSet<u32> = wanted
            .iter()
            .filter(|file| location.device() == &*device_text(**file))
            .map(|file| file.inode)
            .collect();
        let Ok(device) = fstat(&top).map(|stat| stat.st_dev) else { return };
        let mut directories = vec![PathBuf::from(".")];
        while let Some(directory) = directories.pop() {
            if inodes.is_empty() || *left == 0 {
                return;
            }
            let how = OpenHow::new().flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC).resolve(
                ResolveFlag::RESOLVE_BENEATH
                    | ResolveFlag::RESOLVE_NO_SYMLINKS
                    | ResolveFlag::RESOLVE_NO_XDEV,
            );
            // Gone, or closed to this process.
            let Ok(open) = openat2(&top, &directory, how) else { continue };
            let Ok(mut entries) = Dir::from_fd(open) else { continue };
            let mut others: Vec<OsString> = Vec::new();
            for entry in entries.iter().flatten() {
                *left = left.saturating_sub(1);
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                match entry.file_type() {
                    _ if name == "." || name == ".." => {}
                    Some(Type::Directory) => directories.push(directory.join(name)),
                    // Some file systems do not say what a name is.
                    Some(Type::Socket) | None => others.push(name.to_owned()),
                    Some(_) => {}
                }
            }
            for name in others {
                let Ok(stat) = fstatat(&entries, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) else {
                    continue;
                };
                let is_wanted = stat.st_dev == device && inodes.contains(&(stat.st_ino as u32));
                match stat.st_mode & libc::S_IFMT {
                    libc::S_IFDIR => directories.push(directory.join(name)),
                    libc::S_IFSOCK if is_wanted => {
                        let file = self.file_at(&plain(&shown.path.join(&directory).join(name)));
                        places.extend(file.into_iter().flat_map(|file| file.places));
                    }
                    _ => {}
                }
            }
        }
    }
}

impl ProcessDirectories {
    /// Reads the sockets of the processes that this one may look at.
    fn read() -> Self {
        let mut all = Self::default();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            if !entry.file_name().as_bytes().iter().all(u8::is_ascii_digit) {
                continue;
            }
            all.working.extend(fs::read_link(entry.path().join("cwd")));
            all.roots
                .extend(fs::read_link(entry.path().join("root")).ok().filter(|root| root != Path::new("/")));
        }
        all
    }
}

/// Without the `.` that stands for the directory itself.
fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

/// As the mount table writes it.
fn device_text(file: BoundFile) -> OsString {
    format!("{}:{}", file.device.0, file.device.1).into()
}

/// The names in a list of unix sockets. Abstract ones begin with `@`, and many have none.
fn bound_by_name(text: &[u8]) -> Vec<BoundSocket> {
    let path = |line: &[u8]| {
        let mut rest = line;
        for _ in 0..FIELDS_BEFORE_SOCKET {
            let end = rest.trim_ascii_start().iter().position(|byte| *byte == b' ')?;
            rest = rest.trim_ascii_start().get(end..)?;
        }
        let path = rest.strip_prefix(b" ")?;
        (!path.is_empty() && !path.starts_with(b"@")).then(|| PathBuf::from(OsStr::from_bytes(path)))
    };
    let names = text.split(|byte| *byte == b'\n').skip(1).filter_map(path);
    names.map(|name| BoundSocket { name, file: None }).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn found(bound: Option<Vec<BoundSocket>>, shown: &[(&Path, ShownFor)]) -> BTreeSet<PathBuf> {
        let mounts = MountTable::read().unwrap();
        let mut sockets = HostSockets::read(&mounts).unwrap();
        sockets.bound = bound.unwrap_or(sockets.bound);
        let shown: Vec<_> = shown
            .iter()
            .map(|(path, shown_for)| ShownDirectory { path, shown_for: *shown_for, is_recursive: true })
            .collect();
        sockets.below(&shown).places
    }

    #[test]
    fn names_are_read_as_the_kernel_writes_them() {
        let sockets = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 12345 /a b/x.sock\n\
            0000000000000000: 00000002 00000000 00010000 0001 01   345 ./y.sock\n\
            0000000000000000: 00000002 00000000 00000000 0002 01 6 @abstract\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 7\n";
        let names: Vec<_> = bound_by_name(sockets).into_iter().map(|socket| socket.name).collect();
        assert_eq!(names, ["/a b/x.sock", "./y.sock"].map(PathBuf::from));
    }

    #[test]
    fn sockets_are_found_whatever_they_are_called_now_and_nothing_else_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        let other = tempfile::tempdir().unwrap();
        fs::create_dir_all(path.join("d/e")).unwrap();
        let _named = UnixListener::bind(path.join("d/s.sock")).unwrap();
        let _moved = UnixListener::bind(path.join("moved")).unwrap();
        let _linked = UnixListener::bind(path.join("linked")).unwrap();
        let _outside = UnixListener::bind(other.path().join("s.sock")).unwrap();
        fs::write(path.join("file"), "").unwrap();
        std::os::unix::fs::symlink("d/s.sock", path.join("link")).unwrap();
        let root = [(&*path, ShownFor::Session)];
        if unix_diag::bound().is_ok() {
            fs::rename(path.join("moved"), path.join("d/e/now")).unwrap();
            fs::hard_link(path.join("linked"), path.join("d/e/second")).unwrap();
            let all = ["d/e/now", "d/e/second", "d/s.sock", "linked"].map(|name| path.join(name));
            assert_eq!(found(None, &root), BTreeSet::from(all));
        }
        let names = ["d/s.sock", "./d/./s.sock", "../s.sock", "file", "link", "/d/s.sock"];
        let bound = names.map(|name| BoundSocket { name: name.into(), file: None });
        assert_eq!(found(Some(bound.to_vec()), &root), BTreeSet::from([path.join("d/s.sock")]));
    }
}
