//! The rules: lives and ends of commands. The list of all rules is here too.

use provost::proto::supervisor::{
    Hello, Limits, ListTerminals, Release, SendSignal, Shutdown, Spawn, Stage, Stop, StopCause, exit::End,
    from_supervisor::Message, to_supervisor::Request,
};

use crate::{
    client::{Client, Groups, Supervisor, WithoutGateway, command, shell},
    ends, judged, streams,
};

/// A rule and its name.
pub(crate) type Rule = (&'static str, fn());

macro_rules! rules {
    ($($path:path as $name:literal),* $(,)?) => { &[$(($name, $path as fn())),*] };
}

/// All rules.
pub(crate) const ALL: &[Rule] = rules![
    a_command_runs_and_its_output_and_exit_come_back as "a_command_runs_and_its_output_and_exit_come_back",
    no_exit_is_lost_among_very_many as "no_exit_is_lost_among_very_many",
    a_kill_right_after_the_start_kills as "a_kill_right_after_the_start_kills",
    a_recycled_pid_is_never_signalled as "a_recycled_pid_is_never_signalled",
    a_tree_that_resists_dies as "a_tree_that_resists_dies",
    a_tree_that_resists_dies_without_a_v2_tree as "a_tree_that_resists_dies_without_a_v2_tree",
    without_any_tree_the_whole_namespace_dies as "without_any_tree_the_whole_namespace_dies",
    a_fork_storm_dies as "a_fork_storm_dies",
    what_outlives_the_command_is_stopped_after_the_linger_time as
        "what_outlives_the_command_is_stopped_after_the_linger_time",
    limits_of_time_end_a_command_and_say_so as "limits_of_time_end_a_command_and_say_so",
    a_memory_limit_is_the_reported_cause as "a_memory_limit_is_the_reported_cause",
    a_limit_that_cannot_be_had_is_refused_or_listed as "a_limit_that_cannot_be_had_is_refused_or_listed",
    failures_to_start_are_told_apart as "failures_to_start_are_told_apart",
    many_failures_to_start_leave_nothing_behind as "many_failures_to_start_leave_nothing_behind",
    a_stopped_start_does_not_stop_the_supervisor as "a_stopped_start_does_not_stop_the_supervisor",
    a_new_gateway_finds_everything as "a_new_gateway_finds_everything",
    what_a_gateway_that_is_gone_has_asked_for_is_found as "what_a_gateway_that_is_gone_has_asked_for_is_found",
    requests_are_answered_exactly as "requests_are_answered_exactly",
    an_embedded_gateways_end_is_the_sandboxs_end as "an_embedded_gateways_end_is_the_sandboxs_end",
    only_0_1_and_2_are_open_in_a_command as "only_0_1_and_2_are_open_in_a_command",
    ends::what_outlives_the_command_has_its_linger_time_and_ends_it_when_it_goes as
        "what_outlives_the_command_has_its_linger_time_and_ends_it_when_it_goes",
    ends::what_outlives_the_linger_time_is_told_to_end_before_it_is_killed as
        "what_outlives_the_linger_time_is_told_to_end_before_it_is_killed",
    ends::what_cannot_be_killed_is_reported_and_then_the_sandbox_ends as
        "what_cannot_be_killed_is_reported_and_then_the_sandbox_ends",
    ends::only_the_leader_of_a_pty_is_hung_up_and_again_when_it_goes_on as
        "only_the_leader_of_a_pty_is_hung_up_and_again_when_it_goes_on",
    ends::all_that_is_in_a_pipe_at_the_end_is_read as "all_that_is_in_a_pipe_at_the_end_is_read",
    ends::what_a_process_outside_writes_is_not_waited_for as "what_a_process_outside_writes_is_not_waited_for",
    ends::what_an_ended_command_has_written_waits_for_its_reader as
        "what_an_ended_command_has_written_waits_for_its_reader",
    judged::another_file_than_the_judged_one_is_not_executed as "another_file_than_the_judged_one_is_not_executed",
    streams::streams_are_kept_apart_on_request as "streams_are_kept_apart_on_request",
    streams::a_flood_leaves_its_newest_bytes as "a_flood_leaves_its_newest_bytes",
    streams::a_held_flood_loses_nothing as "a_held_flood_loses_nothing",
    streams::a_held_command_can_be_killed as "a_held_command_can_be_killed",
    streams::a_flood_starves_nobody as "a_flood_starves_nobody",
    streams::input_is_fed_and_never_waited_for as "input_is_fed_and_never_waited_for",
    streams::a_command_may_close_its_output_and_run_on as "a_command_may_close_its_output_and_run_on",
    streams::short_outputs_are_never_lost as "short_outputs_are_never_lost",
    streams::idle_terminals_are_small as "idle_terminals_are_small",
];

/// The number for a full run (`PROVOST_FULL_ROUNDS` is set, as `.ci/long runtime` has it), or a tenth of it.
pub(crate) fn many(full: usize) -> usize {
    if std::env::var_os("PROVOST_FULL_ROUNDS").is_some() { full } else { full / 10 }
}

pub(crate) fn start() -> (Supervisor, Client) {
    let supervisor = Supervisor::start(Groups::All, WithoutGateway::GoOn);
    let client = supervisor.connect();
    (supervisor, client)
}

fn a_command_runs_and_its_output_and_exit_come_back() {
    let (mut supervisor, mut client) = start();
    assert_eq!(client.hello.sandbox_id, "sbx_test");
    let (exit, output) = client.run(command("term_1", &["true"]));
    assert_eq!((exit.end, output), (Some(End::Code(0)), vec![]));
    let held = client.spawn(shell("term_2", "echo out; echo err >&2; id -u; exit 3")).unwrap();
    let status = String::from_utf8(held.started.status.to_vec()).unwrap();
    assert!(status.contains("Uid:\t54321\t54321\t54321\t54321\n"), "{status}");
    assert!(status.contains("CapEff:\t0000000000000000\n"), "{status}");
    assert!(status.contains("Groups:\t \n"), "{status}");
    let exit = client.exit("term_2");
    assert_eq!((exit.end, exit.stopped(), exit.survivors), (Some(End::Code(3)), StopCause::Unspecified, 0));
    assert!(exit.wall_us > 0 && exit.ended_at_ns > exit.started_at_ns && exit.memory_peak_bytes > 0);
    assert_eq!(exit.started_at_ns, held.started.started_at_ns);
    assert_eq!(String::from_utf8(held.output(0)).unwrap(), "out\nerr\n54321\n");
    assert!(held.rings[0].at_end());
    assert_eq!(supervisor.leaves(), 0);
    client.shut_down();
    assert_eq!(supervisor.wait(), Some(0));
}

fn no_exit_is_lost_among_very_many() {
    let (supervisor, mut client) = start();
    // Whatever grows once has grown after these.
    churn(&mut client, 0, 300);
    let (descriptors, resident) = (supervisor.descriptors(), supervisor.resident_kb());
    churn(&mut client, 300, many(20_000));
    assert_eq!((supervisor.descriptors(), supervisor.leaves()), (descriptors, 0));
    assert!(supervisor.resident_kb() <= resident + 512, "{resident} → {}", supervisor.resident_kb());
}

/// `count` commands, 32 at a time.
fn churn(client: &mut Client, first: usize, count: usize) {
    let id = |number: usize| format!("term_{number}");
    for number in first..first + count + 32 {
        if number < first + count {
            client.spawn(command(&id(number), &["/bin/true"])).unwrap();
        }
        if number >= first + 32 {
            let id = id(number - 32);
            assert_eq!(client.exit(&id).end, Some(End::Code(0)));
            client.release(&id);
        }
    }
}

fn a_kill_right_after_the_start_kills() {
    let (supervisor, mut client) = start();
    for round in 0..many(2000) {
        let id = format!("term_{round}");
        let lines = ["exec sleep 1000", "sleep 1000 & sleep 1000", "trap '' TERM; sleep 1000; sleep 1000"];
        client.spawn(shell(&id, lines[round % 3])).unwrap();
        client.stop(&id, if round % 2 == 0 { 0 } else { 20 });
        client.stop(&id, 0);
        let exit = client.exit(&id);
        assert_eq!((exit.stopped(), exit.survivors), (StopCause::Killed, 0));
        assert!(matches!(exit.end, Some(End::Signal(9 | 15) | End::Code(143))), "{exit:?}");
        client.stop(&id, 0);
        client.release(&id);
    }
    assert_eq!(supervisor.leaves(), 0);
}

const RESISTING: &[&str] = &[
    "trap '' TERM HUP INT; while :; do sleep 1; done",
    "setsid sh -c 'trap \"\" TERM; (setsid sleep 1000 &) ; sleep 1000' & nohup sleep 1000 & sleep 1000",
    "sleep 1000 & kill -STOP $!; kill -STOP $$",
    "(trap '' TERM; sleep 1000; sleep 1000) & (sh -c 'kill -STOP $$' &) ; exec sleep 1000",
];

fn a_tree_that_resists_dies() {
    resists(Groups::All);
}

fn a_tree_that_resists_dies_without_a_v2_tree() {
    if std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        // A host of version 2 alone: there is nothing that this could be tried with.
        println!("SKIPPED: this host has no groups of version 1");
        return;
    }
    resists(Groups::V1);
}

fn without_any_tree_the_whole_namespace_dies() {
    resists(Groups::None);
}

fn resists(groups: Groups) {
    let supervisor = Supervisor::start(groups, WithoutGateway::GoOn);
    let mut client = supervisor.connect();
    for (line, round) in RESISTING.iter().zip(0..) {
        for grace in [0, 100] {
            let id = format!("term_{round}_{grace}");
            let ready = format!("echo ready; {line}");
            // The grace of the stop is what counts: nobody here waits for this one.
            let held = client.spawn(Spawn { kill_grace_ms: 600_000, ..shell(&id, &ready) }).unwrap();
            streams::wait_for(&mut client, &held, b"ready");
            client.stop(&id, grace);
            let exit = client.exit(&id);
            assert_eq!((exit.stopped(), exit.survivors), (StopCause::Killed, 0), "{line}");
            client.release(&id);
        }
    }
    assert_eq!(supervisor.leaves(), 0);
}

fn a_fork_storm_dies() {
    let (supervisor, mut client) = start();
    for grace in [0, 300] {
        let id = format!("term_{grace}");
        // The number of processes is bounded for the machine's sake; they are replaced as fast as they can be.
        let mut storm = shell(&id, "echo ready; f() { while :; do sh -c : & f & wait; done; }; f & f & f");
        let nproc = provost::proto::supervisor::Rlimit { resource: 6, soft: 200, hard: 200 };
        storm.limits = Some(Limits { rlimits: vec![nproc], pids: Some(150), ..Limits::default() });
        let held = client.spawn(storm).unwrap();
        streams::wait_for(&mut client, &held, b"ready");
        client.stop(&id, grace);
        let exit = client.exit(&id);
        assert_eq!((exit.stopped(), exit.survivors), (StopCause::Killed, 0));
        client.release(&id);
    }
    assert_eq!(supervisor.leaves(), 0);
}

fn what_outlives_the_command_is_stopped_after_the_linger_time() {
    let (supervisor, mut client) = start();
    let held = client
        .spawn(shell("term_1", "(sleep 1000 &); (sleep 1000 >/dev/null 2>&1 &); echo x; exit 7"))
        .unwrap();
    let exit = client.exit("term_1");
    assert_eq!((exit.end, exit.stopped(), exit.survivors), (Some(End::Code(7)), StopCause::Unspecified, 0));
    assert_eq!(held.output(0), b"x\n");
    // One that ignores TERM has to be killed, and is counted; what it wrote before is there.
    let line = "trap '' TERM; (sleep 0.1; echo late; while :; do sleep 1; done) & exit 0";
    let held = client.spawn(Spawn { linger_ms: 3000, ..shell("term_2", line) }).unwrap();
    let exit = client.exit("term_2");
    assert_eq!((exit.end, exit.survivors), (Some(End::Code(0)), 0));
    assert!(exit.stragglers_killed >= 1, "{exit:?}");
    assert_eq!(held.output(0), b"late\n");
    assert_eq!(supervisor.leaves(), 0);
}

fn limits_of_time_end_a_command_and_say_so() {
    let (_supervisor, mut client) = start();
    let timed = |id: &str, line: &str, time: u64, idle: u64| Spawn {
        time_limit_ms: time,
        idle_limit_ms: idle,
        ..shell(id, line)
    };
    let (exit, _) = client.run(timed("term_1", "sleep 1000", 150, 0));
    assert_eq!((exit.end, exit.stopped()), (Some(End::Signal(15)), StopCause::TimeLimit));
    assert!(exit.wall_us >= 150_000, "{}", exit.wall_us);
    // It talks for longer than the limit, with pauses far below it.
    let line = "for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done; sleep 1000";
    let (exit, output) = client.run(timed("term_2", line, 0, 2500));
    assert_eq!((exit.end, exit.stopped()), (Some(End::Signal(15)), StopCause::IdleLimit));
    assert_eq!(output, b"1\n2\n3\n4\n5\n6\n");
    assert!(exit.wall_us > 3_000_000, "{}", exit.wall_us);
    let (exit, _) = client.run(timed("term_3", "exit 0", 60_000, 60_000));
    assert_eq!((exit.end, exit.stopped()), (Some(End::Code(0)), StopCause::Unspecified));
}

fn a_memory_limit_is_the_reported_cause() {
    let (supervisor, mut client) = start();
    let mut bomb = shell("term_1", "head -c 300000000 /dev/zero | tail >/dev/null; exit 1");
    bomb.limits = Some(Limits { memory_bytes: Some(32 << 20), require: true, ..Limits::default() });
    match client.spawn(bomb) {
        Ok(held) => {
            let exit = client.exit("term_1");
            assert!(exit.memory_limit, "{exit:?} {:?}", held.started.limits);
            assert!(exit.memory_peak_of_cgroup && exit.memory_peak_bytes <= 32 << 20, "{exit:?}");
        }
        Err(failure) if failure.stage() == Stage::LeafLimit => {
            println!("SKIPPED: no memory controller for {:?}", supervisor.groups);
        }
        Err(failure) => panic!("{failure:?}"),
    }
    assert_eq!(supervisor.leaves(), 0);
}

fn a_limit_that_cannot_be_had_is_refused_or_listed() {
    let (supervisor, mut client) = start();
    // One microsecond in each period is below what any kernel takes.
    let limits = |require| Some(Limits { cpu_millis: Some(0), require, ..Limits::default() });
    let failure = client.spawn(Spawn { limits: limits(true), ..shell("term_1", ":") }).map(drop).unwrap_err();
    assert_eq!((failure.stage(), failure.index), (Stage::LeafLimit, 3));
    let held = client.spawn(Spawn { limits: limits(false), ..shell("term_1", ":") }).unwrap();
    assert_eq!(held.started.unset_limits, ["cpu"]);
    let nofile = provost::proto::supervisor::Rlimit { resource: 7, soft: 77, hard: 99 };
    let limits = Some(Limits { pids: Some(40), rlimits: vec![nofile], ..Limits::default() });
    let held = client.spawn(Spawn { limits, ..shell("term_2", "ulimit -Sn; ulimit -Hn") }).unwrap();
    assert_eq!(held.started.limits["rlimit.nofile"], "77 99");
    if held.started.unset_limits.is_empty() {
        assert_eq!(held.started.limits["pids.max"], "40");
    }
    client.exit("term_1");
    client.exit("term_2");
    assert_eq!(held.output(0), b"77\n99\n");
    assert_eq!(supervisor.leaves(), 0);
}

/// A stranger is given the pid of a command that has ended. Whatever is then sent to the command, the stranger lives.
fn a_recycled_pid_is_never_signalled() {
    let (_supervisor, mut client) = start();
    let pid = client.spawn(command("term_1", &["true"])).unwrap().started.pid;
    client.exit("term_1");
    let mut stranger = stranger_with(pid);
    let signal = SendSignal { terminal_id: "term_1".into(), signal: libc::SIGKILL };
    assert_eq!(client.done(Request::SendSignal(signal)), libc::ESRCH);
    client.stop("term_1", 0);
    client.stop("term_1", 100);
    client.release("term_1");
    assert!(stranger.try_wait().unwrap().is_none(), "the stranger has ended");
    // It could have been: a signal by the number alone reaches it.
    let by_number = nix::unistd::Pid::from_raw(pid.cast_signed());
    nix::sys::signal::kill(by_number, nix::sys::signal::Signal::SIGKILL).unwrap();
    use std::os::unix::process::ExitStatusExt as _;
    assert_eq!(stranger.wait().unwrap().signal(), Some(libc::SIGKILL));
}

/// A process that is given this pid next (`ns_last_pid`, proc(5)); others may start processes meanwhile.
fn stranger_with(pid: u32) -> std::process::Child {
    for _ in 0..1000 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).unwrap();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        if child.id() == pid {
            return child;
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    panic!("no process could be given the pid {pid}");
}

fn failures_to_start_are_told_apart() {
    let (supervisor, mut client) = start();
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str, content: &str, mode: u32| {
        use std::os::unix::fs::PermissionsExt as _;
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(directory.path().join("closed")).unwrap();
    std::fs::set_permissions(directory.path().join("closed"), std::fs::Permissions::from_mode(0o700))
        .unwrap();
    let closed = directory.path().join("closed").to_str().unwrap().to_owned();
    let long = "x".repeat(200_000);
    let run = |program: &str| command("term_1", &[program]);
    let at = |cwd: &str| Spawn { cwd: cwd.into(), ..command("term_1", &["true"]) };
    let bad = place("bad-interpreter", "#!/nowhere/sh\n", 0o755);
    let cases = [
        (run("no-such-program-here"), Stage::Resolve, 0, libc::ENOENT),
        (run("/no/such/program"), Stage::Resolve, 0, libc::ENOENT),
        (run(""), Stage::Resolve, 0, libc::ENOENT),
        (run(&place("plain", "text", 0o644)), Stage::Resolve, 1, libc::EACCES),
        (run("/usr"), Stage::Resolve, 2, libc::EACCES),
        (run(&place("owners", "#!/bin/sh\n", 0o700)), Stage::Exec, 0, libc::EACCES),
        (run(&bad), Stage::Exec, 0, libc::ENOENT),
        (run(&place("text", "echo no shebang\n", 0o755)), Stage::Exec, 0, libc::ENOEXEC),
        (command("term_1", &["true", &long]), Stage::Exec, 0, libc::E2BIG),
        (at("/no/such/directory"), Stage::Cwd, 0, libc::ENOENT),
        (at(&bad), Stage::Cwd, 0, libc::ENOTDIR),
        (at(&closed), Stage::Cwd, 0, libc::EACCES),
        (Spawn { argv: vec![], ..run("true") }, Stage::SpawnResources, 0, libc::EINVAL),
        (command("term_1", &["true", "a\0b"]), Stage::SpawnResources, 0, libc::EINVAL),
        (Spawn { ring_bytes: u64::MAX, ..run("true") }, Stage::SpawnResources, 0, libc::EFBIG),
        (command("../../escape", &["true"]), Stage::SpawnResources, 0, libc::EINVAL),
    ];
    for (spawn, stage, index, errno) in cases {
        let what = format!("{} in {}", spawn.program, spawn.cwd);
        let failure = client.spawn(spawn).map(drop).unwrap_err();
        // The index of a directory says which name on the way to it.
        let index = if stage == Stage::Cwd { failure.index } else { index };
        assert_eq!((failure.stage(), failure.index, failure.errno), (stage, index, errno), "{what}");
    }
    assert_eq!(supervisor.leaves(), 0);
    // A relative program is relative to cwd; a bare one passes over what cannot be executed.
    let mut spawn = Spawn { cwd: "/usr/bin".into(), ..command("term_2", &["./true"]) };
    assert_eq!(client.run(spawn.clone()).0.end, Some(End::Code(0)));
    place("true", "no", 0o644);
    spawn = command("term_3", &["true"]);
    spawn.path.insert(0, directory.path().to_str().unwrap().into());
    assert_eq!(client.run(spawn).0.end, Some(End::Code(0)));
}

fn many_failures_to_start_leave_nothing_behind() {
    let (supervisor, mut client) = start();
    let missing = || command("term_1", &["/no/such/program"]);
    for _ in 0..100 {
        client.spawn(missing()).map(drop).unwrap_err();
    }
    let (descriptors, resident) = (supervisor.descriptors(), supervisor.resident_kb());
    for _ in 0..many(10_000) {
        client.spawn(missing()).map(drop).unwrap_err();
    }
    assert_eq!((supervisor.descriptors(), supervisor.leaves()), (descriptors, 0));
    assert!(supervisor.resident_kb() <= resident + 512);
}

fn a_stopped_start_does_not_stop_the_supervisor() {
    let supervisor = Supervisor::start(Groups::AllInANamespace, WithoutGateway::GoOn);
    let mut client = supervisor.connect();
    // Signals everything that has its uid, and so each new command between its setresuid and its exec.
    let line = "import os,signal\nprint('ready',flush=True)\nwhile True:\n  try: os.kill(-1, signal.SIGSTOP)\n  except OSError: pass";
    let python = command("term_stopper", &["python3", "-c", line]);
    let Ok(held) = client.spawn(python) else {
        println!("SKIPPED: no python3 for the attack");
        return;
    };
    streams::wait_for(&mut client, &held, b"ready");
    for round in 0..many(20) {
        let id = format!("term_{round}");
        client.spawn(command(&id, &["/bin/true"])).unwrap();
        client.stop(&id, 0);
        client.exit(&id);
    }
    client.stop("term_stopper", 0);
    client.exit("term_stopper");
}

fn a_new_gateway_finds_everything() {
    let (supervisor, mut client) = start();
    for number in 0..300 {
        let line = if number % 2 == 0 { "echo $$; exit 5" } else { "echo $$; sleep 1000" };
        client
            .spawn(Spawn {
                split_output: true,
                ring_bytes: 0,
                metadata: format!("term_{number}").into(),
                ..shell(&format!("term_{number}"), line)
            })
            .unwrap();
    }
    for number in (0..300).step_by(2) {
        client.exit(&format!("term_{number}"));
    }
    drop(client);
    let mut client = supervisor.connect();
    let (mut ended, mut live, mut lists, mut from) = (0, 0, 0, 0);
    loop {
        let asked = client.ask_with_descriptors(Request::ListTerminals(ListTerminals { from }));
        let (Message::TerminalList(list), descriptors) = asked else { panic!("{asked:?}") };
        lists += 1;
        assert_eq!(descriptors.len(), list.terminals.len() * 2);
        for terminal in list.terminals {
            assert_eq!(terminal.rings, 2);
            assert_eq!(terminal.metadata, terminal.terminal_id.as_bytes(), "what was given is given back");
            match terminal.exit {
                Some(exit) => {
                    assert_eq!(exit.end, Some(End::Code(5)));
                    ended += 1;
                }
                None => live += 1,
            }
        }
        from = list.next;
        if from == 0 {
            break;
        }
    }
    assert_eq!((ended, live), (150, 150));
    assert!(lists > 1);
    client.stop("term_1", 0);
    assert_eq!(client.exit("term_1").stopped(), StopCause::Killed);
    client.shut_down();
}

/// A gateway has sent a long request and is gone, and the next one asks before the supervisor has read that.
fn what_a_gateway_that_is_gone_has_asked_for_is_found() {
    use nix::sys::signal::{Signal, kill};
    let (supervisor, mut before) = start();
    let pid = nix::unistd::Pid::from_raw(supervisor.pid().cast_signed());
    kill(pid, Signal::SIGSTOP).unwrap();
    let metadata = vec![7; 100_000].into();
    before.send(Request::Spawn(Spawn { metadata, ..shell("term_1", "exec sleep 1000") }));
    drop(before);
    let mut after = supervisor.dial();
    after.send(Request::Hello(Hello { lowest_version: 1, highest_version: 1 }));
    let asked = after.send(Request::ListTerminals(ListTerminals { from: 0 }));
    kill(pid, Signal::SIGCONT).unwrap();
    let list = loop {
        if let (sequence, Message::TerminalList(list), _) = after.receive() {
            assert_eq!(sequence, asked);
            break list;
        }
    };
    assert_eq!(list.terminals.len(), 1);
    assert_eq!(list.terminals[0].terminal_id, "term_1");
    after.shut_down();
}

fn requests_are_answered_exactly() {
    let (mut supervisor, mut client) = start();
    let release = |id: &str| Request::Release(Release { terminal_id: id.into() });
    let signal = |signal| Request::SendSignal(SendSignal { terminal_id: "term_1".into(), signal });
    assert_eq!(client.done(release("term_none")), libc::ENOENT);
    let stop = Stop { terminal_id: "term_none".into(), cause: 1, grace_ms: None };
    assert_eq!(client.done(Request::Stop(stop)), libc::ENOENT);
    let held = client
        .spawn(shell("term_1", "trap 'echo got' USR1; echo ready; while :; do sleep 0.05 & wait $!; done"))
        .unwrap();
    let again = client.spawn(shell("term_1", ":")).map(drop).unwrap_err();
    assert_eq!((again.stage(), again.errno), (Stage::SpawnResources, libc::EEXIST));
    streams::wait_for(&mut client, &held, b"ready");
    assert_eq!(client.done(signal(libc::SIGUSR1)), 0);
    assert_eq!(client.done(signal(0)), libc::EINVAL);
    assert_eq!(client.done(signal(4711)), libc::EINVAL);
    streams::wait_for(&mut client, &held, b"got");
    assert_eq!(client.done(release("term_1")), libc::EBUSY);
    client.stop("term_1", 0);
    client.exit("term_1");
    assert_eq!(client.done(signal(libc::SIGUSR1)), libc::ESRCH);
    client.release("term_1");
    assert_eq!(client.done(release("term_1")), libc::ENOENT);
    // Goes on, so that the sandbox does, until the refusal has been seen.
    let (directory, path) = ends::open_directory();
    let line = format!("trap '' TERM; echo ready; while ! [ -e {path}/seen ]; do sleep 0.05; done");
    let held = client.spawn(shell("term_2", &line)).unwrap();
    streams::wait_for(&mut client, &held, b"ready");
    let sequence = client.send(Request::Shutdown(Shutdown { grace_ms: 60_000 }));
    let refused = client.spawn(shell("term_3", ":")).map(drop).unwrap_err();
    assert_eq!((refused.stage(), refused.errno), (Stage::SpawnResources, libc::ESHUTDOWN));
    std::fs::write(directory.path().join("seen"), "").unwrap();
    assert_eq!(client.exit("term_2").stopped(), StopCause::Shutdown);
    assert_eq!(client.receive().0, sequence);
    assert_eq!(supervisor.wait(), Some(0));
}

fn an_embedded_gateways_end_is_the_sandboxs_end() {
    let mut supervisor = Supervisor::start(Groups::All, WithoutGateway::Die);
    let mut client = supervisor.connect();
    client.spawn(shell("term_1", "trap '' TERM; sleep 1000; sleep 1000")).unwrap();
    drop(client);
    assert_eq!(supervisor.wait(), Some(0));
    assert_eq!(supervisor.leaves(), 0);
}

fn only_0_1_and_2_are_open_in_a_command() {
    let (_supervisor, mut client) = start();
    client.spawn(shell("term_1", "sleep 1000")).unwrap();
    // ls has one open itself, for the directory it reads.
    let (_, output) = client.run(command("term_2", &["ls", "/proc/self/fd"]));
    assert_eq!(String::from_utf8(output).unwrap(), "0\n1\n2\n3\n");
    let (_, output) = client.run(command("term_3", &["grep", "Sig[BI]", "/proc/self/status"]));
    assert_eq!(String::from_utf8(output).unwrap(), "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}
