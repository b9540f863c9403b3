//! What governs this gateway's commands: listed for [`Governing`], held against the sessions that are open, and trusted
//! only where nobody but the gateway's user and root can change it.
//!
//! Looks, and refuses with the line that mends what is wrong; changes nothing by itself.

use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{Config, DieWithGateway, MetricsAddress, PolicySource};
use crate::{
    policy::PolicySet,
    sandbox::{
        governing::{Governing, GoverningError, GoverningPath, Kind},
        trace,
    },
    session::{SessionId, Sessions},
};

/// Write permission for others than the owner.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// In a directory with this bit, only an entry's owner can rename or remove it.
const STICKY: u32 = 0o1000;

/// Why something cannot govern.
#[derive(Debug, thiserror::Error)]
pub enum Distrust {
    /// Somebody else owns it, or what is on the way to it.
    #[error(
        "the {kind} cannot be trusted: {} belongs to uid {owner}, mode {mode:04o}, and must belong to {wanted}: \
         `chown {wanted} {}`",
        crate::printable::path(path),
        crate::printable::path(path)
    )]
    Owner {
        /// What governs.
        kind: Kind,
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
        kind: Kind,
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
    Linked {
        /// What governs.
        kind: Kind,
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
    Look {
        /// What governs.
        kind: Kind,
        /// Its name.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
}

/// Why what governs cannot be changed to what the files say.
#[derive(Debug, thiserror::Error)]
pub enum Conflict {
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
pub(super) fn governing(config: &Config) -> Governing {
    let program = fs::read_link("/proc/self/exe").ok();
    let (program, covered) = match config.die_with_gateway {
        DieWithGateway::No => (program, None),
        // Of one caller's own gateway, which may well be what that one works on.
        DieWithGateway::Yes => (None, program),
    };
    let metrics = match &config.metrics {
        Some(MetricsAddress::Unix { path, .. }) => Some(path.clone()),
        Some(MetricsAddress::Tcp(_)) | None => None,
    };
    let journal = config.journal.as_ref();
    let policies = match &config.policies {
        PolicySource::Folder(path) => Some(path.clone()),
        PolicySource::CompiledIn | PolicySource::CompiledInPreferringLimits => None,
    };
    let all = [
        (Kind::State, Some(config.state.clone())),
        (Kind::Policies, policies),
        (Kind::Configuration, config.file.clone()),
        (Kind::Journal, journal.and_then(|journal| journal.folder.clone())),
        (Kind::SigningKey, journal.and_then(|journal| journal.signing_key.clone())),
        (Kind::Socket, Some(config.listen.clone())),
        (Kind::Socket, metrics),
        (Kind::Program, program),
    ];
    let fixed = all.into_iter().filter_map(|(kind, path)| Some(GoverningPath { kind, path: path? }));
    Governing::new(fixed.collect(), covered)
}

/// What a policy names: its files, which may be links, and the files of its secrets.
pub(super) fn of_policy(source: &PolicySource, policy: &PolicySet) -> Vec<GoverningPath> {
    let secrets = policy.secret_files().map(|file| GoverningPath { kind: Kind::Secret, path: file.into() });
    let mut all: Vec<GoverningPath> = secrets.collect();
    if let PolicySource::Folder(folder) = source
        && folder.is_dir()
    {
        let file = |name: &String| GoverningPath { kind: Kind::Policies, path: name.into() };
        all.extend(policy.files().iter().map(file));
    }
    all
}

/// Refuses whatever others can change. Absent files are for who reads them.
pub(super) fn must_be_trusted<'a>(all: impl IntoIterator<Item = &'a GoverningPath>) -> Result<(), Distrust> {
    all.into_iter().try_for_each(trust)
}

/// As [`must_be_trusted`], of what the gateway uses from its start on.
pub(super) fn must_be_trusted_at_start(config: &Config) -> Result<(), Distrust> {
    let listed = governing(config);
    // The program was started by whoever starts the gateway: it is too late to trust it or not.
    let fixed = listed.fixed().iter().filter(|one| one.kind != Kind::Program);
    fixed.clone().try_for_each(trust)?;
    for one in fixed.filter(|one| one.kind == Kind::State) {
        trust_entries(&one.path)?;
    }
    Ok(())
}

/// Takes what a policy names for what governs, if no open session and no profile reaches it.
pub(super) fn replace(
    governing: &Governing,
    named: Vec<GoverningPath>,
    (before, next): (&PolicySet, &PolicySet),
    sessions: &Sessions,
) -> Result<(), Conflict> {
    // Both hold while sessions are looked at: one that is opened meanwhile is checked against both.
    let both = governing.of_policy().into_iter().chain(named.clone()).collect();
    let old = governing.replace(both);
    let done = reaches_nothing(governing, (before, next), sessions);
    governing.replace(if done.is_ok() { named } else { old });
    done
}

fn reaches_nothing(
    governing: &Governing,
    (before, next): (&PolicySet, &PolicySet),
    sessions: &Sessions,
) -> Result<(), Conflict> {
    for session in sessions.all() {
        session.check_roots(governing).map_err(|error| Conflict::Session { session: session.id, error })?;
    }
    // Sandboxes of the profiles before run on.
    for (name, profile) in before.profiles().chain(next.profiles()) {
        let profile_name = || name.to_string();
        governing
            .check_extras(&profile.filesystem)
            .map_err(|error| Conflict::Profile { profile: profile_name(), error })?;
    }
    Ok(())
}

fn trust(one: &GoverningPath) -> Result<(), Distrust> {
    let kind = one.kind;
    let trace =
        trace::follow(&one.path).map_err(|source| Distrust::Look { kind, path: one.path.clone(), source })?;
    let last = trace.end();
    for step in &trace.steps {
        let is_last = last.is_some_and(|last| std::ptr::eq(last, step));
        // A socket's mode says who may connect; it is bound anew, and whoever serves it is its directory's owner.
        if is_last && kind == Kind::Socket {
            continue;
        }
        trust_object(kind, &step.path, &step.metadata, if is_last { Part::Itself } else { Part::OnTheWay })?;
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Itself,
    OnTheWay,
}

fn trust_object(kind: Kind, path: &Path, metadata: &Metadata, part: Part) -> Result<(), Distrust> {
    let us = nix::unistd::geteuid().as_raw();
    let (path, owner, mode) = (path.to_owned(), metadata.uid(), metadata.mode() & 0o7777);
    let is_whole_state = kind == Kind::State && part == Part::Itself;
    if owner != us && (owner != 0 || is_whole_state) {
        return Err(Distrust::Owner { kind, path, owner, mode, wanted: us });
    }
    let is_held = part == Part::OnTheWay && mode & STICKY != 0;
    // A link's own bits mean nothing.
    if !metadata.is_symlink() && mode & WRITABLE_BY_OTHERS != 0 && !is_held {
        return Err(Distrust::Writable { kind, path, owner, mode });
    }
    if metadata.is_file() && metadata.nlink() > 1 {
        return Err(Distrust::Linked { kind, path, owner, mode, links: metadata.nlink() });
    }
    Ok(())
}

/// What lies in the state directory was made by whoever could write to it before.
fn trust_entries(state: &Path) -> Result<(), Distrust> {
    let failed = |source| Distrust::Look { kind: Kind::State, path: state.to_owned(), source };
    let entries = match fs::read_dir(state) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let metadata = entry.metadata().map_err(failed)?;
        trust_object(Kind::State, &entry.path(), &metadata, Part::Itself)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn trusted(kind: Kind, path: &Path) -> Result<(), Distrust> {
        must_be_trusted(&[GoverningPath { kind, path: path.to_owned() }])
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_others_can_write_is_refused_wherever_it_is_on_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let (top, file) = (folder.path(), folder.path().join("a/b/default.toml"));
        fs::create_dir_all(top.join("a/b")).unwrap();
        fs::write(&file, "").unwrap();
        assert!(trusted(Kind::Policies, &file).is_ok());
        for (open, mode) in [("a/b/default.toml", 0o664), ("a/b", 0o777), ("a", 0o775)] {
            let open = top.join(open);
            let before = fs::metadata(&open).unwrap().mode() & 0o7777;
            set_mode(&open, mode);
            let error = trusted(Kind::Policies, &file).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, Distrust::Writable { path, .. } if path == open), "{text}");
            assert!(text.contains(&format!("mode {mode:04o}")) && text.contains("chmod go-w"), "{text}");
            set_mode(&open, before);
        }
        set_mode(&top.join("a"), 0o1777);
        assert!(trusted(Kind::Policies, &file).is_ok(), "as /tmp is");
        set_mode(&top.join("a/b"), 0o1777);
        assert!(trusted(Kind::State, &top.join("a/b")).is_err(), "nothing holds its entries to come");
        assert!(trusted(Kind::State, &top.join("a/none")).is_ok());
    }

    #[test]
    fn another_users_link_directory_or_file_is_refused_and_so_is_a_second_name() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("key"), folder.path().join("link"));
        fs::write(&file, "").unwrap();
        symlink(&file, &link).unwrap();
        assert!(trusted(Kind::SigningKey, &link).is_ok());
        fs::hard_link(&file, folder.path().join("second")).unwrap();
        assert!(matches!(trusted(Kind::SigningKey, &link), Err(Distrust::Linked { links: 2, .. })));
        fs::remove_file(folder.path().join("second")).unwrap();
        if !nix::unistd::geteuid().is_root() {
            println!("SKIPPED: only root can give files away");
            return;
        }
        std::os::unix::fs::lchown(&link, Some(4242), None).unwrap();
        assert!(
            matches!(trusted(Kind::SigningKey, &link), Err(Distrust::Owner { path, .. }) if path == link)
        );
        std::os::unix::fs::lchown(&link, Some(0), None).unwrap();
        std::os::unix::fs::chown(&file, Some(4242), None).unwrap();
        let error = trusted(Kind::SigningKey, &link).unwrap_err().to_string();
        assert!(error.contains("belongs to uid 4242") && error.contains("chown 0 "), "{error}");
    }
}
