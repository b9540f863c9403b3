//! Roots on a file system that does not answer: only the caller who asks for one waits.
//!
//! The file system is FUSE, spoken here without a library: a server that never answers, or stops to.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tonic::Code;

use crate::support::{
    Gateway, Refusal, Session, Terminal,
    api::{CreateSessionRequest, CreateTerminalRequest, create_terminal_request},
    code, is_root, skip, within,
};

const ATTACKER: u32 = 54_322;
const VICTIM: u32 = 54_321;
/// `st_mode` of the one directory.
const MODE: u32 = libc::S_IFDIR | 0o755;

/// A mounted file system of one empty directory. Unmounted with this; what waits for it is then answered.
struct Fuse {
    at: PathBuf,
    answers: Arc<AtomicBool>,
    device: Option<File>,
}

impl Fuse {
    /// One whose server answers for now, or never. None: this host has no FUSE.
    fn mount(gateway: &Gateway, name: &str, answers: bool) -> Option<Self> {
        let at = gateway.directory().join(name);
        fs::create_dir(&at).expect("a directory can be made");
        let device = File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let options = format!(
            "fd={},rootmode={:o},user_id={ATTACKER},group_id={ATTACKER},allow_other",
            device.as_raw_fd(),
            MODE & libc::S_IFMT
        );
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("provost-test"), &at, Some("fuse"), flags, Some(options.as_str())).ok()?;
        let answers = Arc::new(AtomicBool::new(answers));
        let (server, its) = (device.try_clone().expect("a descriptor can be copied"), answers.clone());
        if answers.load(Ordering::Relaxed) {
            thread::spawn(move || serve(server, &its));
        }
        Some(Self { at, answers, device: Some(device) })
    }

    fn fall_silent(&self) {
        self.answers.store(false, Ordering::Relaxed);
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        // The connection is aborted: the server's thread gets ENODEV, and each caller that waits gets an error.
        umount2(&self.at, MntFlags::MNT_FORCE | MntFlags::MNT_DETACH).expect("it can be unmounted");
        drop(self.device.take());
    }
}

/// Answers as a file system with one empty directory does, until it is told not to; then only reads.
fn serve(mut device: File, answers: &AtomicBool) {
    const INIT: u32 = 26;
    const GETATTR: u32 = 3;
    const STATFS: u32 = 17;
    const OPENDIR: u32 = 27;
    const READDIR: u32 = 28;
    const RELEASEDIR: u32 = 29;
    const WITHOUT_ANSWER: [u32; 3] = [2, 36, 42];
    let mut request = vec![0; 1 << 17];
    while let Ok(length @ 40..) = device.read(&mut request) {
        let word = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().expect("four bytes"));
        let opcode = word(4);
        if !answers.load(Ordering::Relaxed) || WITHOUT_ANSWER.contains(&opcode) || length < 40 {
            continue;
        }
        let (error, body) = match opcode {
            INIT => (0, words(&[7, 31, 0, 0, 0, 4096, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
            GETATTR => {
                let mut attributes = vec![0_u32; 26];
                // Valid for no time: each look asks again. Then ino, mode, nlink, uid, gid.
                attributes[4] = 1;
                (attributes[19], attributes[20]) = (MODE, 2);
                (attributes[21], attributes[22]) = (ATTACKER, ATTACKER);
                (0, words(&attributes))
            }
            OPENDIR => (0, words(&[0; 4])),
            READDIR | RELEASEDIR => (0, Vec::new()),
            STATFS => (0, words(&[0; 20])),
            1 => (-libc::ENOENT, Vec::new()),
            _ => (-libc::ENOSYS, Vec::new()),
        };
        let mut answer = words(&[16 + body.len() as u32, error as u32]);
        answer.extend_from_slice(&request[8..16]);
        answer.extend(body);
        // A request that was interrupted takes no answer.
        let _ = device.write_all(&answer);
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

async fn the_victim_is_served(gateway: &Arc<Gateway>) {
    let session = within("a session while another one hangs", Session::open_as(gateway, VICTIM)).await;
    let finished = within("a command", session.command("true").finish()).await;
    assert_eq!(code(&finished.outcome), 0);
    session.close().await;
}

fn root(at: &Path) -> CreateSessionRequest {
    CreateSessionRequest { roots: vec![at.display().to_string()], ..CreateSessionRequest::default() }
}

fn must_be_overdue(refusal: &Refusal) {
    match refusal.code {
        Code::Unavailable => assert_eq!(refusal.reason, "FILE_SYSTEM_OVERDUE", "{refusal:?}"),
        Code::ResourceExhausted => assert_eq!(refusal.meta("limit"), "file_system_requests", "{refusal:?}"),
        other => panic!("{other:?}: {refusal:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_on_a_mount_that_never_answers_hold_up_nobody_else() {
    if !is_root() {
        return skip("mounting needs root");
    }
    let gateway = Gateway::start();
    let Some(fuse) = Fuse::mount(&gateway, "silent", false) else { return skip("this host has no FUSE") };
    let attacker = gateway.caller_as(ATTACKER).await;
    let attempts: Vec<_> = (0..8)
        .map(|n| {
            let (sessions, mut request) = (attacker.sessions.clone(), root(&fuse.at));
            // Also with an id, under which requests take turns.
            request.request_id = if n > 0 { String::new() } else { "hung".into() };
            tokio::spawn(async move { sessions.clone().create_session(request).await })
        })
        .collect();
    for _ in 0..3 {
        the_victim_is_served(&gateway).await;
        // With an id, too.
        let named = gateway.caller_as(VICTIM).await;
        let request = CreateSessionRequest { request_id: "mine".into(), ..root(Path::new("/no/such")) };
        let refused = within("an answer", named.sessions.clone().create_session(request)).await;
        assert_eq!(refused.expect_err("there is no such root").code(), Code::InvalidArgument);
    }
    for attempt in attempts {
        let refused = within("an answer to who asked", attempt).await.expect("the task runs");
        must_be_overdue(&Refusal::from(refused.expect_err("the mount does not answer")));
    }
    drop(fuse);
    // Its places are free again.
    let session = Session::open_as(&gateway, ATTACKER).await;
    session.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_starts_again_with_a_root_that_does_not_answer() {
    if !is_root() {
        return skip("mounting needs root");
    }
    let gateway = Gateway::start();
    let Some(fuse) = Fuse::mount(&gateway, "failing", true) else { return skip("this host has no FUSE") };
    let attacker = gateway.caller_as(ATTACKER).await;
    for _ in 0..3 {
        let opened = within("a session", attacker.sessions.clone().create_session(root(&fuse.at))).await;
        opened.expect("the mount answers");
    }
    fuse.fall_silent();
    gateway.crash();
    gateway.start_again();
    the_victim_is_served(&gateway).await;
    drop(fuse);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_root_that_stops_answering_costs_only_its_owner() {
    if !is_root() {
        return skip("mounting needs root");
    }
    let gateway = Gateway::start();
    let Some(fuse) = Fuse::mount(&gateway, "failing", true) else { return skip("this host has no FUSE") };
    let attacker = gateway.caller_as(ATTACKER).await;
    let opened = within("a session", attacker.sessions.clone().create_session(root(&fuse.at))).await;
    let session = opened.expect("the mount answers").into_inner().session.expect("it is set");
    fuse.fall_silent();
    let below = fuse.at.join("below").display().to_string();
    let attempts: Vec<_> = ["true", "./program", "true"]
        .into_iter()
        .map(|command| {
            let request = CreateTerminalRequest {
                session_id: session.id.clone(),
                command: Some(create_terminal_request::Command::Program(command.into())),
                cwd: if command == "true" { below.clone() } else { String::new() },
                ..CreateTerminalRequest::default()
            };
            let terminals = attacker.terminals.clone();
            tokio::spawn(async move { terminals.clone().create_terminal(request).await })
        })
        .collect();
    for _ in 0..3 {
        the_victim_is_served(&gateway).await;
    }
    for attempt in attempts {
        let refused = within("an answer to who asked", attempt).await.expect("the task runs");
        must_be_overdue(&Refusal::from(refused.expect_err("the mount does not answer")));
    }
    drop(fuse);
}

/// More users than there are shared places for, with as many requests as each may have under way.
const MANY_USERS: u32 = 24;
const HUNG_REQUESTS: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_users_who_all_hang_leave_another_one_its_turn() {
    if !is_root() {
        return skip("mounting needs root");
    }
    let gateway = Gateway::start();
    let Some(fuse) = Fuse::mount(&gateway, "silent", false) else { return skip("this host has no FUSE") };
    let (mut attempts, mut callers) = (Vec::new(), Vec::new());
    for uid in (0..MANY_USERS).map(|n| ATTACKER + 100 + n) {
        let caller = gateway.caller_as(uid).await;
        for _ in 0..HUNG_REQUESTS {
            let (sessions, request) = (caller.sessions.clone(), root(&fuse.at));
            attempts.push(tokio::spawn(async move { sessions.clone().create_session(request).await }));
        }
        callers.push(caller);
    }
    for attempt in attempts {
        let refused = within("an answer to who asked", attempt).await.expect("the task runs");
        must_be_overdue(&Refusal::from(refused.expect_err("the mount does not answer")));
    }
    // Everybody has been answered, and the threads hang on.
    for _ in 0..3 {
        the_victim_is_served(&gateway).await;
    }
    drop(callers);
    drop(fuse);
}

fn without_gate(policy: &mut toml::Table) {
    policy["profile"]["workspace"]["gate"]["enabled"] = false.into();
}

/// Changes the mode of a directory when it is told to by a file, and says what came of it.
const CHANGES_MODE: &str = "
import os, sys, time
while not os.path.exists(sys.argv[1]): time.sleep(0.02)
print('begun', flush=True)
try:
    os.chmod(sys.argv[2], 0o2755)
    print('changed', flush=True)
except OSError as error:
    print(error.strerror, flush=True)
";

/// Commands that wait for a change of mode that the supervisor makes of a root that has stopped to answer, and one that has been told to change
/// another directory, in one sandbox.
async fn with_hung_changes_of_mode(body: impl AsyncFnOnce(&Terminal, Vec<Terminal>)) {
    if !is_root() {
        return skip("mounting needs root");
    }
    let gateway = Gateway::with_policy(without_gate);
    let Some(fuse) = Fuse::mount(&gateway, "failing", true) else { return skip("this host has no FUSE") };
    let at = fuse.at.display().to_string();
    let caller = gateway.caller_as(ATTACKER).await;
    let session =
        Session::open_with(&gateway, caller, Some(ATTACKER), |request| request.roots.push(at.clone())).await;
    let changes = |word: &str, of: &str| session.command("python3").args(["-c", CHANGES_MODE, word, of]);
    let mut hung = Vec::new();
    for _ in 0..3 {
        hung.push(changes("first", &at).create().await);
    }
    let other = changes("then", ".").create().await;
    fuse.fall_silent();
    for (word, terminals) in [("first", hung.as_slice()), ("then", std::slice::from_ref(&other))] {
        fs::write(session.workspace.join(word), "").expect("a file can be made");
        for terminal in terminals {
            terminal.until("begun").await;
        }
    }
    body(&other, hung).await;
    drop(fuse);
    session.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_mode_that_hangs_holds_up_no_other_command_and_no_kill() {
    with_hung_changes_of_mode(async |other, hung| {
        other.until("changed").await;
        for terminal in hung {
            terminal.kill(Some(Duration::ZERO)).await;
            within("the end of one that hangs", terminal.wait()).await;
            let said = terminal.output().await.data;
            assert_eq!(said.as_ref(), b"begun\n", "it was still waiting");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: waits until a change of mode has taken too long"]
async fn a_change_of_mode_that_hangs_fails_after_a_while() {
    with_hung_changes_of_mode(async |_, hung| {
        for terminal in hung {
            terminal.until("Connection timed out").await;
        }
    })
    .await;
}
