//! Reads the name and address of a caller's commits from the caller's own git configuration, and nothing else of it.
//!
//! With the caller's rights, as data: what other files the configuration includes is not followed, and git is not run.

use std::path::Path;

use nix::fcntl::AT_FDCWD;

use super::small_file::{self, Links};
use crate::{sandbox::spec::GitIdentity, sys::rights::Rights, workspace};

/// The most bytes that are read of a configuration.
const CONFIG_MAX_BYTES: u64 = 1 << 20;
/// The longest name or address, in bytes.
const VALUE_MAX_BYTES: usize = 256;

/// The identity that git would give to the caller's commits; `None` where the configuration has none.
pub(super) fn of(home: &Path, rights: &Rights) -> Option<GitIdentity> {
    // As git reads them: what is later in the list wins.
    let files = [".config/git/config", ".gitconfig"].map(|name| home.join(name));
    let read = || files.map(|file| small_file::read(AT_FDCWD, &file, Links::Followed, CONFIG_MAX_BYTES).ok());
    let texts: Vec<Vec<u8>> = rights.run_with(read).ok()?.into_iter().flatten().collect();
    let value = |name| {
        let mut values = texts.iter().filter_map(|text| workspace::last_value(text, name));
        values.next_back().filter(|value| is_plain(value)).unwrap_or_default()
    };
    let identity = GitIdentity { name: value("user.name"), email: value("user.email") };
    (identity != GitIdentity::default()).then_some(identity)
}

fn is_plain(value: &str) -> bool {
    value.len() <= VALUE_MAX_BYTES && !value.chars().any(char::is_control)
}
