//! What a command leaves running ends with it, and everybody who sees the end is told so.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use serde_json::json;

use crate::{
    lifecycle::{acp_peer::ShimPeer, mcp_peer, peer},
    support::{
        Gateway, Process, api::ExitCause, code, directory_with_workspace, eventually, in_session, is_root,
        lacks, mark, seconds, skip, sleepers,
    },
};

/// As every front end says it.
const ENDED: &str = "ended with the command: 1 process that it had left running (sleep); ";

fn leaves_a_sleeper(mark: &str) -> String {
    format!("sleep {mark} >/dev/null 2>&1 & true")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_a_command_leaves_running_is_counted_and_named_when_it_ends() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let mark = mark();
        let done = session.sh(&leaves_a_sleeper(&mark)).finish().await;
        assert_eq!((code(&done.outcome), done.outcome.cause()), (0, ExitCause::Exited));
        assert!(sleepers(&mark).is_empty(), "it has ended with the command");
        assert_eq!(done.outcome.ended_processes, 1, "{:?}", done.outcome);
        assert_eq!(done.outcome.ended_commands, ["sleep"]);
        assert_eq!(done.outcome.stragglers_killed, 0, "it obeyed TERM");
        // Names are the command's own choice: what drives a terminal is written out, and there are no more than eight.
        let line = "for i in 1 2 3 4 5 6 7 8 9; do cp /bin/sleep \"$(printf '\\033%s' $i)\"; done; \
                    for i in 1 2 3 4 5 6 7 8 9; do \"./$(printf '\\033%s' $i)\" 600 >/dev/null 2>&1 & done; \
                    for i in 1 2; do sleep 600 >/dev/null 2>&1 & done; sleep 0.1";
        let done = session.sh(line).finish().await;
        assert_eq!(code(&done.outcome), 0, "{}", done.text());
        assert_eq!(done.outcome.ended_processes, 11, "{:?}", done.outcome);
        assert_eq!(done.outcome.ended_commands.len(), 8);
        assert_eq!(done.outcome.ended_commands[0], "\\u{1b}1");
    })
    .await;
    gateway.stop();
    let journal = fs::read_dir(gateway.state.join("journal")).expect("there is a journal").flatten();
    let records: String = journal.filter_map(|file| fs::read_to_string(file.path()).ok()).collect();
    assert!(records.contains("\"ended_processes\":1,\"ended_commands\":[\"sleep\"]"), "{records}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_ends_by_itself_and_what_was_to_end_is_not_named() {
    // Longer than a slow machine takes to let the process end.
    let patient = Gateway::with_policy(|policy| {
        policy["profile"]["workspace"]["times"]["linger"] = "60s".into();
    });
    in_session(&patient, async |session| {
        let done = session.sh("sleep 0.1 >/dev/null 2>&1 & true").finish().await;
        assert_eq!((code(&done.outcome), done.outcome.ended_processes), (0, 0));
    })
    .await;
    in_session(&Gateway::shared(), async |session| {
        let (limited, mark) = (mark(), mark());
        let line = |mark: &str| format!("sleep {mark} & echo ready; wait");
        let timed = session.sh(&line(&limited)).with(|request| request.time_limit = Some(seconds(1)));
        let outcome = timed.finish().await.outcome;
        assert_eq!((outcome.cause(), outcome.ended_processes), (ExitCause::TimeLimit, 0));
        let terminal = session.sh(&line(&mark)).create().await;
        terminal.until("ready").await;
        terminal.kill(None).await;
        let outcome = terminal.wait().await;
        assert_eq!((outcome.cause(), outcome.ended_processes), (ExitCause::Killed, 0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_front_end_says_what_ended_and_what_to_use_instead() {
    let gateway = Gateway::start();
    let its = gateway.clone();
    let front_ends = move || {
        let address = format!("unix:{}", its.socket.display());
        run_says_it(&address);
        shell_says_it(&address);

        let mut mcp = mcp_peer::Peer::at(&its);
        let ran = mcp.tool("run_command", json!({ "command": leaves_a_sleeper(&mark()) }));
        let text = ran["content"][0]["text"].as_str().expect("a text");
        assert!(text.contains(&format!("{ENDED}`start_command`")), "{text}");
        assert_eq!(ran["_meta"]["provost"]["ended"], json!({ "processes": 1, "commands": ["sleep"] }));

        let ended = peer::Peer::at(&its).line("line", &leaves_a_sleeper(&mark()));
        assert_eq!(ended.exit_code, 0, "{ended:?}");
        assert!(ended.stderr.contains(ENDED) && ended.stderr.contains("a process of its own"), "{ended:?}");

        let mut acp = ShimPeer::in_session(&["--gateway", &address], json!({}));
        let asked = json!({"sessionId":"s","command":"sh","args":["-c",leaves_a_sleeper(&mark())]});
        let id = acp.ask("terminal/create", asked)["result"]["terminalId"].clone();
        let terminal = json!({"sessionId":"s","terminalId":id});
        let ended = acp.ask("terminal/wait_for_exit", terminal.clone());
        assert_eq!(ended["result"]["_meta"]["provost"]["ended"]["processes"], 1, "{ended}");
        let output = acp.ask("terminal/output", terminal);
        let text = output["result"]["output"].as_str().expect("a text");
        assert!(text.contains(ENDED) && text.contains("a terminal of its own"), "{text}");
    };
    tokio::task::spawn_blocking(front_ends).await.expect("every front end says it");
    gateway.stop();
}

fn run_says_it(address: &str) {
    let (directory, workspace) = directory_with_workspace();
    let report = directory.path().join("report");
    let output = Command::new(env!("CARGO_BIN_EXE_provost"))
        .args(["run", "--gateway", address, "--receipt", "--report"])
        .arg(&report)
        .args(["--", "sh", "-c", &leaves_a_sleeper(&mark())])
        .current_dir(&workspace)
        .output()
        .expect("provost starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains(&format!("{ENDED}`provost run -d")), "{said}");
    assert!(said.contains("1 process left running: sleep"), "the receipt: {said}");
    let report = fs::read_to_string(report).expect("the report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("it is JSON");
    assert_eq!(report["outcome"]["ended_commands"], json!(["sleep"]), "{report}");
}

fn shell_says_it(address: &str) {
    let (directory, workspace) = directory_with_workspace();
    let shell = directory.path().join("provost-shell");
    symlink(env!("CARGO_BIN_EXE_provost"), &shell).expect("a link");
    let output = Command::new(shell)
        .args(["-c", &leaves_a_sleeper(&mark())])
        .current_dir(&workspace)
        .env("PROVOST_GATEWAY", address)
        .env("PROVOST_SHELL_ROOT", &workspace)
        .output()
        .expect("provost-shell starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains(ENDED) && said.contains("a line's processes"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn git_tidies_up_before_it_ends() {
    if lacks(&["git"]) {
        return;
    }
    in_session(&Gateway::shared(), async |session| {
        // As git looks at it there is much to do when one part in 256 of the objects has two.
        let line = "git init -q . && git config gc.auto 1 && seq 900 | while read i; do echo $i >f$i; done && \
                    git add . && git -c user.name=a -c user.email=a@b.c commit -qm x";
        let done = session.sh(line).finish().await;
        assert_eq!(code(&done.outcome), 0, "{}", done.text());
        assert_eq!(done.outcome.ended_processes, 0, "{:?}", done.outcome);
        let counted = session.sh("git count-objects").finish().await;
        assert!(counted.text().starts_with("0 objects"), "{}", counted.text());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn out_of_memory_in_a_cgroup_that_the_host_made_below_is_told_as_the_memory_limit() {
    if !is_root() {
        return skip("only root makes cgroups below a terminal's");
    }
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let marker = session.marker();
        let line =
            format!(": {marker}; echo ready; until [ -e go ]; do sleep 0.05; done; exec tail /dev/zero");
        let terminal = session.sh(&line).create().await;
        terminal.until("ready").await;
        let pid = Process::all_marked(&marker).first().expect("it runs").pid;
        let has_it = |group: &&std::path::PathBuf| {
            let listed = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            listed.lines().any(|line| line == pid.to_string())
        };
        let limit_of = |group: &Path| {
            let files = ["memory.limit_in_bytes", "memory.max"].map(|name| group.join(name));
            files.into_iter().find(|file| file.exists())
        };
        let groups = gateway.group.groups();
        let Some(group) = groups.iter().filter(has_it).find(|group| limit_of(group).is_some()) else {
            return skip("this machine has no cgroup of memory for a terminal");
        };
        let nested = group.join("made-by-the-host");
        fs::create_dir(&nested).expect("root makes a cgroup");
        // A cgroup of version 2 that has processes hands no controller down: then the host cannot do this at all.
        let Some(limit) = limit_of(&nested) else {
            fs::remove_dir(&nested).expect("it is empty");
            return skip("a cgroup below a terminal's has no memory controller here");
        };
        fs::write(limit, "16777216").expect("it has a limit");
        fs::write(nested.join("cgroup.procs"), pid.to_string()).expect("the command is moved");
        fs::write(session.workspace.join("go"), "").expect("a file");
        let outcome = terminal.wait().await;
        assert_eq!(outcome.cause(), ExitCause::MemoryLimit, "{outcome:?}");
        eventually("the host's cgroup is gone", || (!nested.exists()).then_some(())).await;
    })
    .await;
    gateway.stop();
}
