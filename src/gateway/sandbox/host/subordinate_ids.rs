//! Subordinate ids of the gateway's user (subuid(5), subgid(5)): with them an ordinary user's supervisors and gates have ids that
//! no command has.
//!
//! Only the files are read. Where another source provides subordinate ids (nsswitch.conf), there are none here, and
//! [`other_source`] names it.

use nix::unistd::{Uid, User};

use crate::sys::namespace::{NEWGIDMAP, NEWUIDMAP, find_map_program};

/// Ids of the host, as users and as groups, that the gateway's user may map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SubordinateIds {
    /// The supervisors'.
    pub supervisor: (u32, u32),
    /// The gates'.
    pub gate: (u32, u32),
}

/// Longer files are not read.
const MAX_FILE_BYTES: u64 = 1 << 20;

impl SubordinateIds {
    /// Those of this user, where the host has the programs that map them and this process may gain privileges by them.
    #[must_use]
    pub(crate) fn of(uid: u32) -> Option<Self> {
        let (users, groups) = (read("/etc/subuid")?, read("/etc/subgid")?);
        if nix::sys::prctl::get_no_new_privs().unwrap_or(true) {
            return None;
        }
        let (_, _) = (find_map_program(NEWUIDMAP)?, find_map_program(NEWGIDMAP)?);
        // The programs refuse to serve a user without a name.
        let name = User::from_uid(Uid::from_raw(uid)).ok().flatten()?.name;
        let (users, groups) = (last_two(&users, uid, &name)?, last_two(&groups, uid, &name)?);
        Some(Self { supervisor: (users.0, groups.0), gate: (users.1, groups.1) })
    }
}

/// The source of subordinate ids that the host's nsswitch.conf(5) names in place of the files. The programs that map ids ask it,
/// and this gateway does not.
#[must_use]
pub(crate) fn other_source() -> Option<String> {
    source_in(&read("/etc/nsswitch.conf")?)
}

/// shadow takes the first source of the line `subid:` alone, and the files where there is none.
fn source_in(nsswitch: &str) -> Option<String> {
    let lines = nsswitch.lines().map(|line| line.split('#').next().unwrap_or_default());
    let sources = lines.filter_map(|line| line.trim().strip_prefix("subid:")).next()?;
    sources.split_whitespace().next().filter(|source| *source != "files").map(str::to_owned)
}

fn read(path: &str) -> Option<String> {
    let length = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?.len();
    (length <= MAX_FILE_BYTES).then(|| std::fs::read_to_string(path).ok()).flatten()
}

/// The last two ids of the first range of this user that has two. Containers use a range from its start on.
fn last_two(file: &str, uid: u32, name: &str) -> Option<(u32, u32)> {
    let range = |line: &str| {
        let mut fields = line.split(':');
        let (owner, first, count) = (fields.next()?, fields.next()?, fields.next()?);
        let is_its = name == owner || owner.parse() == Ok(uid);
        let (first, count): (u32, u32) = (first.parse().ok()?, count.trim().parse().ok()?);
        let end = first.checked_add(count)?;
        (is_its && first > 0 && count >= 2 && first != uid).then_some((end - 1, end - 2))
    };
    file.lines().find_map(range).filter(|(last, before)| ![*last, *before].contains(&uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_two_ids_of_the_users_own_range_are_taken() {
        let file = "# comment\nother:100000:65536\nme:165536:65536\nme:400000:10\n";
        assert_eq!(last_two(file, 1000, "me"), Some((231_071, 231_070)));
        assert_eq!(last_two("1000:5000:2\n", 1000, "me"), Some((5001, 5000)));
    }

    #[test]
    fn a_source_that_is_not_the_files_is_named() {
        assert_eq!(source_in("passwd: files sss\n subid: sss # by the domain\n").as_deref(), Some("sss"));
        for files in ["", "passwd: sss\n", "subid: files\n", "subid:\n", "# subid: sss\n"] {
            assert_eq!(source_in(files), None, "{files:?}");
        }
    }

    #[test]
    fn what_is_no_range_of_two_gives_nothing() {
        for file in
            ["", "me:5000:1\n", "me:0:10\n", "me:x:10\n", "me:4294967295:2\n", "me:5000\n", "other:5000:9\n"]
        {
            assert_eq!(last_two(file, 1000, "me"), None, "{file:?}");
        }
        assert_eq!(last_two("me:999:2\n", 1000, "me"), None, "the user's own id is in it");
    }
}
