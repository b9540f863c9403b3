//! File operations: what they do in the workspace, and that they see and change what a command there does, and nothing else.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    time::{Duration, Instant},
};

use nix::{sys::stat::Mode, unistd::mkfifo};
use serde_json::{Value, json};

use crate::{
    exec_server::peer::{Peer, encoded, text, uri},
    support::{Gateway, add_rule},
};

#[test]
fn files_are_written_read_listed_copied_and_removed() {
    let gateway = Gateway::start();
    let mut peer = Peer::at(&gateway);
    let root = peer.workspace.clone();
    let at = |name: &str| json!(uri(&root.join(name)));
    peer.result("fs/createDirectory", json!({ "path": at("a/b") }));
    peer.result("fs/writeFile", json!({ "path": at("a/b/file"), "dataBase64": encoded(b"hello") }));
    assert_eq!(fs::read(root.join("a/b/file")).expect("it was written"), b"hello");
    // One that is there keeps its mode, and a shorter one its length.
    fs::set_permissions(root.join("a/b/file"), fs::Permissions::from_mode(0o755)).expect("it is ours");
    peer.result("fs/writeFile", json!({ "path": at("a/b/file"), "dataBase64": encoded(b"hi") }));
    let mode = fs::metadata(root.join("a/b/file")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    assert_eq!(text(&peer.result("fs/readFile", json!({ "path": at("a/b/file") }))["dataBase64"]), "hi");
    peer.result("fs/writeFile", json!({ "path": at("empty"), "dataBase64": "" }));
    assert_eq!(fs::metadata(root.join("empty")).expect("it was made").len(), 0);

    let large: Vec<u8> = (0..3 << 20).map(|at: u32| (at % 251) as u8).collect();
    peer.result("fs/writeFile", json!({ "path": at("large"), "dataBase64": encoded(&large) }));
    assert!(fs::read(root.join("large")).expect("it was written") == large);
    let read = peer.result("fs/readFile", json!({ "path": at("large") }));
    assert!(read["dataBase64"] == encoded(&large), "each byte comes back");
    peer.result("fs/open", json!({ "handleId": "h", "path": at("large") }));
    let block = peer.result("fs/readBlock", json!({ "handleId": "h", "offset": 100_000, "len": 70_000 }));
    assert!(block["chunk"] == encoded(&large[100_000..170_000]) && block["eof"] == false);
    let block =
        peer.result("fs/readBlock", json!({ "handleId": "h", "offset": (3 << 20) - 5, "len": 70_000 }));
    assert!(block["chunk"] == encoded(&large[large.len() - 5..]) && block["eof"] == true);
    peer.result("fs/close", json!({ "handleId": "h" }));
    let closed = peer.error("fs/readBlock", json!({ "handleId": "h", "offset": 0, "len": 1 }));
    assert_eq!(closed["code"], -32_004);

    symlink("a", root.join("link")).expect("a link");
    symlink("nowhere", root.join("broken")).expect("a link");
    let link = peer.result("fs/getMetadata", json!({ "path": at("link") }));
    assert_eq!((&link["isDirectory"], &link["isSymlink"]), (&json!(true), &json!(true)), "{link}");
    let file = peer.result("fs/getMetadata", json!({ "path": at("a/b/file") }));
    assert_eq!(
        (&file["isFile"], &file["isSymlink"], &file["size"]),
        (&json!(true), &json!(false), &json!(2))
    );
    let modified = fs::metadata(root.join("a/b/file")).expect("it is there").modified().expect("a time");
    let modified = modified.duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_millis();
    assert_eq!(u128::from(file["modifiedAtMs"].as_u64().expect("a number")), modified);
    let real = peer.result("fs/canonicalize", json!({ "path": at("link/b/../b/file") }));
    assert_eq!(real["path"], at("a/b/file"));
    let listed = peer.result("fs/readDirectory", json!({ "path": uri(&root) }));
    let mut names: Vec<_> = listed["entries"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["fileName"].as_str().expect("a text").to_owned())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "empty", "large", "link"]);

    peer.result(
        "fs/copy",
        json!({ "sourcePath": at("a"), "destinationPath": at("copy"), "recursive": true }),
    );
    assert_eq!(fs::read(root.join("copy/b/file")).expect("it was copied"), b"hi");
    let refused = peer
        .error("fs/copy", json!({ "sourcePath": at("a"), "destinationPath": at("x"), "recursive": false }));
    assert_eq!(refused["code"], -32_600);
    peer.result("fs/remove", json!({ "path": at("link") }));
    assert!(
        root.join("a/b/file").exists() && !root.join("link").is_symlink(),
        "a link goes, not what it links to"
    );
    peer.error("fs/remove", json!({ "path": at("copy"), "recursive": false }));
    peer.result("fs/remove", json!({ "path": at("copy") }));
    assert!(!root.join("copy").exists());
    peer.result("fs/remove", json!({ "path": at("copy") }));
    assert_eq!(peer.error("fs/remove", json!({ "path": at("copy"), "force": false }))["code"], -32_004);

    let walk = |hidden: bool, entries: u64| {
        json!({ "path": uri(&root), "options": { "maxDepth": 9, "maxDirectories": 9,
        "maxEntries": entries, "followDirectorySymlinks": false, "pruneHiddenDirectories": hidden } })
    };
    fs::create_dir_all(root.join(".hidden/x")).expect("the workspace is ours");
    let walked = peer.result("fs/walk", walk(true, 100));
    let mut found: Vec<_> =
        walked["entries"].as_array().expect("a list").iter().map(|one| one["path"].clone()).collect();
    found.sort_by_key(Value::to_string);
    assert_eq!(found, ["a", "a/b", "a/b/file", "empty", "large"].map(at));
    assert_eq!(walked["truncated"], false);
    let walked = peer.result("fs/walk", walk(false, 2));
    assert!(
        walked["entries"].as_array().expect("a list").len() == 2 && walked["truncated"] == true,
        "{walked}"
    );
    gateway.stop();
}

#[test]
fn a_file_operation_reaches_what_a_command_reaches_and_not_the_host() {
    let gateway = Gateway::start();
    let mut peer = Peer::at(&gateway);
    let (root, marker) = (peer.workspace.clone(), peer.outside("marker"));
    fs::write(&marker, "intact").expect("it is ours");
    // From here each of these works.
    symlink(&marker, root.join("out")).expect("a link");
    assert_eq!(fs::read(root.join("out")).expect("it leads there"), b"intact");
    for path in [marker.clone(), root.join("out"), root.join("../marker")] {
        let missing = peer.error("fs/readFile", json!({ "path": uri(&path) }));
        assert_eq!(missing["code"], -32_004, "{path:?}: {missing}");
        peer.error("fs/writeFile", json!({ "path": uri(&path), "dataBase64": encoded(b"gone") }));
        peer.error("fs/copy", json!({ "sourcePath": "file:///etc/hostname", "destinationPath": uri(&path.join("x")), "recursive": false }));
    }
    peer.result("fs/remove", json!({ "path": uri(&marker) }));
    assert_eq!(fs::read(&marker).expect("it is there"), b"intact");
    peer.error("fs/writeFile", json!({ "path": "file:///etc/provost-test", "dataBase64": "" }));
    assert!(!Path::new("/etc/provost-test").exists());
    // The same for both: the sandbox's /tmp, its processes, the command's id.
    assert_eq!(peer.line("p", "echo kept > /tmp/file; id -u").exit_code, 0);
    assert_eq!(
        text(&peer.result("fs/readFile", json!({ "path": "file:///tmp/file" }))["dataBase64"]),
        "kept\n"
    );
    assert!(!Path::new("/tmp/file").exists() || fs::read("/tmp/file").expect("it is there") != b"kept\n");
    peer.result("fs/writeFile", json!({ "path": uri(&root.join("by-file")), "dataBase64": "" }));
    let owners = peer.line("q", "touch by-command; stat -c %u by-file by-command; id -u");
    let owners: Vec<_> = owners.stdout.lines().collect();
    assert!(owners.len() == 3 && owners.iter().all(|owner| *owner == owners[0]), "{owners:?}");
    // What makes people's tools run code cannot be written this way either.
    fs::create_dir_all(root.join(".git/hooks")).expect("the workspace is ours");
    let hook = root.join(".git/hooks/pre-commit");
    let outcome =
        peer.ask("fs/writeFile", json!({ "path": uri(&hook), "dataBase64": encoded(b"#!/bin/sh\n") }));
    let by_command = peer.line("r", "echo '#!/bin/sh' > .git/hooks/pre-commit");
    assert_eq!(outcome.get("error").is_some(), by_command.exit_code != 0, "{outcome} {by_command:?}");
    gateway.stop();
}

#[test]
fn what_is_no_regular_file_and_what_is_too_large_is_refused_without_a_hang() {
    let gateway = Gateway::start();
    let mut peer = Peer::at(&gateway);
    let root = peer.workspace.clone();
    mkfifo(&root.join("fifo"), Mode::from_bits_truncate(0o666)).expect("a FIFO can be made");
    fs::set_permissions(root.join("fifo"), fs::Permissions::from_mode(0o666)).expect("it is ours");
    let huge = fs::File::create(root.join("huge")).expect("a file");
    huge.set_len(1 << 40).expect("it is sparse");
    let begun = Instant::now();
    for path in
        [uri(&root.join("fifo")), "file:///dev/zero".to_owned(), uri(&root), "file:///dev/tty".to_owned()]
    {
        let error = peer.error("fs/readFile", json!({ "path": path }));
        assert!(error["code"] == -32_600 || error["code"] == -32_004, "{path}: {error}");
        peer.error("fs/open", json!({ "handleId": "h", "path": path }));
    }
    peer.error("fs/writeFile", json!({ "path": uri(&root.join("fifo")), "dataBase64": encoded(b"x") }));
    peer.error("fs/writeFile", json!({ "path": uri(&root), "dataBase64": encoded(b"x") }));
    peer.error("fs/copy", json!({ "sourcePath": uri(&root.join("fifo")), "destinationPath": uri(&root.join("x")), "recursive": false }));
    peer.error("fs/readDirectory", json!({ "path": uri(&root.join("fifo")) }));
    assert!(begun.elapsed() < Duration::from_secs(100), "nothing waits for its time limit");
    let error = peer.error("fs/readFile", json!({ "path": uri(&root.join("huge")) }));
    assert_eq!(error["data"]["reason"], "FILE_TOO_LARGE", "{error}");
    // In pieces it can be read.
    peer.result("fs/open", json!({ "handleId": "h", "path": uri(&root.join("huge")) }));
    let block = peer.result("fs/readBlock", json!({ "handleId": "h", "offset": 1_u64 << 39, "len": 4 }));
    assert_eq!((&block["chunk"], &block["eof"]), (&json!(encoded(&[0; 4])), &json!(false)));
    let error =
        peer.error("fs/open", json!({ "handleId": "w", "path": uri(&root.join("new")), "mode": "replace" }));
    assert_eq!(error["code"], -32_602, "{error}");
    gateway.stop();
}

#[test]
fn a_file_operation_is_judged_as_the_command_that_it_is() {
    let gateway = Gateway::with_policy(|policy| {
        let rule = "id = 'no-secrets'\ndecision = 'deny'\nargv = ['cat', '--', '*/.env']\nreason = 'secrets stay here'";
        add_rule(policy, rule);
    });
    let mut peer = Peer::at(&gateway);
    let path = peer.workspace.join(".env");
    fs::write(&path, "TOKEN=1").expect("the workspace is ours");
    fs::write(peer.workspace.join("other"), "x").expect("the workspace is ours");
    let error = peer.error("fs/readFile", json!({ "path": uri(&path) }));
    assert_eq!(error["data"]["rule"], "no-secrets", "{error}");
    assert!(error["message"].as_str().expect("a text").contains("secrets stay here"), "{error}");
    peer.result("fs/readFile", json!({ "path": uri(&peer.workspace.join("other")) }));
    gateway.stop();
}
