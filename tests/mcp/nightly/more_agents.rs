//! Further real agents with `provost mcp` as their server and their own shell switched off, each driven by a model on the loopback:
//! a command runs confined, a denied one does not, and the journal says who ran them, by which front end and rule.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    mcp::{
        agents::model,
        libraries::{Library, Missing, run_bounded},
    },
    support::{self, Gateway, deny_touch},
};

/// Installs what `tests/mcp/NAME/package.json` names, and gives the directory with it.
fn installed(name: &str) -> Result<PathBuf, Missing> {
    let mut library = Library::prepare(&format!("mcp-{name}"))?;
    library.sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp").join(name);
    for file in ["package.json", "package-lock.json"] {
        library.copy(file);
    }
    let mut npm = Command::new("npm");
    library.run(npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]))?;
    Ok(library.directory)
}

#[test]
#[ignore = "long: installs 350 MB from npm; .ci/long agents runs it"]
fn the_commands_of_opencode_run_confined_by_the_tools() {
    drive("opencode", |directory, home, port, server| {
        let mut command = vec![json!(server[0])];
        command.extend(server[1..].iter().map(|word| json!(word)));
        let model = json!({ "npm": "@ai-sdk/openai-compatible", "name": "loopback",
            "options": { "baseURL": format!("http://127.0.0.1:{port}/v1"), "apiKey": "of no worth" },
            "models": { "loopback": { "name": "loopback", "tool_call": true } } });
        let settings = json!({ "model": "loopback/loopback", "small_model": "loopback/loopback", "autoupdate": false,
            "share": "disabled", "provider": { "loopback": model }, "permission": { "bash": "deny" },
            "mcp": { "provost": { "type": "local", "command": command } } });
        write(&home.join(".config/opencode/opencode.json"), &settings);
        let mut agent = Command::new(directory.join("node_modules/opencode-linux-x64/bin/opencode"));
        agent.args(["run", "run it"]).env("OPENCODE_DISABLE_MODELS_FETCH", "1");
        agent.env("OPENCODE_DISABLE_AUTOUPDATE", "1");
        agent
    });
}

#[test]
#[ignore = "long: installs 100 MB from npm; .ci/long agents runs it"]
fn the_commands_of_gemini_cli_run_confined_by_the_tools() {
    drive("gemini", |directory, home, port, server| {
        let mut settings: Value =
            serde_json::from_str(include_str!("../gemini/settings.json")).expect("the settings are JSON");
        settings["mcpServers"] =
            json!({ "provost": { "command": server[0], "args": server[1..], "trust": true } });
        write(&home.join(".gemini/settings.json"), &settings);
        let mut agent = Command::new("node");
        agent.arg(directory.join("node_modules/@google/gemini-cli/bundle/gemini.js"));
        agent.args(["--model", "gemini-2.5-flash", "--approval-mode", "yolo", "--prompt", "run it"]);
        agent.env("GEMINI_API_KEY", "of no worth").env("GEMINI_CLI_TRUST_WORKSPACE", "true");
        agent.env("GOOGLE_GEMINI_BASE_URL", format!("http://127.0.0.1:{port}"));
        agent
    });
}

/// It keeps tools of servers back until its model searches for them.
#[test]
#[ignore = "long: installs 55 MB from npm; .ci/long agents runs it"]
fn the_commands_of_qwen_code_run_confined_by_the_tools() {
    drive("qwen", |directory, home, port, server| {
        let settings = json!({ "security": { "auth": { "selectedType": "openai" } },
            "general": { "enableAutoUpdate": false }, "privacy": { "usageStatisticsEnabled": false },
            "mcpServers": { "provost": { "command": server[0], "args": server[1..], "trust": true } } });
        write(&home.join(".qwen/settings.json"), &settings);
        let mut agent = Command::new("node");
        agent.arg(directory.join("node_modules/@qwen-code/qwen-code/cli.js"));
        agent.args([
            "--approval-mode",
            "yolo",
            "--exclude-tools",
            "run_shell_command,monitor",
            "--prompt",
            "run it",
        ]);
        agent.env("OPENAI_BASE_URL", format!("http://127.0.0.1:{port}/v1"));
        agent.env("OPENAI_API_KEY", "of no worth").env("OPENAI_MODEL", "loopback");
        agent
    });
}

fn write(file: &Path, settings: &Value) {
    fs::create_dir_all(file.parent().expect("it lies in a home")).expect("a directory can be made");
    fs::write(file, settings.to_string()).expect("a file can be written");
}

/// Has an agent run what must not reach the host, and what a rule denies. `agent` is given its installation, its home, the
/// model's port and the words that start the server.
fn drive(name: &str, agent: impl Fn(&Path, &Path, u16, &[String]) -> Command) {
    let installation = match installed(name) {
        Ok(installation) => installation,
        Err(Missing(what)) => return support::skip(&what),
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("workspace")).expect("a directory can be made");
    let marker = at("marker");
    let attack =
        format!("grep Seccomp: /proc/self/status; echo gone > '{}'; echo in $(pwd)", marker.display());
    let outside = Command::new("sh").args(["-c", &attack]).stdout(Stdio::null()).status().expect("sh starts");
    assert!(outside.success() && fs::read(&marker).expect("it is there") == b"gone\n", "the attack works");
    fs::write(&marker, "intact").expect("the marker is ours");

    let gateway = Gateway::with_policy(deny_touch);
    let run = |line: &str| {
        let model = model(&[line]);
        let server = [
            env!("CARGO_BIN_EXE_provost"),
            "mcp",
            "--gateway",
            &format!("unix:{}", gateway.socket.display()),
            "--root",
            &at("workspace").display().to_string(),
        ]
        .map(str::to_owned);
        let mut agent = agent(&installation, &at("home"), model.port, &server);
        // Some take it for the current directory.
        agent.current_dir(at("workspace")).env("PWD", at("workspace")).env("HOME", at("home"));
        let (printed, status) = run_bounded(&mut agent);
        assert!(status.success(), "{status}: {printed}");
        printed
    };
    let printed = run(&attack);
    for seen in ["exit code 0", "Seccomp:\t2", &format!("in {}", at("workspace").display())] {
        assert!(printed.contains(seen), "{seen:?} is not in {printed:?}");
    }
    assert_eq!(fs::read(&marker).expect("the marker is there"), b"intact");
    let printed = run("touch made");
    assert!(printed.contains("touching is for people") && printed.contains("no-touch"), "{printed}");
    assert!(!at("workspace/made").exists(), "{printed}");

    let decisions = decisions(&gateway);
    let user = format!("uid:{}", nix::unistd::geteuid());
    for (rule, decision) in [("anything", "allow"), ("no-touch", "deny")] {
        let found = decisions.iter().find(|record| record["rule"] == rule);
        let found = found.unwrap_or_else(|| panic!("no decision by {rule}: {decisions:?}"));
        let seen = (&found["decision"], &found["front_end"], &found["principal"]);
        assert_eq!(seen, (&json!(decision), &json!("mcp"), &json!(user)), "{found}");
    }
    gateway.stop();
}

fn decisions(gateway: &Gateway) -> Vec<Value> {
    let mut audit = Command::new(env!("CARGO_BIN_EXE_provost"));
    audit.args(["audit", "--journal"]).arg(gateway.state.join("journal"));
    audit.args(["query", "-o", "json", "--front-end", "mcp"]);
    let output = audit.output().expect("provost can be started");
    let lines = String::from_utf8(output.stdout).expect("records are text");
    let records =
        lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")["record"].clone());
    records.filter(|record| record["kind"] == "decision").collect()
}
