//! Secrets of one terminal and the other terminals of the same agent (S9).

use std::fs;

use serde_json::{Value, json};

use crate::{
    acp::shim_peer::ShimPeer,
    support::{Attack, Gateway},
};

const VALUE: &str = "a-value-for-one-command-alone";

#[test]
fn an_agents_other_terminals_do_not_find_the_secret_of_one() {
    let gateway = Gateway::start();
    let secret = gateway.directory().join("secret");
    fs::write(&secret, VALUE).expect("a secret can be written");
    set_mode(&secret, 0o600);
    let policy = format!(
        "[secrets.RULED]\nfile = {secret:?}\n[[rule]]\nid = 'ruled'\ndecision = 'allow'\n\
         argv = [['printenv', 'sleep'], '**']\neffects.secrets = ['RULED']\n"
    );
    let directory = gateway.directory().join("policies");
    fs::write(directory.join("secrets.new"), policy).expect("a policy can be written");
    fs::rename(directory.join("secrets.new"), directory.join("secrets.toml"))
        .expect("it can be put in place");

    let mut peer =
        ShimPeer::in_session(&["--gateway", &format!("unix:{}", gateway.socket.display())], json!({}));
    let ended = |peer: &mut ShimPeer, terminal: &str| -> Value {
        peer.ask("terminal/wait_for_exit", json!({"sessionId":"s","terminalId":terminal}))["result"].clone()
    };
    // Until the gateway has read the new policy.
    loop {
        let asked = peer.create("printenv RULED");
        if ended(&mut peer, &asked)["exitCode"] == 0 {
            break;
        }
    }
    let holder = peer.create(
        "printenv RULED > /tmp/left; read value < /tmp/left; exec 7</tmp/left; echo > ready; exec sleep 1000",
    );
    let ready = peer.create("until [ -e ready ]; do sleep 0.01; done");
    ended(&mut peer, &ready);
    let spy = Attack::compiled("spy").placed_in(&peer.workspace);
    let backwards: String = VALUE.chars().rev().collect();
    let spy = peer.create(&format!("{} {backwards}", spy.display()));
    ended(&mut peer, &spy);
    let answer = peer.ask("terminal/output", json!({"sessionId":"s","terminalId":spy}));
    let seen = answer["result"]["output"].as_str().unwrap_or_default();
    assert!(seen.contains("looked ") && !seen.contains("found "), "{answer}");
    peer.ask("terminal/release", json!({"sessionId":"s","terminalId":holder}));
    peer.editor_disconnects();
    assert_eq!(peer.end().0.code(), Some(0));
    gateway.stop();
}

fn set_mode(path: &std::path::Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the file is ours");
}
