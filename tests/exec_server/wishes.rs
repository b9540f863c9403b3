//! What a client does without is kept by every file operation: through links, with a slash at the end, in trees with links in them.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::{
    exec_server::peer::{Peer, encoded, uri},
    support::{Gateway, StdioServer, directory_with_workspace},
};

/// The workspace may be written but for `kept`, and all may be read but for `secret`.
fn wish(root: &Path) -> Value {
    let special = |kind: &str, access: &str| json!({ "path": { "type": "special", "value": { "kind": kind } }, "access": access });
    let path = |name: &str, access: &str| json!({ "path": { "type": "path", "path": root.join(name) }, "access": access });
    let entries = [
        special("root", "read"),
        special("project_roots", "write"),
        path("kept", "read"),
        path("secret", "none"),
    ];
    json!({ "cwd": uri(root), "permissions": { "type": "managed", "network": "restricted",
        "file_system": { "type": "restricted", "entries": entries } } })
}

fn tree(root: &Path) {
    for (path, text) in [("kept/file", "kept"), ("secret/sub/file", "s3cret"), ("own/file", "new")] {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("it has one")).expect("it is ours");
        fs::write(path, text).expect("it is ours");
    }
    fs::create_dir(root.join("to")).expect("it is ours");
    for (to, link) in
        [("kept", "link"), ("secret", "hidden"), ("../kept/file", "to/file"), ("secret/sub", "deep")]
    {
        symlink(to, root.join(link)).expect("a link");
    }
}

#[test]
fn what_a_client_does_without_is_kept_through_links() {
    // The programs by which it is done follow these links.
    let outside = tempfile::tempdir().expect("a directory");
    tree(outside.path());
    let run = |program: &str, args: &[&str]| {
        let status = Command::new(program).args(args).current_dir(&outside).output();
        assert!(status.is_ok(), "{program}");
    };
    run("cp", &["-R", "-P", "-T", "own", "to"]);
    assert_eq!(fs::read(outside.path().join("kept/file")).expect("it is there"), b"new", "the attack works");
    run("rm", &["-rf", "link/"]);
    assert!(!outside.path().join("kept/file").exists(), "the attack works");

    let gateway = Gateway::start();
    let mut peer = Peer::at(&gateway);
    let root = peer.workspace.clone();
    tree(&root);
    let at = |name: &str| uri(&root.join(name));
    let sandbox = wish(&root);
    let is_whole = || {
        assert_eq!(fs::read(root.join("kept/file")).expect("it is there"), b"kept");
        assert_eq!(fs::read_dir(root.join("kept")).expect("it is there").count(), 1);
    };
    for (method, params) in [
        ("fs/writeFile", json!({ "path": at("link/file"), "dataBase64": encoded(b"new") })),
        ("fs/writeFile", json!({ "path": at("to/file"), "dataBase64": encoded(b"new") })),
        ("fs/writeFile", json!({ "path": at("own/../link/other"), "dataBase64": encoded(b"new") })),
        ("fs/createDirectory", json!({ "path": at("link/sub") })),
        ("fs/remove", json!({ "path": at("link/file") })),
        ("fs/remove", json!({ "path": at("link/.") })),
        ("fs/remove", json!({ "path": at("kept/") })),
        ("fs/remove", json!({ "path": uri(&root) })),
        ("fs/copy", json!({ "sourcePath": at("own"), "destinationPath": at("link/"), "recursive": true })),
        ("fs/copy", json!({ "sourcePath": at("hidden/"), "destinationPath": at("copy"), "recursive": true })),
        ("fs/copy", json!({ "sourcePath": uri(&root), "destinationPath": at("copy"), "recursive": true })),
        ("fs/readFile", json!({ "path": at("deep/file") })),
        ("fs/readFile", json!({ "path": at("deep/../sub/file") })),
        ("fs/getMetadata", json!({ "path": at("hidden/") })),
        ("fs/readDirectory", json!({ "path": at("hidden") })),
        ("fs/open", json!({ "handleId": "h", "path": at("deep/file") })),
    ] {
        let mut params = params;
        params["sandbox"] = sandbox.clone();
        let error = peer.error(method, params.clone());
        assert!(error["code"] == -32_600 || error["code"] == -32_602, "{method} {params}: {error}");
        is_whole();
    }
    // A link is removed, whatever stands behind its name; and a tree is copied over links, not through them.
    peer.result("fs/copy", json!({ "sourcePath": at("own"), "destinationPath": at("to"), "recursive": true, "sandbox": sandbox }));
    assert_eq!(fs::read(root.join("to/file")).expect("it is there"), b"new");
    is_whole();
    peer.result("fs/remove", json!({ "path": at("link/"), "sandbox": sandbox }));
    assert!(fs::symlink_metadata(root.join("link")).is_err());
    is_whole();
    // What a walk would find behind links is not shown.
    let options =
        json!({ "maxDepth": 9, "maxDirectories": 99, "maxEntries": 99, "followDirectorySymlinks": true });
    symlink("../secret", root.join("own/hidden")).expect("a link");
    let walked = peer.result("fs/walk", json!({ "path": at("own"), "options": options, "sandbox": sandbox }));
    assert_eq!(walked["entries"], json!([{ "path": at("own/file"), "kind": "file" }]), "{walked}");
    assert_eq!(walked["truncated"], true, "{walked}");
    let listed = peer.result("fs/readDirectory", json!({ "path": at("own"), "sandbox": sandbox }));
    let hidden = json!({ "fileName": "hidden", "isDirectory": false, "isFile": false });
    assert!(listed["entries"].as_array().is_some_and(|all| all.contains(&hidden)), "{listed}");
    gateway.stop();
}

/// A client whose workspace the user has named by a link, and names it so, too.
fn at_a_link(gateway: &Gateway, link: PathBuf) -> Peer {
    let mut command = Command::new(env!("CARGO_BIN_EXE_provost"));
    command.args(["exec-server", "--gateway", &format!("unix:{}", gateway.socket.display()), "--root"]);
    let mut peer = Peer::with(StdioServer::start(command.arg(&link)), link);
    peer.result("initialize", json!({ "clientName": "tester" }));
    peer.send(&json!({ "method": "initialized" }));
    peer
}

#[test]
fn a_workspace_that_a_link_leads_to_is_meant_by_both_names() {
    let gateway = Gateway::start();
    let (directory, real) = directory_with_workspace();
    tree(&real);
    let link = directory.path().canonicalize().expect("it is there").join("link");
    symlink(&real, &link).expect("a link");
    let mut peer = at_a_link(&gateway, link.clone());
    assert_eq!(peer.result("environment/info", json!({}))["cwd"], uri(&link));
    assert_eq!(peer.line("by its name", "pwd; pwd -P").stdout.lines().count(), 2);

    let special = |kind: &str, access: &str| json!({ "path": { "type": "special", "value": { "kind": kind } }, "access": access });
    let whole = json!({ "cwd": uri(&link), "permissions": { "type": "managed", "network": "restricted",
        "file_system": { "type": "restricted", "entries": [special("root", "read"), special("project_roots", "write")] } } });
    let mut start = peer.command("as wished", &["sh", "-c", "pwd; echo made > made"]);
    start["sandbox"] = whole;
    peer.result("process/start", start);
    assert_eq!(peer.ended("as wished").stdout, format!("{}\n", link.display()));
    assert_eq!(fs::read(real.join("made")).expect("it was made"), b"made\n");

    // What is done without there is so by both names.
    let sandbox = wish(&link);
    for root in [&link, &real] {
        let write = |name: &str| json!({ "path": uri(&root.join(name)), "dataBase64": encoded(b"new"), "sandbox": sandbox });
        peer.result("fs/writeFile", write("own/file"));
        peer.error("fs/writeFile", write("kept/file"));
        peer.error("fs/readFile", json!({ "path": uri(&root.join("secret/sub/file")), "sandbox": sandbox }));
    }
    let mut start = peer.command("with less", &["true"]);
    start["sandbox"] = sandbox;
    let refused = peer.error("process/start", start);
    assert!(refused["message"].as_str().expect("a text").contains("takes rights from"), "{refused}");
    gateway.stop();
}
