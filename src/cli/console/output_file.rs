//! Files and sockets that this process makes where commands may write, too: in a workspace.
//!
//! A command can leave a link under any name there, which leads this process to a file that the command itself does not reach. So no link
//! is followed below a directory that commands may write to, what is written is a new file, and nothing is changed by its path once it is
//! there. Links that no command can have made are followed: those in the root directory, and those on the way to this user's home.

use std::{
    ffi::OsStr,
    fs::{File, Permissions},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::PermissionsExt},
    },
    path::{Component, Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat, openat2, renameat},
    sys::{
        socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket},
        stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat},
    },
    unistd::{UnlinkatFlags, User, geteuid, unlinkat},
};

use sha2::{Digest, Sha256};

use crate::{stdio::Waiting, sys::random};

/// Random bytes in the name of a file that has no name yet.
const NAME_BYTES: usize = 12;
/// So much of a file is read at once.
const READ_BYTES: usize = 64 << 10;
/// The longest address of a socket is one byte longer (unix(7)).
const SOCKET_PATH_MAX_BYTES: usize = 107;

/// A directory that was reached by no link that a command can have made, and a name in it.
#[derive(Debug)]
struct Place {
    directory: OwnedFd,
    name: PathBuf,
}

/// Makes a file in place of a regular one, or of none, and opens it for writing. Devices are opened as they are, and this process's own
/// descriptors (`/dev/stderr`, `/dev/fd/3`).
///
/// # Errors
/// `PermissionDenied`: there is a link on the way or at the end; `EEXIST`: something else is there; and those of openat2(2) and renameat(2).
pub(in crate::cli) fn create(path: &Path) -> io::Result<File> {
    if let Some(own) = own_descriptor(path)? {
        return Ok(own);
    }
    let place = Place::of(path)?;
    match place.replaceable()? {
        Replaceable::Device => {
            let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
            Ok(openat(&place.directory, &place.name, flags, Mode::empty())?.into())
        }
        Replaceable::FileOrNothing => place.put(None, |_| Ok(())),
    }
}

/// A file whose text is written at the end, after commands have run that could write to its directory.
#[derive(Debug)]
pub(in crate::cli) struct FinalFile {
    path: PathBuf,
    destination: Destination,
}

/// Where a text goes at the end.
#[derive(Debug)]
enum Destination {
    /// A device, or a descriptor of this process: no command has put another one there.
    Stream(File),
    /// A name in a directory, in which a file is made only then.
    Name(Place),
}

impl FinalFile {
    /// Makes an empty file in its place, as [`create`]: what cannot be written is known before a command runs.
    ///
    /// # Errors
    /// As of [`create`].
    pub(in crate::cli) fn prepare(path: &Path) -> io::Result<Self> {
        let destination = match own_descriptor(path)? {
            Some(own) => Destination::Stream(own),
            None => {
                let place = Place::of(path)?;
                match place.replaceable()? {
                    Replaceable::Device => Destination::Stream(create(path)?),
                    Replaceable::FileOrNothing => {
                        place.put(None, |_| Ok(()))?;
                        Destination::Name(place)
                    }
                }
            }
        };
        Ok(Self { path: path.to_owned(), destination })
    }

    /// As it was named.
    pub(in crate::cli) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts a new file with this text in the place, whatever a command has put there, and sees that the path leads to it.
    ///
    /// # Errors
    /// A directory is there, the path leads elsewhere by now; and as of [`create`].
    pub(in crate::cli) fn write(&self, text: &str) -> io::Result<()> {
        match &self.destination {
            Destination::Stream(file) => io::Write::write_all(&mut Waiting(file), text.as_bytes()),
            Destination::Name(place) => {
                let file = place.put(None, |file| io::Write::write_all(file, text.as_bytes()))?;
                leads_to(&self.path, &file)
            }
        }
    }
}

/// A file that others read while it grows, next to commands that can write to it.
#[derive(Debug)]
pub(in crate::cli) struct GrowingFile {
    path: PathBuf,
    file: File,
    written: Sha256,
}

impl GrowingFile {
    /// As [`create`].
    ///
    /// # Errors
    /// As of [`create`].
    pub(in crate::cli) fn begin(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: create(path)?, written: Sha256::new() })
    }

    /// Adds a text.
    ///
    /// # Errors
    /// Those of write(2).
    pub(in crate::cli) fn write_all(&mut self, text: &[u8]) -> io::Result<()> {
        self.written.update(text);
        io::Write::write_all(&mut Waiting(&self.file), text)
    }

    /// Sees that the path leads to this file, and that it holds what was written to it and nothing else.
    ///
    /// # Errors
    /// A command has replaced or changed it; and those of read(2).
    pub(in crate::cli) fn finish(self) -> io::Result<()> {
        if kind(&fstat(&self.file)?) != SFlag::S_IFREG || own_descriptor(&self.path)?.is_some() {
            return Ok(());
        }
        leads_to(&self.path, &self.file)?;
        let (mut file, mut found) = (&self.file, Sha256::new());
        io::Seek::rewind(&mut file)?;
        let mut bytes = vec![0; READ_BYTES];
        loop {
            match io::Read::read(&mut file, &mut bytes)? {
                0 => break,
                count => found.update(&bytes[..count]),
            }
        }
        match found.finalize() == self.written.finalize() {
            true => Ok(()),
            false => {
                Err(io::Error::other("something else has been written to it meanwhile, as commands can"))
            }
        }
    }
}

/// Sees that a path leads to a file that was made in its place.
fn leads_to(path: &Path, file: &File) -> io::Result<()> {
    let (found, own) = (Place::of(path)?.status()?, fstat(file)?);
    match found.is_some_and(|found| (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)) {
        true => Ok(()),
        false => Err(io::Error::other(
            "the path does not lead to what was written, as a command or another program has moved it or its directory",
        )),
    }
}

/// Replaces the text of a regular file, whose permissions it keeps. A process that opens it reads the old text or the new one.
///
/// # Errors
/// As of [`create`].
pub(in crate::cli) fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let place = Place::of(path)?;
    if let Replaceable::Device = place.replaceable()? {
        return Err(Errno::EEXIST.into());
    }
    place.put(Some(Permissions::from_mode(mode)), |file| io::Write::write_all(file, text.as_bytes()))?;
    Ok(())
}

/// Makes a file with this text where nothing is.
///
/// # Errors
/// `EEXIST`: something is there; as of [`create`].
pub(in crate::cli) fn create_absent(path: &Path, text: &str) -> io::Result<()> {
    let place = Place::of(path)?;
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mode = Mode::from_bits_truncate(0o644);
    let mut file = File::from(openat(&place.directory, &place.name, flags, mode)?);
    io::Write::write_all(&mut file, text.as_bytes())
}

/// Opens a file of this user for appending, or makes it.
///
/// # Errors
/// `PermissionDenied`: there is a link on the way or at the end; `EPERM`: it is another user's, has another name, or is no regular file; and those of
/// openat2(2).
pub(in crate::cli) fn append(path: &Path) -> io::Result<File> {
    if let Some(own) = own_descriptor(path)? {
        return Ok(own);
    }
    let place = Place::of(path)?;
    let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let mode = Mode::from_bits_truncate(0o644);
    let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
    let file = openat(&place.directory, &place.name, flags, mode).map_err(explained)?;
    let status = fstat(&file)?;
    let is_own = status.st_uid == geteuid().as_raw() && status.st_nlink == 1;
    if kind(&status) != SFlag::S_IFCHR && !(kind(&status) == SFlag::S_IFREG && is_own) {
        return Err(Errno::EPERM.into());
    }
    Ok(file.into())
}

/// Makes a directory and those above it that are missing.
///
/// # Errors
/// `PermissionDenied`: there is a link on the way; and those of mkdirat(2).
pub(in crate::cli) fn create_directories(path: &Path) -> io::Result<()> {
    let (mut directory, below) = start_of(path)?;
    for part in below.components() {
        let name = match part {
            Component::Normal(name) => name,
            Component::ParentDir => "..".as_ref(),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => continue,
        };
        match mkdirat(&directory, name, Mode::from_bits_truncate(0o755)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        directory = open_below(directory.as_fd(), Path::new(name))?;
    }
    Ok(())
}

/// A listening socket for this user alone, which takes its file with it.
#[derive(Debug)]
pub(in crate::cli) struct BoundSocket {
    path: PathBuf,
    place: Place,
    /// What was bound.
    file: (u64, u64),
}

/// Listens at a path where nothing is.
///
/// # Errors
/// `EADDRINUSE`: something is there; `PermissionDenied`: there is a link on the way; and those of bind(2).
pub(in crate::cli) fn listen_at(path: &Path) -> io::Result<(std::os::unix::net::UnixListener, BoundSocket)> {
    let place = Place::of(path)?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    // The file has the socket's own mode from the beginning: nothing at the path is changed later.
    fchmod(&socket, Mode::from_bits_truncate(0o600))?;
    let by_descriptor =
        Path::new(&format!("/proc/self/fd/{}", place.directory.as_raw_fd())).join(&place.name);
    if by_descriptor.as_os_str().len() > SOCKET_PATH_MAX_BYTES {
        return Err(Errno::ENAMETOOLONG.into());
    }
    bind(socket.as_raw_fd(), &UnixAddr::new(&by_descriptor)?)?;
    let status = place.status()?.ok_or(Errno::ENOENT)?;
    let file = (status.st_dev, status.st_ino);
    let bound = BoundSocket { path: path.to_owned(), place, file };
    listen(&socket, Backlog::MAXCONN)?;
    Ok((socket.into(), bound))
}

impl BoundSocket {
    /// As it was named.
    pub(in crate::cli) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        let is_ours = |status: FileStat| (status.st_dev, status.st_ino) == self.file;
        if self.place.status().ok().flatten().is_some_and(is_ours) {
            let _ = unlinkat(&self.place.directory, &self.place.name, UnlinkatFlags::NoRemoveDir);
        }
    }
}

/// What a new file may take the place of.
enum Replaceable {
    FileOrNothing,
    /// It is written to as it is: commands make none.
    Device,
}

impl Place {
    fn of(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or(Errno::EISDIR)?.into();
        let above = path.parent().unwrap_or(Path::new(""));
        let (start, below) = start_of(above)?;
        Ok(Self { directory: open_below(start.as_fd(), &below)?, name })
    }

    fn status(&self) -> io::Result<Option<FileStat>> {
        match fstatat(&self.directory, &self.name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(status) => Ok(Some(status)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn replaceable(&self) -> io::Result<Replaceable> {
        match self.status()?.as_ref().map(kind) {
            None | Some(SFlag::S_IFREG) => Ok(Replaceable::FileOrNothing),
            Some(SFlag::S_IFCHR) => Ok(Replaceable::Device),
            Some(SFlag::S_IFLNK) => Err(explained(Errno::ELOOP)),
            Some(SFlag::S_IFDIR) => Err(Errno::EISDIR.into()),
            Some(_) => Err(Errno::EEXIST.into()),
        }
    }

    /// Makes a file under a name of its own, and then gives it this one.
    fn put(
        &self,
        permissions: Option<Permissions>,
        fill: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<File> {
        let random: String =
            random::bytes::<NAME_BYTES>()?.iter().map(|byte| format!("{byte:02x}")).collect();
        let unfinished = format!(".provost-{random}");
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(0o666);
        let mut file = File::from(openat(&self.directory, Path::new(&unfinished), flags, mode)?);
        let filled = permissions.map_or(Ok(()), |permissions| file.set_permissions(permissions));
        let renamed = filled.and_then(|()| fill(&mut file)).and_then(|()| {
            let (directory, unfinished) = (&self.directory, Path::new(&unfinished));
            Ok(renameat(directory, unfinished, directory, &self.name)?)
        });
        if renamed.is_err() {
            let _ = unlinkat(&self.directory, Path::new(&unfinished), UnlinkatFlags::NoRemoveDir);
        }
        renamed.map(|()| file)
    }
}

fn kind(status: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(status.st_mode & SFlag::S_IFMT.bits())
}

/// The directory at which a path begins that no command can have put there, and the rest of the path.
fn start_of(path: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    if path.is_relative() {
        return Ok((open_directory(Path::new("."))?, path.to_owned()));
    }
    // No root is a home or holds one: on the way there are no links of commands.
    let home = User::from_uid(geteuid()).ok().flatten().map(|user| user.dir);
    if let Some(home) = home.filter(|home| home.parent().is_some())
        && let Ok(below) = path.strip_prefix(&home)
        && let Ok(start) = open_directory(&home)
    {
        return Ok((start, below.to_owned()));
    }
    let mut parts = path.components();
    let mut first = PathBuf::from("/");
    parts.next();
    first.extend(parts.clone().next());
    parts.next();
    Ok((open_directory(&first)?, parts.as_path().to_owned()))
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    Ok(open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?)
}

/// A directory below another one, by no link.
fn open_below(directory: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    openat2(directory, path, how).map_err(explained)
}

/// The kernel's text for it speaks of too many links.
fn explained(errno: Errno) -> io::Error {
    match errno {
        Errno::ELOOP => io::Error::new(
            io::ErrorKind::PermissionDenied,
            "a symbolic link is on the way, and commands can have made it: name the file by its own path",
        ),
        other => other.into(),
    }
}

/// A copy of the descriptor of this process that a path names, as shells have it.
fn own_descriptor(path: &Path) -> io::Result<Option<File>> {
    let text = path.as_os_str().as_bytes();
    let number = match text {
        b"/dev/stdout" => Some(1),
        b"/dev/stderr" => Some(2),
        _ => ["/dev/fd/", "/proc/self/fd/"].iter().find_map(|prefix| {
            let number = OsStr::from_bytes(text.strip_prefix(prefix.as_bytes())?).to_str()?;
            number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse::<u32>().ok())?
        }),
    };
    let own = match number {
        None => return Ok(None),
        Some(1) => io::stdout().as_fd().try_clone_to_owned()?,
        Some(2) => io::stderr().as_fd().try_clone_to_owned()?,
        Some(other) => {
            let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
            open(Path::new(&format!("/proc/self/fd/{other}")), flags, Mode::empty())?
        }
    };
    Ok(Some(own.into()))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::{fs::symlink, net::UnixStream},
    };

    use super::*;

    #[test]
    fn no_link_is_followed_and_what_is_there_is_replaced_and_not_changed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("outside"), "kept").unwrap();
        fs::create_dir(at("real")).unwrap();
        symlink(at("outside"), at("link")).unwrap();
        symlink(at("real"), at("directory")).unwrap();
        for link in [at("link"), at("directory/new")] {
            assert_eq!(create(&link).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            assert_eq!(append(&link).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            assert!(listen_at(&link).is_err() && replace(&link, "x", 0o644).is_err());
            assert!(create_absent(&link, "x").is_err());
        }
        assert!(create_directories(&at("directory/below")).is_err());
        fs::hard_link(at("outside"), at("other name")).unwrap();
        io::Write::write_all(&mut create(&at("other name")).unwrap(), b"new").unwrap();
        assert_eq!(
            (fs::read(at("outside")).unwrap(), fs::read(at("other name")).unwrap()),
            (b"kept".to_vec(), b"new".to_vec())
        );
        fs::hard_link(at("outside"), at("third name")).unwrap();
        assert_eq!(append(&at("third name")).unwrap_err().raw_os_error(), Some(Errno::EPERM as i32));
        assert_eq!(fs::read_dir(at("real")).unwrap().count(), 0);
    }

    #[test]
    fn a_socket_is_this_users_alone_from_the_beginning_and_goes_with_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let (listener, bound) = listen_at(&path).unwrap();
        assert_eq!(fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(UnixStream::connect(&path).is_ok() && listen_at(&path).is_err());
        drop((listener, bound));
        assert!(!path.exists());
        let (_listener, bound) = listen_at(&path).unwrap();
        fs::rename(&path, directory.path().join("moved")).unwrap();
        fs::write(&path, "another's").unwrap();
        drop(bound);
        assert!(path.exists(), "what took its place is not ours");
    }

    #[test]
    fn this_process_s_own_descriptors_are_named_as_shells_name_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let file = File::create(&path).unwrap();
        let name = format!("/dev/fd/{}", file.as_raw_fd());
        io::Write::write_all(&mut create(Path::new(&name)).unwrap(), b"x").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"x");
        assert!(own_descriptor(Path::new("/dev/fd/../null")).unwrap().is_none());
        assert!(create(Path::new("/dev/null")).is_ok());
    }
}
