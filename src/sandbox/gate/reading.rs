//! Reads a notified exec: path, arguments and environment from the caller's memory, and the files that the kernel would execute.
//!
//! Everything is a snapshot. What is executed in the end is compared with it.

use std::{
    collections::HashMap,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, openat},
    sys::stat::{FileStat, Mode, fstat},
};

use super::{
    exec_call::{ExecCall, final_arguments, script_name},
    lookup::{LastLink, Lookup, check_executable},
    memory::CallerMemory,
    process::{FileVersion, HostProc, identity_of},
};
use crate::{
    byte_text,
    caller::StartDirectory,
    policy::command::program::Directory,
    proto::gate::Exec,
    resolve::{
        machine,
        shebang::{self, MAX_SHEBANG_BYTES, Shebang},
    },
};

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
        if machine::is_32_bit(&beginning[..filled]) {
            return Err(ReadFailure::Unreadable(PROGRAM_32_BIT.to_owned()));
        }
        let line = shebang::parse(&beginning[..filled]).filter(|line| !line.path.is_empty());
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
