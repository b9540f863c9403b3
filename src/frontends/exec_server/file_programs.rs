//! Programs of GNU coreutils and findutils in the client's sandbox, each run to its end: all that is done to files is done by these. stat(1)
//! says what a path is, realpath(1) where it really is, find(1) the names in a directory and in a tree.
//!
//! A program is a command like any other: judged by the policy, confined, recorded. Its output is bounded, and so is its time. Links
//! are not followed unless the client says so, and names that are no UTF-8 are left out of lists.

use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    errors::{self, ErrorCode, RpcError},
    session::{ExecSession, Resumption, Run},
};
use crate::{
    client::{self, denial_lines},
    file_uri, printable,
    proto::v1::{self, create_terminal_request::Command, outcome::End, run_response::Event},
};

/// How long a file operation may take: what hangs (a FIFO, a dead mount) ends then.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(30);
/// What is kept of a program's stderr, in bytes.
const ERROR_MAX_BYTES: usize = 1_024;
/// What is written at once, in bytes.
const INPUT_PIECE_BYTES: usize = 1 << 20;
/// The label that says which method a command belongs to.
const METHOD_LABEL: &str = "exec_server.method";
/// The bits of a mode that say the kind: inode(7).
const KIND_MASK: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
/// What stat and realpath print, at most.
const PRINTED_MAX_BYTES: usize = 64 << 10;
/// What find prints at most, in bytes.
pub(super) const LISTED_MAX_BYTES: usize = 8 << 20;
/// The most entries of a walk, whatever the client asks for.
pub(super) const WALKED_MAX_ENTRIES: usize = 50_000;

/// A program to be run.
#[derive(Debug, Clone)]
pub(super) struct FileProgram<'a> {
    /// The method that needs it.
    pub(super) method: &'a str,
    pub(super) name: &'a str,
    pub(super) args: &'a [&'a str],
    pub(super) input: &'a [u8],
    /// The most output that is taken. More ends the program.
    pub(super) max_bytes: usize,
}

/// What a program has printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Printed {
    /// At most as much as was asked for.
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
    /// None: it was ended by a signal, a limit, or because it printed too much.
    pub(super) exit_code: Option<u32>,
    /// Whether it printed more than was asked for.
    pub(super) is_cut: bool,
}

impl Printed {
    pub(super) fn is_ok(&self) -> bool {
        self.exit_code == Some(0) && !self.is_cut
    }

    /// The error of a program that has failed, in its own words.
    pub(super) fn failure(&self) -> RpcError {
        let words = printable::line(self.stderr.trim()).into_owned();
        let words = if words.is_empty() { "the file operation has failed".to_owned() } else { words };
        RpcError::new(ErrorCode::Internal, "FILE_OPERATION_FAILED", &words)
    }
}

/// Runs a program. What it prints after its bound is not read, and it is stopped.
///
/// # Errors
/// If policy refuses it, it cannot be started, it takes too long, or the gateway goes away meanwhile.
pub(super) async fn run(session: &ExecSession, program: FileProgram<'_>) -> Result<Printed, RpcError> {
    let request = request(session, &program);
    let mut run = Run::start(session.client.clone(), request, Resumption::Never)
        .await
        .map_err(|status| errors::not_started(&status))?;
    let (client, terminal) = (session.client.client(), run.terminal.clone());
    let input = Bytes::copy_from_slice(program.input);
    let feeding = tokio::spawn(async move { feed(client, terminal, input).await });
    let printed = collect(&mut run, program.max_bytes).await;
    feeding.abort();
    printed
}

async fn collect(run: &mut Run, max_bytes: usize) -> Result<Printed, RpcError> {
    let mut printed = Printed { stdout: Vec::new(), stderr: String::new(), exit_code: None, is_cut: false };
    let mut errors = Vec::new();
    loop {
        match run.next().await.map_err(|status| errors::of_process(&status))? {
            Event::Started(_) => {}
            Event::Chunk(chunk) if chunk.stream() == v1::OutputStream::Stderr => {
                let room = ERROR_MAX_BYTES.saturating_sub(errors.len()).min(chunk.data.len());
                errors.extend_from_slice(&chunk.data[..room]);
            }
            Event::Chunk(chunk) => {
                let room = max_bytes - printed.stdout.len();
                printed.is_cut = chunk.data.len() > room;
                printed.stdout.extend_from_slice(&chunk.data[..chunk.data.len().min(room)]);
                if printed.is_cut {
                    // Dropped, the run stops its program.
                    return Ok(printed);
                }
            }
            Event::Finished(terminal) => {
                let outcome = terminal.outcome.unwrap_or_default();
                if outcome.cause() == v1::ExitCause::TimeLimit {
                    let message = format!("the file operation did not end in {} s", TIME_LIMIT.as_secs());
                    return Err(RpcError::new(ErrorCode::Refused, "TIME_LIMIT", &message));
                }
                printed.exit_code = match outcome.end {
                    Some(End::ExitCode(code)) => Some(code),
                    Some(End::Signal(_)) | None => None,
                };
                let denied: String = denial_lines(&outcome).map(|line| format!("; {line}")).collect();
                printed.stderr = String::from_utf8_lossy(&errors).into_owned() + &denied;
                return Ok(printed);
            }
        }
    }
}

fn request(session: &ExecSession, program: &FileProgram<'_>) -> v1::CreateTerminalRequest {
    let stdin = if program.input.is_empty() { v1::StdinMode::Closed } else { v1::StdinMode::Open };
    v1::CreateTerminalRequest {
        session_id: session.id.clone(),
        command: Some(Command::Program(program.name.to_owned())),
        args: program.args.iter().map(|arg| (*arg).to_owned()).collect(),
        // Its words become those of an error.
        env: vec![v1::EnvVar {
            name: "LC_ALL".to_owned(),
            value: "C.UTF-8".to_owned(),
            ..Default::default()
        }],
        output_mode: v1::OutputMode::Split.into(),
        stdin_mode: stdin.into(),
        on_ask: v1::OnAsk::Refuse.into(),
        time_limit: prost_types::Duration::try_from(TIME_LIMIT).ok(),
        labels: [(METHOD_LABEL.to_owned(), program.method.to_owned())].into(),
        ..client::new_terminal()
    }
}

/// Writes the input and its end. A program that ends before says itself why.
async fn feed(client: crate::client::Client, terminal: v1::Terminal, input: Bytes) {
    let pieces = input.chunks(INPUT_PIECE_BYTES).count();
    for (number, piece) in input.chunks(INPUT_PIECE_BYTES).enumerate() {
        let request = v1::WriteInputRequest {
            terminal_id: terminal.id.clone(),
            session_id: terminal.session_id.clone(),
            data: Bytes::copy_from_slice(piece),
            eof: number + 1 == pieces,
            offset: None,
        };
        match client.terminals.clone().write_input(request).await {
            Ok(answer) if answer.get_ref().written_bytes == piece.len() as u64 => {}
            Ok(_) | Err(_) => return,
        }
    }
}

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
    let printed = run(session, program).await?;
    if !printed.is_ok() {
        return Err(failure(session, path, &printed).await);
    }
    let line = String::from_utf8_lossy(&printed.stdout).into_owned();
    FileStatus::parse(&line).ok_or_else(|| {
        let problem = format!("the sandbox's stat is not that of GNU coreutils: it printed {line:?}");
        RpcError::new(ErrorCode::Internal, "NO_COREUTILS", &problem)
    })
}

/// The path without links and without `..`. What does not exist yet is taken by its name if `missing` says so.
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
    let printed = run(session, program).await?;
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
    match run(session, program).await {
        Ok(tested) if tested.exit_code == Some(1) => RpcError { code: ErrorCode::NotFound, ..error },
        Ok(_) | Err(_) => error,
    }
}

/// The milliseconds of a number of seconds that has three digits after the point. `-` and 0 are what stat prints for an unknown time.
fn milliseconds(seconds: &str) -> Option<i64> {
    if seconds == "-" {
        return Some(0);
    }
    let (whole, part) = seconds.split_once(['.', ',']).unwrap_or((seconds, "0"));
    let whole: i64 = whole.parse().ok()?;
    let part: i64 = format!("{part:0<3}").get(..3)?.parse().ok()?;
    whole.checked_mul(1_000)?.checked_add(part)
}

/// How a client wants a tree to be walked.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WalkOptions {
    max_depth: u32,
    max_directories: usize,
    max_entries: usize,
    #[serde(default)]
    follow_directory_symlinks: bool,
    #[serde(default)]
    prune_hidden_directories: bool,
}

/// What becomes of links in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    /// They are what they lead to, where the client asks for that.
    LookedThrough,
    /// They are links: somewhere is what the client's wish lets nobody read.
    Left,
}

/// The entries of a directory, which a caller knows to be one.
pub(super) async fn read_directory(
    session: &ExecSession,
    path: &str,
    links: Links,
) -> Result<Value, RpcError> {
    let format = if links == Links::LookedThrough { "%Y %f\\0" } else { "%y %f\\0" };
    let args = ["-H", path, "-mindepth", "1", "-maxdepth", "1", "-printf", format];
    let printed = find(session, "fs/readDirectory", &args).await?;
    if printed.is_cut {
        let problem = format!("the names in the directory have more than {LISTED_MAX_BYTES} bytes");
        return Err(RpcError::new(ErrorCode::InvalidRequest, "DIRECTORY_TOO_LARGE", &problem));
    }
    if !printed.is_ok() {
        return Err(failure(session, path, &printed).await);
    }
    let entries = records(&printed)
        .filter(|(kind, _)| !is_broken(*kind))
        .map(|(kind, name)| json!({ "fileName": name, "isDirectory": kind == 'd', "isFile": kind == 'f' }));
    Ok(json!({ "entries": entries.collect::<Vec<_>>() }))
}

/// The files and directories below a directory, which a caller knows to be one, as below the name that the client has for it.
pub(super) async fn walk(
    session: &ExecSession,
    (path, shown_as): (&str, &str),
    options: &WalkOptions,
    through: Links,
) -> Result<Value, RpcError> {
    let depth = options.max_depth.to_string();
    let follows = options.follow_directory_symlinks && through == Links::LookedThrough;
    let links = if follows { "-L" } else { "-H" };
    let mut args = vec![links, path, "-mindepth", "1", "-maxdepth", &depth];
    if options.prune_hidden_directories {
        args.extend(["-type", "d", "-name", ".*", "-prune", "-o"]);
    }
    args.extend(["-printf", "%y %p\\0"]);
    let printed = find(session, "fs/walk", &args).await?;
    // A part that cannot be read, or is a loop, leaves the rest.
    let mut is_truncated = !printed.is_ok();
    let (mut entries, mut directories) = (Vec::new(), 0);
    for (kind, found) in records(&printed) {
        let kind = match kind {
            'd' => "directory",
            'f' => "file",
            // It was to be followed, and may be a directory.
            'l' if options.follow_directory_symlinks => {
                is_truncated |= !follows;
                continue;
            }
            _ => continue,
        };
        directories += usize::from(kind == "directory");
        if entries.len() >= options.max_entries.min(WALKED_MAX_ENTRIES)
            || directories > options.max_directories
        {
            is_truncated = true;
            break;
        }
        let below = found.strip_prefix(path).unwrap_or_default();
        let shown = format!(
            "{}{below}",
            if below.starts_with('/') { shown_as.trim_end_matches('/') } else { shown_as }
        );
        entries.push(json!({ "path": file_uri::of_path(&shown), "kind": kind }));
    }
    Ok(json!({ "entries": entries, "errors": [], "truncated": is_truncated }))
}

async fn find(session: &ExecSession, method: &str, args: &[&str]) -> Result<Printed, RpcError> {
    let program = FileProgram { method, name: "find", args, input: &[], max_bytes: LISTED_MAX_BYTES };
    run(session, program).await
}

/// Each whole record: a kind and a name.
fn records(printed: &Printed) -> impl Iterator<Item = (char, &str)> {
    let end = memchr::memrchr(0, &printed.stdout).unwrap_or(0);
    printed.stdout[..end].split(|byte| *byte == 0).filter_map(|record| {
        let (kind, name) = std::str::from_utf8(record).ok()?.split_once(' ')?;
        Some((kind.chars().next()?, name))
    })
}

/// A link that leads nowhere, in a circle, or where nobody may look.
fn is_broken(kind: char) -> bool {
    matches!(kind, 'N' | 'L' | '?')
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

    #[test]
    fn records_end_with_nul_and_one_that_is_cut_is_left_out() {
        let printed = Printed {
            stdout: b"d a b\0f \xff\0N gone\0f cu".to_vec(),
            stderr: String::new(),
            exit_code: None,
            is_cut: true,
        };
        assert_eq!(records(&printed).collect::<Vec<_>>(), [('d', "a b"), ('N', "gone")]);
    }
}
