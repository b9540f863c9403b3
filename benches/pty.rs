//! What a pseudo-terminal costs: its output, `script` and `tmux` with the same, its memory while idle, and the time from a key to the
//! screen that shows it.
//!
//! `cargo bench --bench pty -- [--rounds N] [--mib N] [--terminals N] [--keys N]`

#[allow(dead_code, reason = "each benchmark uses its part")]
mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use provost::{
    client::Client,
    proto::v1::{
        CreateTerminalRequest, Pty, SendInputRequest, SnapshotScreenRequest, StdinMode, StreamOutputRequest,
        TerminalInput, WatchScreenRequest, stream_output_response, terminal_input::Input,
        watch_screen_response::Event,
    },
};
use provost_test_support::{Gateway, Process};
use support::{
    gateway, machine,
    peers::Peer,
    statistics::{self, Row, Samples},
};

/// A line of a log with a colour.
const LINE: &str =
    "\x1b[32m2026-11-24\x1b[0m INFO a line of a log, as long as most of them are, number 12345\n";
/// Between two keys, so that a viewer's bound of 30 changes a second holds none of them back.
const BETWEEN_KEYS: Duration = Duration::from_millis(50);

fn main() {
    if !support::asked_to_measure() {
        return;
    }
    println!("## Pseudo-terminals\n");
    machine::print_facts();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(measure());
}

async fn measure() {
    let gateway = gateway::start();
    let mut client = gateway::connect(&gateway).await;
    let session = gateway::open_session(&gateway, &mut client).await;
    throughput(&gateway, &mut client, &session).await;
    memory(&gateway, &mut client, &session).await;
    latency(&mut client, &session).await;
    gateway::close_session(&mut client, &session).await;
}

fn in_pty(session: &str, argv: &[&str]) -> CreateTerminalRequest {
    CreateTerminalRequest {
        pty: Some(Pty { columns: 80, rows: 24, ..Pty::default() }),
        stdin_mode: StdinMode::Open.into(),
        ..gateway::command(session, argv)
    }
}

async fn throughput(gateway: &Gateway, client: &mut Client, session: &str) {
    let (rounds, mib) = (support::number("rounds", 7), support::number("mib", 64));
    let flood = gateway::workspace(gateway).join("flood");
    let bytes = (mib << 20) / LINE.len() * LINE.len();
    fs::write(&flood, LINE.repeat(bytes / LINE.len())).expect("the workspace can be written");
    let path = flood.to_str().expect("UTF-8");
    let tmux = TmuxServer::new(gateway::workspace(gateway).join("tmux.sock"));
    let through_tmux = format!(
        "tmux -S {0} -f /dev/null new-session -d -x 80 -y 24 'cat {path}; tmux -S {0} wait-for -S ended' && tmux -S {0} wait-for ended",
        tmux.socket.display()
    );
    let peers = [
        Peer::new("`script`, to /dev/null", &["script", "-qec", &format!("cat {path}"), "/dev/null"]),
        Peer::new("`tmux`, with its screen", &["sh", "-c", &through_tmux]),
    ];
    let (peers, absent): (Vec<_>, Vec<_>) = peers.into_iter().partition(|peer| peer.run().is_some());
    let own = ["Provost, streamed to a caller", "Provost, unread", "Provost, unread, with its screen"];
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); peers.len() + own.len()];
    for _ in 0..rounds {
        let mut took: Vec<Duration> = peers.iter().map(|peer| peer.run().expect("it ran before")).collect();
        let cat = in_pty(session, &["cat", path]);
        let begun = Instant::now();
        let came = gateway::run(client, cat.clone()).await;
        took.push(begun.elapsed());
        // Each line's end is two bytes: the terminal's line discipline makes it so.
        assert_eq!(came, (bytes + bytes / LINE.len()) as u64, "all bytes came, and each once");
        let begun = Instant::now();
        let terminal = gateway::create_and_wait(client, cat.clone()).await;
        took.push(begun.elapsed());
        gateway::release(client, terminal).await;
        took.push(with_screen(client, session, path).await);
        for (rates, took) in rates.iter_mut().zip(took) {
            rates.push(bytes as f64 / 1e6 / took.as_secs_f64());
        }
    }
    println!("`cat` of {mib} MiB of lines of a log, medians of {rounds} rounds.\n");
    println!("| pseudo-terminal of | MB/s | ratio to the first |\n|---|---:|---:|");
    let names = peers.iter().map(|peer| peer.name.as_str()).chain(own);
    let medians: Vec<f64> = rates.iter().map(|rates| statistics::median(rates)).collect();
    for (name, median) in names.zip(&medians) {
        println!("| {name} | {median:.0} | {:.2} |", median / medians[0]);
    }
    for peer in absent {
        println!("\nSKIPPED: {}: it is not installed, or does not work here", peer.name);
    }
}

/// From the start of the command until its screen shows all that it wrote.
async fn with_screen(client: &mut Client, session: &str, path: &str) -> Duration {
    let begun = Instant::now();
    let waits = in_pty(session, &["sh", "-c", "cat \"$0\"; printf END; read line", path]);
    let terminal = create(client, waits).await;
    let mut events = watch(client, &terminal).await;
    loop {
        let event = events.message().await.expect("the stream goes on").expect("it has not ended").event;
        let lines = match event.expect("it is set") {
            Event::Snapshot(screen) => screen.lines,
            Event::Change(change) => change.lines,
            Event::Ended(_) => panic!("the command waits for a line"),
        };
        if lines.iter().any(|line| line.text.ends_with("END")) {
            break;
        }
    }
    let took = begun.elapsed();
    gateway::release(client, terminal).await;
    took
}

async fn create(client: &mut Client, request: CreateTerminalRequest) -> String {
    let answer = client.terminals.create_terminal(request).await.expect("the command starts");
    answer.into_inner().terminal.expect("it is set").id
}

async fn watch(
    client: &mut Client,
    terminal: &str,
) -> tonic::Streaming<provost::proto::v1::WatchScreenResponse> {
    let request = WatchScreenRequest { terminal_id: terminal.to_owned(), ..WatchScreenRequest::default() };
    client.screens.watch_screen(request).await.expect("it has a screen").into_inner()
}

async fn memory(gateway: &Gateway, client: &mut Client, session: &str) {
    let count = support::number("terminals", 12);
    let mut terminals = Vec::new();
    // The first one brings the session's processes, which are there once.
    let first = idle(client, session).await;
    let before = total_kib(gateway.pid);
    for _ in 0..count {
        terminals.push(idle(client, session).await);
    }
    let each = total_kib(gateway.pid).saturating_sub(before) / count as u64;
    println!(
        "\nAn idle terminal with a screen of 80x24 and `sleep` in it, unshared memory of all processes: {each} KiB."
    );
    for terminal in terminals.into_iter().chain([first]) {
        gateway::release(client, terminal).await;
    }
    let tmux = TmuxServer::new(gateway::workspace(gateway).join("tmux.sock"));
    if !tmux.run(&["new-session", "-d", "-x", "80", "-y", "24", "sleep 600"]) {
        return;
    }
    let before = total_kib(tmux.pid());
    for _ in 0..count {
        assert!(tmux.run(&["new-window", "-d", "sleep 600"]), "the server runs");
    }
    let each = total_kib(tmux.pid()).saturating_sub(before) / count as u64;
    println!("\nThe same as a window of `tmux`: {each} KiB.");
}

async fn idle(client: &mut Client, session: &str) -> String {
    let terminal = create(client, in_pty(session, &["sleep", "600"])).await;
    let request = SnapshotScreenRequest { terminal_id: terminal.clone(), ..SnapshotScreenRequest::default() };
    client.screens.snapshot_screen(request).await.expect("it has a screen");
    terminal
}

/// Anonymous and shared memory of a process and of all that it has started.
fn total_kib(root: u32) -> u64 {
    let mut total = 0;
    let mut left = vec![root];
    while let Some(pid) = left.pop() {
        total += Process::read(pid).map_or(0, |one| one.kib("RssAnon") + one.kib("RssShmem"));
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            left.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    total
}

async fn latency(client: &mut Client, session: &str) {
    let keys = support::number("keys", 300);
    let terminal = create(client, in_pty(session, &["cat"])).await;
    let mut events = watch(client, &terminal).await;
    let request =
        StreamOutputRequest { terminal_id: terminal.clone(), follow: true, ..StreamOutputRequest::default() };
    let mut output = client.terminals.stream_output(request).await.expect("it has output").into_inner();
    events.message().await.expect("the stream goes on");
    let (mut bytes, mut screens) = (Samples::default(), Samples::default());
    for _ in 0..keys {
        tokio::time::sleep(BETWEEN_KEYS).await;
        let begun = Instant::now();
        let inputs = vec![TerminalInput { input: Some(Input::Text("x".to_owned())) }];
        let request =
            SendInputRequest { terminal_id: terminal.clone(), inputs, ..SendInputRequest::default() };
        client.screens.send_input(request).await.expect("it takes input");
        let event = output.message().await.expect("the stream goes on").expect("it has not ended").event;
        assert!(matches!(event, Some(stream_output_response::Event::Chunk(_))), "{event:?}");
        bytes.add(begun.elapsed());
        loop {
            let event = events.message().await.expect("the stream goes on").expect("it has not ended").event;
            match event.expect("it is set") {
                Event::Change(change) if change.lines.iter().any(|line| line.text.ends_with('x')) => break,
                Event::Ended(_) => panic!("it has not ended"),
                Event::Snapshot(_) | Event::Change(_) => {}
            }
        }
        screens.add(begun.elapsed());
    }
    println!("\nFrom a key, sent as a call, to its echo (ratios to the first row):\n");
    let rows = [("the byte in the streamed output", bytes), ("the change of the watched screen", screens)];
    statistics::print_durations(&rows.map(|(name, samples)| Row { name: name.to_owned(), samples }));
    gateway::release(client, terminal).await;
}

/// A server of `tmux` with a socket of its own, ended with this value.
struct TmuxServer {
    socket: PathBuf,
}

impl TmuxServer {
    fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    fn run(&self, arguments: &[&str]) -> bool {
        tmux(&self.socket, arguments).status().is_ok_and(|status| status.success())
    }

    fn pid(&self) -> u32 {
        let answer = tmux(&self.socket, &["display-message", "-p", "#{pid}"])
            .stdout(Stdio::piped())
            .output()
            .expect("it ran before");
        String::from_utf8_lossy(&answer.stdout).trim().parse().expect("a number")
    }
}

impl Drop for TmuxServer {
    fn drop(&mut self) {
        // None may run.
        let _ = self.run(&["kill-server"]);
    }
}

fn tmux(socket: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("tmux");
    command.arg("-S").arg(socket).args(["-f", "/dev/null"]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}
