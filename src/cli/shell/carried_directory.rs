//! The directory in which a line of Claude Code has ended, carried to the file in which the agent looks for it.
//!
//! The line wrote it into a file of the sandbox, where the agent's own file is not. What it wrote is the command's word: it is taken
//! only if it is one line and a directory of the session, and only Claude Code's own file is written, and no link followed.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::shell_call::{split_claude_tail, with_claude_tail};
use crate::{cli::console::output_file, proto::v1};

/// The longest path that is carried, PATH_MAX of limits.h.
const PATH_MAX_BYTES: usize = 4_096;

/// A directory that is to be carried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CarriedDirectory {
    /// The agent's file, outside.
    agent_file: PathBuf,
    /// Where the line writes, in the sandbox.
    sandbox_file: String,
}

impl CarriedDirectory {
    /// Takes the agent's file out of a line of Claude Code; the line then writes to a file of the sandbox.
    pub(super) fn take_from(line: &mut String) -> Option<Self> {
        let (body, agent_file) = split_claude_tail(line)?;
        let sandbox_file = format!("/tmp/.provost-directory-{}", std::process::id());
        *line = with_claude_tail(body, &sandbox_file);
        Some(Self { agent_file, sandbox_file })
    }

    /// The command that prints what the line has written.
    pub(in crate::cli) fn reading(&self) -> v1::create_terminal_request::Command {
        v1::create_terminal_request::Command::ShellLine(format!("cat {0} && rm -f {0}", self.sandbox_file))
    }

    /// Writes the directory for the agent, if it is one of the session.
    pub(super) fn deliver(&self, printed: &[u8], roots: &[String]) -> io::Result<()> {
        match directory_in(printed, roots) {
            Some(directory) => write_owned(&self.agent_file, directory),
            // The agent then stays where it was.
            None => Ok(()),
        }
    }
}

/// The one line that was printed, if it is the path of a root or of what lies in one.
fn directory_in<'a>(printed: &'a [u8], roots: &[String]) -> Option<&'a str> {
    let path = std::str::from_utf8(printed.strip_suffix(b"\n")?).ok()?;
    let is_plain = path.len() < PATH_MAX_BYTES && !path.contains(char::is_control);
    let is_direct = Path::new(path).components().all(|part| !matches!(part, std::path::Component::ParentDir));
    let is_inside = roots.iter().any(|root| Path::new(path).starts_with(root));
    (is_plain && is_direct && is_inside).then_some(path)
}

/// Puts a file of this user alone in the place of the agent's.
fn write_owned(file: &Path, directory: &str) -> io::Result<()> {
    output_file::replace(file, &format!("{directory}\n"), 0o600)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_line_with_a_directory_of_the_session_is_carried() {
        let roots = ["/work/a".to_owned(), "/work/b".to_owned()];
        for path in ["/work/a", "/work/a/src", "/work/b/x y"] {
            assert_eq!(directory_in(format!("{path}\n").as_bytes(), &roots), Some(path));
        }
        for other in [
            "/work\n",
            "/work/ab\n",
            "/work/a/../..\n",
            "/work/a",
            "/work/a\nx\n",
            "/work/a/\x1b[2J\n",
            "\n",
            "",
        ] {
            assert_eq!(directory_in(other.as_bytes(), &roots), None, "{other:?}");
        }
        assert_eq!(directory_in(b"/work/a/\xff\n", &roots), None);
    }

    #[test]
    fn no_link_is_followed_to_the_agents_file() {
        let directory = tempfile::tempdir().unwrap();
        let (file, target) = (directory.path().join("claude-1-cwd"), directory.path().join("target"));
        write_owned(&file, "/work/a").unwrap();
        write_owned(&file, "/w").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"/w\n");
        std::fs::write(&target, "kept").unwrap();
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(&target, &file).unwrap();
        assert!(write_owned(&file, "/work/a").is_err());
        std::fs::remove_file(&file).unwrap();
        std::fs::hard_link(&target, &file).unwrap();
        write_owned(&file, "/work/a").unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"kept");
    }
}
