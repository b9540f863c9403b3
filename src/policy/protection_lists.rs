//! Merges the lists of protections of a profile: the shipped list, then what each profile of the chain adds, and without
//! what one of them drops by name.
//!
//! Works on the tables as they are written, because a list that a table leaves out must change nothing.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::{
    check::InvalidValue,
    profile::{Filesystem, Profile},
};

/// Merges the lists of a profile. `tables` are those of the profiles that it extends, the farthest first, then its own.
pub(super) fn merge_lists(profile: &mut Profile, tables: &[&Table]) -> Result<(), InvalidValue> {
    let shipped = Filesystem::default();
    let (mut protected, mut reserved) = (shipped.protected, shipped.reserved);
    let (mut deny, mut drop): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for table in tables {
        for dropped in texts(table, "filesystem", "drop") {
            let is_other = |path: &PathBuf| path != Path::new(dropped);
            let before = protected.len() + reserved.len();
            protected.retain(is_other);
            reserved.retain(is_other);
            if protected.len() + reserved.len() == before {
                let problem = format!("{dropped:?} is not among the protected and reserved paths");
                return Err(InvalidValue { key: "drop", problem });
            }
        }
        add_missing(&mut protected, texts(table, "filesystem", "protected").map(PathBuf::from));
        add_missing(&mut reserved, texts(table, "filesystem", "reserved").map(PathBuf::from));
        // What a profile denies again is no longer dropped.
        let denied: Vec<String> = texts(table, "environment", "deny").map(str::to_owned).collect();
        drop.retain(|dropped| !denied.contains(dropped));
        add_missing(&mut drop, texts(table, "environment", "drop").map(str::to_owned));
        add_missing(&mut deny, denied);
    }
    (profile.filesystem.protected, profile.filesystem.reserved) = (protected, reserved);
    (profile.environment.deny, profile.environment.drop) = (deny, drop);
    Ok(())
}

fn texts<'a>(table: &'a Table, part: &str, key: &str) -> impl Iterator<Item = &'a str> {
    let list = table.get(part).and_then(|part| part.get(key)).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}

/// Adds the items that the list does not have.
fn add_missing<T: PartialEq>(list: &mut Vec<T>, more: impl IntoIterator<Item = T>) {
    for one in more {
        if !list.contains(&one) {
            list.push(one);
        }
    }
}
