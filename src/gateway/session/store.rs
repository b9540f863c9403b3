//! Stores sessions in files, so that they outlive the gateway: written before Create answers, removed when the session has
//! closed.
//!
//! A file holds the caller's request and what the kernel reported, and only the gateway's user can read it. A file that cannot
//! be read is reported and left in place, because an older or newer gateway may be able to read it.

use std::{
    collections::HashSet,
    fs, io,
    os::{fd::OwnedFd, unix::fs::DirBuilderExt},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock, mpsc::sync_channel},
    thread,
    time::{Duration, UNIX_EPOCH},
};

use super::{
    FILESYSTEM_TIMEOUT,
    id::SessionId,
    principal::Principal,
    real_path,
    sandboxes::{Sandboxes, SessionNetworks},
    session::{CloseBarrier, Lifetime, Session, UnusedSince},
    store_roots,
};
use crate::{
    byte_text,
    policy::{
        AbsPath, Digest, PathError,
        environment::{EnvEntry, EnvVarError},
        profile::Network,
    },
    proto::state::{
        GitConfigurationRecord, GitFileRecord, GitIdentityRecord, OwnerProcess, RootRecord, SessionRecord,
        Variable,
    },
    sandbox::{
        roots::{
            self, Ownership, RootError,
            governing::{Governing, GoverningError},
        },
        spec::{GitConfiguration, GitFile, GitIdentity, GitSigning, Owner, Root},
    },
    statefile::{self, StatefileError, TEMP_SUFFIX},
    sys::{
        process::{self, ProcessIdentity},
        rights::Rights,
    },
};

/// Whether sessions are stored in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// In files of the state directory.
    InFiles,
    /// Not at all: they end with this process.
    InMemory,
}

/// A session cannot be restored from its file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RestoreError {
    /// The file cannot be used.
    #[error("the session's record")]
    Record(#[from] StatefileError),
    /// It is about another session, or lacks what every session has.
    #[error("the session's record is about another one, or lacks what every session has")]
    Other,
    /// A directory in it is none.
    #[error("a directory in the session's record")]
    Path(#[from] PathError),
    /// A variable in it is none.
    #[error("a variable in the session's record")]
    Variable(#[from] EnvVarError),
    /// Its commands would reach what governs them now.
    #[error(transparent)]
    Governing(GoverningError),
    /// The host's state cannot be read.
    #[error("look at the host")]
    Host(#[source] io::Error),
}

/// The directory of the sessions' files.
pub(super) fn directory(state: &Path) -> PathBuf {
    state.join("sessions")
}

fn file(state: &Path, id: SessionId) -> PathBuf {
    directory(state).join(id.to_string())
}

/// Writes a session down.
pub(super) fn write(state: &Path, record: &SessionRecord) -> io::Result<()> {
    let path = directory(state).join(&record.id);
    match statefile::write(&path, record) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory(state))?;
            statefile::write(&path, record)
        }
        done => done,
    }
}

/// Forgets a session.
pub(super) fn remove(state: &Path, id: SessionId) {
    match fs::remove_file(file(state, id)) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        // It comes back with the next start, empty, and can be closed again.
        Err(error) => tracing::error!(session.id = %id, error = %error, "cannot remove the session's file"),
    }
}

/// The names of all sessions' files; what was not written to its end is removed.
pub(super) fn names(state: &Path) -> io::Result<Vec<String>> {
    let directory = directory(state);
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(TEMP_SUFFIX) {
            // Its Create has never answered. A failure shows at the next start.
            let _ = fs::remove_file(directory.join(&name));
        } else {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Reads a session of that file name. Its sandboxes are not there yet.
pub(super) fn read(
    state: &Path,
    name: &str,
    governing: &Arc<Governing>,
    hung: &mut HashSet<u32>,
) -> Result<Session, RestoreError> {
    let record: SessionRecord = statefile::read(&directory(state).join(name))?;
    let id = SessionId::parse(name).filter(|_| record.id == name).ok_or(RestoreError::Other)?;
    let owner = Owner { uid: record.principal_uid, gid: record.owner_gid };
    let rights = Rights { uid: owner.uid, gid: owner.gid, groups: record.owner_groups.clone().into() };
    let same_boot = record.boot_id == process::boot_id().map_err(RestoreError::Host)?;
    let (mut roots, mut roles, mut root_descriptors, mut lost_roots) = (vec![], vec![], vec![], vec![]);
    let mut root_objects = Vec::new();
    for root in &record.roots {
        let path = AbsPath::parse(&root.path)?;
        match reopen_in_time(&path, root, &rights, governing, same_boot, hung)? {
            Some(opened) => {
                root_objects.push(real_path::object_of(&opened.descriptor));
                root_descriptors.push(opened);
            }
            None => {
                root_objects.push(None);
                lost_roots.push(path.clone());
            }
        }
        roots.push(path);
        roles.push(store_roots::role(root));
    }
    if roots.is_empty() {
        return Err(RestoreError::Other);
    }
    let env = record.env.into_iter().map(|one| EnvEntry::new(one.name, one.value));
    let env: Vec<EnvEntry> = env.collect::<Result<_, _>>()?;
    let lifetime = if record.owner_process.is_some() { Lifetime::OwnerProcess } else { Lifetime::Explicit };
    Ok(Session {
        id,
        principal: Principal { uid: record.principal_uid },
        owner,
        rights,
        named_roots: store_roots::named_roots(&record.named_roots, &record.roots)?,
        repository: store_roots::repository(record.repository)?,
        roots: roots.into(),
        roles,
        root_descriptors,
        root_objects,
        lost_roots,
        cwd: AbsPath::parse(&record.cwd)?,
        env: env.into(),
        labels: record.labels.into_iter().collect(),
        front_end: record.front_end,
        profile: record.profile,
        lifetime,
        ssh_agent: Some(record.ssh_agent)
            .filter(|path| !path.is_empty())
            .map(|path| AbsPath::parse(&path))
            .transpose()?,
        git_identity: record.git_identity.map(git_identity),
        git_configuration: record.git_configuration.map(git_configuration),
        owner_process: record.owner_process.filter(|process| process.pid > 0).map(|process| {
            ProcessIdentity { pid: process.pid, start_ticks: process.start_ticks, boot_id: process.boot_id }
        }),
        created_at: UNIX_EPOCH + Duration::from_nanos(record.created_at_ns),
        request_id: Some(record.request_id).filter(|id| !id.is_empty()),
        toolchains: OnceLock::new(),
        caches: tokio::sync::OnceCell::new(),
        kept_caches: Default::default(),
        name: Some(record.name).filter(|name| !name.is_empty()),
        network: Network::from_name(&record.network),
        policy: Digest::from_bytes(record.policy_digest.as_ref().try_into().unwrap_or_default()),
        unused_since: UnusedSince::default(),
        sandboxes: Sandboxes::default(),
        networks: SessionNetworks::default(),
        files: Arc::default(),
        descriptors: OnceLock::new(),
        close_barrier: CloseBarrier::default(),
    })
}

/// As [`reopen`], as long as the file system answers in time. One that does not costs its owner the roots of all sessions
/// that are still to be read, and this gateway one wait.
fn reopen_in_time(
    path: &AbsPath,
    root: &RootRecord,
    rights: &Rights,
    governing: &Arc<Governing>,
    same_boot: bool,
    hung: &mut HashSet<u32>,
) -> Result<Option<Root>, RestoreError> {
    let uid = rights.uid;
    if hung.contains(&uid) {
        return Ok(None);
    }
    let (answer, answered) = sync_channel(1);
    let (its_path, its_root) = (path.clone(), root.clone());
    let (its_rights, its_governing) = (rights.clone(), governing.clone());
    let look = move || {
        // Nobody waits any more: what was opened is closed again.
        let _ = answer.send(reopen(&its_path, &its_root, &its_rights, &its_governing, same_boot));
    };
    if let Err(error) = thread::Builder::new().name("provost-restore".into()).spawn(look) {
        tracing::warn!(root = %path, error = %error, "a session's root cannot be looked at");
        return Ok(None);
    }
    answered.recv_timeout(FILESYSTEM_TIMEOUT).unwrap_or_else(|_| {
        tracing::warn!(root = %path, uid, "a session's root does not answer: it is left");
        hung.insert(uid);
        Ok(None)
    })
}

/// The same directory as before, if it is still there.
fn reopen(
    path: &AbsPath,
    root: &RootRecord,
    rights: &Rights,
    governing: &Governing,
    same_boot: bool,
) -> Result<Option<Root>, RestoreError> {
    // Whether it may be another's, its profile says when a sandbox is launched.
    let (role, anybodys) = (store_roots::role(root), Ownership::Anybodys);
    let opened = match roots::open_owned(path.as_path(), role, rights, governing, anybodys) {
        Ok(opened) => opened,
        Err(RootError::Governing(error)) => return Err(RestoreError::Governing(error)),
        Err(error) => {
            tracing::warn!(root = %path, error = %error, "a session's root cannot be opened again");
            return Ok(None);
        }
    };
    let Ok((device, inode)) = device_and_inode(&opened) else { return Ok(None) };
    // Numbers of devices are given out again at each boot.
    let is_same =
        opened.path == path.as_path() && (!same_boot || (device, inode) == (root.device, root.inode));
    if !is_same {
        tracing::warn!(root = %path, "another directory is where a session's root was");
    }
    Ok(is_same.then_some(opened))
}

fn device_and_inode(root: &Root) -> io::Result<(u64, u64)> {
    let stat = nix::sys::stat::fstat(&root.descriptor)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// What is written of a session. Looks at its roots.
pub(super) fn to_record(session: &Session) -> io::Result<SessionRecord> {
    let mut roots = Vec::with_capacity(session.root_descriptors.len());
    for root in &session.root_descriptors {
        let (device, inode) = device_and_inode(root)?;
        let path = byte_text::from_path(&root.path);
        let role = store_roots::role_record(root.role).into();
        roots.push(RootRecord { requested_path: path.clone(), path, device, inode, role });
    }
    let variable =
        |entry: &EnvEntry| Variable { name: entry.name().to_owned(), value: entry.value().to_owned() };
    let owner_process = match session.lifetime {
        Lifetime::Explicit => None,
        Lifetime::OwnerProcess => {
            Some(session.owner_process.as_ref().map_or_else(OwnerProcess::default, |mark| OwnerProcess {
                pid: mark.pid,
                start_ticks: mark.start_ticks,
                boot_id: mark.boot_id.clone(),
            }))
        }
    };
    let created_at = session.created_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(SessionRecord {
        id: session.id.to_string(),
        principal_uid: session.principal.uid,
        owner_gid: session.owner.gid,
        owner_groups: session.rights.groups.to_vec(),
        roots,
        cwd: session.cwd.to_string(),
        env: session.env.iter().map(variable).collect(),
        labels: session.labels.clone().into_iter().collect(),
        profile: session.profile.clone(),
        front_end: session.front_end.clone(),
        owner_process,
        created_at_ns: u64::try_from(created_at.as_nanos()).unwrap_or(u64::MAX),
        request_id: session.request_id.clone().unwrap_or_default(),
        boot_id: process::boot_id()?,
        name: session.name.clone().unwrap_or_default(),
        network: session.network.map(|network| network.name().to_owned()).unwrap_or_default(),
        policy_digest: session.policy.bytes().to_vec().into(),
        ssh_agent: session.ssh_agent.as_ref().map(ToString::to_string).unwrap_or_default(),
        git_identity: session.git_identity.as_ref().map(git_record),
        git_configuration: session.git_configuration.as_ref().map(git_configuration_record),
        repository: store_roots::repository_record(&session.repository),
        named_roots: session.named_roots.iter().map(store_roots::named_record).collect(),
    })
}

impl Session {
    /// The process that it ends with, opened again. `None`: it has ended, or could not be seen even then.
    ///
    /// # Errors
    /// When the host cannot tell.
    pub(crate) fn reopen_owner(&self) -> io::Result<Option<OwnedFd>> {
        self.owner_process.as_ref().map_or(Ok(None), ProcessIdentity::open)
    }
}

fn git_identity(record: GitIdentityRecord) -> GitIdentity {
    let GitIdentityRecord { name, email, signing_key, signs_commits, signs_tags } = record;
    let signing = (!signing_key.is_empty()).then_some(GitSigning {
        key: signing_key,
        commits: signs_commits,
        tags: signs_tags,
    });
    GitIdentity { name, email, signing }
}

fn git_configuration(record: GitConfigurationRecord) -> GitConfiguration {
    let file = |file: GitFileRecord| GitFile { name: file.name, content: file.content.to_vec() };
    let GitConfigurationRecord { text, files, left_out } = record;
    GitConfiguration { text, files: files.into_iter().map(file).collect(), left_out }
}

fn git_configuration_record(configuration: &GitConfiguration) -> GitConfigurationRecord {
    let file =
        |file: &GitFile| GitFileRecord { name: file.name.clone(), content: file.content.clone().into() };
    GitConfigurationRecord {
        text: configuration.text.clone(),
        files: configuration.files.iter().map(file).collect(),
        left_out: configuration.left_out.clone(),
    }
}

fn git_record(identity: &GitIdentity) -> GitIdentityRecord {
    let signing = identity.signing.as_ref();
    GitIdentityRecord {
        name: identity.name.clone(),
        email: identity.email.clone(),
        signing_key: signing.map(|signing| signing.key.clone()).unwrap_or_default(),
        signs_commits: signing.is_some_and(|signing| signing.commits),
        signs_tags: signing.is_some_and(|signing| signing.tags),
    }
}

#[cfg(test)]
mod tests;
