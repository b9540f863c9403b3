//! Every way into a gateway as one thing that runs a command: each speaks its own protocol to the real binary, as one user, in one
//! workspace that a link leads to, at one gateway of that user's.
//!
//! What a front end tells is kept as it tells it: what a person reads on stderr, what a model reads in a text, what a program reads in an
//! outcome.

use std::{
    cell::OnceCell,
    ffi::{OsStr, OsString},
    fs,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    firsthour::{
        acp_peer::ShimPeer,
        libraries::{Library, Missing},
        mcp_peer, peer,
        person::Person,
    },
    support::{Caller, DEADLINE, Refusal, RunResult, StdioServer, api, skip},
};

/// A way to run a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FrontEnd {
    /// The API, by a plain client.
    Grpc,
    /// `provost acp`, by `terminal/create` and so on.
    Acp,
    /// `provost mcp`, by its tool `run_command`.
    Mcp,
    /// `provost exec-server`, by `process/start`.
    ExecServer,
    /// `provost run`, with a gateway of its own.
    Run,
    /// `provost run`, by the gateway.
    RunByGateway,
    /// `provost run -d`, then `wait` and `logs`.
    Detached,
    /// `provost exec`, in a session that is open.
    Exec,
    /// `provost-shell -c`.
    Shell,
    /// The SDK for Python.
    Python,
    /// The SDK for TypeScript.
    TypeScript,
}

pub(crate) const ALL: [FrontEnd; 11] = [
    FrontEnd::Grpc,
    FrontEnd::Acp,
    FrontEnd::Mcp,
    FrontEnd::ExecServer,
    FrontEnd::Run,
    FrontEnd::RunByGateway,
    FrontEnd::Detached,
    FrontEnd::Exec,
    FrontEnd::Shell,
    FrontEnd::Python,
    FrontEnd::TypeScript,
];

/// What a front end tells of a command.
#[derive(Default)]
pub(crate) struct Told {
    /// The exit code; none where nothing ran, or a signal ended it and the front end says that.
    pub(crate) code: Option<i64>,
    /// What it has written, to stdout where the front end tells the streams apart.
    pub(crate) printed: Vec<u8>,
    /// Everything else that is told, and for some front ends what was printed, too.
    pub(crate) said: String,
}

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "code {:?}, printed:\n{}\nsaid:\n{}", self.code, self.text(), self.said)
    }
}

impl Told {
    /// What it has printed, as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.printed).into_owned()
    }

    /// The value that the line `NAME=VALUE` of what was printed has.
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        self.text().lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
    }
}

/// Whose gateway it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The person's.
    Person,
    /// Root's, which serves every user.
    Root,
}

/// A person at a workspace, with a gateway.
pub(crate) struct Desk {
    pub(crate) person: Person,
    /// The workspace as its user names it: a link leads to it.
    pub(crate) named: PathBuf,
    pub(crate) owner: Owner,
    address: String,
    policies: PathBuf,
    /// What the gateway has said.
    log: PathBuf,
    gateway: Child,
    /// A terminal and its session, which stay, once they are asked for.
    held: OnceCell<(String, String)>,
}

/// What is before the system's programs in the person's PATH, below the workspace.
pub(crate) const VENV: &str = ".venv";

impl Desk {
    /// A desk whose workspace a script has furnished, and whose gateway has this policy.
    pub(crate) fn new(person: Person, owner: Owner, furnish: &str, policy: &str) -> Self {
        let home = person.home();
        let (named, work) = (home.join("named"), home.join("data/work"));
        for directory in [&work, &home.join("gateway"), &home.join("pipes")] {
            person.make(directory);
        }
        std::os::unix::fs::symlink("data/work", &named).expect("a link can be made");
        let copied = Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_provost-shell"))
            .arg(person.provost().with_file_name("provost-shell"))
            .status();
        assert!(copied.is_ok_and(|status| status.success()), "the shell can be copied");
        let furnished = person.outside(furnish, &named);
        assert!(furnished.status.success(), "{}", crate::firsthour::walk::shown(&furnished));
        let (place, mut serve) = match owner {
            Owner::Person => (home.join("gateway"), person.command(person.provost(), &home)),
            Owner::Root => {
                // To this gateway the host knows the person.
                let above = home.parent().expect("it has one");
                let (users, id) = (above.join("users"), person.id());
                let known = fs::read_to_string("/etc/passwd").expect("the host has users");
                let user = format!("{known}walker:x:{id}:{id}::{}:/bin/sh\n", home.display());
                fs::write(&users, user).expect("a file can be written");
                let mut serve = Command::new("unshare");
                serve.args(["--mount", "--propagation", "slave", "sh", "-c"]);
                serve.arg("mount --bind \"$1\" /etc/passwd && shift && exec \"$@\"").arg("sh").arg(users);
                serve.arg(person.provost()).env("HOME", "/nonexistent").stdin(Stdio::null());
                (above.join("gateway"), serve)
            }
        };
        let at = |name: &str| place.join(name);
        let (socket, log, policies) = (at("socket"), at("log"), at("policies"));
        fs::create_dir_all(&policies).expect("a directory can be made");
        fs::write(policies.join("default.toml"), policy).expect("a policy can be written");
        fs::write(at("config"), "socket_mode = \"0666\"\n").expect("a file can be written");
        if owner == Owner::Root {
            serve.arg("serve").arg("--config").arg(at("config"));
        } else {
            serve.arg("serve");
        }
        let address = format!("unix:{}", socket.display());
        serve.args(["--listen", &address, "--state"]).arg(at("state")).arg("--policies").arg(&policies);
        serve.stderr(fs::File::create(&log).expect("a file can be made"));
        let gateway = serve.spawn().expect("provost starts");
        let mut desk = Self { person, named, owner, address, policies, log, gateway, held: OnceCell::new() };
        let begun = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            let ended = desk.gateway.try_wait().expect("it is our child");
            assert!(ended.is_none() && begun.elapsed() < DEADLINE, "the gateway does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        desk
    }

    /// A directory of the person's that no command sees.
    pub(crate) fn aside(&self) -> PathBuf {
        self.person.home()
    }

    /// A program of ours as a person with a strict umask starts it in the workspace, with the workspace's own tools before others.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = self.person.command("/bin/sh", &self.named);
        command.args(["-c", "umask 077; exec \"$@\"", "sh"]);
        self.dress(command.arg(self.person.provost().with_file_name(program)));
        command
    }

    /// The environment of the person's shell in the workspace.
    fn dress(&self, command: &mut Command) {
        let venv = self.named.join(VENV);
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", venv.join("bin").display());
        command.env("PWD", &self.named).env("PATH", path).env("VIRTUAL_ENV", &venv);
    }

    /// What a line of the person's own shell prints in the workspace, outside.
    pub(crate) fn outside(&self, line: &str) -> String {
        let mut shell = self.person.command("/bin/sh", &self.named);
        self.dress(&mut shell);
        let output = shell.args(["-c", line]).output().expect("a shell is there");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn by_gateway(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = self.command(program);
        command.args(arguments).env("PROVOST_GATEWAY", &self.address);
        command
    }

    /// A seat at this desk; none where this machine lacks what it takes, which is said.
    pub(crate) fn seat(&self, front_end: FrontEnd) -> Option<Seat<'_>> {
        let by = match front_end {
            FrontEnd::Grpc => By::Grpc(Box::new(GrpcClient::open(self))),
            FrontEnd::Acp => By::Acp(Box::new(self.acp())),
            FrontEnd::Mcp => {
                let start = |_: &Path| {
                    let mut mcp = self.command("provost");
                    mcp.args(["mcp", "--gateway", &self.address]);
                    mcp
                };
                By::Mcp(Box::new(mcp_peer::Peer::start(start, json!({}))))
            }
            FrontEnd::ExecServer => By::ExecServer(Box::new(self.exec_server()), 0),
            FrontEnd::Run => By::Run,
            FrontEnd::RunByGateway => By::RunByGateway,
            FrontEnd::Detached => By::Detached,
            FrontEnd::Exec => By::Exec(self.held.get_or_init(|| self.held()).1.clone()),
            FrontEnd::Shell => By::Shell,
            FrontEnd::Python | FrontEnd::TypeScript => {
                let started = if front_end == FrontEnd::Python { self.python() } else { self.typescript() };
                match started {
                    Ok(server) => By::Sdk(Box::new(server)),
                    Err(Missing(why)) => {
                        skip(&format!("the SDK for {front_end:?}: {why}"));
                        return None;
                    }
                }
            }
        };
        Some(Seat { desk: self, front_end, by })
    }

    fn acp(&self) -> ShimPeer {
        let mut acp = self.command("provost");
        acp.args(["acp", "--gateway", &self.address]);
        let pipes = self.person.home().join("pipes");
        let directory = tempfile::tempdir().expect("a directory can be made");
        let mut shim = ShimPeer::start_as(acp, self.named.clone(), &pipes, directory);
        shim.begin_session(json!({}));
        shim
    }

    fn exec_server(&self) -> peer::Peer {
        let mut server = self.command("provost");
        server.args(["exec-server", "--gateway", &self.address]);
        let mut peer = peer::Peer::with(StdioServer::start(&mut server), self.named.clone());
        peer.result("initialize", json!({ "clientName": "tester" }));
        peer.send(&json!({ "method": "initialized" }));
        peer
    }

    /// A command that has ended or soon will, in a session that stays open.
    fn held(&self) -> (String, String) {
        let output = |arguments: &[&str]| -> Output {
            self.by_gateway("provost", arguments).output().expect("provost starts")
        };
        let held = output(&["run", "-d", "--session", "held", "--", "true"]);
        assert!(held.status.success(), "{}", crate::firsthour::walk::shown(&held));
        let terminal = String::from_utf8_lossy(&held.stdout).trim().to_owned();
        let listed: Value =
            serde_json::from_slice(&output(&["ps", "-o", "json"]).stdout).expect("it is JSON");
        let listed = listed.as_array().expect("a list").iter().find(|one| one["id"] == *terminal);
        let session = listed.expect("it is there")["session_id"].as_str().expect("a session").to_owned();
        (terminal, session)
    }

    /// A terminal that stays.
    pub(crate) fn held_terminal(&self) -> String {
        self.held.get_or_init(|| self.held()).0.clone()
    }

    fn python(&self) -> Result<StdioServer, Missing> {
        static INTERPRETER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        let found = INTERPRETER.get_or_init(|| interpreter().map_err(|missing| missing.0));
        let mut command = with_sdk(found.as_ref().map_err(|why| Missing(why.clone()))?);
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/firsthour/sdk.py"));
        command.arg(self.person.id().to_string()).arg(&self.address).arg(&self.named);
        let server = StdioServer::start(command.env("HOME", self.person.home()));
        assert_eq!(server.receive(), "ready");
        Ok(server)
    }

    fn typescript(&self) -> Result<StdioServer, Missing> {
        let (node, sdk) = node_with_sdk()?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(node).stdin(Stdio::null());
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/firsthour/sdk.mjs")).arg(sdk);
        command.arg(self.person.id().to_string()).arg(&self.address).arg(&self.named);
        let server = StdioServer::start(command.env("HOME", self.person.home()));
        assert_eq!(server.receive(), "ready");
        Ok(server)
    }
}

/// Node.js and the SDK as `.ci/sdk typescript` has installed them.
fn node_with_sdk() -> Result<(PathBuf, PathBuf), Missing> {
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/sdk/typescript");
    let sdk = made.join("node_modules/@provost/sdk/dist/index.js");
    if !sdk.exists() {
        return Err(Missing("`.ci/sdk typescript` makes it".to_owned()));
    }
    let own = made.join("node/node_modules/node/bin/node");
    Ok((if own.exists() { own } else { "node".into() }, sdk))
}

/// An interpreter with the SDK's libraries: the one that `.ci/sdk python` makes, or that of the clients' tests.
fn interpreter() -> Result<PathBuf, Missing> {
    let has_all = |python: &Path| {
        let tried = with_sdk(python).args(["-c", "import provost"]).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    let made_for_it = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/sdk/python/venv/bin/python");
    if has_all(&made_for_it) {
        return Ok(made_for_it);
    }
    let library = Library::prepare("python")?;
    let made_before = library.directory.join("venv/bin/python");
    if has_all(&made_before) {
        return Ok(made_before);
    }
    // What takes the network is for CI.
    if std::env::var("CI").is_err() {
        return Err(Missing("`.ci/sdk python` fetches what it needs".to_owned()));
    }
    library.python()
}

/// The interpreter, which becomes the person itself when it has read the libraries: they may lie where only root may look.
fn with_sdk(python: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(python).arg("-W").arg("error");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("sdk/python/src");
    command.env("PYTHONPATH", source).env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
    command
}

impl Drop for Desk {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(&self.log).unwrap_or_default());
        }
        let pid = Pid::from_raw(self.gateway.id().cast_signed());
        let _ = kill(pid, Signal::SIGINT);
        let _ = self.gateway.wait();
    }
}

/// A front end at a desk, with what it keeps open.
pub(crate) struct Seat<'a> {
    pub(crate) desk: &'a Desk,
    pub(crate) front_end: FrontEnd,
    by: By,
}

enum By {
    Grpc(Box<GrpcClient>),
    Acp(Box<ShimPeer>),
    Mcp(Box<mcp_peer::Peer>),
    /// And how many processes it has started.
    ExecServer(Box<peer::Peer>, u32),
    Run,
    RunByGateway,
    Detached,
    /// In this session.
    Exec(String),
    Shell,
    /// A program that runs what it is told by lines.
    Sdk(Box<StdioServer>),
}

impl Seat<'_> {
    /// Runs a line of sh.
    pub(crate) fn line(&mut self, line: &str) -> Told {
        self.run(&["sh", "-c", line].map(OsString::from))
    }

    /// Runs a program with its arguments.
    pub(crate) fn run(&mut self, words: &[OsString]) -> Told {
        let desk = self.desk;
        let text = || -> Vec<&str> { words.iter().map(|word| word.to_str().expect("it is text")).collect() };
        match &mut self.by {
            By::Grpc(client) => client.run(words),
            By::Acp(peer) => by_acp(peer, &text()),
            By::Mcp(peer) => by_mcp(peer, &text()),
            By::ExecServer(peer, count) => {
                *count += 1;
                by_exec_server(peer, &count.to_string(), &text())
            }
            By::Sdk(server) => by_sdk(server, words),
            By::Detached => detached(desk, words),
            By::Run | By::RunByGateway | By::Exec(_) | By::Shell => {
                of_output(&self.command_line(words).expect("it is one").output().expect("it starts"), desk)
            }
        }
    }

    /// The process of a front end that is one for each command.
    pub(crate) fn command_line(&self, words: &[OsString]) -> Option<Command> {
        let desk = self.desk;
        let mut command = match &self.by {
            By::Run => {
                let mut run = desk.command("provost");
                run.arg("run").arg("--policies").arg(&desk.policies);
                run
            }
            By::RunByGateway => desk.by_gateway("provost", &["run"]),
            By::Exec(session) => desk.by_gateway("provost", &["exec", session]),
            By::Shell => {
                let quoted: Vec<Vec<u8>> = words.iter().map(|word| quoted(word)).collect();
                let mut shell = desk.by_gateway("provost-shell", &["-c"]);
                shell.arg(OsString::from_vec(quoted.join(&b' '))).env("PROVOST_SHELL_ROOT", &desk.named);
                return Some(shell);
            }
            _ => return None,
        };
        command.arg("--").args(words);
        Some(command)
    }

    /// Whether an argument can be any bytes. JSON has texts alone.
    pub(crate) fn carries_bytes(&self) -> bool {
        !matches!(self.front_end, FrontEnd::Acp | FrontEnd::Mcp | FrontEnd::ExecServer)
    }
}

/// A word as a shell reads it.
fn quoted(word: &OsStr) -> Vec<u8> {
    let inner: Vec<&[u8]> = word.as_bytes().split(|byte| *byte == b'\'').collect();
    [b"'".as_slice(), &inner.join(&b"'\\''"[..]), b"'"].concat()
}

fn of_output(output: &Output, desk: &Desk) -> Told {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code().is_some(), "{} as {}: {said}", output.status, desk.person.id());
    Told { code: output.status.code().map(i64::from), printed: output.stdout.clone(), said }
}

fn detached(desk: &Desk, words: &[OsString]) -> Told {
    let output = |arguments: &[&str], more: &[OsString]| -> Output {
        desk.by_gateway("provost", arguments).args(more).output().expect("provost starts")
    };
    let started = output(&["run", "-d", "--"], words);
    if !started.status.success() {
        return of_output(&started, desk);
    }
    let terminal = String::from_utf8_lossy(&started.stdout).trim().to_owned();
    let ended = of_output(&output(&["wait", &terminal], &[]), desk);
    let printed = output(&["logs", &terminal], &[]);
    Told { printed: printed.stdout, ..ended }
}

fn by_acp(peer: &mut ShimPeer, words: &[&str]) -> Told {
    let asked = json!({ "sessionId": "s", "command": words[0], "args": words[1..] });
    let answer = peer.ask("terminal/create", asked);
    let Some(id) = answer["result"]["terminalId"].as_str() else {
        return Told { said: answer["error"].to_string(), ..Told::default() };
    };
    let terminal = json!({ "sessionId": "s", "terminalId": id });
    let exit = peer.ask("terminal/wait_for_exit", terminal.clone());
    let output = peer.ask("terminal/output", terminal.clone());
    peer.ask("terminal/release", terminal);
    let text = output["result"]["output"].as_str().expect("a text").to_owned();
    Told { code: exit["result"]["exitCode"].as_i64(), printed: text.clone().into(), said: text }
}

fn by_mcp(peer: &mut mcp_peer::Peer, words: &[&str]) -> Told {
    let ran = peer.tool("run_command", json!({ "command": words[0], "args": words[1..] }));
    let said = mcp_peer::text(&ran).to_owned();
    let printed = said.split_once(" bytes):\n").map_or("", |(_, output)| output);
    let code = ran["_meta"]["provost"]["exit_code"].as_i64();
    Told { code, printed: printed.into(), said }
}

fn by_exec_server(peer: &mut peer::Peer, name: &str, words: &[&str]) -> Told {
    let answer = peer.ask("process/start", peer.command(name, words));
    if answer.get("error").is_some() {
        return Told { said: answer["error"].to_string(), ..Told::default() };
    }
    let ended = peer.ended(name);
    Told { code: Some(ended.exit_code), printed: ended.stdout.into(), said: ended.stderr }
}

fn by_sdk(server: &mut StdioServer, words: &[OsString]) -> Told {
    let words: Vec<String> = words.iter().map(|word| STANDARD.encode(word.as_bytes())).collect();
    server.send_line(&json!(words).to_string());
    let told = server.receive();
    let printed = STANDARD.decode(told[1].as_str().expect("a text")).expect("it is base64");
    Told { code: told[0].as_i64(), printed, said: told[2].as_str().expect("a text").to_owned() }
}

/// A plain client of the API, and its session.
struct GrpcClient {
    runtime: Runtime,
    caller: Caller,
    session: String,
    search_path: Vec<Vec<u8>>,
    virtual_env: Vec<u8>,
}

impl GrpcClient {
    fn open(desk: &Desk) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let socket = PathBuf::from(desk.address.strip_prefix("unix:").expect("it is one"));
        let request =
            api::CreateSessionRequest { roots: vec![desk.named.display().to_string()], ..Default::default() };
        let (caller, session) = runtime.block_on(async {
            let mut caller = match desk.person.id() == nix::unistd::geteuid().as_raw() {
                true => Caller::connect(&socket).await,
                false => {
                    let open = desk.person.provost();
                    Caller::connect_as(&socket, desk.person.id(), open.parent().expect("it has one")).await
                }
            };
            let opened = caller.sessions.create_session(request).await.expect("a session opens");
            let session = opened.into_inner().session.expect("it is set").id;
            (caller, session)
        });
        let venv = desk.named.join(VENV).canonicalize().expect("it is there");
        let bytes = |path: PathBuf| path.into_os_string().into_vec();
        let search_path = vec![bytes(venv.join("bin")), b"/usr/bin".to_vec(), b"/bin".to_vec()];
        Self { runtime, caller, session, search_path, virtual_env: bytes(venv) }
    }

    fn run(&mut self, words: &[OsString]) -> Told {
        let bytes: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let is_text = bytes.iter().all(|word| std::str::from_utf8(word).is_ok());
        let text = |word: &OsString| word.to_str().expect("it is text").to_owned();
        let (args, args_bytes) = match is_text {
            true => (words[1..].iter().map(text).collect(), Vec::new()),
            false => (Vec::new(), bytes[1..].iter().cloned().map(Into::into).collect()),
        };
        let create = api::CreateTerminalRequest {
            session_id: self.session.clone(),
            command: Some(api::create_terminal_request::Command::Program(text(&words[0]))),
            args,
            args_bytes,
            umask: Some(0o077),
            search_path: self.search_path.iter().cloned().map(Into::into).collect(),
            virtual_env: self.virtual_env.clone().into(),
            output_mode: api::OutputMode::Split.into(),
            ..Default::default()
        };
        let request = api::RunRequest { create: Some(create), resumable: false };
        let ran = self.runtime.block_on(async {
            let events = self.caller.terminals.run(request).await.map_err(Refusal::from)?;
            Ok::<_, Refusal>(RunResult::all(events.into_inner()).await)
        });
        let result = match ran {
            Ok(result) => result,
            Err(refusal) => return Told { said: format!("{refusal:?}"), ..Told::default() },
        };
        let outcome = result.finished.outcome.expect("it has ended");
        let code = match &outcome.end {
            Some(api::outcome::End::ExitCode(code)) => Some(i64::from(*code)),
            _ => None,
        };
        let stderr = String::from_utf8_lossy(&result.stderr);
        Told { code, printed: result.stdout, said: format!("{stderr}{outcome:?}") }
    }
}
