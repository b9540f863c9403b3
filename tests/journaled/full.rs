//! A journal on a disk without room: nothing is started, everything else goes on, and it comes back by itself.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    time::Duration,
};

use nix::sys::signal::Signal;
use serde_json::Value;
use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;

use crate::{
    journaled::{
        disk::{SmallDisk, becomes},
        kinds, must_be_intact, record, records,
    },
    support::{Gateway, Refusal, Session, api::TerminalState, eventually},
};

fn must_be_the_journal(refusal: &Refusal) {
    assert_eq!(
        (refusal.code, refusal.reason.as_str()),
        (Code::Unavailable, "JOURNAL_UNWRITABLE"),
        "{refusal:?}"
    );
    assert_eq!(refusal.meta("step"), "append", "{refusal:?}");
    assert_eq!(refusal.meta("errno"), libc::ENOSPC.to_string(), "{refusal:?}");
}

/// A command with a secret has a sandbox of its own.
async fn gives_printenv_a_secret(gateway: &Gateway, disk: &SmallDisk) {
    let file = gateway.directory().join("kept");
    let mut secret = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&file).expect("a file");
    secret.write_all(b"a-value-that-is-kept\n").expect("it can be written");
    let rule = format!(
        "[secrets.KEPT]\nfile = {file:?}\n\
         [[rule]]\nid = 'kept'\ndecision = 'allow'\nargv = ['printenv', '**']\neffects.secrets = ['KEPT']\n"
    );
    fs::write(gateway.directory().join("policies/kept.toml"), rule).expect("a policy can be written");
    gateway.signal(Signal::SIGHUP);
    let is_second = |record: &Value| record["kind"] == "policy_loaded" && record["generation"] == 2;
    record(&disk.directory(), "the second policy", is_second).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_full_disk_refuses_commands_and_lets_kills_and_releases_go_on_until_it_has_room() {
    let Some(disk) = SmallDisk::mount() else { return };
    let gateway = disk.gateway();
    becomes(&gateway, ServingStatus::Serving).await;
    gives_printenv_a_secret(&gateway, &disk).await;
    let session = Session::open(&gateway).await;
    let killed = session.idle(&session.marker()).create().await;
    let released = session.idle(&session.marker()).create().await;
    let ended = session.sh("read line; echo $line").stdin().create().await;
    for terminal in [&killed, &released] {
        terminal.until("ready").await;
    }
    disk.fill();
    // The last page of the file has room for some; also for one behind another that was written together with an end.
    let mut started = 3;
    let mut refused_in_a_row = 0;
    while refused_in_a_row < 3 {
        match session.command("true").try_create().await {
            Err(refusal) => {
                must_be_the_journal(&refusal);
                refused_in_a_row += 1;
            }
            Ok(terminal) => {
                drop((terminal.wait().await, terminal.release().await));
                started += 1;
                refused_in_a_row = 0;
            }
        }
        assert!(started < 20, "the disk is full, and commands are started");
    }
    // A session's record is smaller than a command's, and may fit where that one did not.
    let one_more = crate::support::api::CreateSessionRequest {
        roots: vec![session.workspace.display().to_string()],
        ..Default::default()
    };
    let mut opened = Vec::new();
    while let Ok(fitted) = session.caller.sessions.clone().create_session(one_more.clone()).await {
        opened.push(fitted.into_inner().session.expect("it is set").id);
        assert!(opened.len() < 40, "the disk is full, and sessions are opened");
    }
    for session_id in opened {
        let close = crate::support::api::CloseSessionRequest { session_id };
        session.caller.sessions.clone().close_session(close).await.expect("closing takes no room");
    }
    let before = gateway.footprint();
    for _ in 0..3 {
        must_be_the_journal(&session.command("true").refusal().await);
    }
    // No sandbox is brought up for a command that is not written, whether it would be shared or not.
    let sandboxes = || fs::read_dir(gateway.state.join("sandboxes")).expect("it is there").count();
    let up = sandboxes();
    let offline = session.command("true").with(|request| request.profile = "offline".into());
    must_be_the_journal(&offline.refusal().await);
    must_be_the_journal(&session.command("printenv").refusal().await);
    assert_eq!(sandboxes(), up);
    becomes(&gateway, ServingStatus::NotServing).await;
    let doctor = std::process::Command::new(env!("CARGO_BIN_EXE_provost"))
        .args(["doctor", "-o", "json", "--state"])
        .arg(disk.directory().parent().expect("the disk"))
        .output()
        .expect("provost can be started");
    let found: serde_json::Value = serde_json::from_slice(&doctor.stdout).expect("it is JSON");
    assert_eq!(found["journal"]["is_full"], true, "{found}");
    let refused =
        session.caller.sessions.clone().create_session(one_more).await.expect_err("it is not written");
    must_be_the_journal(&Refusal::from(refused));
    // Nothing of what was refused is left.
    gateway.comes_back_to(&before).await;

    // All that ends commands, and all that reads them, goes on.
    ended.write(b"still here\n", crate::support::EndOfInput::After).await.expect("it runs");
    ended.wait().await;
    assert!(String::from_utf8_lossy(&ended.output().await.data).contains("still here"));
    killed.kill(Some(Duration::ZERO)).await;
    killed.wait().await;
    assert_eq!(killed.get().await.expect("it is there").state(), TerminalState::Finished);
    released.try_release(Some(Duration::ZERO)).await.expect("it is released");

    disk.empty();
    becomes(&gateway, ServingStatus::Serving).await;
    session.command("true").finish().await;
    session.close().await;
    gateway.stop();
    must_be_intact(&disk.directory());
    let all = records(&disk.directory(), &[]);
    let unwritten: u64 = all
        .iter()
        .filter(|record| record["kind"] == "unwritten")
        .filter_map(|record| record["records"].as_u64())
        .sum();
    // Four creates of two records, a session, and of the ends and kills what did not fit.
    assert!(unwritten >= 9, "{unwritten} of {:?}", kinds(&all));
    let spawns = kinds(&all).iter().filter(|kind| **kind == "spawn").count();
    assert_eq!(spawns, started + 1, "{:?}", kinds(&all));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_gateway_starts_on_a_full_disk_and_is_ready_when_there_is_room() {
    let Some(disk) = SmallDisk::mount() else { return };
    // The directory is there; the disk is full.
    std::fs::create_dir(disk.directory()).expect("a directory can be made");
    std::fs::set_permissions(disk.directory(), std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .expect("the directory is ours");
    std::fs::write(disk.directory().join("lock"), "").expect("a file can be made");
    disk.fill();
    let gateway = disk.gateway();
    becomes(&gateway, ServingStatus::NotServing).await;
    disk.empty();
    becomes(&gateway, ServingStatus::Serving).await;
    let session = Session::open(&gateway).await;
    session.command("true").finish().await;
    session.close().await;
    let directory = disk.directory();
    eventually("the exit", || kinds(&records(&directory, &[])).contains(&"exit").then_some(())).await;
    gateway.stop();
    must_be_intact(&directory);
}
