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
        return Err(file_status::failure(session, path, &printed).await);
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
        entries.push(json!({ "path": uri::of_path(&shown), "kind": kind }));
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
