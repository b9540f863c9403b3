//! A gateway refuses to start on directories and files that another user could change, names them and the command that
//! fixes them, and leaves a socket alone that another process holds.

use std::{
    fs,
    os::{
        fd::AsRawFd,
        unix::{
            fs::{PermissionsExt, chown, symlink},
            net::{UnixDatagram, UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::sys::{
    signal::{Signal, kill},
    socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket},
};
use tempfile::TempDir;

use crate::support::{Gateway, eventually, is_root, skip};

/// A host for a gateway: its configuration, policies and state, all as they should be.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a temporary directory"));
        for directory in ["gov/policies", "gov/keys", "state", "run"] {
            fs::create_dir_all(place.at(directory)).unwrap();
        }
        fs::copy(
            concat!(env!("CARGO_MANIFEST_DIR"), "/policies/default.toml"),
            place.at("gov/policies/default.toml"),
        )
        .unwrap();
        let secret = place.at("gov/keys/token");
        fs::write(&secret, "a-secret-value").unwrap();
        set_mode(&secret, 0o600);
        fs::write(place.at("gov/policies/secret.toml"), format!("[secrets.TOKEN]\nfile = {secret:?}\n"))
            .unwrap();
        fs::write(place.at("gov/provost.toml"), SMALL).unwrap();
        for file in ["default.toml", "secret.toml"] {
            set_mode(&place.at("gov/policies").join(file), 0o644);
        }
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn serve(&self) -> Serving {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_provost"));
        serve.args(["serve", "--config"]).arg(self.at("gov/provost.toml"));
        serve.arg("--policies").arg(self.at("gov/policies")).arg("--state").arg(self.at("state"));
        serve.arg("--listen").arg(format!("unix:{}", self.socket().display()));
        let log = fs::File::create(self.at("log")).unwrap();
        let child = serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        Serving { child, socket: self.socket(), log: self.at("log") }
    }

    fn socket(&self) -> PathBuf {
        self.at("run/provost.sock")
    }

    fn must_start(&self) {
        assert_eq!(self.serve().outcome(), Outcome::Serves);
    }

    fn must_be_refused_for(&self, path: &Path, mode: u32, fix: &str) {
        match self.serve().outcome() {
            Outcome::Serves => panic!("it serves in spite of {}", path.display()),
            Outcome::Refused(said) => {
                for expected in [&path.display().to_string(), &format!("mode {mode:04o}"), fix] {
                    assert!(said.contains(expected), "{expected}: {said}");
                }
            }
        }
    }
}

/// A configuration that changes little: one that says nothing is refused.
const SMALL: &str = "[quotas]\nsessions_per_principal = 8\n";

struct Serving {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Serves,
    Refused(String),
}

impl Serving {
    /// Until it says that it serves, or ends.
    fn outcome(mut self) -> Outcome {
        let begun = Instant::now();
        loop {
            let said = fs::read_to_string(&self.log).unwrap_or_default();
            if self.child.try_wait().unwrap().is_some() {
                return Outcome::Refused(fs::read_to_string(&self.log).unwrap_or_default());
            }
            if said.contains("serving") && UnixStream::connect(&self.socket).is_ok() {
                return Outcome::Serves;
            }
            assert!(begun.elapsed() < Duration::from_secs(90), "{said}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = kill(nix::unistd::Pid::from_raw(self.child.id() as i32), Signal::SIGINT);
        let _ = self.child.wait();
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn what_others_can_write_starts_no_gateway() {
    let place = Place::new();
    place.must_start();
    for (name, mode) in [
        ("state", 0o777),
        ("state", 0o1777),
        ("gov", 0o777),
        ("gov/policies", 0o775),
        ("gov/policies/default.toml", 0o666),
        ("gov/provost.toml", 0o664),
        ("gov/keys", 0o777),
        ("gov/keys/token", 0o620),
        ("run", 0o777),
    ] {
        let path = place.at(name);
        let before = fs::metadata(&path).unwrap().permissions().mode();
        set_mode(&path, mode);
        place.must_be_refused_for(&path, mode, &format!("chmod go-w {}", path.display()));
        set_mode(&path, before);
    }
    place.must_start();
}

#[test]
fn what_belongs_to_another_user_starts_no_gateway() {
    if !is_root() {
        return skip("only root can give a directory away");
    }
    let place = Place::new();
    place.must_start();
    for name in
        ["state", "state/sessions", "gov", "gov/policies", "gov/policies/default.toml", "gov/keys/token"]
    {
        let path = place.at(name);
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        chown(&path, Some(4242), None).unwrap();
        place.must_be_refused_for(&path, mode, "chown 0 ");
        chown(&path, Some(0), None).unwrap();
    }
    // A second name of the same file may lie anywhere.
    let (rules, second) = (place.at("gov/policies/default.toml"), place.at("second"));
    fs::hard_link(&rules, &second).unwrap();
    place.must_be_refused_for(&rules, 0o644, "2 hard links");
    fs::remove_file(second).unwrap();
    // The owner of a link decides where it leads.
    let link = place.at("gov/policies/more.toml");
    fs::write(place.at("gov/silenced.toml"), "silence = ['no-gate']\n").unwrap();
    symlink(place.at("gov/silenced.toml"), &link).unwrap();
    place.must_start();
    std::os::unix::fs::lchown(&link, Some(4242), None).unwrap();
    place.must_be_refused_for(&link, 0o777, "chown 0 ");
}

/// A pipe is waited for by who opens it, a device is read without end: each is refused, with its name.
#[test]
fn what_is_no_regular_file_is_neither_waited_for_nor_read() {
    let place = Place::new();
    let key = place.at("gov/keys/key");
    let text = format!("[journal]\ndirectory = {:?}\nsigning_key = {key:?}\n", place.at("journal"));
    let make_pipe = |path: &Path| {
        let _ = fs::remove_file(path);
        nix::unistd::mkfifo(path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    };
    let refused = |named: &Path, why: &str| match place.serve().outcome() {
        Outcome::Serves => panic!("it serves in spite of {}", named.display()),
        Outcome::Refused(said) => {
            assert!(said.contains(&named.display().to_string()) && said.contains(why), "{why}: {said}");
        }
    };
    let configuration = place.at("gov/provost.toml");
    fs::write(&configuration, text).unwrap();
    make_pipe(&key);
    refused(&key, "no regular file");
    fs::remove_file(&key).unwrap();
    symlink("/dev/zero", &key).unwrap();
    assert_ne!(place.serve().outcome(), Outcome::Serves, "a device is no key");
    make_pipe(&configuration);
    refused(&configuration, "no regular file");
    fs::remove_file(&configuration).unwrap();
    fs::File::create(&configuration).unwrap().set_len(1 << 30).unwrap();
    refused(&configuration, "more than");
    fs::write(&configuration, SMALL).unwrap();
    place.must_start();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_policy_that_others_can_write_is_not_loaded_and_the_old_one_stays() {
    let gateway = Gateway::start();
    let rules = gateway.directory().join("policies/rules.toml");
    fs::write(
        gateway.directory().join("policies/new"),
        "[[rule]]\nid = 'n'\ndecision = 'deny'\nargv = ['id']\nreason = 'n'\n",
    )
    .unwrap();
    set_mode(&gateway.directory().join("policies/new"), 0o666);
    fs::rename(gateway.directory().join("policies/new"), &rules).unwrap();
    eventually("the refusal", || gateway.log_tail().contains("policy refused").then_some(())).await;
    assert!(gateway.log_tail().contains("chmod go-w"), "{}", gateway.log_tail());
    crate::support::in_session(&gateway, async |session| {
        session.command("id").finish().await;
    })
    .await;
    set_mode(&rules, 0o644);
    eventually("the policy is loaded", || gateway.log_tail().contains("policy.changed=true").then_some(()))
        .await;
    gateway.stop();
}

fn leaves_alone(what: &str, kind: SockType, backlog: Option<i32>) {
    let place = Place::new();
    let held = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(held.as_raw_fd(), &UnixAddr::new(&place.socket()).unwrap()).unwrap();
    let mut waiting = Vec::new();
    if let Some(backlog) = backlog {
        listen(&held, Backlog::new(backlog).unwrap()).unwrap();
        if kind == SockType::Stream {
            waiting.push(UnixStream::connect(place.socket()).unwrap());
        }
    }
    match place.serve().outcome() {
        Outcome::Refused(said) => assert!(said.contains("holds a socket there"), "{what}: {said}"),
        Outcome::Serves => panic!("it has taken the socket: {what}"),
    }
    assert!(place.socket().exists(), "{what}");
    drop((held, waiting));
    place.must_start();
}

#[test]
fn a_socket_that_is_in_use_is_left_alone_and_a_dead_one_is_replaced() {
    // Each is waited for, in case its holder is about to end.
    std::thread::scope(|scope| {
        for (what, kind, backlog) in [
            ("datagram", SockType::Datagram, None),
            ("seqpacket", SockType::SeqPacket, Some(4)),
            ("bound, not listening", SockType::Stream, None),
            ("backlog full", SockType::Stream, Some(0)),
        ] {
            scope.spawn(move || leaves_alone(what, kind, backlog));
        }
    });
    let place = Place::new();
    drop(UnixListener::bind(place.socket()).unwrap());
    place.must_start();
    drop(UnixDatagram::bind(place.socket()).unwrap());
    if is_root() {
        chown(place.socket(), Some(4242), None).unwrap();
        match place.serve().outcome() {
            Outcome::Refused(said) => assert!(said.contains("uid 4242"), "{said}"),
            Outcome::Serves => panic!("it has removed another user's socket"),
        }
    }
}
