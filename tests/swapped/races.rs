//! The attacker at work: swaps, links, scripts, changes in place, files that appear.

use std::{fs, os::unix::fs::symlink, path::Path};

use tonic::Code;

use crate::{
    support::{Attack, Command, Gateway, Session, eventually, in_session},
    swapped::{Again, exchange, gateway, program, real},
};

/// What came of many commands while the attacker was at work.
#[derive(Debug, Default)]
struct Outcomes {
    ran: u32,
    denied: u32,
    changed: u32,
    absent: u32,
}

/// How many times more than wanted a command is run, where not everything has been seen that can come of it.
const TIMES_MORE: u32 = 10;

/// Runs a command many times, and on until everything was seen that can come of it. Each time it prints what it must, is
/// refused by policy, or was changed; and nothing else.
async fn many(
    command: impl Fn() -> Command,
    prints: &str,
    times: u32,
    is_enough: impl Fn(&Outcomes) -> bool,
) -> Outcomes {
    let mut outcomes = Outcomes::default();
    for turn in 0..times * TIMES_MORE {
        if turn >= times && is_enough(&outcomes) {
            break;
        }
        match command().try_create().await {
            Ok(terminal) => {
                terminal.wait().await;
                let output = terminal.output().await.data;
                assert_eq!(
                    String::from_utf8_lossy(&output),
                    prints,
                    "another file was executed: {outcomes:?}"
                );
                terminal.release().await;
                outcomes.ran += 1;
            }
            Err(refusal) => match (refusal.code, refusal.reason.as_str()) {
                (Code::PermissionDenied, _) => {
                    assert_eq!(refusal.meta("rule"), "no-id", "{refusal:?}");
                    outcomes.denied += 1;
                }
                (Code::FailedPrecondition, "PROGRAM_CHANGED") => {
                    assert_eq!(refusal.meta("stage"), "program", "{refusal:?}");
                    assert_eq!(refusal.meta("path"), "./x", "{refusal:?}");
                    outcomes.changed += 1;
                }
                (Code::FailedPrecondition, "COMMAND_NOT_FOUND") => outcomes.absent += 1,
                _ => panic!("{refusal:?}"),
            },
        }
    }
    outcomes
}

/// `id` is denied by whatever name, and does tell who one is.
async fn the_denied_program_works_outside_and_is_denied_inside(session: &Session) {
    let outside = std::process::Command::new("/usr/bin/id").output().expect("id is there");
    assert!(String::from_utf8_lossy(&outside.stdout).starts_with("uid="));
    let link = session.workspace.join("link");
    symlink("/usr/bin/id", &link).expect("a link can be made");
    assert_eq!(session.command("./link").refusal().await.meta("rule"), "no-id");
    fs::remove_file(link).expect("it is ours");
}

/// Exchanges `x` for a link to the denied program, and back.
fn swapping(session: &Session, honest: &[u8]) -> Again {
    swapping_for(session, honest, Path::new("/usr/bin/id"))
}

/// Exchanges `x` for a link to another file, and back.
fn swapping_for(session: &Session, honest: &[u8], denied: &Path) -> Again {
    let (x, other) = (session.workspace.join("x"), session.workspace.join("other"));
    program(&x, honest);
    symlink(denied, &other).expect("a link can be made");
    Again::and_again(move || exchange(&x, &other))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_is_swapped_for_a_denied_one_never_runs() {
    let gateway = gateway();
    in_session(&gateway, async |session| {
        let echo = fs::read(real("/bin/echo")).expect("echo can be read");
        the_denied_program_works_outside_and_is_denied_inside(session).await;
        let attack = swapping(session, &echo);
        let outcomes = many(
            || session.command("./x").args(["root"]),
            "root\n",
            1_000,
            |t| t.denied > 0 && t.changed > 0 && t.ran > 0,
        )
        .await;
        drop(attack);
        println!("{outcomes:?}");
        assert!(outcomes.denied > 0 && outcomes.changed > 0 && outcomes.ran > 0, "{outcomes:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: .ci/run runs it"]
async fn a_script_that_is_swapped_for_a_denied_program_never_runs_that() {
    let gateway = gateway();
    in_session(&gateway, async |session| {
        // `cat` reads the script after it was executed: it may come to read `id`, and never to run it.
        the_denied_program_works_outside_and_is_denied_inside(session).await;
        // An interpreter that reads no script.
        let attack = swapping(session, b"#!/bin/true\n");
        let outcomes =
            many(|| session.command("./x"), "", 1_000, |t| t.denied > 0 && t.changed > 0 && t.ran > 0).await;
        drop(attack);
        println!("{outcomes:?}");
        assert!(outcomes.denied > 0 && outcomes.changed > 0 && outcomes.ran > 0, "{outcomes:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_that_is_swapped_for_one_that_a_denied_program_interprets_never_runs_that() {
    let gateway = gateway();
    in_session(&gateway, async |session| {
        the_denied_program_works_outside_and_is_denied_inside(session).await;
        let denied = session.workspace.join("denied");
        program(&denied, b"#!/usr/bin/id\n");
        assert_eq!(session.command("./denied").refusal().await.meta("rule"), "no-id");
        let attack = swapping_for(session, b"#!/bin/true\n", &denied);
        let outcomes =
            many(|| session.command("./x"), "", 300, |t| t.denied > 0 && t.changed > 0 && t.ran > 0).await;
        drop(attack);
        println!("{outcomes:?}");
        assert!(outcomes.denied > 0 && outcomes.changed > 0 && outcomes.ran > 0, "{outcomes:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: .ci/run runs it"]
async fn a_program_that_appears_after_policy_has_found_none_never_runs() {
    let gateway = gateway();
    in_session(&gateway, async |session| {
        the_denied_program_works_outside_and_is_denied_inside(session).await;
        let x = session.workspace.join("x");
        let attack = Again::and_again({
            let x = x.clone();
            move || match fs::remove_file(&x) {
                Ok(()) => {}
                Err(_) => symlink("/usr/bin/id", &x).expect("a link can be made"),
            }
        });
        let outcomes =
            many(|| session.command("./x"), "", 1_000, |t| t.denied > 0 && t.changed > 0 && t.absent > 0)
                .await;
        drop(attack);
        println!("{outcomes:?}");
        assert_eq!(outcomes.ran, 0, "{outcomes:?}");
        assert!(outcomes.denied > 0 && outcomes.changed > 0 && outcomes.absent > 0, "{outcomes:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_changed_in_place_is_another() {
    in_session(&Gateway::shared(), async |session| {
        let x = session.workspace.join("x");
        let echo = fs::read(real("/bin/echo")).expect("echo can be read");
        program(&x, &echo);
        // Nothing but its times: the content stays what it is, so that whatever runs is the honest program.
        let attack = Again::and_again({
            let x = x.clone();
            move || touch(&x)
        });
        let outcomes =
            many(|| session.command("./x").args(["honest"]), "honest\n", 500, |t| t.changed > 0 && t.ran > 0)
                .await;
        drop(attack);
        println!("{outcomes:?}");
        assert!(outcomes.changed > 0 && outcomes.ran > 0, "{outcomes:?}");
    })
    .await;
}

fn touch(path: &Path) {
    let file = fs::File::open(path).expect("it is there");
    file.set_modified(std::time::SystemTime::now()).expect("it is ours");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_refused_for_a_change_leaves_nothing_and_is_said() {
    let gateway = gateway();
    in_session(&gateway, async |session| {
        let (placed, x) =
            (Attack::compiled("attack").placed_in(&session.workspace), session.workspace.join("x"));
        fs::rename(placed, &x).expect("it is ours");
        let toucher = Again::and_again(move || touch(&x));
        let refusal = loop {
            match session.command("./x").args(["list", "/"]).try_create().await {
                Ok(terminal) => terminal.release().await,
                Err(refusal) => break refusal,
            }
        };
        drop(toucher);
        assert_eq!(refusal.reason, "PROGRAM_CHANGED");
        assert!(refusal.message.contains("not the one that policy judged"), "{}", refusal.message);
        let request = crate::support::api::ListTerminalsRequest {
            session_id: session.id.clone(),
            ..Default::default()
        };
        let listed =
            session.caller.terminals.clone().list_terminals(request).await.expect("a list").into_inner();
        assert!(listed.terminals.is_empty(), "{:?}", listed.terminals);
        let journal = gateway.state.join("journal");
        let written = || {
            let files = fs::read_dir(&journal)
                .ok()?
                .flatten()
                .filter_map(|file| fs::read_to_string(file.path()).ok());
            let line = |text: String| {
                text.lines()
                    .find(|line| {
                        line.contains("\"kind\":\"spawn_failed\"") && line.contains("PROGRAM_CHANGED")
                    })
                    .map(str::to_owned)
            };
            files.filter_map(line).next()
        };
        let record = eventually("the refusal in the journal", written).await;
        assert!(record.contains(&session.id) && record.contains("./x"), "{record}");
    })
    .await;
}
