//! Finds the file that a write which was cut short has left: it still parses, and says less than it did.
//!
//! A rule without its last lines may allow more than the whole one. A file that loses whole tables at its end is taken as an edit: so are
//! they removed.

use crate::{PolicyFileError, set::PolicyText};

/// What is said of such a file.
const CUT: &str = "the file ends here, in the middle of what it says in the policy in force: a write may have been cut short; a reload that \
                   is asked for (`provost policy reload`, or SIGHUP) loads the file as it is";

/// The first file that ends within a table, or a line, of the same file as it was.
pub(super) fn find(before: &[PolicyText], after: &[PolicyText]) -> Option<PolicyFileError> {
    after.iter().find_map(|file| {
        let old = before.iter().find(|old| old.name == file.name)?;
        let end = file.text.len()..file.text.len();
        is_cut(&old.text, &file.text).then(|| PolicyFileError::at(&file.name, &file.text, end, CUT))
    })
}

fn is_cut(old: &str, new: &str) -> bool {
    let Some(lost) = old.strip_prefix(new).filter(|lost| !lost.is_empty()) else { return false };
    if !new.ends_with('\n') && !lost.trim_start_matches('\r').starts_with('\n') {
        return true;
    }
    // What follows is a part of the last table, unless it begins with the head of one.
    let mut lines = lost.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.next().is_some_and(|line| !line.starts_with('['))
}
