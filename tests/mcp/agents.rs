//! A real agent, driven by a model on the loopback that wants one command run: the command must come to the tools, run
//! confined, and leave the host's marker as it was. First the same command is run without Provost, where it must reach the
//! marker.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use serde_json::json;

use crate::{
    mcp::libraries::{Library, Missing, run_bounded},
    support::{self, Gateway, Model},
};

/// A model that wants these commands run, one after the other.
pub(crate) fn model(commands: &[&str]) -> Model {
    Model::start("tests/acp/agents/model.py", commands)
}

pub(crate) fn claude_code() -> Result<Command, Missing> {
    // Once, for all tests that run side by side.
    static INSTALLED: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| install_claude_code().map_err(|Missing(why)| why));
    let directory = installed.as_ref().map_err(|why| Missing(why.clone()))?;
    let mut agent = Command::new("node");
    agent.arg(directory.join("node_modules/@anthropic-ai/claude-code/cli-wrapper.cjs"));
    Ok(agent)
}

fn install_claude_code() -> Result<PathBuf, Missing> {
    let mut library = Library::prepare("mcp-claude")?;
    library.sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/claude");
    for name in ["package.json", "package-lock.json"] {
        library.copy(name);
    }
    let mut npm = Command::new("npm");
    library.run(npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]))?;
    Ok(library.directory)
}

/// Has Claude Code talk to this model and to nobody else.
pub(crate) fn offline(agent: &mut Command, model: &Model, home: &Path) {
    agent
        .env("HOME", home)
        .env("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{}", model.port))
        .env("ANTHROPIC_API_KEY", "of no worth")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("DISABLE_TELEMETRY", "1")
        // The model on the loopback searches for no tools.
        .env("ENABLE_TOOL_SEARCH", "false")
        // It refuses to work for root otherwise.
        .env("IS_SANDBOX", "1");
}

#[test]
#[ignore = "long: installs from npm; .ci/run runs it"]
fn the_commands_of_claude_code_run_confined_by_the_tools() {
    let mut agent = match claude_code() {
        Ok(agent) => agent,
        Err(Missing(what)) => return support::skip(&what),
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| directory.path().join(name);
    for name in ["home", "workspace"] {
        fs::create_dir(at(name)).expect("a directory can be made");
    }
    let marker = at("marker");
    let attack = format!(
        "grep -E '^(Seccomp|NoNewPrivs):' /proc/self/status; echo gone > '{}'; echo in $(pwd)",
        marker.display()
    );
    let outside = Command::new("sh").args(["-c", &attack]).stdout(Stdio::null()).status().expect("sh starts");
    assert!(outside.success() && fs::read(&marker).expect("it is there") == b"gone\n", "the attack works");
    fs::write(&marker, "intact").expect("the marker is ours");

    let gateway = Gateway::start();
    let socket = format!("unix:{}", gateway.socket.display());
    let server = json!({ "command": env!("CARGO_BIN_EXE_provost"),
        "args": ["mcp", "--gateway", socket, "--root", at("workspace")] });
    fs::write(at("servers.json"), json!({ "mcpServers": { "provost": server } }).to_string())
        .expect("a file can be written");
    let model = model(&[&attack]);
    agent
        .args(["-p", "run it", "--strict-mcp-config", "--mcp-config"])
        .arg(at("servers.json"))
        .args(["--disallowedTools", "Bash", "--allowedTools", "mcp__provost__run_command"])
        .current_dir(at("workspace"));
    offline(&mut agent, &model, &at("home"));
    let (printed, status) = run_bounded(&mut agent);
    assert!(status.success(), "{status}: {printed}");
    let here = format!("in {}", at("workspace").display());
    for seen in ["The result is: exit code 0", "Seccomp:\t2", "NoNewPrivs:\t1", &here] {
        assert!(printed.contains(seen), "{seen:?} is not in {printed:?}");
    }
    assert_eq!(fs::read(&marker).expect("the marker is there"), b"intact");
    gateway.stop();
}
