//! What becomes of open connections in opened TLS and to sockets of the host when rules change, and how many bytes they carry: by every
//! front end, and by the gateway of an ordinary user.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    acp_peer::ShimPeer,
    mcp_peer,
    opened_servers::OpenedFixture,
    peer,
    sockets::{Sockets, let_in, rule},
    support::{Gateway, Session, eventually, is_root, skip},
};

const KEPT: &str = include_str!("kept.py");

const MAX_BYTES: u64 = 300_000;

/// Runs one line of sh in a workspace, to its end.
#[derive(Debug, Clone, Copy)]
enum FrontEnd {
    Acp,
    CommandLine,
    ExecServer,
    Mcp,
    ShellWrapper,
}

const ALL: [FrontEnd; 5] =
    [FrontEnd::Acp, FrontEnd::CommandLine, FrontEnd::ExecServer, FrontEnd::Mcp, FrontEnd::ShellWrapper];

/// A front end that is connected, and its workspace.
enum Connected {
    Acp(ShimPeer),
    ExecServer(peer::Peer),
    Mcp(mcp_peer::Peer),
    Program { directory: TempDir, workspace: PathBuf, gateway: String, is_shell: bool },
}

impl FrontEnd {
    fn connect(self, gateway: &Gateway) -> Connected {
        let address = format!("unix:{}", gateway.socket.display());
        match self {
            Self::Acp => Connected::Acp(ShimPeer::in_session(&["--gateway", &address], json!({}))),
            Self::ExecServer => Connected::ExecServer(peer::Peer::at(gateway)),
            Self::Mcp => Connected::Mcp(mcp_peer::Peer::at(gateway)),
            Self::CommandLine | Self::ShellWrapper => {
                let (directory, workspace) = crate::support::directory_with_workspace();
                let is_shell = matches!(self, Self::ShellWrapper);
                Connected::Program { directory, workspace, gateway: address, is_shell }
            }
        }
    }
}

impl Connected {
    fn workspace(&self) -> &Path {
        match self {
            Self::Acp(peer) => &peer.workspace,
            Self::ExecServer(peer) => &peer.workspace,
            Self::Mcp(peer) => &peer.workspace,
            Self::Program { workspace, .. } => workspace,
        }
    }

    /// Runs a line whose output goes to the file `said`, on a thread that may wait. What it has said.
    async fn said(mut self, line: String) -> Vec<String> {
        let run = move || {
            self.run(&format!("{line} >said 2>&1"));
            said(self.workspace())
        };
        tokio::task::spawn_blocking(run).await.expect("the line runs")
    }

    fn run(&mut self, line: &str) {
        match self {
            Self::Acp(peer) => {
                let asked = json!({"sessionId":"s","command":"sh","args":["-c",line]});
                let answer = peer.ask("terminal/create", asked);
                let id =
                    answer["result"]["terminalId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
                let terminal = json!({"sessionId":"s","terminalId":id});
                let ended = peer.ask("terminal/wait_for_exit", terminal.clone());
                assert_eq!(ended["result"]["exitCode"], 0, "{ended}");
                peer.ask("terminal/release", terminal);
            }
            Self::ExecServer(peer) => {
                let ended = peer.line("line", line);
                assert_eq!(ended.exit_code, 0, "{ended:?}");
            }
            Self::Mcp(peer) => {
                let ran = peer.tool("run_command", json!({ "command": line }));
                assert_eq!(ran["_meta"]["provost"]["exit_code"], 0, "{ran}");
            }
            Self::Program { directory, workspace, gateway, is_shell } => {
                let provost = env!("CARGO_BIN_EXE_provost");
                let mut command = if *is_shell {
                    let shell = directory.path().join("provost-shell");
                    symlink(provost, &shell).expect("a link");
                    Command::new(shell)
                } else {
                    let mut command = Command::new(provost);
                    command.args(["run", "--", "sh"]);
                    command
                };
                let ended = command
                    .args(["-c", line])
                    .current_dir(&*workspace)
                    .env("PROVOST_GATEWAY", gateway)
                    .env("PROVOST_SHELL_ROOT", &*workspace)
                    .output()
                    .expect("provost starts");
                assert!(ended.status.success(), "{ended:?}");
            }
        }
    }
}

/// Commands have the network `proxy` unless they say otherwise, and these further keys.
fn with_network(fixture: &OpenedFixture, keys: &str) -> String {
    let mut policy: toml::Table = fixture.policy_text().parse().expect("it is TOML");
    let network = policy["profile"]["workspace"]["network"].as_table_mut().expect("a network");
    network.insert("default".to_owned(), "proxy".into());
    network.extend(keys.parse::<toml::Table>().expect("it is TOML"));
    toml::to_string(&policy).expect("it can be written")
}

/// The script's output, when a line has run it to its end.
fn said(workspace: &Path) -> Vec<String> {
    let text = fs::read_to_string(workspace.join("said")).expect("the script has said something");
    text.lines().map(str::to_owned).collect()
}

/// The ends of connections that a rule has closed.
fn closed(fixture: &OpenedFixture) -> Vec<Value> {
    let mut ended = fixture.records("connection_ended");
    ended.retain(|end| {
        end["failure"].as_str().is_some_and(|failure| failure.starts_with("closed by rule \"closed-"))
    });
    ended
}

/// Another policy, by which what is open would not be allowed.
fn closing(sockets: &Sockets) -> String {
    "[[connect]]\nid = 'closed-host'\ndecision = 'deny'\nhost = ['vault.test']\n".to_owned()
        + &rule("closed-socket", "deny", &sockets.at("open.sock"))
}

/// Holds connections while the policy is replaced: what they are then, and what new ones are.
async fn held(
    fixture: &OpenedFixture,
    sockets: &Sockets,
    workspace: PathBuf,
    is_closed: bool,
    run: impl Future<Output = Vec<String>>,
) -> Vec<String> {
    let (before, text) = (closed(fixture).len(), fixture.policy_text());
    let change = async {
        eventually("the connections are open", || workspace.join("ready").exists().then_some(())).await;
        fixture.reload_with(&closing(sockets));
        if is_closed {
            let all = || (closed(fixture).len() == before + 2).then_some(());
            eventually("both connections are closed", all).await;
        }
        fs::write(workspace.join("go"), "").expect("a file");
    };
    let (said, ()) = tokio::join!(run, change);
    fixture.reload(&text);
    said
}

/// The gateway, with the socket let in.
fn start(user: Option<u32>) -> (OpenedFixture, Sockets) {
    let (fixture, sockets) = (OpenedFixture::start_as(user), Sockets::start(&["open.sock"]));
    let open = sockets.at("open.sock");
    let_in(&fixture, &[("open", &open)], &rule("open", "allow", &open));
    (fixture, sockets)
}

fn prepare(workspace: &Path) {
    fs::write(workspace.join("kept.py"), KEPT).expect("a file");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
#[ignore = "long: .ci/run runs it"]
async fn connections_that_rules_close_end_by_every_front_end() {
    let (fixture, sockets) = start(None);
    for (on_reload, is_closed, then) in
        [("close", true, "then closed closed 403 closed"), ("keep", false, "then open served 403 closed")]
    {
        fixture.reload(&with_network(&fixture, &format!("on_reload = \"{on_reload}\"")));
        for front_end in ALL {
            let connected = front_end.connect(&fixture.gateway);
            let workspace = connected.workspace().to_owned();
            prepare(&workspace);
            let run = connected.said("python3 kept.py hold".to_owned());
            let lines = held(&fixture, &sockets, workspace, is_closed, run).await;
            assert_eq!(lines, ["first 200 served", then], "{front_end:?}, {on_reload}");
        }
    }
    fixture.gateway.stop();
}

/// What three fetches of 200,000 bytes came to, in one way.
fn must_be_bounded(lines: &[String], way: &str, what: &str) {
    let counts: Vec<(&str, u64)> = lines
        .iter()
        .map(|line| line.split_once(' ').unwrap_or_else(|| panic!("{what}: {lines:?}")))
        .map(|(status, count)| (status, count.parse().unwrap_or_else(|_| panic!("{what}: {lines:?}"))))
        .collect();
    let [first, second, third] = counts[..] else { panic!("{what}: {lines:?}") };
    let (begun, refused) = if way == "tls" { ("200", "403") } else { ("socket", "socket") };
    assert_eq!(first, (begun, 200_000), "{what}");
    assert!(second.0 == begun && (1..100_000).contains(&second.1), "{what}: {lines:?}");
    assert!(third.0 == refused && third.1 < 1_000, "{what}: {lines:?}");
}

/// No more than the profile says, and the last connection says why it ended.
fn must_have_carried_all(fixture: &OpenedFixture, sessions: u64) {
    let ended = fixture.records("connection_ended");
    let bytes = |key: &str| ended.iter().filter_map(|end| end[key].as_u64()).sum::<u64>();
    let carried = bytes("sent_bytes") + bytes("received_bytes");
    let all = MAX_BYTES * sessions;
    assert!((all - 1_000 * sessions..=all).contains(&carried), "{carried} of {all}: {ended:#?}");
    let spent = ended.iter().filter(|end| end["failure"] == "the session has carried all bytes that it may");
    assert_eq!(spent.count() as u64, sessions, "{ended:#?}");
    let denied = fixture.records("connection");
    let denied = denied.iter().filter(|one| one["rule"] == "network.max_bytes").count() as u64;
    assert_eq!(denied, sessions);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_bytes_of_a_session_are_bounded_by_every_front_end() {
    let (fixture, _sockets) = start(None);
    fixture.reload(&with_network(&fixture, &format!("max_bytes = {MAX_BYTES}")));
    for way in ["tls", "unix"] {
        for front_end in ALL {
            let connected = front_end.connect(&fixture.gateway);
            prepare(connected.workspace());
            let lines = connected.said(format!("python3 kept.py spend {way}")).await;
            must_be_bounded(&lines, way, &format!("{front_end:?}, {way}"));
        }
    }
    must_have_carried_all(&fixture, 2 * ALL.len() as u64);
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn connections_are_closed_and_bounded_by_an_ordinary_users_gateway() {
    if !is_root() {
        return skip("the other tests are of an ordinary user's gateway already");
    }
    const USER: u32 = 1_000;
    let (fixture, sockets) = start(Some(USER));
    let gateway: &Arc<Gateway> = &fixture.gateway;
    for (on_reload, is_closed, then) in
        [("close", true, "then closed closed 403 closed"), ("keep", false, "then open served 403 closed")]
    {
        fixture.reload(&with_network(&fixture, &format!("on_reload = \"{on_reload}\"")));
        let session = Session::open_as(gateway, USER).await;
        prepare(&session.workspace);
        let run = async {
            session.sh("python3 kept.py hold >said 2>&1").finish().await;
            said(&session.workspace)
        };
        let lines = held(&fixture, &sockets, session.workspace.clone(), is_closed, run).await;
        assert_eq!(lines, ["first 200 served", then], "{on_reload}");
        session.close().await;
    }
    fixture.reload(&with_network(&fixture, &format!("max_bytes = {MAX_BYTES}")));
    for way in ["tls", "unix"] {
        let session = Session::open_as(gateway, USER).await;
        prepare(&session.workspace);
        session.sh(&format!("python3 kept.py spend {way} >said 2>&1")).finish().await;
        must_be_bounded(&said(&session.workspace), way, way);
        session.close().await;
    }
    fixture.gateway.stop();
}
