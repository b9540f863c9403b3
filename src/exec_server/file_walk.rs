//! The names in a directory and in a tree, by find(1).
//!
//! Links are not followed unless the client says so, names that are no UTF-8 are left out, and the length of a list is bounded.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    file_program::{self, FileProgram, Printed},
    file_status,
    message::{ErrorCode, RpcError},
    session::ExecSession,
    uri,
};

/// What find prints at most, in bytes.
pub const LISTED_MAX_BYTES: usize = 8 << 20;
/// The most entries of a walk, whatever the client asks for.
pub const WALKED_MAX_ENTRIES: usize = 50_000;

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

/// The entries of a directory, which a caller knows to be one.
pub(super) async fn read_directory(session: &ExecSession, path: &str) -> Result<Value, RpcError> {
    let args = ["-H", path, "-mindepth", "1", "-maxdepth", "1", "-printf", "%Y %f\\0"];
    let printed = find(session, "fs/readDirectory", &args).await?;
    if printed.is_cut {
        let problem = format!("the names in the directory have more than {LISTED_MAX_BYTES} bytes");
        return Err(RpcError::new(ErrorCode::InvalidRequest, "DIRECTORY_TOO_LARGE", &problem));
    }
    if !printed.is_ok() {
        return Err(file_status::failure(session, path, &printed).await);
    }
    let entries = records(&printed)
        .filter(|(kind, _)| !is_broken(*kind))
        .map(|(kind, name)| json!({ "fileName": name, "isDirectory": kind == 'd', "isFile": kind == 'f' }));
    Ok(json!({ "entries": entries.collect::<Vec<_>>() }))
}

/// The files and directories below a directory, which a caller knows to be one.
pub(super) async fn walk(
    session: &ExecSession,
    path: &str,
    options: &WalkOptions,
) -> Result<Value, RpcError> {
    let depth = options.max_depth.to_string();
    let links = if options.follow_directory_symlinks { "-L" } else { "-H" };
    let mut args = vec![links, path, "-mindepth", "1", "-maxdepth", &depth];
    if options.prune_hidden_directories {
        args.extend(["-type", "d", "-name", ".*", "-prune", "-o"]);
    }
    args.extend(["-printf", "%y %p\\0"]);
    let printed = find(session, "fs/walk", &args).await?;
    // A part that cannot be read, or is a loop, leaves the rest.
    let mut is_truncated = !printed.is_ok();
    let (mut entries, mut directories) = (Vec::new(), 0);
    for (kind, path) in records(&printed) {
        let kind = match kind {
            'd' => "directory",
            'f' => "file",
            _ => continue,
        };
        directories += usize::from(kind == "directory");
        if entries.len() >= options.max_entries.min(WALKED_MAX_ENTRIES)
            || directories > options.max_directories
        {
            is_truncated = true;
            break;
        }
        entries.push(json!({ "path": uri::of_path(path), "kind": kind }));
    }
    Ok(json!({ "entries": entries, "errors": [], "truncated": is_truncated }))
}

async fn find(session: &ExecSession, method: &str, args: &[&str]) -> Result<Printed, RpcError> {
    let program = FileProgram { method, name: "find", args, input: &[], max_bytes: LISTED_MAX_BYTES };
    file_program::run(session, program).await
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
