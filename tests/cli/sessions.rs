//! Sessions with a name: several `provost run` meet in one, and nobody else does. A gateway that ends when it is idle.

use crate::support::lacks;
use std::{fs, process::Output, process::Stdio};

use crate::cli::{
    fixture::{Place, Running, code, eventually, shown, stderr, stdout},
    serving::Gateway,
};

/// Runs a script through a gateway.
fn run(place: &Place, gateway: &Gateway, options: &[&str], script: &str) -> Output {
    let mut run = place.provost();
    run.args(["run", "--gateway", &gateway.address()]).args(options).args(["--", "sh", "-c", script]);
    run.output().expect("provost starts")
}

#[test]
fn a_server_in_one_command_and_its_client_in_another_meet_in_a_session_with_a_name() {
    if lacks(&["python3"]) {
        return;
    }
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let script = "import http.server, socketserver\nserver = socketserver.TCPServer(('127.0.0.1', 8123), \
                  http.server.SimpleHTTPRequestHandler)\nprint('ready', flush=True)\nserver.serve_forever()";
    let mut serve = place.provost();
    serve.args([
        "run",
        "--gateway",
        &gateway.address(),
        "--session",
        "dev",
        "--",
        "python3",
        "-u",
        "-c",
        script,
    ]);
    let mut server = Running::start(serve.stdout(Stdio::piped()).stderr(Stdio::null()));
    assert_eq!(server.line(), "ready");
    fs::write(place.work().join("page"), "hello\n").expect("a file can be written");
    let client = "python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:8123/page').read().decode(), end='')\"";
    let alone = run(&place, &gateway, &[], client);
    assert_ne!(code(&alone), 0, "another session has another loopback: {}", shown(&alone));
    let met = run(&place, &gateway, &["--session", "dev"], client);
    assert_eq!(stdout(&met), "hello\n", "{}", shown(&met));
    let other = run(&place, &gateway, &["--session", "other"], client);
    assert_ne!(code(&other), 0, "{}", shown(&other));
    gateway.stop();
}

#[test]
fn what_a_session_with_a_name_has_in_its_home_stays_between_commands() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let kept = run(&place, &gateway, &["--session", "dev"], "echo kept > /tmp/file; echo kept > ~/file");
    assert_eq!(code(&kept), 0, "{}", shown(&kept));
    let again = run(&place, &gateway, &["--session", "dev"], "cat /tmp/file ~/file");
    assert_eq!(stdout(&again), "kept\nkept\n", "{}", shown(&again));
    let mut exec = place.provost();
    exec.args(["exec", "--gateway", &gateway.address(), "-w", ".", "dev", "--", "cat", "/tmp/file"]);
    let by_name = exec.output().expect("provost starts");
    assert_eq!(stdout(&by_name), "kept\n", "{}", shown(&by_name));
    let plain = run(&place, &gateway, &[], "cat /tmp/file ~/file");
    assert_eq!(stdout(&plain), "", "{}", shown(&plain));
    gateway.stop();
}

#[test]
fn a_session_with_a_name_is_not_used_for_another_workspace_or_profile() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    assert_eq!(code(&run(&place, &gateway, &["--session", "dev"], "true")), 0);
    let other = place.path().join("other");
    fs::create_dir(&other).expect("a directory can be made");
    let other = other.to_str().expect("text");
    for (field, options) in [
        ("roots", vec!["--root", other]),
        ("read_only_roots", vec!["--ro", other]),
        ("profile", vec!["--profile", "offline"]),
        ("network", vec!["--network", "proxy"]),
    ] {
        let refused = run(&place, &gateway, &[&["--session", "dev"], &options[..]].concat(), "echo ran");
        assert_eq!((code(&refused), stdout(&refused).as_str()), (125, ""), "{}", shown(&refused));
        assert!(stderr(&refused).contains(field), "{field}: {}", shown(&refused));
    }
    let same = run(&place, &gateway, &["--session", "dev", "--network", "none"], "echo ran");
    assert_eq!(stdout(&same), "ran\n", "the profile's default: {}", shown(&same));
    let by_name = ["--session", "by-name", "--network", "proxy"];
    assert_eq!(code(&run(&place, &gateway, &by_name, "true")), 0);
    let without = run(&place, &gateway, &["--session", "by-name"], "echo ran");
    assert_eq!((code(&without), stdout(&without).as_str()), (125, ""), "{}", shown(&without));
    assert!(stderr(&without).contains("network"), "{}", shown(&without));
    let odd = run(&place, &gateway, &["--session", "a/b"], "true");
    assert_eq!(code(&odd), 125, "{}", shown(&odd));
    gateway.stop();
}

#[test]
fn a_session_with_a_name_is_refused_where_the_named_gateway_does_not_answer() {
    let place = Place::new();
    let nowhere = place.path().join("no.sock");
    let mut run = place.provost();
    run.args(["run", "--session", "dev", "--", "true"]).env("XDG_RUNTIME_DIR", place.path());
    run.env("PROVOST_GATEWAY", format!("unix:{}", nowhere.display()));
    let done = run.output().expect("provost starts");
    assert_eq!(code(&done), 125, "{}", shown(&done));
}

#[test]
fn an_idle_gateway_ends_and_one_with_a_session_does_not() {
    let place = Place::new();
    let socket = place.path().join("idle.sock");
    let mut serve = place.provost();
    serve
        .arg("serve")
        .arg("--state")
        .arg(place.path().join("idle-state"))
        .arg("--policies")
        .arg(place.policies());
    serve
        .arg("--listen")
        .arg(format!("unix:{}", socket.display()))
        .args(["--idle-exit", "2s"])
        .stderr(Stdio::null());
    let mut gateway = Running::start(&mut serve);
    eventually("the gateway listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
    // Longer than the gateway may be idle: it is not.
    let mut run = place.provost();
    run.args([
        "run",
        "--gateway",
        &format!("unix:{}", socket.display()),
        "--",
        "sh",
        "-c",
        "sleep 4; echo done",
    ]);
    let done = run.output().expect("provost starts");
    assert_eq!(stdout(&done), "done\n", "{}", shown(&done));
    assert_eq!(gateway.end().code(), Some(0), "it ends by itself");
    assert!(!socket.exists());
}

#[test]
fn a_session_whose_directory_was_replaced_is_refused_until_it_is_closed() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let in_session = |script: &str| run(&place, &gateway, &["--session", "dev"], script);
    let close = |session: &str| {
        let mut close = place.provost();
        close.args(["close", "--gateway", &gateway.address(), session]).output().expect("provost starts")
    };
    fs::write(place.work().join("file"), "first\n").expect("a file can be written");
    assert_eq!(stdout(&in_session("echo kept > /tmp/kept; cat file")), "first\n");
    fs::remove_dir_all(place.work()).expect("it is ours");
    fs::create_dir(place.work()).expect("a directory can be made");
    fs::write(place.work().join("file"), "second\n").expect("a file can be written");
    let refused = in_session("cat file");
    assert_eq!((code(&refused), stdout(&refused).as_str()), (125, ""), "{}", shown(&refused));
    let said = stderr(&refused);
    assert!(said.contains("another directory") && said.contains("provost close"), "{said}");
    let top =
        place.provost().args(["top", "--gateway", &gateway.address()]).output().expect("provost starts");
    assert!(stdout(&top).contains("  dev  "), "{}", shown(&top));
    assert_eq!(code(&close("dev")), 0);
    let again = in_session("cat file; ls /tmp");
    assert_eq!(stdout(&again), "second\n", "{}", shown(&again));
    for unknown in ["other", "", "sess_01JD3ZK6T0000000000000000"] {
        let refused = close(unknown);
        assert_eq!(code(&refused), 125, "{unknown:?}: {}", shown(&refused));
    }
    gateway.stop();
}

/// By its id, with what runs in it.
#[test]
fn a_session_is_closed_with_all_that_runs_in_it() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let mut serve = place.provost();
    let script = "trap '' TERM; echo ready; touch running; while :; do sleep 0.1; done";
    serve.args(["run", "--gateway", &gateway.address(), "--session", "dev", "--", "sh", "-c", script]);
    let mut server = Running::start(serve.stdout(Stdio::piped()).stderr(Stdio::null()));
    assert_eq!(server.line(), "ready");
    let top =
        place.provost().args(["top", "--gateway", &gateway.address()]).output().expect("provost starts");
    let (text, is_id) = (stdout(&top), |word: &&str| word.starts_with("sess_"));
    let id = text.split_whitespace().find(is_id).expect("the session has an id");
    let mut close = place.provost();
    let closed = close.args(["close", "--gateway", &gateway.address(), id]).output().expect("provost starts");
    assert_eq!(code(&closed), 0, "{}", shown(&closed));
    assert_ne!(server.end().code(), Some(0));
    let top =
        place.provost().args(["top", "--gateway", &gateway.address()]).output().expect("provost starts");
    assert!(stdout(&top).starts_with("0 sessions"), "{}", shown(&top));
    gateway.stop();
}
