//! Parses a Spawn request: no string has a NUL, every number is in its range.
//!
//! Reads nothing but the request. No gateway sends what it refuses.

use std::ffi::CString;

use nix::errno::Errno;

use crate::{
    byte_text,
    cgroup::leaf::{self, LeafLimits, LimitRequirement},
    output::ring::Layout,
    proto::supervisor::{JudgedFile, Limits, PtySize, Spawn},
    sys::{
        pty::WindowSize,
        ring::WhenFull,
        spawn::{ExecBy, ExecutableId, ExpectedExecutable, ResourceLimit},
    },
};

/// The longest terminal id.
const MAX_ID_BYTES: usize = 64;

/// The umask of a command of which the gateway says nothing.
const DEFAULT_UMASK: u32 = 0o022;

/// A parsed request.
pub(super) struct ParsedSpawn {
    pub(super) layout: Layout,
    pub(super) when_full: WhenFull,
    pub(super) candidates: Vec<CString>,
    /// The files that policy has evaluated; `None` when it could not see the program.
    judged: Option<Vec<JudgedProgram>>,
    pub(super) argv: Vec<CString>,
    pub(super) env: Vec<CString>,
    pub(super) cwd: Vec<CString>,
    /// `st_dev` and `st_ino` of what policy has evaluated.
    pub(super) cwd_identity: Option<(u64, u64)>,
    pub(super) rlimits: Vec<(u32, ResourceLimit)>,
    pub(super) leaf_name: CString,
    pub(super) limits: LeafLimits,
    pub(super) requirement: LimitRequirement,
    pub(super) pty: Option<WindowSize>,
    pub(super) umask: u32,
}

/// A file that policy has evaluated.
struct JudgedProgram {
    path: CString,
    identity: Option<ExecutableId>,
    exec_by: ExecBy,
}

impl ParsedSpawn {
    /// The expected files, in the form of [`crate::sys::spawn::SpawnSpec`].
    pub(super) fn expected(&self) -> Option<Vec<ExpectedExecutable<'_>>> {
        let judged = self.judged.as_ref()?;
        Some(
            judged
                .iter()
                .map(|file| ExpectedExecutable {
                    path: &file.path,
                    identity: file.identity.as_ref(),
                    exec_by: file.exec_by,
                })
                .collect(),
        )
    }
}

/// Parses a request.
pub(super) fn parse(request: &Spawn) -> Result<ParsedSpawn, Errno> {
    let id = request.terminal_id.as_bytes();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if id.is_empty() || id.len() > MAX_ID_BYTES || !id.iter().all(plain) || request.argv.is_empty() {
        return Err(Errno::EINVAL);
    }
    let pty = request.pty.map(window_size).transpose()?;
    if pty.is_some() && request.split_output {
        return Err(Errno::EINVAL);
    }
    if request.umask.is_some_and(|umask| umask > 0o777) {
        return Err(Errno::EINVAL);
    }
    let limits = request.limits.clone().unwrap_or_default();
    let layout = Layout::retaining(request.ring_bytes).map_err(|_| Errno::EFBIG)?;
    let when_full = if request.block_when_full { WhenFull::Block } else { WhenFull::DropOldest };
    Ok(ParsedSpawn {
        layout,
        when_full,
        candidates: candidates(&request.program, &request.path)?,
        judged: match &request.judged {
            Some(judged) => Some(judged.files.iter().map(judged_file).collect::<Result<_, _>>()?),
            None => None,
        },
        argv: strings(&request.argv)?,
        env: strings(&request.env)?,
        cwd: directory_names(&request.cwd)?,
        cwd_identity: request.cwd_identity.map(|identity| (identity.device, identity.inode)),
        rlimits: rlimits(&limits),
        leaf_name: string(leaf::name_of(&request.terminal_id))?,
        limits: LeafLimits {
            memory_bytes: limits.memory_bytes,
            swap_bytes: limits.swap_bytes,
            pids: limits.pids,
            cpu_millis: limits.cpu_millis,
        },
        requirement: if limits.require { LimitRequirement::Require } else { LimitRequirement::Prefer },
        pty,
        umask: request.umask.unwrap_or(DEFAULT_UMASK),
    })
}

/// A size that the kernel takes.
pub(super) fn window_size(size: PtySize) -> Result<WindowSize, Errno> {
    let number = |number: u32| u16::try_from(number).map_err(|_| Errno::EINVAL);
    Ok(WindowSize { columns: number(size.columns)?, rows: number(size.rows)? })
}

/// A name with a slash is a path; a bare one is searched for in the directories.
fn candidates(program: &str, path: &[String]) -> Result<Vec<CString>, Errno> {
    if program.is_empty() || program.contains('/') {
        return Ok(vec![text(program)?]);
    }
    path.iter().map(|directory| text(&format!("{directory}/{program}"))).collect()
}

fn judged_file(file: &JudgedFile) -> Result<JudgedProgram, Errno> {
    Ok(JudgedProgram {
        path: string(file.path.to_vec())?,
        identity: file.identity.map(|identity| ExecutableId {
            device: identity.device,
            inode: identity.inode,
            changed_ns: identity.changed_ns,
        }),
        exec_by: if file.is_immutable { ExecBy::Path } else { ExecBy::Descriptor },
    })
}

fn rlimits(limits: &Limits) -> Vec<(u32, ResourceLimit)> {
    let one = |limit: &crate::proto::supervisor::Rlimit| {
        (limit.resource, ResourceLimit { soft: limit.soft, hard: limit.hard })
    };
    limits.rlimits.iter().map(one).collect()
}

fn strings(values: &[impl AsRef<[u8]>]) -> Result<Vec<CString>, Errno> {
    values.iter().map(|value| string(value.as_ref())).collect()
}

/// In the form of [`byte_text`].
fn text(value: &str) -> Result<CString, Errno> {
    string(byte_text::to_bytes(value).into_owned())
}

fn string(value: impl Into<Vec<u8>>) -> Result<CString, Errno> {
    CString::new(value).map_err(|_| Errno::EINVAL)
}

/// The names on the path from the root to a directory. The gateway sends absolute paths without `..`.
fn directory_names(path: &str) -> Result<Vec<CString>, Errno> {
    let below = path.strip_prefix('/').ok_or(Errno::EINVAL)?;
    let names = below.split('/').filter(|name| !name.is_empty() && *name != ".");
    names.map(|name| if name == ".." { Err(Errno::EINVAL) } else { text(name) }).collect()
}
