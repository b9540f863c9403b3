//! Rules about connections on the command line: what loads, what is explained, and what test files hold.

use std::{
    fs,
    process::{Command, Output},
};

use tempfile::TempDir;

use crate::fixture::RULES;

const HEAD: &str = "default_profile = \"a\"\n[profile.a]\nnetwork = { default = \"proxy\", choices = [\"proxy\"], \
    sockets = [{ host = \"/run/engine.sock\" }] }\n";

/// A rule by which TLS is opened.
const OPENED: &str = "[secrets.TOKEN]\nfile = '/etc/token'\n[[connect]]\nid = 'opened'\ndecision = 'allow'\nhost = ['opened.test']\n\
    port = [443]\npath = ['/v1/**']\ntls = 'terminate'\ncredential = { header = 'x-token', secret = 'TOKEN' }\n\
    matches = ['GET https://opened.test/v1/x']\nrejects = ['GET https://opened.test/v2', 'GET https://opened.test:444/v1/x']\n";

fn policy(rules: &str) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("p.toml"), format!("{HEAD}{rules}")).expect("a file");
    directory
}

fn provost(directory: &TempDir, arguments: &[&str]) -> (Option<i32>, String) {
    let output: Output = Command::new(env!("CARGO_BIN_EXE_provost"))
        .args(arguments)
        .current_dir(directory.path())
        .output()
        .expect("provost can be started");
    (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn a_connection_is_explained_with_the_rule_that_decides() {
    let sockets = "[[connect]]\nid = 'engine'\ndecision = 'allow'\nunix = ['/run/engine.sock']\n\
        matches = ['unix:/run/engine.sock']\nrejects = ['unix:/run/other.sock', 'engine.test:443']\n\
        [[connect]]\nid = 'by-git'\ndecision = 'allow'\nhost = ['by.test']\nport = [443]\nprogram = ['/usr/bin/git']\n";
    let directory = policy(&format!("{RULES}{OPENED}{sockets}"));
    for (arguments, status, part) in [
        (
            &["registry.test:18080"][..],
            0,
            "allow: registry.test:18080: rule \"registry\" decides (registry (./p.toml:",
        ),
        (&["REGISTRY.test.:18443"], 0, "TLS that names the same host, or HTTP"),
        (&["plain.test:18080"], 0, "any protocol"),
        (&["reading.test:18080"], 0, "HTTP without TLS: rules are about its requests"),
        (
            &["GET http://reading.test:18080/v1/x"],
            0,
            "allow: reading.test:18080 GET /v1/x: rule \"reading\" decides",
        ),
        (&["POST http://reading.test:18080/v1/x"], 1, "no rule allows it (default)"),
        (&["GET http://reading.test:18080/v1/private/x"], 1, "it is private (no-private"),
        (&["GET http://reading.test:18080/v1/../x"], 1, "can be read in two ways (network.name)"),
        (&["careful.test:18080"], 1, "ask: careful.test:18080: it costs money (careful (./p.toml:"),
        (
            &["secret.files.test:18080"],
            1,
            "deny: secret.files.test:18080: it is a secret (no-secret (./p.toml:",
        ),
        (&["other.test:443"], 1, "no rule allows it (default)"),
        // TLS that is not opened hides the request.
        (&["GET https://reading.test:18443/v1/x"], 1, "TLS hides them (network.agreement)"),
        (&["GET https://registry.test:18443/v1/x"], 0, "TLS that names the same host, or HTTP"),
        (&["opened.test:443"], 0, "HTTP, also in TLS, which is opened: its requests are judged"),
        (&["GET https://opened.test/v1/x"], 0, "in TLS the secret TOKEN as the header x-token (opened)"),
        (&["GET https://opened.test/v2"], 1, "no rule allows it (default)"),
        (&["2130706433:80"], 1, "deny: 127.0.0.1:80"),
        (&["registry.test"], 1, "network.name"),
        (&["near.test:18080", "--address", "10.0.0.1"], 1, "10.0.0.1 is a private address"),
        (&["near.test:18080", "--address", "::ffff:127.0.0.1"], 1, "loopback"),
        (&["near.test:18080", "--address", "93.184.216.34"], 0, "at 93.184.216.34"),
        (
            &["unix:/run/engine.sock"],
            0,
            "allow: unix:/run/engine.sock: rule \"engine\" decides (engine (./p.toml:",
        ),
        (
            &["unix:/run/other.sock"],
            1,
            "the profile lets no such socket in (`network.sockets`) (network.socket)",
        ),
        (&["unix:/run/../run/engine.sock"], 1, "network.socket"),
        (&["unix:/run/user/0/bus"], 1, "it is D-Bus, which no rule lets in (network.socket)"),
        (&["by.test:443"], 1, "no rule allows it (default)"),
        (&["by.test:443", "--program", "/usr/bin/git"], 0, "rule \"by-git\" decides"),
        (&["by.test:443", "--program", "/usr/bin/curl"], 1, "no rule allows it (default)"),
    ] {
        let explain = [&["policy", "explain", "--policies", ".", "--connect"], arguments].concat();
        let (code, text) = provost(&directory, &explain);
        assert!(code == Some(status) && text.contains(part), "{arguments:?}: {code:?} {text}");
    }
    let (_, json) = provost(
        &directory,
        &["policy", "explain", "--policies", ".", "-o", "json", "--connect", "other.test:1"],
    );
    let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!((&json[0]["decision"], &json[0]["rule"]), (&"deny".into(), &"default".into()));
}

#[test]
fn a_rule_that_means_nothing_or_not_what_it_says_does_not_load() {
    for (rule, part) in [
        ("id='a'\ndecision='allow'\nunix=['/run/user/1/bus']", "unix: \"/run/user/1/bus\": it is D-Bus"),
        ("id='a'\ndecision='allow'\nunix=['run/x']", "unix: \"run/x\": it is no absolute path"),
        (
            "id='a'\ndecision='allow'\nunix=['/run/x']\nport=[1]",
            "unix: a rule about sockets names nothing else",
        ),
        ("id='a'\ndecision='deny'\nprogram=['git']", "program: \"git\" is no absolute path"),
        (
            "id='a'\ndecision='ask'\nport=[1]",
            "host: a rule that allows or asks names hosts, addresses or sockets",
        ),
        ("id='a'\ndecision='ask'\nhost=['a.test']", "port: a rule that allows or asks names its ports"),
        (
            "id='a'\ndecision='allow'\nport=[1]",
            "host: a rule that allows or asks names hosts, addresses or sockets",
        ),
        ("id='a'\ndecision='allow'\nhost=['a.test']", "port: a rule that allows or asks names its ports"),
        ("id='a'\ndecision='allow'\nhost=['a.test']\nport=[0]", "port: "),
        ("id='a'\ndecision='allow'\nhost=['10.0.0.1']\nport=[1]", "an address is no name"),
        ("id='a'\ndecision='allow'\nhost=['a.*.test']\nport=[1]", "\"*\" can only be"),
        ("id='a'\ndecision='allow'\nhost=['bücher.test']\nport=[1]", "xn--"),
        ("id='a'\ndecision='allow'\naddress=['10.0.0.1/8']\nport=[1]", "bits behind its prefix"),
        ("id='a'\ndecision='allow'\naddress=['::ffff:10.0.0.1']\nport=[1]", "carries an IPv4 address"),
        ("id='a'\ndecision='deny'\nhost=['a.test']\ntunnel='any'", "tunnel: a rule that denies has none"),
        (
            "id='a'\ndecision='allow'\nhost=['a.test']\nport=[1]\nmatches=['b.test:1']",
            "matches: the rule does not match",
        ),
        (
            "id='a'\ndecision='allow'\nhost=['a.test']\nport=[1]\nrejects=['A.test.:1']",
            "rejects: the rule matches",
        ),
        (
            "id='a'\ndecision='allow'\nhost=['a.test']\nport=[1]\nwhen={profile=['b']}",
            "there is no [profile.b]",
        ),
        ("id='a'\ndecision='allow'\nhost=['a.test']\nport=[1]\nquery=['/x']", "unknown field"),
        ("id='a'\ndecision='allow'\nhost=['a.test']\nport=[1]\npath=['/x*']", "is a whole part of a path"),
        ("id='a'\ndecision='allow'\nhost=['a.test']\nport=[1]\npath=['/../x']", "can be read in two ways"),
        ("id='a'\ndecision='allow'\nhost=['a.test']\nport=[1]\nmethod=['get']", "is no method"),
        (
            "id='a'\ndecision='allow'\naddress=['10.0.0.1']\nport=[1]\nmethod=['GET']",
            "a rule about requests names hosts",
        ),
        (
            "id='a'\ndecision='ask'\nhost=['a.test']\nport=[1]\nmethod=['GET']",
            "a rule about requests allows or denies",
        ),
        (
            "id='a'\ndecision='allow'\nhost=['a.test']\nport=[1]\nmethod=['GET']\ntunnel='any'",
            "a rule about requests lets nothing else be spoken",
        ),
        ("id='a'\ndecision='deny'\nhost=['a.test']\ntls='terminate'", "tls: a rule that denies has none"),
        (
            "id='a'\ndecision='allow'\nhost=['*']\nport=[443]\ntls='terminate'",
            "tls: a rule by which TLS is opened names hosts",
        ),
        (
            "id='a'\ndecision='allow'\naddress=['10.0.0.1']\nport=[443]\ntls='terminate'",
            "tls: a rule by which TLS is opened names hosts",
        ),
        (
            "id='a'\ndecision='allow'\nhost=['a.test']\nport=[443]\ntls='terminate'\ntunnel='any'",
            "tunnel: a rule by which TLS is opened lets nothing be spoken but HTTP",
        ),
        ("id='a'\ndecision='allow'\nhost=['a.test']\nport=[443]\ntls='open'", "unknown variant"),
        (
            "id='a'\ndecision='allow'\nhost=['a.test']\nport=[443]\ncredential={header='x',secret='S'}\n[secrets.S]\nfile='/s'",
            "credential: a secret is put into opened TLS alone",
        ),
        (
            "id='a'\ndecision='allow'\nhost=['a.test']\nport=[443]\ntls='terminate'\ncredential={header='x',secret='S'}",
            "credential.secret: there is no [secrets.S]",
        ),
        (
            "id='a'\ndecision='allow'\nhost=['a.test']\nport=[443]\ntls='terminate'\ncredential={header='Host',secret='S'}\n[secrets.S]\nfile='/s'",
            "credential: header: \"Host\" is no name of a header",
        ),
        (
            "id='a'\ndecision='allow'\nhost=['a.test']\nport=[443]\ntls='terminate'\n\
             credential={header='x',secret='S',format='Bearer'}\n[secrets.S]\nfile='/s'",
            "credential: format: \"Bearer\" must be text",
        ),
        ("id='a'\ndecision='deny'\n[[connect]]\nid='a'\ndecision='deny'", "is taken by"),
        ("id='a'\ndecision='deny'\n[[rule]]\nid='a'\ndecision='deny'\nargv=['x']", "is taken by"),
    ] {
        let directory = policy(&format!("[[connect]]\n{rule}\n"));
        let (code, text) = provost(&directory, &["policy", "check", "."]);
        assert!(
            code == Some(1) && text.contains(part) && text.contains("p.toml:"),
            "{rule}: {code:?} {text}"
        );
    }
}

#[test]
fn a_test_file_holds_what_connections_come_to() {
    let directory = policy(&format!("{RULES}{OPENED}"));
    let cases = "[[case]]\nconnect = 'registry.test:18080'\nexpect = 'allow'\nrule = 'registry'\n\
        [[case]]\nconnect = 'registry.test:18080'\naddress = '10.0.0.1'\nexpect = 'deny'\nrule = 'default'\n\
        [[case]]\nconnect = 'near.test:18080'\naddress = '169.254.169.254'\nexpect = 'deny'\nrule = 'network.address'\n\
        [[case]]\nconnect = 'careful.test:18080'\naddress = '127.83.0.1'\nexpect = 'ask'\nrule = 'careful'\n\
        [[case]]\nconnect = 'a b:1'\nexpect = 'deny'\nrule = 'network.name'\n\
        [[case]]\nconnect = 'GET https://opened.test/v1/x'\nexpect = 'allow'\nrule = 'opened'\n\
        [[case]]\nconnect = 'GET https://opened.test/v2'\nexpect = 'deny'\nrule = 'default'\n\
        [[case]]\nconnect = 'GET https://reading.test:18443/v1/x'\nexpect = 'deny'\nrule = 'network.agreement'\n\
        [[case]]\nconnect = 'other.test:1'\nexpect = 'allow'\n";
    fs::write(directory.path().join("cases.txt"), cases).expect("a file");
    let (code, text) = provost(&directory, &["policy", "test", "--policies", ".", "cases.txt"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("cases.txt:36: \"other.test:1\": expected allow, got deny (rule default)"),
        "{text}"
    );
    assert!(text.contains("8 of 9 cases as expected"), "{text}");
}

#[test]
fn a_rule_about_requests_that_tls_hides_is_warned_of() {
    let rule = |tls: &str| {
        format!("[[connect]]\nid='a'\ndecision='allow'\nhost=['a.test']\nport=[443]\nmethod=['GET']\n{tls}")
    };
    for (tls, is_warned) in [("", true), ("tls='terminate'", false)] {
        let (code, text) = provost(&policy(&rule(tls)), &["policy", "check", "."]);
        assert_eq!((code, text.contains("[hidden-requests]")), (Some(0), is_warned), "{tls}: {text}");
    }
}
