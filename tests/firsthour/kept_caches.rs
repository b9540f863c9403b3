//! Caches that outlive their sessions: who finds them, what is not kept, and what they never reach.

use crate::support::lacks;
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::{Child, Output, Stdio},
    time::{Duration, Instant},
};

use crate::firsthour::{
    caches::{Home, Serving, text},
    person::Person,
    walk::shown,
};

/// The lines of a profile that keeps npm's cache, and has cargo's for the session alone.
fn keeping(more: &str) -> String {
    format!("caches = [\"npm\", \"cargo\"]\nkept_caches = {{ names = [\"npm\"]{more} }}")
}

/// A home whose gateway keeps caches below it.
struct Kept {
    home: Home,
    socket: String,
    _gateway: Option<Serving>,
}

impl Kept {
    fn new(person: Person, more: &str) -> Self {
        let home = Home::with_profile(person, &keeping(more));
        let own = home.person.home();
        let file = own.join("provost.toml");
        let mode = if home.person.id() == 0 { "0666" } else { "0600" };
        let configuration = format!("kept_caches = {:?}\nsocket_mode = \"{mode}\"\n", own.join("kept"));
        fs::write(&file, configuration).expect("a file can be written");
        let socket = own.join("run/socket").to_str().expect("text").to_owned();
        let mut kept = Self { home, socket, _gateway: None };
        kept.start();
        kept
    }

    fn start(&mut self) {
        self._gateway = Some(Serving::start(&self.home, &self.socket));
    }

    fn gateway(&self) -> String {
        format!("unix:{}", self.socket)
    }

    /// A session of its own.
    fn session(&self, script: &str) -> String {
        text(&self.output(&[], script).stdout)
    }

    fn output(&self, options: &[&str], script: &str) -> Output {
        let gateway = self.gateway();
        self.home.run(&[&["--gateway", &gateway], options].concat(), script)
    }

    /// Another directory to work in.
    fn elsewhere(&self, name: &str) -> PathBuf {
        let other = self.home.person.home().join(name);
        self.home.person.make(&other);
        other
    }

    fn store(&self) -> PathBuf {
        self.home.person.home().join("kept")
    }

    /// The generations of all kept caches.
    fn generations(&self) -> Vec<PathBuf> {
        let store = self.store();
        let list = std::process::Command::new("find")
            .arg(&store)
            .args(["-mindepth", "4", "-maxdepth", "4"])
            .output();
        text(&list.expect("find is there").stdout).lines().map(PathBuf::from).collect()
    }

    fn prune(&self) -> String {
        let mut prune = self.home.person.command(self.home.person.provost(), &self.home.work);
        let done = prune.args(["prune", "--caches", "--kept-caches"]).arg(self.store()).output();
        let done = done.expect("provost starts");
        assert!(done.status.success(), "{}", shown(&done));
        text(&done.stdout)
    }
}

fn must_keep(person: Person) {
    let kept = Kept::new(person, "");
    let before = kept.home.state();
    let wrote = kept.session(
        "cd ~/.npm/_cacache && echo fetched > new && rm content/old && mkdir d && echo 1 > d/a && \
         echo x > ~/.cargo/registry/mine && cat index",
    );
    assert_eq!(wrote, "index\n");
    let found = kept.output(
        &["--receipt"],
        "cd ~/.npm/_cacache && cat new d/a index && rm new d/a && echo 2 > d/b; cat ~/.cargo/registry/mine",
    );
    assert_eq!(text(&found.stdout), "fetched\n1\nindex\n", "{}", shown(&found));
    assert!(text(&found.stderr).contains(".npm/_cacache"), "the receipt names it: {}", shown(&found));
    assert_eq!(kept.session("cd ~/.npm/_cacache && ls -d new d d/*; ls content"), "d\nd/b\nold\n");
    // A directory that was removed, and made again with another content.
    kept.session("cd ~/.npm/_cacache && rm -r d && mkdir d && echo 3 > d/c");
    assert_eq!(kept.session("cd ~/.npm/_cacache && ls d"), "c\n");
    assert_eq!(kept.home.state(), before, "the caller's own is never written");
    // Nobody but the gateway's user comes there, and what was kept counts for its owner.
    let mode = fs::metadata(kept.store()).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let generations = kept.generations();
    assert_eq!(generations.len(), 1, "only the newest is left: {generations:?}");
    let file = generations[0].join("d/c");
    assert_eq!(fs::metadata(file).expect("it is kept").uid(), kept.home.person.id());
    assert!(kept.prune().contains(".npm/_cacache"));
    assert_eq!(kept.session("ls ~/.npm/_cacache/d"), "");
}

fn must_be_found_by_the_same_only(person: Person) {
    let kept = Kept::new(person, "");
    let look = "cat ~/.npm/_cacache/planted";
    kept.session("echo planted > ~/.npm/_cacache/planted");
    assert_eq!(kept.session(look), "planted\n", "the same finds it");
    for other in [&["--profile", "offline"][..], &["--network", "proxy"]] {
        assert_eq!(text(&kept.output(other, look).stdout), "", "{other:?}");
    }
    let elsewhere = kept.elsewhere("elsewhere");
    let there = kept.output(&["--root", elsewhere.to_str().expect("text")], look);
    assert_eq!(text(&there.stdout), "", "another workspace: {}", shown(&there));
    // A profile that has changed is another one: what was planted under less is not believed under more.
    let policy = kept.home.policies.join("default.toml");
    let before = fs::read_to_string(&policy).expect("it is there");
    fs::write(&policy, before.replace("tmp_bytes = 8_388_608", "tmp_bytes = 8_388_609")).expect("it is ours");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !kept.session(look).is_empty() {
        assert!(Instant::now() < deadline, "the policy is loaded again");
    }
}

/// A secret is neither shown to what another session has planted, nor left to one.
fn must_be_apart_from_secrets(person: Person) {
    let mut kept = Kept::new(person, "");
    let own = kept.home.person.home();
    let secret = own.join("token");
    fs::write(&secret, "a-secret-value").expect("a file can be written");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("it is ours");
    chown(&secret, Some(kept.home.person.id()), None).expect("it is ours or root may");
    let rules = format!(
        "[secrets.TOKEN]\nfile = {secret:?}\n[[rule]]\nid = \"with-a-secret\"\ndecision = \"allow\"\n\
         argv = [\"python3\", \"**\"]\neffects = {{ secrets = [\"TOKEN\"] }}\n"
    );
    fs::write(kept.home.policies.join("secrets.toml"), rules).expect("a file can be written");
    drop(kept._gateway.take());
    kept.start();
    kept.session("echo planted > ~/.npm/_cacache/planted");
    let python = |script: &str| {
        let mut run = kept.home.person.command(kept.home.person.provost(), &kept.home.work);
        let done = run.args(["run", "--gateway", &kept.gateway(), "--", "python3", "-c", script]).output();
        done.expect("provost starts")
    };
    let found = python(
        "import os; d = os.path.expanduser('~/.npm/_cacache/'); \
         print(len(os.environ['TOKEN']), sorted(os.listdir(d))); \
         open(d + 'left', 'w').write(os.environ['TOKEN'])",
    );
    assert_eq!(text(&found.stdout), "14 ['content', 'index']\n", "{}", shown(&found));
    assert_eq!(kept.session("cd ~/.npm/_cacache; ls"), "content\nindex\nplanted\n");
}

fn must_be_found_in_any_workspace_if_the_profile_says_so(person: Person) {
    let kept = Kept::new(person, ", between = \"principal\"");
    kept.session("echo planted > ~/.npm/_cacache/planted");
    let elsewhere = kept.elsewhere("elsewhere");
    let there = kept.output(&["--root", elsewhere.to_str().expect("text")], "cat ~/.npm/_cacache/planted");
    assert_eq!(text(&there.stdout), "planted\n", "{}", shown(&there));
    assert_eq!(text(&kept.output(&["--network", "proxy"], "cat ~/.npm/_cacache/planted").stdout), "");
}

/// What a command leaves in its layer for the gateway that copies it, and for the next session.
const PLANTED: &str = "cd ~/.npm/_cacache && ln -s \"$KEY\" link && ln -s / root && mkfifo pipe && cp /bin/true tool && \
                       chmod 777 tool; chmod 6777 tool; mkdir dir && echo mine > dir/key; python3 -c \
                       'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'; touch plain";

fn must_reach_nothing(person: Person) {
    let kept = Kept::new(person, "");
    let own = kept.home.person.home();
    let (secrets, key) = (own.join("secrets"), own.join("secrets/key"));
    // A copy that follows links takes what they lead to.
    let planted = own.join("planted");
    kept.home.person.make(&planted);
    symlink(&key, planted.join("link")).expect("a link can be made");
    let copied = kept.home.person.outside("cp -rL planted copied && cat copied/link", &own);
    assert_eq!(text(&copied.stdout), "secret\n", "{}", shown(&copied));

    let key_text = key.to_str().expect("text");
    kept.session(&format!("KEY={key_text}; {PLANTED}"));
    let kept_links = "cd ~/.npm/_cacache && readlink link; cat link; echo over > link; ls plain pipe socket; \
                      find . -perm /6022 -type f; test -x tool && echo tool";
    assert_eq!(kept.session(kept_links), format!("{key_text}\nplain\ntool\n"));
    // A directory of the generation before becomes a link to where it must not be followed, and a directory again.
    let secrets = secrets.to_str().expect("text");
    kept.session(&format!("cd ~/.npm/_cacache && rm -r dir && ln -s {secrets} dir"));
    assert_eq!(kept.session("cd ~/.npm/_cacache && readlink dir; cat dir/key"), format!("{secrets}\n"));
    kept.session("cd ~/.npm/_cacache && rm dir && mkdir dir && echo new > dir/key");
    assert_eq!(kept.session("cat ~/.npm/_cacache/dir/key"), "new\n");
    assert_eq!(
        fs::read_to_string(&key).expect("it is there"),
        "secret\n",
        "nothing was written through a link"
    );
    let found =
        kept.home.person.outside("find kept -type p -o -type s -o -type c -o -type f -perm /6022", &own);
    assert_eq!(
        text(&found.stdout),
        "",
        "neither pipes, sockets, devices, set-id bits nor what others can write"
    );
    // The kept caches are no workspace, and no workspace holds them.
    for root in [kept.store(), kept.generations()[0].clone()] {
        let refused = kept.output(&["--root", root.to_str().expect("text")], "touch mine");
        assert!(!refused.status.success() && !root.join("mine").exists(), "{}", shown(&refused));
    }
}

fn must_be_bounded(person: Person) {
    let kept = Kept::new(person, ", max_bytes = 65536");
    let write = |name: &str, pages: u32| {
        format!("head -c {} /dev/zero > ~/.npm/_cacache/{name}; ls ~/.npm/_cacache", pages * 4096)
    };
    kept.session(&write("small", 6));
    kept.session(&write("large", 11));
    assert_eq!(
        kept.session("cd ~/.npm/_cacache; ls small large"),
        "small\n",
        "what is too large is not kept"
    );
    // Bytes that are no bytes on the disk count, too.
    kept.session("truncate -s 1T ~/.npm/_cacache/sparse");
    assert_eq!(kept.session("ls ~/.npm/_cacache/sparse ~/.npm/_cacache/small | wc -l"), "1\n");
    let audit = kept.home.person.home().join("state/journal");
    let records: String = fs::read_dir(audit)
        .expect("it is there")
        .flatten()
        .map(|file| fs::read_to_string(file.path()).unwrap_or_default())
        .collect();
    assert!(records.contains("\"cache_kept\"") && records.contains("kept_caches.max_bytes"), "{records}");
    // What was not used for longest makes room.
    let elsewhere = kept.elsewhere("elsewhere");
    let there = ["--root", elsewhere.to_str().expect("text")];
    kept.output(&there, &write("other", 11));
    assert_eq!(text(&kept.output(&there, "ls ~/.npm/_cacache/other | wc -l").stdout), "1\n");
    assert_eq!(kept.session("ls ~/.npm/_cacache/small"), "", "the older one is gone");
    // And what is too old, with all that may have been planted in it.
    for generation in kept.generations() {
        let name = generation.file_name().expect("it has one").to_str().expect("text");
        let parts: Vec<&str> = name.split('-').collect();
        fs::rename(&generation, generation.with_file_name(format!("{}-1-{}", parts[0], parts[2])))
            .expect("it is ours");
    }
    assert_eq!(text(&kept.output(&there, "ls ~/.npm/_cacache/other").stdout), "");
}

/// A session that has begun, and goes on when it is told to.
fn begin(kept: &Kept, script: &str) -> Child {
    let mut command = kept.home.person.command(kept.home.person.provost(), &kept.home.work);
    let script = format!("{script}; touch begun; until [ -e go ]; do sleep 0.05; done; rm begun go");
    command.args(["run", "--gateway", &kept.gateway(), "--", "sh", "-c", &script]);
    let child = command.stdout(Stdio::null()).spawn().expect("provost starts");
    wait_for(&kept.home.work.join("begun"));
    child
}

fn wait_for(file: &Path) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !file.exists() {
        assert!(Instant::now() < deadline, "{} comes", file.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn must_not_meet(person: Person) {
    let kept = Kept::new(person, "");
    kept.session("cd ~/.npm/_cacache && echo base > base && echo gone > gone");
    let mut first =
        begin(&kept, "cd ~/.npm/_cacache && echo first > first && echo first > both && rm gone; cd -");
    assert_eq!(
        kept.session("cd ~/.npm/_cacache && ls; echo second > second; echo second > both; cat base"),
        "base\ncontent\ngone\nindex\nbase\n"
    );
    assert_eq!(kept.generations().len(), 2, "the one that a session reads stays");
    assert_eq!(kept.prune(), "", "and is not pruned");
    fs::write(kept.home.work.join("go"), "").expect("a file can be written");
    assert!(first.wait().expect("it is ours").success());
    let all = kept.session("cd ~/.npm/_cacache && cat base first second both; ls gone");
    assert_eq!(all, "base\nfirst\nsecond\nfirst\n", "the one that ended last has the last word");
    assert_eq!(kept.generations().len(), 1);
}

fn must_outlive_the_gateway(person: Person) {
    let mut kept = Kept::new(person, "");
    let wrote = kept.output(&["--session", "dev"], "echo before > ~/.npm/_cacache/before; echo ok");
    assert_eq!(text(&wrote.stdout), "ok\n", "{}", shown(&wrote));
    kept._gateway.take().expect("it runs").kill();
    kept.start();
    let after =
        kept.output(&["--session", "dev"], "cat ~/.npm/_cacache/before; echo after > ~/.npm/_cacache/after");
    assert_eq!(text(&after.stdout), "before\n", "{}", shown(&after));
    // It ends its sessions in good order.
    drop(kept._gateway.take());
    kept.start();
    assert_eq!(kept.session("cat ~/.npm/_cacache/before ~/.npm/_cacache/after"), "before\nafter\n");
}

#[test]
fn a_kept_cache_is_as_the_last_session_left_it_as_root() {
    Person::root().into_iter().for_each(must_keep);
}

#[test]
fn a_kept_cache_is_as_the_last_session_left_it_as_an_ordinary_user() {
    Person::ordinary().into_iter().for_each(must_keep);
}

#[test]
fn another_profile_network_or_workspace_finds_nothing_as_root() {
    Person::root().into_iter().for_each(must_be_found_by_the_same_only);
}

#[test]
fn another_profile_network_or_workspace_finds_nothing_as_an_ordinary_user() {
    Person::ordinary().into_iter().for_each(must_be_found_by_the_same_only);
}

#[test]
fn a_command_with_a_secret_neither_finds_a_kept_cache_nor_leaves_one() {
    if lacks(&["python3"]) {
        return;
    }
    Person::root().or_else(Person::ordinary).into_iter().for_each(must_be_apart_from_secrets);
}

#[test]
fn a_profile_can_keep_caches_for_all_workspaces() {
    Person::ordinary().into_iter().for_each(must_be_found_in_any_workspace_if_the_profile_says_so);
}

#[test]
fn what_a_command_plants_in_a_kept_cache_reaches_nothing_outside_as_root() {
    Person::root().into_iter().for_each(must_reach_nothing);
}

#[test]
fn what_a_command_plants_in_a_kept_cache_reaches_nothing_outside_as_an_ordinary_user() {
    Person::ordinary().into_iter().for_each(must_reach_nothing);
}

#[test]
fn kept_caches_are_bounded_in_size_and_age() {
    Person::root().or_else(Person::ordinary).into_iter().for_each(must_be_bounded);
}

#[test]
fn sessions_at_the_same_time_do_not_meet_in_a_kept_cache() {
    Person::root().or_else(Person::ordinary).into_iter().for_each(must_not_meet);
}

#[test]
fn a_kept_cache_outlives_a_crash_of_the_gateway_as_root() {
    Person::root().into_iter().for_each(must_outlive_the_gateway);
}

/// One gateway of root for two users.
#[test]
fn another_principal_neither_finds_nor_reads_a_kept_cache() {
    let (Some(root), Some(other)) = (Person::root(), Person::ordinary()) else { return };
    let kept = Kept::new(root, ", between = \"principal\"");
    let own = kept.home.person.home();
    // So that the other one comes to the socket.
    for directory in [own.clone(), own.join("run")] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    kept.session("echo secret > ~/.npm/_cacache/planted");
    let other = Home::with_profile(other, "");
    let gateway = kept.gateway();
    let run = |script| other.run(&["--gateway", &gateway], script);
    let look =
        run("cat ~/.npm/_cacache/planted; mkdir -p ~/.npm/_cacache; echo theirs > ~/.npm/_cacache/theirs");
    assert_eq!(text(&look.stdout), "", "{}", shown(&look));
    let again = run("cat ~/.npm/_cacache/theirs");
    assert_eq!(text(&again.stdout), "theirs\n", "each has its own: {}", shown(&again));
    assert_eq!(kept.session("cat ~/.npm/_cacache/planted ~/.npm/_cacache/theirs"), "secret\n");
    // Outside, root reads what it has kept, and the other one does not come there.
    let file = kept.generations().into_iter().map(|one| one.join("planted")).find(|file| file.exists());
    let read = format!("cat {}", file.expect("it is kept").display());
    assert!(kept.home.person.outside(&read, &own).status.success());
    assert!(!other.person.outside(&read, &other.work).status.success());
    let theirs = kept.generations().into_iter().map(|one| one.join("theirs")).find(|file| file.exists());
    assert_eq!(fs::metadata(theirs.expect("it is kept")).expect("it is there").uid(), other.person.id());
}

/// Without a gateway: what `provost run` keeps outlives its process.
#[test]
fn a_run_without_a_gateway_keeps_caches_of_its_user() {
    let Some(person) = Person::ordinary() else { return };
    let home = Home::with_profile(person, &keeping(""));
    assert!(home.alone("echo fetched > ~/.npm/_cacache/new").status.success());
    let found = home.alone("cat ~/.npm/_cacache/new");
    assert_eq!(text(&found.stdout), "fetched\n", "{}", shown(&found));
    assert!(home.person.home().join(".cache/provost/kept").is_dir());
    // What others can write to is not believed.
    let store = home.person.home().join(".cache/provost/kept");
    fs::set_permissions(&store, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let refused = home.alone("cat ~/.npm/_cacache/new");
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{}", shown(&refused));
}
