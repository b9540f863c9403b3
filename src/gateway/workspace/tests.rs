//! What is accepted and what is judged while the first scan of a workspace goes on alongside a command, and of files whose
//! content is not kept.

use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::Path,
    time::{Duration, Instant},
};

use nix::unistd::geteuid;

use super::{
    ChangeAction, DangerousChange,
    inotify_events::InotifyBudget,
    integrity_checker::{CommandState, IntegrityChecker, ScanMode},
    tree::{MAX_CONTROL_FILE_BYTES, Tree, nanoseconds},
};
use crate::policy::profile::OnChange;

const MONITOR: &str = "[core]\n\tfsmonitor = tools/mon\n\thooksPath = .githooks\n";

fn checker(root: &Path) -> IntegrityChecker {
    let tree = Tree::new(root.to_owned(), fs::File::open(root).unwrap().into());
    let lease = InotifyBudget::of_host().lease_instance(geteuid().as_raw());
    let mut checker = IntegrityChecker::new(tree, lease, None);
    checker.add_tools(&[".envrc".into(), ".vscode".into()]);
    checker
}

fn scan(checker: &mut IntegrityChecker, mode: ScanMode) -> Vec<DangerousChange> {
    checker.read_events();
    let (mut found, until) = (Vec::new(), Instant::now() + Duration::from_secs(30));
    // What is accepted in one scan names what the next one is about.
    loop {
        found.extend(checker.scan(mode, &|| CommandState::Running, until));
        if checker.scan_is_complete() {
            return found;
        }
        assert!(Instant::now() < until, "it ends");
    }
}

/// Waits until the clock of files goes on, and returns its time: later than all files before.
fn next_tick() -> i64 {
    let directory = tempfile::tempdir().unwrap();
    let now = || {
        write(directory.path(), "now", "");
        let stat = fs::metadata(directory.path().join("now")).unwrap();
        nanoseconds(stat.ctime(), stat.ctime_nsec())
    };
    let before = now();
    loop {
        match now() {
            later if later > before => return later,
            _ => std::thread::yield_now(),
        }
    }
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// What a person has is there, a command begins and does something, and then the first scan comes to it.
fn first_scan(person: impl Fn(&Path), command: impl Fn(&Path)) -> (tempfile::TempDir, Vec<DangerousChange>) {
    let root = tempfile::tempdir().unwrap();
    person(root.path());
    let since = next_tick();
    next_tick();
    command(root.path());
    let mode = ScanMode::AcceptBefore(since, OnChange::Undo);
    let found = scan(&mut checker(root.path()), mode);
    (root, found)
}

fn repository(root: &Path) {
    write(root, "p/r/.git/config", MONITOR);
    write(root, "p/r/.git/HEAD", "");
    write(root, "p/r/.githooks/pre-commit", "own");
    write(root, "p/r/tools/mon", "own");
    write(root, "p/r/.vscode/tasks.json", "own");
}

#[test]
fn what_an_accepted_configuration_names_is_accepted_as_it_is() {
    let (root, found) = first_scan(repository, |_| {});
    assert_eq!(found, []);
    for path in ["p/r/.githooks/pre-commit", "p/r/tools/mon"] {
        assert_eq!(fs::read_to_string(root.path().join(path)).unwrap(), "own");
    }
    let (_root, found) = first_scan(repository, |root| write(root, "p/r/.githooks/pre-commit", "other"));
    assert_eq!(found.len(), 1, "what a command has changed is judged: {found:?}");
    assert!(matches!(found[0].action, ChangeAction::Quarantined), "{found:?}");
}

/// Nearly a repository, an editor's tasks by another name, and a place that a link can lead to.
fn prepared(root: &Path) {
    write(root, "a/half/objects/x", "");
    write(root, "a/half/HEAD", "ref: refs/heads/main\n");
    write(root, "a/half/config", MONITOR);
    write(root, "a/whole/.got/config", MONITOR);
    write(root, "a/vs/tasks.json", "{}");
    write(root, "target/y/.vscode/tasks.json", "{}");
    fs::create_dir(root.join("a/old")).unwrap();
}

#[test]
fn what_becomes_dangerous_after_the_start_is_undone_though_its_own_times_are_older() {
    type Work = fn(&Path);
    let commands: [(&str, Work); 6] = [
        ("a/half/config", |root| fs::create_dir(root.join("a/half/refs")).unwrap()),
        ("a/half/config", |root| fs::rename(root.join("a/old"), root.join("a/half/refs")).unwrap()),
        ("a/whole/.git/config", |root| {
            fs::rename(root.join("a/whole/.got"), root.join("a/whole/.git")).unwrap();
        }),
        ("b/whole/.git/config", |root| {
            fs::rename(root.join("a/whole/.got"), root.join("a/whole/.git")).unwrap();
            fs::rename(root.join("a"), root.join("b")).unwrap();
        }),
        ("a/.vscode/tasks.json", |root| fs::rename(root.join("a/vs"), root.join("a/.vscode")).unwrap()),
        ("target/y/.vscode/tasks.json", |root| symlink("target/y", root.join("docs")).unwrap()),
    ];
    for (path, command) in commands {
        let (root, found) = first_scan(prepared, command);
        assert!(!root.path().join(path).exists(), "{path}: {found:?}");
        assert!(found.iter().all(|change| change.action == ChangeAction::Quarantined), "{path}: {found:?}");
    }
    let (_root, found) = first_scan(prepared, |_| {});
    assert_eq!(found, []);
}

#[test]
fn work_next_to_a_file_undoes_nothing_and_what_is_not_sure_is_said() {
    let (root, found) = first_scan(repository, |root| {
        write(root, "new", "");
        write(root, "p/new", "");
        write(root, "p/r/.git/index", "");
        write(root, "p/r/.vscode/new", "");
    });
    let undone = |change: &&DangerousChange| change.action != ChangeAction::Reported;
    let undone: Vec<_> = found.iter().filter(undone).map(|change| change.path.clone()).collect();
    assert_eq!(undone, [root.path().join("p/r/.vscode/new")]);
    let (root, found) = first_scan(prepared, |root| {
        fs::rename(root.join("a/vs"), root.join("a/.vscode")).unwrap();
        write(root, "a/.vscode/a", "");
    });
    let kept = found.iter().find(|change| change.path == root.path().join("a/.vscode/tasks.json"));
    let kept = kept.expect("it is said");
    assert!(kept.action == ChangeAction::Reported && kept.what.contains("before"), "{kept:?}");
    assert!(root.path().join("a/.vscode/tasks.json").exists());
}

#[test]
fn a_file_that_is_too_large_to_keep_is_known_by_its_identity() {
    let root = tempfile::tempdir().unwrap();
    let large = |first: &str| first.to_owned() + &"#".repeat(MAX_CONTROL_FILE_BYTES);
    repository(root.path());
    write(root.path(), "p/r/.githooks/pre-commit", &large("own"));
    write(root.path(), "p/r/.vscode/large", &large("own"));
    write(root.path(), "p/r/inc", &large("[a]"));
    write(root.path(), "p/r/.git/config", &(MONITOR.to_owned() + "[include]\n\tpath = ../inc\n"));
    let mut checker = checker(root.path());
    assert_eq!(scan(&mut checker, ScanMode::Accept), []);
    let judge = ScanMode::Judge(OnChange::Undo);
    checker.compare_files();
    assert_eq!(scan(&mut checker, judge), [], "nothing has changed");
    for path in ["p/r/.githooks/pre-commit", "p/r/.vscode/large", "p/r/inc"] {
        next_tick();
        write(root.path(), path, &large("oth"));
        let found = scan(&mut checker, judge);
        assert_eq!(found.len(), 1, "{path}: {found:?}");
        assert_eq!(found[0].action, ChangeAction::Quarantined, "{path}");
        assert!(!root.path().join(path).exists(), "{path}");
    }
}
