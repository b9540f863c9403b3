//! Directories of `when.cwd` by their identities: what a rule names stays what it named, whatever a command renames.
//!
//! Recorded when a request is evaluated, before its command could rename anything, and kept as long as the policy is in force. A rule
//! that denies or asks is about the directory that had the name, and about those that were in it. One that allows is about a name, and where
//! a directory of that name was recorded, about that one only.
//!
//! What is looked at has a bound. Where it leaves something out, the root below which that lies is recorded with the time: a directory below it
//! that has not changed since has the name that it had.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    pattern::TextPattern,
    program::{DirectoryId, ProgramResolver},
};

/// Directories that are recorded for all rules of a policy.
pub const MAX_KNOWN_DIRECTORIES: usize = 4_096;
/// Directories that are looked at for one glob and one request.
const MAX_LOOKED_AT: usize = 16_384;
/// By how much the kernel's times of files may be behind the clock.
const CLOCK_LAG: Duration = Duration::from_millis(20);

/// One directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownDirectory {
    /// The path that the pattern accepts; empty: it lay below such a directory.
    pub path: String,
    /// What it was.
    pub id: DirectoryId,
    /// It is no directory of the pattern, but a root below which not all were looked at, and the time when that began in nanoseconds since 1970.
    pub left_out_since: Option<i64>,
}

/// By the patterns of `when.cwd`, as they are written.
pub type KnownByPattern = BTreeMap<String, Vec<KnownDirectory>>;

/// Those that are recorded. It only grows.
#[derive(Debug, Default)]
pub struct KnownDirectories(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    by_pattern: Arc<KnownByPattern>,
    count: usize,
}

/// A pattern of a rule's `when.cwd`.
#[derive(Debug, Clone)]
pub struct DirectoryPattern {
    pub(super) source: String,
    pub(super) text: TextPattern,
}

/// Whether what lies below a directory is recorded, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Below {
    /// For a rule that denies or asks.
    Recorded,
    /// For a rule that allows.
    Left,
}

impl KnownDirectories {
    /// How many are recorded, and all of them.
    pub fn all(&self) -> (usize, Arc<KnownByPattern>) {
        let known = self.lock();
        (known.count, known.by_pattern.clone())
    }

    /// Forgets all.
    pub fn forget(&self) {
        *self.lock() = Known::default();
    }

    /// Records what others have recorded. Whether it is recorded now.
    pub fn add(&self, pattern: &str, directory: KnownDirectory) -> bool {
        let mut known = self.lock();
        let is_same = |one: &KnownDirectory| match directory.left_out_since {
            Some(_) => one.left_out_since.is_some() && one.id == directory.id,
            None => *one == directory,
        };
        if known.by_pattern.get(pattern).is_some_and(|directories| directories.iter().any(is_same)) {
            return true;
        }
        // A root is always recorded: there are few.
        if known.count >= MAX_KNOWN_DIRECTORIES && directory.left_out_since.is_none() {
            return false;
        }
        Arc::make_mut(&mut known.by_pattern).entry(pattern.to_owned()).or_default().push(directory);
        known.count += 1;
        true
    }

    /// Records what a pattern is about now, of names that were not recorded yet.
    pub fn look(
        &self,
        pattern: &DirectoryPattern,
        below: Below,
        roots: &[&str],
        programs: &dyn ProgramResolver,
    ) {
        let is_known = |path: &str| {
            let known = self.lock();
            let directories = known.by_pattern.get(&pattern.source);
            let is_it = |one: &KnownDirectory| one.path == path && one.left_out_since.is_none();
            directories.is_some_and(|directories| directories.iter().any(is_it))
        };
        let began = programs.now().saturating_sub(CLOCK_LAG);
        let (paths, mut is_whole) = pattern.paths(roots, programs);
        for path in paths {
            if is_known(&path) {
                continue;
            }
            let Some(found) = programs.directories(&path).and_then(|found| found.into_iter().next()) else {
                continue;
            };
            is_whole &=
                self.add(&pattern.source, KnownDirectory { path, id: found.id, left_out_since: None });
            if below == Below::Recorded {
                is_whole &= self.add_below(&pattern.source, found.path, programs);
            }
        }
        if is_whole || below == Below::Left {
            return;
        }
        let since = i64::try_from(began.as_nanos()).unwrap_or(i64::MAX);
        for root in roots {
            let Some(found) = programs.directories(root).and_then(|found| found.into_iter().next()) else {
                continue;
            };
            let root = KnownDirectory { path: found.path, id: found.id, left_out_since: Some(since) };
            self.add(&pattern.source, root);
        }
    }

    /// Breadth first, so that a bound leaves out what lies deepest. Whether all were recorded.
    fn add_below(&self, pattern: &str, top: String, programs: &dyn ProgramResolver) -> bool {
        let (mut level, mut is_whole) = (vec![top], true);
        while !level.is_empty() {
            let mut next = Vec::new();
            for directory in &level {
                let Some(found) = programs.subdirectories(directory) else {
                    is_whole = false;
                    continue;
                };
                for (path, id) in found {
                    if !self.add(pattern, KnownDirectory { path: String::new(), id, left_out_since: None }) {
                        return false;
                    }
                    next.push(path);
                }
            }
            level = next;
        }
        is_whole
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DirectoryPattern {
    /// The paths of directories that it is about: of a glob those that are there below the roots; a path, whether or not it is there. And
    /// whether these are all.
    fn paths(&self, roots: &[&str], programs: &dyn ProgramResolver) -> (Vec<String>, bool) {
        if let TextPattern::Literal(path) = &self.text {
            return (vec![path.clone()], true);
        }
        let fixed = &self.source[..self.source.find(['*', '?', '[', '\\']).unwrap_or(self.source.len())];
        let top = fixed.rsplit_once('/').map_or("", |(top, _)| top);
        let leads_there = |path: &str| fixed.starts_with(path) || path.starts_with(top);
        let mut level: Vec<String> = roots.iter().map(|root| (*root).to_owned()).collect();
        let (mut paths, mut looked_at, mut is_whole) = (Vec::new(), 0, true);
        while !level.is_empty() {
            // What lies below one that it accepts counts as that does.
            let (accepted, others): (Vec<_>, Vec<_>) =
                level.into_iter().filter(|path| leads_there(path)).partition(|path| self.text.accepts(path));
            paths.extend(accepted);
            level = Vec::new();
            for directory in others {
                if looked_at >= MAX_LOOKED_AT {
                    return (paths, false);
                }
                let Some(found) = programs.subdirectories(&directory) else {
                    is_whole = false;
                    continue;
                };
                looked_at += found.len();
                level.extend(found.into_iter().map(|(path, _)| path));
            }
        }
        (paths, is_whole)
    }
}
