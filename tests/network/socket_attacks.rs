//! Attacks on sockets of the host that rules let in: what is under their names changes, and what fails is written down.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::net::UnixListener,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use provost::proto::v1::Network;
use serde_json::Value;

use crate::{
    fixture::Fixture,
    sockets::{Sockets, let_in, rule},
    support::{self, Session, code, eventually, is_root, skip},
};

const SCRIPT: &str = include_str!("socket_attacks.py");

fn command(fixture: &Fixture, session: &Session, arguments: &[&str]) -> support::Command {
    fs::write(session.workspace.join("attack.py"), SCRIPT).expect("a file");
    let command = fixture.command(session, Network::Proxy, "python3").args(["attack.py"]);
    command.args(arguments.iter().copied())
}

/// What clients on the host get at a path: so that an attack is seen to work without us.
fn on_the_host(path: &Path, count: usize) -> BTreeMap<String, usize> {
    let output = Command::new("python3")
        .args(["-c", SCRIPT, "ask"])
        .arg(path)
        .arg(count.to_string())
        .output()
        .expect("python3 can be started");
    counted(&String::from_utf8_lossy(&output.stdout))
}

fn counted(text: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    counts
}

/// Exchanges two names again and again, until it is dropped.
struct Swapping(Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

impl Swapping {
    fn start(one: &Path, other: &Path) -> Self {
        use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
        let (is_over, one, other) = (Arc::new(AtomicBool::new(false)), one.to_owned(), other.to_owned());
        let over = is_over.clone();
        let swap = move || {
            while !over.load(SeqCst) {
                renameat2(AT_FDCWD, &one, AT_FDCWD, &other, RenameFlags::RENAME_EXCHANGE)
                    .expect("names can be exchanged");
            }
        };
        Self(is_over, Some(std::thread::spawn(swap)))
    }
}

impl Drop for Swapping {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
        let _ = self.1.take().map(std::thread::JoinHandle::join);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_that_is_exchanged_while_it_is_connected_to_is_never_one_that_is_refused() {
    let fixture = Fixture::start();
    // Two are agents', by the names that they were bound to.
    let sockets = Sockets::start(&["one.sock", "agent.7", "two.sock", "agent.8"]);
    let (one, agent) = (sockets.at("one.sock"), sockets.at("agent.7"));
    let (two, link) = (sockets.at("two.sock"), sockets.at("link.sock"));
    std::os::unix::fs::symlink(sockets.at("agent.8"), &link).expect("a link");
    let_in(
        &fixture,
        &[("one", &one), ("two", &two)],
        &(rule("one", "allow", &one) + &rule("two", "allow", &two)),
    );
    let session = Session::open(&fixture.gateway).await;
    for (name, path, other) in [("one", &one, &agent), ("two", &two, &link)] {
        let swapping = Swapping::start(path, other);
        assert_eq!(on_the_host(path, 200).get("SERVED"), Some(&200), "all answer on the host: {name}");
        let done = command(&fixture, &session, &["ask", &format!("/run/host/{name}"), "200"]).finish().await;
        drop(swapping);
        let got = counted(&done.text());
        assert_eq!(
            got.keys().collect::<Vec<_>>(),
            ["SERVED", "closed"],
            "both were there at some time: {got:?}"
        );
        assert_eq!(got.values().sum::<usize>(), 200);
        let mut denied = done.outcome.connect_denials.iter().map(|one| one.rule.as_str());
        assert!(denied.all(|rule| rule == "network.socket"));
        must_have_ended(&fixture, got["SERVED"]).await;
    }
    session.close().await;
    fixture.gateway.stop();
}

/// Every connection that was allowed has one end.
async fn must_have_ended(fixture: &Fixture, served: usize) {
    let what = "each connection that was allowed has its end";
    let (allowed, ended) = eventually(what, || {
        let ids = |records: Vec<Value>| -> Vec<String> {
            let mut ids: Vec<String> =
                records.iter().filter_map(|one| one["connection"].as_str().map(str::to_owned)).collect();
            ids.sort();
            ids
        };
        let mut allowed = fixture.records("connection");
        allowed.retain(|one| one["decision"] == "allow");
        let (allowed, ended) = (ids(allowed), ids(fixture.records("connection_ended")));
        (allowed == ended).then_some((allowed, ended))
    })
    .await;
    assert!(allowed.len() >= served, "{} {}", allowed.len(), ended.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_to_a_socket_that_fails_after_it_was_allowed_has_an_end() {
    let fixture = Fixture::start();
    let sockets = Sockets::start(&["open.sock", "dbus-session"]);
    let at = |name: &str| sockets.at(name);
    // Nobody listens, another kind listens, and one that is refused by the name it was bound to.
    drop(UnixListener::bind(at("left.sock")).expect("a socket"));
    let _datagrams = std::os::unix::net::UnixDatagram::bind(at("datagrams.sock")).expect("a socket");
    fs::hard_link(at("dbus-session"), at("bus.sock")).expect("another name");
    let names = ["left", "datagrams", "bus"];
    let paths = names.map(|name| at(&format!("{name}.sock")));
    let places: Vec<(&str, &Path)> = names.iter().copied().zip(paths.iter().map(|path| &**path)).collect();
    let rules: String = places.iter().map(|(name, path)| rule(name, "allow", path)).collect();
    let_in(&fixture, &places, &rules);
    let session = Session::open(&fixture.gateway).await;
    for (name, path, reason) in [
        ("left", &paths[0], "Connection refused"),
        ("datagrams", &paths[1], "Protocol wrong type"),
        ("bus", &paths[2], "D-Bus"),
    ] {
        let done = command(&fixture, &session, &["ask", &format!("/run/host/{name}"), "1"]).finish().await;
        assert_eq!(done.text(), "closed\n", "{name}");
        let [denial] = &done.outcome.connect_denials[..] else { panic!("{:?}", done.outcome) };
        assert_eq!(denial.rule, "network.socket");
        let named = format!("unix:{}", path.display());
        let mut records = fixture.records("connection");
        records.retain(|one| one["host"] == named.as_str());
        let [allowed, denied] = &records[..] else { panic!("{records:#?}") };
        assert_eq!((&allowed["decision"], &denied["decision"]), (&"allow".into(), &"deny".into()));
        assert_eq!(allowed["connection"], denied["connection"], "{name}");
        let ended = eventually("its end", || {
            let ended = fixture.records("connection_ended");
            ended.into_iter().find(|one| one["connection"] == allowed["connection"])
        })
        .await;
        assert!(ended["failure"].as_str().expect("a text").contains(reason), "{name}: {ended}");
        assert_eq!((&ended["sent_bytes"], &ended["received_bytes"]), (&0.into(), &0.into()), "{name}");
    }
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_below_a_root_that_commands_write_to_is_refused() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    // Two sockets of the host in the workspace, of which a rule allows one. They come when the sandbox is there: those before it are covered.
    let (named, other) = (session.workspace.join("named.sock"), session.workspace.join("other.sock"));
    let_in(&fixture, &[("named", &named)], &rule("named", "allow", &named));
    assert_eq!(code(&fixture.command(&session, Network::Proxy, "true").finish().await.outcome), 0);
    let _sockets = Sockets::start_in(&session.workspace, &["named.sock", "other.sock"]);
    if is_root() {
        for path in [&named, &other, &session.workspace] {
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777))
                .expect("it is ours");
        }
    }
    // A process that can write there decides which one has the name.
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let done = command(&fixture, &session, &["replace", &text(&named), &text(&other), "/run/host/named"])
        .finish()
        .await;
    let lines: Vec<String> = done.text().lines().map(str::to_owned).collect();
    assert_eq!(lines, ["before closed", "own closed", "other closed", "link closed"], "{}", done.text());
    let denials = &done.outcome.connect_denials;
    assert!(
        denials.len() == 4
            && denials.iter().all(
                |one| one.rule == "network.socket" && one.reason.contains("root in which commands write")
            ),
        "{denials:?}"
    );
    session.close().await;
    // From another session, whose commands cannot write there, as long as the first one is not.
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_that_is_mounted_under_another_name_is_known() {
    if !is_root() {
        return skip("only root mounts");
    }
    let fixture = Fixture::start();
    let sockets = Sockets::start(&["open.sock", "agent.7"]);
    let gateway = fixture.gateway.socket.canonicalize().expect("it listens");
    let mut mounted = Vec::new();
    for (name, source) in [("keys", sockets.at("agent.7")), ("gateway", gateway)] {
        let target = sockets.at(&format!("{name}.sock"));
        fs::write(&target, "").expect("a file");
        let status = Command::new("mount").arg("--bind").arg(&source).arg(&target).status();
        assert!(status.expect("mount(8) can be started").success());
        mounted.push(Mounted(target));
    }
    assert_eq!(on_the_host(&mounted[0].0, 1).get("SERVED"), Some(&1), "it can be connected to on the host");
    let places = [("keys", &*mounted[0].0), ("gateway", &*mounted[1].0)];
    let rules: String = places.iter().map(|(name, path)| rule(name, "allow", path)).collect();
    let_in(&fixture, &places, &rules);
    let session = Session::open(&fixture.gateway).await;
    for (name, reason) in [("keys", "agent"), ("gateway", "governs commands")] {
        let done = command(&fixture, &session, &["ask", &format!("/run/host/{name}"), "1"]).finish().await;
        assert_eq!(done.text(), "closed\n", "{name}");
        let denials = &done.outcome.connect_denials;
        assert!(denials.len() == 1 && denials[0].reason.contains(reason), "{denials:?}");
    }
    drop(mounted);
    session.close().await;
    fixture.gateway.stop();
}

/// A mount, until it is dropped.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}
