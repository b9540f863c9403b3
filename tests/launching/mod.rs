//! Launches that go wrong at whatever point: nothing of them is left, and what went wrong has a name.
//!
//! Each test looks at all children of this process, so they take turns, and nothing else runs here.

use std::{
    fs,
    os::{fd::AsFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::wait::{Id, WaitPidFlag, waitid},
    unistd::Pid,
};
use provost_base::{
    cgroup::hierarchy,
    sandbox_program::{BUILD, SandboxProgram},
    sys::{namespace, rights::Rights},
};
use provost_gateway::sandbox::{
    host::Host,
    launch::{self, LaunchError, LaunchedSandbox},
    roots::{self, governing::Governing},
    spec::{Owner, SandboxSpec},
};
use provost_policy::profile::{Network, Profile, Requirement};
use tempfile::TempDir;

static TURN: Mutex<()> = Mutex::new(());

struct Place {
    state: TempDir,
    work: TempDir,
    tools: TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Place {
    fn new() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = || tempfile::tempdir_in("/var/tmp").unwrap();
        Self { state: directory(), work: directory(), tools: directory(), _turn: turn }
    }

    fn spec(&self, id: &str) -> SandboxSpec {
        let owner = Owner { uid: nix::unistd::getuid().as_raw(), gid: nix::unistd::getgid().as_raw() };
        let mut profile = Profile::default();
        profile.limits.requirement = Requirement::Prefer;
        profile.gate.enabled = true;
        SandboxSpec {
            id: id.into(),
            profile_name: "test".into(),
            profile: Arc::new(profile),
            named: Vec::new(),
            roots: vec![
                roots::open(self.work.path(), roots::RootRole::Work, &Rights::own(), &Governing::default())
                    .unwrap(),
            ],
            network: Network::None,
            owner,
            principal_uid: owner.uid,
            groups: Arc::default(),
            caller_home: Default::default(),
            caches: Vec::new(),
            agent: None,
            certificates: None,
            session_network: None,
            has_program_rules: false,
            session_files: Default::default(),
            governing: Arc::default(),
            // So that no launcher is started ahead, which would be a child too.
            assignment: Default::default(),
            die_with_gateway: true,
            without_gateway: None,
            fail_at: None,
        }
    }

    /// A host whose launcher is this script, which gets the program as `$PROVOST`, and its build as `$BUILD`.
    fn host_with(&self, script: &str) -> Host {
        let path = self.tools.path().join("launcher");
        fs::write(
            &path,
            script.replace("$PROVOST", env!("CARGO_BIN_EXE_provost-sandbox")).replace("$BUILD", BUILD),
        )
        .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Host::detect().with_program(SandboxProgram::at(path))
    }

    fn host(&self) -> Host {
        Host::detect().with_program(SandboxProgram::at(env!("CARGO_BIN_EXE_provost-sandbox").into()))
    }

    /// No process, no directory, no group.
    fn assert_nothing_is_left_of(&self, id: &str, when: &str) {
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT | WaitPidFlag::__WALL;
        let deadline = Instant::now() + Duration::from_secs(60);
        while waitid(Id::All, look) != Err(Errno::ECHILD) {
            assert!(Instant::now() < deadline, "{when}: a child is left: {:?}", waitid(Id::All, look));
            std::thread::sleep(Duration::from_millis(1));
        }
        while self.state.path().join("sandboxes").join(id).exists() {
            assert!(Instant::now() < deadline, "{when}: its directory is left");
            std::thread::sleep(Duration::from_millis(1));
        }
        for group in hierarchy::find_own().unwrap() {
            assert_eq!(find_below(&group.path, id), None, "{when}: its group is left");
        }
    }
}

fn find_below(group: &Path, id: &str) -> Option<PathBuf> {
    let gateways = fs::read_dir(group).ok()?.flatten().map(|entry| entry.path());
    gateways.map(|gateway| gateway.join(id)).find(|path| path.exists())
}

fn end(launched: &LaunchedSandbox) {
    namespace::kill_pidfd(launched.supervisor.as_fd()).unwrap();
    launch::reap(launched.supervisor.as_fd()).unwrap();
    let gate = launched.gate.as_ref().expect("the profile has a gate");
    launch::reap(gate.process.as_fd()).unwrap();
    launched.cgroup.remove_blocking(Duration::from_secs(60)).unwrap();
    fs::remove_dir_all(launched.socket.parent().unwrap()).unwrap();
}

#[test]
fn a_launch_that_nobody_waits_for_any_more_leaves_nothing() {
    let place = Place::new();
    let (mut up, mut given_up) = (0, 0);
    for step in 0..24 {
        let host = Arc::new(place.host());
        let id = format!("sbx_cancel_{step}");
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let launched = runtime.block_on(async {
            let launch = launch::launch(&host, place.state.path(), place.spec(&id));
            // From before anything is started to after everything is up.
            tokio::time::timeout(Duration::from_micros(300) * step * step / 4, launch).await
        });
        match launched {
            Ok(launched) => {
                end(&launched.unwrap());
                up += 1;
            }
            Err(_) => given_up += 1,
        }
        // What was begun goes on, on a thread of its own that holds the host.
        drop(runtime);
        let deadline = Instant::now() + Duration::from_secs(60);
        while Arc::strong_count(&host) > 1 {
            assert!(Instant::now() < deadline, "a launch goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(host);
        place.assert_nothing_is_left_of(&id, &format!("given up in step {step}"));
    }
    println!("{up} were up, {given_up} were given up");
    assert!(given_up > 0);
}

#[test]
fn a_launcher_that_is_killed_at_any_moment_leaves_nothing() {
    let place = Place::new();
    let (mut up, mut failed) = (0, 0);
    for step in 0..24_u32 {
        let told = place.tools.path().join(format!("pid-{step}"));
        let script = format!(
            "#!/bin/bash\necho $$ > {}\nexec -a provost-supervisor $PROVOST $BUILD\n",
            told.display()
        );
        let host = place.host_with(&script);
        let id = format!("sbx_killed_{step}");
        let killer = {
            let told = told.clone();
            std::thread::spawn(move || {
                let launcher = loop {
                    match fs::read_to_string(&told).ok().and_then(|pid| pid.trim().parse().ok()) {
                        // By descriptor: by the time of the kill it may be another process's id.
                        Some(pid) => break namespace::open_pidfd(Pid::from_raw(pid)),
                        None => std::thread::yield_now(),
                    }
                };
                std::thread::sleep(Duration::from_micros(300) * step * step / 4);
                // If it was too quick for that, it has not been killed.
                let _ = launcher.map(|launcher| namespace::kill_pidfd(launcher.as_fd()));
            })
        };
        let launched = launch::launch_blocking(&host, place.state.path(), place.spec(&id));
        killer.join().unwrap();
        match launched {
            Ok(launched) => {
                end(&launched);
                up += 1;
            }
            Err(LaunchError::NoAnswer | LaunchError::Receive(_) | LaunchError::Send(_)) => failed += 1,
            Err(other) => panic!("step {step}: {other:?}"),
        }
        drop(host);
        place.assert_nothing_is_left_of(&id, &format!("killed in step {step}"));
    }
    println!("{up} were up, {failed} failed");
    assert!(failed > 0);
}

/// A launcher under a filter that answers one call with one action; perl, since a shell cannot install one.
#[cfg(target_arch = "x86_64")]
fn filtered(call: u32, argument_above: Option<u32>, action: u32) -> String {
    let (index_of_size, most) = (1, argument_above.unwrap_or(0));
    let check = match argument_above {
        // Load the argument; allow unless it is greater.
        Some(_) => format!(
            "pack('SCCL', 0x15, 0, 3, {call}), pack('SCCL', 0x20, 0, 0, {}), pack('SCCL', 0x25, 0, 1, {most}),",
            16 + 8 * index_of_size
        ),
        None => format!("pack('SCCL', 0x15, 0, 1, {call}),"),
    };
    format!(
        "#!/usr/bin/perl\n\
         my @filter = (pack('SCCL', 0x20, 0, 0, 0), {check} pack('SCCL', 0x06, 0, 0, {action}), \
         pack('SCCL', 0x06, 0, 0, 0x7fff0000));\n\
         my $code = join '', @filter;\n\
         my $program = pack('S x6 P', scalar(@filter), $code);\n\
         syscall(157, 38, 1, 0, 0, 0) == 0 or die;\n\
         syscall(317, 1, 0, $program) == 0 or die;\n\
         exec {{'$PROVOST'}} 'provost-supervisor', '$BUILD';\n"
    )
}

#[cfg(target_arch = "x86_64")]
const SETHOSTNAME: u32 = 170;

#[cfg(target_arch = "x86_64")]
#[test]
fn a_step_that_the_kernel_refuses_is_named_and_leaves_nothing() {
    let place = Place::new();
    let host = place.host_with(&filtered(SETHOSTNAME, None, 0x0005_0000 | libc::EOVERFLOW as u32));
    match launch::launch_blocking(&host, place.state.path(), place.spec("sbx_refused")) {
        Err(LaunchError::Stage {
            stage: provost::proto::supervisor::Stage::Hostname,
            errno: Errno::EOVERFLOW,
            ..
        }) => {}
        other => panic!("{other:?}"),
    }
    place.assert_nothing_is_left_of("sbx_refused", "refused");
}

#[test]
fn a_launcher_that_says_nothing_is_given_up_and_one_of_another_build_is_named() {
    let place = Place::new();
    for (script, is_named) in [("#!/bin/sh\nexec sleep 600\n", false), ("#!/bin/sh\nexit 78\n", true)] {
        let (host, spec) = (place.host_with(script), place.spec("sbx_silent"));
        let state = place.state.path().to_owned();
        let (done, result) = std::sync::mpsc::sync_channel(1);
        std::thread::spawn(move || done.send(launch::launch_blocking(&host, &state, spec).map(drop)));
        let failed = result.recv_timeout(Duration::from_secs(120)).expect("it is given up").unwrap_err();
        assert_eq!(matches!(failed, LaunchError::Program(_)), is_named, "{script}: {failed:?}");
        place.assert_nothing_is_left_of("sbx_silent", script);
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_supervisor_that_dies_in_its_set_up_leaves_nothing() {
    let place = Place::new();
    const KILL_PROCESS: u32 = 0x8000_0000;
    let host = place.host_with(&filtered(SETHOSTNAME, None, KILL_PROCESS));
    match launch::launch_blocking(&host, place.state.path(), place.spec("sbx_died")) {
        Err(LaunchError::Stage { errno: Errno::ECHILD, .. }) => {}
        other => panic!("{other:?}"),
    }
    place.assert_nothing_is_left_of("sbx_died", "died");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn where_the_kernel_cannot_clone_into_a_cgroup_the_supervisor_is_put_there() {
    const CLONE3: u32 = 435;
    let place = Place::new();
    // As a kernel before 5.7 answers: it knows 64 bytes of arguments.
    let host = place.host_with(&filtered(CLONE3, Some(64), 0x0005_0000 | libc::E2BIG as u32));
    let launched = launch::launch_blocking(&host, place.state.path(), place.spec("sbx_seated")).unwrap();
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", launched.supervisor_pid)).unwrap();
    let unified = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default().to_owned();
    let has_group = launched.cgroup.path().is_some();
    let gate = launched.gate.as_ref().unwrap().pid;
    let gates = fs::read_to_string(format!("/proc/{gate}/cgroup")).unwrap();
    assert_eq!(gates, groups, "the gate is where the supervisor is");
    end(&launched);
    assert!(!has_group || unified.contains("sbx_seated"), "{groups}");
    if !has_group {
        println!("SKIPPED: there is no v2 group to be put in");
        assert!(std::env::var_os("CI").is_none() || !nix::unistd::geteuid().is_root(), "CI has a v2 group");
    }
    place.assert_nothing_is_left_of("sbx_seated", "ended");
}
