//! Caches of a home: commands begin with what the person's own tools have fetched, and change nothing of it.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt, chown, symlink},
        net::UnixStream,
    },
    path::PathBuf,
    process::{Child, Output},
    time::{Duration, Instant},
};

use crate::firsthour::{person::Person, walk::shown};

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What lies in the caches, and next to them.
const OWN: [(&str, &str); 6] = [
    (".npm/_cacache/index", "index"),
    (".npm/_cacache/content/old", "old"),
    (".cargo/registry/cache/crate", "crate"),
    (".cargo/credentials.toml", "secret"),
    (".npm/_logs/log", "secret"),
    ("secrets/key", "secret"),
];

/// Changes everything that a cache has.
const CHANGES: &str = "cd ~/.npm/_cacache && echo more >> index && rm content/old && mkdir made && echo x > made/file && \
                       chmod 700 content && mv made moved && cat index moved/file";

/// A person with caches, a policy that names them in two profiles, and a workspace.
pub(crate) struct Home {
    pub(crate) person: Person,
    pub(crate) work: PathBuf,
    pub(crate) policies: PathBuf,
}

impl Home {
    fn new(person: Person) -> Self {
        Self::with_profile(person, "caches = [\"npm\", \"cargo\", \"pip\", \"go\"]")
    }

    /// With these lines in its profiles.
    pub(crate) fn with_profile(person: Person, lines: &str) -> Self {
        let (work, policies) = (person.home().join("work"), person.home().join("policies"));
        for directory in [&work, &policies] {
            person.make(directory);
        }
        let shipped = include_str!("../../policies/default.toml");
        let named =
            format!("toolchain_homes = \"gateway\"\n{lines}\nfilesystem = {{ tmp_bytes = 8_388_608 }}");
        let policy = shipped.replace("toolchain_homes = \"gateway\"", &named);
        let policy = policy.replace("requirement = \"require\"", "requirement = \"prefer\"");
        fs::write(policies.join("default.toml"), policy).expect("a file can be written");
        for (name, content) in OWN {
            let file = person.home().join(name);
            person.make(file.parent().expect("it has one"));
            fs::write(&file, format!("{content}\n")).expect("a file can be written");
            chown(&file, Some(person.id()), Some(person.id())).expect("it is ours or root may");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
        }
        Self { person, work, policies }
    }

    pub(crate) fn run(&self, options: &[&str], script: &str) -> Output {
        let mut command = self.person.command(self.person.provost(), &self.work);
        command.arg("run").args(options).args(["--", "sh", "-c", script]);
        command.output().expect("provost starts")
    }

    pub(crate) fn alone(&self, script: &str) -> Output {
        self.run(&["--policies", self.policies.to_str().expect("text")], script)
    }

    /// Every file below the home's caches with its content and mode.
    pub(crate) fn state(&self) -> String {
        let list = "cd && find .npm .cargo -printf '%p %m %s %T@ ' -type f -exec cat {} ';'";
        let done = self.person.outside(list, &self.person.home());
        assert!(done.status.success(), "{}", shown(&done));
        text(&done.stdout)
    }
}

fn must_leave_the_own_alone(person: Person) {
    let home = Home::new(person);
    let before = home.state();
    let done = home
        .alone(&format!("{CHANGES}; cat ~/.cargo/registry/cache/crate; echo y > ~/.npm/other; ls ~/.cargo"));
    assert_eq!(text(&done.stdout), "index\nmore\nx\ncrate\nregistry\n", "{}", shown(&done));
    assert_eq!(home.state(), before);
    let again = home.alone(
        "cat ~/.npm/_cacache/index ~/.npm/_cacache/content/old; ls -A ~/.npm ~/secrets ~/.npm/_cacache",
    );
    assert!(
        text(&again.stdout).starts_with("index\nold\n/"),
        "another session begins with the own: {}",
        shown(&again)
    );
    assert!(
        !text(&again.stdout).contains("moved") && !text(&again.stdout).contains("_logs"),
        "{}",
        shown(&again)
    );
    // What nobody bounds, a command would fill the memory with.
    let full =
        home.alone("head -c 16777216 /dev/zero > ~/.npm/_cacache/big; ls -s ~/.npm/_cacache/big; true");
    assert!(text(&full.stderr).contains("No space left"), "{}", shown(&full));
    // Outside the same changes are changes.
    let outside = home.person.outside(CHANGES, &home.work);
    assert!(outside.status.success(), "{}", shown(&outside));
    assert_ne!(home.state(), before);
}

fn must_show_nothing_else(person: Person) {
    let home = Home::new(person);
    let own = home.person.home();
    // A link in a cache, a link in a cache's place, and a directory that anybody can write.
    symlink(own.join("secrets/key"), own.join(".npm/_cacache/link")).expect("a link can be made");
    symlink("/etc/hostname", own.join(".npm/_cacache/host")).expect("a link can be made");
    home.person.make(&own.join(".cache"));
    symlink(own.join("secrets"), own.join(".cache/pip")).expect("a link can be made");
    home.person.make(&own.join("go/pkg/mod"));
    fs::write(own.join("go/pkg/mod/file"), "anybody's").expect("a file can be written");
    fs::set_permissions(own.join("go/pkg/mod"), fs::Permissions::from_mode(0o777)).expect("it is ours");
    let thefts =
        ["cat ~/.npm/_cacache/link", "cat ~/.cache/pip/key", "cat ~/go/pkg/mod/file", "cat ~/secrets/key"];
    for theft in thefts {
        assert!(home.person.outside(theft, &home.work).status.success(), "outside it is read: {theft}");
        let inside = home.alone(theft);
        assert!(!inside.status.success() && inside.stdout.is_empty(), "{theft}: {}", shown(&inside));
    }
    // Written through a link, it is the sandbox's own.
    let done = home.alone("echo gone > ~/.npm/_cacache/link; ln -sf /etc/passwd ~/.npm/_cacache/index; true");
    assert!(done.status.success(), "{}", shown(&done));
    assert_eq!(fs::read_to_string(own.join("secrets/key")).expect("it is there"), "secret\n");
    assert_eq!(fs::read_to_string(own.join(".npm/_cacache/index")).expect("it is there"), "index\n");
    // A workspace in a cache is the workspace: what it can write is not shown from below.
    let root = own.join(".npm/_cacache");
    let policies = home.policies.to_str().expect("text");
    let done =
        home.run(&["--policies", policies, "--root", root.to_str().expect("text")], "ls ~/.npm/_cacache");
    assert!(!done.status.success(), "{}", shown(&done));
}

/// A gateway of a person's.
pub(crate) struct Serving(Child);

impl Serving {
    /// With the configuration in its home, if there is one.
    pub(crate) fn start(home: &Home, socket: &str) -> Self {
        let own = home.person.home();
        home.person.make(&own.join("run"));
        let mut serve = home.person.command(home.person.provost(), &own);
        serve.args(["serve", "--listen", &format!("unix:{socket}"), "--state"]).arg(own.join("state"));
        serve.arg("--policies").arg(&home.policies);
        let configuration = own.join("provost.toml");
        if configuration.exists() {
            serve.arg("--config").arg(configuration);
        }
        serve.stderr(fs::File::create(own.join("log")).expect("a file can be made"));
        let serving = Self(serve.spawn().expect("provost starts"));
        let deadline = Instant::now() + Duration::from_secs(60);
        while UnixStream::connect(socket).is_err() {
            let log = fs::read_to_string(own.join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "the gateway listens: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
        serving
    }
}

impl Serving {
    /// As a crash.
    pub(crate) fn kill(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it is ours");
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // What it runs ends with it.
        let pid = nix::unistd::Pid::from_raw(self.0.id().cast_signed());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::SIGINT);
        let _ = self.0.wait();
    }
}

fn must_be_the_sessions(person: Person) {
    let home = Home::new(person);
    let socket = home.person.home().join("run/socket");
    let socket = socket.to_str().expect("text");
    let gateway = Serving::start(&home, socket);
    let address = format!("unix:{socket}");
    let in_session = |options: &[&str], script| {
        home.run(&[&["--gateway", &address, "--session", "dev"], options].concat(), script)
    };
    let first = in_session(&[], "echo fetched > ~/.npm/_cacache/new && rm ~/.npm/_cacache/content/old");
    assert!(first.status.success(), "{}", shown(&first));
    let second = in_session(&[], "cat ~/.npm/_cacache/new ~/.npm/_cacache/index; ls ~/.npm/_cacache/content");
    assert_eq!(text(&second.stdout), "fetched\nindex\n", "{}", shown(&second));
    let other = home.run(&["--gateway", &address, "--session", "other"], "ls ~/.npm/_cacache");
    assert_eq!(text(&other.stdout), "content\nindex\n", "{}", shown(&other));
    drop(gateway);
}

#[test]
fn commands_begin_with_the_callers_caches_and_never_write_to_them_as_root() {
    Person::root().into_iter().for_each(must_leave_the_own_alone);
}

#[test]
fn commands_begin_with_the_callers_caches_and_never_write_to_them_as_an_ordinary_user() {
    Person::ordinary().into_iter().for_each(must_leave_the_own_alone);
}

#[test]
fn nothing_but_the_listed_caches_is_shown_as_root() {
    Person::root().into_iter().for_each(must_show_nothing_else);
}

#[test]
fn nothing_but_the_listed_caches_is_shown_as_an_ordinary_user() {
    Person::ordinary().into_iter().for_each(must_show_nothing_else);
}

#[test]
fn what_a_command_fetches_is_there_for_the_next_one_of_its_session_as_root() {
    Person::root().into_iter().for_each(must_be_the_sessions);
}

#[test]
fn what_a_command_fetches_is_there_for_the_next_one_of_its_session_as_an_ordinary_user() {
    Person::ordinary().into_iter().for_each(must_be_the_sessions);
}
