//! The Codex CLI, unmodified, with the URL of `provost exec-server --listen` as its only environment, by what `docs/agents.md` shows.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use crate::{
    exec_server::nightly::codex::{Environment, PROJECT, Place, block_in, codex, line, model},
    support::eventually,
};

/// Where the page has the server listen.
const AUTHORITY: &str = "127.0.0.1:7322";

/// Ended with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the page shows, in a shell with the test's home, project and program.
fn shell(place: &Place, line: &str) -> Command {
    let built = Path::new(env!("CARGO_BIN_EXE_provost")).parent().expect("it lies in a directory");
    let mut shell = Command::new("bash");
    shell.args(["-ec", &line.replace(PROJECT, &place.at("workspace").display().to_string())]);
    shell.env("HOME", place.at("home")).env("PATH", format!("{}:/usr/bin:/bin", built.display()));
    shell.env("PROVOST_GATEWAY", format!("unix:{}", place.gateway.socket.display()));
    shell.stdin(Stdio::null());
    shell
}

/// Starts the server and writes the environment, both as the page shows.
fn prepared(place: &Place) -> Server {
    let serve = block_in("sh", "provost exec-server --listen");
    let mut server = shell(place, &format!("exec {serve}"));
    let mut server = Server(server.stdout(Stdio::piped()).spawn().expect("bash starts"));
    let mut url = String::new();
    let stdout = server.0.stdout.take().expect("its stdout is piped");
    BufReader::new(stdout).read_line(&mut url).expect("it says its URL");
    assert_eq!(url, format!("ws://{AUTHORITY}/\n"));
    let written = shell(place, &block_in("sh", "environments.toml <<END")).status();
    assert!(written.expect("bash starts").success());
    let mode = fs::metadata(place.at("home/.codex/environments.toml")).expect("it is there").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600, "it has the token");
    server
}

#[test]
#[ignore = "long: installs from npm; .ci/long codex runs it"]
fn codex_by_a_url_runs_in_the_sandbox_and_without_the_server_nowhere() {
    let place = Place::new();
    let marker = place.at("marker");
    let attack = line(&format!(
        "echo gone > '{}'; grep -E '^(Seccomp|NoNewPrivs):' /proc/self/status; echo in $(pwd)",
        marker.display()
    ));
    let Some((printed, _)) = place.run(Environment::Host, std::slice::from_ref(&attack)) else { return };
    assert!(fs::read(&marker).is_ok_and(|content| content == b"gone\n"), "the attack works: {printed}");
    fs::write(&marker, "intact").expect("the marker is ours");

    let server = prepared(&place);
    let patch = "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: made.txt\n+one\n*** End Patch\nEOF\n";
    let calls = [attack.clone(), line("touch touched; echo after"), line(patch), line("cat made.txt")];
    let Some((printed, status)) = place.run(Environment::Prepared, &calls) else { return };
    let told = place.told();
    assert!(status.success(), "{status}: {printed}: {told}");
    for seen in ["Seccomp:\\t2", "NoNewPrivs:\\t1", "no-touch", "touching is for people"] {
        assert!(told.contains(seen), "{seen:?} is not in {told}");
    }
    assert!(told.contains(&format!("in {}", place.at("workspace").display())), "{told}");
    assert_eq!(fs::read(place.at("workspace/made.txt")).expect("it was made"), b"one\n");
    assert!(!place.at("workspace/touched").exists(), "{told}");
    assert_eq!(fs::read(&marker).expect("the marker is there"), b"intact");

    // With another token, and then without a server: nowhere.
    let file = place.at("home/.codex/environments.toml");
    let written = fs::read_to_string(&file).expect("it is text");
    let wrong = written.replace(&format!("{AUTHORITY}/"), &format!("{AUTHORITY}/x"));
    assert_ne!(wrong, written);
    fs::write(&file, wrong).expect("it is ours");
    let made = line(&format!("echo made > '{}'", place.at("workspace/made").display()));
    place.run(Environment::Prepared, std::slice::from_ref(&made));
    assert!(!place.at("workspace/made").exists(), "{}", place.told());
    fs::write(&file, written).expect("it is ours");
    drop(server);
    place.run(Environment::Prepared, &[made, attack]);
    assert!(!place.at("workspace/made").exists(), "{}", place.told());
    assert_eq!(fs::read(&marker).expect("the marker is there"), b"intact");
    place.gateway.stop();
}

/// Between Codex and the server, so that a connection can break. It says the server's own name for Codex.
struct Between {
    authority: String,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    opened: Arc<AtomicUsize>,
}

impl Between {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let authority = listener.local_addr().expect("it listens").to_string();
        let (connections, opened) = (Arc::new(Mutex::default()), Arc::new(AtomicUsize::new(0)));
        let between = Self { authority: authority.clone(), connections, opened };
        let (connections, opened) = (between.connections.clone(), between.opened.clone());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(AUTHORITY) else { continue };
                let copy = |stream: &TcpStream| stream.try_clone().expect("a stream can be shared");
                connections.lock().expect("no code panics here").extend([copy(&client), copy(&server)]);
                opened.fetch_add(1, Ordering::Relaxed);
                let (mut from, mut to, authority) = (copy(&client), copy(&server), authority.clone());
                thread::spawn(move || {
                    let _ = to.write_all(head(&mut from).replace(&authority, AUTHORITY).as_bytes());
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
                let (mut from, mut to) = (server, client);
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        });
        between
    }

    /// All connections break.
    fn break_off(&self) {
        for stream in self.connections.lock().expect("no code panics here").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// The head of a request.
fn head(from: &mut TcpStream) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && from.read(&mut byte).is_ok_and(|read| read == 1) {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

#[test]
#[ignore = "long: installs from npm; .ci/long codex runs it"]
fn codex_by_a_url_goes_on_with_its_command_after_its_connection_broke() {
    let place = Place::new();
    let _server = prepared(&place);
    let between = Between::start();
    let file = place.at("home/.codex/environments.toml");
    let written = fs::read_to_string(&file).expect("it is text");
    fs::write(&file, written.replace(AUTHORITY, &between.authority)).expect("it is ours");
    let Some(agent) = codex() else { return };
    let wait = "until [ -e go ]; do sleep 0.05; done";
    let long = format!("echo first; echo > begun; {wait}; seq 1000 | sha256sum; echo > ended; echo last");
    let model = model(&place.at("log"), &[line(&long), line("echo then $(cat begun | wc -l)")]);
    let mut agent = place.agent(agent, &model, Environment::Prepared);
    let agent = agent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = agent.spawn().expect("it starts");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let begun = place.at("workspace/begun");
    runtime.block_on(eventually("the command runs", || begun.exists().then_some(())));
    let opened = between.opened.load(Ordering::Relaxed);
    between.break_off();
    fs::write(place.at("workspace/go"), "").expect("the workspace is ours");
    runtime.block_on(eventually("Codex ends", || child.try_wait().expect("it is our child")));
    let told = place.told();
    assert!(between.opened.load(Ordering::Relaxed) > opened, "it has come back: {told}");
    // What seq and sha256sum give outside.
    let sum = "67d4ff71d43921d5739f387da09746f405e425b07d727e4c69d029461d1f051f";
    for seen in ["first\\n", sum, "last", "then 1"] {
        assert!(told.contains(seen), "{seen:?} is not in {told}");
    }
    assert_eq!(told.matches(sum).count(), 1, "once: {told}");
    place.gateway.stop();
}
