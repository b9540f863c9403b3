//! Unix sockets of the host: seen by commands as listeners of their sandbox's own, judged by rules, and connected to as the caller.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use provost::proto::v1::Network;

use crate::{
    asked::Approver,
    fixture::Fixture,
    python_server::PythonServer,
    support::{self, Session, code, eventually, is_root},
};

const SCRIPT: &str = include_str!("sockets.py");

/// Servers at sockets of the host, in a directory of their own that everybody may enter.
pub(crate) struct Sockets {
    directory: PathBuf,
    _removed: Option<tempfile::TempDir>,
    _server: PythonServer,
}

impl Sockets {
    pub(crate) fn start(names: &[&str]) -> Self {
        let directory = tempfile::Builder::new().prefix("provost-sockets-").tempdir().expect("a directory");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        let started = Self::start_in(directory.path(), names);
        Self { _removed: Some(directory), ..started }
    }

    /// In this directory.
    pub(crate) fn start_in(directory: &Path, names: &[&str]) -> Self {
        let paths: Vec<String> =
            names.iter().map(|name| directory.join(name).to_string_lossy().into_owned()).collect();
        let arguments: Vec<&str> = paths.iter().map(String::as_str).collect();
        let server = PythonServer::start(SCRIPT, &arguments, directory);
        Self { directory: directory.to_owned(), _removed: None, _server: server }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// What a client on the host gets: that it can be had without us.
    fn on_the_host(&self, name: &str, word: &str) -> String {
        let output = Command::new("python3")
            .args(["-c", SCRIPT, "client"])
            .arg(self.at(name))
            .arg(word)
            .output()
            .expect("python3 can be started");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

/// Lets these sockets in, as `/run/host/NAME`, with further rules.
pub(crate) fn let_in(fixture: &Fixture, paths: &[(&str, &Path)], rules: &str) {
    let mut policy: toml::Table = fixture.policy_text().parse().expect("it is TOML");
    let place = |(name, path): &(&str, &Path)| {
        let text = format!("host = \"{}\"\ninside = \"/run/host/{name}\"", path.display());
        toml::Value::Table(text.parse().expect("it is TOML"))
    };
    let places: Vec<toml::Value> = paths.iter().map(place).collect();
    policy["profile"]["workspace"]["network"]
        .as_table_mut()
        .expect("a network")
        .insert("sockets".to_owned(), places.into());
    fixture.reload(&format!("{}\n{rules}", toml::to_string(&policy).expect("it can be written")));
}

pub(crate) fn rule(id: &str, decision: &str, path: &Path) -> String {
    format!("[[connect]]\nid = '{id}'\ndecision = '{decision}'\nunix = ['{}']\n", path.display())
}

/// A client in the sandbox, for these sockets and words.
fn client(fixture: &Fixture, session: &Session, asked: &[(&str, &str)]) -> support::Command {
    fs::write(session.workspace.join("sockets.py"), SCRIPT).expect("a file");
    let arguments = asked.iter().flat_map(|(name, word)| [format!("/run/host/{name}"), (*word).to_owned()]);
    let client = fixture.command(session, Network::Proxy, "python3").args(["sockets.py", "client"]);
    client.args(arguments)
}

async fn asked(fixture: &Fixture, session: &Session, asked: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
    let done = client(fixture, session, asked).finish().await;
    let denials = &done.outcome.connect_denials;
    let rules = denials.iter().map(|denial| denial.rule.clone()).collect();
    assert!(
        denials.iter().all(|denial| denial.host.starts_with("unix:/") && denial.port == 0),
        "{denials:?}"
    );
    (done.text().lines().map(str::to_owned).collect(), rules)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_of_the_host_is_reached_by_rule_and_as_the_caller() {
    let fixture = Fixture::start();
    let sockets = Sockets::start(&["open.sock", "closed.sock", "unnamed.sock", "private.sock"]);
    let at = |name: &str| sockets.at(name);
    let (open, closed, unnamed, private) =
        (at("open.sock"), at("closed.sock"), at("unnamed.sock"), at("private.sock"));
    fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let rules = rule("open", "allow", &open)
        + &rule("all", "allow", &closed)
        + &rule("not-that", "deny", &closed)
        + &rule("private", "allow", &private);
    let paths = [("open", &*open), ("closed", &*closed), ("unnamed", &*unnamed), ("private", &*private)];
    let_in(&fixture, &paths, &rules);
    let own = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    for name in ["open.sock", "closed.sock", "unnamed.sock", "private.sock"] {
        assert_eq!(sockets.on_the_host(name, "who"), format!("SERVED uid={} gid={}", own.0, own.1), "{name}");
    }
    let user = if is_root() { 54_391 } else { own.0 };
    let session = Session::open_as(&fixture.gateway, user).await;
    let words = [("open", "who"), ("closed", "who"), ("unnamed", "who"), ("private", "who")];
    let (answers, rules) = asked(&fixture, &session, &words).await;
    assert_eq!(answers[1..3], ["closed", "closed"]);
    if is_root() {
        assert!(answers[0].starts_with(&format!("SERVED uid={user} gid=")), "{answers:?}");
        assert!(!answers[0].ends_with("gid=0"), "{answers:?}");
        assert_eq!(answers[3], "closed", "the caller itself could not connect there");
        assert_eq!(rules, ["not-that", "default", "network.socket"]);
    } else {
        assert_eq!(rules, ["not-that", "default"]);
    }
    // The sandbox has the listener's inode, and not the host's.
    let inode = fixture.sh(&session, "stat -c %i /run/host/open").finish().await.text();
    assert_ne!(inode.trim(), fs::metadata(&open).expect("it is there").ino().to_string());
    let named = format!("unix:{}", open.display());
    let records = fixture.records("connection");
    let record = records.iter().find(|record| record["host"] == named.as_str()).expect("it is written down");
    assert_eq!(
        (&record["decision"], &record["rule"], &record["protocol"], &record["port"]),
        (&"allow".into(), &"open".into(), &"unix".into(), &0.into())
    );
    let ended = eventually("the connection's end is written down", || {
        fixture.records("connection_ended").into_iter().find(|one| one["connection"] == record["connection"])
    })
    .await;
    assert_eq!(ended["sent_bytes"], 4, "{ended}");
    assert_eq!(ended["received_bytes"], answers[0].len() as u64 + 1, "{ended}");
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_descriptor_goes_over_a_socket_of_the_host() {
    let fixture = Fixture::start();
    let sockets = Sockets::start(&["open.sock"]);
    let open = sockets.at("open.sock");
    let_in(&fixture, &[("open", &open)], &rule("open", "allow", &open));
    assert_eq!(sockets.on_the_host("open.sock", "take"), "SERVED 1 descriptors");
    assert_eq!(sockets.on_the_host("open.sock", "give"), "SERVED one and a descriptor");
    let session = Session::open(&fixture.gateway).await;
    let (answers, rules) = asked(&fixture, &session, &[("open", "take"), ("open", "give")]).await;
    assert_eq!((answers, rules), (vec!["SERVED 0 descriptors".into(), "SERVED one".into()], vec![]));
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_socket_is_let_in_by_another_name() {
    let fixture = Fixture::start();
    let sockets = Sockets::start(&["open.sock", "dbus-session", "agent.7"]);
    let at = |name: &str| sockets.at(name);
    symlink(at("open.sock"), at("link.sock")).expect("a link");
    symlink(&sockets.directory, at("linked")).expect("a link");
    fs::write(at("file.sock"), "").expect("a file");
    fs::hard_link(at("dbus-session"), at("bus.sock")).expect("another name");
    fs::hard_link(at("agent.7"), at("keys.sock")).expect("another name");
    let gateway = fixture.gateway.socket.canonicalize().expect("it listens");
    // All but the file can be connected to on the host.
    for name in ["link.sock", "linked/open.sock", "bus.sock", "keys.sock"] {
        assert!(sockets.on_the_host(name, "who").starts_with("SERVED"), "{name}");
    }
    assert!(std::os::unix::net::UnixStream::connect(&gateway).is_ok());
    let names = ["link", "file", "bus", "keys", "missing"];
    let paths: Vec<PathBuf> = names.iter().map(|name| at(&format!("{name}.sock"))).collect();
    let mut places: Vec<(&str, &Path)> =
        names.iter().copied().zip(paths.iter().map(|path| &**path)).collect();
    places.push(("gateway", &gateway));
    let linked = at("linked/open.sock");
    places.push(("linked", &linked));
    let rules: String = places.iter().map(|(name, path)| rule(name, "allow", path)).collect();
    let_in(&fixture, &places, &rules);
    let session = Session::open(&fixture.gateway).await;
    let words: Vec<(&str, &str)> = places.iter().map(|(name, _)| (*name, "who")).collect();
    let done = client(&fixture, &session, &words).finish().await;
    assert_eq!(done.text(), "closed\n".repeat(7));
    let said: Vec<(&str, &str)> =
        done.outcome.connect_denials.iter().map(|one| (one.rule.as_str(), one.reason.as_str())).collect();
    assert!(said.iter().all(|(rule, _)| *rule == "network.socket"), "{said:?}");
    let parts =
        ["no socket", "no socket", "D-Bus", "agent", "cannot find", "governs commands", "symbolic links"];
    assert!(said.iter().zip(parts).all(|((_, reason), part)| reason.contains(part)), "{said:?}");
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_waits_for_a_person_and_follows_the_rules_and_the_gateway() {
    let fixture = Fixture::start();
    let sockets = Sockets::start(&["careful.sock"]);
    let careful = sockets.at("careful.sock");
    let_in(&fixture, &[("careful", &careful)], &rule("careful-socket", "ask", &careful));
    let mut session = Session::open(&fixture.gateway).await;
    let mut approver = Approver::of(&session.caller);
    let terminal = client(&fixture, &session, &[("careful", "who")]).create().await;
    approver.approve_next().await;
    let question = &approver.list().await[0];
    let connection = question.connection.as_ref().expect("it is about a connection");
    assert_eq!((connection.host.as_str(), connection.port), (&*format!("unix:{}", careful.display()), 0));
    assert_eq!(code(&terminal.wait().await), 0);
    // Another gateway answers at the same listener, and by other rules.
    let script =
        "echo up; while [ ! -e go ]; do sleep 0.1; done; python3 sockets.py client /run/host/careful who";
    let running = fixture.sh(&session, script).create().await;
    running.until("up").await;
    fixture.gateway.crash();
    let text = fixture.policy_text().replace("decision = 'ask'", "decision = 'allow'");
    fs::write(fixture.policy_file(), text.replace("decision = \"ask\"", "decision = \"allow\""))
        .expect("a file");
    fs::write(session.workspace.join("go"), "").expect("a file");
    fixture.gateway.start_again();
    let caller = fixture.gateway.caller().await;
    session.go_on(&caller);
    let running = running.over(&caller);
    running.wait().await;
    let text = String::from_utf8_lossy(&running.output().await.data).into_owned();
    assert!(text.contains("SERVED uid="), "{text}");
    session.close().await;
    fixture.gateway.stop();
}
