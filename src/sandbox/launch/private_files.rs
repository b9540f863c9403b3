//! What lies in a sandbox's `/tmp` and home before its first command, and which of the two the session's sandboxes share.

use std::{io, net::Ipv4Addr, os::fd::OwnedFd};

use crate::{
    proto::supervisor::{Mount, mount::Kind},
    sandbox::spec::{CallerHome, GitIdentity, GitSigning, SessionFilesUse, SharedCache},
};

/// What a sandbox has of the caller's home and of its session's directories.
#[derive(Debug, Clone, Copy)]
pub struct PrivateFiles<'a> {
    /// Of the caller's home.
    pub caller: &'a CallerHome,
    /// Caches of the caller's home.
    pub caches: &'a [SharedCache],
    /// Whose `/tmp` and home are.
    pub session: &'a SessionFilesUse,
    /// Where its resolver listens, if it has a network of its own.
    pub resolver: Ipv4Addr,
}

/// The directories between a directory and what lies below it, outermost first.
pub(super) fn between(above: &str, below: &str) -> Vec<String> {
    let inner = below.strip_prefix(above).unwrap_or_default().trim_start_matches('/');
    let ends = inner.match_indices('/').map(|(end, _)| &inner[..end]);
    ends.map(|part| format!("{above}/{part}")).collect()
}

/// Makes a tmpfs the session's one of this name. Returns its mount, if another sandbox has made it.
pub(super) fn share(tmpfs: &mut Mount, name: &str, files: &SessionFilesUse) -> io::Result<Option<OwnedFd>> {
    let given = match files {
        SessionFilesUse::Own => return Ok(None),
        SessionFilesUse::First => None,
        SessionFilesUse::Given(files) => files.mounts.get(name),
    };
    let given = given.map(|mount| mount.try_clone()).transpose()?;
    tmpfs.shared = name.into();
    tmpfs.from_descriptor = given.is_some();
    tmpfs.given = given.is_some();
    Ok(given)
}

/// Git's own configuration in the private home, which commands may change.
pub(super) fn git_configuration(home: &str, identity: Option<&GitIdentity>) -> Mount {
    let quote = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let GitIdentity { name, email, signing } = identity.cloned().unwrap_or_default();
    let key = signing.as_ref().map(|signing| format!("key::{}", signing.key)).unwrap_or_default();
    let lines: String = [("name", name), ("email", email), ("signingkey", key)]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| format!("\t{key} = \"{}\"\n", quote(&value)))
        .collect();
    let user = if lines.is_empty() { String::new() } else { format!("[user]\n{lines}") };
    // Any owner's repository: git's own check keeps others' configuration from running, and here it is confined.
    let signing = signing.map_or_else(String::new, |GitSigning { commits, tags, .. }| {
        format!("[gpg]\n\tformat = ssh\n[commit]\n\tgpgsign = {commits}\n[tag]\n\tgpgsign = {tags}\n")
    });
    let content = format!("{user}{signing}[safe]\n\tdirectory = *\n");
    Mount {
        kind: Kind::File.into(),
        target: format!("{home}/.gitconfig"),
        content: content.into_bytes().into(),
        mode: 0o644,
        ..Mount::default()
    }
}
