//! What lies in the host's directories that every sandbox shows, and is not for commands: secrets, sockets of the host's processes,
//! and what is mounted there. Each is reached outside first.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt, chown},
        net::UnixListener,
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::Arc,
};

use tempfile::TempDir;

use crate::support::{Attack, Gateway, Mounted, Options, Session, is_root, lacks, run_outside, skip, within};

/// The user of an ordinary gateway.
pub(super) const USER: u32 = 58_997;
const VALUE: &str = "a-value-that-no-command-sees";

/// Gateways of root, and of an ordinary user without and with subordinate ids.
pub(super) fn gateways() -> Vec<(u32, Arc<Gateway>)> {
    let prefer = |policy: &mut toml::Table| {
        for (_, profile) in policy["profile"].as_table_mut().expect("a table of profiles").iter_mut() {
            let profile = profile.as_table_mut().expect("a profile");
            let limits = profile.entry("limits").or_insert_with(|| toml::Table::new().into());
            limits.as_table_mut().expect("a table").insert("requirement".into(), "prefer".into());
        }
    };
    let ordinary = |subordinate_ids| {
        let user = Some(USER);
        Gateway::start_with(Options { policy: Some(prefer), user, subordinate_ids, ..Options::default() })
    };
    let mut all = vec![(0, Gateway::start()), (USER, ordinary(false))];
    if Path::new("/usr/bin/newuidmap").exists() {
        all.push((USER, ordinary(true)));
    }
    all
}

async fn open(gateway: &Arc<Gateway>, user: u32) -> Session {
    match user {
        0 => Session::open(gateway).await,
        user => Session::open_as(gateway, user).await,
    }
}

/// A directory of the host that every sandbox shows. `None`: this test cannot make one.
fn system_directory() -> Option<TempDir> {
    if !is_root() {
        skip("only root can write to the system's directories");
        return None;
    }
    let made = tempfile::Builder::new().prefix("provost-test-").tempdir_in("/opt").expect("root can");
    fs::set_permissions(made.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    Some(made)
}

fn write_secret(file: &Path, owner: u32) {
    let aside = file.with_extension("new");
    fs::write(&aside, VALUE).expect("a secret can be written");
    fs::set_permissions(&aside, fs::Permissions::from_mode(0o600)).expect("it is ours");
    chown(&aside, Some(owner), Some(owner)).expect("root can give a file away");
    fs::rename(&aside, file).expect("it can be put in its place");
}

/// What a shell of that user prints on the host.
pub(super) fn outside(user: u32, script: &str) -> String {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).stdin(Stdio::null());
    if user != 0 {
        shell.uid(user).gid(user);
    }
    String::from_utf8_lossy(&shell.output().expect("a shell starts").stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_secret_in_a_directory_of_the_system_is_covered_with_whatever_takes_its_place() {
    let Some(system) = system_directory() else { return };
    for (user, gateway) in gateways() {
        let at = |name: &str| system.path().join(name);
        for directory in ["own", "own/deep", "mixed", "later"] {
            fs::create_dir_all(at(directory)).expect("a directory can be made");
            chown(at(directory), Some(user), Some(user)).expect("root can give a directory away");
        }
        fs::write(at("mixed/tool"), "a tool\n").expect("a file can be written");
        let files = ["own/deep/token", "mixed/token"].map(at);
        files.iter().for_each(|file| write_secret(file, user));
        let named: String = files
            .iter()
            .chain([&at("later/token")])
            .enumerate()
            .map(|(index, file)| format!("[secrets.TOKEN_{index}]\nfile = {file:?}\n"))
            .collect();
        let policies = gateway.directory().join("policies");
        fs::write(policies.join("new"), named).expect("a policy can be written");
        fs::rename(policies.join("new"), policies.join("secrets.toml")).expect("it can be put in place");
        let loaded = async {
            while !gateway.log_tail().contains("policy.changed=true") {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        within("the policy", loaded).await;
        let read =
            format!("cd {}; cat own/deep/* mixed/* later/* 2>/dev/null; true", system.path().display());
        assert_eq!(outside(user, &read).matches(VALUE).count(), 2, "uid {user}: outside it is read");

        let session = open(&gateway, user).await;
        let sleeper = session.command("sleep").args(["1000"]).create().await;
        let done = session.sh(&read).finish().await;
        assert!(
            !done.text().contains(VALUE) && done.text().contains("a tool"),
            "uid {user}: {}",
            done.text()
        );
        let receipt = sleeper.info.receipt.clone().expect("a receipt");
        for place in ["own", "mixed/token", "later"] {
            let line = format!("{} (secret)", at(place).display());
            assert!(receipt.covered.contains(&line), "uid {user}: {:?}", receipt.covered);
        }
        // What comes in its place, and what was not there.
        write_secret(&at("own/deep/token"), user);
        write_secret(&at("later/token"), user);
        assert_eq!(outside(user, &read).matches(VALUE).count(), 3, "uid {user}: outside it is read");
        let done = session.sh(&read).finish().await;
        assert!(!done.text().contains(VALUE), "uid {user}: {}", done.text());
        session.close().await;
        fs::remove_file(at("later/token")).expect("it is ours");
        gateway.stop();
    }
}

/// A process of the host that listens on a socket, which it has bound by a name in a directory that it is in no more.
/// Its output stays open: it may write the end of its line after the line was seen, and would end by SIGPIPE.
struct Server {
    child: Child,
    _output: ChildStdout,
}

impl Server {
    async fn start(directory: &Path, name: &str) -> Self {
        let script = format!(
            "import os, socket, time\ns = socket.socket(socket.AF_UNIX)\ns.bind({name:?})\nos.chmod({name:?}, 0o777)\n\
             s.listen()\nos.chdir('/')\nprint('up', flush=True)\ntime.sleep(1000)"
        );
        let mut python = Command::new("python3");
        python.args(["-c", &script]).current_dir(directory).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = python.spawn().expect("python starts");
        let mut output = child.stdout.take().expect("it is piped");
        let up = tokio::task::spawn_blocking(move || {
            std::io::Read::read_exact(&mut output, &mut [0; 3]).expect("it says that it is up");
            output
        });
        let output = within("a server", up).await.expect("no panic");
        Self { child, _output: output }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn reached_outside(path: &Path) {
    let (_, outside) =
        run_outside(&Attack::compiled("attack"), &["connect_path", &path.display().to_string()]);
    assert_eq!(outside, "connect_path OK\n", "{}", path.display());
}

async fn must_not_be_reached(session: &Session, path: &str) {
    let done = session.attack("attack").args(["connect_path", path]).finish().await;
    assert_ne!(done.text(), "connect_path OK\n", "{path}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_socket_of_the_host_is_covered_whatever_it_was_bound_as_and_is_called_now() {
    if lacks(&["python3"]) {
        return;
    }
    let gateway = Gateway::shared();
    let session = Session::open(&gateway).await;
    let at = |name: &str| session.workspace.join(name);
    for directory in ["deep/er", "before"] {
        fs::create_dir_all(at(directory)).expect("the host can write");
    }
    let _relative = Server::start(&at("deep/er"), "./relative.sock").await;
    let _moved = UnixListener::bind(at("before/moved.sock")).expect("a path socket");
    fs::rename(at("before"), at("after")).expect("the host can rename");
    let _linked = UnixListener::bind(at("linked.sock")).expect("a path socket");
    fs::hard_link(at("linked.sock"), at("deep/second.sock")).expect("the host can link");
    let all = ["deep/er/relative.sock", "after/moved.sock", "linked.sock", "deep/second.sock"];
    for path in all {
        fs::set_permissions(at(path), fs::Permissions::from_mode(0o777)).expect("it is ours");
        reached_outside(&at(path));
    }
    for path in all {
        must_not_be_reached(&session, path).await;
    }
    // Nor in the next sandbox, whatever was done in this one.
    session.sh("mv deep/er deep/x; mv deep y; mv after z; mv linked.sock w; true").finish().await;
    session.close().await;
    let workspace = session.workspace.display().to_string();
    let next = Session::open_with(&session.gateway, session.caller.clone(), None, |request| {
        request.roots = vec![workspace];
    })
    .await;
    let next = Session { workspace: session.workspace.clone(), ..next };
    let found = outside(0, &format!("cd {}; find . -type s", session.workspace.display()));
    assert_eq!(found.lines().count(), all.len(), "{found}");
    for path in found.lines() {
        reached_outside(&at(path));
        must_not_be_reached(&next, path).await;
    }
    // What the sandbox binds is its own, also next to them.
    let own = "import os, socket\nos.chdir('deep')\na = socket.socket(socket.AF_UNIX)\na.bind('own.sock')\na.listen()\n\
               b = socket.socket(socket.AF_UNIX)\nb.connect('own.sock')\nprint('connected')";
    let done = next.command("python3").args(["-c", own]).finish().await;
    assert_eq!(done.text(), "connected\n");
    next.close().await;
    gateway.marker_must_be_untouched();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_socket_of_the_host_below_a_directory_of_the_system_is_covered() {
    let Some(system) = system_directory() else { return };
    fs::create_dir(system.path().join("run")).expect("a directory can be made");
    let path = system.path().join("run/host.sock");
    let _listener = UnixListener::bind(&path).expect("a path socket");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("it is ours");
    reached_outside(&path);
    for (user, gateway) in gateways() {
        let session = open(&gateway, user).await;
        must_not_be_reached(&session, &path.display().to_string()).await;
        let receipt = session.command("true").create().await.info.receipt.clone().expect("a receipt");
        let line = format!("{} (socket)", path.display());
        assert!(receipt.covered.contains(&line), "{:?}", receipt.covered);
        session.close().await;
        gateway.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_the_machine_and_its_people_have_is_not_shown_where_it_is_mounted_below_a_directory_of_the_system()
 {
    if !is_root() {
        return skip("only root can mount below a directory of the system");
    }
    let system = MountPoints::new(&["proc", "sys", "pts", "run", "home", "tmp", "memory", "kept"]);
    let sources =
        [("run", "/run"), ("home", "/root"), ("tmp", "/tmp"), ("kept", "/srv")].map(|(name, above)| {
            let made =
                tempfile::Builder::new().prefix("provost-test-").tempdir_in(above).expect("a directory");
            fs::set_permissions(made.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
            fs::write(made.path().join("file"), "").expect("a file can be written");
            (name, made)
        });
    let mut mounted: Vec<_> = ["proc", "sysfs", "devpts", "tmpfs"]
        .into_iter()
        .zip(["proc", "sys", "pts", "memory"])
        .filter_map(|(kind, name)| Mounted::try_new(&["-t", kind, "none"], &system.at(name)))
        .collect();
    for (name, source) in &sources {
        mounted.extend(Mounted::try_new(&["--bind", &source.path().display().to_string()], &system.at(name)));
    }
    assert_eq!(mounted.len(), 8, "root can mount");
    fs::write(system.at("memory/file"), "").expect("a file can be written");
    let look = format!(
        "cd {}; ls -d proc/[0-9]* sys/* pts/* run/* home/* tmp/* memory/* kept/*",
        system.at("").display()
    );
    let seen = outside(0, &look);
    for one in
        ["proc/1\n", "sys/kernel\n", "pts/ptmx\n", "run/file\n", "home/file\n", "tmp/file\n", "memory/file\n"]
    {
        assert!(seen.contains(one), "{seen}");
    }
    for (user, gateway) in gateways() {
        let session = open(&gateway, user).await;
        let done = session.sh(&format!("{{ {look}; }} 2>/dev/null; true")).finish().await;
        assert_eq!(done.text(), "kept/file\n", "uid {user}: only what was kept is seen");
        session.close().await;
        gateway.stop();
    }
}

/// Empty directories below a directory of the system. They are removed if nothing is mounted there, and never with what is in them.
struct MountPoints(PathBuf, &'static [&'static str]);

impl MountPoints {
    fn new(names: &'static [&'static str]) -> Self {
        let made =
            tempfile::Builder::new().prefix("provost-test-").tempdir_in("/opt").expect("root can").keep();
        fs::set_permissions(&made, fs::Permissions::from_mode(0o755)).expect("it is ours");
        names.iter().for_each(|name| fs::create_dir(made.join(name)).expect("a directory can be made"));
        Self(made, names)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for MountPoints {
    fn drop(&mut self) {
        self.1.iter().for_each(|name| drop(fs::remove_dir(self.at(name))));
        let _ = fs::remove_dir(&self.0);
    }
}
