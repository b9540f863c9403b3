//! The program in the place of an agent's shell: what is passed on, what it shares, and when it ends. The agents are scripts.

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use nix::{
    pty::{Winsize, openpty},
    sys::signal::Signal,
};

use crate::cli::{
    fixture::{Place, Running, code, eventually, mark, processes_with, shown, stderr, stdout},
    serving::Gateway,
};

/// Runs each line that it reads by its shell, and says how it ended.
const AGENT: &str =
    "while IFS= read -r line; do \"$SHELL\" -c \"$line\" </dev/null; echo \"status $?\"; done";

/// The program that is a shell.
const SHELL: &str = env!("CARGO_BIN_EXE_provost-shell");

/// The program of everything else, under the name by which it is a shell, too.
fn linked_shell(place: &Place) -> PathBuf {
    let link = place.path().join("provost-shell");
    if !link.exists() {
        symlink(env!("CARGO_BIN_EXE_provost"), &link).expect("a link can be made");
    }
    link
}

/// One call of the shell. Its agent is this test, or the one that runs it.
fn call(place: &Place, gateway: &Gateway, arguments: &[&str]) -> Command {
    call_of(SHELL.as_ref(), place, gateway, arguments)
}

fn call_of(program: &Path, place: &Place, gateway: &Gateway, arguments: &[&str]) -> Command {
    let mut call = Command::new(program);
    call.args(arguments).current_dir(place.work()).env_clear().env("PROVOST_GATEWAY", gateway.address());
    call.env("PROVOST_SHELL_ROOT", place.work()).stdin(Stdio::null());
    call
}

fn output(mut command: Command) -> Output {
    command.output().expect("provost starts")
}

/// An agent that works in the workspace.
fn agent(place: &Place, gateway: &Gateway) -> Running {
    let script = place.path().join("agent.sh");
    fs::write(&script, AGENT).expect("a file can be written");
    let mut agent = Command::new("sh");
    agent.arg(script).current_dir(place.work()).env("SHELL", SHELL);
    agent.env("PROVOST_GATEWAY", gateway.address());
    Running::start(agent.stdin(Stdio::piped()).stdout(Stdio::piped()))
}

fn says(agent: &mut Running, line: &str) {
    writeln!(agent.0.stdin.as_mut().expect("stdin is a pipe"), "{line}").expect("the agent reads");
}

fn sessions(place: &Place) -> usize {
    fs::read_dir(place.path().join("state/sessions")).map_or(0, Iterator::count)
}

#[test]
fn the_lines_of_one_agent_share_a_session_that_ends_with_it() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let mut first = agent(&place, &gateway);
    says(&mut first, "echo kept > /tmp/file; exit 7");
    assert_eq!(first.line(), "status 7");
    assert!(!PathBuf::from("/tmp/file").exists() || fs::read("/tmp/file").expect("it is there") != b"kept\n");
    says(&mut first, "cat /tmp/file; pwd");
    assert_eq!(first.line(), "kept");
    assert_eq!(first.line(), place.work().canonicalize().expect("it is there").display().to_string());
    assert_eq!((first.line().as_str(), sessions(&place)), ("status 0", 1));

    let mut second = agent(&place, &gateway);
    says(&mut second, "test -e /tmp/file");
    assert_eq!((second.line().as_str(), sessions(&place)), ("status 1", 2));
    let mark = mark();
    says(&mut second, &format!("sleep {mark}"));
    eventually("the line runs", || processes_with(&mark).iter().any(|line| line.starts_with("sleep")));
    // What the agent has started goes on without it; what it runs here does not.
    second.signal(Signal::SIGKILL);
    second.end();
    eventually("the session has ended", || sessions(&place) == 1);
    eventually("and its line", || !processes_with(&mark).iter().any(|line| line.starts_with("sleep")));
    says(&mut first, "cat /tmp/file");
    assert_eq!(first.line(), "kept");
    drop(first.0.stdin.take());
    first.end();
    eventually("the session has ended", || sessions(&place) == 0);
    gateway.stop();
}

#[test]
fn a_line_runs_confined_and_reads_what_it_is_given() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let marker = place.path().join("marker");
    let attack = format!(
        "echo gone > '{}'; grep -E '^(Seccomp|NoNewPrivs):' /proc/self/status; cat",
        marker.display()
    );
    let outside = output({
        let mut sh = Command::new("sh");
        sh.args(["-c", &attack]).stdin(Stdio::null());
        sh
    });
    assert!(
        outside.status.success() && fs::read(&marker).expect("it is there") == b"gone\n",
        "the attack works"
    );
    fs::write(&marker, "intact").expect("the marker is ours");
    for arguments in [&["-c", &attack][..], &["-lc", &attack], &[&attack]] {
        let mut given = call(&place, &gateway, arguments);
        let mut given = given
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        given.stdin.take().expect("stdin is a pipe").write_all(b"input\n").expect("it is read");
        let done = given.wait_with_output().expect("it ends");
        assert_eq!(stdout(&done), "NoNewPrivs:\t1\nSeccomp:\t2\ninput\n", "{}", shown(&done));
    }
    assert_eq!(fs::read(&marker).expect("it is there"), b"intact");
    let positional = output(call(&place, &gateway, &["-c", "echo \"$0 $1\"; exit 3", "name", "argument"]));
    assert_eq!(
        (code(&positional), stdout(&positional).as_str()),
        (3, "name argument\n"),
        "{}",
        shown(&positional)
    );
    gateway.stop();
}

#[test]
fn of_the_environment_only_what_was_named_reaches_a_line() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let mut call = call(&place, &gateway, &["-c", "env"]);
    call.env("LC_TIME", "C.UTF-8").env("SECRET", "hidden").env("MINE", "named").env("SHELL", SHELL);
    call.env("BASH_ENV", "/dev/null").env("PROVOST_SHELL_ENV", "MINE,ABSENT");
    let done = output(call);
    let env = stdout(&done);
    for present in ["LC_TIME=C.UTF-8", "MINE=named"] {
        assert!(env.lines().any(|line| line == present), "{}", shown(&done));
    }
    for absent in ["SECRET=", "provost-shell", "BASH_ENV", "PROVOST"] {
        assert!(!env.contains(absent), "{absent}: {}", shown(&done));
    }
    gateway.stop();
}

#[test]
fn a_variable_that_is_empty_is_as_one_that_is_not_set() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    // An empty PROVOST_SHELL_ROOT means the caller's repository, in which the gateway's own program lies.
    let variables = ["ENV", "PROFILE", "PROGRAM"].map(|name| format!("PROVOST_SHELL_{name}"));
    for arguments in [&["-c", "pwd"][..], &["pwd"]] {
        let mut call = call(&place, &gateway, arguments);
        call.envs(variables.iter().map(|name| (name, "")));
        let done = output(call);
        assert_eq!(
            (code(&done), stdout(&done).trim()),
            (0, place.work().to_str().unwrap()),
            "{}",
            shown(&done)
        );
    }
    let mut through = Command::new(env!("CARGO_BIN_EXE_provost"));
    through.args(["shell-wrapper", "-c", "pwd"]).current_dir(place.work()).stdin(Stdio::null());
    through.env("PROVOST_GATEWAY", gateway.address()).env("PROVOST_SHELL_ROOT", place.work());
    through.envs(variables.iter().map(|name| (name, "")));
    let done = output(through);
    assert_eq!((code(&done), stdout(&done).trim()), (0, place.work().to_str().unwrap()), "{}", shown(&done));
    gateway.stop();
}

#[test]
fn outside_of_the_named_workspace_a_line_starts_in_it_and_who_chose_the_place_is_told() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let (home, other) = (place.path().join("home"), place.path().join("other"));
    for directory in [&home, &other, &place.work().join("inner")] {
        fs::create_dir_all(directory).expect("a directory can be made");
    }
    let link = place.path().join("link");
    symlink(place.work(), &link).expect("a link can be made");
    let work = place.work().canonicalize().expect("it is there");
    let named = |below: &str| link.join(below).to_str().expect("it is text").trim_end_matches('/').to_owned();
    let run = |directory: &Path, root: &Path, arguments: &[&str], input: &str| {
        let mut call = call(&place, &gateway, arguments);
        call.current_dir(directory).env("HOME", &home).env("PROVOST_SHELL_ROOT", root);
        let mut call = call
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        // A line may end without reading.
        let _ = call.stdin.take().expect("stdin is a pipe").write_all(input.as_bytes());
        call.wait_with_output().expect("it ends")
    };
    // As a login server and cron start it: what reads its output hears nothing else.
    for directory in [&home, Path::new("/")] {
        for (arguments, input) in
            [(&["-c", "pwd; exit 3"][..], ""), (&["-l"], "pwd; exit 3\n"), (&["-s"], "pwd; exit 3\n")]
        {
            let done = run(directory, &link, arguments, input);
            assert_eq!((code(&done), stdout(&done).trim()), (3, named("").as_str()), "{}", shown(&done));
            assert!(!stderr(&done).contains("workspace"), "{arguments:?}: {}", shown(&done));
        }
    }
    let chosen = run(&other, &work, &["-c", "pwd"], "");
    assert_eq!(stdout(&chosen).trim(), work.to_str().unwrap(), "{}", shown(&chosen));
    assert!(stderr(&chosen).contains("lies outside the workspace"), "{}", shown(&chosen));
    let inside = run(&work.join("inner"), &link, &["-c", "pwd"], "");
    assert_eq!(stdout(&inside).trim(), named("inner"), "{}", shown(&inside));
    assert!(!stderr(&inside).contains("workspace"), "{}", shown(&inside));
    let absent = run(&home, &place.path().join("absent"), &["-c", "pwd"], "");
    assert_eq!((code(&absent), stdout(&absent).as_str()), (125, ""), "{}", shown(&absent));
    assert!(stderr(&absent).contains("absent"), "{}", shown(&absent));
    gateway.stop();
}

#[test]
fn a_workspace_that_the_agent_came_to_by_a_link_has_that_name_for_its_lines() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let link = place.path().join("link");
    symlink(place.work(), &link).expect("a link can be made");
    fs::create_dir(place.work().join("src")).expect("a directory can be made");
    // A line is started below the agent's own directory, then in it, by both names. They share one session.
    let script = r#"cd "$LINK"; line() { "$@" </dev/null; echo $?; }
        PWD=$LINK/src line env -C src "$SHELL" -c 'pwd; echo kept > /tmp/file'
        line "$SHELL" -c 'pwd; cat /tmp/file; test -d "$LINK/src"'
        cd "$REAL"; line "$SHELL" -c 'cat /tmp/file'"#;
    let file = place.path().join("agent.sh");
    fs::write(&file, script).expect("a file can be written");
    let mut agent = Command::new("sh");
    agent.arg(&file).env("REAL", place.work()).current_dir(place.work());
    agent.env("SHELL", SHELL).env("PROVOST_GATEWAY", gateway.address()).stdin(Stdio::null());
    agent.env("LINK", &link).env("PROVOST_SHELL_ENV", "LINK");
    let done = output(agent);
    let link = link.display();
    assert_eq!(stdout(&done), format!("{link}/src\n0\n{link}\nkept\n0\nkept\n0\n"), "{}", shown(&done));
    gateway.stop();
}

#[test]
fn without_a_gateway_nothing_runs() {
    let place = Place::new();
    let made = place.work().join("made");
    for variable in [None, Some(format!("unix:{}", place.path().join("no.sock").display()))] {
        let mut call = Command::new(SHELL);
        call.args(["-c", "echo > made"]).current_dir(place.work()).env_remove("PROVOST_GATEWAY");
        call.env("XDG_RUNTIME_DIR", place.path())
            .env("PROVOST_SHELL_ROOT", place.work())
            .stdin(Stdio::null());
        if let Some(address) = variable {
            call.env("PROVOST_GATEWAY", address);
        } else if nix::unistd::geteuid().is_root() {
            // Root's default socket is this machine's.
            continue;
        }
        let done = output(call);
        assert_eq!(code(&done), 125, "{}", shown(&done));
        assert!(!made.exists() && stderr(&done).lines().count() == 1, "{}", shown(&done));
    }
}

#[test]
fn the_program_of_everything_else_is_the_same_shell_under_its_name() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let mut sessions_of = Vec::new();
    for shell in [linked_shell(&place), SHELL.into()] {
        let mut call =
            call_of(&shell, &place, &gateway, &["-lc", "echo \"$0\" >> /tmp/lines; cat /tmp/lines; exit 6"]);
        call.env("PROVOST_SHELL_PROGRAM", "sh");
        let done = output(call);
        assert_eq!(code(&done), 6, "{}", shown(&done));
        sessions_of.push(stdout(&done));
        let away = Command::new(&shell)
            .args(["-c", "true"])
            .env("PROVOST_GATEWAY", "unix:/nowhere/no.sock")
            .output();
        let away = away.expect("it starts");
        assert_eq!((code(&away), stderr(&away).lines().count()), (125, 1), "{}", shown(&away));
    }
    // One agent has called both: they have run in one session.
    assert_eq!(sessions_of, ["sh\n", "sh\nsh\n"]);
    gateway.stop();
}

#[test]
fn a_denied_line_names_the_rule_and_does_not_run() {
    let place = Place::new();
    let policy = place.policies().join("deny.toml");
    let rule = "[[rule]]\nid = \"no-touch\"\ndecision = \"deny\"\nargv = [\"touch\", \"**\"]\nreason = \"not here\"\n";
    fs::write(policy, rule).expect("a file can be written");
    let gateway = Gateway::start(&place);
    let done = output(call(&place, &gateway, &["-c", "touch made"]));
    assert_eq!(code(&done), 126, "{}", shown(&done));
    assert!(stderr(&done).contains("no-touch") && stderr(&done).contains("not here"), "{}", shown(&done));
    // Within a line the shell is told, and the agent, too.
    let within = output(call(&place, &gateway, &["-c", "x=touch; $x made; echo went on"]));
    assert_eq!((code(&within), stdout(&within).as_str()), (0, "went on\n"), "{}", shown(&within));
    assert!(stderr(&within).contains("no-touch"), "{}", shown(&within));
    assert!(!place.work().join("made").exists());
    gateway.stop();
}

#[test]
fn signals_reach_the_line_and_a_shell_that_is_killed_leaves_nothing() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let mut trapped = call(
        &place,
        &gateway,
        &["-c", "trap 'echo trapped; exit 4' INT; echo ready; while :; do sleep 0.05 & wait $!; done"],
    );
    let mut trapped = Running::start(trapped.stdout(Stdio::piped()));
    assert_eq!(trapped.line(), "ready");
    trapped.signal(Signal::SIGINT);
    assert_eq!((trapped.line().as_str(), trapped.end().code()), ("trapped", Some(4)));
    let line =
        "trap 'echo usr1' USR1; trap 'echo usr2' USR2; trap 'echo quit' QUIT; trap 'echo hup; exit 5' HUP
        echo ready; while :; do sleep 0.05 & wait $!; done";
    let mut trapped =
        Running::start(call(&place, &gateway, &["-c", line]).stdout(Stdio::piped()).stderr(Stdio::null()));
    assert_eq!(trapped.line(), "ready");
    for (signal, said) in [
        (Signal::SIGUSR1, "usr1"),
        (Signal::SIGUSR2, "usr2"),
        (Signal::SIGQUIT, "quit"),
        (Signal::SIGUSR1, "usr1"),
        (Signal::SIGHUP, "hup"),
    ] {
        trapped.signal(signal);
        assert_eq!(trapped.line(), said);
    }
    assert_eq!(trapped.end().code(), Some(5));
    for (signal, status) in [
        (Signal::SIGTERM, Some(143)),
        (Signal::SIGHUP, Some(129)),
        (Signal::SIGQUIT, Some(131)),
        (Signal::SIGKILL, None),
    ] {
        let mark = mark();
        let line = format!("echo ready; sleep {mark} & sleep {mark}");
        let mut running = Running::start(call(&place, &gateway, &["-c", &line]).stdout(Stdio::piped()));
        assert_eq!(running.line(), "ready");
        let sleeps = |line: &String| line.starts_with("sleep");
        eventually("both run", || processes_with(&mark).iter().filter(|line| sleeps(line)).count() == 2);
        running.signal(signal);
        assert_eq!(running.end().code(), status);
        eventually("nothing is left", || !processes_with(&mark).iter().any(sleeps));
    }
    gateway.stop();
}

#[test]
fn at_a_terminal_a_line_has_one_of_the_same_size() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let size = Winsize { ws_row: 33, ws_col: 101, ws_xpixel: 0, ws_ypixel: 0 };
    let pair = openpty(&size, None).expect("a pseudo-terminal can be had");
    let side = || Stdio::from(pair.slave.try_clone().expect("a descriptor can be copied"));
    let mut call =
        call(&place, &gateway, &["-c", "stty size; test -t 0 && test -t 1 && echo terminal; exit 5"]);
    let mut running = Running::start(call.stdin(side()).stdout(side()).stderr(side()));
    drop(call);
    let status = running.end();
    drop(pair.slave);
    let (mut master, mut printed, mut buffer) = (fs::File::from(pair.master), String::new(), [0; 4_096]);
    // At the end of the other side a read fails.
    while let Ok(length @ 1..) = master.read(&mut buffer) {
        printed += &String::from_utf8_lossy(&buffer[..length]);
    }
    assert_eq!(status.code(), Some(5), "{printed}");
    assert!(printed.contains("33 101") && printed.contains("terminal"), "{printed}");
    gateway.stop();
}

#[test]
fn the_directory_in_which_a_line_of_claude_code_ends_is_carried_if_it_is_the_sessions() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let work = place.work().canonicalize().expect("it is there");
    fs::create_dir(work.join("src")).expect("a directory can be made");
    let file = place.path().join("claude-a1b2-cwd");
    let carried = |command: &str| {
        let _ = fs::remove_file(&file);
        let line = format!("{command} && pwd -P >| {}", file.display());
        let mut call = call(&place, &gateway, &[&line]);
        call.env("CLAUDECODE", "1");
        let done = output(call);
        (code(&done), fs::read_to_string(&file).ok(), shown(&done))
    };
    let (status, directory, all) = carried("eval 'cd src' < /dev/null");
    assert_eq!((status, directory), (0, Some(format!("{}\n", work.join("src").display()))), "{all}");
    let (status, directory, all) = carried("cd /usr");
    assert_eq!((status, directory), (0, None), "{all}");
    let (status, directory, all) = carried("exit 9");
    assert_eq!((status, directory), (9, None), "{all}");
    gateway.stop();
}
