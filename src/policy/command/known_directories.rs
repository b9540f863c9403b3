//! Directories of `when.cwd` by their identities: what a rule names stays what it named, whatever a command renames.
//!
//! Recorded when a request is evaluated, before its command could rename anything, and kept as long as the policy is in force. A rule
//! that denies or asks is about the directory that had the name, and about those that were in it. One that allows is about a name, and where
//! a directory of that name was recorded, about that one only.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    pattern::TextPattern,
    program::{DirectoryId, ProgramResolver},
};

/// Directories that are recorded for all rules of a policy.
pub const MAX_KNOWN_DIRECTORIES: usize = 4_096;
/// Directories that are looked at for one glob and one request.
const MAX_LOOKED_AT: usize = 1_024;

/// One directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownDirectory {
    /// The path that the pattern accepts; empty: it lay below such a directory.
    pub path: String,
    /// What it was.
    pub id: DirectoryId,
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

    /// Records what others have recorded.
    pub fn add(&self, pattern: &str, directory: KnownDirectory) {
        let mut known = self.lock();
        let is_known =
            known.by_pattern.get(pattern).is_some_and(|directories| directories.contains(&directory));
        if !is_known && known.count < MAX_KNOWN_DIRECTORIES {
            Arc::make_mut(&mut known.by_pattern).entry(pattern.to_owned()).or_default().push(directory);
            known.count += 1;
        }
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
            directories.is_some_and(|directories| directories.iter().any(|one| one.path == path))
        };
        for path in pattern.paths(roots, programs) {
            if is_known(&path) {
                continue;
            }
            let Some(found) = programs.directories(&path).and_then(|found| found.into_iter().next()) else {
                continue;
            };
            self.add(&pattern.source, KnownDirectory { path, id: found.id });
            if below == Below::Recorded {
                self.add_below(&pattern.source, found.path, programs);
            }
        }
    }

    /// Breadth first, so that a bound leaves out what lies deepest.
    fn add_below(&self, pattern: &str, top: String, programs: &dyn ProgramResolver) {
        let mut level = vec![top];
        while !level.is_empty() {
            let mut next = Vec::new();
            for (path, id) in level.iter().flat_map(|directory| programs.subdirectories(directory)) {
                if self.lock().count >= MAX_KNOWN_DIRECTORIES {
                    return;
                }
                self.add(pattern, KnownDirectory { path: String::new(), id });
                next.push(path);
            }
            level = next;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DirectoryPattern {
    /// The paths of directories that it is about: of a glob those that are there below the roots; a path, whether or not it is there.
    fn paths(&self, roots: &[&str], programs: &dyn ProgramResolver) -> Vec<String> {
        if let TextPattern::Literal(path) = &self.text {
            return vec![path.clone()];
        }
        let fixed = &self.source[..self.source.find(['*', '?', '[', '\\']).unwrap_or(self.source.len())];
        let top = fixed.rsplit_once('/').map_or("", |(top, _)| top);
        let leads_there = |path: &str| fixed.starts_with(path) || path.starts_with(top);
        let mut level: Vec<String> = roots.iter().map(|root| (*root).to_owned()).collect();
        let (mut paths, mut looked_at) = (Vec::new(), 0);
        while !level.is_empty() {
            // What lies below one that it accepts counts as that does.
            let (accepted, others): (Vec<_>, Vec<_>) =
                level.into_iter().filter(|path| leads_there(path)).partition(|path| self.text.accepts(path));
            paths.extend(accepted);
            level = Vec::new();
            for directory in others {
                if looked_at >= MAX_LOOKED_AT {
                    return paths;
                }
                let found = programs.subdirectories(&directory);
                looked_at += found.len();
                level.extend(found.into_iter().map(|(path, _)| path));
            }
        }
        paths
    }
}
