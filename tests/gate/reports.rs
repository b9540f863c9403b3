//! Reports of gates across restarts, reloads and a journal that cannot be written: complete, each once.

use std::{collections::BTreeSet, fs};

use provost::proto::v1::{ReloadPolicyRequest, policies_client::PoliciesClient};
use serde_json::Value;

use crate::{
    gate::{
        disk::{SmallDisk, becomes},
        told::{RULE, gateway, gateway_with, records, records_in, script},
    },
    support::{EndOfInput, Gateway, Options, Session, code, eventually, within},
};
use tonic_health::pb::health_check_response::ServingStatus;

/// Execs of each kind in the script, and how many come before the gateway is killed.
const EXECS: u64 = 300;

/// How many refused execs a journal has, and the reports that it has them from.
fn denied_count(records: &[Value], repeated: &[Value]) -> u64 {
    let reports: BTreeSet<u64> = records.iter().filter_map(|record| record["report"].as_u64()).collect();
    assert_eq!(reports.len(), records.len(), "each report is there once");
    let counted = repeated.iter().filter(|one| one["rule"] == RULE);
    records.len() as u64 + counted.filter_map(|one| one["times"].as_u64()).sum::<u64>()
}

/// How often the journal says that a program was executed.
pub(crate) fn allowed_count(records: &[Value], name: &str) -> u64 {
    let execs = records.iter().filter_map(|record| record["execs"].as_array()).flatten();
    let of_name =
        execs.filter(|exec| exec["argv"][0].as_str().is_some_and(|program| program.ends_with(name)));
    of_name.filter_map(|exec| exec["count"].as_u64()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_killed_in_the_middle_loses_no_count() {
    let gateway = gateway();
    let session = Session::open(&gateway).await;
    let text = format!(
        "n=0; while [ $n -lt {EXECS} ]; do /usr/bin/touch published 2>/dev/null; env true; n=$((n+1)); echo $n; done"
    );
    let terminal = script(&session, &text).retain(1 << 20).create().await;
    terminal.until("\n100\n").await;
    gateway.crash();
    gateway.start_again();
    let caller = gateway.caller().await;
    let terminal = terminal.over(&caller);
    let outcome = terminal.wait().await;
    assert_eq!(code(&outcome), 0);
    assert_eq!(outcome.exec_denials.len(), 64);
    assert_eq!(outcome.exec_denials.len() as u64 + outcome.exec_denials_omitted, EXECS, "{outcome:?}");
    assert!(!session.workspace.join("published").exists());
    terminal.release().await;
    eventually("all allowed execs", || {
        (allowed_count(&records(&gateway, "execs_allowed"), "env") == EXECS).then_some(())
    })
    .await;
    let denied = records(&gateway, "exec_denied");
    assert_eq!(denied_count(&denied, &records(&gateway, "refusals_repeated")), EXECS);
    // What was published is what the next gateway publishes.
    gateway.crash();
    gateway.start_again();
    assert_eq!(
        denied_count(&records(&gateway, "exec_denied"), &records(&gateway, "refusals_repeated")),
        EXECS
    );
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_gateway_has_the_refused_execs_of_an_ended_command() {
    let gateway = gateway();
    let session = Session::open(&gateway).await;
    let terminal =
        script(&session, "/usr/bin/touch published; /usr/bin/touch published; true").create().await;
    let before = terminal.wait().await;
    assert_eq!(before.exec_denials.len(), 2, "{before:?}");
    gateway.crash();
    gateway.start_again();
    let caller = gateway.caller().await;
    assert_eq!(terminal.over(&caller).wait().await.exec_denials, before.exec_denials);
    assert_eq!(records(&gateway, "exec_denied").len(), 2);
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_reaches_the_next_exec_of_a_command_that_runs() {
    let gateway = gateway();
    let session = Session::open(&gateway).await;
    let text = "while /usr/bin/touch free; do sleep 0.05; done; echo refused";
    let terminal = script(&session, text).create().await;
    eventually("an exec", || session.workspace.join("free").exists().then_some(())).await;
    let rule =
        "\n[[rule]]\nid = 'no-more'\ndecision = 'deny'\nargv = ['touch', 'free', '**']\nreason = 'enough'\n";
    let more = gateway.directory().join("policies/more.toml");
    fs::write(&more, rule).expect("the policy can be written");
    let mut policies = PoliciesClient::new(session.caller.channel());
    within("a reload", policies.reload_policy(ReloadPolicyRequest {})).await.expect("it is loaded");
    let outcome = terminal.wait().await;
    let [denial] = &outcome.exec_denials[..] else { panic!("{outcome:?}") };
    assert_eq!((denial.rule.as_str(), denial.reason.as_str()), ("no-more", "enough"));
    session.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_journal_cannot_be_written_execs_are_refused_and_recorded_later() {
    let Some(disk) = SmallDisk::mount() else { return };
    let config = Some(format!("[journal]\ndirectory = {:?}\n", disk.directory().display().to_string()));
    let gateway = gateway_with(Options { config, ..Options::default() });
    let session = Session::open(&gateway).await;
    let text = "read go; /usr/bin/touch published; touch free; echo ended; read more";
    let terminal = script(&session, text).stdin().create().await;
    disk.fill();
    // Makes the gateway write, and find that it cannot. The last page of the file has room for some records.
    let mut refused_in_a_row = 0;
    while refused_in_a_row < 3 {
        match session.command("true").try_create().await {
            Ok(started) => {
                started.wait().await;
                refused_in_a_row = 0;
            }
            Err(_) => refused_in_a_row += 1,
        }
    }
    becomes(&gateway, ServingStatus::NotServing).await;
    terminal.write(b"go\n", EndOfInput::NotYet).await.expect("it reads");
    terminal.until("ended").await;
    assert!(!session.workspace.join("published").exists());
    assert!(records_in(&disk.directory(), "exec_denied").is_empty());
    disk.empty();
    becomes(&gateway, ServingStatus::Serving).await;
    eventually("the record of it", || {
        (records_in(&disk.directory(), "exec_denied").len() == 1).then_some(())
    })
    .await;
    terminal.write(b"more\n", EndOfInput::After).await.expect("it reads");
    assert_eq!(terminal.wait().await.exec_denials.len(), 1);
    session.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_whose_gate_is_lost_takes_no_new_command_and_its_commands_go_on() {
    let gateway = gateway();
    let session = Session::open(&gateway).await;
    let terminal = script(&session, "read go; env true; echo env $?").stdin().create().await;
    let first = terminal.get().await.expect("it runs").receipt.expect("it has one").sandbox_id;
    let gate = gate_process(&gateway);
    nix::sys::signal::kill(gate, nix::sys::signal::Signal::SIGKILL).expect("it runs");
    eventually("the record of it", || records(&gateway, "gate_lost").pop()).await;
    let done = session.command("true").finish().await;
    assert_eq!(code(&done.outcome), 0);
    let second = session.command("true").create().await;
    second.wait().await;
    let receipt = second.get().await.expect("it is there").receipt.expect("it has one");
    assert_ne!(receipt.sandbox_id, first);
    terminal.write(b"go\n", EndOfInput::NotYet).await.expect("it reads");
    let text = terminal.until("env ").await;
    assert!(!text.contains("env 0"), "{text}");
    session.close().await;
    gateway.stop();
}

/// The only gate of a gateway: its child of that name.
fn gate_process(gateway: &Gateway) -> nix::unistd::Pid {
    let children = fs::read_dir("/proc").expect("there is /proc").filter_map(|entry| {
        let entry = entry.ok()?;
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        let field =
            |name: &str| status.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()));
        let is_gate = field("Name:")?.contains("gate");
        let is_child = field("PPid:")?.parse() == Ok(gateway.pid_now());
        (is_gate && is_child).then(|| entry.file_name().to_str()?.parse().ok())?
    });
    nix::unistd::Pid::from_raw(children.last().expect("there is a gate"))
}
