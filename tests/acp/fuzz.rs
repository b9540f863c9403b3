//! Noise on both sides of the shim: random and truncated messages, ids that are nobody's, lines of megabytes, bytes
//! that are no text, and an agent or an editor that dies at any moment. Whatever comes, the shim must end when its
//! time has come, must not panic, must hand the editor nothing but messages, and must leave no process and no cgroup.
//!
//! Bounded: `PROVOST_FUZZ_ROUNDS` conversations (8; 40 in `.ci/run`), from the seed `PROVOST_FUZZ_SEED` (always the same). The seed of each
//! round is printed, and a failure names it.

use std::{
    env, fs,
    io::Write,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::fixture::Fixture;
use crate::support::{TestGroup, eventually};

const ROUNDS: u64 = 8;
const SEED: u64 = 0x5eed;
/// Rounds that wait for a command, and how long each does: what is said by chance may have none.
const PATIENT_ROUNDS: u64 = 20;
const PATIENCE: Duration = Duration::from_secs(10);
/// Past every grace time, on a loaded machine.
const END: Duration = Duration::from_secs(240);

#[tokio::test]
async fn noise_hangs_nothing_leaves_nothing_and_breaks_nothing() {
    let number = |name: &str| env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seed = number("PROVOST_FUZZ_SEED").unwrap_or(SEED);
    let rounds = number("PROVOST_FUZZ_ROUNDS").unwrap_or(ROUNDS);
    let mut with_commands = 0;
    for round in 0..rounds {
        let seed = seed.wrapping_add(round);
        println!("PROVOST_FUZZ_SEED={seed} PROVOST_FUZZ_ROUNDS=1");
        with_commands += u64::from(one_round(seed, Duration::ZERO).await == Commands::Ran);
    }
    // On a busy host none may have begun so early: then rounds end when one has.
    for round in rounds..rounds + PATIENT_ROUNDS {
        if rounds < 20 || with_commands > 0 {
            break;
        }
        with_commands += u64::from(one_round(seed.wrapping_add(round), PATIENCE).await == Commands::Ran);
    }
    println!("in {with_commands} of {rounds} rounds commands ran at the end");
    assert!(rounds < 20 || with_commands > 0, "the noise never got a command to run");
}

/// Whether commands ran when a round came to its end.
#[derive(Debug, PartialEq, Eq)]
enum Commands {
    Ran,
    NoneRan,
}

/// xorshift64*: noise that a seed gives again.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn one_of<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }
}

/// How a round ends.
#[derive(Debug, Clone, Copy)]
enum Death {
    AgentKilled,
    AgentAtItsEnd,
    EditorClosed,
    EditorKilled,
    ShimTerminated,
}

/// Ends a moment after its beginning, but waits for a command for so long.
async fn one_round(seed: u64, patience: Duration) -> Commands {
    let mut noise = Noise(seed.wrapping_mul(2).wrapping_add(1));
    let death = match noise.below(5) {
        0 => Death::AgentKilled,
        1 => Death::AgentAtItsEnd,
        2 => Death::EditorClosed,
        3 => Death::EditorKilled,
        _ => Death::ShimTerminated,
    };
    let fixture = Fixture::new();
    // Commands carry this in their arguments, so that they can be told from those of other tests.
    let mark = format!("{}", 1_000_000_000 + seed % 1_000_000_000);
    fs::write(fixture.path("from_agent"), speech_of_agent(&mut noise, &fixture, &mark))
        .expect("files can be written");
    let group = TestGroup::new();
    let mut shim = start(&fixture, &group, death);
    let mut stdin = shim.stdin.take();
    // The editor that reads is a process, so that it can be killed.
    let received = fs::File::create(fixture.path("received")).expect("files can be made");
    let stdout = shim.stdout.take().expect("it is piped");
    let mut reader = Command::new("cat").stdin(stdout).stdout(received).spawn().expect("cat starts");
    let speech = speech_of_editor(&mut noise, &fixture);
    let writing = std::thread::spawn(move || {
        let mut stdin = stdin.take().expect("it is piped");
        // The shim may be gone before all is said.
        let _ = stdin.write_all(&speech);
        stdin
    });
    tokio::time::sleep(Duration::from_millis(noise.below(1500))).await;
    let begun = Instant::now();
    while begun.elapsed() < patience && commands_with(&mark).is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let context = format!("seed {seed}, {death:?}");
    let commands = if commands_with(&mark).is_empty() { Commands::NoneRan } else { Commands::Ran };
    match death {
        Death::AgentKilled => {
            let started =
                fs::read_to_string(fixture.path("pid")).ok().and_then(|text| text.trim().parse().ok());
            // Where it had not even started, the shim goes.
            let pid = started.unwrap_or(shim.id() as i32);
            let signal = if started.is_some() { Signal::SIGKILL } else { Signal::SIGTERM };
            let _ = kill(Pid::from_raw(pid), signal);
        }
        Death::ShimTerminated => {
            let _ = kill(Pid::from_raw(shim.id() as i32), Signal::SIGTERM);
        }
        Death::EditorKilled => {
            let _ = reader.kill();
        }
        Death::AgentAtItsEnd | Death::EditorClosed => {}
    }
    if matches!(death, Death::EditorClosed | Death::EditorKilled) {
        drop(writing.join().expect("the writer does not panic"));
        wait_for_end(&mut shim, &context, &fixture);
    } else {
        wait_for_end(&mut shim, &context, &fixture);
        drop(writing.join().expect("the writer does not panic"));
    }
    reader.wait().expect("cat can be waited for");
    only_messages(&fs::read(fixture.path("received")).unwrap_or_default(), &context);
    let said = String::from_utf8_lossy(&fs::read(fixture.path("stderr")).unwrap_or_default()).into_owned();
    assert!(!said.contains("panicked"), "{context}: the shim panicked\n{said}");
    eventually(&format!("{context}: no process is left"), || {
        (group.processes().is_empty() && commands_with(&mark).is_empty()).then_some(())
    })
    .await;
    eventually(&format!("{context}: no cgroup is left"), || group.groups().is_empty().then_some(())).await;
    group.destroy();
    fixture.marker_is_untouched();
    commands
}

/// The shim, in a cgroup of its own, before an agent that says what is in a file.
fn start(fixture: &Fixture, group: &TestGroup, death: Death) -> Child {
    let stays = if matches!(death, Death::AgentAtItsEnd) { "" } else { "; exec cat > /dev/null" };
    // It answers what it was asked: the editor's two requests come first, if they come.
    let agent = format!(
        "echo $$ > '{}'; timeout 2 head -n 2 > /dev/null; cat '{}'{stays}",
        fixture.word("pid"),
        fixture.word("from_agent")
    );
    let stderr = fs::File::create(fixture.path("stderr")).expect("files can be made");
    Command::new("/bin/sh")
        .arg("-c")
        .arg(format!("{}exec \"$0\" \"$@\"", group.entry_script()))
        .arg(env!("CARGO_BIN_EXE_provost"))
        .args(["acp", "--policies", &fixture.word("policies"), "--", "/bin/sh", "-c", &agent])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .expect("the shim starts")
}

fn wait_for_end(shim: &mut Child, context: &str, fixture: &Fixture) {
    let begun = Instant::now();
    loop {
        match shim.try_wait() {
            Ok(Some(_)) => return,
            Ok(None) if begun.elapsed() < END => std::thread::sleep(Duration::from_millis(10)),
            other => {
                let said = String::from_utf8_lossy(&fs::read(fixture.path("stderr")).unwrap_or_default())
                    .into_owned();
                let _ = shim.kill();
                panic!("{context}: the shim hangs ({other:?})\n{said}");
            }
        }
    }
}

/// What the editor reads must be messages, whatever the agent said; the last line may be cut by its writer's death.
fn only_messages(received: &[u8], context: &str) {
    let mut lines: Vec<&[u8]> = received.split(|byte| *byte == b'\n').collect();
    lines.pop();
    for line in lines.into_iter().filter(|line| !line.is_empty()) {
        let parsed = serde_json::from_slice::<serde::de::IgnoredAny>(line);
        let shown = String::from_utf8_lossy(&line[..line.len().min(300)]);
        assert!(parsed.is_ok(), "{context}: the editor was sent what is no JSON: {shown}");
    }
}

/// Ids of processes, in any namespace, with this word in their arguments.
fn commands_with(word: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|name| {
            let arguments = fs::read(format!("/proc/{name}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&arguments).split('\0').any(|argument| argument == word)
        })
        .collect()
}

fn speech_of_agent(noise: &mut Noise, fixture: &Fixture, mark: &str) -> Vec<u8> {
    let mut speech = Vec::new();
    // The answers that make a session of it, most of the time.
    if noise.below(10) > 0 {
        speech.extend(br#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{}}}"#);
        speech.extend(b"\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"sessionId\":\"s\"}}\n");
    }
    for _ in 0..noise.below(120) {
        let message = message_of_agent(noise, fixture, mark);
        spoil(noise, message, &mut speech);
    }
    speech
}

fn message_of_agent(noise: &mut Noise, fixture: &Fixture, mark: &str) -> String {
    let id = id(noise);
    let session = noise.one_of(&["s", "s", "s", "t", ""]);
    let terminal = noise.one_of(&["term_00000000000000000000000000", "x", "", "🦀"]);
    let naming = format!(r#"{{"sessionId":"{session}","terminalId":"{terminal}"}}"#);
    let marker = fixture.word("marker");
    match noise.below(12) {
        0..=2 => {
            let script = noise.one_of(&[
                "sleep 1000 & setsid sleep 1000 & sleep 1000",
                "echo x",
                "trap '' TERM HUP; while :; do sleep 1; done",
                "head -c 3000000 /dev/urandom",
                "exit 3",
            ]);
            let limit = noise.one_of(&["null", "0", "1", "1000", "18446744073709551615"]);
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"terminal/create","params":{{"sessionId":"{session}","command":"sh","args":["-c","{script}; echo no > {marker}","{mark}"],"outputByteLimit":{limit}}}}}"#
            )
        }
        3 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"terminal/output","params":{naming}}}"#),
        4 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"terminal/wait_for_exit","params":{naming}}}"#),
        5 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"terminal/kill","params":{naming}}}"#),
        6 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"terminal/release","params":{naming}}}"#),
        7 => format!(r#"{{"jsonrpc":"2.0","method":"$/cancel_request","params":{{"requestId":{id}}}}}"#),
        8 => format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{session}","update":{{"sessionUpdate":"tool_call","toolCallId":"c","title":"x","kind":"execute","content":[{{"type":"terminal","terminalId":"{terminal}"}}]}}}}}}"#
        ),
        9 => format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"session/request_permission","params":{{"sessionId":"{session}","toolCall":{{"toolCallId":"c"}},"options":[]}}}}"#
        ),
        10 => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"stopReason":"end_turn"}}}}"#),
        _ => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"_noise/{}","params":[{id}]}}"#, noise.below(9)),
    }
}

fn speech_of_editor(noise: &mut Noise, fixture: &Fixture) -> Vec<u8> {
    let mut speech = Vec::new();
    let workspace = fixture.word("workspace");
    if noise.below(10) > 0 {
        speech.extend(br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}"#);
        speech.extend(
            format!("\n{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"session/new\",\"params\":{{\"cwd\":\"{workspace}\",\"mcpServers\":[]}}}}\n")
                .bytes(),
        );
    }
    for _ in 0..noise.below(80) {
        let id = id(noise);
        let session = noise.one_of(&["s", "s", "t", ""]);
        let message = match noise.below(7) {
            0 => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"session/prompt","params":{{"sessionId":"{session}","prompt":[]}}}}"#
            ),
            1 => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"session/new","params":{{"cwd":"{workspace}","mcpServers":[]}}}}"#
            ),
            2 => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"session/close","params":{{"sessionId":"{session}"}}}}"#
            ),
            3 => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"session/load","params":{{"sessionId":"{session}","cwd":"/"}}}}"#
            ),
            4 => format!(
                r#"{{"jsonrpc":"2.0","method":"session/cancel","params":{{"sessionId":"{session}"}}}}"#
            ),
            5 => format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-1,"message":"no"}}}}"#),
            _ => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{{"protocolVersion":{id}}}}}"#
            ),
        };
        spoil(noise, message, &mut speech);
    }
    speech
}

/// Ids of every type, often the same ones.
fn id(noise: &mut Noise) -> String {
    match noise.below(9) {
        0 => "null".to_owned(),
        1 => "{}".to_owned(),
        2 => "1.5".to_owned(),
        3 => "123456789012345678901234567890".to_owned(),
        4 => format!("\"{}\"", noise.below(4)),
        5 => "-1".to_owned(),
        _ => noise.below(6).to_string(),
    }
}

/// Adds a message as it is, or in one of the ways in which messages are broken.
fn spoil(noise: &mut Noise, message: String, speech: &mut Vec<u8>) {
    let mut line = message.into_bytes();
    match noise.below(40) {
        0 => line.truncate(noise.below(line.len() as u64) as usize),
        1 => {
            let at = noise.below(line.len() as u64) as usize;
            line[at] = noise.next() as u8;
        }
        2 => line = (0..noise.below(300)).map(|_| noise.next() as u8).collect(),
        3 => line.extend(b"\xff\xfe\xc3"),
        4 => line.extend(line.clone()),
        5 => line = [b"[".as_slice(), &line, b"]"].concat(),
        6 => line = vec![b'['; 20_000],
        7 => line = [b"\0\r\n \t".as_slice(), &line].concat(),
        8 => line = "{\"jsonrpc\":\"2.0\",\"method\":7,\"params\":null}".into(),
        9 => line.clear(),
        10 if noise.below(4) == 0 => {
            let size = 10_000_000 + noise.below(12_000_000) as usize;
            line = format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"_large\",\"params\":{{\"x\":\"{}\"}}}}",
                "y".repeat(size)
            )
            .into();
        }
        _ => {}
    }
    speech.extend(line);
    // Some lines have no end.
    if noise.below(60) > 0 {
        speech.push(b'\n');
    }
}
