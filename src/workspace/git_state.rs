//! Files of a repository by which git runs code without being configured: what it goes on with after an interruption, and
//! places where it still finds URLs. Pure.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use super::{
    config_rules,
    gitconfig::{self, ConfigKind},
};

/// The directories of a repository that these files are in.
pub const STATE_DIRECTORIES: [&str; 6] =
    ["sequencer", "rebase-merge", "rebase-apply", "remotes", "branches", "gitweb"];

/// Whether a file of that name in a directory of that name is such a file, wherever the directory is.
pub fn is_progress(directory: &OsStr, file: &OsStr) -> bool {
    matches!(
        (directory.as_bytes(), file.as_bytes()),
        (b"sequencer", b"opts") | (b"rebase-merge" | b"rebase-apply", b"strategy")
    )
}

/// Whether every file counts that is in a repository's directory of that name.
pub fn counts_whole(directory: &OsStr) -> bool {
    matches!(directory.as_bytes(), b"remotes" | b"branches" | b"gitweb")
}

/// What of the file makes git run code.
pub fn dangerous_part(path: &Path, bytes: &[u8]) -> Option<String> {
    let directory = path.parent().and_then(Path::file_name).unwrap_or_default();
    match directory.as_bytes() {
        b"sequencer" => {
            let found = gitconfig::dangerous(bytes, ConfigKind::Sequencer);
            found.first().map(|entry| format!("{} = {}", entry.name(), entry.value))
        }
        b"rebase-merge" | b"rebase-apply" => {
            let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
            let name = line.strip_suffix(b"\r").unwrap_or(line);
            let is_own = config_rules::is_own_strategy(name);
            (!is_own).then(|| format!("strategy = {}", String::from_utf8_lossy(name)))
        }
        b"remotes" | b"branches" => {
            let line = bytes.split(|byte| *byte == b'\n').find(|line| names_program(line))?;
            Some(String::from_utf8_lossy(line).into_owned())
        }
        _ => Some("what git instaweb runs".to_owned()),
    }
}

/// Whether a line of a remote is a URL for a program.
fn names_program(line: &[u8]) -> bool {
    let url = line.strip_prefix(b"URL:").unwrap_or(line).trim_ascii_start();
    url.starts_with(b"ext:") || url.windows(2).any(|pair| pair == b"::")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategies_that_are_not_gits_own_and_urls_for_programs_are_dangerous() {
        let is_dangerous =
            |path: &str, text: &str| dangerous_part(Path::new(path), text.as_bytes()).is_some();
        for (path, text) in [
            (".git/sequencer/opts", "[options]\n\tstrategy = x/e\n"),
            (".git/sequencer/opts", "[options \"strategy\0\"]\n\ta = x/e\n"),
            (".git/rebase-merge/strategy", "x/e\n"),
            (".git/rebase-merge/strategy", "ort\n\n"),
            (".git/rebase-apply/strategy", "../x"),
            (".git/remotes/origin", "Pull: a\nURL: ext::./x\n"),
            (".git/remotes/origin", "URL:ext://x\n"),
            (".git/branches/origin", "  other::x"),
            (".git/gitweb/gitweb_config.perl", "x"),
        ] {
            assert!(is_dangerous(path, text), "{path} {text:?}");
        }
        for (path, text) in [
            (
                ".git/sequencer/opts",
                "[options]\n\tstrategy = ort\n\tstrategy-option = theirs\n\tgpg-sign = x\n",
            ),
            (".git/rebase-merge/strategy", "ort\n"),
            (".git/rebase-merge/strategy", "recursive\r\n"),
            (".git/rebase-apply/strategy", ""),
            (
                ".git/remotes/origin",
                "URL: https://example.org/x\nPull: +refs/heads/*:refs/remotes/origin/*\n",
            ),
            (".git/branches/origin", "git@example.org:x#main\n"),
        ] {
            assert!(!is_dangerous(path, text), "{path} {text:?}");
        }
    }
}
