//! What a path in the sandbox is: kind, size and times, by stat(1); and its real path, by realpath(1).

use super::{
    file_program::{self, FileProgram, Printed},
    message::{ErrorCode, RpcError},
    session::ExecSession,
};

/// The bits of a mode that say the kind: inode(7).
const KIND_MASK: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
/// What stat and realpath print, at most.
const PRINTED_MAX_BYTES: usize = 64 << 10;

/// What a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileStatus {
    mode: u32,
    /// In bytes.
    pub(super) size: u64,
    /// Milliseconds since 1970; 0: unknown.
    pub(super) created_at_ms: i64,
    pub(super) modified_at_ms: i64,
}

impl FileStatus {
    pub(super) fn is_directory(self) -> bool {
        self.mode & KIND_MASK == DIRECTORY
    }

    pub(super) fn is_file(self) -> bool {
        self.mode & KIND_MASK == REGULAR
    }

    pub(super) fn is_symlink(self) -> bool {
        self.mode & KIND_MASK == SYMLINK
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        Some(Self {
            mode: u32::from_str_radix(words.next()?, 16).ok()?,
            size: words.next()?.parse().ok()?,
            created_at_ms: milliseconds(words.next()?)?,
            modified_at_ms: milliseconds(words.next()?)?,
        })
    }
}

/// What a path is, at the end of its links.
pub(super) async fn status(session: &ExecSession, path: &str) -> Result<FileStatus, RpcError> {
    stat(session, path, &["-L"]).await
}

/// What a path is; a link is a link.
pub(super) async fn link_status(session: &ExecSession, path: &str) -> Result<FileStatus, RpcError> {
    stat(session, path, &[]).await
}

async fn stat(session: &ExecSession, path: &str, options: &[&str]) -> Result<FileStatus, RpcError> {
    let args = [options, &["--format=%f %s %.3W %.3Y", "--", path]].concat();
    let program = FileProgram {
        method: "fs/getMetadata",
        name: "stat",
        args: &args,
        input: &[],
        max_bytes: PRINTED_MAX_BYTES,
    };
    let printed = file_program::run(session, program).await?;
    if !printed.is_ok() {
        return Err(failure(session, path, &printed).await);
    }
    let line = String::from_utf8_lossy(&printed.stdout).into_owned();
    FileStatus::parse(&line).ok_or_else(|| {
        let problem = format!("the sandbox's stat is not that of GNU coreutils: it printed {line:?}");
        RpcError::new(ErrorCode::Internal, "NO_COREUTILS", &problem)
    })
}

/// The path without links and without `..`. What does not exist yet is taken by its name if `is_missing_allowed` says so.
pub(super) async fn real_path(
    session: &ExecSession,
    path: &str,
    missing: MissingFiles,
) -> Result<String, RpcError> {
    let mut real = real_paths(session, &[path.to_owned()], missing).await?;
    Ok(real.pop().unwrap_or_default())
}

/// As [`real_path`], of several paths, in their order.
pub(super) async fn real_paths(
    session: &ExecSession,
    paths: &[String],
    missing: MissingFiles,
) -> Result<Vec<String>, RpcError> {
    let mode = match missing {
        MissingFiles::Allowed => "-m",
        MissingFiles::Refused => "-e",
    };
    let args: Vec<&str> = [mode, "-z", "--"].into_iter().chain(paths.iter().map(String::as_str)).collect();
    let program = FileProgram {
        method: "fs/canonicalize",
        name: "realpath",
        args: &args,
        input: &[],
        max_bytes: PRINTED_MAX_BYTES,
    };
    let printed = file_program::run(session, program).await?;
    if !printed.is_ok() {
        let path = paths.first().map(String::as_str).unwrap_or_default();
        return Err(failure(session, path, &printed).await);
    }
    let text = String::from_utf8(printed.stdout);
    let text = text.map_err(|_| RpcError::bad_params("a real path is no UTF-8"))?;
    let real: Vec<String> = text.split_terminator('\0').map(str::to_owned).collect();
    match real.len() == paths.len() {
        true => Ok(real),
        false => Err(RpcError::bad_params("the real paths have more bytes than are read")),
    }
}

/// Whether a path may have parts that do not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MissingFiles {
    Allowed,
    Refused,
}

/// The error of a program that has failed at a path. Whether the path is there, test(1) says by its status.
pub(super) async fn failure(session: &ExecSession, path: &str, printed: &Printed) -> RpcError {
    let error = printed.failure();
    let args = ["-e", path];
    let program =
        FileProgram { method: "fs/getMetadata", name: "test", args: &args, input: &[], max_bytes: 0 };
    match file_program::run(session, program).await {
        Ok(tested) if tested.exit_code == Some(1) => RpcError { code: ErrorCode::NotFound, ..error },
        Ok(_) | Err(_) => error,
    }
}

/// Of seconds with three digits after the point. `-` and 0 are what stat prints for an unknown time.
fn milliseconds(seconds: &str) -> Option<i64> {
    if seconds == "-" {
        return Some(0);
    }
    let (whole, part) = seconds.split_once(['.', ',']).unwrap_or((seconds, "0"));
    let whole: i64 = whole.parse().ok()?;
    let part: i64 = format!("{part:0<3}").get(..3)?.parse().ok()?;
    whole.checked_mul(1_000)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_stat_is_read() {
        let status = FileStatus::parse("81a4 12 1700000000.250 1700000001.500\n").unwrap();
        assert!(status.is_file() && !status.is_directory() && !status.is_symlink());
        assert_eq!(
            (status.size, status.created_at_ms, status.modified_at_ms),
            (12, 1_700_000_000_250, 1_700_000_001_500)
        );
        assert!(FileStatus::parse("41ed 4096 - 0").unwrap().is_directory());
        assert!(FileStatus::parse("a1ff 3 0 5").unwrap().is_symlink());
        assert!(FileStatus::parse("regular file 12").is_none());
    }
}
