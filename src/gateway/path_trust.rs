//! The files that govern commands: configuration, policy, secrets, state, journal, sockets, the program itself.
//!
//! Lists them for [`Governing`], checks that no open session can reach them, and trusts them only if nobody but root
//! and the gateway's user can change them. An error names the command that fixes it; this module changes no file.

use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::config::{Config, DieWithGateway, MetricsAddress, PolicySource};
use crate::{
    policy::{PolicySet, ProfileName, profile::Profile},
    sandbox::roots::{
        governing::{Governing, GoverningError, GoverningKind, GoverningPath},
        path_walk,
    },
    sandbox_program::SandboxProgram,
    session::{SessionId, Sessions},
};

/// Write permission for others than the owner.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// In a directory with this bit, only an entry's owner can rename or remove it.
const STICKY: u32 = 0o1000;

/// Why something cannot govern.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// Another user owns it, or what is on the way to it.
    #[error(
        "the {kind} cannot be trusted: {} belongs to uid {owner}, mode {mode:04o}, and must belong to {wanted}: \
         `chown {wanted} {}`",
        crate::printable::path(path),
        crate::printable::path(path)
    )]
    Owner {
        /// What governs.
        kind: GoverningKind,
        /// What is wrong: the object, or a directory or link on the way to it.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its permission bits.
        mode: u32,
        /// Who should own it.
        wanted: u32,
    },
    /// Others than its owner can change it, or what is on the way to it.
    #[error(
        "the {kind} cannot be trusted: others can write to {} (uid {owner}, mode {mode:04o}): `chmod go-w {}`",
        crate::printable::path(path),
        crate::printable::path(path)
    )]
    Writable {
        /// What governs.
        kind: GoverningKind,
        /// What is wrong: the object, or a directory on the way to it.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its permission bits.
        mode: u32,
    },
    /// It has another name, which may lie where commands work.
    #[error(
        "the {kind} cannot be trusted: {} (uid {owner}, mode {mode:04o}) has {links} hard links, and by another one \
         it could be changed or read: replace it by a copy",
        crate::printable::path(path)
    )]
    HardLinked {
        /// What governs.
        kind: GoverningKind,
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its permission bits.
        mode: u32,
        /// How many names it has.
        links: u64,
    },
    /// It cannot be looked at.
    #[error("cannot look at the {kind} {}", crate::printable::path(path))]
    Unreadable {
        /// What governs.
        kind: GoverningKind,
        /// Its name.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
}

/// Why what governs cannot be changed to what the files say.
#[derive(Debug, thiserror::Error)]
pub enum GoverningConflict {
    /// A session that is open would reach it.
    #[error("session {session} is open, and {error} ({})", crate::printable::path(error.governing()))]
    Session {
        /// The session.
        session: SessionId,
        /// The root, and what it reaches.
        error: GoverningError,
    },
    /// A profile shows it to commands.
    #[error("profile {profile}: {error} ({})", crate::printable::path(error.governing()))]
    Profile {
        /// The profile.
        profile: String,
        /// The directory, and what it reaches.
        error: GoverningError,
    },
}

/// All that governs, whatever the policy says. The configuration's paths must be complete.
pub(super) fn governing_paths(config: &Config, sandbox_program: &SandboxProgram) -> Governing {
    let own = fs::read_link("/proc/self/exe").into_iter();
    let programs: Vec<PathBuf> = own.chain([sandbox_program.path().to_owned()]).collect();
    let (programs, read_only_programs) = match config.die_with_gateway {
        // This is one caller's own gateway, which may well be what that one works on. What a command makes in the program's stead must not be
        // the next one's sandbox.
        DieWithGateway::Yes if !sandbox_program.can_be_preceded() => (Vec::new(), programs),
        DieWithGateway::Yes | DieWithGateway::No => (programs, Vec::new()),
    };
    let programs = programs.into_iter().map(|path| GoverningPath { kind: GoverningKind::Program, path });
    Governing::new(configured_paths(config).chain(programs).collect(), read_only_programs)
}

/// What a configuration names.
fn configured_paths(config: &Config) -> impl Iterator<Item = GoverningPath> {
    let metrics = match &config.metrics {
        Some(MetricsAddress::Unix { path, .. }) => Some(path.clone()),
        Some(MetricsAddress::Tcp(_)) | None => None,
    };
    let journal = config.journal.as_ref();
    let policies = match &config.policies {
        PolicySource::Directory(path) => Some(path.clone()),
        PolicySource::CompiledIn | PolicySource::CompiledInPreferringLimits => None,
    };
    let all = [
        (GoverningKind::State, Some(config.state.clone())),
        (GoverningKind::Policies, policies),
        (GoverningKind::Configuration, config.file.clone()),
        (GoverningKind::Journal, journal.and_then(|journal| journal.directory.clone())),
        (GoverningKind::SigningKey, journal.and_then(|journal| journal.signing_key.clone())),
        (GoverningKind::Socket, Some(config.listen.clone())),
        (GoverningKind::Socket, metrics),
    ];
    all.into_iter().filter_map(|(kind, path)| Some(GoverningPath { kind, path: path? }))
}

/// What a policy names: its files, which may be links, the files of its secrets and of trusted certificates, and the caches that it keeps.
pub(super) fn policy_paths(
    source: &PolicySource,
    kept_caches: &Path,
    policy: &PolicySet,
) -> Vec<GoverningPath> {
    let secrets =
        policy.secret_files().map(|file| GoverningPath { kind: GoverningKind::Secret, path: file.into() });
    let trusted = |file: &Path| GoverningPath { kind: GoverningKind::TrustedCertificates, path: file.into() };
    let mut all: Vec<GoverningPath> = secrets.chain(policy.ca_files().map(trusted)).collect();
    if policy.keeps_caches() {
        all.push(GoverningPath { kind: GoverningKind::KeptCaches, path: kept_caches.to_owned() });
    }
    if let PolicySource::Directory(directory) = source
        && directory.is_dir()
    {
        let file = |name: &String| GoverningPath { kind: GoverningKind::Policies, path: name.into() };
        all.extend(policy.files().iter().map(file));
    }
    all
}

/// Refuses paths that other users can change. Missing files are left to their readers.
pub(super) fn check_trust<'a>(all: impl IntoIterator<Item = &'a GoverningPath>) -> Result<(), TrustError> {
    all.into_iter().try_for_each(check_path)
}

/// As [`check_trust`], of what the gateway uses from its start on.
pub(super) fn check_trust_at_start(config: &Config) -> Result<(), TrustError> {
    // Not of the programs: the user who starts the gateway has started the one, and the other is compared with it where it is opened.
    let named: Vec<GoverningPath> = configured_paths(config).collect();
    check_trust(&named)?;
    for one in named.iter().filter(|one| one.kind == GoverningKind::State) {
        check_entries(&one.path)?;
    }
    Ok(())
}

/// Takes what a policy names for what governs, if no open session and no profile reaches it.
pub(super) fn replace(
    governing: &Governing,
    named_paths: Vec<GoverningPath>,
    (before, next): (&PolicySet, &PolicySet),
    sessions: &Sessions,
) -> Result<(), GoverningConflict> {
    // Both hold while sessions are looked at: one that is opened meanwhile is checked against both.
    let both = governing.policy_paths().into_iter().chain(named_paths.clone()).collect();
    let old = governing.replace(both);
    let result = check_unreachable(governing, (before, next), sessions);
    governing.replace(if result.is_ok() { named_paths } else { old });
    result
}

/// Refuses a policy whose profiles show the secrets that it names, as a gateway would.
///
/// # Errors
/// [`GoverningConflict::Profile`].
pub fn check_secrets(policy: &PolicySet) -> Result<(), GoverningConflict> {
    let named = policy_paths(&PolicySource::CompiledIn, Path::new("/"), policy).into_iter();
    let governing = Governing::default();
    governing.replace(named.filter(|one| one.kind == GoverningKind::Secret).collect());
    policy.profiles().try_for_each(|(name, profile)| check_profile(&governing, name, profile))
}

fn check_profile(
    governing: &Governing,
    name: &ProfileName,
    profile: &Profile,
) -> Result<(), GoverningConflict> {
    let conflict = |error| GoverningConflict::Profile { profile: name.to_string(), error };
    governing.check_profile_paths(&profile.filesystem).map_err(conflict)
}

fn check_unreachable(
    governing: &Governing,
    (before, next): (&PolicySet, &PolicySet),
    sessions: &Sessions,
) -> Result<(), GoverningConflict> {
    for session in sessions.all() {
        session
            .check_roots(governing)
            .map_err(|error| GoverningConflict::Session { session: session.id, error })?;
    }
    // Sandboxes of the profiles before run on.
    let mut profiles = before.profiles().chain(next.profiles());
    profiles.try_for_each(|(name, profile)| check_profile(governing, name, profile))
}

fn check_path(entry: &GoverningPath) -> Result<(), TrustError> {
    let kind = entry.kind;
    let trace = path_walk::walk(&entry.path).map_err(|source| TrustError::Unreadable {
        kind,
        path: entry.path.clone(),
        source,
    })?;
    let last = trace.end();
    for step in &trace.steps {
        let is_last = last.is_some_and(|last| std::ptr::eq(last, step));
        // A socket's mode says who may connect. It is bound again, and the owner of its directory serves it.
        if is_last && kind == GoverningKind::Socket {
            continue;
        }
        check_object(
            kind,
            &step.path,
            &step.metadata,
            if is_last { PathPart::Target } else { PathPart::Ancestor },
        )?;
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathPart {
    Target,
    Ancestor,
}

fn check_object(
    kind: GoverningKind,
    path: &Path,
    metadata: &Metadata,
    part: PathPart,
) -> Result<(), TrustError> {
    let own_uid = nix::unistd::geteuid().as_raw();
    let (path, owner, mode) = (path.to_owned(), metadata.uid(), metadata.mode() & 0o7777);
    let is_state_directory = kind == GoverningKind::State && part == PathPart::Target;
    let is_hosts = part == PathPart::Ancestor && is_unmapped(owner);
    if owner != own_uid && (owner != 0 || is_state_directory) && !is_hosts {
        return Err(TrustError::Owner { kind, path, owner, mode, wanted: own_uid });
    }
    let is_sticky_ancestor = part == PathPart::Ancestor && mode & STICKY != 0;
    // A link's own bits mean nothing.
    if !metadata.is_symlink() && mode & WRITABLE_BY_OTHERS != 0 && !is_sticky_ancestor {
        return Err(TrustError::Writable { kind, path, owner, mode });
    }
    if metadata.is_file() && metadata.nlink() > 1 {
        return Err(TrustError::HardLinked { kind, path, owner, mode, links: metadata.nlink() });
    }
    Ok(())
}

/// Whether an owner is nobody of this user namespace, as the host's root is in one that an ordinary user has made. Who that is cannot be told
/// there: the directories of the host are trusted as far as their modes go.
fn is_unmapped(owner: u32) -> bool {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let is_overflow = read("/proc/sys/kernel/overflowuid").trim().parse() == Ok(owner);
    is_overflow
        && !read("/proc/self/uid_map").lines().any(|line| {
            let numbers: Vec<u64> = line.split_whitespace().filter_map(|field| field.parse().ok()).collect();
            let &[first, _, count] = &numbers[..] else { return true };
            (first..first.saturating_add(count)).contains(&owner.into())
        })
}

/// What lies in the state directory was made by a user who could write to it before.
fn check_entries(state: &Path) -> Result<(), TrustError> {
    let failed =
        |source| TrustError::Unreadable { kind: GoverningKind::State, path: state.to_owned(), source };
    let entries = match fs::read_dir(state) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let metadata = entry.metadata().map_err(failed)?;
        check_object(GoverningKind::State, &entry.path(), &metadata, PathPart::Target)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn trusted(kind: GoverningKind, path: &Path) -> Result<(), TrustError> {
        check_trust(&[GoverningPath { kind, path: path.to_owned() }])
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_others_can_write_is_refused_wherever_it_is_on_the_way() {
        let directory = tempfile::tempdir().unwrap();
        let (top, file) = (directory.path(), directory.path().join("a/b/default.toml"));
        fs::create_dir_all(top.join("a/b")).unwrap();
        fs::write(&file, "").unwrap();
        assert!(trusted(GoverningKind::Policies, &file).is_ok());
        for (open, mode) in [("a/b/default.toml", 0o664), ("a/b", 0o777), ("a", 0o775)] {
            let open = top.join(open);
            let before = fs::metadata(&open).unwrap().mode() & 0o7777;
            set_mode(&open, mode);
            let error = trusted(GoverningKind::Policies, &file).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, TrustError::Writable { path, .. } if path == open), "{text}");
            assert!(text.contains(&format!("mode {mode:04o}")) && text.contains("chmod go-w"), "{text}");
            set_mode(&open, before);
        }
        set_mode(&top.join("a"), 0o1777);
        assert!(trusted(GoverningKind::Policies, &file).is_ok(), "as /tmp is");
        set_mode(&top.join("a/b"), 0o1777);
        assert!(
            trusted(GoverningKind::State, &top.join("a/b")).is_err(),
            "nothing holds its entries to come"
        );
        assert!(trusted(GoverningKind::State, &top.join("a/none")).is_ok());
    }

    #[test]
    fn another_users_link_directory_or_file_is_refused_and_so_is_a_second_name() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("key"), directory.path().join("link"));
        fs::write(&file, "").unwrap();
        symlink(&file, &link).unwrap();
        assert!(trusted(GoverningKind::SigningKey, &link).is_ok());
        fs::hard_link(&file, directory.path().join("second")).unwrap();
        assert!(matches!(
            trusted(GoverningKind::SigningKey, &link),
            Err(TrustError::HardLinked { links: 2, .. })
        ));
        fs::remove_file(directory.path().join("second")).unwrap();
        if !nix::unistd::geteuid().is_root() {
            println!("SKIPPED: only root can give files away");
            return;
        }
        std::os::unix::fs::lchown(&link, Some(4242), None).unwrap();
        assert!(
            matches!(trusted(GoverningKind::SigningKey, &link), Err(TrustError::Owner { path, .. }) if path == link)
        );
        std::os::unix::fs::lchown(&link, Some(0), None).unwrap();
        std::os::unix::fs::chown(&file, Some(4242), None).unwrap();
        let error = trusted(GoverningKind::SigningKey, &link).unwrap_err().to_string();
        assert!(error.contains("belongs to uid 4242") && error.contains("chown 0 "), "{error}");
    }
}
