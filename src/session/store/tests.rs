//! Tests of which sessions and directories are restored.

use std::os::unix::fs::symlink;

use super::*;
use crate::sandbox::spec::RootRole;

/// What would be written of a root, as it is now.
fn record(path: &Path) -> RootRecord {
    let opened = roots::open(path, RootRole::Work, &Rights::own(), &Governing::default()).unwrap();
    let (device, inode) = device_and_inode(&opened).unwrap();
    let path = path.to_str().unwrap().to_owned();
    RootRecord { requested_path: path.clone(), path, device, inode, role: 0 }
}

fn is_reopened(root: &RootRecord, same_boot: bool) -> bool {
    let path = AbsPath::parse(&root.path).unwrap();
    reopen(&path, root, &Rights::own(), &Governing::default(), same_boot).unwrap().is_some()
}

#[test]
fn a_root_is_restored_only_where_it_is_the_same_directory() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    let (root, moved) = (place.join("root"), place.join("moved"));
    fs::create_dir(&root).unwrap();
    let written = record(&root);
    assert!(is_reopened(&written, true) && is_reopened(&written, false));

    fs::rename(&root, &moved).unwrap();
    assert!(!is_reopened(&written, true) && !is_reopened(&written, false), "it is not there");
    fs::create_dir(&root).unwrap();
    assert!(!is_reopened(&written, true), "another one is in its place");
    assert!(is_reopened(&written, false), "devices and inodes are numbered again after a boot");

    fs::remove_dir(&root).unwrap();
    symlink(&moved, &root).unwrap();
    assert!(!is_reopened(&written, true) && !is_reopened(&written, false), "a link leads to it");
}

#[test]
fn an_owner_whose_file_system_hung_is_not_waited_for_again() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().canonicalize().unwrap();
    let (written, rights) = (record(&root), Rights::own());
    let reopened = |hung: &mut HashSet<u32>| {
        let path = AbsPath::parse(&written.path).unwrap();
        reopen_in_time(&path, &written, &rights, &Arc::default(), true, hung).unwrap().is_some()
    };
    assert!(reopened(&mut HashSet::from([rights.uid + 1])), "another owner's hung");
    assert!(!reopened(&mut HashSet::from([rights.uid])));
}

#[test]
fn the_sessions_there_are_are_those_whose_files_were_written_to_their_end() {
    let state = tempfile::tempdir().unwrap();
    assert!(names(state.path()).unwrap().is_empty(), "no directory, no sessions");
    for id in ["sess_b", "sess_a"] {
        write(state.path(), &SessionRecord { id: id.into(), ..SessionRecord::default() }).unwrap();
    }
    let unfinished = directory(state.path()).join(format!("sess_c{TEMP_SUFFIX}"));
    fs::write(&unfinished, b"half").unwrap();
    assert_eq!(names(state.path()).unwrap(), ["sess_a", "sess_b"]);
    assert!(!unfinished.exists());

    let broken = tempfile::tempdir().unwrap();
    fs::write(directory(broken.path()), b"no directory").unwrap();
    assert!(names(broken.path()).is_err(), "what cannot be read is not taken for nothing");
    assert!(
        write(broken.path(), &SessionRecord { id: "sess_a".into(), ..SessionRecord::default() }).is_err()
    );
}
