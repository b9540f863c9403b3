//! What /proc says about a caller: its thread group, its terminal, its directory, and after an exec its program and arguments;
//! and what its memory holds while it waits in its exec.
//!
//! Through the host's /proc, which was opened before the gate entered the sandbox.

use std::{
    borrow::Cow,
    cell::Cell,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{OFlag, openat, readlinkat},
    sys::stat::{FileStat, Mode, fstat, fstatat},
};

use crate::{
    caller::{Viewpoint, walk::OwnNumbers},
    policy::command::program::DirectoryId,
    sys::{
        file, namespace,
        pidfd::{self, ThreadInfo},
        ptrace,
    },
};

/// The host's /proc.
#[derive(Debug)]
pub(super) struct HostProc {
    directory: OwnedFd,
    /// The gate's own descriptors.
    own: OwnedFd,
    /// Whether the kernel says by descriptor what a thread is.
    has_thread_info: Cell<bool>,
}

/// What identifies a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) group: i32,
    /// The number of its cgroup of version 2, where the kernel says it.
    pub(super) cgroup: Option<u64>,
}

/// A line of a kept shell: the shell, and its descendants that started since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShellLine {
    /// In the sandbox's pid namespace.
    pub(super) shell: i32,
    /// As `starttime` of proc_pid_stat(5).
    pub(super) since_ticks: u64,
}

/// The names of a thread's cgroups that are children of the sandbox's: the leaf of a terminal.
#[derive(Debug, Default)]
pub(super) struct Leaves {
    pub(super) version_2: Option<String>,
    pub(super) version_1: Vec<String>,
}

/// A file, and its version: `st_dev`, `st_ino`, and `st_ctim` in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileVersion {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) changed_nanos: i64,
}

impl FileVersion {
    /// Whether it is the file, whatever happened to it meanwhile: that of an open descriptor is no other file's.
    pub(super) fn is_same_file(self, other: Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    pub(super) fn of(status: &FileStat) -> Self {
        Self {
            device: status.st_dev,
            inode: status.st_ino,
            changed_nanos: status.st_ctime.wrapping_mul(1_000_000_000).wrapping_add(status.st_ctime_nsec),
        }
    }
}

/// Between a process and the shell that it comes from. Deeper is not looked.
const MAX_ANCESTORS: usize = 64;

/// More than the cgroups of a process take on most hosts.
const CGROUPS_BYTES: usize = 4096;

const OPEN_PATH: OFlag = OFlag::O_PATH.union(OFlag::O_CLOEXEC);

impl HostProc {
    /// # Errors
    /// The errno of open(2).
    pub(super) fn new(directory: OwnedFd) -> Result<Self, Errno> {
        let own = openat(&directory, "self/fd", OPEN_PATH | OFlag::O_DIRECTORY, Mode::empty())?;
        Ok(Self { directory, own, has_thread_info: Cell::new(true) })
    }

    /// Where the gate looks when it answers. It is not under the sandbox's filter, and needs no nonce.
    pub(super) fn viewpoint(&self) -> Viewpoint<'_> {
        Viewpoint {
            proc: self.directory.as_fd(),
            own_descriptors: self.own.as_fd(),
            nonce: Default::default(),
        }
    }

    fn open(&self, path: &str, flags: OFlag) -> Result<OwnedFd, Errno> {
        openat(&self.directory, path, flags | OFlag::O_CLOEXEC, Mode::empty())
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, Errno> {
        file::read_at(self.directory.as_fd(), Path::new(path))
    }

    /// The thread group and the cgroup of a thread, with a descriptor that is only to be closed.
    pub(super) fn caller(&self, thread: i32) -> Result<(Caller, Option<OwnedFd>), Errno> {
        if self.has_thread_info.get() {
            match pidfd::thread_info(thread) {
                Ok((opened, ThreadInfo { group, cgroup })) => {
                    return Ok((Caller { group, cgroup: Some(cgroup) }, Some(opened)));
                }
                Err(Errno::ESRCH) => return Err(Errno::ESRCH),
                Err(Errno::EINVAL | Errno::ENOTTY | Errno::ENODATA) => self.has_thread_info.set(false),
                // For want of descriptors, for example.
                Err(_) => {}
            }
        }
        // Leaders, by far the most callers, are known without looking at the status.
        let group = match namespace::reaches_leader(thread) {
            Ok(()) => thread,
            Err(_) => self.status_number(thread, "Tgid")?,
        };
        Ok((Caller { group, cgroup: None }, None))
    }

    /// A thread's and its group's numbers in the innermost pid namespace, the sandbox's.
    pub(super) fn inner_numbers(&self, thread: i32) -> Result<OwnNumbers, Errno> {
        let number = |field| self.status_number(thread, field);
        Ok(OwnNumbers { thread: number("NSpid")?, group: number("NStgid")? })
    }

    /// The last number of a line.
    fn status_number(&self, thread: i32, field: &str) -> Result<i32, Errno> {
        let status = self.read(&format!("{thread}/status"))?;
        let status = String::from_utf8_lossy(&status);
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.and_then(|line| line.split_ascii_whitespace().last()?.parse().ok()).ok_or(Errno::EBADMSG)
    }

    /// The time since the boot, as processes have it for their start.
    pub(super) fn uptime_ticks(&self) -> Result<u64, Errno> {
        let uptime = self.read("uptime")?;
        let uptime = String::from_utf8_lossy(&uptime);
        let (seconds, hundredths) =
            uptime.split(' ').next().and_then(|text| text.split_once('.')).ok_or(Errno::EBADMSG)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| Errno::EBADMSG);
        // USER_HZ is 100 on every machine that is known here.
        Ok(number(seconds)? * 100 + number(hundredths)?)
    }

    /// Whether a process is the shell of a line, or comes from it by processes that have started since the line began. What has lost its
    /// parent comes from nobody knows where.
    pub(super) fn is_of_line(&self, mut process: i32, line: ShellLine) -> bool {
        for _ in 0..MAX_ANCESTORS {
            let Ok((parent, started_at)) = self.parent_and_start(process) else { return false };
            if started_at < line.since_ticks {
                return self.status_number(process, "NSpid") == Ok(line.shell);
            }
            process = parent;
        }
        false
    }

    fn parent_and_start(&self, process: i32) -> Result<(i32, u64), Errno> {
        let stat = self.read(&format!("{process}/stat"))?;
        let stat = String::from_utf8_lossy(&stat);
        // The name of the program stands in parentheses, and may hold any.
        let (_, fields) = stat.rsplit_once(") ").ok_or(Errno::EBADMSG)?;
        let mut fields = fields.split(' ').skip(1);
        let parent = fields.next().and_then(|field| field.parse().ok());
        let started_at = fields.nth(17).and_then(|field| field.parse().ok());
        parent.zip(started_at).ok_or(Errno::EBADMSG)
    }

    /// The terminal's leaves that a thread is in.
    pub(super) fn leaves_of(&self, thread: i32) -> Result<Leaves, Errno> {
        let mut part = [0; CGROUPS_BYTES];
        let name = format!("{thread}/cgroup");
        let opened = self.open(&name, OFlag::O_RDONLY)?;
        // The kernel gives it whole where there is room for it.
        let groups = match nix::unistd::read(&opened, &mut part)? {
            count if count < part.len() => Cow::Borrowed(&part[..count]),
            _ => Cow::Owned(self.read(&name)?),
        };
        let groups = String::from_utf8_lossy(&groups);
        let mut leaves = Leaves::default();
        for line in groups.lines() {
            let mut parts = line.splitn(3, ':');
            let (number, path) = (parts.next(), parts.nth(1).and_then(|path| path.strip_prefix('/')));
            let Some(name) = path.filter(|path| !path.is_empty() && !path.contains('/')) else { continue };
            match number {
                Some("0") => leaves.version_2 = Some(name.to_owned()),
                _ => leaves.version_1.push(name.to_owned()),
            }
        }
        Ok(leaves)
    }

    /// The thread's working directory.
    pub(super) fn directory_of(&self, thread: i32) -> Result<OwnedFd, Errno> {
        self.open(&format!("{thread}/cwd"), OPEN_PATH)
    }

    /// What the thread has open under this number.
    pub(super) fn descriptor_of(&self, thread: i32, descriptor: i32) -> Result<OwnedFd, Errno> {
        self.open(&format!("{thread}/fd/{descriptor}"), OPEN_PATH).map_err(|errno| match errno {
            Errno::ENOENT => Errno::EBADF,
            other => other,
        })
    }

    /// The path of an open file, in the sandbox's view.
    pub(super) fn path_of(&self, object: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
        use std::os::{fd::AsRawFd, unix::ffi::OsStringExt};
        let link = object.as_raw_fd().to_string();
        readlinkat(&self.own, link.as_str()).map(OsStringExt::into_vec)
    }

    /// The path of an open file; of one that was removed or replaced meanwhile, the one that it had.
    pub(super) fn path_of_file(&self, object: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
        // What d_path() adds (fs/d_path.c). A file that has no name any more is not named so itself.
        const REMOVED: &[u8] = b" (deleted)";
        let mut path = self.path_of(object)?;
        // One in memory never had a name, and what it calls itself may be anything.
        if path.ends_with(REMOVED) && !path.starts_with(b"/memfd:") && fstat(object)?.st_nlink == 0 {
            path.truncate(path.len() - REMOVED.len());
        }
        Ok(path)
    }

    /// Opens a file again, for reading, by a descriptor without that right.
    pub(super) fn open_for_reading(&self, object: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        use std::os::fd::AsRawFd;
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        openat(&self.own, object.as_raw_fd().to_string().as_str(), flags | OFlag::O_CLOEXEC, Mode::empty())
    }

    /// The file that a process executes.
    pub(super) fn program_of(&self, process: i32) -> Result<FileVersion, Errno> {
        let status =
            fstatat(&self.directory, format!("{process}/exe").as_str(), nix::fcntl::AtFlags::empty())?;
        Ok(FileVersion::of(&status))
    }

    /// The same, opened.
    pub(super) fn open_program(&self, process: i32) -> Result<OwnedFd, Errno> {
        self.open(&format!("{process}/exe"), OPEN_PATH)
    }

    /// The identity of a process's working directory.
    pub(super) fn directory_identity(&self, process: i32) -> Result<DirectoryId, Errno> {
        let status =
            fstatat(&self.directory, format!("{process}/cwd").as_str(), nix::fcntl::AtFlags::empty())?;
        Ok(DirectoryId { device: status.st_dev, inode: status.st_ino })
    }

    /// Whether another process of the sandbox can change the directory of one that stands at its exec. It is looked twice: while the gate
    /// looks, nothing that shares it can begin but by a call that was answered before, and each task has made one at most.
    pub(super) fn shares_directory(&self, process: i32) -> Result<bool, Errno> {
        let sandbox = self.pid_namespace(process)?;
        for _ in 0..2 {
            for other in self.numbers_in(".")? {
                if other == process || self.pid_namespace(other) != Ok(sandbox) {
                    continue;
                }
                for task in self.numbers_in(&format!("{other}/task")).unwrap_or_default() {
                    match ptrace::share_directory(process, task) {
                        Ok(true) => return Ok(true),
                        Ok(false) | Err(Errno::ESRCH | Errno::EPERM) => {}
                        Err(errno) => return Err(errno),
                    }
                }
            }
        }
        Ok(false)
    }

    fn pid_namespace(&self, process: i32) -> Result<(u64, u64), Errno> {
        let path = format!("{process}/ns/pid");
        let status = fstatat(&self.directory, path.as_str(), nix::fcntl::AtFlags::empty())?;
        Ok((status.st_dev, status.st_ino))
    }

    /// The names in a directory that are numbers.
    fn numbers_in(&self, path: &str) -> Result<Vec<i32>, Errno> {
        let mut directory = Dir::from_fd(self.open(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?)?;
        let mut numbers = Vec::new();
        for entry in directory.iter() {
            let entry = entry?;
            numbers.extend(entry.file_name().to_str().ok().and_then(|name| name.parse::<i32>().ok()));
        }
        Ok(numbers)
    }

    /// Whether a file of /proc about a process has exactly these bytes.
    fn has_content(&self, path: &str, expected: &[u8]) -> Result<bool, Errno> {
        let opened = self.open(path, OFlag::O_RDONLY)?;
        let mut part = vec![0_u8; (expected.len() + 1).min(64 << 10)];
        let mut rest = expected;
        loop {
            match nix::unistd::read(&opened, &mut part) {
                Ok(0) => return Ok(rest.is_empty()),
                Ok(count) => match rest.strip_prefix(&part[..count]) {
                    Some(left) => rest = left,
                    None => return Ok(false),
                },
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Whether a process that stands at its exec has these arguments.
    pub(super) fn has_arguments(&self, process: i32, argv: &[Vec<u8>]) -> Result<bool, Errno> {
        let expected = joined(argv);
        match begins_with_arguments(process, argv.len(), &expected) {
            // A program of another word size.
            Err(Errno::ENODATA) => self.has_content(&format!("{process}/cmdline"), &expected),
            known => known,
        }
    }

    /// Whether a process that stands at its exec has this environment.
    pub(super) fn has_environment(&self, process: i32, env: &[Vec<u8>]) -> Result<bool, Errno> {
        self.has_content(&format!("{process}/environ"), &joined(env))
    }
}

/// The identity of an open directory.
pub(super) fn identity_of(directory: BorrowedFd<'_>) -> Result<DirectoryId, Errno> {
    fstat(directory).map(|status| DirectoryId { device: status.st_dev, inode: status.st_ino })
}

fn joined(strings: &[Vec<u8>]) -> Vec<u8> {
    strings.iter().flat_map(|one| one.iter().chain([&0])).copied().collect()
}

/// The longest path with its NUL (PATH_MAX, limits.h).
const MAX_PATH_BYTES: usize = 4096;
/// The longest argument with its NUL (MAX_ARG_STRLEN, execve(2)).
const MAX_STRING_BYTES: usize = 131_072;
/// All strings of one array, with their pointers: what the kernel takes at most (execve(2), "Limits on size of arguments and
/// environment").
const MAX_ARRAY_BYTES: usize = 6 << 20;

const PAGE: usize = 4096;
const PAGE_BYTES: u64 = PAGE as u64;
/// Pages of a caller that are kept: path, arguments and their addresses mostly lie in two to four.
const KEPT_PAGES: usize = 8;
/// What is compared at once.
const COMPARED_BYTES: usize = 64 << 10;
/// What is read of a new stack at once: addresses, strings and environment of most programs.
const STACK_BYTES: usize = 2 * PAGE;

/// The memory of a thread's process, with the pages that were read last.
///
/// Other processes may change that memory at any time. So what is read is only evaluated; at the exec it is compared with what
/// the new program really has.
#[derive(Debug)]
pub(super) struct CallerMemory {
    thread: i32,
    /// The addresses of the pages that are kept, at most [`KEPT_PAGES`], each with its place in `bytes`.
    kept: Vec<u64>,
    bytes: Vec<u8>,
    /// The place that the next page gets when all are taken.
    next: usize,
}

impl CallerMemory {
    pub(super) fn of(thread: i32) -> Self {
        Self {
            thread,
            kept: Vec::with_capacity(KEPT_PAGES),
            bytes: Vec::with_capacity(KEPT_PAGES * PAGE),
            next: 0,
        }
    }

    /// Reads the pages of these addresses by one call, as far as they can be read and have room: what is asked for next is mostly in
    /// them. A page that was not read is read when it is needed, and fails then.
    pub(super) fn expect(&mut self, addresses: &[u64]) {
        let first = self.kept.len();
        for address in addresses {
            let start = page_of(*address);
            if self.kept.len() < KEPT_PAGES && *address != 0 && !self.kept.contains(&start) {
                self.kept.push(start);
            }
        }
        if first == self.kept.len() {
            return;
        }
        self.bytes.resize(self.kept.len() * PAGE, 0);
        let read =
            ptrace::read_memory_pages(self.thread, &self.kept[first..], &mut self.bytes[first * PAGE..]);
        // The rest was not there, or is not there any more.
        self.kept.truncate(first + read.unwrap_or_default() / PAGE);
        self.bytes.truncate(self.kept.len() * PAGE);
    }

    /// A path as execve(2) reads it.
    ///
    /// # Errors
    /// `EFAULT` and `ENAMETOOLONG` as execve(2); others: it cannot be read.
    pub(super) fn path(&mut self, address: u64) -> Result<Vec<u8>, Errno> {
        self.string(address, MAX_PATH_BYTES, Errno::ENAMETOOLONG)
    }

    /// An array of strings as execve(2) reads it. A null pointer is an empty array.
    ///
    /// # Errors
    /// `EFAULT` and `E2BIG` as execve(2); others: it cannot be read.
    pub(super) fn strings(&mut self, array: u64) -> Result<Vec<Vec<u8>>, Errno> {
        let mut bytes = 0;
        let mut pointers = Vec::new();
        if array != 0 {
            let mut at = array;
            loop {
                let pointer = self.word(at)?;
                if pointer == 0 {
                    break;
                }
                pointers.push(pointer);
                bytes += size_of::<u64>();
                if bytes > MAX_ARRAY_BYTES {
                    return Err(Errno::E2BIG);
                }
                at = at.checked_add(size_of::<u64>() as u64).ok_or(Errno::EFAULT)?;
            }
        }
        self.expect(&pointers);
        let mut strings = Vec::with_capacity(pointers.len());
        for pointer in pointers {
            let string = self.string(pointer, MAX_STRING_BYTES, Errno::E2BIG)?;
            bytes += string.len() + 1;
            if bytes > MAX_ARRAY_BYTES {
                return Err(Errno::E2BIG);
            }
            strings.push(string);
        }
        Ok(strings)
    }

    fn string(&mut self, address: u64, bound: usize, too_long: Errno) -> Result<Vec<u8>, Errno> {
        let (mut at, mut string) = (address, Vec::new());
        loop {
            let part = self.rest_of_page(at)?;
            let end = part.iter().position(|byte| *byte == 0);
            string.extend_from_slice(&part[..end.unwrap_or(part.len())]);
            // With its NUL.
            if string.len() + 1 > bound {
                return Err(too_long);
            }
            if end.is_some() {
                return Ok(string);
            }
            at = next_page(at)?;
        }
    }

    fn word(&mut self, address: u64) -> Result<u64, Errno> {
        let mut bytes = [0; 8];
        let first = self.rest_of_page(address)?;
        let length = first.len().min(8);
        bytes[..length].copy_from_slice(&first[..length]);
        if length < 8 {
            let rest = self.rest_of_page(next_page(address)?)?;
            bytes[length..].copy_from_slice(rest.get(..8 - length).ok_or(Errno::EFAULT)?);
        }
        Ok(u64::from_ne_bytes(bytes))
    }

    /// The bytes from an address to the end of its page.
    fn rest_of_page(&mut self, address: u64) -> Result<&[u8], Errno> {
        let start = page_of(address);
        let at = match self.kept.iter().position(|kept| *kept == start) {
            Some(at) => at,
            None => self.read_page(start)?,
        };
        Ok(&self.bytes[at * PAGE + (address - start) as usize..(at + 1) * PAGE])
    }

    /// Reads a page: the place that it has now.
    fn read_page(&mut self, start: u64) -> Result<usize, Errno> {
        let at = if self.kept.len() < KEPT_PAGES {
            self.kept.push(start);
            self.bytes.resize(self.kept.len() * PAGE, 0);
            self.kept.len() - 1
        } else {
            self.next = (self.next + 1) % KEPT_PAGES;
            self.next
        };
        // No page has this address.
        self.kept[at] = u64::MAX;
        match ptrace::read_memory(self.thread, start, &mut self.bytes[at * PAGE..(at + 1) * PAGE])? {
            PAGE => {
                self.kept[at] = start;
                Ok(at)
            }
            _ => Err(Errno::EFAULT),
        }
    }
}

/// Whether a process that stands at its exec has so many arguments, and these, each with its NUL. The kernel writes the strings one
/// after the other, and their count and addresses where the stack begins (`create_elf_tables` in fs/binfmt_elf.c).
///
/// # Errors
/// `ENODATA`: it is a program of another word size; else its stack cannot be read.
pub(super) fn begins_with_arguments(process: i32, count: usize, expected: &[u8]) -> Result<bool, Errno> {
    let stack = ptrace::stack_pointer(process)?;
    // Mostly the strings lie in the pages that are read with the addresses.
    let mut beginning = [0; STACK_BYTES];
    let read = ptrace::read_memory(process, stack, &mut beginning)?;
    let beginning = &beginning[..read];
    let word = |at: usize| {
        let bytes = beginning.get(at..at + 8).ok_or(Errno::EFAULT)?;
        bytes.try_into().map(u64::from_ne_bytes).map_err(|_| Errno::EFAULT)
    };
    if word(0)? != count as u64 {
        return Ok(false);
    }
    let mut at = word(8)?;
    let inside = usize::try_from(at.wrapping_sub(stack)).ok();
    if let Some(known) = inside.and_then(|from| beginning.get(from..)?.get(..expected.len())) {
        return Ok(known == expected);
    }
    let mut part = vec![0; expected.len().min(COMPARED_BYTES)];
    for wanted in expected.chunks(COMPARED_BYTES) {
        let part = &mut part[..wanted.len()];
        read_whole(process, at, part)?;
        if part != wanted {
            return Ok(false);
        }
        at = at.checked_add(wanted.len() as u64).ok_or(Errno::EFAULT)?;
    }
    Ok(true)
}

fn read_whole(process: i32, address: u64, into: &mut [u8]) -> Result<(), Errno> {
    match ptrace::read_memory(process, address, into)? {
        count if count == into.len() => Ok(()),
        _ => Err(Errno::EFAULT),
    }
}

fn page_of(address: u64) -> u64 {
    address - address % PAGE_BYTES
}

fn next_page(address: u64) -> Result<u64, Errno> {
    page_of(address).checked_add(PAGE_BYTES).ok_or(Errno::EFAULT)
}

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, CString};

    use super::*;

    fn own() -> CallerMemory {
        CallerMemory::of(std::process::id().cast_signed())
    }

    fn address(text: &CStr) -> u64 {
        text.as_ptr() as u64
    }

    /// Never mapped: it is below what mmap(2) gives to anybody.
    const UNREADABLE: u64 = 8;

    #[test]
    fn strings_are_read_whole_however_many_pages_they_take() {
        let words: Vec<CString> =
            (0..2_000).map(|length| CString::new("x".repeat(length % 700)).unwrap()).collect();
        let mut array: Vec<u64> = words.iter().map(|word| address(word)).collect();
        array.push(0);
        let read = own().strings(array.as_ptr() as u64).unwrap();
        assert!(read.iter().map(Vec::as_slice).eq(words.iter().map(|word| word.to_bytes())));
    }

    #[test]
    fn what_cannot_be_read_fails_where_it_is_needed_and_nowhere_else() {
        let (path, array) = (c"/bin/true", [address(c"one"), address(c"two"), 0]);
        let (path, array) = (address(path), array.as_ptr() as u64);
        for expected in
            [[UNREADABLE, path, array], [path, UNREADABLE, array], [array, path, u64::MAX], [0; 3]]
        {
            let mut memory = own();
            memory.expect(&expected);
            assert_eq!(memory.path(path).unwrap(), b"/bin/true");
            assert_eq!(memory.path(UNREADABLE), Err(Errno::EFAULT));
            assert_eq!(memory.strings(array).unwrap(), [b"one", b"two"]);
            assert_eq!(memory.strings(UNREADABLE), Err(Errno::EFAULT));
        }
    }

    #[test]
    fn a_path_has_a_bound() {
        let path = CString::new(vec![b'p'; MAX_PATH_BYTES]).unwrap();
        assert_eq!(own().path(address(&path)), Err(Errno::ENAMETOOLONG));
        assert_eq!(own().path(address(&path) + 1).unwrap().len(), MAX_PATH_BYTES - 1);
    }
}
