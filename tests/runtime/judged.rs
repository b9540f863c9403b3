//! The rules about what policy judged: the supervisor executes that file, or nothing.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use provost::proto::supervisor::{FileIdentity, Judged, JudgedFile, Spawn, Stage};

use crate::{client::command, rules::start};

fn identity(path: &Path) -> FileIdentity {
    let seen = fs::metadata(path).unwrap();
    let changed_ns = seen.ctime() * 1_000_000_000 + seen.ctime_nsec();
    FileIdentity { device: seen.dev(), inode: seen.ino(), changed_ns }
}

fn judged(path: &Path, identity: Option<FileIdentity>, is_immutable: bool) -> JudgedFile {
    JudgedFile { path: path.display().to_string().into(), identity, is_immutable }
}

/// A script that says a word.
fn script(path: &Path, word: &str) {
    fs::write(path, format!("#!/bin/sh\necho {word}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

pub(crate) fn another_file_than_the_judged_one_is_not_executed() {
    let (_supervisor, mut client) = start();
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (path, other) = (directory.path().join("program"), directory.path().join("other"));
    script(&path, "judged");
    script(&other, "other");
    let spawn = |id: &str, files: Option<Vec<JudgedFile>>| Spawn {
        judged: files.map(|files| Judged { files }),
        ..command(id, &[&path.display().to_string()])
    };

    let before = identity(&path);
    for is_immutable in [true, false] {
        if is_immutable {
            let (_, output) = client.run(spawn("term_1", Some(vec![judged(&path, Some(before), true)])));
            assert_eq!(output, b"judged\n");
        }
        let program = judged(Path::new("/bin/echo"), Some(identity(Path::new("/bin/echo"))), is_immutable);
        let echo = Spawn {
            argv: vec!["echo".into(), "x".into()],
            ..spawn(&format!("term_2_{is_immutable}"), Some(vec![program]))
        };
        assert_eq!(client.run(echo).1, b"x\n", "by its path, and by its descriptor");
    }

    fs::rename(&other, &path).unwrap();
    // Who asks for the name alone gets what is there by now: this is the attack.
    assert_eq!(client.run(spawn("term_3", None)).1, b"other\n");
    for is_immutable in [true, false] {
        let files = vec![judged(&path, Some(before), is_immutable)];
        let failure = client.spawn(spawn("term_4", Some(files))).map(drop).unwrap_err();
        assert_eq!((failure.stage(), failure.index, failure.errno), (Stage::Program, 0, libc::ESTALE));
    }
    // The same file with other content, too: its ctime says so.
    let before = identity(&path);
    fs::write(&path, "#!/bin/sh\necho changed\n").unwrap();
    let failure =
        client.spawn(spawn("term_5", Some(vec![judged(&path, Some(before), false)]))).map(drop).unwrap_err();
    assert_eq!(failure.stage(), Stage::Program);
    // An interpreter is compared as its script is.
    let files = vec![judged(&path, Some(identity(&path)), false), judged(&path, Some(before), false)];
    let failure = client.spawn(spawn("term_6", Some(files))).map(drop).unwrap_err();
    assert_eq!((failure.stage(), failure.index), (Stage::Program, 1));
    // What policy has not found is not executed when it is there.
    let failure = client.spawn(spawn("term_7", Some(Vec::new()))).map(drop).unwrap_err();
    assert_eq!(failure.stage(), Stage::Program);
    fs::remove_file(&path).unwrap();
    let failure = client.spawn(spawn("term_8", Some(Vec::new()))).map(drop).unwrap_err();
    assert_eq!((failure.stage(), failure.errno), (Stage::Resolve, libc::ENOENT));
}
