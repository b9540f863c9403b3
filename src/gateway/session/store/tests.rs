//! Tests of which sessions and directories are restored.

use std::os::unix::fs::symlink;

use super::*;
use crate::{
    proto::state::{NamedRootRecord, RepositoryRecord},
    sandbox::spec::RootRole,
};

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

/// A session of this process's user with nothing but its root.
fn bare_record(root: &Path) -> SessionRecord {
    let root = record(root);
    SessionRecord {
        id: SessionId::generate().to_string(),
        principal_uid: Rights::own().uid,
        cwd: root.path.clone(),
        roots: vec![root],
        boot_id: process::boot_id().unwrap(),
        policy_digest: vec![0; 32].into(),
        ..SessionRecord::default()
    }
}

fn read_back(state: &Path, record: &SessionRecord) -> Session {
    write(state, record).unwrap();
    read(state, &record.id, &Arc::default(), &mut HashSet::new()).unwrap()
}

#[test]
fn a_session_comes_back_as_it_was_written() {
    let (state, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let place = place.path().canonicalize().unwrap();
    let pid = std::process::id().cast_signed();
    let start_ticks = process::start_ticks(pid).unwrap().unwrap();
    let roots: Vec<RootRecord> = ["work", "read", "git"]
        .iter()
        .enumerate()
        .map(|(role, name)| {
            fs::create_dir(place.join(name)).unwrap();
            RootRecord { role: i32::try_from(role).unwrap(), ..record(&place.join(name)) }
        })
        .collect();
    let at = |name: &str| place.join(name).to_str().unwrap().to_owned();
    let boot_id = process::boot_id().unwrap();
    let written = SessionRecord {
        owner_gid: 4_321,
        owner_groups: vec![10, 20],
        roots,
        cwd: at("work/below"),
        env: vec![Variable { name: "NAME".into(), value: "value".into() }],
        labels: [("label".to_owned(), "text".to_owned())].into_iter().collect(),
        profile: "workspace".into(),
        front_end: "run".into(),
        owner_process: Some(OwnerProcess { pid, start_ticks, boot_id: boot_id.clone() }),
        created_at_ns: 1_700_000_000_123_456_789,
        request_id: "request".into(),
        name: "name".into(),
        network: "host".into(),
        policy_digest: vec![7; 32].into(),
        ssh_agent: "/agent".into(),
        git_identity: Some(GitIdentityRecord {
            name: "A".into(),
            email: "a@b.c".into(),
            signing_key: "ssh-ed25519 AAAA".into(),
            signs_commits: true,
            signs_tags: false,
        }),
        git_configuration: Some(GitConfigurationRecord {
            text: "[push]\n".into(),
            files: vec![GitFileRecord { name: ".config/git/ignore".into(), content: vec![1, 0xff].into() }],
            left_out: vec!["core.pager".into()],
        }),
        repository: Some(RepositoryRecord {
            worktree: at("work"),
            git_directory: at("git"),
            not_taken: String::new(),
        }),
        named_roots: vec![NamedRootRecord { requested_path: "/by/a/link".into(), path: at("work") }],
        ..bare_record(&place.join("work"))
    };
    let session = read_back(state.path(), &written);
    assert_eq!(to_record(&session).unwrap(), written);
    assert!(session.lost_roots.is_empty() && session.reopen_owner().unwrap().is_some());

    let owner = OwnerProcess { pid, start_ticks: start_ticks + 1, boot_id };
    let other = SessionRecord { owner_process: Some(owner), ..written };
    assert!(read_back(state.path(), &other).reopen_owner().unwrap().is_none(), "its number was another's");
}

#[test]
fn what_a_session_does_not_have_it_does_not_have_after_a_restart() {
    let (state, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut written = bare_record(&place.path().canonicalize().unwrap());
    written.owner_process = Some(OwnerProcess::default());
    written.git_identity = Some(GitIdentityRecord { name: "A".into(), ..GitIdentityRecord::default() });
    let session = read_back(state.path(), &written);
    assert_eq!((session.lifetime, &session.owner_process), (Lifetime::OwnerProcess, &None));
    assert_eq!((&session.request_id, &session.name, session.network), (&None, &None, None));
    assert!(session.ssh_agent.is_none() && session.git_identity.as_ref().unwrap().signing.is_none());
    assert!(session.reopen_owner().unwrap().is_none());
    let root = &written.roots[0];
    written.named_roots =
        vec![NamedRootRecord { requested_path: root.requested_path.clone(), path: root.path.clone() }];
    assert_eq!(to_record(&session).unwrap(), written);
    let explicit = SessionRecord { owner_process: None, ..written };
    assert_eq!(read_back(state.path(), &explicit).lifetime, Lifetime::Explicit);
}

#[test]
fn a_record_that_is_not_the_sessions_own_is_refused_and_a_root_that_was_replaced_is_lost() {
    let (state, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let written = bare_record(&place.path().canonicalize().unwrap());
    let other = SessionId::generate().to_string();
    write(state.path(), &written).unwrap();
    fs::rename(directory(state.path()).join(&written.id), directory(state.path()).join(&other)).unwrap();
    let refused = |name: &str| {
        matches!(read(state.path(), name, &Arc::default(), &mut HashSet::new()), Err(RestoreError::Other))
    };
    assert!(refused(&other), "it is about another one");
    let rootless = SessionRecord { roots: Vec::new(), ..written.clone() };
    write(state.path(), &rootless).unwrap();
    assert!(refused(&rootless.id), "it has no root");

    let mut replaced = written;
    replaced.roots[0].inode += 1;
    let lost = |record: &SessionRecord| {
        let session = read_back(state.path(), record);
        assert_eq!(session.root_objects.len(), 1);
        let is_lost = session.root_descriptors.is_empty() && session.root_objects[0].is_none();
        assert_eq!(session.lost_roots == *session.roots, is_lost);
        is_lost
    };
    assert!(lost(&replaced));
    replaced.boot_id = "another".into();
    assert!(!lost(&replaced), "inodes are numbered again after a boot");
}

#[test]
fn a_session_that_was_removed_does_not_come_back() {
    let (state, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let written = bare_record(&place.path().canonicalize().unwrap());
    let session = read_back(state.path(), &written);
    assert_eq!(names(state.path()).unwrap(), [written.id]);
    // The second time there is nothing to remove.
    for _ in 0..2 {
        remove(state.path(), session.id);
        assert!(names(state.path()).unwrap().is_empty());
    }
}
