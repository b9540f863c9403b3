//! Who learns of a refused exec: the outcome, `provost run`, its report, the journal.

use crate::support::lacks;
use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::Command,
    sync::Arc,
};

use provost::proto::v1::ExecDenialCause;
use serde_json::Value;

use crate::support::{Gateway, Options, Session, add_rule, code, in_session};

/// The rule that denies, and its reason.
pub(crate) const RULE: &str = "no-publishing";
pub(crate) const REASON: &str = "publishing is for people";
/// Its only target does what the rule denies, ignores that this fails, and goes on.
const MAKEFILE: &str = "all:\n\t-touch published\n\t@echo done\n";

/// A gateway with a gate, and rules about `touch`.
pub(crate) fn gateway() -> Arc<Gateway> {
    gateway_with(Options::default())
}

pub(crate) fn gateway_with(options: Options) -> Arc<Gateway> {
    // The shipped profile has a gate.
    Gateway::start_with(Options { policy: Some(rules), ..options })
}

/// The same rules under a profile without a gate.
fn ungated(policy: &mut toml::Table) {
    rules(policy);
    without_gate(policy);
}

/// The shipped policy, without the gate.
pub(crate) fn without_gate(policy: &mut toml::Table) {
    policy["profile"]["workspace"]["gate"]["enabled"] = false.into();
}

pub(crate) fn rules(policy: &mut toml::Table) {
    for rule in [
        format!("id = '{RULE}'\ndecision = 'deny'\nargv = ['touch', 'published', '**']\nreason = '{REASON}'"),
        "id = 'wrapper'\ndecision = 'deny'\nargv = ['./tool', 'publish', '**']\nreason = 'not from here'"
            .to_owned(),
        "id = 'careful'\ndecision = 'ask'\nargv = ['touch', 'asked', '**']\nreason = 'it is asked about'"
            .to_owned(),
    ] {
        add_rule(policy, &rule);
    }
}

/// A script in a file, which nobody reads before it runs. It names programs by their paths where they are refused: a shell that
/// looks for a name goes on to the next directory after EACCES.
pub(crate) fn script(session: &Session, text: &str) -> crate::support::Command {
    fs::write(session.workspace.join("script"), text).expect("a file can be made");
    session.command("sh").args(["script"])
}

/// The records of one kind in a gateway's journal.
pub(crate) fn records(gateway: &Gateway, kind: &str) -> Vec<Value> {
    records_in(&gateway.state.join("journal"), kind)
}

pub(crate) fn records_in(journal: &Path, kind: &str) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_provost"))
        .args(["audit", "--journal"])
        .arg(journal)
        .args(["query", "-o", "json"])
        .output()
        .expect("provost can be started");
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).expect("records are text");
    let record = |line: &str| serde_json::from_str::<Value>(line).expect("a line is JSON")["record"].take();
    lines.lines().map(record).filter(|record| record["kind"] == kind).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_gate_a_makefile_does_what_a_rule_denies() {
    if lacks(&["make"]) {
        return;
    }
    let gateway = Gateway::with_policy(ungated);
    in_session(&gateway, async |session| {
        fs::write(session.workspace.join("Makefile"), MAKEFILE).expect("a file can be made");
        let done = session.command("make").finish().await;
        assert_eq!(code(&done.outcome), 0, "{}", done.text());
        assert!(session.workspace.join("published").exists(), "the attack works");
        assert!(done.outcome.exec_denials.is_empty());
    })
    .await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relative_rule_holds_for_a_process_that_has_left_the_workspace() {
    let gateway = gateway();
    let session = Session::open(&gateway).await;
    let workspace = session.workspace.clone();
    let tool = workspace.join("tool");
    fs::write(&tool, "#!/bin/sh\necho did $1\n").expect("a file can be made");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).expect("it can be executable");
    symlink(&tool, workspace.join("other")).expect("a link can be made");
    // From a directory below the root: what counts is where the command began, and the roots.
    fs::create_dir(workspace.join("app")).expect("a directory can be made");
    for from in [".", "app"] {
        for name in ["tool", "other"] {
            let text = format!("cd /tmp; {0} build; {0} publish; echo $?", workspace.join(name).display());
            fs::write(workspace.join("script"), text).expect("a file can be made");
            let command = session.command("sh").args([workspace.join("script").display().to_string()]);
            let done = command.cwd(workspace.join(from)).finish().await;
            assert_eq!(done.text().lines().next(), Some("did build"), "{}", done.text());
            assert_eq!(done.text().lines().last(), Some("126"), "{}", done.text());
            assert!(!done.text().contains("did publish"), "{}", done.text());
            let [denial] = &done.outcome.exec_denials[..] else { panic!("{:?}", done.outcome) };
            assert_eq!((denial.rule.as_str(), denial.cwd.as_str()), ("wrapper", "/tmp"));
        }
    }
    session.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exec_that_is_refused_in_a_makefile_is_told_also_when_make_ends_with_0() {
    if lacks(&["make"]) {
        return;
    }
    let gateway = gateway();
    let session = Session::open(&gateway).await;
    fs::write(session.workspace.join("Makefile"), MAKEFILE).expect("a file can be made");
    let done = session.command("make").finish().await;
    assert_eq!(code(&done.outcome), 0, "{}", done.text());
    assert!(!session.workspace.join("published").exists(), "{}", done.text());
    assert!(done.text().contains("done"), "{}", done.text());
    let [denial] = &done.outcome.exec_denials[..] else { panic!("{:?}", done.outcome) };
    assert!(denial.program.ends_with("/touch"), "{denial:?}");
    assert_eq!(denial.args, ["published"]);
    assert_eq!((denial.rule.as_str(), denial.reason.as_str()), (RULE, REASON));
    assert_eq!(denial.cause(), ExecDenialCause::Rule);
    assert_eq!(denial.cwd, session.workspace.display().to_string());
    assert_eq!(done.outcome.exec_denials_omitted, 0);

    let denied = records(&gateway, "exec_denied");
    let [record] = &denied[..] else { panic!("{denied:#?}") };
    assert_eq!((&record["rule"], &record["reason"]), (&RULE.into(), &REASON.into()));
    assert_eq!((&record["terminal"], &record["report"]), (&done.id.as_str().into(), &1.into()));
    assert_eq!(record["exec"]["argv_sha256"].as_str().map(str::len), Some(64));

    let printed = Command::new(env!("CARGO_BIN_EXE_provost"))
        .args(["run", "--gateway", &format!("unix:{}", gateway.socket.display()), "--report", "report.json"])
        .args(["--", "make"])
        .current_dir(&session.workspace)
        .output()
        .expect("provost starts");
    let stderr = String::from_utf8_lossy(&printed.stderr);
    assert_eq!(printed.status.code(), Some(0), "{stderr}");
    let line = stderr
        .lines()
        .find(|line| line.starts_with("provost: denied: "))
        .unwrap_or_else(|| panic!("{stderr}"));
    assert!(line.ends_with(&format!("touch published: {REASON} (rule \"{RULE}\")")), "{line}");
    let report = fs::read_to_string(session.workspace.join("report.json")).expect("there is a report");
    let report: Value = serde_json::from_str(&report).expect("it is JSON");
    assert_eq!(report["outcome"]["exec_denials"][0]["rule"], RULE);
    assert_eq!(report["receipt"]["gate"], "verified");
    session.close().await;
    gateway.stop();
}
