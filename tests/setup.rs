//! A sandbox's set-up, looked at from outside: what the kernel says of the supervisor that was launched.
//!
//! Needs namespaces; without them it skips loudly, and fails where CI says that it has them.

use std::{
    collections::BTreeSet,
    fs,
    os::{
        fd::AsFd,
        unix::fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use provost::{
    policy::profile::{Demand, Network, Profile},
    sandbox::{
        host::Host,
        launch::{self, LaunchError, Launched},
        roots,
        spec::{Owner, SandboxSpec},
    },
    sys::namespace,
};
use tempfile::TempDir;

const CLEANUP: Duration = Duration::from_secs(5);

struct Place {
    state: TempDir,
    work: TempDir,
    host: Host,
}

impl Place {
    fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        let work = tempfile::tempdir_in("/var/tmp").unwrap();
        let host = Host::probe().with_launcher(env!("CARGO_BIN_EXE_provost").into());
        Self { state, work, host }
    }

    fn spec(&self, id: &str) -> SandboxSpec {
        let owner = Owner { uid: nix::unistd::getuid().as_raw(), gid: nix::unistd::getgid().as_raw() };
        let root = roots::open(self.work.path(), owner, self.state.path()).unwrap();
        let mut profile = Profile::default();
        profile.limits.demand = Demand::Prefer;
        SandboxSpec {
            id: id.into(),
            profile_name: "test".into(),
            profile: Arc::new(profile),
            roots: vec![root],
            network: Network::None,
            owner,
            die_with_gateway: false,
            fail_at: None,
        }
    }

    fn launch(&self, spec: SandboxSpec) -> Result<Up, LaunchError> {
        launch::launch_blocking(&self.host, self.state.path(), spec).map(|launched| Up { launched })
    }
}

/// A sandbox that ends with the test.
struct Up {
    launched: Launched,
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

impl Drop for Up {
    fn drop(&mut self) {
        namespace::kill(self.launched.supervisor.as_fd()).unwrap();
        launch::reap(self.launched.supervisor.as_fd()).unwrap();
        self.launched.cgroup.remove_blocking(CLEANUP).unwrap();
        let _ = std::io::stdout();
    }
}

fn privileged() -> bool {
    let privileged = Host::probe().is_privileged();
    if !privileged {
        println!("SKIPPED: needs root, for ids of its own");
    }
    privileged
}

#[test]
fn the_supervisor_has_namespaces_of_its_own_and_no_privileges_over_the_host() {
    let place = Place::new();
    let up = place.launch(place.spec("sbx_posture")).unwrap();
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
fn the_view_holds_what_was_planned_and_nothing_of_the_host_besides() {
    let place = Place::new();
    let up = place.launch(place.spec("sbx_view")).unwrap();
    let work = place.work.path().to_str().unwrap().to_owned();
    let mounts = up.mounts();
    for (target, options, kind) in &mounts {
        assert!(options.contains("nosuid"), "{target} {options}");
        assert!(options.contains("nodev") || target.starts_with("/dev"), "{target} {options}");
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
    for absent in ["sys", "run", "root", "boot", "mnt", "media", "srv", ".staged"] {
        assert!(!top.contains(absent), "{absent} is shown");
    }
    assert_eq!(names("/home").into_iter().collect::<Vec<_>>(), ["agent"]);
    assert_eq!(fs::metadata(up.in_root(&work)).unwrap().ino(), fs::metadata(&work).unwrap().ino());
    let passwd = fs::read_to_string(up.in_root("/etc/passwd")).unwrap();
    assert_eq!(passwd.lines().count(), 3, "{passwd}");
    let expected: BTreeSet<_> = [
        "null", "zero", "full", "random", "urandom", "tty", "fd", "stdin", "stdout", "stderr", "ptmx", "pts",
        "shm",
    ]
    .map(str::to_owned)
    .into();
    assert_eq!(names("/dev"), expected);
}

#[test]
fn only_the_control_socket_and_the_cgroups_stay_open() {
    let place = Place::new();
    let up = place.launch(place.spec("sbx_fds")).unwrap();
    let mut kinds: Vec<String> = fs::read_dir(up.proc("fd"))
        .unwrap()
        .map(|entry| fs::read_link(entry.unwrap().path()).unwrap().to_string_lossy().into_owned())
        .filter(|target| {
            target != "/dev/null"
                && !target.starts_with("socket:")
                && !target.contains("sbx_fds")
                && !target.ends_with("/provost/ids")
        })
        .collect();
    kinds.retain(|target| !target.starts_with("anon_inode:")); // The event loop's own.
    assert_eq!(kinds, Vec::<String>::new());
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
fn a_root_on_a_host_folder_that_has_changed_is_not_followed() {
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
