//! The authorities of sessions: by what the certificates are signed with which TLS of their commands is opened.
//!
//! Keys lie in the state directory, where they outlive the gateway, and go with their session. A sandbox is shown a directory with
//! certificates and nothing else. A session has a further authority when rules name further hosts, and when half of the time of one is
//! over; the older one signs for its hosts as long as it is valid, because programs that run have read its certificate.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{leaf_certificates::LeafCertificates, trusted_roots::TrustedRoots};
use crate::{
    certificate::{
        AUTHORITY_LIFETIME, Authority, AuthorityParts, CertificateError, HostCertificate, read_certificates,
        write_certificate, write_java_trust_store,
    },
    network::name::HostName,
    policy::implied_variables::{BUNDLE_FILE, JAVA_FILE, SESSION_FILE},
    proto::state::{self, AuthorityRecord},
    statefile::{self, StatefileError, TEMP_SUFFIX},
};

/// With less time left another authority is made.
const RENEWED_BEFORE: Duration = AUTHORITY_LIFETIME.checked_div(2).expect("it is not divided by 0");

/// With less time left it signs nothing.
const MARGIN: Duration = Duration::from_secs(600);

/// In the directory of a session: what only the gateway reads, and the directory that sandboxes are shown.
const KEYS_FILE: &str = "authority";
const SHOWN_DIRECTORY: &str = "shown";

/// Why TLS of a session cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthorityError {
    /// What the gateway before has left cannot be used.
    #[error("read the authority of the session")]
    Read(#[from] StatefileError),
    /// It cannot be kept, or shown.
    #[error("write the authority of the session")]
    Write(#[source] io::Error),
    /// It cannot be made, or does not sign.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// The authorities of all sessions of a gateway.
#[derive(Debug)]
pub(crate) struct Authorities {
    /// `authorities` in the state directory.
    directory: PathBuf,
    roots: TrustedRoots,
    /// Each session has a lock of its own. Keys are made without it, and files are used on threads for blocking work.
    by_session: Mutex<BTreeMap<String, Arc<Mutex<SessionAuthorities>>>>,
}

/// The authorities of one session, the oldest first.
#[derive(Default)]
struct SessionAuthorities {
    all: Vec<Arc<Authority>>,
    leaves: LeafCertificates,
    /// Those of the gateway before are among them.
    is_read: bool,
    /// What is shown has been written by this gateway.
    is_shown: bool,
    /// The session has ended.
    is_gone: bool,
}

impl SessionAuthorities {
    fn is_for_all(&self, hosts: &BTreeSet<HostName>, now: SystemTime) -> bool {
        let is_one = |one: &Arc<Authority>| {
            hosts.iter().all(|host| one.covers(host)) && one.not_after() > now + RENEWED_BEFORE
        };
        hosts.is_empty() || self.all.iter().any(is_one)
    }

    /// Whether there is nothing to be read, made or written for these hosts.
    fn is_ready(&self, hosts: &BTreeSet<HostName>) -> bool {
        self.is_shown && !self.is_gone && self.is_for_all(hosts, SystemTime::now())
    }

    /// The certificate of a host that was made before.
    fn known(&self, host: &HostName, hosts: &BTreeSet<HostName>) -> Option<Arc<HostCertificate>> {
        self.leaves.find(host, SystemTime::now() + MARGIN).filter(|_| self.is_ready(hosts))
    }
}

impl std::fmt::Debug for SessionAuthorities {
    /// Nothing of the keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} authorities", self.all.len())
    }
}

impl Authorities {
    /// None are made yet.
    pub(crate) fn new(state: &Path, roots: TrustedRoots) -> Self {
        Self { directory: state.join("authorities"), roots, by_session: Mutex::default() }
    }

    /// The directory that sandboxes of a session are shown. It is made here, and filled when TLS is to be opened.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn shown_directory(&self, session: &str) -> io::Result<PathBuf> {
        let shown = self.directory.join(session).join(SHOWN_DIRECTORY);
        DirBuilder::new().recursive(true).mode(0o700).create(&shown)?;
        // Commands have another id; nobody else can enter the directory above it.
        fs::set_permissions(&shown, Permissions::from_mode(0o755))?;
        Ok(shown)
    }

    /// Makes the certificates that commands of a session read, before one begins: for these hosts and all names below them.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub(crate) async fn prepare(
        self: &Arc<Self>,
        session: &str,
        hosts: &BTreeSet<HostName>,
    ) -> Result<(), AuthorityError> {
        let of_session = self.of(session);
        if lock(&of_session).is_ready(hosts) {
            return Ok(());
        }
        let (all, session, hosts) = (self.clone(), session.to_owned(), hosts.clone());
        blocking(move || all.make_ready(&of_session, &session, &hosts)).await
    }

    /// The certificate for a host of a session, one of these or below one. It has one key as long as it is good.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub(crate) async fn issue(
        self: &Arc<Self>,
        session: &str,
        host: &HostName,
        hosts: &BTreeSet<HostName>,
    ) -> Result<Arc<HostCertificate>, AuthorityError> {
        let of_session = self.of(session);
        if let Some(leaf) = lock(&of_session).known(host, hosts) {
            return Ok(leaf);
        }
        let (all, session, host, hosts) = (self.clone(), session.to_owned(), host.clone(), hosts.clone());
        blocking(move || all.sign(&of_session, &session, &host, &hosts)).await
    }

    /// Signs. Nobody waits for the key that is made: two who want the same host at once get the same one in the end.
    fn sign(
        &self,
        of_session: &Mutex<SessionAuthorities>,
        session: &str,
        host: &HostName,
        hosts: &BTreeSet<HostName>,
    ) -> Result<Arc<HostCertificate>, AuthorityError> {
        self.make_ready(of_session, session, hosts)?;
        let now = SystemTime::now();
        let signs = |one: &&Arc<Authority>| one.covers(host) && one.not_after() > now + MARGIN;
        let authority = lock(of_session).all.iter().find(signs).cloned();
        let Some(authority) = authority else { return Err(CertificateError::Host(host.clone()).into()) };
        let leaf = Arc::new(authority.issue(host, now)?);
        let mut current = lock(of_session);
        if let Some(known) = current.leaves.find(host, now + MARGIN) {
            return Ok(known);
        }
        current.leaves.keep(host, leaf.clone(), authority.not_after());
        Ok(leaf)
    }

    /// Forgets the authorities of a session, and their keys.
    pub(crate) fn remove(&self, session: &str) {
        let removed = self.lock().remove(session);
        // Who has begun to write them writes no more.
        let mut current = removed.as_ref().map(|one| lock(one));
        if let Some(current) = &mut current {
            current.is_gone = true;
        }
        match fs::remove_dir_all(self.directory.join(session)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // The next start removes it.
            Err(error) => {
                tracing::error!(session.id = session, %error, "cannot remove the session's authority");
            }
        }
    }

    /// Removes those of sessions that are not among these.
    ///
    /// # Errors
    /// When the directory cannot be read, or one not be removed.
    pub(crate) fn remove_stale(&self, sessions: &HashSet<String>) -> io::Result<()> {
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            if !sessions.contains(&*entry.file_name().to_string_lossy()) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    /// Reads, makes and shows what is missing, so that one of the authorities is for all of these hosts and for some time.
    fn make_ready(
        &self,
        of_session: &Mutex<SessionAuthorities>,
        session: &str,
        hosts: &BTreeSet<HostName>,
    ) -> Result<(), AuthorityError> {
        let directory = self.directory.join(session);
        let mut made: Option<Arc<Authority>> = None;
        loop {
            let mut current = lock(of_session);
            if current.is_gone {
                return Err(AuthorityError::Write(io::ErrorKind::NotFound.into()));
            }
            if !current.is_read {
                current.all = read(&directory.join(KEYS_FILE))?;
                current.is_read = true;
            }
            let now = SystemTime::now();
            let before = current.all.len();
            current.all.retain(|one| one.not_after() > now);
            let mut has_changed = current.all.len() != before;
            if !current.is_for_all(hosts, now) {
                let Some(authority) = made.take() else {
                    // Nobody waits for its key.
                    drop(current);
                    made = Some(Arc::new(create(session, hosts, now)?));
                    continue;
                };
                current.all.push(authority);
                has_changed = true;
            }
            if has_changed || !current.is_shown {
                let shown = self.shown_directory(session).map_err(AuthorityError::Write)?;
                if has_changed {
                    current.is_shown = false;
                    write(&directory.join(KEYS_FILE), &current.all).map_err(AuthorityError::Write)?;
                }
                self.show(&shown, &current.all).map_err(AuthorityError::Write)?;
                current.is_shown = true;
            }
            return Ok(());
        }
    }

    /// Writes what commands read.
    fn show(&self, shown: &Path, all: &[Arc<Authority>]) -> io::Result<()> {
        let own: String = all.iter().map(|one| write_certificate(one.certificate())).collect();
        let mut bundle = self.roots.text();
        if !bundle.is_empty() && !bundle.ends_with(b"\n") {
            bundle.push(b'\n');
        }
        bundle.extend_from_slice(own.as_bytes());
        replace(&shown.join(BUNDLE_FILE), &bundle)?;
        replace(&shown.join(JAVA_FILE), &write_java_trust_store(&read_certificates(&bundle)))?;
        replace(&shown.join(SESSION_FILE), own.as_bytes())
    }

    /// What there is of a session.
    fn of(&self, session: &str) -> Arc<Mutex<SessionAuthorities>> {
        self.lock().entry(session.to_owned()).or_default().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Mutex<SessionAuthorities>>>> {
        lock(&self.by_session)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs what reads or writes files, or makes keys, where that holds up nobody.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()))
}

fn create(session: &str, hosts: &BTreeSet<HostName>, now: SystemTime) -> Result<Authority, CertificateError> {
    let name = format!("Provost {session} {}", ulid::Ulid::generate());
    // A common name has at most 64 characters (RFC 5280, appendix A).
    let name: String = name.chars().take(64).collect();
    Authority::create(&name, hosts.clone(), now)
}

/// A file that everybody who can enter its directory reads. It is there as a whole, or as it was.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(TEMP_SUFFIX);
    let temporary = Path::new(&temporary);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(temporary)?;
    file.set_permissions(Permissions::from_mode(0o644))?;
    file.write_all(bytes)?;
    fs::rename(temporary, path)
}

fn read(path: &Path) -> Result<Vec<Arc<Authority>>, AuthorityError> {
    let record: AuthorityRecord = match statefile::read(path) {
        Ok(record) => record,
        Err(error) if error.is_missing() => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    let restore = |one: state::Authority| {
        Authority::restore(AuthorityParts {
            name: one.name,
            certificate: one.certificate.into(),
            key: one.key.into(),
            hosts: one.hosts,
            not_before: at(one.not_before_s),
            not_after: at(one.not_after_s),
        })
    };
    let all: Vec<Authority> = record.authorities.into_iter().map(restore).collect::<Result<_, _>>()?;
    Ok(all.into_iter().map(Arc::new).collect())
}

fn write(path: &Path, all: &[Arc<Authority>]) -> io::Result<()> {
    let seconds = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let record = |one: &Arc<Authority>| {
        let AuthorityParts { name, certificate, key, hosts, not_before, not_after } = one.parts();
        state::Authority {
            name,
            certificate: certificate.into(),
            key: key.into(),
            hosts,
            not_before_s: seconds(not_before),
            not_after_s: seconds(not_after),
        }
    };
    statefile::write(path, &AuthorityRecord { authorities: all.iter().map(record).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(names: &[&str]) -> BTreeSet<HostName> {
        names.iter().map(|name| HostName::parse(name).unwrap()).collect()
    }

    #[tokio::test]
    async fn an_authority_outlives_the_gateway_signs_for_named_hosts_and_goes_with_its_session() {
        let state = tempfile::tempdir().unwrap();
        let begin =
            || Arc::new(Authorities::new(state.path(), TrustedRoots::of(state.path().join("absent"))));
        let (a, both) = (hosts(&["a.test"]), hosts(&["a.test", "b.test"]));
        let host = |name: &str| HostName::parse(name).unwrap();
        let first = begin();
        first.prepare("s1", &a).await.unwrap();
        let leaf = first.issue("s1", &host("a.test"), &a).await.unwrap();
        let issuer = leaf.issuer.clone();
        let again = first.issue("s1", &host("a.test"), &a).await.unwrap();
        assert!(Arc::ptr_eq(&leaf, &again), "a host has one key");
        assert_ne!(first.issue("s1", &host("x.a.test"), &a).await.unwrap().key, leaf.key);
        let keys = state.path().join("authorities/s1/authority");
        assert_eq!(fs::metadata(&keys).unwrap().permissions().mode() & 0o777, 0o600);

        let second = begin();
        assert_eq!(second.issue("s1", &host("a.test"), &a).await.unwrap().issuer, issuer, "it is the same");
        assert!(second.issue("s1", &host("b.test"), &a).await.is_err());
        let further = second.issue("s1", &host("b.test"), &both).await.unwrap().issuer.clone();
        assert_ne!(further, issuer);
        assert_eq!(second.issue("s1", &host("a.test"), &both).await.unwrap().issuer, issuer);
        let shown = fs::read(second.shown_directory("s1").unwrap().join(SESSION_FILE)).unwrap();
        assert_eq!(crate::certificate::read_certificates(&shown), [issuer, further]);

        // One that is old, and one that is too old.
        for (age_h, signs) in [(13, true), (24, false)] {
            let made = SystemTime::now() - Duration::from_secs(age_h * 3_600 - 60);
            let old = Arc::new(Authority::create("old", a.clone(), made).unwrap());
            let session = format!("s{age_h}");
            first.shown_directory(&session).unwrap();
            write(
                &state.path().join("authorities").join(&session).join(KEYS_FILE),
                std::slice::from_ref(&old),
            )
            .unwrap();
            let third = begin();
            let issued = third.issue(&session, &host("a.test"), &a).await.unwrap();
            assert_eq!(issued.issuer == old.certificate(), signs, "{age_h} h");
            assert_eq!(lock(&third.of(&session)).all.len(), 2, "{age_h} h");
            third.remove(&session);
        }
        second.remove_stale(&["s1".to_owned()].into()).unwrap();
        assert!(keys.exists());
        let held = second.of("s1");
        second.remove("s1");
        assert!(second.make_ready(&held, "s1", &a).is_err(), "its session has ended");
        assert!(!keys.exists() && fs::read_dir(state.path().join("authorities")).unwrap().next().is_none());
    }
}
