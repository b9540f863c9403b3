//! What a caller that takes this program for a shell wants run: the arguments of sh(1), and the line that Claude Code makes. Pure.
//!
//! It reads no shell language but the end of that one line.

use std::path::{Path, PathBuf};

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
}
