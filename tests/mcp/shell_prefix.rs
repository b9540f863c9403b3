//! Claude Code with `provost-shell` as its prefix, driven by a model on the loopback: its Bash tool runs confined, is told of denials,
//! leaves nothing running when it is stopped, and carries its directory. Without a gateway nothing runs.

use std::{
    fs,
    os::unix::{fs::symlink, process::CommandExt},
    path::PathBuf,
    process::{Command, ExitStatus, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;

use crate::{
    mcp::{
        agents::{claude_code, model, offline},
        libraries::{Missing, run_bounded},
    },
    support::{self, Gateway, Process, deny_touch, mark, sleepers, wait_for_sessions_end, wait_for_sleepers},
};

/// A home, a workspace, the shell, and a gateway that denies one command.
struct Place {
    directory: TempDir,
    gateway: std::sync::Arc<Gateway>,
}

impl Place {
    fn new() -> Self {
        let gateway = Gateway::with_policy(deny_touch);
        let directory = tempfile::tempdir().expect("a temporary directory");
        for name in ["home", "workspace", "workspace/src"] {
            fs::create_dir(directory.path().join(name)).expect("a directory can be made");
        }
        symlink(env!("CARGO_BIN_EXE_provost"), directory.path().join("provost-shell"))
            .expect("a link can be made");
        Self { directory, gateway }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().expect("it is there").join(name)
    }

    /// Claude Code, which is to do what the model wants.
    fn agent(&self, mut agent: Command, model: &support::Model) -> Command {
        agent.args(["-p", "run it", "--allowedTools", "Bash"]).current_dir(self.at("workspace"));
        agent.env("CLAUDE_CODE_SHELL_PREFIX", self.at("provost-shell"));
        agent.env("PROVOST_GATEWAY", format!("unix:{}", self.gateway.socket.display()));
        offline(&mut agent, model, &self.at("home"));
        agent
    }

    fn run(&self, commands: &[&str]) -> Option<(String, ExitStatus)> {
        let agent = claude()?;
        let model = model(commands);
        Some(run_bounded(&mut self.agent(agent, &model)))
    }
}

fn claude() -> Option<Command> {
    match claude_code() {
        Ok(agent) => Some(agent),
        Err(Missing(what)) => {
            support::skip(&what);
            None
        }
    }
}

/// The processes above one, as the host has them.
fn ancestors(pid: u32) -> Vec<u32> {
    let parent_of = |pid: &u32| Process::read(*pid)?.field("PPid").parse().ok().filter(|parent| *parent != 0);
    std::iter::successors(parent_of(&pid), parent_of).collect()
}

fn assert_in(printed: &str, all: &[&str]) {
    for seen in all {
        assert!(printed.contains(seen), "{seen:?} is not in {printed:?}");
    }
}

#[test]
#[ignore = "long: installs from npm; .ci/run runs it"]
fn the_bash_tool_of_claude_code_runs_confined_by_the_prefix() {
    let place = Place::new();
    let marker = place.at("marker");
    let attack = format!(
        "grep -E '^(Seccomp|NoNewPrivs):' /proc/self/status; echo gone > '{}'; echo in $(pwd)",
        marker.display()
    );
    let outside = Command::new("sh").args(["-c", &attack]).stdout(Stdio::null()).status().expect("sh starts");
    assert!(outside.success() && fs::read(&marker).expect("it is there") == b"gone\n", "the attack works");
    fs::write(&marker, "intact").expect("the marker is ours");
    let Some((printed, status)) = place.run(&[&attack]) else { return };
    assert!(status.success(), "{status}: {printed}");
    assert_in(
        &printed,
        &["Seccomp:\t2", "NoNewPrivs:\t1", &format!("in {}", place.at("workspace").display())],
    );
    assert_eq!(fs::read(&marker).expect("the marker is there"), b"intact");

    // One after the other, in one session: what the first leaves in /tmp is there, and where it ends the second begins.
    let Some((printed, status)) =
        place.run(&["cd src && echo kept > /tmp/file", "cat /tmp/file; echo in $(pwd)"])
    else {
        return;
    };
    assert!(status.success(), "{status}: {printed}");
    assert_in(&printed, &["kept", &format!("in {}", place.at("workspace/src").display())]);

    // A file edit.
    let edit = "printf 'one\\n' > edited && sed -i s/one/two/ edited && cat edited";
    let Some((printed, status)) = place.run(&[edit]) else { return };
    assert!(status.success(), "{status}: {printed}");
    assert_in(&printed, &["two"]);
    assert_eq!(fs::read(place.at("workspace/edited")).expect("it was made"), b"two\n");

    let Some((printed, _)) = place.run(&["touch made; echo after"]) else { return };
    assert_in(&printed, &["no-touch", "touching is for people"]);
    assert!(!place.at("workspace/made").exists(), "{printed}");
    place.gateway.stop();
}

#[test]
#[ignore = "long: installs from npm; .ci/run runs it"]
fn a_long_command_of_claude_code_ends_with_it_and_without_a_gateway_none_begins() {
    let place = Place::new();
    let Some(agent) = claude() else { return };
    let mark = mark();
    let long = format!("setsid sleep {mark} & sleep {mark}");
    let model = model(&[&long]);
    // As at a terminal: the key reaches its whole process group.
    let mut agent = place.agent(agent, &model);
    let mut child =
        agent.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts");
    wait_for_sleepers(&mark, 2);
    for sleeper in sleepers(&mark) {
        let above = ancestors(sleeper.cast_unsigned());
        assert!(above.contains(&place.gateway.pid) && !above.contains(&child.id()), "{above:?}");
    }
    kill(Pid::from_raw(-child.id().cast_signed()), Signal::SIGINT).expect("it is our child");
    child.wait().expect("it is our child");
    wait_for_sleepers(&mark, 0);
    wait_for_sessions_end(&place.gateway);

    place.gateway.stop();
    let Some((printed, _)) = place.run(&["echo made > made"]) else { return };
    assert!(!place.at("workspace/made").exists(), "{printed}");
    assert_in(&printed, &["provost:"]);
}
