//! Reads a notified exec: its system call's arguments, path, arguments and environment from the caller's memory, and the files that the
//! kernel would execute.
//!
//! Everything is a snapshot. What is executed in the end is compared with it. Files are found as the kernel would find them for the caller:
//! the gate has the callers' root, mounts and rights to files. What differs is /proc/self and what leads through it, which the gate follows
//! name by name for the caller.

use std::{
    collections::HashMap,
    ffi::CString,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2},
    sys::stat::{FileStat, Mode, SFlag, fstat, fstatat},
};

use super::process::{CallerMemory, FileVersion, HostProc, identity_of};
pub(super) use crate::caller::walk::LastLink;
use crate::{
    byte_text,
    caller::{
        StartDirectory,
        walk::{ObjectLinks, is_proc, kind, walk},
    },
    policy::command::program::{Directory, interpreted_argv},
    proto::gate::Exec,
    resolve::found_file::{self, MAX_SHEBANG_BYTES, Shebang},
    sys::{file, seccomp_listener::NotifiedCall},
};

/// A notified exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ExecCall {
    /// The notification.
    pub(super) id: u64,
    /// The caller, in the host's pid namespace.
    pub(super) thread: i32,
    /// Where its path begins.
    pub(super) from: StartDirectory,
    /// Addresses in the caller's memory.
    pub(super) path: u64,
    pub(super) argv: u64,
    pub(super) env: u64,
    /// `AT_*`.
    pub(super) flags: i32,
}

/// `AT_EXECVE_CHECK`, since Linux 6.14: the exec is checked and not done.
const CHECK_ONLY: i32 = 0x10000;
const KNOWN_FLAGS: i32 = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW | CHECK_ONLY;

impl ExecCall {
    /// # Errors
    /// `ENOSYS` for a call that the filter does not notify, `EINVAL` for unknown flags.
    pub(super) fn of(call: &NotifiedCall) -> Result<Self, Errno> {
        let [first, second, third, fourth, fifth, _] = call.arguments;
        let common = Self {
            id: call.id,
            thread: call.thread,
            from: StartDirectory::Working,
            path: first,
            argv: second,
            env: third,
            flags: 0,
        };
        match i64::from(call.number) {
            libc::SYS_execve => Ok(common),
            libc::SYS_execveat => {
                // The kernel looks at the lower half.
                let flags = fifth as i32;
                if flags & !KNOWN_FLAGS != 0 {
                    return Err(Errno::EINVAL);
                }
                let from = StartDirectory::of(first);
                Ok(Self { from, path: second, argv: third, env: fourth, flags, ..common })
            }
            _ => Err(Errno::ENOSYS),
        }
    }
}

/// The name under which the kernel hands a script to its interpreter (fs/exec.c, `alloc_bprm`).
pub(super) fn script_name(from: StartDirectory, path: &[u8]) -> Vec<u8> {
    match from {
        StartDirectory::Descriptor(number) if !path.starts_with(b"/") => {
            let mut name = format!("/dev/fd/{number}").into_bytes();
            if !path.is_empty() {
                name.push(b'/');
                name.extend_from_slice(path);
            }
            name
        }
        StartDirectory::Working | StartDirectory::Descriptor(_) => path.to_vec(),
    }
}

/// The arguments that a program gets, after the interpreters of a script have taken its name in turn, that of the script first.
pub(super) fn final_arguments(script: Vec<u8>, argv: &[Vec<u8>], lines: &[Shebang]) -> Vec<Vec<u8>> {
    match (lines, argv) {
        // Since Linux 5.18 an empty vector gets one empty string.
        ([], []) => vec![Vec::new()],
        ([], argv) => argv.to_vec(),
        (lines, argv) => {
            let lines = lines.iter().map(|line| (line.path.clone(), line.argument.clone()));
            interpreted_argv(script, argv.iter().skip(1).cloned(), lines)
        }
    }
}

/// Interpreters of interpreters; the kernel fails a longer chain with ELOOP (fs/exec.c, `exec_binprm`).
const MAX_INTERPRETERS: usize = 5;
/// Why a program of 32 bits is not executed: the filter, without which there is no gate, would end it at its first system call.
const PROGRAM_32_BIT: &str =
    "it is a 32-bit program, and the profile allows system calls of 64-bit programs only";
/// First lines that are remembered, by file and version.
pub(super) const MAX_FIRST_LINES: usize = 4_096;

/// What an exec would do.
#[derive(Debug)]
pub(super) struct ReadExec {
    /// The path as it was given, and absolute.
    pub(super) path: Vec<u8>,
    pub(super) absolute_path: Vec<u8>,
    /// As given.
    pub(super) argv: Vec<Vec<u8>>,
    /// Absent if it is not needed.
    pub(super) env: Option<Vec<Vec<u8>>>,
    /// The caller's working directory.
    pub(super) cwd: Vec<u8>,
    /// What it is, and where that is needed, those above it.
    pub(super) directories: Vec<Directory>,
    /// The file, then its interpreters, of which the last one is executed.
    pub(super) files: Vec<ReadFile>,
    /// What each line of a script says: path and argument of its interpreter.
    pub(super) lines: Vec<Shebang>,
    /// The arguments that the executed program gets.
    pub(super) final_argv: Vec<Vec<u8>>,
    /// What was opened for this. Kept so that it is closed when the caller does not wait for that.
    pub(super) opened: Vec<OwnedFd>,
}

impl ReadExec {
    /// What it takes in memory, about.
    pub(super) fn bytes(&self) -> usize {
        // A short string takes a vector's fields and the smallest piece of memory.
        const STRING: usize = 64;
        let lists = [Some(&self.argv), Some(&self.final_argv), self.env.as_ref()];
        lists.into_iter().flatten().flatten().map(|string| STRING + string.len()).sum()
    }

    /// The same exec of other files.
    pub(super) fn with_files(&self, files: Vec<ReadFile>) -> Self {
        Self {
            path: self.path.clone(),
            absolute_path: self.absolute_path.clone(),
            argv: self.argv.clone(),
            env: self.env.clone(),
            cwd: self.cwd.clone(),
            directories: self.directories.clone(),
            files,
            lines: self.lines.clone(),
            final_argv: self.final_argv.clone(),
            opened: Vec::new(),
        }
    }

    /// Whether its files are still open: then no other file can get their numbers.
    pub(super) fn holds_its_files(&self) -> bool {
        !self.opened.is_empty()
    }

    /// Whether a file is that one of this exec. What is not open any more may have been replaced by another one of the same number, or
    /// written to since a person was asked: its version counts, too.
    pub(super) fn is_same_file(&self, file: &ReadFile, now: FileVersion) -> bool {
        match self.holds_its_files() {
            true => file.version.is_same_file(now),
            false => file.version == now,
        }
    }
}

/// A file on the way to what is executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReadFile {
    /// After all links, in the sandbox's view.
    pub(super) path: Vec<u8>,
    pub(super) version: FileVersion,
    /// How to find it again; absent: it has no path.
    pub(super) lookup_path: Option<Vec<u8>>,
}

/// Why an exec could not be read.
#[derive(Debug)]
pub(super) enum ReadFailure {
    /// The kernel would answer with this.
    Errno(Errno),
    /// The gate cannot read it.
    Unreadable(String),
    /// The caller is gone.
    Gone,
}

/// First lines of files.
#[derive(Debug, Default)]
pub(super) struct FirstLines {
    known: HashMap<FileVersion, Option<Shebang>>,
}

/// What is read in addition to the file and the arguments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) env: bool,
    /// Those above the working directory.
    pub(super) directories: bool,
}

/// Reads an exec.
pub(super) fn read(
    proc: &HostProc,
    call: &ExecCall,
    wanted: Wanted,
    lines: &mut FirstLines,
) -> Result<ReadExec, ReadFailure> {
    let mut memory = CallerMemory::of(call.thread);
    memory.expect(&[call.path, call.argv, if wanted.env { call.env } else { 0 }]);
    let path = memory.path(call.path).map_err(of_memory)?;
    let lookup = Lookup { proc, thread: Some(call.thread) };
    let working = proc.directory_of(call.thread).map_err(|errno| of_process("directory", errno))?;
    // First of all: most execs that fail do so because nothing is there.
    let (begins_at, opened, status) = open(&lookup, call, &working, &path)?;
    let argv = memory.strings(call.argv).map_err(of_memory)?;
    let env = wanted.env.then(|| memory.strings(call.env)).transpose().map_err(of_memory)?;
    let cwd = proc.path_of(working.as_fd()).map_err(|errno| of_process("directory", errno))?;
    let directories = directories(&working, &cwd, wanted).map_err(ReadFailure::Errno)?;
    let absolute_path = match begins_at {
        PathStart::Root => plain(&path),
        PathStart::Working => plain(&[&cwd, b"/".as_slice(), &path].concat()),
        PathStart::Directory(name) if path.is_empty() => name,
        PathStart::Directory(name) => plain(&[&name, b"/".as_slice(), &path].concat()),
    };

    let lookup_path = (call.from == StartDirectory::Working).then(|| path.clone());
    let mut files = vec![describe(proc, &opened, &status, lookup_path)?];
    let mut chain: Vec<Shebang> = Vec::new();
    let mut all = vec![opened];
    while let Some(line) = lines.of(proc, &all, &files)? {
        if chain.len() == MAX_INTERPRETERS {
            return Err(ReadFailure::Errno(Errno::ELOOP));
        }
        let name = line.path.clone();
        let (opened, status) = lookup.open(working.as_fd(), &name, LastLink::Follow).map_err(of_lookup)?;
        files.push(describe(proc, &opened, &status, Some(name))?);
        all.push(opened);
        chain.push(line);
    }
    let final_argv = final_arguments(script_name(call.from, &path), &argv, &chain);
    all.push(working);
    Ok(ReadExec {
        path,
        absolute_path,
        argv,
        env,
        cwd,
        directories,
        files,
        lines: chain,
        final_argv,
        opened: all,
    })
}

/// The working directory, and where they are wanted, those above it.
fn directories(working: &OwnedFd, cwd: &[u8], wanted: Wanted) -> Result<Vec<Directory>, Errno> {
    let mut found = vec![directory(working.as_fd(), cwd, wanted)?];
    let (mut path, mut above) = (cwd, None);
    while wanted.directories
        && let Some(end) = path.iter().rposition(|byte| *byte == b'/').filter(|_| path.len() > 1)
    {
        path = if end == 0 { b"/" } else { &path[..end] };
        let from = above.as_ref().map_or(working.as_fd(), OwnedFd::as_fd);
        let next = openat(from, c"..", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
        found.push(directory(next.as_fd(), path, wanted)?);
        above = Some(next);
    }
    Ok(found)
}

fn directory(opened: BorrowedFd<'_>, path: &[u8], wanted: Wanted) -> Result<Directory, Errno> {
    let id = identity_of(opened)?;
    let changed_nanos = match wanted.directories {
        true => FileVersion::of(&fstat(opened)?).changed_nanos,
        false => 0,
    };
    Ok(Directory { path: byte_text::from_bytes(path), id, changed_nanos })
}

/// What a path is relative to.
enum PathStart {
    Root,
    Working,
    /// The path of a descriptor.
    Directory(Vec<u8>),
}

/// Opens the file.
fn open(
    lookup: &Lookup<'_>,
    call: &ExecCall,
    working: &OwnedFd,
    path: &[u8],
) -> Result<(PathStart, OwnedFd, FileStat), ReadFailure> {
    let last = match call.flags & libc::AT_SYMLINK_NOFOLLOW {
        0 => LastLink::Follow,
        _ => LastLink::Refuse,
    };
    let open_from = |from: BorrowedFd<'_>, start: PathStart| {
        let (opened, status) = lookup.open(from, path, last).map_err(of_lookup)?;
        Ok((start, opened, status))
    };
    match call.from {
        _ if path.starts_with(b"/") => open_from(working.as_fd(), PathStart::Root),
        _ if path.is_empty() && call.flags & libc::AT_EMPTY_PATH == 0 => {
            Err(ReadFailure::Errno(Errno::ENOENT))
        }
        StartDirectory::Descriptor(number) => {
            let object = lookup.proc.descriptor_of(call.thread, number);
            let object = object.map_err(|errno| match errno {
                Errno::EBADF => ReadFailure::Errno(Errno::EBADF),
                other => of_process("descriptor", other),
            })?;
            let name =
                lookup.proc.path_of(object.as_fd()).map_err(|errno| of_process("descriptor", errno))?;
            if path.is_empty() {
                let status = fstat(&object).map_err(ReadFailure::Errno)?;
                return Ok((PathStart::Directory(name), object, status));
            }
            open_from(object.as_fd(), PathStart::Directory(name))
        }
        // AT_EMPTY_PATH with an empty path is the directory itself, which cannot be executed.
        StartDirectory::Working if path.is_empty() => Err(ReadFailure::Errno(Errno::EACCES)),
        StartDirectory::Working => open_from(working.as_fd(), PathStart::Working),
    }
}

/// Without `.` and empty names, as rules write paths.
fn plain(path: &[u8]) -> Vec<u8> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.flat_map(|name| [b"/".as_slice(), name].concat()).collect()
}

fn describe(
    proc: &HostProc,
    opened: &OwnedFd,
    status: &FileStat,
    lookup_path: Option<Vec<u8>>,
) -> Result<ReadFile, ReadFailure> {
    check_executable(opened.as_fd(), status).map_err(of_lookup)?;
    let path = proc.path_of_file(opened.as_fd()).map_err(|errno| of_process("file", errno))?;
    Ok(ReadFile { path, version: FileVersion::of(status), lookup_path })
}

/// The file that a process executes.
pub(super) fn executed_file(proc: &HostProc, opened: &OwnedFd) -> Result<ReadFile, Errno> {
    let status = fstat(opened)?;
    let path = proc.path_of_file(opened.as_fd())?;
    Ok(ReadFile { path, version: FileVersion::of(&status), lookup_path: None })
}

impl FirstLines {
    /// The interpreter of the last of these files, which are open.
    fn of(
        &mut self,
        proc: &HostProc,
        opened: &[OwnedFd],
        files: &[ReadFile],
    ) -> Result<Option<Shebang>, ReadFailure> {
        let (Some(opened), Some(file)) = (opened.last(), files.last()) else { return Ok(None) };
        let version = file.version;
        if let Some(known) = self.known.get(&version) {
            return Ok(known.clone());
        }
        let unreadable = |errno: Errno| ReadFailure::Unreadable(format!("its file cannot be read: {errno}"));
        let file = match proc.open_for_reading(opened.as_fd()) {
            Ok(file) => file,
            // Who may execute it and not read it gets nothing from it as a script. If the kernel reads a first line, the interpreter is another
            // file than this one, which is seen at the exec.
            Err(Errno::EACCES) => return Ok(None),
            Err(errno) => return Err(unreadable(errno)),
        };
        let mut beginning = [0; MAX_SHEBANG_BYTES];
        let mut filled = 0;
        while filled < beginning.len() {
            match nix::unistd::read(&file, &mut beginning[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(unreadable(errno)),
            }
        }
        if found_file::is_32_bit_program(&beginning[..filled]) {
            return Err(ReadFailure::Unreadable(PROGRAM_32_BIT.to_owned()));
        }
        let line = found_file::parse_shebang(&beginning[..filled]).filter(|line| !line.path.is_empty());
        if self.known.len() >= MAX_FIRST_LINES {
            self.known.clear();
        }
        self.known.insert(version, line.clone());
        Ok(line)
    }
}

/// The scripts on the way to what is executed, as they are found now. The process stands at its exec. `None`: they cannot be found.
pub(super) fn scripts_now(proc: &HostProc, process: i32, exec: &ReadExec) -> Option<Vec<ReadFile>> {
    let (_, scripts) = exec.files.split_last()?;
    if scripts.is_empty() {
        return Some(Vec::new());
    }
    let working = proc.directory_of(process).ok()?;
    let lookup = Lookup { proc, thread: Some(process) };
    let now = |script: &ReadFile| {
        // What was executed by a descriptor is what was read.
        let Some(path) = &script.lookup_path else { return Some(script.clone()) };
        let (opened, status) = lookup.open(working.as_fd(), path, LastLink::Follow).ok()?;
        let version = FileVersion::of(&status);
        match exec.is_same_file(script, version) {
            true => Some(script.clone()),
            false => describe(proc, &opened, &status, Some(path.clone())).ok(),
        }
    };
    scripts.iter().map(now).collect()
}

/// What is known of a call that could not be read.
pub(super) fn describe_call(proc: &HostProc, call: &ExecCall) -> Exec {
    let text = |bytes: &[u8]| byte_text::shown(&byte_text::from_bytes(bytes)).into_owned();
    let mut memory = CallerMemory::of(call.thread);
    memory.expect(&[call.path]);
    let path = memory.path(call.path).unwrap_or_default();
    let working = proc.directory_of(call.thread).and_then(|working| proc.path_of(working.as_fd()));
    Exec { path: text(&path), cwd: text(&working.unwrap_or_default()), ..Exec::default() }
}

fn of_memory(errno: Errno) -> ReadFailure {
    match errno {
        Errno::EFAULT | Errno::ENAMETOOLONG | Errno::E2BIG => ReadFailure::Errno(errno),
        Errno::ESRCH => ReadFailure::Gone,
        other => ReadFailure::Unreadable(format!("its memory cannot be read: {other}")),
    }
}

fn of_lookup(errno: Errno) -> ReadFailure {
    match errno {
        // Not the caller's fault.
        Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::EPERM | Errno::ENOSYS => {
            ReadFailure::Unreadable(format!("its file cannot be looked up: {errno}"))
        }
        other => ReadFailure::Errno(other),
    }
}

fn of_process(what: &str, errno: Errno) -> ReadFailure {
    match errno {
        Errno::ENOENT | Errno::ESRCH => ReadFailure::Gone,
        other => ReadFailure::Unreadable(format!("its {what} cannot be read: {other}")),
    }
}

/// Whose paths are looked up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lookup<'a> {
    pub(super) proc: &'a HostProc,
    /// The caller; `None` for paths that no process has given.
    pub(super) thread: Option<i32>,
}

const OPEN: OFlag = OFlag::O_PATH.union(OFlag::O_CLOEXEC);

impl Lookup<'_> {
    /// Opens what a path means, relative to a directory, and says what it is.
    ///
    /// # Errors
    /// The errno that the caller would get.
    pub(super) fn open(
        &self,
        from: BorrowedFd<'_>,
        path: &[u8],
        last: LastLink,
    ) -> Result<(OwnedFd, FileStat), Errno> {
        let name = CString::new(path).map_err(|_| Errno::EINVAL)?;
        let flags = if last == LastLink::Refuse { OPEN | OFlag::O_NOFOLLOW } else { OPEN };
        let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let opened = match openat2(from, name.as_c_str(), how) {
            Ok(opened) => opened,
            // Programs are looked for in one directory after another: most names that are not there are simply not there.
            Err(Errno::ENOENT) if is_absent(from, path) => return Err(Errno::ENOENT),
            // The way may lead through /proc/self, which the gate does not have there, or through a link of a process.
            Err(Errno::ENOENT | Errno::ELOOP) => self.walk(from, path, last)?,
            Err(errno) => return Err(errno),
        };
        let status = fstat(&opened)?;
        if kind(&status) == SFlag::S_IFLNK { Err(Errno::ELOOP) } else { Ok((opened, status)) }
    }

    fn walk(&self, from: BorrowedFd<'_>, path: &[u8], last: LastLink) -> Result<OwnedFd, Errno> {
        let own = || self.thread.map(|thread| self.proc.inner_numbers(thread)).transpose();
        walk(from, path, last, ObjectLinks::OfAll, &own)
    }
}

/// Whether the directory of a path is there for everybody, and has no such name.
fn is_absent(from: BorrowedFd<'_>, path: &[u8]) -> bool {
    let (directory, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..=at], &path[at + 1..]),
        None => (b".".as_slice(), path),
    };
    // A name behind which a slash stands is one more on the way.
    if name.is_empty() {
        return false;
    }
    let looked_up = || -> Result<bool, Errno> {
        let c_string = |text: &[u8]| CString::new(text).map_err(|_| Errno::EINVAL);
        let (directory, name) = (c_string(directory)?, c_string(name)?);
        let how = OpenHow::new().flags(OPEN | OFlag::O_DIRECTORY).resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let directory = openat2(from, directory.as_c_str(), how)?;
        // There a name may mean something to the caller alone.
        if is_proc(directory.as_fd())? {
            return Ok(false);
        }
        match fstatat(&directory, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => Ok(true),
            Ok(_) | Err(_) => Ok(false),
        }
    };
    looked_up().unwrap_or(false)
}

/// Whether execve(2) of this file would get past its checks of type, mount and mode.
///
/// # Errors
/// `EACCES` as execve(2).
pub(super) fn check_executable(file: BorrowedFd<'_>, status: &FileStat) -> Result<(), Errno> {
    if kind(status) != SFlag::S_IFREG {
        return Err(Errno::EACCES);
    }
    file::may_execute(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(texts: &[&str]) -> Vec<Vec<u8>> {
        texts.iter().map(|text| text.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_program_gets_its_arguments_as_they_are_and_never_none() {
        assert_eq!(final_arguments(b"/bin/x".to_vec(), &strings(&["x", "y"]), &[]), strings(&["x", "y"]));
        assert_eq!(final_arguments(b"/bin/x".to_vec(), &[], &[]), strings(&[""]));
    }

    #[test]
    fn interpreters_take_the_name_of_the_script_and_stand_before_it() {
        let argv = strings(&["zero", "one"]);
        let line = |path: &str, argument: Option<&str>| Shebang {
            path: path.into(),
            argument: argument.map(Into::into),
        };
        let name = || b"./s".to_vec();
        assert_eq!(
            final_arguments(name(), &argv, &[line("/bin/sh", Some("-e x"))]),
            strings(&["/bin/sh", "-e x", "./s", "one"])
        );
        assert_eq!(final_arguments(name(), &[], &[line("/bin/sh", None)]), strings(&["/bin/sh", "./s"]));
        assert_eq!(
            final_arguments(name(), &argv, &[line("/opt/i", Some("a")), line("/usr/bin/env", None)]),
            strings(&["/usr/bin/env", "/opt/i", "a", "./s", "one"])
        );
    }

    #[test]
    fn a_script_that_is_executed_by_descriptor_is_named_by_it() {
        assert_eq!(script_name(StartDirectory::Descriptor(7), b""), b"/dev/fd/7");
        assert_eq!(script_name(StartDirectory::Descriptor(7), b"a/b"), b"/dev/fd/7/a/b");
        assert_eq!(script_name(StartDirectory::Descriptor(7), b"/a"), b"/a");
        assert_eq!(script_name(StartDirectory::Working, b"a"), b"a");
    }
}
