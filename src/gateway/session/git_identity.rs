//! Reads the name and address of a caller's commits, and the public key that signs them, from the caller's own git configuration, and
//! nothing else of it.
//!
//! With the caller's rights, as data: what other files the configuration includes is not followed, and git is not run.

use std::path::{Path, PathBuf};

use nix::fcntl::AT_FDCWD;

use super::small_file::{self, Links};
use crate::{
    sandbox::spec::{GitIdentity, GitSigning},
    sys::rights::Rights,
    workspace,
};

/// The most bytes that are read of a configuration.
const CONFIG_MAX_BYTES: u64 = 1 << 20;
/// The most bytes of a public key's file.
const KEY_MAX_BYTES: u64 = 16 << 10;
/// The longest name or address, in bytes.
const VALUE_MAX_BYTES: usize = 256;
/// The longest public key, or path of one, in bytes.
const KEY_VALUE_MAX_BYTES: usize = 4_096;

/// The identity that git would give to the caller's commits; `None` where the configuration has none.
pub(super) fn of(home: &Path, rights: &Rights) -> Option<GitIdentity> {
    // As git reads them: what is later in the list wins.
    let files = [".config/git/config", ".gitconfig"].map(|name| home.join(name));
    let read = || files.map(|file| small_file::read(AT_FDCWD, &file, Links::Followed, CONFIG_MAX_BYTES).ok());
    let texts: Vec<Vec<u8>> = rights.run_with(read).ok()?.into_iter().flatten().collect();
    let value_within = |name, max_bytes| {
        let mut values = texts.iter().filter_map(|text| workspace::last_value(text, name));
        values.next_back().filter(|value| is_plain(value, max_bytes)).unwrap_or_default()
    };
    let value = |name| value_within(name, VALUE_MAX_BYTES);
    let signing = (value("gpg.format") == "ssh")
        .then(|| signing_key(home, &value_within("user.signingkey", KEY_VALUE_MAX_BYTES), rights))
        .flatten()
        .map(|key| GitSigning {
            key,
            commits: is_true(&value("commit.gpgsign")),
            tags: is_true(&value("tag.gpgsign")),
        });
    let identity = GitIdentity { name: value("user.name"), email: value("user.email"), signing };
    (identity != GitIdentity::default()).then_some(identity)
}

/// As git reads a truth value.
fn is_true(value: &str) -> bool {
    ["true", "yes", "on", "1"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// The public key that git's configuration names: itself, or a file. What lies next to it, or under its name without `.pub`, is not read.
fn signing_key(home: &Path, named: &str, rights: &Rights) -> Option<String> {
    if let Some(key) = public_key(named.strip_prefix("key::").unwrap_or(named)) {
        return Some(key);
    }
    let path = match named.strip_prefix("~/") {
        Some(below) => home.join(below),
        None => PathBuf::from(named),
    };
    if !path.is_absolute() {
        return None;
    }
    let public = match path.extension() {
        Some(extension) if extension == "pub" => path,
        Some(_) | None => PathBuf::from(format!("{}.pub", path.to_str()?)),
    };
    let read = || small_file::read(AT_FDCWD, &public, Links::Followed, KEY_MAX_BYTES);
    let bytes = rights.run_with(read).ok()?.ok()?;
    public_key(str::from_utf8(&bytes).ok()?.lines().next()?)
}

/// The type and base64 of a public key in one line, without its comment.
fn public_key(line: &str) -> Option<String> {
    let mut words = line.split_ascii_whitespace();
    let (kind, key) = (words.next()?, words.next()?);
    let is_kind = ["ssh-", "ecdsa-", "sk-"].iter().any(|start| kind.starts_with(start));
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-@._".contains(&byte);
    let base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    (is_kind && kind.bytes().all(plain) && key.bytes().all(base64)).then(|| format!("{kind} {key}"))
}

fn is_plain(value: &str, max_bytes: usize) -> bool {
    value.len() <= max_bytes && !value.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The identity in a home with this configuration, and these public keys.
    fn of_home(configuration: &str, keys: &[(&str, &str)]) -> Option<GitIdentity> {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join(".gitconfig"), configuration).unwrap();
        fs::create_dir(home.path().join(".ssh")).unwrap();
        for (name, key) in keys {
            fs::write(home.path().join(".ssh").join(name), format!("ssh-ed25519 {key} me@host\n")).unwrap();
        }
        of(home.path(), &Rights::own())
    }

    #[test]
    fn a_name_that_is_long_or_has_control_characters_is_none() {
        let longest = "n".repeat(VALUE_MAX_BYTES);
        let beyond = format!("{longest}n");
        for (written, name) in [
            ("Ann", "Ann"),
            (longest.as_str(), longest.as_str()),
            (beyond.as_str(), ""),
            ("\"Ann\\tOther\"", ""),
            ("\"Ann\\nOther\"", ""),
        ] {
            let found = of_home(&format!("[user]\n\temail = ann@example.org\n\tname = {written}\n"), &[]);
            let expected =
                GitIdentity { name: name.to_owned(), email: "ann@example.org".to_owned(), signing: None };
            assert_eq!(found, Some(expected), "{written}");
        }
        assert_eq!(of_home(&format!("[user]\n\tname = {beyond}\n"), &[]), None);
    }

    #[test]
    fn commits_and_tags_are_signed_where_git_would_sign_them() {
        for (word, is_signed) in [
            ("true", true),
            ("Yes", true),
            ("ON", true),
            ("1", true),
            ("false", false),
            ("no", false),
            ("0", false),
        ] {
            let configuration = format!(
                "[user]\nsigningkey = key::ssh-ed25519 AAAA\n[gpg]\nformat = ssh\n[commit]\ngpgsign = {word}\n\
                 [tag]\ngpgsign = {}\n",
                !is_signed
            );
            let signing = of_home(&configuration, &[]).and_then(|identity| identity.signing);
            let key = "ssh-ed25519 AAAA".to_owned();
            assert_eq!(signing, Some(GitSigning { key, commits: is_signed, tags: !is_signed }), "{word}");
        }
    }

    #[test]
    fn of_a_key_only_the_file_of_the_public_part_is_read() {
        let keys = [
            ("id", "PRIVATE"),
            ("id.pub", "AAAA"),
            ("id.pub.pub", "NEXT"),
            ("id.work", "PRIVATE"),
            ("id.work.pub", "BBBB"),
        ];
        let key = |format: &str, named: &str| {
            let configuration = format!("[user]\nsigningkey = {named}\n[gpg]\nformat = {format}\n");
            of_home(&configuration, &keys).and_then(|identity| identity.signing).map(|signing| signing.key)
        };
        for (named, expected) in [
            ("~/.ssh/id", Some("ssh-ed25519 AAAA")),
            ("~/.ssh/id.pub", Some("ssh-ed25519 AAAA")),
            ("~/.ssh/id.work", Some("ssh-ed25519 BBBB")),
            ("ssh-ed25519 CCCC", Some("ssh-ed25519 CCCC")),
            ("~/.ssh/none", None),
            (".ssh/id.pub", None),
        ] {
            assert_eq!(key("ssh", named).as_deref(), expected, "{named}");
        }
        assert_eq!(key("openpgp", "~/.ssh/id.pub"), None);
    }

    #[test]
    fn only_a_public_key_is_one() {
        assert_eq!(public_key("ssh-ed25519 AAAAC3Nz+/= me@host").as_deref(), Some("ssh-ed25519 AAAAC3Nz+/="));
        assert_eq!(
            public_key("sk-ssh-ed25519@openssh.com AAAA").as_deref(),
            Some("sk-ssh-ed25519@openssh.com AAAA")
        );
        for other in [
            "",
            "ssh-ed25519",
            "-----BEGIN OPENSSH PRIVATE KEY-----",
            "ssh-rsa AA\"A",
            "/home/me/key",
            "rsa AAAA",
        ] {
            assert_eq!(public_key(other), None, "{other}");
        }
    }
}
