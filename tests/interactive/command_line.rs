//! `provost run -it`, `attach` and `exec`, in a window.

use std::process::{Command, Stdio};

use nix::sys::signal::Signal;

use crate::{
    interactive::{
        keyboard::{InPty, Keyboard, shell},
        window::Window,
    },
    support::{
        Gateway, Session,
        api::{CreateTerminalRequest, StdinMode},
        code, eventually, in_session, skip,
    },
};

/// A directory that can be a workspace.
fn workspace() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory can be made")
}

/// How a gateway is named on the command line.
pub(super) fn address(gateway: &Gateway) -> String {
    format!("unix:{}", gateway.socket.display())
}

/// A shell in a window, at its prompt.
async fn open_shell(directory: &std::path::Path, options: &[&str]) -> Window {
    let mut window =
        Window::open(directory, &[&["run", "-it"], options, &["bash", "--norc", "--noprofile"]].concat());
    window.shows("$ ").await;
    window.types_until("PS1=ready''\\>\\ \r", "ready> ").await;
    window
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_shell_runs_in_the_persons_terminal_with_its_size_and_its_exit_code() {
    let directory = workspace();
    // By itself, with a gateway inside.
    let policies = policies();
    let named = policies.path().display().to_string();
    let report = policies.path().join("report.json").display().to_string();
    let mut window = open_shell(directory.path(), &["--policies", &named, "--report", &report]).await;
    assert!(window.is_raw());
    window.types_until("stty size; echo term-$TERM\r", "24 80\r\nterm-xterm\r\n").await;
    window.resize(101, 33);
    // The size may come after the keys.
    window.types_until("until stty size | grep '33 101'; do :; done\r", "33 101\r").await;
    window.types_until("sh -c 'echo job-$((1 + 1)); sleep 1000'\r", "job-2").await;
    // Ctrl-C that comes before the shell has given the terminal to the job is the shell's.
    let mut is_ended = false;
    for _ in 0..200 {
        let typed = window.types_until("\u{3}", "ready> ");
        if tokio::time::timeout(std::time::Duration::from_millis(250), typed).await.is_ok() {
            is_ended = true;
            break;
        }
    }
    assert!(is_ended, "Ctrl-C does not reach the job");
    window.types_until("echo code-$?\r", "code-130").await;
    window.types("exit 7\r");
    assert_eq!(window.ends().await.code(), Some(7));
    let report = std::fs::read_to_string(report).expect("it was written");
    let report: serde_json::Value = serde_json::from_str(&report).expect("it is JSON");
    assert_eq!(report["exit_status"], 7);
    assert_eq!(report["receipt"]["pty"], serde_json::json!({"columns": 80, "rows": 24}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_pseudo_terminal_is_refused_without_a_terminal_and_says_why() {
    let directory = workspace();
    let refused = Command::new(env!("CARGO_BIN_EXE_provost"))
        .args(["run", "-t", "true"])
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .output()
        .expect("provost can be started");
    assert_eq!(refused.status.code(), Some(125));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("-t needs a terminal on stdin"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_terminal_is_as_it_was_after_every_signal_that_can_be_taken() {
    let gateway = Gateway::start();
    let directory = workspace();
    for (signal, status) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        let mut window = open_shell(directory.path(), &["--gateway", &address(&gateway)]).await;
        assert!(window.is_raw());
        window.signal(signal);
        // The shell is hung up: the status is its own.
        let ended = window.ends().await;
        assert!(ended.code().is_some_and(|code| code == status || code >= 129), "{signal}: {ended:?}");
    }
    // Ctrl-Z of the person's shell: raw mode is left and taken again.
    let mut window = open_shell(directory.path(), &["--gateway", &address(&gateway)]).await;
    window.signal(Signal::SIGTSTP);
    eventually("the cooked mode of a stopped provost", || (!window.is_raw()).then_some(())).await;
    let stat = format!("/proc/{}/stat", window.pid());
    eventually("a stopped provost", || {
        std::fs::read_to_string(&stat).ok().filter(|stat| stat.contains(") T "))
    })
    .await;
    window.signal(Signal::SIGCONT);
    eventually("raw mode", || window.is_raw().then_some(())).await;
    window.types_until("echo on-$((1 + 1))\r", "on-2").await;
    window.types("exit\r");
    assert_eq!(window.ends().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_run_in_a_terminal_goes_on_after_a_crash_of_the_gateway() {
    let gateway = Gateway::start();
    let directory = workspace();
    let mut window = open_shell(directory.path(), &["--gateway", &address(&gateway)]).await;
    window.types_until("variable=kept\r", "ready> ").await;
    gateway.crash();
    // Typed while nobody serves.
    window.types("echo value-$variable\r");
    gateway.start_again();
    window.shows("value-kept").await;
    window.resize(91, 21);
    // The size may come after the keys.
    window.types_until("until stty size | grep '21 91'; do :; done\r", "21 91\r").await;
    window.types("exit 6\r");
    assert_eq!(window.ends().await.code(), Some(6));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_person_detaches_and_comes_back() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let terminal = shell(session).await;
        let named = address(&gateway);
        let attach = ["attach", "--gateway", &named, &terminal.id];
        let mut window = Window::open(session.workspace.as_path(), &attach);
        // What was shown is shown again.
        window.shows("ready>").await;
        window.types_until("variable=kept; stty size\r", "24 80").await;
        window.types("\u{10}\u{11}");
        assert_eq!(window.ends().await.code(), Some(0));

        let keys = ["attach", "--detach-keys", "ctrl-a,d", "--gateway", &named, &terminal.id];
        let mut killed = Window::open(session.workspace.as_path(), &keys);
        killed.types_until("echo value-$variable\r", "value-kept").await;
        // Without a chance to say that it leaves.
        killed.signal(Signal::SIGKILL);
        let mut again = Window::open(session.workspace.as_path(), &keys);
        again.shows("value-kept").await;
        again.types("\u{1}d");
        assert_eq!(again.ends().await.code(), Some(0));

        let mut last = Window::open(session.workspace.as_path(), &attach);
        last.types_until("echo value-$variable\r", "value-kept").await;
        last.types("exit 3\r");
        assert_eq!(last.ends().await.code(), Some(3));
        assert_eq!(code(&terminal.wait().await), 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn who_types_at_a_command_without_stdin_watches_on_and_can_leave() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let script = "echo ready; while ! test -e go; do sleep 0.05; done; echo over; exit 7";
        let without_stdin = |request: &mut CreateTerminalRequest| {
            request.stdin_mode = StdinMode::Closed.into();
        };
        let terminal = session.sh(script).pty(80, 24).with(without_stdin).create().await;
        let named = address(&gateway);
        let attach = ["attach", "--gateway", &named, &terminal.id];
        let mut leaves = Window::open(session.workspace.as_path(), &attach);
        let mut stays = Window::open(session.workspace.as_path(), &attach);
        for window in [&mut leaves, &mut stays] {
            window.shows("ready").await;
            window.types("x");
            window.types("yz\r");
        }
        leaves.types("\u{10}\u{11}");
        assert_eq!(leaves.ends().await.code(), Some(0));
        std::fs::write(session.workspace.join("go"), "").expect("a file can be written");
        stays.shows("over").await;
        assert_eq!(stays.ends().await.code(), Some(7));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_command_is_run_in_a_session_that_is_open() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let named = address(&gateway);
        let provost = |arguments: &[&str]| {
            Command::new(env!("CARGO_BIN_EXE_provost"))
                .args(["exec", "--gateway", &named])
                .args(arguments)
                .stdin(Stdio::null())
                .output()
                .expect("provost can be started")
        };
        // The session is one machine: what one command leaves in /tmp the other finds.
        let left =
            provost(&[&session.id, "--", "sh", "-c", "echo mark >/tmp/left; echo out; echo err >&2; exit 4"]);
        assert_eq!(
            (left.status.code(), &left.stdout[..], &left.stderr[..]),
            (Some(4), &b"out\n"[..], &b"err\n"[..])
        );
        // A directory counts from the session's.
        std::fs::create_dir(session.workspace.join("sub")).expect("a directory can be made");
        for (given, meant) in [("sub", "sub"), ("sub/..", ""), ("./sub", "sub")] {
            let there = provost(&["-w", given, &session.id, "pwd"]);
            let meant = session.workspace.canonicalize().expect("it is there").join(meant);
            let printed = String::from_utf8_lossy(&there.stdout);
            assert_eq!(std::path::Path::new(printed.trim_end()), meant, "{there:?}");
        }
        let outside = provost(&["-w", "..", &session.id, "pwd"]);
        assert_eq!(outside.status.code(), Some(126), "{outside:?}");
        let said = String::from_utf8_lossy(&outside.stderr);
        assert!(said.contains("lies outside the session's roots") && said.contains("-w names"), "{said}");
        let mut window = Window::open(
            session.workspace.as_path(),
            &["exec", "--gateway", &named, "-it", &session.id, "sh"],
        );
        window.types_until("cat /tmp/left; tty\r", "mark\r\n/dev/pts/").await;
        window.types("exit 5\r");
        assert_eq!(window.ends().await.code(), Some(5));
        let unknown = provost(&["sess_01JD3ZK6T00000000000000000", "true"]);
        assert_eq!(unknown.status.code(), Some(125));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "long: .ci/run runs it"]
async fn a_command_that_a_person_has_started_in_a_session_ends_with_the_person() {
    let gateway = Gateway::start();
    let mut session = Session::open(&gateway).await;
    let named = address(&gateway);
    let workspace = session.workspace.clone();
    let ticks = |name: &str| workspace.join(name).metadata().map_or(0, |file| file.len());
    let exec = async |name: &str, id: &str| {
        let script = format!("while :; do printf . >> {name}; sleep 0.1; done");
        let command = ["exec", "--gateway", &named, "-it", id, "sh", "-c", &script];
        let window = Window::open(&workspace, &command);
        eventually("the command runs", || (ticks(name) > 0).then_some(())).await;
        window
    };
    // One whose client is killed, one whose client is killed while no gateway is there, one that goes on.
    let (killed, lost) = (exec("killed", &session.id).await, exec("lost", &session.id).await);
    let mut kept = exec("kept", &session.id).await;
    killed.signal(Signal::SIGKILL);
    ends(&ticks, "killed").await;
    gateway.crash();
    lost.signal(Signal::SIGKILL);
    gateway.start_again();
    session.go_on(&gateway.caller().await);
    ends(&ticks, "lost").await;
    let before = ticks("kept");
    eventually("the other goes on", || (ticks("kept") > before + 20).then_some(())).await;
    kept.types("\u{3}");
    assert_eq!(kept.ends().await.code(), Some(130));
    session.close().await;
    gateway.stop();
}

/// Waits until a command makes no more ticks.
async fn ends(ticks: impl Fn(&str) -> u64, name: &str) {
    let mut seen = (ticks(name), std::time::Instant::now());
    eventually("the end of the command", || {
        let now = ticks(name);
        if now != seen.0 {
            seen = (now, std::time::Instant::now());
        }
        (seen.1.elapsed() > std::time::Duration::from_secs(3)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn full_screen_programs_work() {
    in_session(&Gateway::shared(), async |session| {
        std::fs::write(session.workspace.join("text"), "first line\nsecond line\n")
            .expect("the workspace is ours");
        let mut tried = 0;
        for (program, args, shown, keys, file) in [
            ("vim", &["-u", "NONE", "new"][..], "new", "ifrom vim\u{1b}:wq\r", Some("from vim\n")),
            ("less", &["text"][..], "second line", "q", None),
        ] {
            if session.sh(&format!("command -v {program}")).finish().await.text().is_empty() {
                crate::support::skip(&format!("{program} is not in the sandbox"));
                continue;
            }
            tried += 1;
            let terminal = session.command(program).args(args.iter().copied()).pty(80, 24).create().await;
            terminal.until(shown).await;
            terminal.types(keys).await;
            assert_eq!(code(&terminal.wait().await), 0, "{program}");
            if let Some(file) = file {
                let saved = std::fs::read_to_string(session.workspace.join("new"));
                assert_eq!(saved.expect("it was saved"), file);
            }
        }
        let python = session.command("/usr/bin/python3").args(["-q"]).pty(80, 24).try_create().await;
        match python {
            Ok(terminal) => {
                tried += 1;
                terminal.until(">>> ").await;
                // At the next prompt the terminal is raw again: in between, ^D would be a mark of the line discipline, and no key.
                let answered = terminal.types_until("6 * 7\r", ">>> ").await;
                assert!(answered.contains("42"), "{answered:?}");
                terminal.types("\u{4}").await;
                assert_eq!(code(&terminal.wait().await), 0);
            }
            Err(_) => crate::support::skip("/usr/bin/python3 is not in the sandbox"),
        }
        println!("{tried} programs");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn logs_are_text_and_recordings_are_played() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let script = "printf '\\033[1;31mred\\033[0m \\033]0;title\\007text\\n'; sleep 0.3; echo end; exit 2";
        let terminal = session.sh(script).pty(80, 24).create().await;
        let named = address(&gateway);
        let provost = |arguments: &[&str]| {
            let output = Command::new(env!("CARGO_BIN_EXE_provost")).args(arguments).output();
            let output = output.expect("provost can be started");
            assert!(output.status.success(), "{output:?}");
            output.stdout
        };
        let recording = gateway.directory().join("run.cast").display().to_string();
        provost(&["logs", "--gateway", &named, "-f", "--cast", &recording, &terminal.id]);
        let raw = b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07text\r\nend\r\n";
        assert_eq!(provost(&["logs", "--gateway", &named, "--raw", &terminal.id]), raw);
        assert_eq!(provost(&["logs", "--gateway", &named, &terminal.id]), b"red text\nend\n");
        let lines = std::fs::read_to_string(&recording).expect("it was recorded");
        assert!(lines.starts_with("{\"version\":3,\"term\":{\"cols\":80,\"rows\":24}"), "{lines}");
        assert!(lines.ends_with("\"x\",\"2\"]\n"), "{lines}");
        let played = provost(&["play", "--idle-limit", "0s", &recording]);
        assert_eq!(played, raw);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_size_is_an_event_of_a_recording_before_what_the_program_writes_then() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let script = "trap 'echo new-size; exit 3' WINCH; echo ready; while :; do sleep 0.05 & wait $!; done";
        let terminal = session.sh(script).pty(80, 24).create().await;
        let named = address(&gateway);
        let recording = gateway.directory().join("resized.cast");
        let mut recorder = Command::new(env!("CARGO_BIN_EXE_provost"))
            .args(["logs", "--gateway", &named, "-f", "--cast"])
            .args([recording.as_os_str(), terminal.id.as_ref()])
            .spawn()
            .expect("provost can be started");
        let read = || std::fs::read_to_string(&recording).unwrap_or_default();
        eventually("the recording has begun", || read().contains("ready").then_some(())).await;
        terminal.resize(100, 30).await.expect("it has a size");
        assert_eq!(code(&terminal.wait().await), 3);
        assert!(recorder.wait().expect("it ends").success());
        let text = read();
        let (size, written) = (text.find("\"r\",\"100x30\""), text.find("new-size"));
        assert!(size.is_some() && size < written, "{text}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn top_shows_what_runs_until_it_is_interrupted() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let terminal = session.command("sleep").args(["1000"]).create().await;
        let named = address(&gateway);
        let mut window =
            Window::open(session.workspace.as_path(), &["top", "--interval", "100ms", "--gateway", &named]);
        window.shows(&terminal.id).await;
        window.shows("1 sessions, 1 commands running").await;
        terminal.kill(None).await;
        terminal.wait().await;
        window.shows("0 commands running, 1 ended").await;
        window.types("\u{3}");
        assert_eq!(window.ends().await.code(), Some(0));
    })
    .await;
}

/// The default policy, its limits preferred as `provost run` prefers them by itself. Outside of every workspace.
fn policies() -> tempfile::TempDir {
    let directory = workspace();
    let text = include_str!("../../policies/default.toml");
    let text = text.replace("requirement = \"require\"", "requirement = \"prefer\"");
    std::fs::write(directory.path().join("default.toml"), text).expect("the policy can be written");
    directory
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn provost_shell_runs_lines_and_connects_a_person() {
    let (directory, policies) = (workspace(), policies());
    let named = policies.path().display().to_string();
    let run = |lines: &[&str], shell: &str| {
        let lines = lines.iter().flat_map(|line| ["--line", line]);
        let mut command = Command::new(env!("CARGO_BIN_EXE_provost"));
        command.args(["shell", "--policies", &named]).args(lines).arg(shell);
        command.current_dir(directory.path()).stdin(Stdio::null()).output().expect("provost runs")
    };
    let ran = run(&["mkdir inner; cd inner; X=kept", "echo \"$X ${PWD##*/}\"; (exit 3)"], "bash");
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(
        (ran.status.code(), String::from_utf8_lossy(&ran.stdout).as_ref()),
        (Some(3), "kept inner\r\n"),
        "{stderr}"
    );
    if std::path::Path::new("/usr/bin/fish").exists() {
        let ran = run(
            &["mkdir other; and cd other; set -g X kept", "echo $X; test -d ../other; and sh -c 'exit 3'"],
            "fish",
        );
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(
            (ran.status.code(), String::from_utf8_lossy(&ran.stdout).as_ref()),
            (Some(3), "kept\r\n"),
            "{stderr}"
        );
    } else {
        skip("fish is not installed");
    }
    // Lines without a command are lines, in the profile's shell and in another one.
    for shell in ["sh", "/bin/sh", "bash"] {
        let ran = run(&["x=kept", "# nothing", "  ", ">file", "echo $x; test -e file"], shell);
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(
            (ran.status.code(), String::from_utf8_lossy(&ran.stdout).as_ref()),
            (Some(0), "kept\r\n"),
            "{shell}: {stderr}"
        );
        std::fs::remove_file(directory.path().join("file")).expect("it was made");
    }
    // What ends the shell ends the lines.
    let ran = run(&["echo one; exit 4", "echo two"], "sh");
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(
        (ran.status.code(), String::from_utf8_lossy(&ran.stdout).as_ref()),
        (Some(4), "one\r\n"),
        "{stderr}"
    );
    assert!(stderr.contains("the shell has ended with exit status 4; 1 line was not run"), "{stderr}");
    let ran = run(&["kill -9 $$", "echo two", "echo three"], "bash");
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert_eq!((ran.status.code(), ran.stdout.as_slice()), (Some(137), &b""[..]), "{stderr}");
    assert!(stderr.contains("the shell has ended by SIGKILL; 2 lines were not run"), "{stderr}");
    let ran = run(&["kill -9 $$"], "bash");
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(stderr.contains("the shell has ended by SIGKILL\n"), "{stderr}");
    let ran = run(&["exit 6"], "bash");
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert_eq!((ran.status.code(), stderr.contains("has ended")), (Some(6), false), "{stderr}");
    let ran = run(&[], "bash");
    assert_eq!(ran.status.code(), Some(125), "without a terminal there is nothing to connect");
    let ran = run(&["true"], "python3");
    assert_ne!(ran.status.code(), Some(0), "a shell that cannot be kept is refused");
    let mut window = Window::open(directory.path(), &["shell", "--policies", &named, "bash"]);
    window.types_until("cd inner; echo in-$((1 + 1)) ${PWD##*/}\r", "in-2 inner").await;
    window.types("exit 6\r");
    assert_eq!(window.ends().await.code(), Some(6));
}
