//! `provost run`.

use crate::support::lacks;
use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use nix::sys::signal::Signal;

use super::fixture::{
    Place, Running, code, eventually, final_object, mark, processes_with, shown, stderr, stdout,
};

#[test]
fn the_exit_status_is_the_commands_own() {
    let place = Place::new();
    for status in ["0", "1", "42", "255"] {
        let output = place.output(&[], &["sh", "-c", &format!("exit {status}")]);
        assert_eq!(code(&output).to_string(), status, "{}", shown(&output));
    }
}

#[test]
fn a_command_that_a_signal_ends_is_128_and_the_signal() {
    let place = Place::new();
    for (signal, status) in [("KILL", 137), ("SEGV", 139), ("TERM", 143), ("32", 160), ("64", 192)] {
        let output = place.output(&[], &["sh", "-c", &format!("kill -{signal} $$")]);
        assert_eq!(code(&output), status, "{}", shown(&output));
    }
}

#[test]
fn a_time_limit_is_124_and_ends_the_whole_tree() {
    let place = Place::new();
    let mark = mark();
    let script = format!("sleep {mark} & setsid sleep {mark} & trap '' TERM; echo kept; wait; sleep {mark}");
    let mut run = place.run(&["--timeout", "3s", "--report", "/dev/stderr"], &["sh", "-c", &script]);
    let output = run.output().expect("provost starts");
    assert_eq!(code(&output), 124, "{}", shown(&output));
    assert_eq!(stdout(&output), "kept\n", "output is kept");
    assert_eq!(final_object(&output)["outcome"]["cause"], "time_limit");
    assert_eq!(processes_with(&mark), Vec::<String>::new());
}

#[test]
fn a_missing_command_is_127() {
    let place = Place::new();
    for command in ["no-such-program", "./no-such-file", "/no/such/path"] {
        let output = place.output(&["--report", "/dev/stderr"], &[command]);
        assert_eq!(code(&output), 127, "{}", shown(&output));
        assert_eq!(final_object(&output)["error"]["reason"], "COMMAND_NOT_FOUND");
    }
}

#[test]
fn what_cannot_be_executed_is_126() {
    let place = Place::new();
    let script = place.work().join("script");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    let output = place.output(&["--report", "/dev/stderr"], &["./script"]);
    assert_eq!(code(&output), 126, "{}", shown(&output));
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let output = place.output(&["--report", "/dev/stderr"], &["./script"]);
    assert_eq!(code(&output), 126, "{}", shown(&output));
    assert_eq!(final_object(&output)["error"]["reason"], "BAD_INTERPRETER");
    // The sandbox has its own, which is not the file that was evaluated.
    let output = place.output(&[], &["/etc/passwd"]);
    assert_eq!(code(&output), 126, "{}", shown(&output));
    assert!(stderr(&output).contains("the sandbox has a file of its own"), "{}", shown(&output));
}

#[test]
fn what_the_policy_denies_is_126_and_names_the_rule() {
    let place = Place::new();
    let output = place.output(&["--env", "LD_PRELOAD=/tmp/x.so"], &["true"]);
    assert_eq!(code(&output), 126, "{}", shown(&output));
    assert!(stderr(&output).contains("LD_"), "{}", shown(&output));
    let output = place.output(&["--profile", "offline", "--network", "host"], &["true"]);
    assert_eq!(code(&output), 126, "{}", shown(&output));
}

#[test]
fn provosts_own_failures_are_125_and_one_line() {
    let place = Place::new();
    let gateway = format!("unix:{}", place.path().join("nobody.sock").display());
    let mut named = place.provost();
    named.args(["run", "--gateway", &gateway, "--", "true"]);
    let output = named.output().expect("provost starts");
    assert_eq!(code(&output), 125, "{}", shown(&output));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", shown(&output));
    assert!(stderr(&output).contains("nobody.sock"), "{}", shown(&output));
    for wrong in
        [&["run"][..], &["run", "--timeout", "5", "--", "true"], &["run", "--env", "=X", "--", "true"]]
    {
        let output = place.provost().args(wrong).output().expect("provost starts");
        assert_eq!(code(&output), 125, "{wrong:?}: {}", shown(&output));
    }
}

#[test]
fn policies_that_do_not_load_are_refused_with_their_place() {
    let place = Place::new();
    fs::write(place.policies().join("default.toml"), "default_profile = \"workspace\"\nno_such_key = 1\n")
        .unwrap();
    let output = place.output(&[], &["true"]);
    assert_eq!(code(&output), 125, "{}", shown(&output));
    assert!(stderr(&output).contains("default.toml:2"), "{}", shown(&output));
}

#[test]
fn stdout_and_stderr_stay_apart_and_whole() {
    let place = Place::new();
    let noise: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(place.work().join("noise"), &noise).unwrap();
    let output = place.output(&[], &["sh", "-c", "cat noise; rev() { cat noise noise; }; rev >&2"]);
    assert_eq!(code(&output), 0);
    assert!(output.stdout == noise, "stdout has {} bytes", output.stdout.len());
    assert!(output.stderr.ends_with(&noise), "stderr has {} bytes", output.stderr.len());
    assert!(output.stderr.len() >= 2 * noise.len());
}

#[test]
fn the_mask_of_who_starts_it_closes_nothing_to_the_command() {
    let place = Place::new();
    let run = place.run(&[], &["sh", "-c", "umask; cat file"]);
    fs::write(place.work().join("file"), "read\n").unwrap();
    let mut masked = std::process::Command::new("sh");
    masked.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(run.get_program()).args(run.get_args());
    let output = masked.current_dir(place.work()).env_remove("PROVOST_GATEWAY").output().unwrap();
    assert_eq!(stdout(&output), "0077\nread\n", "{}", shown(&output));
}

#[test]
fn output_comes_while_the_command_runs() {
    let place = Place::new();
    let mut run = place.run(&["--stdin"], &["sh", "-c", "echo first; read line; echo got $line"]);
    let mut running = Running::start(run.stdin(Stdio::piped()).stdout(Stdio::piped()));
    // The command cannot go on before this line has come.
    assert_eq!(running.line(), "first");
    let mut stdin = running.0.stdin.take().expect("stdin is a pipe");
    stdin.write_all(b"it\n").unwrap();
    assert_eq!(running.line(), "got it");
    assert_eq!(running.end().code(), Some(0));
}

#[test]
fn a_pipe_on_stdin_is_passed_on_unless_it_is_refused() {
    let place = Place::new();
    let noise: Vec<u8> = (0..2_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    for (options, expected) in [(&[][..], &noise[..]), (&["--stdin"][..], &noise[..]), (&["-n"][..], &[][..])]
    {
        let mut run = place.run(options, &["cat"]);
        let mut running = Running::start(run.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut stdin = running.0.stdin.take().expect("stdin is a pipe");
        let noise = noise.clone();
        // Nobody reads it in the last case: a closed pipe is as good.
        let feeder = std::thread::spawn(move || drop(stdin.write_all(&noise)));
        let mut got = Vec::new();
        running.0.stdout.as_mut().expect("stdout is a pipe").read_to_end(&mut got).unwrap();
        assert!(got == expected, "{options:?}: {} bytes", got.len());
        assert_eq!(running.end().code(), Some(0));
        feeder.join().unwrap();
    }
}

/// A script on stdin that is not run would end with 0: a false green.
#[test]
fn what_stdin_is_decides_what_the_command_reads() {
    let place = Place::new();
    let script = place.path().join("script");
    fs::write(&script, "exit 3\n").unwrap();
    let run = |stdin: Stdio| place.run(&[], &["sh"]).stdin(stdin).output().expect("provost starts");
    assert_eq!(code(&run(fs::File::open(&script).unwrap().into())), 3, "a file");
    assert_eq!(code(&run(Stdio::null())), 0, "/dev/null");
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    (&ours).write_all(b"exit 4\n").unwrap();
    drop(ours);
    assert_eq!(code(&run(std::os::fd::OwnedFd::from(theirs).into())), 4, "a socket");
    let closed =
        "exec provost-under-test run sh <&-".replace("provost-under-test", env!("CARGO_BIN_EXE_provost"));
    let mut shell = std::process::Command::new("sh");
    let output =
        shell.args(["-c", &closed]).current_dir(place.work()).env_remove("PROVOST_GATEWAY").output().unwrap();
    assert_eq!(code(&output), 0, "closed: {}", shown(&output));
}

#[test]
fn a_command_needs_no_dashes_before_it() {
    let place = Place::new();
    let bare = |words: &[&str]| {
        let mut run = std::process::Command::new(env!("CARGO_BIN_EXE_provost"));
        run.arg("run").arg("--policies").arg(place.policies()).args(words).current_dir(place.work());
        run.env_remove("PROVOST_GATEWAY").stdin(Stdio::null()).output().expect("provost starts")
    };
    let output = bare(&["ls", "-la", "--color=never", "--", "."]);
    assert_eq!(code(&output), 0, "{}", shown(&output));
    assert!(stdout(&output).contains(" ."), "{}", shown(&output));
    assert_eq!(code(&bare(&["-e", "A=3", "sh", "-c", "exit $A"])), 3, "options before it are ours");
    assert_eq!(
        stdout(&bare(&["echo", "--receipt", "-e", "x"])),
        "--receipt -e x\n",
        "those behind it are its own"
    );
    let mistyped = bare(&["--no-such-option", "ls"]);
    assert_eq!(code(&mistyped), 125, "{}", shown(&mistyped));
}

#[test]
fn the_workspace_is_the_current_directory_or_the_one_given() {
    let place = Place::new();
    let output = place.output(&[], &["sh", "-c", "pwd; echo made > here"]);
    assert_eq!(stdout(&output).trim_end(), place.work().canonicalize().unwrap().to_str().unwrap());
    assert_eq!(fs::read_to_string(place.work().join("here")).unwrap(), "made\n");

    let other = place.path().join("other");
    fs::create_dir(&other).unwrap();
    let output = place.output(&["--root", other.to_str().unwrap()], &["sh", "-c", "pwd; echo > there"]);
    assert_eq!(code(&output), 0, "{}", shown(&output));
    assert!(other.join("there").exists());
    let output = place.output(&["--root", "/no/such/directory"], &["true"]);
    assert_eq!(code(&output), 125);

    // The first one of several is where it starts; all can be written.
    let third = place.path().join("third");
    fs::create_dir(&third).unwrap();
    let (first, second) = (other.to_str().unwrap(), third.to_str().unwrap());
    let script = format!("pwd; echo > {second}/written");
    let output = place.output(&["--root", first, "--root", second], &["sh", "-c", &script]);
    assert_eq!(code(&output), 0, "{}", shown(&output));
    assert_eq!(stdout(&output).trim_end(), other.canonicalize().unwrap().to_str().unwrap());
    assert!(third.join("written").exists());
}

#[test]
fn the_working_directory_is_the_workspace_or_the_one_given() {
    let place = Place::new();
    let work = place.work().canonicalize().unwrap();
    fs::create_dir(work.join("sub")).unwrap();
    for workdir in ["sub", work.join("sub").to_str().unwrap()] {
        let output = place.output(&["-w", workdir], &["sh", "-c", "pwd; echo made > ../beneath_root"]);
        assert_eq!(stdout(&output).trim_end(), work.join("sub").to_str().unwrap(), "{}", shown(&output));
        assert!(work.join("beneath_root").exists(), "{}", shown(&output));
    }
    let other = place.path().canonicalize().unwrap().join("other");
    fs::create_dir_all(other.join("below")).unwrap();
    let output = place.output(&["--root", other.to_str().unwrap(), "-w", "below"], &["pwd"]);
    assert_eq!(stdout(&output).trim_end(), other.join("below").to_str().unwrap(), "{}", shown(&output));
    let output = place.output(&["--workdir", "no-such-directory"], &["true"]);
    assert_ne!(code(&output), 0, "{}", shown(&output));
    let output = place.output(&["-w", "sub/.."], &["pwd"]);
    assert_eq!(stdout(&output).trim_end(), work.to_str().unwrap(), "{}", shown(&output));
    let output = place.output(&["-w", ".."], &["pwd"]);
    assert_eq!(code(&output), 126, "{}", shown(&output));
    let said = stderr(&output);
    assert!(said.contains("lies outside the session's roots") && said.contains("-w names"), "{said}");
    let output = place.output(&["-w", "no-such-directory/.."], &["true"]);
    assert_eq!(code(&output), 125, "{}", shown(&output));
    assert!(stderr(&output).contains("--workdir no-such-directory/..: "), "{}", shown(&output));
}

#[test]
fn a_working_directory_above_the_current_one_may_be_in_the_repository() {
    if lacks(&["git"]) {
        return;
    }
    let place = Place::new();
    let made = Command::new("git").args(["init", "-q"]).current_dir(place.work()).status();
    assert!(made.expect("git starts").success());
    let below = place.work().join("src/in");
    fs::create_dir_all(&below).unwrap();
    let above = place.work().canonicalize().unwrap().join("src");
    let output = place.run(&["-w", ".."], &["pwd"]).current_dir(&below).output().expect("provost starts");
    assert_eq!(stdout(&output).trim_end(), above.to_str().unwrap(), "{}", shown(&output));
}

/// Programs that are told to try again do so for a minute, and say nothing meanwhile.
#[test]
fn without_a_network_a_name_is_refused_and_not_tried_again() {
    if lacks(&["python3"]) {
        return;
    }
    let place = Place::new();
    let look = "import socket\ntry: socket.getaddrinfo('registry.example.org', 443)\nexcept socket.gaierror as e: print(e.errno == socket.EAI_NONAME, e)\nprint(socket.getaddrinfo('localhost', 80)[0][4][0])";
    let output = place.output(&["--network", "none"], &["python3", "-c", look]);
    let seen = stdout(&output);
    assert!(seen.starts_with("True "), "{}", shown(&output));
    assert!(seen.ends_with("127.0.0.1\n") || seen.ends_with("::1\n"), "{}", shown(&output));
}

#[test]
fn only_given_variables_reach_the_command() {
    let place = Place::new();
    let mut run = place.run(&["-e", "GIVEN=a=b c"], &["env"]);
    let output = run.env("SECRET_TOKEN", "do-not-show").output().expect("provost starts");
    let seen = stdout(&output);
    assert!(seen.lines().any(|line| line == "GIVEN=a=b c"), "{seen}");
    assert!(!seen.contains("do-not-show"), "{seen}");

    let mut run = place.run(&["-e", "HERE", "-e", "NOT_HERE"], &["env"]);
    let output = run.env("HERE", "x y").env_remove("NOT_HERE").output().expect("provost starts");
    let seen = stdout(&output);
    assert!(seen.lines().any(|line| line == "HERE=x y"), "{}", shown(&output));
    assert!(!seen.contains("NOT_HERE"), "{seen}");
    use std::os::unix::ffi::OsStringExt;
    let mut run = place.run(&["-e", "BYTES"], &["env"]);
    let output = run.env("BYTES", std::ffi::OsString::from_vec(vec![0xff])).output().expect("provost starts");
    assert!(output.stdout.windows(8).any(|line| line == b"BYTES=\xff\n"), "{}", shown(&output));
}

#[test]
fn a_command_that_writes_nothing_is_stopped_at_its_idle_limit() {
    let place = Place::new();
    let output = place.output(&["--idle", "300ms"], &["sh", "-c", "echo begun; sleep 60"]);
    assert_eq!((code(&output), stdout(&output).as_str()), (124, "begun\n"), "{}", shown(&output));
}

#[test]
fn a_command_opens_its_own_standard_streams_by_name() {
    let place = Place::new();
    let line = "echo a >/dev/stdout; echo b >/dev/stderr; echo c | tee /dev/stderr; cat /dev/stdin";
    let mut run = place.run(&[], &["sh", "-c", line]);
    let mut running =
        run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    running.stdin.take().expect("it is piped").write_all(b"d\n").expect("it reads");
    let output = running.wait_with_output().expect("it is ours");
    assert_eq!((code(&output), stdout(&output).as_str()), (0, "a\nc\nd\n"), "{}", shown(&output));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "b\nc\n");
}

#[test]
fn a_signal_stops_the_whole_tree() {
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        let status = 128 + signal as i32;
        let place = Place::new();
        let mark = mark();
        let script = format!("sleep {mark} & (setsid sleep {mark} &) ; echo ready; wait");
        let mut run = place.run(&[], &["sh", "-c", &script]);
        let mut running = Running::start(run.stdout(Stdio::piped()));
        assert_eq!(running.line(), "ready");
        eventually("both sleep", || processes_with(&mark).len() >= 2);
        running.signal(signal);
        assert_eq!(running.end().code(), Some(status), "the tree was ended by {signal}");
        assert_eq!(processes_with(&mark), Vec::<String>::new());
    }
}

#[test]
fn a_command_that_stays_after_a_hangup_is_stopped() {
    let place = Place::new();
    let script = "trap 'echo hung up' HUP; echo ready; while :; do sleep 0.05 & wait $!; done";
    let mut running = Running::start(place.run(&[], &["sh", "-c", script]).stdout(Stdio::piped()));
    assert_eq!(running.line(), "ready");
    running.signal(Signal::SIGHUP);
    assert_eq!((running.line().as_str(), running.end().code()), ("hung up", Some(128 + 15)));
}

#[test]
fn into_one_pipe_or_file_both_streams_go_in_the_order_in_which_they_were_written() {
    let place = Place::new();
    let policies = place.policies();
    let script = "for i in 1 2 3; do echo o$i; echo e$i >&2; done";
    let ordered = "o1\ne1\no2\ne2\no3\ne3\n";
    for redirection in ["2>&1", ">both 2>&1; cat both", ">both 2>>both; cat both"] {
        let line = format!("\"$0\" run --policies \"$1\" -- sh -c '{script}' {redirection}");
        let mut run = Command::new("sh");
        run.args(["-c", &line, env!("CARGO_BIN_EXE_provost")]).arg(&policies);
        let output =
            run.current_dir(place.work()).env_remove("PROVOST_GATEWAY").stdin(Stdio::null()).output();
        let output = output.expect("sh starts");
        assert_eq!(stdout(&output), ordered, "{redirection}: {}", shown(&output));
        let _ = fs::remove_file(place.work().join("both"));
    }
}

#[test]
fn what_is_named_relative_to_a_directory_of_the_workspace_is_not_in_it() {
    let place = Place::new();
    place.policies();
    let mut run = place.provost();
    run.args(["run", "--policies", "../policies", "--journal", "../journal", "--", "true"]);
    let output = run.output().expect("provost starts");
    assert_eq!(code(&output), 0, "{}", shown(&output));
    assert!(place.path().join("journal").is_dir());
}

#[test]
fn a_label_without_a_value_is_called_what_it_is() {
    let place = Place::new();
    let output = place.output(&["-l", "foo"], &["true"]);
    assert_ne!(code(&output), 0, "{}", shown(&output));
    let said = stderr(&output);
    assert!(said.contains("--label") && said.contains("NAME=VALUE") && !said.contains("variable"), "{said}");
}

#[test]
fn an_interrupt_is_the_commands_to_treat() {
    if lacks(&["python3"]) {
        return;
    }
    let place = Place::new();
    let script = "import signal, time\ntry:\n  print('ready', flush=True); time.sleep(60)\nexcept KeyboardInterrupt:\n  print('cleaned up', flush=True); raise SystemExit(7)";
    let mut run = place.run(&[], &["python3", "-c", script]);
    let mut running = Running::start(run.stdout(Stdio::piped()));
    assert_eq!(running.line(), "ready");
    running.signal(Signal::SIGINT);
    assert_eq!(running.line(), "cleaned up");
    assert_eq!(running.end().code(), Some(7));

    // Which ends it where it does nothing about it, with everything that it has started.
    let mark = mark();
    let script = format!("sleep {mark} & (setsid sleep {mark} &) ; echo ready; wait");
    let mut run = place.run(&[], &["sh", "-c", &script]);
    let mut running = Running::start(run.stdout(Stdio::piped()));
    assert_eq!(running.line(), "ready");
    eventually("both sleep", || processes_with(&mark).len() >= 2);
    running.signal(Signal::SIGINT);
    assert_eq!(running.end().code(), Some(130));
    assert_eq!(processes_with(&mark), Vec::<String>::new());
}

#[test]
fn a_second_interrupt_stops_and_a_third_kills_at_once() {
    let place = Place::new();
    let mark = mark();
    // A grace that nobody waits for: what ends was killed by the third.
    let policy = place.policies().join("default.toml");
    let text = fs::read_to_string(&policy).expect("the policy is there");
    let patient = text.replace("grace = \"5s\"", "grace = \"600s\"");
    assert_ne!(patient, text);
    fs::write(&policy, patient).expect("the policy can be written");
    // Short sleeps: a signal that comes just before one is heard after it.
    let script = format!(
        "sleep {mark} & trap 'echo asked' TERM; trap 'echo interrupted' INT; echo ready; while :; do sleep 0.1 & wait $!; done"
    );
    let mut run = place.run(&[], &["sh", "-c", &script]);
    let mut running = Running::start(run.stdout(Stdio::piped()));
    assert_eq!(running.line(), "ready");
    // Two of one signal that are pending at once are one signal: each is answered before the next.
    for answer in ["interrupted", "asked"] {
        running.signal(Signal::SIGINT);
        assert_eq!(running.line(), answer);
    }
    running.signal(Signal::SIGINT);
    assert_eq!(running.end().code(), Some(137));
    assert_eq!(processes_with(&mark), Vec::<String>::new());
}

#[test]
fn a_killed_provost_leaves_nothing() {
    let place = Place::new();
    let mark = mark();
    let script = format!("trap '' TERM HUP INT; (setsid sleep {mark} &); echo ready; sleep {mark}");
    let mut run = place.run(&[], &["sh", "-c", &script]);
    let mut running = Running::start(run.stdout(Stdio::piped()));
    assert_eq!(running.line(), "ready");
    eventually("both sleep", || processes_with(&mark).len() >= 2);
    running.signal(Signal::SIGKILL);
    eventually("the tree is gone", || processes_with(&mark).is_empty());
}

#[test]
fn a_stdout_that_nobody_reads_ends_the_command() {
    let place = Place::new();
    let mark = mark();
    let script = format!("sleep {mark} & yes");
    let mut run = place.run(&[], &["sh", "-c", &script]);
    let mut running = Running::start(run.stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(running.line(), "y");
    drop(running.0.stdout.take());
    assert_eq!(running.end().code(), Some(128 + 13), "as of a program that SIGPIPE ended");
    assert_eq!(processes_with(&mark), Vec::<String>::new());
    let mut said = String::new();
    running.0.stderr.take().expect("stderr is a pipe").read_to_string(&mut said).unwrap();
    assert!(!said.contains("panic"), "{said}");
}

#[test]
fn the_report_has_the_outcome_and_the_receipt() {
    let place = Place::new();
    let file = place.path().join("report.json");
    let option = file.to_str().expect("it is text");
    let output = place.output(&["--report", option], &["sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!(code(&output), 3);
    assert_eq!(stdout(&output), "out\n");
    assert!(stderr(&output).contains("err\n") && !stderr(&output).contains("exit_status"));
    let object: serde_json::Value =
        serde_json::from_slice(&fs::read(&file).expect("the report is there")).expect("it is JSON");
    assert_eq!(object["exit_status"], 3);
    assert_eq!(object["outcome"]["exit_code"], 3);
    assert_eq!(object["outcome"]["cause"], "exited");
    assert_eq!(object["outcome"]["survivors"], 0);
    assert!(object["outcome"]["usage"]["wall_us"].as_i64().unwrap() > 0);
    assert_eq!(object["receipt"]["no_new_privs"], true);
    assert_eq!(object["receipt"]["survivors"], 0);
    assert_eq!(object["error"], serde_json::Value::Null);
}

#[test]
fn a_report_that_cannot_be_written_is_a_failure_before_the_command_starts() {
    let place = Place::new();
    let output = place.output(&["--report", "/no/such/directory/report"], &["sh", "-c", "echo ran > ran"]);
    assert_eq!(code(&output), 125, "{}", shown(&output));
    assert!(stderr(&output).contains("/no/such/directory/report"), "{}", shown(&output));
    assert!(!place.work().join("ran").exists());
}

#[test]
fn a_use_of_the_hosts_network_says_what_it_reaches() {
    let place = Place::new();
    // The shipped policy does not offer it, and the refusal says what would.
    let output = place.output(&["--network", "host"], &["true"]);
    assert_eq!(code(&output), 126, "{}", shown(&output));
    let line = "[profile.workspace.network]: choices = [\"none\", \"proxy\", \"host\"]";
    assert!(stderr(&output).contains(line), "{}", shown(&output));
    // Where it is offered, its use says what it reaches.
    let file = place.policies().join("default.toml");
    let shipped = fs::read_to_string(&file).unwrap();
    let offering =
        shipped.replace("choices = [\"none\", \"proxy\"]", "choices = [\"none\", \"proxy\", \"host\"]");
    fs::write(&file, offering).unwrap();
    let output = place.output(&["--receipt", "--network", "host"], &["true"]);
    assert_eq!(code(&output), 0, "{}", shown(&output));
    assert!(stderr(&output).contains("host: reaches services on the host's loopback"), "{}", shown(&output));
    let help = place.provost().args(["run", "--help"]).output().expect("provost starts");
    assert!(stdout(&help).contains("loopback") && stdout(&help).contains("metadata"), "{}", shown(&help));
}

#[test]
fn the_receipt_says_what_confined_the_command() {
    let place = Place::new();
    let output = place.output(&["--receipt"], &["true"]);
    let said = stderr(&output);
    for expected in
        ["receipt of term_", "exit code 0", "0 processes", "user", "no capabilities", "filter", "network"]
    {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn an_embedded_gateways_journal_is_kept_where_it_is_asked_for_and_goes_on_with_each_run() {
    let place = Place::new();
    let journal = place.path().join("kept");
    let directory = journal.display().to_string();
    for _ in 0..2 {
        let output = place.output(&["--journal", &directory], &["sh", "-c", "exit 3"]);
        assert_eq!(code(&output), 3, "{}", shown(&output));
    }
    let audit = |arguments: &[&str]| {
        place
            .provost()
            .args(["audit", "--journal", &directory])
            .args(arguments)
            .output()
            .expect("provost starts")
    };
    let verified = audit(&["verify"]);
    assert_eq!(code(&verified), 0, "{}", shown(&verified));
    let kinds: Vec<String> = stdout(&audit(&["query", "-o", "json"]))
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("it is JSON"))
        .map(|line| line["record"]["kind"].as_str().unwrap_or_default().to_owned())
        .collect();
    for kind in ["gateway_started", "spawn", "exit", "gateway_stopped"] {
        assert_eq!(kinds.iter().filter(|one| *one == kind).count(), 2, "{kind} in {kinds:?}");
    }
    // Without being asked for, none is kept.
    let output = place.output(&[], &["true"]);
    assert_eq!(code(&output), 0, "{}", shown(&output));
    assert_eq!(
        std::fs::read_dir(place.path()).map_or(0, |entries| entries
            .flatten()
            .filter(|entry| entry.path().join("head").exists())
            .count()),
        1
    );
}

/// As below the root of a build's chroot.
#[test]
fn cgroups_that_are_mounted_at_two_places_are_used_once() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: only root mounts");
        return;
    }
    let place = Place::new();
    let second = place.path().join("second");
    fs::create_dir(&second).expect("a directory can be made");
    let run = place.run(&[], &["sh", "-c", "echo limited"]);
    let words: Vec<_> = std::iter::once(run.get_program()).chain(run.get_args()).collect();
    let mut host = Command::new("unshare");
    let script = "mount --rbind /sys/fs/cgroup \"$0\" && exec \"$@\"";
    host.args(["-m", "sh", "-c", script]).arg(&second).args(words).current_dir(place.work());
    let done = host.env_remove("PROVOST_GATEWAY").output().expect("unshare is there");
    assert_eq!((code(&done), &*stdout(&done)), (0, "limited\n"), "{}", shown(&done));
}
