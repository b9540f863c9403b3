//! Knows the values of all secrets of the policy, and redacts them from what is recorded and shown about requests, refused
//! ones included.
//!
//! Files are checked for each record and read again when they have changed. A replaced value is redacted for some time
//! more, because a caller may still have it. A secret whose file exists and cannot be read could stand in any command line:
//! then no line is recorded, only the decision, its rule and the request's digest.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use crate::{
    journal::Record,
    masking::{Masker, SECRET_MAX_BYTES, SECRET_MIN_BYTES},
    policy::PolicySet,
    terminal::secrets::{
        command_secrets::{self, SecretFault},
        redact,
    },
};

/// Values of one secret that are known: the one that is in its file, and those that were before it.
const VALUES_MAX: usize = 4;
/// Values of all secrets together. With more, no line is written.
const VALUES_MAX_BYTES: usize = 1 << 20;
/// A file that was changed so lately may be changed again without another time.
const SETTLE_TIME: Duration = Duration::from_millis(100);

/// What is known.
#[derive(Default)]
pub(in crate::terminal) struct KnownSecrets(Mutex<KnownFiles>);

impl std::fmt::Debug for KnownSecrets {
    /// Nothing of what it knows.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KnownSecrets")
    }
}

#[derive(Default)]
struct KnownFiles {
    files: BTreeMap<PathBuf, SecretFile>,
    redactor: Redactor,
}

#[derive(Default)]
struct SecretFile {
    /// As it was when it was read; absent: it is read again.
    stamp: Option<FileStamp>,
    /// The newest last.
    values: VecDeque<Vec<u8>>,
    /// It has a value that is not known.
    is_unreadable: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    device: u64,
    inode: u64,
    length: u64,
    changed: (i64, i64),
}

/// What lines are seen through.
#[derive(Debug, Clone)]
pub(in crate::terminal) enum Redactor {
    /// All secrets are known, and taken out.
    Mask(Masker),
    /// One is not.
    HideAll,
}

impl Default for Redactor {
    fn default() -> Self {
        Self::Mask(Masker::NONE)
    }
}

impl Redactor {
    /// Takes what is secret out of a record.
    pub(in crate::terminal) fn redact(&self, record: &mut Record) {
        match self {
            Self::Mask(masker) => redact::redact_secrets(record, masker),
            Self::HideAll => redact::redact_all(record),
        }
    }

    /// A text as it may be shown.
    pub(in crate::terminal) fn redact_text(&self, text: &str) -> String {
        match self {
            Self::Mask(masker) => masker.mask_text(text).into_owned(),
            Self::HideAll => redact::REDACTED.to_owned(),
        }
    }
}

impl KnownSecrets {
    /// What hides the secrets of this policy now. Waits for the file system where there are any.
    pub(in crate::terminal) fn redactor(&self, policy: &PolicySet) -> Redactor {
        let mut paths = policy.secret_files().peekable();
        if paths.peek().is_none() {
            return Redactor::default();
        }
        let mut known = self.lock();
        let mut all = BTreeMap::new();
        let mut has_changed = false;
        for path in paths {
            let mut file = match known.files.remove(path) {
                Some(file) => file,
                None => all.remove(path).unwrap_or_default(),
            };
            has_changed |= file.refresh(path, SystemTime::now());
            all.insert(path.to_owned(), file);
        }
        // Those that are left are no secrets any more.
        has_changed |= !known.files.is_empty();
        known.files = all;
        if has_changed {
            known.redactor = redactor_for(&known.files);
        }
        known.redactor.clone()
    }

    fn lock(&self) -> MutexGuard<'_, KnownFiles> {
        // Every change of it is one assignment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn redactor_for(files: &BTreeMap<PathBuf, SecretFile>) -> Redactor {
    let values: Vec<&Vec<u8>> = files.values().flat_map(|file| &file.values).collect();
    let bytes: usize = values.iter().map(|value| value.len()).sum();
    if bytes > VALUES_MAX_BYTES || files.values().any(|file| file.is_unreadable && file.values.is_empty()) {
        return Redactor::HideAll;
    }
    match Masker::new(values) {
        Ok(masker) => Redactor::Mask(masker),
        Err(error) => {
            tracing::error!(%error, "secrets cannot be masked: no command is written into the journal");
            Redactor::HideAll
        }
    }
}

impl SecretFile {
    /// Reads the value when the file is another. Whether anything has changed.
    fn refresh(&mut self, path: &Path, now: SystemTime) -> bool {
        let stamp = fs::metadata(path).ok().and_then(|metadata| FileStamp::if_settled(&metadata, now));
        if stamp.is_some() && stamp == self.stamp {
            return false;
        }
        self.stamp = stamp;
        let was_unreadable = self.is_unreadable;
        self.is_unreadable = false;
        match command_secrets::read_for_redaction(path) {
            Ok(value) if !(SECRET_MIN_BYTES..=SECRET_MAX_BYTES).contains(&value.len()) => {
                // No command is given it.
                was_unreadable
            }
            Ok(value) if self.values.back() == Some(&value) => was_unreadable,
            Ok(value) => {
                self.values.retain(|before| *before != value);
                self.values.push_back(value);
                if self.values.len() > VALUES_MAX {
                    self.values.pop_front();
                }
                true
            }
            // There is no value.
            Err(SecretFault::Open(error)) if error.kind() == std::io::ErrorKind::NotFound => was_unreadable,
            Err(SecretFault::NotAFile) => was_unreadable,
            Err(fault) => {
                if !was_unreadable {
                    tracing::error!(secret.file = %crate::printable::path(path), error = %fault, "a secret is not known");
                }
                self.is_unreadable = true;
                !was_unreadable
            }
        }
    }
}

impl FileStamp {
    /// `None` for a file that may change again without another time.
    fn if_settled(metadata: &Metadata, now: SystemTime) -> Option<Self> {
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        let since = Duration::new(changed.0.try_into().ok()?, changed.1.try_into().ok()?);
        now.duration_since(SystemTime::UNIX_EPOCH + since).ok().filter(|age| *age >= SETTLE_TIME)?;
        Some(Self { device: metadata.dev(), inode: metadata.ino(), length: metadata.len(), changed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(files: &[&Path]) -> PolicySet {
        let secret = |(n, file): (usize, &&Path)| format!("[secrets.S{n}]\nfile = {file:?}\n");
        let secrets: String = files.iter().enumerate().map(secret).collect();
        PolicySet::parse("p", &format!("default_profile = 'a'\n[profile.a]\n{secrets}")).unwrap()
    }

    #[test]
    fn values_are_known_as_they_come_and_for_some_time_after_they_went() {
        let directory = tempfile::tempdir().unwrap();
        let (one, two) = (directory.path().join("one"), directory.path().join("two"));
        let (known, policy) = (KnownSecrets::default(), policy(&[&one, &two]));
        let shown = || known.redactor(&policy).redact_text("a first-1 b second-2 c");
        assert_eq!(shown(), "a first-1 b second-2 c", "there are none");
        fs::write(&one, "first-1\n").unwrap();
        assert_eq!(shown(), "a *** b second-2 c");
        fs::write(&one, "second-2\n").unwrap();
        assert_eq!(shown(), "a *** b *** c", "who had the old one may still have it");
        for turn in 0..VALUES_MAX {
            fs::write(&one, format!("turn-{turn}\n")).unwrap();
            shown();
        }
        assert_eq!(shown(), "a first-1 b second-2 c");
        // Too short to be taken out of anything, and given to nobody.
        fs::write(&two, "a\n").unwrap();
        assert_eq!(shown(), "a first-1 b second-2 c");
        assert_eq!(known.redactor(&super::tests::policy(&[])).redact_text("turn-3"), "turn-3");
    }

    #[test]
    fn where_a_secret_may_stand_that_is_not_known_nothing_is_shown() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("one");
        // Too long a name is no name of a file that is not there.
        let unreadable = directory.path().join("x".repeat(300));
        let known = KnownSecrets::default();
        fs::write(&file, "value-1\n").unwrap();
        assert_eq!(known.redactor(&policy(&[&file, &unreadable])).redact_text("ls"), redact::REDACTED);
        assert_eq!(known.redactor(&policy(&[&file])).redact_text("ls value-1"), "ls ***");
    }
}
