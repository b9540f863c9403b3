//! What lies in a sandbox's `/tmp` and home before its first command, and which of the two the session's sandboxes share.

use std::{collections::BTreeSet, io, net::Ipv4Addr, os::fd::OwnedFd};

use crate::{
    proto::supervisor::{Identity, Mount, mount::Kind},
    sandbox::{
        launch::named_links::NamedWay,
        spec::{CallerHome, GitIdentity, GitSigning, SessionFilesUse, SharedCache},
    },
};

/// What a sandbox has of the caller's home and of its session's directories.
#[derive(Debug, Clone, Copy)]
pub(super) struct PrivateFiles<'a> {
    /// The caller's home.
    pub caller: &'a CallerHome,
    /// Caches of the caller's home.
    pub caches: &'a [SharedCache],
    /// Whose `/tmp` and home are.
    pub session: &'a SessionFilesUse,
    /// Where its resolver listens, if it has a network of its own.
    pub resolver: Ipv4Addr,
    /// The links by which the caller names its roots.
    pub named: &'a [NamedWay],
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

/// Git's own configuration in the private home, which commands may change, and the files that it names.
pub(super) fn git_configuration(ids: &Identity, caller: &CallerHome) -> Vec<Mount> {
    let files = caller.git_configuration.iter().flat_map(|configuration| &configuration.files);
    let file = |name: &str, content: Vec<u8>| Mount {
        kind: Kind::File.into(),
        target: format!("{}/{name}", ids.home),
        content: content.into(),
        mode: 0o644,
        ..Mount::default()
    };
    let files: Vec<Mount> = files.map(|one| file(&one.name, one.content.clone())).collect();
    let directories: BTreeSet<String> =
        files.iter().flat_map(|file| between(&ids.home, &file.target)).collect();
    let directory = |target: String| Mount {
        kind: Kind::Directory.into(),
        target,
        disk_uid: ids.command_uid,
        disk_gid: ids.command_gid,
        ..Mount::default()
    };
    let own = file(".gitconfig", configuration_text(caller).into_bytes());
    directories.into_iter().map(directory).chain(files).chain([own]).collect()
}

fn configuration_text(caller: &CallerHome) -> String {
    let configuration = caller.git_configuration.as_ref();
    let carried = configuration.map(|configuration| configuration.text.as_str()).unwrap_or_default();
    let quote = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let GitIdentity { mut name, mut email, signing } = caller.git_identity.clone().unwrap_or_default();
    if configuration.is_some() {
        // They are among the others, in their place.
        name.clear();
        email.clear();
    }
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
    // What git starts in the background would end with the command, half-way: it ends before git does.
    format!(
        "{carried}{user}{signing}[safe]\n\tdirectory = *\n[gc]\n\tautoDetach = false\n[maintenance]\n\tautoDetach = false\n"
    )
}
