//! Tests of which repository is found around a directory, and of which files none is believed.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown, symlink},
};

use super::*;
use crate::sandbox::{
    roots::{self, governing::Governing},
    spec::RootRole,
};

/// All parts of a git directory; a name with a slash is a directory.
const WHOLE: [&str; 3] = ["HEAD", "objects/", "refs/"];

fn make(directory: &Path, parts: &[&str]) {
    fs::create_dir_all(directory).unwrap();
    for part in parts {
        match part.strip_suffix('/') {
            Some(name) => fs::create_dir(directory.join(name)).unwrap(),
            None => fs::write(directory.join(part), "").unwrap(),
        }
    }
}

/// The directory of the files, and the git directory outside of it.
type Found = Result<Option<(PathBuf, Option<PathBuf>)>, String>;

fn found(start: &Path) -> Found {
    let rights = Rights::own();
    let start = roots::open(start, RootRole::Work, &rights, &Governing::default()).unwrap();
    let found = enclosing(&start, &rights).map_err(|error| error.to_string())?;
    Ok(found.map(|one| (one.worktree.path, one.git_directory.map(|git| git.path))))
}

#[test]
fn a_git_directory_has_all_of_its_parts_and_one_without_a_head_is_passed_by() {
    let place = tempfile::tempdir().unwrap();
    let outer = place.path().canonicalize().unwrap();
    make(&outer.join(".git"), &WHOLE);
    let own = |at: &Path| Ok(Some((at.to_owned(), None)));
    let scattered = |at: &Path| Err(format!("{:?} keeps a part of itself elsewhere", at.join(".git")));
    let outer_one = |_: &Path| Ok(Some((outer.clone(), None)));
    type Expected<'a> = &'a dyn Fn(&Path) -> Found;
    let cases: [(&[&str], Expected<'_>); 8] = [
        (&WHOLE, &own),
        (&[], &outer_one),
        (&["objects/", "refs/"], &outer_one),
        (&["HEAD"], &scattered),
        (&["HEAD", "objects/"], &scattered),
        (&["HEAD", "refs/"], &scattered),
        (&["HEAD", "objects", "refs/"], &scattered),
        (&["HEAD", "objects/", "refs/", "commondir"], &scattered),
    ];
    for (number, (parts, expected)) in cases.into_iter().enumerate() {
        let directory = outer.join(number.to_string());
        make(&directory.join(".git"), parts);
        make(&directory.join("below"), &[]);
        for start in [directory.clone(), directory.join("below")] {
            assert_eq!(found(&start), expected(&directory), "{parts:?} from {start:?}");
        }
    }
    let link = outer.join("link");
    make(&link, &[]);
    symlink("../.git", link.join(".git")).unwrap();
    assert_eq!(found(&link), Err(format!("{:?} is a link", link.join(".git"))));
}

#[test]
fn a_git_directory_itself_is_a_directory_as_any_other_and_one_in_it_has_no_files() {
    let place = tempfile::tempdir().unwrap();
    let outer = place.path().canonicalize().unwrap();
    make(&outer.join(".git"), &WHOLE);
    let bare = outer.join("bare");
    make(&bare, &WHOLE);
    assert_eq!(found(&bare), Ok(None));
    let inside = Err(format!("{bare:?} is a git directory and has no files to work on"));
    assert_eq!(found(&bare.join("refs")), inside);
    for (name, parts) in [("no-head", ["objects/", "refs/"]), ("no-refs", ["HEAD", "objects/"])] {
        make(&outer.join(name), &parts);
        for start in [outer.join(name), outer.join(name).join("objects")] {
            assert_eq!(found(&start), Ok(Some((outer.clone(), None))), "{start:?}");
        }
    }
}

#[test]
fn a_linked_worktree_is_believed_only_where_its_own_directory_names_it() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    let (main, linked) = (place.join("main/.git"), place.join("linked"));
    let own = main.join("worktrees/linked");
    make(&main, &WHOLE);
    make(&own, &["HEAD"]);
    make(&linked, &["other"]);
    make(&place.join("other"), &[".git"]);
    fs::write(own.join("commondir"), "../..\n").unwrap();
    let names = |git: &Path| fs::write(linked.join(".git"), format!("gitdir: {}\n", git.display())).unwrap();
    let taken = || Ok(Some((linked.clone(), Some(main.clone()))));
    let one_sided = |git: &Path| Err(format!("{git:?}, which {linked:?} names, does not point back at it"));

    names(&own);
    assert_eq!(found(&linked), one_sided(&own), "it names nothing");
    for named in ["../../../../linked/.git".into(), linked.join(".git")] {
        fs::write(own.join("gitdir"), format!("{}\n", named.display())).unwrap();
        assert_eq!(found(&linked), taken(), "{named:?}");
    }
    for named in ["other/.git", "linked/other", "linked", "absent/.git"] {
        fs::write(own.join("gitdir"), format!("{}\n", place.join(named).display())).unwrap();
        assert_eq!(found(&linked), one_sided(&own), "{named}");
    }
    // A directory that names both is none of the repository's.
    let fake = linked.join("fake");
    make(&fake, &["HEAD"]);
    fs::write(fake.join("commondir"), main.to_str().unwrap()).unwrap();
    fs::write(fake.join("gitdir"), linked.join(".git").to_str().unwrap()).unwrap();
    names(&fake);
    assert_eq!(found(&linked), one_sided(&fake));
}

#[test]
fn root_sees_a_users_repository_as_that_user_does() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: only root can give files away");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let outer = place.path().canonicalize().unwrap();
    fs::set_permissions(&outer, fs::Permissions::from_mode(0o755)).unwrap();
    let project = outer.join("project");
    let git = project.join(".git");
    make(&outer.join(".git"), &WHOLE);
    make(&git, &WHOLE);
    for path in [&outer, &outer.join(".git"), &project, &git] {
        chown(path, Some(4_321), Some(4_321)).unwrap();
    }
    assert_eq!(found(&project), Ok(Some((project.clone(), None))));
    // What is closed to the user is nothing that root finds for it.
    fs::set_permissions(&git, fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(found(&project), Ok(Some((outer, None))));
    fs::set_permissions(&git, fs::Permissions::from_mode(0o755)).unwrap();
    chown(&git, Some(4_322), None).unwrap();
    assert_eq!(found(&project), Err(format!("{git:?} belongs to uid 4322, not to uid 4321")));
}
