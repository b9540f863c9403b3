//! T5: why a command could not be started. Told apart by type, with the stage and the errno, never by text.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use tonic::Code;

use crate::support::{Gateway, Refusal, Session, api::ListTerminalsRequest, in_session};

fn file(path: &Path, content: &str, mode: u32) {
    fs::write(path, content).expect("a file can be written");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the file is ours");
}

fn must_be(refusal: &Refusal, code: Code, reason: &str) {
    assert_eq!((refusal.code, refusal.reason.as_str()), (code, reason), "{refusal:?}");
}

/// The kernel's word: the stage and the errno are there.
fn must_name_the_stage(refusal: &Refusal, errno: i32) {
    assert!(!refusal.meta("stage").is_empty(), "no stage: {refusal:?}");
    let name = format!("{:?}", nix::errno::Errno::from_raw(errno));
    let said = refusal.meta("errno");
    assert!(said == errno.to_string() || said == name, "errno {said:?} and not {name}: {refusal:?}");
}

async fn nothing_is_left_of_it(session: &Session) {
    let request = ListTerminalsRequest { session_id: session.id.clone(), ..Default::default() };
    let listed = session.caller.terminals.clone().list_terminals(request).await.expect("a list").into_inner();
    assert!(listed.terminals.is_empty(), "a command that never ran is listed: {:?}", listed.terminals);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_program_that_is_not_there_is_command_not_found() {
    in_session(&Gateway::shared(), async |session| {
        for program in ["no-such-program", "/no/such/program", "./no-such-program"] {
            let refusal = session.command(program).refusal().await;
            must_be(&refusal, Code::FailedPrecondition, "COMMAND_NOT_FOUND");
            must_name_the_stage(&refusal, 2);
        }
        nothing_is_left_of_it(session).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_bare_name_is_never_looked_for_in_the_working_directory() {
    in_session(&Gateway::shared(), async |session| {
        file(&session.workspace.join("mine"), "#!/bin/sh\necho mine\n", 0o755);
        must_be(&session.command("mine").refusal().await, Code::FailedPrecondition, "COMMAND_NOT_FOUND");
        assert_eq!(session.command("./mine").finish().await.text(), "mine\n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_file_without_the_execute_bit_is_not_executable() {
    in_session(&Gateway::shared(), async |session| {
        let path = session.workspace.join("data");
        file(&path, "just data\n", 0o644);
        let refusal = session.command(&path.display().to_string()).refusal().await;
        must_be(&refusal, Code::FailedPrecondition, "NOT_EXECUTABLE");
        must_name_the_stage(&refusal, 13);
        nothing_is_left_of_it(session).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_directory_is_not_executable() {
    in_session(&Gateway::shared(), async |session| {
        let refusal = session.command(&session.workspace.display().to_string()).refusal().await;
        must_be(&refusal, Code::FailedPrecondition, "NOT_EXECUTABLE");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_file_that_no_loader_knows_is_not_executable() {
    in_session(&Gateway::shared(), async |session| {
        let path = session.workspace.join("garbage");
        file(&path, "\u{1}\u{2}\u{3}garbage", 0o755);
        let refusal = session.command(&path.display().to_string()).refusal().await;
        must_be(&refusal, Code::FailedPrecondition, "NOT_EXECUTABLE");
        must_name_the_stage(&refusal, 8);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_program_behind_a_closed_directory_is_permission_denied() {
    in_session(&Gateway::shared(), async |session| {
        let closed = session.workspace.join("closed");
        fs::create_dir(&closed).expect("a directory can be made");
        file(&closed.join("program"), "#!/bin/sh\necho no\n", 0o755);
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o600)).expect("the directory is ours");
        let refusal = session.command(&closed.join("program").display().to_string()).refusal().await;
        must_be(&refusal, Code::FailedPrecondition, "PERMISSION_DENIED");
        must_name_the_stage(&refusal, 13);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_script_whose_interpreter_is_missing_is_bad_interpreter() {
    in_session(&Gateway::shared(), async |session| {
        let path = session.workspace.join("script");
        file(&path, "#!/no/such/interpreter -x\n", 0o755);
        let refusal = session.command(&path.display().to_string()).refusal().await;
        must_be(&refusal, Code::FailedPrecondition, "BAD_INTERPRETER");
        must_name_the_stage(&refusal, 2);
        nothing_is_left_of_it(session).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_working_directory_that_is_gone_is_cwd_gone() {
    in_session(&Gateway::shared(), async |session| {
        let refusal = session.command("pwd").cwd(session.workspace.join("gone")).refusal().await;
        must_be(&refusal, Code::FailedPrecondition, "CWD_GONE");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_working_directory_that_is_a_file_is_cwd_not_a_directory() {
    in_session(&Gateway::shared(), async |session| {
        file(&session.workspace.join("file"), "", 0o644);
        let refusal = session.command("pwd").cwd(session.workspace.join("file")).refusal().await;
        must_be(&refusal, Code::FailedPrecondition, "CWD_NOT_A_DIRECTORY");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn arguments_that_the_kernel_does_not_take_are_argument_list_too_long() {
    in_session(&Gateway::shared(), async |session| {
        // One string above MAX_ARG_STRLEN; and many within it that are too long together (execve(2)).
        let refusal = session.command("true").args(["x".repeat(200_000)]).refusal().await;
        must_be(&refusal, Code::InvalidArgument, "ARGUMENT_LIST_TOO_LONG");
        let refusal = session.command("true").args(vec!["x".repeat(100_000); 30]).refusal().await;
        must_be(&refusal, Code::InvalidArgument, "ARGUMENT_LIST_TOO_LONG");
        // Just within: it runs.
        let done = session.sh("echo ${#1}").args(["sh", "x".repeat(130_000).as_str()]).finish().await;
        assert_eq!(done.text(), "130000\n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_sandbox_that_is_full_of_processes_is_limit_reached() {
    let gateway = Gateway::with_policy(|policy| {
        for (_, profile) in policy["profile"].as_table_mut().expect("profiles").iter_mut() {
            let limits =
                profile.as_table_mut().expect("a table").entry("limits").or_insert(toml::Table::new().into());
            let session: toml::Table = "pids = 8".parse().expect("TOML");
            limits.as_table_mut().expect("a table").insert("session".into(), session.into());
        }
    });
    in_session(&gateway, async |session| {
        let mut held = Vec::new();
        let refusal = loop {
            match session.command("sleep").args(["1000"]).try_create().await {
                Ok(terminal) => held.push(terminal),
                Err(refusal) => break refusal,
            }
            assert!(held.len() < 20, "a limit of 8 processes holds nothing back");
        };
        must_be(&refusal, Code::ResourceExhausted, "LIMIT_REACHED");
        // The others go on, can be stopped, and make room.
        for terminal in held {
            terminal.kill(Some(std::time::Duration::ZERO)).await;
            terminal.wait().await;
            terminal.release().await;
        }
        session.command("true").finish().await;
    })
    .await;
}
