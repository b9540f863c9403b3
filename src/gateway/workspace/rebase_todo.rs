//! The todo list of an interrupted rebase: git runs the commands in it when the rebase is continued. Pure.
//!
//! Everyday work writes and executes such lists, so they are judged when no command runs any more.

use std::collections::BTreeMap;

use super::tree::FileContent;

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
pub fn new_commands(bytes: &[u8], before: Option<&FileContent>) -> Option<String> {
    let known = commands_before(before);
    let now = commands(bytes);
    let new = now.iter().find(|(line, count)| known.get(*line).is_none_or(|known| *count > known))?;
    Some(String::from_utf8_lossy(new.0).into_owned())
}

/// The list without commands that were not in it before.
pub fn without_new_commands(bytes: &[u8], before: Option<&FileContent>) -> Vec<u8> {
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
