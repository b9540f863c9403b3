//! A sandbox's set-up, looked at from outside: what the kernel says of the supervisor that was launched.
//!
//! Needs namespaces; without them it skips loudly, and fails where CI says that it has them.

mod layers;
mod protections;

use std::{
    collections::BTreeSet,
    fs,
    os::{
        fd::AsFd,
        unix::{
            fs::{MetadataExt, PermissionsExt},
            net::UnixStream,
        },
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use prost::Message as _;
use provost::proto::supervisor::{
    FromSupervisor, Hello, Limits, Release, Spawn, ToSupervisor, exit, from_supervisor::Message, spawned,
    to_supervisor::Request,
};
use provost_base::{
    sandbox_program::SandboxProgram,
    sys::{
        fdpass::{self, FrameReceiver},
        namespace,
        rights::Rights,
        ring::RingReader,
    },
    wire,
};
use provost_gateway::sandbox::{
    host::Host,
    launch::{self, LaunchError, LaunchedSandbox},
    roots::{self, governing::Governing},
    spec::{Owner, SandboxSpec},
};
use provost_policy::profile::{Network, Profile, Requirement};
use tempfile::TempDir;

/// Longer than anything takes on a busy machine.
const CLEANUP: Duration = Duration::from_secs(60);

struct Place {
    state: TempDir,
    work: TempDir,
    host: Host,
}

impl Place {
    fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        let work = tempfile::tempdir_in("/var/tmp").unwrap();
        // A copy, where the test is run as a user who cannot reach the original.
        let program = std::env::var_os("PROVOST_TEST_BINARY");
        let program = program.unwrap_or_else(|| env!("CARGO_BIN_EXE_provost-sandbox").into());
        let host = Host::detect().with_program(SandboxProgram::at(program.into()));
        Self { state, work, host }
    }

    fn spec(&self, id: &str) -> SandboxSpec {
        let owner = Owner { uid: nix::unistd::getuid().as_raw(), gid: nix::unistd::getgid().as_raw() };
        let root =
            roots::open(self.work.path(), roots::RootRole::Work, &Rights::own(), &Governing::default())
                .unwrap();
        let mut profile = Profile::default();
        profile.limits.requirement = Requirement::Prefer;
        SandboxSpec {
            id: id.into(),
            profile_name: "test".into(),
            profile: Arc::new(profile),
            roots: vec![root],
            named: Vec::new(),
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
            assignment: Default::default(),
            die_with_gateway: false,
            without_gateway: None,
            fail_at: None,
        }
    }

    fn launch(&self, spec: SandboxSpec) -> Result<Up, LaunchError> {
        launch::launch_blocking(&self.host, self.state.path(), spec).map(|launched| Up { launched })
    }
}

/// A sandbox that ends with the test.
struct Up {
    launched: LaunchedSandbox,
}

impl Up {
    fn proc(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.launched.supervisor_pid)).join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.proc(name)).unwrap()
    }

    fn status(&self, field: &str) -> String {
        let status = self.read("status");
        let line = status.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
        line.unwrap_or_else(|| panic!("no {field} in\n{status}"))
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Mount points with their options of mount and file system type.
    fn mounts(&self) -> Vec<(String, String, String)> {
        let parse = |line: &str| {
            let (place, kind) = line.split_once(" - ").unwrap();
            let fields: Vec<_> = place.split(' ').collect();
            (fields[4].to_owned(), fields[5].to_owned(), kind.split(' ').next().unwrap().to_owned())
        };
        self.read("mountinfo").lines().map(parse).collect()
    }

    fn in_root(&self, path: &str) -> PathBuf {
        self.proc("root").join(path.trim_start_matches('/'))
    }
}

/// A command's end and all that it has written.
#[derive(Debug)]
struct Ran {
    code: Option<u32>,
    output: String,
}

impl Up {
    /// Runs a shell line in the sandbox.
    fn sh(&self, line: &str) -> Ran {
        self.run(&["/bin/sh", "-c", line], "/")
    }

    fn run(&self, argv: &[&str], cwd: &str) -> Ran {
        let socket = UnixStream::connect(&self.launched.socket).unwrap();
        socket.set_read_timeout(Some(CLEANUP)).unwrap();
        let mut frames = FrameReceiver::new();
        let send = |sequence, request| {
            let frame = wire::encode(&ToSupervisor { sequence, request: Some(request) }, 0).unwrap();
            fdpass::send(socket.as_fd(), &frame, &[]).unwrap();
        };
        send(1, Request::Hello(Hello { lowest_version: 1, highest_version: 1 }));
        let bytes = |texts: &[&str]| texts.iter().map(|one| one.as_bytes().to_vec().into()).collect();
        let spawn = Spawn {
            terminal_id: "term_0".into(),
            program: argv[0].into(),
            argv: bytes(argv),
            env: bytes(&["PATH=/usr/bin:/bin:/usr/sbin", "HOME=/home/agent"]),
            cwd: cwd.into(),
            path: vec!["/usr/bin".into(), "/bin".into()],
            limits: Some(Limits::default()),
            ring_bytes: 1 << 20,
            kill_grace_ms: 100,
            linger_ms: 100,
            ..Spawn::default()
        };
        send(2, Request::Spawn(spawn));
        let mut ring = None;
        loop {
            let frame = frames.receive(socket.as_fd()).unwrap().expect("the supervisor is there");
            let message = FromSupervisor::decode(frame.message.as_slice()).unwrap().message.unwrap();
            match message {
                Message::Spawned(spawned) => match spawned.result.unwrap() {
                    spawned::Result::Started(_) => {
                        ring =
                            frame.descriptors.into_iter().next().map(|file| RingReader::open(file).unwrap());
                    }
                    spawned::Result::Failure(failure) => panic!("{failure:?}"),
                },
                Message::Exited(exited) => {
                    let ring = ring.unwrap();
                    let mut bytes = vec![0; usize::try_from(ring.head()).unwrap()];
                    ring.read_at(0, &mut bytes).unwrap();
                    send(3, Request::Release(Release { terminal_id: "term_0".into() }));
                    while let Some(frame) = frames.receive(socket.as_fd()).unwrap() {
                        let answer = FromSupervisor::decode(frame.message.as_slice()).unwrap();
                        if answer.sequence == 3 {
                            break;
                        }
                    }
                    let code = match exited.exit.unwrap().end {
                        Some(exit::End::Code(code)) => Some(code),
                        _ => None,
                    };
                    return Ran { code, output: String::from_utf8_lossy(&bytes).into_owned() };
                }
                _ => {}
            }
        }
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        namespace::kill_pidfd(self.launched.supervisor.as_fd()).unwrap();
        launch::reap(self.launched.supervisor.as_fd()).unwrap();
        self.launched.cgroup.remove_blocking(CLEANUP).unwrap();
    }
}

/// Ids of its own are root's to give, and only root can look at a supervisor: it lets nobody else.
fn privileged() -> bool {
    let privileged = Host::detect().is_privileged();
    if !privileged {
        println!("SKIPPED: needs root, for ids of its own and for a look at the supervisor");
        // CI runs as root; the pure v2 machine runs these as an ordinary user too.
        let v2_user = std::env::var_os("PROVOST_V2_MACHINE").is_some();
        assert!(v2_user || std::env::var_os("CI").is_none(), "CI has root");
    }
    privileged
}

#[test]
fn the_supervisor_has_namespaces_of_its_own_and_no_privileges_over_the_host() {
    if !privileged() {
        return;
    }
    let place = Place::new();
    let up = place.launch(place.spec("sbx_confined")).unwrap();
    for name in ["user", "pid", "mnt", "ipc", "uts", "cgroup", "net"] {
        let own = fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        assert_ne!(fs::read_link(up.proc("ns").join(name)).unwrap(), own, "{name}");
    }
    let kept = if place.host.is_privileged() { "00000000000000e0" } else { "0000000000000000" };
    for (field, wanted) in [
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
        ("CapInh", "0000000000000000"),
        ("CapBnd", "0000000000000000"),
        ("CapAmb", "0000000000000000"),
        ("CapPrm", kept),
        ("CapEff", kept),
        ("NSpid", &format!("{} 1", up.launched.supervisor_pid)),
    ] {
        assert_eq!(up.status(field), wanted, "{field}");
    }
    let uid = up.launched.identity.supervisor_host_uid;
    assert_eq!(up.status("Uid"), format!("{uid} {uid} {uid} {uid}"));
    assert_ne!(uid, 0);
    // Groups: none where it had a choice.
    if place.host.is_privileged() {
        assert_eq!(up.status("Groups"), "");
    }
}

#[test]
fn the_view_holds_what_was_planned_and_nothing_else_of_the_host() {
    if !privileged() {
        return;
    }
    let place = Place::new();
    let up = place.launch(place.spec("sbx_view")).unwrap();
    let work = place.work.path().to_str().unwrap().to_owned();
    let mounts = up.mounts();
    for (target, options, kind) in &mounts {
        assert!(options.contains("nosuid"), "{target} {options}");
        // What is the whole machine's in /proc lies below the null device.
        let shows_device = target.starts_with("/dev") || target.starts_with("/proc/");
        assert!(options.contains("nodev") || shows_device, "{target} {options}");
        let private = ["/tmp", "/dev/shm", "/home/agent", "/dev/pts", work.as_str()];
        let device = kind == "devtmpfs" || target.starts_with("/dev/");
        assert!(
            options.split(',').any(|one| one == "ro") || private.contains(&target.as_str()) || device,
            "{target} is writable: {options}"
        );
    }
    let names = |path: &str| -> BTreeSet<String> {
        fs::read_dir(up.in_root(path))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    let top = names("/");
    // What says how many processors and how much memory a command has is all of /sys.
    assert!(
        names("/sys").iter().all(|name| ["devices", "fs"].contains(&name.as_str())),
        "{:?}",
        names("/sys")
    );
    for absent in ["run", "root", "boot", "mnt", "media", "srv", ".staged"] {
        assert!(!top.contains(absent), "{absent} is shown");
    }
    assert_eq!(names("/home").into_iter().collect::<Vec<_>>(), ["agent"]);
    assert_eq!(fs::metadata(up.in_root(&work)).unwrap().ino(), fs::metadata(&work).unwrap().ino());
    let passwd = fs::read_to_string(up.in_root("/etc/passwd")).unwrap();
    assert_eq!(passwd.lines().count(), 3, "{passwd}");
    let expected: BTreeSet<_> = [
        "null", "zero", "full", "random", "urandom", "tty", "fd", "stdin", "stdout", "stderr", "ptmx", "pts",
        "shm", "mqueue",
    ]
    .map(str::to_owned)
    .into();
    assert_eq!(names("/dev"), expected);
}

#[test]
fn only_the_control_socket_and_the_cgroups_stay_open() {
    if !privileged() {
        return;
    }
    let place = Place::new();
    let up = place.launch(place.spec("sbx_fds")).unwrap();
    let others = || -> Vec<String> {
        let targets = fs::read_dir(up.proc("fd")).unwrap().flatten();
        targets
            .filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned()))
            .filter(|target| {
                target != "/dev/null"
                    && !target.starts_with("socket:")
                    && !target.contains("sbx_fds")
                    && !target.ends_with("/provost/ids")
                    // Its score, by which its commands get theirs.
                    && !target.ends_with("/oom_score_adj")
                    // What had no route, which commands can read in their own /proc.
                    && !target.ends_with("/net/snmp")
                    && !target.ends_with("/net/snmp6")
                    // The event loop's own.
                    && !target.starts_with("anon_inode:")
            })
            .collect()
    };
    // The launcher may have been told of success, and may have answered, before what that was told by is closed.
    let deadline = std::time::Instant::now() + CLEANUP;
    while !others().is_empty() && std::time::Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert_eq!(others(), Vec::<String>::new());
}

#[test]
fn files_keep_their_owner_on_disk() {
    if !privileged() {
        return;
    }
    let place = Place::new();
    fs::set_permissions(place.work.path(), fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(place.work.path(), Some(4321), Some(4322)).unwrap();
    let up = place.launch(place.spec("sbx_owner")).unwrap();
    let work = up.in_root(place.work.path().to_str().unwrap());
    let seen = fs::metadata(&work).unwrap();
    let ids = &up.launched.identity;
    assert_eq!((seen.uid(), seen.gid()), (ids.command_host_uid, ids.command_host_gid));
}

#[test]
fn nothing_is_left_of_a_sandbox_that_has_ended() {
    let place = Place::new();
    let up = place.launch(place.spec("sbx_gone")).unwrap();
    let group = up.launched.cgroup.path().map(Path::to_owned);
    if let Some(group) = &group {
        assert!(group.exists());
    }
    drop(up);
    if let Some(group) = group {
        assert!(!group.exists());
    }
}

#[test]
fn a_root_on_a_host_directory_that_has_changed_is_not_followed() {
    let place = Place::new();
    let spec = place.spec("sbx_swapped");
    let moved = place.work.path().with_extension("moved");
    fs::rename(place.work.path(), &moved).unwrap();
    std::os::unix::fs::symlink("/etc", place.work.path()).unwrap();
    let seen = place
        .launch(spec)
        .map(|up| fs::metadata(up.in_root(place.work.path().to_str().unwrap())).unwrap().ino());
    fs::remove_file(place.work.path()).unwrap();
    let inode = fs::metadata(&moved).unwrap().ino();
    fs::rename(&moved, place.work.path()).unwrap();
    match seen {
        Ok(seen) => assert_eq!(seen, inode),
        Err(error) => assert!(matches!(error, LaunchError::Stage { .. }), "{error:?}"),
    }
}

#[test]
fn a_command_inherits_the_whole_confinement() {
    let place = Place::new();
    let up = place.launch(place.spec("sbx_command")).unwrap();
    let ran = up.sh("cat /proc/self/status");
    for (field, wanted) in [
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
        ("CapInh", "0000000000000000"),
        ("CapPrm", "0000000000000000"),
        ("CapEff", "0000000000000000"),
        ("CapBnd", "0000000000000000"),
        ("CapAmb", "0000000000000000"),
    ] {
        let line = format!("{field}:\t{wanted}\n");
        assert!(ran.output.contains(&line), "{line} in\n{}", ran.output);
    }
    assert_eq!(ran.code, Some(0));
    let ids = &up.launched.identity;
    let who = up.sh("id -u; id -un; id -G; hostname; ls /proc | grep -c '^1$'; ls /proc/self/fd");
    let expected = format!("{}\nagent\n{}\nsandbox\n0\n0\n1\n2\n3\n", ids.command_uid, ids.command_gid);
    assert_eq!(who.output, expected, "and PID 1 is not to be seen");
    let group = up.sh("cat /proc/self/cgroup");
    assert!(!group.output.contains("provost-"), "the host's groups are named: {}", group.output);
}

#[test]
fn a_command_writes_in_its_workspace_and_nowhere_else() {
    let place = Place::new();
    let work = place.work.path().to_str().unwrap();
    let up = place.launch(place.spec("sbx_write")).unwrap();
    let ran = up.sh(&format!(
        "set -e; echo hello > {work}/file; mkdir {work}/directory; mv {work}/file {work}/directory/; \
         ln {work}/directory/file {work}/link; echo x > /tmp/x; echo x > ~/x; echo x > /dev/shm/x; \
         echo x > /dev/null; echo done"
    ));
    assert_eq!((ran.code, ran.output.as_str()), (Some(0), "done\n"));
    let made = fs::metadata(place.work.path().join("link")).unwrap();
    assert_eq!(made.uid(), nix::unistd::getuid().as_raw());
    for place in ["/x", "/usr/x", "/etc/x", "/dev/x", "/home/x", "/var/x", "/proc/self/comm", "/etc/passwd"] {
        let ran = up.sh(&format!("echo x > {place}"));
        assert_ne!(ran.code, Some(0), "{place}: {}", ran.output);
    }
}

/// mknod(2), or mknodat(2) of a machine that has no other; the numbers of newer calls are the same everywhere.
const MKNOD: &str = if cfg!(target_arch = "x86_64") {
    "syscall(133, \"h\", 0104755, 0)"
} else {
    "syscall(33, -100, \"h\", 0104755, 0)"
};

#[test]
fn a_command_cannot_leave_a_set_id_program_behind() {
    let place = Place::new();
    let work = place.work.path().to_str().unwrap();
    let up = place.launch(place.spec("sbx_setid")).unwrap();
    let perl = |call: &str| format!("perl -e 'umask 0; {call} or exit 1'");
    let attempts = [
        "chmod u+s f".to_owned(),
        "chmod g+s f".to_owned(),
        perl("chmod 04755, \"f\""),
        perl("open(F, \"f\") && chmod(04755, *F)"),
        perl("use Fcntl; sysopen(G, \"g\", O_CREAT|O_WRONLY, 04755) && -u \"g\""),
        perl(&format!("{MKNOD} == 0 && -u \"h\"")),
        perl("syscall(452, -100, \"f\", 04755, 0) == 0"),
        perl("syscall(437, -100, \"i\", pack(\"Q3\", 0101, 04755, 0), 24) >= 0"),
        "cp -p /usr/bin/su s && test -u s".to_owned(),
    ];
    let prepared = up.run(&["/bin/sh", "-c", "echo > f; perl -e 'chmod 0755, \"f\" or exit 1'"], work);
    assert_eq!(prepared.code, Some(0), "an ordinary mode is fine: {}", prepared.output);
    for attempt in attempts {
        let ran = up.run(&["/bin/sh", "-c", &attempt], work);
        assert_ne!(ran.code, Some(0), "{attempt}");
    }
    for entry in fs::read_dir(place.work.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().mode() & 0o6000, 0, "{:?}", entry.path());
    }
    // Outside, the same call works: it is the sandbox that refuses.
    let file = place.work.path().join("f");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4755)).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o6000, 0o4000);
}

#[test]
fn its_user_cannot_look_into_a_supervisor() {
    const NAME: &str = "setup::its_user_cannot_look_into_a_supervisor";
    let place = Place::new();
    if nix::unistd::geteuid().is_root() {
        return as_ordinary_user(NAME);
    }
    let up = place.launch(place.spec("sbx_closed")).unwrap();
    for name in ["environ", "maps", "fd", "root", "cwd", "mem"] {
        let mine = PathBuf::from("/proc/self").join(name);
        let look = |path: &Path| fs::read_dir(path).map(drop).or_else(|_| fs::File::open(path).map(drop));
        look(&mine).unwrap();
        assert!(look(&up.proc(name)).is_err(), "{name}");
    }
    println!("looked as {}", nix::unistd::geteuid());
}

/// Runs one test of this binary again as an ordinary user, and expects that it has looked at something.
fn as_ordinary_user(test: &str) {
    use std::os::unix::process::CommandExt;
    const ORDINARY_USER: u32 = 59_998;
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copies = ["tests", "provost-sandbox"].map(|name| directory.path().join(name));
    let programs = [std::env::current_exe().unwrap(), env!("CARGO_BIN_EXE_provost-sandbox").into()];
    for (from, to) in programs.iter().zip(&copies) {
        // By another process: a child of another test could inherit a descriptor that is open for writing (ETXTBSY).
        assert!(std::process::Command::new("cp").arg(from).arg(to).status().unwrap().success());
    }
    let mut again = std::process::Command::new(&copies[0]);
    again.args(["--exact", test, "--nocapture"]).env("PROVOST_TEST_BINARY", &copies[1]);
    // What it makes it makes where everybody can.
    again
        .env("TMPDIR", "/tmp")
        .env("HOME", "/nonexistent")
        .current_dir("/")
        .uid(ORDINARY_USER)
        .gid(ORDINARY_USER);
    let output = again.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let shown = format!("{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{shown}");
    assert!(said.contains(&format!("looked as {ORDINARY_USER}")), "{shown}");
}

#[cfg(feature = "failpoints")]
#[test]
fn no_command_can_run_when_any_step_of_set_up_fails() {
    let place = Place::new();
    for (number, stage) in [
        "STAGE_ID_MAP",
        "STAGE_SUPERVISOR_CGROUP",
        "STAGE_CGROUP_NAMESPACE",
        "STAGE_IDENTITY",
        "STAGE_HOSTNAME",
        "STAGE_LOOPBACK",
        "STAGE_MOUNT",
        "STAGE_PIVOT_ROOT",
        "STAGE_NESTED_NAMESPACES",
        "STAGE_KEYRING",
        "STAGE_CAPABILITIES",
        "STAGE_NO_NEW_PRIVS",
        "STAGE_LANDLOCK",
        "STAGE_SECCOMP",
        "STAGE_EFFECTIVE_CONFINEMENT",
    ]
    .into_iter()
    .enumerate()
    {
        let mut spec = place.spec(&format!("sbx_fail_{number}"));
        spec.fail_at = Some(stage.into());
        match place.launch(spec).map(|_| ()) {
            Err(LaunchError::Stage { stage: failed, errno, .. }) => {
                assert_eq!((failed.as_str_name(), errno), (stage, nix::errno::Errno::ECANCELED));
            }
            other => panic!("{stage}: {other:?}"),
        }
        let directory = place.state.path().join("sandboxes").join(format!("sbx_fail_{number}"));
        assert!(!directory.exists(), "{stage} left {directory:?}");
    }
}
