//! What a client may not do, and how it is told: denied commands, denied execs, approvals, roots.

use crate::support::lacks;
use std::{fs, path::Path, process::Command, sync::Arc};

use serde_json::{Value, json};

use crate::{
    mcp::peer::{Peer, text, uri},
    support::{Gateway, Options, add_rule, require_gate},
};

const REASON: &str = "publishing is for people";
/// Its only target does what the rule denies, ignores that this fails, and goes on.
const MAKEFILE: &str = "all:\n\t-touch published\n\t@echo done\n";

pub(crate) fn gateway(policy: fn(&mut toml::Table)) -> Arc<Gateway> {
    Gateway::start_with(Options { policy: Some(policy), ..Options::default() })
}

pub(crate) fn rules(policy: &mut toml::Table) {
    for rule in [
        format!(
            "id = 'no-publishing'\ndecision = 'deny'\nargv = ['touch', 'published', '**']\nreason = '{REASON}'"
        ),
        "id = 'careful'\ndecision = 'ask'\nargv = ['touch', 'asked', '**']\nreason = 'it is asked about'"
            .to_owned(),
    ] {
        add_rule(policy, &rule);
    }
}

pub(crate) fn gated(policy: &mut toml::Table) {
    rules(policy);
    require_gate(policy);
}

#[test]
fn a_denied_command_names_the_rule_its_reason_and_what_to_do_instead() {
    let open = Gateway::start();
    let mut peer = Peer::at(&open);
    peer.tool("run_command", json!({ "command": "touch published" }));
    assert!(peer.workspace.join("published").exists(), "the attack works");
    drop(peer);
    open.stop();

    let gateway = gateway(rules);
    let mut peer = Peer::at(&gateway);
    for arguments in [
        json!({ "command": "touch published" }),
        json!({ "command": "touch", "args": ["published"] }),
        json!({ "command": "true && touch published || true" }),
    ] {
        for tool in ["run_command", "start_command"] {
            let denied = peer.tool(tool, arguments.clone());
            assert_eq!(denied["isError"], true, "{denied}");
            let said = text(&denied);
            assert!(said.starts_with("Denied: ") && said.contains(REASON), "{said}");
            assert_eq!(said.matches("rule \"no-publishing\"").count(), 1, "{said}");
            assert!(said.contains("do it another way"), "{said}");
            assert_eq!(denied["_meta"]["provost"]["error"]["reason"], "POLICY_DENIED");
            assert_eq!(denied["_meta"]["provost"]["error"]["rule"], "no-publishing");
        }
    }
    assert!(!peer.workspace.join("published").exists());
    gateway.stop();
}

#[test]
fn an_exec_that_was_denied_within_a_line_is_told_although_the_line_ends_with_0() {
    if lacks(&["make"]) {
        return;
    }
    let gateway = gateway(gated);
    let mut peer = Peer::at(&gateway);
    fs::write(peer.workspace.join("Makefile"), MAKEFILE).expect("the workspace is ours");
    let made = peer.tool("run_command", json!({ "command": "make" }));
    let said = text(&made);
    assert!(said.starts_with("exit code 0\ndenied: "), "{said}");
    assert!(
        said.contains(REASON) && said.contains("no-publishing") && said.contains("Advice: do it another way"),
        "{said}"
    );
    assert!(said.ends_with("done\n"), "{said}");
    assert_eq!(made["_meta"]["provost"]["exec_denials"][0]["rule"], "no-publishing");
    assert!(!peer.workspace.join("published").exists());
    gateway.stop();
}

/// Runs what a rule asks about; the person at the client, if asked, answers so. The result, and whether one was asked.
fn asked(gateway: &Gateway, options: &[&str], capabilities: Value, answer: &Value) -> (Value, usize, bool) {
    let mut peer = Peer::with(gateway, options, capabilities);
    let call =
        peer.begin("tools/call", json!({ "name": "run_command", "arguments": { "command": "touch asked" } }));
    let mut questions = 0;
    let result = loop {
        let message = peer.receive();
        if message["method"] == "elicitation/create" {
            questions += 1;
            assert!(
                message["params"]["message"].as_str().is_some_and(|text| text.contains("touch asked")),
                "{message}"
            );
            peer.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": answer }));
        } else if message["id"] == call {
            break message["result"].clone();
        }
    };
    let made = peer.workspace.join("asked").exists();
    (result, questions, made)
}

#[test]
fn an_approval_is_asked_of_the_client_only_with_the_option_and_only_a_clear_yes_counts() {
    let gateway = gateway(rules);
    let can = || json!({ "elicitation": {} });
    let yes = json!({ "action": "accept", "content": { "approve": true } });
    // Without the option the client is not asked, and the result says how a person approves.
    let (result, questions, made) = asked(&gateway, &[], can(), &yes);
    assert_eq!((questions, made), (0, false), "{result}");
    assert!(text(&result).contains("a person must allow it first"), "{result}");
    assert_eq!(result["_meta"]["provost"]["error"]["reason"], "APPROVAL_REQUIRED");
    assert!(result["_meta"]["provost"]["error"]["approval_id"].is_string(), "{result}");
    // A client that cannot ask.
    let (result, questions, made) = asked(&gateway, &["--ask-client"], json!({}), &yes);
    assert_eq!((questions, made), (0, false), "{result}");
    for no in [
        json!({ "action": "decline" }),
        json!({ "action": "cancel" }),
        json!({ "action": "accept" }),
        json!({ "action": "accept", "content": { "approve": false } }),
        json!({ "action": "accept", "content": { "approve": "true" } }),
    ] {
        let (result, questions, made) = asked(&gateway, &["--ask-client"], can(), &no);
        assert_eq!((questions, made), (1, false), "{no}: {result}");
        assert_eq!(result["isError"], true, "{no}: {result}");
    }
    let (result, questions, made) = asked(&gateway, &["--ask-client"], can(), &yes);
    assert_eq!((questions, made), (1, true), "{result}");
    gateway.stop();
}

/// What `pwd` says in a session of a client that names these roots.
fn run_with_roots(peer: &mut Peer, roots: &[String], command: &str) -> Value {
    let call =
        peer.begin("tools/call", json!({ "name": "run_command", "arguments": { "command": command } }));
    loop {
        let message = peer.receive();
        if message["method"] == "roots/list" {
            let roots: Vec<_> = roots.iter().map(|uri| json!({ "uri": uri })).collect();
            peer.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": { "roots": roots } }));
        } else if message["id"] == call {
            return message["result"].clone();
        }
    }
}

#[test]
fn a_directory_that_the_user_names_by_a_link_has_that_name_and_stays_the_one_that_it_was() {
    let config = Some("on_stop = \"stop\"\n".to_owned());
    let gateway = Gateway::start_with(Options { config, ..Options::default() });
    let place = tempfile::tempdir().expect("a temporary directory");
    let link = place.path().canonicalize().expect("it is there").join("link");
    let start = |workspace: &Path| {
        fs::create_dir(workspace.join("sub")).expect("the workspace is ours");
        std::os::unix::fs::symlink(workspace, &link).expect("a link can be made");
        let mut command = Command::new(env!("CARGO_BIN_EXE_provost"));
        command
            .args(["mcp", "--gateway", &format!("unix:{}", gateway.socket.display()), "--root"])
            .arg(&link);
        command
    };
    let mut peer = Peer::start(start, json!({ "roots": {} }));
    // Narrowed, by either name: it has the user's.
    let sub = uri(&peer.workspace.join("sub"));
    let ran = run_with_roots(&mut peer, &[sub], "pwd; cd \"$PWD\" && touch made");
    assert!(text(&ran).ends_with(&format!("\n{}/sub\n", link.display())), "{ran}");
    assert!(peer.workspace.join("sub/made").exists());
    // A gateway that was told to stop has no session any more. The next one is to have the same directory.
    gateway.signal(nix::sys::signal::Signal::SIGTERM);
    gateway.wait();
    let other = place.path().join("other");
    fs::create_dir_all(other.join("sub")).expect("it is ours");
    fs::remove_file(&link).expect("it is ours");
    std::os::unix::fs::symlink(&other, &link).expect("a link can be made");
    gateway.start_again();
    let moved = run_with_roots(&mut peer, &[], "touch made");
    assert_eq!(moved["_meta"]["provost"]["error"]["reason"], "NO_ROOT", "{moved}");
    assert!(!other.join("sub/made").exists(), "{moved}");
    gateway.stop();
}

#[test]
fn a_clients_roots_narrow_what_the_command_line_allows_and_never_widen_it() {
    let gateway = Gateway::start();
    let roots = || json!({ "roots": {} });
    let elsewhere = tempfile::tempdir().expect("a temporary directory");

    // Within: the session is there, and the rest is out of reach.
    let mut peer = Peer::with(&gateway, &[], roots());
    fs::create_dir(peer.workspace.join("sub")).expect("the workspace is ours");
    let sub = uri(&peer.workspace.join("sub"));
    let write = format!("pwd; echo x > {}/out", peer.workspace.display());
    let narrowed = run_with_roots(&mut peer, &[sub, uri(elsewhere.path())], &write);
    assert!(text(&narrowed).contains("/workspace/sub\n"), "{narrowed}");
    assert!(!peer.workspace.join("out").exists(), "{narrowed}");

    // Without: nothing runs, and the result says why. A link counts as what it leads to.
    for link in [false, true] {
        let mut peer = Peer::with(&gateway, &[], roots());
        let mut named = elsewhere.path().to_owned();
        if link {
            named = peer.workspace.join("link");
            std::os::unix::fs::symlink(elsewhere.path(), &named).expect("the workspace is ours");
        }
        let refused = run_with_roots(&mut peer, &[uri(&named)], "touch made");
        assert_eq!(refused["_meta"]["provost"]["error"]["reason"], "NO_ROOT", "{refused}");
        assert!(text(&refused).contains("--root DIR"), "{refused}");
        assert!(!elsewhere.path().join("made").exists());
    }
    gateway.stop();
}
