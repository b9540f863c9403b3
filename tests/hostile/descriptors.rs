//! Descriptors of the gateway: one principal's sessions and terminals take their part, and another one's open all the
//! same.
//!
//! The gateway may open few files, by the limit of a shell that starts it.

use std::{
    fs,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::Command,
};

use tonic::Code;

use crate::{
    hostile::flood::{ATTACKER, the_victim_is_served},
    support::{Gateway, Options, Refusal, Session, api::CreateSessionRequest, is_root, skip, within},
};

/// What the gateway may have open.
const FILES: usize = 512;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn sessions_and_terminals_of_one_user_leave_the_gateway_descriptors_for_another() {
    if !is_root() {
        return skip("other users need root");
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gateway =
        Gateway::start_with(Options { binary: Some(limited(directory.path())), ..Options::default() });
    // Sessions with as many roots as one may have.
    let first = Session::open_as(&gateway, ATTACKER).await;
    let roots = vec![first.workspace.display().to_string()];
    let many: Vec<String> = (0..60)
        .map(|n| {
            let root = first.workspace.join(format!("root{n}"));
            fs::create_dir(&root).expect("a directory can be made");
            chown(&root, Some(ATTACKER), Some(ATTACKER)).expect("root can give it away");
            root.display().to_string()
        })
        .collect();
    let mut refused = None;
    for _ in 0..FILES {
        let request = CreateSessionRequest { roots: many.clone(), ..CreateSessionRequest::default() };
        match within("an answer", first.caller.sessions.clone().create_session(request)).await {
            Ok(_) => {}
            Err(status) => {
                refused = Some(Refusal::from(status));
                break;
            }
        }
    }
    must_be_of_descriptors(&refused.expect("sessions are bounded"));
    the_victim_is_served(&gateway).await;
    // Then small ones, as many as there may be, and terminals that nobody releases.
    loop {
        let request = CreateSessionRequest { roots: roots.clone(), ..CreateSessionRequest::default() };
        if let Err(status) = within("an answer", first.caller.sessions.clone().create_session(request)).await
        {
            must_be_of_descriptors(&Refusal::from(status));
            break;
        }
    }
    loop {
        match within("an answer", first.command("true").split().try_create()).await {
            Ok(terminal) => drop(terminal.wait().await),
            Err(refusal) => {
                must_be_of_descriptors(&refusal);
                break;
            }
        }
    }
    the_victim_is_served(&gateway).await;
    let open = gateway.process().descriptors().len();
    assert!(open < FILES / 2, "{open} descriptors of {FILES} are open");
}

fn must_be_of_descriptors(refusal: &Refusal) {
    assert_eq!(refusal.code, Code::ResourceExhausted, "{refusal:?}");
    assert_eq!(refusal.meta("limit"), "descriptors_per_principal", "{refusal:?}");
}

/// The program under test, with few files.
fn limited(directory: &Path) -> PathBuf {
    let program = directory.join("provost");
    let script =
        format!("#!/bin/sh\nulimit -n {FILES} || exit 1\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_provost"));
    // By another process: a file that a child of this one holds open for writing cannot be executed (ETXTBSY).
    let written = Command::new("sh")
        .args(["-c", r#"printf %s "$1" > "$2" && chmod 755 "$2""#, "sh", &script])
        .arg(&program)
        .status();
    assert!(written.is_ok_and(|status| status.success()), "a file can be written");
    program
}
