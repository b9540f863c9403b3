//! The links by which a caller names the directories of a workspace: commands find them where they are on the host, so that the
//! caller's names of these directories mean the same inside.
//!
//! They are read with the caller's rights, and nothing is shown but what is on the caller's own names. Opens nothing for use.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    sandbox::{roots::path_walk, spec::NamedDirectory},
    sys::rights::Rights,
};

/// A symbolic link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    /// Absolute; no link is on the way to it.
    pub(super) place: PathBuf,
    /// As readlink(2) says it.
    pub(super) target: PathBuf,
}

/// The way from a caller's name of a directory to its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedWay {
    /// The links on it, in the order in which they are followed.
    pub(super) links: Vec<Link>,
    /// One link in the place of all, where a sandbox has something else in the place of one of them.
    pub(super) whole: Link,
}

/// The ways of those that still lead to the directory, as far as the caller sees them.
pub(super) fn find(named: &[NamedDirectory], rights: &Rights) -> Vec<NamedWay> {
    if named.is_empty() {
        return Vec::new();
    }
    // Without the caller's rights nothing is looked at. A name without its links is one that the sandbox does not have.
    rights.run_with(|| named.iter().filter_map(way).collect()).unwrap_or_default()
}

fn way(named: &NamedDirectory) -> Option<NamedWay> {
    let walk = path_walk::walk(&named.name).ok().filter(|walk| walk.exists && walk.real == named.real)?;
    let read = |place: PathBuf| fs::read_link(&place).map(|target| Link { place, target });
    let links = walk.steps.into_iter().filter(|step| step.metadata.is_symlink()).map(|step| read(step.path));
    let links = links.collect::<Result<Vec<_>, _>>().ok()?;
    let whole = Link { place: named.name.clone(), target: named.real.clone() };
    (!links.is_empty()).then_some(NamedWay { links, whole })
}

/// What a sandbox has at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    /// What the host has: the link itself.
    Host,
    /// Nothing, in a directory of the sandbox's own.
    Nothing,
    /// Something of its own.
    Own,
}

/// The links to be made, given what is at a place. Each place once.
pub(super) fn to_make(ways: Vec<NamedWay>, at: impl Fn(&Path) -> At) -> Vec<Link> {
    let mut made: Vec<Link> = Vec::new();
    for NamedWay { links, whole } in ways {
        let is_other =
            |link: &Link| made.iter().any(|one| one.place == link.place && one.target != link.target);
        let is_taken = |link: &Link| at(&link.place) == At::Own || is_other(link);
        let wanted = match links.iter().any(is_taken) {
            false => links,
            // Below a link that is shown nothing can be made.
            true if !is_taken(&whole)
                && !links.iter().any(|link| whole.place.starts_with(&link.place) && !is_taken(link)) =>
            {
                vec![whole]
            }
            true => Vec::new(),
        };
        for link in wanted {
            if at(&link.place) == At::Nothing && !made.contains(&link) {
                made.push(link);
            }
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn link(place: &str, target: &str) -> Link {
        Link { place: place.into(), target: target.into() }
    }

    #[test]
    fn every_link_on_the_way_is_found_and_none_of_a_way_that_leads_elsewhere() {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("data/work/sub")).unwrap();
        symlink("data", top.join("first")).unwrap();
        symlink("first/work", top.join("second")).unwrap();
        let named = |name: &str, real: &str| NamedDirectory { name: top.join(name), real: top.join(real) };
        let ways = find(&[named("second/sub", "data/work/sub")], &Rights::own());
        let at = |name: &str, target: &str| Link { place: top.join(name), target: target.into() };
        assert_eq!(ways[0].links, [at("second", "first/work"), at("first", "data")]);
        assert_eq!(find(&[named("second", "data"), named("none", "data")], &Rights::own()), []);
        assert_eq!(find(&[named("data/work", "data/work")], &Rights::own()), [], "there is no link");
    }

    #[test]
    fn links_are_made_where_nothing_is_and_one_link_where_a_directory_of_the_sandboxs_own_is_in_the_place_of_one()
     {
        let way =
            |links: &[Link], place: &str| NamedWay { links: links.to_vec(), whole: link(place, "/data/p") };
        let at = |path: &Path| match path.to_str().unwrap() {
            "/tmp" | "/home" => At::Own,
            path if path.starts_with("/shown/") => At::Host,
            _ => At::Nothing,
        };
        let chain = [link("/u/l", "m"), link("/u/m", "/data")];
        assert_eq!(to_make(vec![way(&chain, "/u/l/p"), way(&chain, "/u/l/p")], at), chain);
        assert_eq!(to_make(vec![way(&[link("/shown/l", "/data/p")], "/shown/l")], at), []);
        let by_tmp = [link("/tmp", "/private/tmp")];
        assert_eq!(to_make(vec![way(&by_tmp, "/tmp/p")], at), [link("/tmp/p", "/data/p")]);
        assert_eq!(to_make(vec![way(&by_tmp, "/home")], at), []);
    }
}
