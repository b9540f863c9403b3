//! What is found damaged, silent or strange is left as it is and said; everything else is there again.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tonic::Code;

use crate::{
    restart::{
        lines::{Until, printing, stop},
        lost::kill_sandboxes,
    },
    support::{
        Gateway, Mounted, Options, Process, Session, Terminal, code, eventually, is_root, skip, within,
    },
};

/// `provost COMMAND --state ...`: whether it succeeded, and what it printed.
fn provost(gateway: &Gateway, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_provost"));
    command.arg(arguments[0]).arg("--state").arg(&gateway.state).args(&arguments[1..]);
    let output = command.output().expect("provost can be started");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn session_file(gateway: &Gateway, session: &Session) -> PathBuf {
    gateway.state.join("sessions").join(&session.id)
}

fn sandboxes(gateway: &Gateway) -> Vec<PathBuf> {
    let entries = fs::read_dir(gateway.state.join("sandboxes")).expect("there are sandboxes");
    entries.map(|entry| entry.expect("it can be read").path()).collect()
}

/// A process of the sandbox in which a marked command runs: its first one.
fn supervisor_of(marker: &str) -> Pid {
    let command = Process::all_marked(marker).pop().expect("it runs");
    Pid::from_raw(command.field("PPid").parse().expect("a number"))
}

/// What it is called, and how it is done.
type Damage = (&'static str, fn(&Path));

/// The ways in which a file can be bad.
const DAMAGES: [Damage; 5] = [
    ("empty", |file| fs::write(file, "").unwrap()),
    ("truncated", |file| {
        let bytes = fs::read(file).unwrap();
        fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
    }),
    ("bit-flipped", |file| {
        let mut bytes = fs::read(file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(file, bytes).unwrap();
    }),
    ("of a future version", |file| {
        let mut bytes = fs::read(file).unwrap();
        bytes[8] = 99;
        fs::write(file, bytes).unwrap();
    }),
    ("something else", |file| fs::write(file, "[toml]\nis = true\n").unwrap()),
];

#[test]
fn a_state_directory_of_an_older_build_is_refused_with_what_to_do() {
    let directory =
        tempfile::Builder::new().prefix("provost-test-").tempdir().expect("a temporary directory");
    let state = directory.path().join("state");
    // Builds before format 2 made this directory, and no file `format`.
    fs::create_dir_all(state.join("sessions")).expect("it can be made");
    for format in ["1", "3"] {
        let output = Command::new(env!("CARGO_BIN_EXE_provost"))
            .args(["serve", "--listen"])
            .arg(format!("unix:{}", directory.path().join("provost.sock").display()))
            .arg("--state")
            .arg(&state)
            .stdin(std::process::Stdio::null())
            .output()
            .expect("provost can be started");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{text}");
        assert!(text.contains(&format!("has format {format}, as its file format says")), "{text}");
        assert!(text.contains("stop that build with SIGINT"), "{text}");
        // The next round has the mark of a newer build.
        assert_eq!(state.join("format").exists(), format == "3", "the directory is left as it is");
        fs::write(state.join("format"), "3\n").expect("it can be written");
    }
}

#[tokio::test]
async fn a_damaged_session_is_left_alone_and_said_and_can_be_reaped() {
    for (damage, ruin) in DAMAGES {
        let gateway = Gateway::start();
        let (sound, broken) = (Session::open(&gateway).await, Session::open(&gateway).await);
        let kept = printing(&sound, "kept", Until::Stopped, 4).create().await;
        let marker = broken.marker();
        let lost = broken.idle(&marker).create().await;
        lost.until("ready").await;
        gateway.crash();
        let file = session_file(&gateway, &broken);
        let whole = fs::read(&file).unwrap();
        ruin(&file);
        gateway.start_again();
        let caller = gateway.caller().await;
        let (kept, lost) = (kept.over(&caller), lost.over(&caller));
        assert_eq!(lost.get().await.unwrap_err().code, Code::NotFound, "{damage}");
        assert_eq!(Process::all_marked(&marker).len(), 1, "{damage}: it is not killed");
        let (_, said) = provost(&gateway, &["doctor"]);
        assert!(said.contains(&broken.id), "{damage}: {said}");
        assert!(gateway.log_tail().contains(&broken.id), "{damage}");

        // Once the file is repaired, everything is there again.
        gateway.crash();
        fs::write(&file, whole).unwrap();
        gateway.start_again();
        let caller = gateway.caller().await;
        let (kept, lost) = (kept.over(&caller), lost.over(&caller));
        lost.get().await.unwrap_or_else(|refusal| panic!("{damage}: {refusal:?}"));
        let (_, said) = provost(&gateway, &["doctor"]);
        assert!(!said.contains(&broken.id), "{damage}: {said}");

        // Or reaped, nothing is left of it.
        gateway.crash();
        ruin(&file);
        gateway.start_again();
        let (done, said) = provost(&gateway, &["reap", "--all"]);
        assert!(done, "{damage}: {said}");
        assert!(Process::all_marked(&marker).is_empty() && !file.exists(), "{damage}: {said}");
        assert_eq!(sandboxes(&gateway).len(), 1, "{damage}");
        let kept: Terminal = kept.over(&gateway.caller().await);
        stop(&sound.workspace);
        assert_eq!(code(&kept.wait().await), 4, "{damage}: the other one has lost nothing");
        gateway.stop();
    }
}

#[tokio::test]
async fn a_sandbox_whose_record_is_damaged_is_left_alone_and_can_be_reaped() {
    for (damage, ruin) in DAMAGES {
        let gateway = Gateway::start();
        let mut session = Session::open(&gateway).await;
        let marker = session.marker();
        let terminal = session.idle(&marker).create().await;
        terminal.until("ready").await;
        gateway.crash();
        let directory = sandboxes(&gateway).pop().expect("there is one");
        ruin(&directory.join("record"));
        gateway.start_again();
        session.go_on(&gateway.caller().await);
        let refusal = terminal.over(&session.caller).get().await.unwrap_err();
        assert_eq!(refusal.code, Code::NotFound, "{damage}: {refusal:?}");
        assert_eq!(Process::all_marked(&marker).len(), 1, "{damage}: it is not killed");
        // The session goes on with a new sandbox.
        assert_eq!(code(&session.command("true").finish().await.outcome), 0);
        let id = directory.file_name().unwrap().to_string_lossy().into_owned();
        let (done, said) = provost(&gateway, &["reap", &id]);
        assert!(done, "{damage}: {said}");
        assert!(Process::all_marked(&marker).is_empty() && !directory.exists(), "{damage}");
        let (done, said) = provost(&gateway, &["reap", &id]);
        assert!(!done && said.contains(&id), "what is not listed is not touched: {said}");
        // Its cgroups, too, in every hierarchy.
        let left: Vec<PathBuf> = gateway
            .group
            .groups()
            .into_iter()
            .filter(|group| group.to_string_lossy().contains(&id))
            .collect();
        assert!(left.is_empty(), "{damage}: {left:?}");
        session.close().await;
        gateway.crash();
        gateway.group.destroy();
    }
}

#[tokio::test]
#[ignore = "long: .ci/run runs it"]
async fn a_silent_supervisor_is_left_alone_and_taken_back_when_it_speaks_again() {
    if !is_root() {
        return skip("a supervisor is stopped by its host id");
    }
    let gateway = Gateway::start();
    let session = Session::open(&gateway).await;
    let marker = session.marker();
    let terminal = session.idle(&marker).create().await;
    terminal.until("ready").await;
    let supervisor = supervisor_of(&marker);
    gateway.crash();
    // Not before: what is stopped goes on when its process group is orphaned (setpgid(2)).
    kill(supervisor, Signal::SIGSTOP).unwrap();
    gateway.start_again();
    let (_, said) = provost(&gateway, &["doctor"]);
    assert!(said.contains("does not answer"), "{said}");
    assert_eq!(Process::all_marked(&marker).len(), 1);
    kill(supervisor, Signal::SIGCONT).unwrap();
    // The gateway that found it silent looks again when it is told to.
    gateway.signal(Signal::SIGHUP);
    let terminal = terminal.over(&gateway.caller().await);
    within("it is adopted", async {
        while terminal.get().await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let (_, said) = provost(&gateway, &["doctor"]);
    assert!(!said.contains("does not answer"), "{said}");
    gateway.crash();
    gateway.start_again();
    let terminal = terminal.over(&gateway.caller().await);
    terminal.kill(Some(Duration::ZERO)).await;
    terminal.wait().await;
    gateway.stop();
}

#[tokio::test]
async fn a_sandbox_whose_socket_was_taken_away_is_left_alone_and_can_be_reaped() {
    let gateway = Gateway::start();
    let mut session = Session::open(&gateway).await;
    let marker = session.marker();
    let terminal = session.idle(&marker).create().await;
    terminal.until("ready").await;
    gateway.crash();
    if gateway.group.groups().is_empty() {
        skip("without a cgroup nobody can tell that it lives");
        return gateway.group.destroy();
    }
    let directory = sandboxes(&gateway).pop().expect("there is one");
    fs::remove_file(directory.join("control.sock")).unwrap();
    gateway.start_again();
    session.go_on(&gateway.caller().await);
    assert_eq!(terminal.over(&session.caller).get().await.unwrap_err().code, Code::NotFound);
    assert_eq!(Process::all_marked(&marker).len(), 1, "it is not killed");
    let (_, said) = provost(&gateway, &["doctor"]);
    assert!(said.contains("its socket is not there"), "{said}");
    let (done, said) = provost(&gateway, &["reap", "--all"]);
    assert!(done && Process::all_marked(&marker).is_empty(), "{said}");
    session.close().await;
    gateway.stop();
}

#[tokio::test]
async fn sockets_that_nobody_listens_on_are_in_nobodys_way() {
    let gateway = Gateway::start();
    gateway.crash();
    let stale = gateway.state.join("sandboxes/sbx_01JD3ZK6T00000000000000000");
    fs::create_dir_all(&stale).unwrap();
    drop(std::os::unix::net::UnixListener::bind(stale.join("control.sock")).unwrap());
    assert!(gateway.socket.exists(), "the gateway's own is stale, too");
    gateway.start_again();
    assert!(!stale.exists());
    gateway.stop();
}

#[tokio::test]
async fn on_a_full_disk_the_gateway_starts_and_has_everything_and_opens_nothing_new() {
    if !is_root() {
        return skip("a small file system is mounted");
    }
    let journal = tempfile::tempdir().expect("a directory can be made");
    let config = Some(format!("[journal]\ndirectory = {:?}\n", journal.path()));
    let gateway = Gateway::start_with(Options { config, ..Options::default() });
    gateway.crash();
    let options = ["-t", "tmpfs", "-o", "size=256k,mode=0700", "tmpfs"];
    let Some(mounted) = Mounted::try_new(&options, &gateway.state) else {
        return skip("no file system can be mounted here");
    };
    gateway.start_again();
    let mut session = Session::open(&gateway).await;
    let terminal = printing(&session, "kept", Until::Stopped, 4).create().await;
    terminal.until("kept 1").await;
    let late = session.sh("while [ ! -e go ]; do sleep 0.05; done; exit 3").create().await;
    let filler = gateway.state.join("filler");
    let mut size = 256 << 10;
    while size > 0 {
        // Until not even a byte fits.
        let mut bytes = fs::read(&filler).unwrap_or_default();
        bytes.resize(bytes.len() + size, b'x');
        if fs::write(&filler, &bytes).is_err() {
            size /= 2;
        }
    }
    gateway.crash();
    gateway.start_again();
    session.go_on(&gateway.caller().await);
    let (terminal, late) = (terminal.over(&session.caller), late.over(&session.caller));
    let request = crate::support::api::CreateSessionRequest {
        roots: vec![session.workspace.display().to_string()],
        ..Default::default()
    };
    let refused = session.caller.sessions.clone().create_session(request).await.unwrap_err();
    let refused = crate::support::Refusal::from(refused);
    assert_eq!((refused.code, refused.reason.as_str()), (Code::Unavailable, "STATE_UNWRITABLE"));
    assert_eq!(code(&session.command("true").finish().await.outcome), 0, "what is there can be used");

    // For as long as there is room for a word of each: nothing is started that the next gateway could not know of.
    let refused = loop {
        match session.command("true").try_create().await {
            Ok(terminal) => terminal.release().await,
            Err(refusal) => break refusal,
        }
    };
    assert_eq!((refused.code, refused.reason.as_str()), (Code::Unavailable, "STATE_UNWRITABLE"));
    assert_eq!((refused.meta("stage"), refused.meta("errno")), ("terminal_log", "28"), "{refused:?}");
    let failed = eventually("it is in the journal", || {
        records(journal.path()).into_iter().find(|line| line.contains(r#""kind":"spawn_failed""#))
    })
    .await;
    assert!(failed.contains(r#""reason":"STATE_UNWRITABLE""#) && failed.contains("terminal_log"), "{failed}");

    // What ends now is told, and stays told: its end is written when there is room again.
    fs::write(session.workspace.join("go"), "").expect("the workspace is on another disk");
    let told = late.wait().await;
    assert_eq!(code(&told), 3);
    stop(&session.workspace);
    assert_eq!(code(&terminal.wait().await), 4);
    fs::remove_file(&filler).expect("it is ours");
    assert_eq!(code(&session.command("true").finish().await.outcome), 0, "there is room again");
    gateway.crash();
    kill_sandboxes(&gateway).await;
    gateway.start_again();
    session.go_on(&gateway.caller().await);
    let (terminal, late) = (terminal.over(&session.caller), late.over(&session.caller));
    assert_eq!(late.wait().await, told);
    assert_eq!(code(&terminal.wait().await), 4);
    session.close().await;
    drop((terminal, late, session));
    gateway.signal(Signal::SIGINT);
    assert!(gateway.wait().success());
    drop(mounted);
    gateway.stop();
}

/// The lines of a journal.
fn records(journal: &Path) -> Vec<String> {
    let files = fs::read_dir(journal).expect("there is a journal").flatten().map(|entry| entry.path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    files
        .flat_map(|file| {
            fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
}

#[tokio::test]
#[ignore = "long: .ci/run runs it"]
async fn a_clock_that_was_set_changes_nothing() {
    let library = clock();
    for step in [3600_i64, -3600, 315_360_000, -315_360_000] {
        let gateway = Gateway::start();
        let mut session = Session::open(&gateway).await;
        let running = printing(&session, "running", Until::Stopped, 4).create().await;
        let ended = session.sh("echo done; exit 6").create().await;
        let before = ended.wait().await;
        gateway.crash();
        let (library, step) = (library.display().to_string(), step.to_string());
        gateway.start_again_with(&[("LD_PRELOAD", &library), ("CLOCK_STEP_SECONDS", &step)]);
        session.go_on(&gateway.caller().await);
        let (running, ended) = (running.over(&session.caller), ended.over(&session.caller));
        assert_eq!(ended.wait().await, before, "{step} s");
        assert_eq!(ended.output().await.data, b"done\n"[..]);
        assert_eq!(code(&session.command("true").finish().await.outcome), 0, "{step} s: new ones can be had");
        stop(&session.workspace);
        assert_eq!(code(&running.wait().await), 4, "{step} s");
        eventually("the log says that it was adopted", || {
            gateway.log_tail().contains("adopted from the gateway before").then_some(())
        })
        .await;
        session.close().await;
        gateway.stop();
    }
}

/// A library that moves CLOCK_REALTIME for one process, as a clock that was set does for all.
fn clock() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/restart/clock.c");
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("clock-{}.so", std::process::id()));
    let made = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status();
    assert!(made.is_ok_and(|status| status.success()), "the library compiles");
    library
}
