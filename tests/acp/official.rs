//! Agents and editors that were written with the official SDKs, all four pairs of them, with the shim in between:
//! the five methods, every combination of parameters, errors, the timeout pattern, concurrency, questions, and what
//! the editor is shown.

use std::{fs, process::Command};

use serde_json::Value;

use super::{
    fixture::Fixture,
    registry::{self, Missing, skip},
};
use crate::support::acp_conformance;

/// What both agents can do; the names of prompts.
const SCENARIOS: [&str; 16] = [
    "exchange",
    "parameters",
    "forms",
    "errors",
    "denied",
    "asked",
    "rejected",
    "timeout",
    "many",
    "waiting_release",
    "cancelled",
    "text",
    "live",
    "leave_running",
    "look_at_left",
    "by_itself",
];

#[derive(Debug, Clone, Copy)]
enum Sdk {
    Npm,
    PyPi,
}

/// What the editor says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Streaming,
}

impl Sdk {
    fn script(self, name: &str) -> Result<Vec<String>, Missing> {
        Ok(match self {
            Self::Npm => {
                let directory = registry::node()?;
                vec!["node".to_owned(), directory.join(format!("{name}.mjs")).display().to_string()]
            }
            Self::PyPi => {
                let script = registry::sources("python").join(format!("{name}.py"));
                vec![registry::python()?.display().to_string(), script.display().to_string()]
            }
        })
    }
}

#[test]
#[ignore = "long: installs from npm or PyPI; .ci/run runs it"]
fn an_npm_agent_works_in_a_plain_npm_editor() {
    converse(Sdk::Npm, Sdk::Npm, Kind::Plain);
}

#[test]
#[ignore = "long: installs from npm or PyPI; .ci/run runs it"]
fn an_npm_agent_works_in_a_streaming_pypi_editor() {
    converse(Sdk::Npm, Sdk::PyPi, Kind::Streaming);
}

#[test]
#[ignore = "long: installs from npm or PyPI; .ci/run runs it"]
fn a_pypi_agent_works_in_a_streaming_npm_editor() {
    converse(Sdk::PyPi, Sdk::Npm, Kind::Streaming);
}

#[test]
#[ignore = "long: installs from npm or PyPI; .ci/run runs it"]
fn a_pypi_agent_works_in_a_plain_pypi_editor() {
    converse(Sdk::PyPi, Sdk::PyPi, Kind::Plain);
}

fn converse(agent: Sdk, editor: Sdk, kind: Kind) {
    let ends_in_peace = matches!(editor, Sdk::Npm);
    let found =
        agent.script("agent").and_then(|agent| Ok((agent, editor.script("editor")?, registry::node()?)));
    let (agent, editor, node) = match found {
        Ok(found) => found,
        Err(missing) => return skip(&missing),
    };
    let fixture = Fixture::new();
    let shim = fixture.shim(&[], &agent);
    let mut command = Command::new(&editor[0]);
    command.args(&editor[1..]).arg(fixture.path("report"));
    command.arg(if kind == Kind::Plain { "plain" } else { "streaming" });
    command.arg(fixture.path("workspace")).arg(SCENARIOS.join(",")).args(shim);
    let said = fixture.run(&mut command);
    let report: Value =
        serde_json::from_slice(&fs::read(fixture.path("report")).expect("the editor wrote its report"))
            .expect("the report is JSON");
    for scenario in SCENARIOS {
        assert_eq!(report["verdicts"][scenario], "PASSED", "{scenario}\n{said}");
    }
    assert_eq!(report["foreign"], serde_json::json!([]), "the editor was asked for what is not its own");
    assert_eq!(report["stopReason"], "end_turn");
    if ends_in_peace {
        // The PyPI SDK waits for two seconds and then sends SIGTERM, which is seldom enough on a loaded machine.
        assert_eq!(report["status"], 0, "the shim ends well");
    }
    questions_were_asked(&report);
    match kind {
        Kind::Plain => output_was_shown_as_text(&report),
        Kind::Streaming => output_was_streamed(&report),
    }
    assert!(
        said.contains("neither judged nor confined") && said.contains("--confine-agent"),
        "nothing was said of an agent that runs commands by itself:\n{said}"
    );
    fixture.marker_is_untouched();
    fixture.is_valid_by_the_schema(node);
}

/// As an agent of any editor: what it reports is the message that it answers a prompt with.
#[test]
#[ignore = "long: installs from npm or PyPI; .ci/run runs it"]
fn inside_an_editor_the_conformance_suite_reports_at_a_prompt() {
    let found = Sdk::Npm.script("editor").and_then(|editor| Ok((editor, registry::node()?)));
    let (editor, node) = match found {
        Ok(found) => found,
        Err(missing) => return skip(&missing),
    };
    let fixture = Fixture::new();
    let shim = fixture.shim(&[], &[acp_conformance().display().to_string()]);
    let prompt = "TC-001 TC-071 TC-096 TC-160";
    let mut command = Command::new(&editor[0]);
    command.args(&editor[1..]).arg(fixture.path("report")).arg("plain").arg(fixture.path("workspace"));
    let said = fixture.run(command.arg(prompt).args(shim));
    let report: Value = serde_json::from_slice(&fs::read(fixture.path("report")).expect("there is a report"))
        .expect("the report is JSON");
    let verdict = report["verdicts"][prompt].as_str().unwrap_or_default();
    for line in ["TC-001 pass", "TC-071 pass", "TC-096 pass", "TC-160 skip", "1 skipped: conforms"] {
        assert!(verdict.contains(line), "{line:?} is not in {verdict:?}\n{said}");
    }
    fixture.is_valid_by_the_schema(node);
}

fn questions_were_asked(report: &Value) {
    let asked = report["permissions"].as_array().expect("a list");
    let scenarios: Vec<&str> = asked.iter().filter_map(|asked| asked["scenario"].as_str()).collect();
    assert_eq!(scenarios, ["asked", "rejected"], "{asked:#?}");
    for question in asked {
        assert!(
            question.to_string().contains("factors are for grown-ups"),
            "the reason is not told: {question}"
        );
        assert!(question.to_string().contains("factor"), "the command is not told: {question}");
        let kinds: Vec<&str> = question["options"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|o| o["kind"].as_str())
            .collect();
        let either =
            kinds.iter().any(|k| k.starts_with("allow")) && kinds.iter().any(|k| k.starts_with("reject"));
        assert!(either, "one must be able to say yes and no: {question}");
    }
}

/// Updates of a tool call, in their order.
fn updates<'a>(report: &'a Value, call: &str) -> Vec<&'a Value> {
    let all = report["updates"].as_array().expect("a list");
    let of_call: Vec<&Value> =
        all.iter().map(|update| &update["update"]).filter(|update| update["toolCallId"] == call).collect();
    assert!(!of_call.is_empty(), "the editor was told nothing of {call}");
    of_call
}

fn texts(report: &Value, call: &str) -> Vec<String> {
    let blocks = |update: &Value| update["content"].as_array().cloned().unwrap_or_default();
    let mut shown = Vec::new();
    for update in updates(report, call) {
        for block in blocks(update) {
            assert_ne!(block["type"], "terminal", "the editor was shown a terminal that it does not know");
            shown.extend(block["content"]["text"].as_str().map(str::to_owned));
        }
    }
    shown
}

fn output_was_shown_as_text(report: &Value) {
    let last = texts(report, "call-exchange").pop().expect("something was shown");
    assert!(last.contains("to-stdout\nto-stderr"), "in the end there is {last:?}");
    let live = texts(report, "call-live");
    assert!(live.last().is_some_and(|last| last.contains("line 5\nline 6")), "in the end there is {live:?}");
    let growing = live.iter().filter(|text| text.contains("line 1") && !text.contains("line 6")).count();
    assert!(growing >= 1, "the text was not kept up to date: {live:?}");
    assert!(texts(report, "call-timeout").iter().any(|text| text.contains("begun")));
}

fn metas<'a>(report: &'a Value, call: &str, key: &str) -> Vec<&'a Value> {
    let metas = updates(report, call).into_iter().map(|update| &update["_meta"][key]);
    metas.filter(|meta| !meta.is_null()).collect()
}

fn output_was_streamed(report: &Value) {
    for (call, whole, code) in [
        ("call-exchange", "to-stdout\nto-stderr\n", 3),
        ("call-live", "line 1\nline 2\nline 3\nline 4\nline 5\nline 6\n", 0),
    ] {
        assert!(!metas(report, call, "terminal_info").is_empty(), "{call}: no terminal_info");
        let data: String = metas(report, call, "terminal_output")
            .iter()
            .filter_map(|output| output["data"].as_str())
            .collect();
        assert_eq!(data, whole, "{call}");
        let exits = metas(report, call, "terminal_exit");
        assert_eq!(exits.len(), 1, "{call}: {exits:?}");
        assert_eq!(exits[0]["exit_code"], code, "{call}");
    }
    let exits = metas(report, "call-timeout", "terminal_exit");
    assert_eq!(exits.len(), 1, "{exits:?}");
    assert_eq!(exits[0]["signal"], "SIGTERM");
}
