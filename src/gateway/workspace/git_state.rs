//! Files of a repository by which git runs code without being configured: what it goes on with after an interruption, the todo list of an
//! interrupted rebase among them, and places where it still finds URLs. Pure.
//!
//! Everyday work writes and executes todo lists, so they are judged when no command runs any more.

use std::{collections::BTreeMap, ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use super::{
    config_rules,
    gitconfig::{self, ConfigKind},
    tree::FileContent,
};

/// The directories of a repository that these files are in.
pub(super) const STATE_DIRECTORIES: [&str; 6] =
    ["sequencer", "rebase-merge", "rebase-apply", "remotes", "branches", "gitweb"];

/// Whether a file of that name in a directory of that name is such a file, wherever the directory is.
pub(super) fn is_progress(directory: &OsStr, file: &OsStr) -> bool {
    matches!(
        (directory.as_bytes(), file.as_bytes()),
        (b"sequencer", b"opts")
            | (b"rebase-merge" | b"rebase-apply", b"strategy" | b"gpg_sign_opt")
            | (b"rebase-apply", b"apply-opt")
    )
}

/// Whether such a file can have this name.
pub(super) fn is_progress_name(file: &OsStr) -> bool {
    matches!(file.as_bytes(), b"opts" | b"strategy" | b"gpg_sign_opt" | b"apply-opt")
}

/// Whether every file counts that is in a repository's directory of that name.
pub(super) fn counts_whole(directory: &OsStr) -> bool {
    matches!(directory.as_bytes(), b"remotes" | b"branches" | b"gitweb")
}

/// What of the file makes git run code.
pub(super) fn dangerous_part(path: &Path, bytes: &[u8]) -> Option<String> {
    let directory = path.parent().and_then(Path::file_name).unwrap_or_default();
    match directory.as_bytes() {
        b"sequencer" => {
            let found = gitconfig::dangerous(bytes, ConfigKind::Sequencer);
            found.first().map(gitconfig::ConfigEntry::shown)
        }
        b"rebase-apply" if path.ends_with("apply-opt") => {
            let other = match shell_quoted_words(bytes) {
                Some(words) => words.into_iter().find(|word| !is_plain_apply_option(word))?,
                None => bytes.to_vec(),
            };
            Some(format!("git apply {}", String::from_utf8_lossy(&other)))
        }
        // An argument as it is for what goes on.
        b"rebase-merge" | b"rebase-apply" if path.ends_with("gpg_sign_opt") => {
            let is_key = bytes.trim_ascii().is_empty() || bytes.starts_with(b"-S");
            (!is_key).then(|| format!("git am {}", String::from_utf8_lossy(bytes)))
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

/// The words that git has quoted for a shell, as it reads them again; `None` for what it refuses.
fn shell_quoted_words(text: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = gitconfig::until_nul(text).trim_ascii_start();
    while !rest.is_empty() {
        let mut word = Vec::new();
        // Quoted parts of one word, with an escaped quote or exclamation mark between two.
        loop {
            let quoted = rest.strip_prefix(b"'")?;
            let end = quoted.iter().position(|byte| *byte == b'\'')?;
            word.extend_from_slice(&quoted[..end]);
            rest = &quoted[end + 1..];
            match rest {
                [b'\\', escaped @ (b'\'' | b'!'), after @ ..] => {
                    word.push(*escaped);
                    rest = after;
                }
                [] => break,
                [next, ..] if next.is_ascii_whitespace() => break,
                _ => return None,
            }
        }
        words.push(word);
        rest = rest.trim_ascii_start();
    }
    Some(words)
}

/// Whether an option of `git apply` writes no other file than the patch is about: those that `git am` hands on.
fn is_plain_apply_option(word: &[u8]) -> bool {
    let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let takes_text: [&[u8]; 4] = [b"--whitespace=", b"--exclude=", b"--include=", b"--directory="];
    let plain: [&[u8]; 5] = [b"--ignore-space-change", b"--ignore-whitespace", b"--reject", b"--3way", b"-3"];
    plain.contains(&word)
        || takes_text.iter().any(|option| word.starts_with(option))
        || [b"-p", b"-C"].iter().any(|option| word.strip_prefix(*option).is_some_and(is_number))
}

/// Whether a line of a remote is a URL for a program.
fn names_program(line: &[u8]) -> bool {
    let url = line.strip_prefix(b"URL:").unwrap_or(line).trim_ascii_start();
    url.starts_with(b"ext:") || url.windows(2).any(|pair| pair == b"::")
}

/// Whether git runs this line as a command. A line that git takes for a comment may count, too.
fn is_command(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    let word = line.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
    word == b"exec" || word == b"x"
}

/// How often each command stands in a list.
fn commands(bytes: &[u8]) -> BTreeMap<&[u8], usize> {
    let mut found = BTreeMap::new();
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| is_command(line)) {
        *found.entry(line.trim_ascii()).or_default() += 1;
    }
    found
}

fn commands_before(before: Option<&FileContent>) -> BTreeMap<&[u8], usize> {
    match before {
        Some(FileContent::File { bytes, .. }) => commands(bytes),
        _ => BTreeMap::new(),
    }
}

/// The first command of a list that was not in it before.
pub(super) fn new_commands(bytes: &[u8], before: Option<&FileContent>) -> Option<String> {
    let known = commands_before(before);
    let now = commands(bytes);
    let new = now.iter().find(|(line, count)| known.get(*line).is_none_or(|known| *count > known))?;
    Some(String::from_utf8_lossy(new.0).into_owned())
}

/// The list without commands that were not in it before.
pub(super) fn without_new_commands(bytes: &[u8], before: Option<&FileContent>) -> Vec<u8> {
    let mut left = commands_before(before);
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| {
        if !is_command(line) {
            return true;
        }
        match left.get_mut(line.trim_ascii()) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        }
    });
    lines.flatten().copied().collect()
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
            (".git/rebase-apply/apply-opt", " '--build-fake-ancestor=/home/me/.zshrc'\n"),
            (".git/rebase-apply/apply-opt", "'-p1' '--build-fake-anc=x'"),
            (".git/rebase-apply/apply-opt", "'-p1' '--unsafe-paths'"),
            (".git/rebase-apply/apply-opt", "'--build-fake'\\''-ancestor=x'"),
            (".git/rebase-apply/apply-opt", "'-p1--index'"),
            (".git/rebase-apply/apply-opt", "'-p1' '-z\n"),
            (".git/rebase-apply/apply-opt", "-p1"),
            (".git/rebase-apply/apply-opt", "'-p1'x"),
            (".git/rebase-apply/gpg_sign_opt", "--directory=x"),
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
            (".git/rebase-apply/apply-opt", ""),
            (".git/rebase-apply/apply-opt", "\n"),
            (".git/rebase-apply/apply-opt", " '--whitespace=fix' '-p2' '-C1' '--reject'\n"),
            (".git/rebase-apply/apply-opt", " '--directory=it'\\''s/a b'\\!'' '--exclude=*.c' '--include=x'"),
            (".git/rebase-apply/apply-opt", "'--ignore-space-change' '--ignore-whitespace' '--3way'"),
            (".git/rebase-apply/gpg_sign_opt", "-Sme@example.org\n"),
            (".git/rebase-merge/gpg_sign_opt", "-S"),
            (
                ".git/remotes/origin",
                "URL: https://example.org/x\nPull: +refs/heads/*:refs/remotes/origin/*\n",
            ),
            (".git/branches/origin", "git@example.org:x#main\n"),
        ] {
            assert!(!is_dangerous(path, text), "{path} {text:?}");
        }
    }

    #[test]
    fn commands_are_taken_out_and_the_rest_stays() {
        let list = b"pick 1234 exec\n  exec ./x\nx\tmake\n# exec ./y\nfixup 12 x\nexec make\n";
        assert_eq!(new_commands(list, None).as_deref(), Some("exec ./x"));
        assert_eq!(without_new_commands(list, None), b"pick 1234 exec\n# exec ./y\nfixup 12 x\n");
        let before = FileContent::File { bytes: b"x\tmake\nexec make\n".to_vec(), mode: 0o644 };
        assert_eq!(new_commands(b"exec make\npick 1\n", Some(&before)), None);
        assert!(new_commands(b"exec make\nexec make\n", Some(&before)).is_some());
        assert_eq!(without_new_commands(b"exec make\nexec make\n", Some(&before)), b"exec make\n");
    }
}
