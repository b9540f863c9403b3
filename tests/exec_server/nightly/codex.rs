//! The Codex CLI, unmodified, with `provost exec-server` as its only environment, driven by a model on the loopback: its commands and
//! file edits happen in the sandbox, are told of denials, and end when it is stopped. Without a server nothing runs.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{Arc, OnceLock},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    exec_server::libraries::{Library, Missing, run_bounded},
    support::{self, Gateway, Model, deny_touch, eventually, mark, wait_for_sessions_end, wait_for_sleepers},
};

/// Where the page has the program and a project, the test has the built one and a workspace.
const PROGRAM: &str = "/usr/bin/provost";
pub(crate) const PROJECT: &str = "/home/me/project";

/// The piece of `docs/agents.md` in TOML that has this text.
fn block(text: &str) -> String {
    block_in("toml", text)
}

/// The piece of `docs/agents.md` in this language that has this text.
pub(crate) fn block_in(language: &str, text: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/agents.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let begin = format!("```{language}\n");
    let mut pieces = page.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    pieces.find(|piece| piece.contains(text)).expect("the page has it").to_owned()
}

/// A model that wants these tools called, one after the other.
pub(crate) fn model(log: &Path, calls: &[Value]) -> Model {
    let arguments = std::iter::once(log.as_os_str().to_owned());
    Model::start(
        "tests/exec_server/codex/model.py",
        arguments.chain(calls.iter().map(|call| call.to_string().into())),
    )
}

/// Has a line run by the tool for commands.
pub(crate) fn line(line: &str) -> Value {
    let arguments = json!({ "cmd": line, "yield_time_ms": 30_000 }).to_string();
    json!({ "type": "function_call", "name": "exec_command", "arguments": arguments })
}

pub(crate) fn codex() -> Option<Command> {
    // Once, for all tests that run side by side.
    static INSTALLED: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| install().map_err(|Missing(why)| why));
    match installed {
        Ok(directory) => {
            let mut agent = Command::new("node");
            agent.arg(directory.join("node_modules/@openai/codex/bin/codex.js"));
            Some(agent)
        }
        Err(why) => {
            support::skip(why);
            None
        }
    }
}

fn install() -> Result<PathBuf, Missing> {
    let mut library = Library::prepare("exec-server-codex")?;
    library.sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/exec_server/codex");
    for name in ["package.json", "package-lock.json"] {
        library.copy(name);
    }
    let mut npm = Command::new("npm");
    library.run(npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]))?;
    Ok(library.directory)
}

/// A home of Codex, a workspace, and a gateway that denies one command.
pub(crate) struct Place {
    directory: TempDir,
    pub(crate) gateway: Arc<Gateway>,
}

/// Where Codex runs its commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Environment {
    /// On the host, as it does by itself.
    Host,
    /// As `docs/agents.md` has it.
    ExecServer,
    /// A program that is not there.
    Missing,
    /// As `environments.toml` in `.codex` of the home has it.
    Prepared,
}

impl Place {
    pub(crate) fn new() -> Self {
        let gateway = Gateway::with_policy(deny_touch);
        let directory =
            tempfile::Builder::new().prefix("provost-codex-").tempdir().expect("a temporary directory");
        for name in ["home", "workspace"] {
            fs::create_dir(directory.path().join(name)).expect("a directory can be made");
        }
        Self { directory, gateway }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().expect("it is there").join(name)
    }

    /// What the model was told, in the last request.
    pub(crate) fn told(&self) -> String {
        let log = fs::read_to_string(self.at("log")).unwrap_or_default();
        log.lines().last().unwrap_or_default().to_owned()
    }

    /// Codex, which is to do what the model wants.
    pub(crate) fn agent(&self, mut agent: Command, model: &Model, environment: Environment) -> Command {
        let own = block("approval_policy");
        let settings = match environment {
            Environment::Prepared => self.at("home/.codex"),
            Environment::Host | Environment::ExecServer | Environment::Missing => self.at("home"),
        };
        let config = format!(
            "model = \"gpt-5\"\nmodel_provider = \"loopback\"\n{own}\n[model_providers.loopback]\nname = \"loopback\"\n\
             base_url = \"http://127.0.0.1:{}/v1\"\nwire_api = \"responses\"\n",
            model.port
        );
        fs::write(settings.join("config.toml"), config).expect("a file can be written");
        let program = match environment {
            Environment::Missing => "/nowhere/provost",
            Environment::Host | Environment::ExecServer | Environment::Prepared => {
                env!("CARGO_BIN_EXE_provost")
            }
        };
        let workspace = self.at("workspace").display().to_string();
        let environments = block("include_local");
        assert!(environments.contains(PROGRAM) && environments.contains(PROJECT), "{environments}");
        let environments = environments.replace(PROGRAM, program).replace(PROJECT, &workspace);
        let file = self.at("home/environments.toml");
        match environment {
            Environment::Host => drop(fs::remove_file(file)),
            Environment::Prepared => {}
            Environment::ExecServer | Environment::Missing => {
                fs::write(file, environments).expect("a file can be written");
            }
        }
        agent.args(["exec", "--skip-git-repo-check", "-C"]).arg(self.at("workspace")).arg("run it");
        agent.env("CODEX_HOME", settings).env("HOME", self.at("home"));
        agent.env("PROVOST_GATEWAY", format!("unix:{}", self.gateway.socket.display()));
        agent
    }

    pub(crate) fn run(&self, environment: Environment, calls: &[Value]) -> Option<(String, ExitStatus)> {
        let agent = codex()?;
        let _ = fs::remove_file(self.at("log"));
        let model = model(&self.at("log"), calls);
        Some(run_bounded(&mut self.agent(agent, &model, environment)))
    }
}

#[test]
#[ignore = "long: installs from npm; .ci/long codex runs it"]
fn the_commands_and_file_edits_of_codex_happen_in_the_sandbox() {
    let place = Place::new();
    let marker = place.at("marker");
    let attack = format!(
        "echo gone > '{}'; grep -E '^(Seccomp|NoNewPrivs):' /proc/self/status; echo in $(pwd)",
        marker.display()
    );
    let Some((printed, status)) = place.run(Environment::Host, &[line(&attack)]) else { return };
    assert!(status.success(), "{status}: {printed}");
    assert!(fs::read(&marker).is_ok_and(|content| content == b"gone\n"), "the attack works: {printed}");
    fs::write(&marker, "intact").expect("the marker is ours");

    let patch =
        "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: made.txt\n+one\n+two\n*** End Patch\nEOF\n";
    let change = "apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: made.txt\n@@\n one\n-two\n+three\n*** End Patch\nEOF\n";
    let calls =
        [line(&attack), line("touch touched; echo after"), line(patch), line(change), line("cat made.txt")];
    let Some((printed, status)) = place.run(Environment::ExecServer, &calls) else { return };
    assert!(status.success(), "{status}: {printed}");
    let told = place.told();
    let directory = place.at("workspace").display().to_string();
    for seen in ["Seccomp:\\\\t2", "NoNewPrivs:\\\\t1", "no-touch", "touching is for people", "one\\\\nthree"]
    {
        let seen = seen.replace("\\\\", "\\");
        assert!(told.contains(&seen), "{seen:?} is not in {told}");
    }
    assert!(told.contains(&format!("in {directory}")), "{told}");
    assert_eq!(fs::read(&marker).expect("the marker is there"), b"intact");
    assert!(!place.at("workspace/touched").exists(), "{told}");
    assert_eq!(fs::read(place.at("workspace/made.txt")).expect("it was made"), b"one\nthree\n");
    // A file that lies outside of the workspace is not edited either.
    let outside = format!(
        "apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: {}\n@@\n-intact\n+gone\n*** End Patch\nEOF\n",
        marker.display()
    );
    let Some((printed, _)) = place.run(Environment::ExecServer, &[line(&outside)]) else { return };
    assert_eq!(fs::read(&marker).expect("the marker is there"), b"intact", "{printed}");
    place.gateway.stop();
}

#[test]
#[ignore = "long: installs from npm; .ci/long codex runs it"]
fn a_long_command_of_codex_runs_below_the_gateway_alone_and_ends_with_codex() {
    let place = Place::new();
    let Some(agent) = codex() else { return };
    let mark = mark();
    let model = model(&place.at("log"), &[line(&format!("setsid sleep {mark} & sleep {mark}"))]);
    // As at a terminal: the key reaches its whole process group.
    let mut agent = place.agent(agent, &model, Environment::ExecServer);
    let agent = agent.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = agent.spawn().expect("it starts");
    wait_for_sleepers(&mark, 2);
    // Below Codex there is nothing but itself and the server.
    let programs: Vec<String> = descendants(child.id()).iter().map(|pid| program_of(*pid)).collect();
    let is_expected = |program: &String| {
        ["codex", "node", "codex-code-mode-host"].contains(&program.as_str()) || program == "provost"
    };
    assert!(programs.iter().any(|program| program == "provost"), "{programs:?}");
    assert!(programs.iter().all(is_expected), "{programs:?}");
    kill(Pid::from_raw(-child.id().cast_signed()), Signal::SIGINT).expect("it is our child");
    child.wait().expect("it is our child");
    wait_for_sleepers(&mark, 0);
    wait_for_sessions_end(&place.gateway);
    place.gateway.stop();
}

#[test]
#[ignore = "long: installs from npm; .ci/long codex runs it"]
fn without_a_server_or_a_gateway_codex_runs_nothing_on_the_host() {
    let place = Place::new();
    let made = place.at("workspace/made");
    let calls = [line(&format!("echo made > '{}'", made.display()))];
    let Some((printed, _)) = place.run(Environment::Host, &calls) else { return };
    assert!(made.exists(), "without the environment it runs on the host: {printed}");
    fs::remove_file(&made).expect("it is ours");
    let Some((printed, _)) = place.run(Environment::Missing, &calls) else { return };
    assert!(!made.exists(), "{printed}");
    place.gateway.stop();
    let Some((printed, _)) = place.run(Environment::ExecServer, &calls) else { return };
    assert!(!made.exists(), "{printed}");
}

#[test]
#[ignore = "long: installs from npm; .ci/long codex runs it"]
fn a_server_that_is_killed_in_the_middle_leaves_codex_nowhere_else_to_run() {
    let place = Place::new();
    let (marker, begun) = (place.at("marker"), place.at("workspace/begun"));
    let attack = line(&format!("echo gone > '{}'", marker.display()));
    let Some((printed, _)) = place.run(Environment::Host, std::slice::from_ref(&attack)) else { return };
    assert!(fs::read(&marker).is_ok_and(|content| content == b"gone\n"), "the attack works: {printed}");
    fs::write(&marker, "intact").expect("the marker is ours");
    let Some(agent) = codex() else { return };
    let _ = fs::remove_file(place.at("log"));
    let model = model(&place.at("log"), &[line("echo > begun; sleep 1000"), attack.clone(), attack]);
    let mut agent = place.agent(agent, &model, Environment::ExecServer);
    let agent = agent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = agent.spawn().expect("it starts");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(eventually("the command runs", || begun.exists().then_some(())));
    let server = descendants(child.id()).into_iter().find(|pid| program_of(*pid) == "provost");
    let server = server.expect("Codex has started it").cast_signed();
    kill(Pid::from_raw(server), Signal::SIGKILL).expect("it is below our child");
    runtime.block_on(eventually("Codex ends", || child.try_wait().expect("it is our child")));
    assert!(place.told().contains("call_0"), "the model was told of the first command: {}", place.told());
    assert_eq!(fs::read(&marker).expect("the marker is there"), b"intact");
    place.gateway.stop();
}

/// All processes below one.
fn descendants(pid: u32) -> Vec<u32> {
    let parent_of = |pid: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let entries = fs::read_dir("/proc").expect("/proc is there").flatten();
    let pids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let mut below = vec![pid];
    let mut next = 0;
    while next < below.len() {
        let parent = below[next];
        below.extend(pids.iter().filter(|pid| parent_of(**pid) == Some(parent)));
        next += 1;
    }
    below.split_off(1)
}

fn program_of(pid: u32) -> String {
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    program.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
