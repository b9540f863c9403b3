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
    use super::*;

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
