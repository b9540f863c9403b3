//! What the shim costs: a message that passes through it, compared with the same message through a bare `cat`, and an
//! agent that polls a megabyte of output four times a second.
//!
//!     cargo bench --bench acp

#[allow(dead_code, reason = "each benchmark uses its part")]
mod support;

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use support::{machine, statistics::print_aim};

/// Messages measured, after as many that are not.
const MESSAGES: usize = 5000;
const PASS_AIM: Duration = Duration::from_micros(200);
const POLL_AIM_PERCENT: f64 = 1.0;
const POLLED_BYTES: usize = 1 << 20;
const POLL_EVERY: Duration = Duration::from_millis(250);
const POLLS: usize = 40;

fn main() {
    if !support::asked_to_measure() {
        return;
    }
    println!("## The ACP shim\n");
    machine::print_facts();
    passing();
    polling();
}

/// One line to the other end and back, through `cat` alone and through the shim with `cat` as its agent: the shim is
/// passed twice, once in each direction.
fn passing() {
    println!("| message, bytes | by `cat`, median µs | by the shim and `cat` | one pass |");
    println!("|---:|---:|---:|---:|");
    let mut longest = Duration::ZERO;
    for bytes in [200, 4000, 64_000] {
        let message =
            json!({"jsonrpc": "2.0", "method": "_bench/note", "params": {"text": "x".repeat(bytes)}});
        let mut bare = Echo::start(&mut Command::new("cat"));
        let bare = bare.round_trips(&message);
        let mut shim = Command::new(env!("CARGO_BIN_EXE_provost"));
        let mut shim = Echo::start(shim.args(["acp", "--", "cat"]));
        let shim = shim.round_trips(&message);
        let pass = shim.saturating_sub(bare) / 2;
        println!("| {bytes} | {} | {} | {} |", bare.as_micros(), shim.as_micros(), pass.as_micros());
        if bytes <= 4000 {
            longest = longest.max(pass);
        }
    }
    let aim = format!("the shim passes on a message of up to 4,000 bytes in {} µs", PASS_AIM.as_micros());
    print_aim(&aim, &format!("{} µs", longest.as_micros()), longest <= PASS_AIM);
    println!();
}

/// A process that gives back what it is given.
struct Echo {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<std::process::ChildStdout>,
}

impl Echo {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let (to, from) = (child.stdin.take(), child.stdout.take().expect("it is piped"));
        Self { child, to, from: BufReader::with_capacity(1 << 20, from) }
    }

    /// The median.
    fn round_trips(&mut self, message: &Value) -> Duration {
        let sent = format!("{message}\n");
        let mut received = String::new();
        let mut times: Vec<Duration> = (0..2 * MESSAGES)
            .map(|_| {
                let begun = Instant::now();
                let to = self.to.as_mut().expect("it is open");
                to.write_all(sent.as_bytes()).expect("the program reads");
                received.clear();
                self.from.read_line(&mut received).expect("the program writes");
                assert_eq!(received.len(), sent.len(), "the message came back whole");
                begun.elapsed()
            })
            .skip(MESSAGES)
            .collect();
        times.sort_unstable();
        times[MESSAGES / 2]
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        drop(self.to.take());
        let _ = self.child.wait();
    }
}

/// An agent that asks for the output of a command that has filled its megabyte, every 250 ms.
fn polling() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut agent = Agent::start(directory.path());
    let script = format!("head -c {} /dev/zero | tr '\\0' x; echo; exec sleep 1000", POLLED_BYTES - 1);
    let params =
        json!({"sessionId": "s", "command": "sh", "args": ["-c", script], "outputByteLimit": POLLED_BYTES});
    let created = agent.ask("terminal/create", params);
    let naming = json!({"sessionId": "s", "terminalId": created["terminalId"]});
    while agent.ask("terminal/output", naming.clone())["output"].as_str().map_or(0, str::len) < POLLED_BYTES {
        std::thread::sleep(Duration::from_millis(20));
    }
    println!(
        "| the shim for {:.0} s, 1 MiB of output | processor time | of a core |",
        POLLS as f64 * POLL_EVERY.as_secs_f64()
    );
    println!("|---|---:|---:|");
    let mut share = 0.0;
    for (what, length, pause) in [("idle, not polled", 0, POLL_EVERY), ("polled", POLLED_BYTES, POLL_EVERY)] {
        let (cpu, begun) = (cpu_time(agent.shim.id()), Instant::now());
        for _ in 0..POLLS {
            if length > 0 {
                let output = agent.ask("terminal/output", naming.clone());
                assert_eq!(output["output"].as_str().map_or(0, str::len), length, "all of it is there");
            }
            std::thread::sleep(pause);
        }
        let spent = cpu_time(agent.shim.id()) - cpu;
        let percent = 100.0 * spent.as_secs_f64() / begun.elapsed().as_secs_f64();
        println!("| {what} | {} ms | {percent:.2} % |", spent.as_millis());
        share = percent;
    }
    print_aim(
        &format!("1 MiB of output, asked for every 250 ms, takes {POLL_AIM_PERCENT} % of a core"),
        &format!("{share:.2} %"),
        share < POLL_AIM_PERCENT,
    );
    agent.ask("terminal/release", naming);
}

/// The shim before an agent whose two ends are named pipes, held here.
struct Agent {
    shim: Child,
    editor: Option<ChildStdin>,
    to_shim: File,
    from_shim: BufReader<File>,
    next_id: u64,
}

impl Agent {
    fn start(directory: &Path) -> Self {
        let (inward, outward) = (directory.join("in"), directory.join("out"));
        for path in [&inward, &outward] {
            nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).expect("pipes can be made");
        }
        let carry = format!("cat '{}' & cat > '{}'", outward.display(), inward.display());
        let mut shim = Command::new(env!("CARGO_BIN_EXE_provost"))
            .args(["acp", "--", "sh", "-c", &carry])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the shim starts");
        let to_shim = OpenOptions::new().write(true).open(&outward).expect("the pipe opens");
        let from_shim = BufReader::new(File::open(&inward).expect("the pipe opens"));
        let mut editor = shim.stdin.take().expect("it is piped");
        let mut agent = Self { shim, editor: None, to_shim, from_shim, next_id: 0 };
        let workspace = directory.join("workspace");
        fs::create_dir(&workspace).expect("a directory can be made");
        for (id, method, params, result) in [
            (1, "initialize", json!({"protocolVersion": 1}), json!({"protocolVersion": 1})),
            (2, "session/new", json!({"cwd": workspace, "mcpServers": []}), json!({"sessionId": "s"})),
        ] {
            writeln!(editor, "{}", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
                .expect("the shim reads");
            let asked = agent.read();
            assert_eq!(asked["method"], method);
            agent.write(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}));
        }
        agent.editor = Some(editor);
        agent
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next_id += 1;
        self.write(&json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params}));
        let answer = self.read();
        assert_eq!(answer["id"], self.next_id, "{answer}");
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    fn write(&mut self, message: &Value) {
        writeln!(self.to_shim, "{message}").expect("the agent's pipe is read");
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.from_shim.read_line(&mut line).expect("the shim writes");
        serde_json::from_str(&line).expect("a message")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.editor.take());
        let _ = self.shim.wait();
    }
}

/// User and system time of a process, its threads and the children that it has waited for.
fn cpu_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process lives");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = fields[11..15].iter().filter_map(|field| field.parse::<u64>().ok()).sum();
    // USER_HZ is 100 on every architecture that Linux runs Provost on.
    Duration::from_millis(ticks * 10)
}
