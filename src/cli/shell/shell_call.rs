//! What a caller that takes this program for a shell wants run: the arguments of sh(1), and the line that Claude Code makes; and the
//! directory in which such a line has ended, carried to the file in which the agent looks for it.
//!
//! It reads no shell language but the end of that one line, which writes the directory into a file of the sandbox, where the agent's own
//! file is not. What it wrote is the command's word: it is taken only if it is one line and a directory of the session, and only Claude
//! Code's own file is written, and no link followed.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{cli::console::output_file, proto::v1};

/// How Claude Code ends a line whose last directory it wants to know.
const CLAUDE_TAIL: &str = " && pwd -P >| ";

/// A call of a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ShellCall {
    /// A line: that of `-c`, or the only argument, as prefixes are called.
    Line(String),
    /// These arguments, as they are: a script, a shell that reads its input, or options that change what a line means.
    Arguments(Vec<String>),
}

impl ShellCall {
    /// Reads the arguments of a shell. A login shell and an interactive one run a line like any other: the sandbox has no files for
    /// them to read.
    pub(in crate::cli) fn of(arguments: Vec<String>) -> Self {
        let mut words = arguments.iter();
        let mut is_line = false;
        while let Some(word) = words.as_slice().first() {
            match word.as_str() {
                "--login" | "-l" | "-i" | "-li" | "-il" => {}
                cluster if is_line_cluster(cluster) => is_line = true,
                _ => break,
            }
            words.next();
        }
        let operands = words.as_slice();
        match operands {
            [line] if is_line => Self::Line(line.clone()),
            [line] if operands.len() == arguments.len() && !line.starts_with(['-', '+']) => {
                Self::Line(line.clone())
            }
            _ => Self::Arguments(arguments),
        }
    }

    /// The arguments for a shell in the sandbox.
    pub(super) fn into_arguments(self) -> Vec<String> {
        match self {
            Self::Line(line) => vec!["-c".to_owned(), line],
            Self::Arguments(arguments) => arguments,
        }
    }
}

/// `-c`, alone or with what changes nothing here.
fn is_line_cluster(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|letters| {
        letters.contains('c') && letters.bytes().all(|letter| matches!(letter, b'c' | b'i' | b'l'))
    })
}

/// A line of Claude Code without its end, and the file in which it looks for the directory that the line has ended in.
pub(super) fn split_claude_tail(line: &str) -> Option<(&str, PathBuf)> {
    let (body, file) = line.rsplit_once(CLAUDE_TAIL)?;
    let file = Path::new(plain_word(file)?);
    let name = file.file_name()?.to_str()?;
    let id = name.strip_prefix("claude-")?.strip_suffix("-cwd")?;
    let is_its = file.is_absolute() && !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_its.then(|| (body, file.to_owned()))
}

/// The same line with its end writing to another file, whose name needs no quotes.
pub(super) fn with_claude_tail(body: &str, file: &str) -> String {
    format!("{body}{CLAUDE_TAIL}{file}")
}

/// A word that a shell takes as it stands, or in single quotes.
fn plain_word(word: &str) -> Option<&str> {
    if let Some(quoted) = word.strip_prefix('\'') {
        return quoted.strip_suffix('\'').filter(|text| !text.contains('\''));
    }
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'_' | b'-' | b'+');
    word.bytes().all(is_plain).then_some(word)
}

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

    fn call(arguments: &[&str]) -> ShellCall {
        ShellCall::of(arguments.iter().map(|&word| word.to_owned()).collect())
    }

    fn line(text: &str) -> ShellCall {
        ShellCall::Line(text.to_owned())
    }

    #[test]
    fn a_line_is_found_in_every_usual_form() {
        for arguments in [
            &["-c", "ls -l"][..],
            &["-lc", "ls -l"],
            &["-l", "-c", "ls -l"],
            &["-c", "-l", "ls -l"],
            &["-i", "-c", "ls -l"],
            &["--login", "-c", "ls -l"],
            &["ls -l"],
        ] {
            assert_eq!(call(arguments), line("ls -l"), "{arguments:?}");
        }
        assert_eq!(call(&["-c", ""]), line(""));
    }

    #[test]
    fn what_is_no_single_line_is_left_to_the_shell() {
        for arguments in [
            &["-ec", "false; true"][..],
            &["-c", "echo $0", "name", "argument"],
            &["-o", "pipefail", "-c", "false | true"],
            &["script.sh", "argument"],
            &["-s"],
            &["-l", "script.sh"],
            &["-c"],
            &[],
        ] {
            let ShellCall::Arguments(left) = call(arguments) else { panic!("{arguments:?}") };
            assert_eq!(left, arguments);
        }
    }

    #[test]
    fn the_end_of_a_line_of_claude_code_names_its_file() {
        let (body, file) = split_claude_tail("eval 'cd src' && pwd -P >| /tmp/claude-a1b2-cwd").unwrap();
        assert_eq!((body, file.to_str().unwrap()), ("eval 'cd src'", "/tmp/claude-a1b2-cwd"));
        let quoted = "eval 'x' && pwd -P >| '/tmp/a b/claude-12-cwd'";
        assert_eq!(split_claude_tail(quoted).unwrap().1, Path::new("/tmp/a b/claude-12-cwd"));
        for other in [
            "true && pwd -P >| /home/me/.bashrc",
            "true && pwd -P >| claude-a1-cwd",
            "true && pwd -P >| /tmp/claude--cwd",
            "true && pwd -P >| /tmp/claude-a1-cwd; true",
            "true && pwd -P >| /tmp/claude-$(id)-cwd",
            "true && pwd -P >| '/tmp/claude-a1-cwd",
            "pwd -P >| /tmp/claude-a1-cwd",
        ] {
            assert_eq!(split_claude_tail(other), None, "{other}");
        }
    }

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
