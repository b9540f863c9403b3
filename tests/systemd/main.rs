//! The units of `deploy/systemd`, run by a real service manager. Only in the machine that `.ci/systemd` boots, where
//! Provost is installed as docs/deploy.md says and nothing else runs; elsewhere every test says that it is skipped.
//!
//! One test after the other: they share the machine's one gateway. Knows the units and the public API.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use provost::{
    client::{self, Client},
    proto::v1::{
        CreateSessionRequest, CreateTerminalRequest, ExitCause, GetOutputRequest, GetTerminalRequest,
        KillTerminalRequest, RunRequest, Terminal, TerminalState, create_terminal_request, outcome::End,
        run_response,
    },
};
use provost_test_support::{eventually, within};

provost_test_support::test_program!();

const SOCKET: &str = "unix:/run/provost/provost.sock";
const SANDBOXES: &str = "/system.slice/provost-sandboxes.service";
/// Writes numbered lines for as long as it lives.
const NUMBERED: &str = "i=0; while :; do echo $i; i=$((i + 1)); sleep 0.05; done";

fn is_machine() -> bool {
    let is = std::env::var_os("PROVOST_SYSTEMD_MACHINE").is_some();
    if !is {
        println!("SKIPPED: only in the machine that .ci/systemd boots, which .ci/run does");
    }
    is
}

/// Runs a program of the machine's; fails with what it said.
fn succeed(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("the machine has it");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{said}", output.status);
    said
}

fn property(unit: &str, name: &str) -> String {
    succeed("systemctl", &["show", "--value", "--property", name, unit]).trim().to_owned()
}

fn main_process(unit: &str) -> u32 {
    property(unit, "MainPID").parse::<u32>().expect("a process id")
}

async fn connected() -> Client {
    within("the gateway's answer", client::connect(SOCKET)).await.expect("the socket unit listens")
}

/// Waits until the gateway's main process is another one than `before`, and serves.
async fn served_again(before: u32) -> Client {
    eventually("another gateway", || {
        let now = main_process("provost.service");
        (now != 0 && now != before && property("provost.service", "ActiveState") == "active").then_some(())
    })
    .await;
    connected().await
}

/// A session with a workspace of its own.
async fn session(client: &mut Client, name: &str) -> String {
    let workspace = PathBuf::from("/srv").join(name);
    fs::create_dir_all(&workspace).unwrap();
    fs::set_permissions(&workspace, fs::Permissions::from_mode(0o755)).unwrap();
    let request = CreateSessionRequest {
        roots: vec![workspace.display().to_string()],
        ..CreateSessionRequest::default()
    };
    client
        .sessions
        .create_session(request)
        .await
        .expect("a session")
        .into_inner()
        .session
        .expect("it is set")
        .id
}

fn shell(session: &str, script: &str) -> CreateTerminalRequest {
    CreateTerminalRequest {
        session_id: session.to_owned(),
        command: Some(create_terminal_request::Command::Program("sh".into())),
        args: vec!["-c".into(), script.to_owned()],
        ..CreateTerminalRequest::default()
    }
}

async fn start(client: &mut Client, session: &str, script: &str) -> Terminal {
    client
        .terminals
        .create_terminal(shell(session, script))
        .await
        .expect("a terminal")
        .into_inner()
        .terminal
        .expect("it is set")
}

async fn lines(client: &mut Client, terminal: &str) -> Vec<String> {
    let request = GetOutputRequest { terminal_id: terminal.to_owned(), ..GetOutputRequest::default() };
    let output = client.terminals.get_output(request).await.expect("its output").into_inner();
    assert_eq!(output.start_offset, 0, "nothing was dropped");
    let text = String::from_utf8(output.data.to_vec()).unwrap();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(str::to_owned).collect()
}

/// Waits for more lines than `than`, each of which must be its own number.
async fn grows_without_a_gap(client: &mut Client, terminal: &str, than: usize) -> usize {
    let mut seen = 0;
    within("more lines", async {
        while seen <= than {
            let lines = lines(client, terminal).await;
            for (number, line) in lines.iter().enumerate() {
                assert_eq!(*line, number.to_string(), "a line is missing, or there twice");
            }
            seen = lines.len();
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    seen
}

async fn state(client: &mut Client, terminal: &str) -> (TerminalState, u32) {
    let request = GetTerminalRequest { terminal_id: terminal.to_owned(), ..GetTerminalRequest::default() };
    let terminal = client
        .terminals
        .get_terminal(request)
        .await
        .expect("it is known")
        .into_inner()
        .terminal
        .expect("it is set");
    (terminal.state(), terminal.pid)
}

#[test]
fn a_1_the_units_are_in_order_and_closed() {
    if !is_machine() {
        return;
    }
    for unit in ["provost.service", "provost.socket", "provost-sandboxes.service"] {
        succeed("systemd-analyze", &["verify", &format!("/etc/systemd/system/{unit}")]);
    }
    // 0 is closed, 10 is open; what is left open is what sandboxes are made of.
    println!(
        "{}",
        succeed("systemd-analyze", &["security", "--no-pager", "--threshold=65", "provost.service"])
    );
}

#[tokio::test]
async fn a_2_the_first_caller_starts_the_gateway_and_limits_are_in_force() {
    if !is_machine() {
        return;
    }
    succeed("systemctl", &["enable", "--now", "provost.socket"]);
    assert_eq!(property("provost.service", "ActiveState"), "inactive", "nobody has called yet");
    let mut client = connected().await;
    eventually("the gateway's word that it serves", || {
        (property("provost.service", "ActiveState") == "active").then_some(())
    })
    .await;
    let session = session(&mut client, "limits").await;
    let terminal = start(&mut client, &session, "exec sleep 1000").await;
    let receipt = terminal.receipt.expect("it has started");
    assert!(receipt.cgroup.starts_with(SANDBOXES), "not in the sandboxes' unit: {}", receipt.cgroup);
    assert_eq!(receipt.shortfalls, Vec::<String>::new());
    assert_eq!(receipt.limits.get("memory.max").map(String::as_str), Some("4294967296"));
    let kill = KillTerminalRequest { terminal_id: terminal.id, ..KillTerminalRequest::default() };
    client.terminals.kill_terminal(kill).await.expect("it can be killed");
}

#[tokio::test]
async fn b_commands_run_on_while_the_gateway_is_restarted_upgraded_and_rolled_back() {
    if !is_machine() {
        return;
    }
    let mut client = connected().await;
    let session = session(&mut client, "restart").await;
    let terminal = start(&mut client, &session, NUMBERED).await;
    let mut seen = grows_without_a_gap(&mut client, &terminal.id, 3).await;
    let (running, process) = state(&mut client, &terminal.id).await;
    assert_eq!(running, TerminalState::Running);
    // A new file under the old name each time, as a package manager puts it there; then the old one again.
    for step in ["restart", "upgrade", "roll back"] {
        if step != "restart" {
            fs::copy("/usr/bin/provost", "/usr/bin/provost.new").unwrap();
            fs::rename("/usr/bin/provost.new", "/usr/bin/provost").unwrap();
        }
        let before = main_process("provost.service");
        succeed("systemctl", &["restart", "provost.service"]);
        client = served_again(before).await;
        assert_eq!(state(&mut client, &terminal.id).await, (TerminalState::Running, process), "after {step}");
        seen = grows_without_a_gap(&mut client, &terminal.id, seen).await;
    }
}

#[tokio::test]
async fn c_a_killed_gateway_is_started_again_and_has_its_terminals() {
    if !is_machine() {
        return;
    }
    let mut client = connected().await;
    let session = session(&mut client, "killed").await;
    let terminal = start(&mut client, &session, NUMBERED).await;
    let seen = grows_without_a_gap(&mut client, &terminal.id, 3).await;
    let before = main_process("provost.service");
    succeed("systemctl", &["kill", "--signal=KILL", "--kill-whom=main", "provost.service"]);
    let mut client = served_again(before).await;
    grows_without_a_gap(&mut client, &terminal.id, seen).await;
}

#[tokio::test]
async fn d_a_caller_who_comes_during_a_restart_is_not_refused() {
    if !is_machine() {
        return;
    }
    connected().await;
    let restart = std::thread::spawn(|| succeed("systemctl", &["restart", "provost.service"]));
    let mut connections = 0_u32;
    while !restart.is_finished() {
        std::os::unix::net::UnixStream::connect(Path::new("/run/provost/provost.sock"))
            .expect("the socket listens throughout");
        connections += 1;
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    restart.join().expect("the restart goes well");
    assert!(connections > 1, "nobody called while it was restarted");
    connected().await;
}

#[tokio::test]
async fn e_a_reload_puts_a_new_profile_into_force_and_memory_runs_out_for_the_command_alone() {
    if !is_machine() {
        return;
    }
    let mut client = connected().await;
    let session = session(&mut client, "memory").await;
    let policy = "[profile.small]\nextends = \"workspace\"\n[profile.small.limits.terminal]\nmemory_bytes = 33_554_432\n";
    fs::write("/etc/provost/policies/small.toml", policy).unwrap();
    succeed("systemctl", &["reload", "provost.service"]);
    let mut request = shell(&session, "x=xxxxxxxxxxxxxxxx; while :; do x=$x$x; done");
    request.profile = "small".into();
    let (cause, end) = within("the reload, and the command's end", async {
        loop {
            match client.terminals.run(RunRequest { create: Some(request.clone()), resumable: false }).await {
                Ok(events) => {
                    let mut events = events.into_inner();
                    while let Some(event) = events.message().await.expect("an event") {
                        if let Some(run_response::Event::Finished(terminal)) = event.event {
                            let outcome = terminal.outcome.expect("it has ended");
                            return (outcome.cause(), outcome.end);
                        }
                    }
                    panic!("no outcome");
                }
                // The signal has been sent; the policy is read a moment later.
                Err(refused) => assert_eq!(refused.code(), tonic::Code::PermissionDenied, "{refused:?}"),
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(cause, ExitCause::MemoryLimit, "{end:?}");
    assert_eq!(end, Some(End::Signal("SIGKILL".into())));
    assert_eq!(property("provost.service", "ActiveState"), "active");
    assert_eq!(property("provost-sandboxes.service", "ActiveState"), "active");
}

#[tokio::test]
async fn f_stopping_the_sandboxes_unit_ends_every_command() {
    if !is_machine() {
        return;
    }
    let mut client = connected().await;
    let session = session(&mut client, "stopped").await;
    start(&mut client, &session, NUMBERED).await;
    succeed("systemctl", &["stop", "provost.service", "provost-sandboxes.service"]);
    let group = Path::new("/sys/fs/cgroup").join(&SANDBOXES[1..]);
    assert!(!group.exists(), "the unit's group is gone, and so empty");
    let supervisors = Command::new("pgrep").args(["-x", "provost-supervi"]).output().unwrap();
    assert!(supervisors.stdout.is_empty(), "a supervisor lives: {supervisors:?}");
    let mut client = connected().await;
    start(&mut client, &session, "exec sleep 1000").await;
}
