//! Third-party agents from the registries, driven by a model on the loopback that wants one command run:
//! the command must come to the shim as `terminal/create`, run confined, and leave the host's marker as it was. First
//! the same command is run without confinement, where it must reach the marker.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use super::{
    fixture::Fixture,
    registry::{self, Missing, skip},
};
use crate::support::Model;

/// An agent, installed.
struct Agent {
    words: Vec<String>,
    env: Vec<(&'static str, String)>,
}

#[test]
#[ignore = "long: installs from npm or PyPI; .ci/run runs it"]
fn the_commands_of_claude_code_run_confined() {
    drive(|_, port| {
        let sources = registry::sources("agents/claude");
        let directory = registry::installed("claude", &sources, |directory| {
            for name in ["package.json", "package-lock.json"] {
                fs::copy(sources.join(name), directory.join(name)).expect("files can be copied");
            }
            registry::npm(directory, &["ci"])
        })?;
        let script = directory.join("node_modules/@zed-industries/claude-code-acp/dist/index.js");
        Ok(Agent {
            words: vec!["node".to_owned(), script.display().to_string()],
            env: vec![
                ("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{port}")),
                ("ANTHROPIC_API_KEY", "of no worth".to_owned()),
                ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
                ("DISABLE_TELEMETRY", "1".to_owned()),
                // It refuses to work for root otherwise.
                ("IS_SANDBOX", "1".to_owned()),
            ],
        })
    });
}

/// How often an agent is started again that fails by itself before it has asked for anything.
const ATTEMPTS: usize = 3;

fn drive(agent: impl Fn(&Fixture, u16) -> Result<Agent, Missing>) {
    let node = match registry::node() {
        Ok(node) => node,
        Err(missing) => return skip(&missing),
    };
    for attempt in 1..=ATTEMPTS {
        match converse(&agent, node) {
            Ok(Ended::Well) => return,
            // On a loaded machine mistral-vibe 2.20 reads a table while another of its threads changes it.
            Ok(Ended::AgentFailed(said)) if attempt < ATTEMPTS => {
                println!("ONCE MORE: the agent failed by itself before it asked for a terminal:\n{said}");
            }
            Ok(Ended::AgentFailed(said)) => panic!("the agent fails by itself every time:\n{said}"),
            Err(missing) => return skip(&missing),
        }
    }
}

/// How a conversation ended that was not our mistake.
enum Ended {
    Well,
    AgentFailed(String),
}

fn converse(agent: &impl Fn(&Fixture, u16) -> Result<Agent, Missing>, node: &Path) -> Result<Ended, Missing> {
    let fixture = Fixture::new();
    let attack = format!(
        "grep -E '^(Seccomp|NoNewPrivs):' /proc/self/status; echo gone > '{}'; echo in $(pwd)",
        fixture.word("marker")
    );
    it_works_outside(&attack, &fixture.path("marker"));
    let model = Model::start("tests/acp/agents/model.py", [&attack]);
    let agent = agent(&fixture, model.port)?;
    let mut editor = Command::new("node");
    editor
        .arg(node.join("editor.mjs"))
        .arg(fixture.path("report"))
        .arg("plain")
        .arg(fixture.path("workspace"));
    editor.arg("run").args(fixture.shim(&[], &agent.words)).env("HOME", fixture.path("home")).envs(agent.env);
    let (status, said) = fixture.run_to_its_end(&mut editor);
    let to_agent = fs::read_to_string(fixture.path("to_agent")).expect("the shim wrote to the agent");
    if !status.success() {
        // Whatever the shim answers to a request of the agent's is one of these two.
        let was_answered = to_agent.contains("\"terminalId\"") || to_agent.contains("\"error\"");
        assert!(!was_answered, "the editor ended with {status}\n{said}");
        fixture.marker_is_untouched();
        return Ok(Ended::AgentFailed(said));
    }
    let report: Value = serde_json::from_slice(&fs::read(fixture.path("report")).expect("there is a report"))
        .expect("the report is JSON");
    // The agent shows the command's output to its model, and the model says it again.
    let verdict = report["verdicts"]["run"].as_str().unwrap_or_default();
    for seen in ["Seccomp:\t2", "NoNewPrivs:\t1", &format!("in {}", fixture.word("workspace/run"))] {
        assert!(verdict.contains(seen), "{seen:?} is not in {verdict:?}\n{said}");
    }
    assert_eq!(report["foreign"], serde_json::json!([]), "the editor was asked for terminals");
    let created = to_agent.lines().filter(|line| line.contains("\"terminalId\"")).count();
    assert_eq!(created, 1, "one terminal was to be created:\n{to_agent}");
    fixture.marker_is_untouched();
    fixture.is_valid_by_the_schema(node);
    Ok(Ended::Well)
}

fn it_works_outside(attack: &str, marker: &Path) {
    let before = fs::read(marker).expect("the marker is there");
    let status = Command::new("sh").args(["-c", attack]).stdout(Stdio::null()).status().expect("sh starts");
    assert!(status.success());
    assert_eq!(fs::read_to_string(marker).ok().as_deref(), Some("gone\n"), "the attack works outside");
    fs::write(marker, before).expect("the marker can be written");
}

fn newer_python() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let installed = fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten();
    let named = ["python3.13", "python3.12", "python3"].map(PathBuf::from);
    // Some systems have one without what makes environments.
    let question = "import ensurepip, sys, venv; sys.exit(not (3, 12) <= sys.version_info[:2] <= (3, 13))";
    named.into_iter().chain(installed.map(|entry| entry.path().join("bin/python3"))).find(|python| {
        let asked = Command::new(python).args(["-c", question]).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    })
}

/// Run by `.ci/long` alone.
mod nightly {
    use super::*;

    #[test]
    #[ignore = "long: .ci/long agents runs it"]
    fn the_commands_of_mistral_vibe_run_confined() {
        // It needs a Python that is newer than that of some systems that CI runs on.
        let Some(python) = newer_python() else {
            println!("SKIPPED: no Python of 3.12 or later is here, which mistral-vibe needs");
            return;
        };
        drive(|fixture, port| {
            let sources = registry::sources("agents/vibe");
            let requirements = sources.join("requirements.txt").display().to_string();
            let python = python.display().to_string();
            let directory = registry::installed("vibe", &sources, |directory| {
                registry::venv(&python, directory, &["-r", &requirements])
            })?;
            let config = format!(
                "active_model = \"loopback\"\nenable_telemetry = false\nenable_update_checks = false\n\
             [[providers]]\nname = \"loopback\"\napi_base = \"http://127.0.0.1:{port}/v1\"\napi_key_env_var = \"\"\n\
             [[models]]\nname = \"loopback\"\nprovider = \"loopback\"\nalias = \"loopback\"\n"
            );
            fs::create_dir(fixture.path("home/.vibe")).expect("directories can be made");
            fs::write(fixture.path("home/.vibe/config.toml"), config).expect("files can be written");
            Ok(Agent {
                words: vec![directory.join("bin/vibe-acp").display().to_string()],
                env: vec![("MISTRAL_API_KEY", "of no worth".to_owned())],
            })
        });
    }

    /// It runs commands itself, and its own shell is switched off by what is known of it: its commands come by the tools.
    #[test]
    #[ignore = "long: installs 350 MB from npm; .ci/long agents runs it"]
    fn the_commands_of_opencode_run_confined_by_its_name() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/opencode");
        let installed = registry::installed("opencode", &sources, |directory| {
            for name in ["package.json", "package-lock.json"] {
                fs::copy(sources.join(name), directory.join(name)).expect("files can be copied");
            }
            registry::npm(directory, &["ci"])
        });
        let (installed, node) = match (installed, registry::node()) {
            (Ok(installed), Ok(node)) => (installed, node),
            (Err(missing), _) | (_, Err(missing)) => return skip(&missing),
        };
        let fixture = Fixture::new();
        let attack = format!(
            "grep -E '^(Seccomp|NoNewPrivs):' /proc/self/status; echo gone > '{}'; echo in $(pwd)",
            fixture.word("marker")
        );
        it_works_outside(&attack, &fixture.path("marker"));
        let run = |line: &str| {
            let model = Model::start("tests/acp/agents/model.py", [line]);
            let provider = serde_json::json!({ "npm": "@ai-sdk/openai-compatible", "name": "loopback",
            "options": { "baseURL": format!("http://127.0.0.1:{}/v1", model.port), "apiKey": "of no worth" },
            "models": { "loopback": { "name": "loopback", "tool_call": true } } });
            let settings = serde_json::json!({ "model": "loopback/loopback", "small_model": "loopback/loopback",
            "autoupdate": false, "share": "disabled", "provider": { "loopback": provider } });
            fs::create_dir_all(fixture.path("home/.config/opencode")).expect("directories can be made");
            fs::write(fixture.path("home/.config/opencode/opencode.json"), settings.to_string())
                .expect("files can be written");
            let path = std::env::var("PATH").expect("there is a path");
            let mut editor = Command::new("node");
            editor
                .arg(node.join("editor.mjs"))
                .arg(fixture.path("report"))
                .arg("plain")
                .arg(fixture.path("workspace"));
            editor
                .args(["run", env!("CARGO_BIN_EXE_provost"), "acp", "--policies"])
                .arg(fixture.path("policies"));
            editor.args(["--agent", "opencode"]).env("HOME", fixture.path("home"));
            editor.env(
                "PATH",
                format!("{}:{path}", installed.join("node_modules/opencode-linux-x64/bin").display()),
            );
            editor.env("OPENCODE_DISABLE_MODELS_FETCH", "1").env("OPENCODE_DISABLE_AUTOUPDATE", "1");
            let said = fixture.run(&mut editor);
            let report = fs::read(fixture.path("report")).expect("there is a report");
            let report: Value = serde_json::from_slice(&report).expect("the report is JSON");
            (report["verdicts"]["run"].as_str().unwrap_or_default().to_owned(), said)
        };
        let (verdict, said) = run(&attack);
        for seen in ["Seccomp:\t2", "NoNewPrivs:\t1", &format!("in {}", fixture.word("workspace/run"))] {
            assert!(verdict.contains(seen), "{seen:?} is not in {verdict:?}\n{said}");
        }
        assert!(said.contains("--confine-agent"), "its person is told: {said}");
        fixture.marker_is_untouched();
        let (verdict, said) = run("shred marker");
        assert!(verdict.contains("nothing is shredded here"), "{verdict:?}\n{said}");
    }
}
