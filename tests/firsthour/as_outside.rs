//! What works outside works in a sandbox, too, where nothing is lost by it: names, ports, links, and what a host says of itself.

use std::{path::PathBuf, process::Output};

use crate::firsthour::{person::Person, walk::shown};

struct Desk {
    person: Person,
    work: PathBuf,
}

impl Desk {
    fn new(person: Person) -> Self {
        let work = person.home().join("work");
        person.make(&work);
        Self { person, work }
    }

    fn run(&self, options: &[&str], command: &[&str]) -> Output {
        let mut run = self.person.command(self.person.provost(), &self.work);
        run.arg("run").args(options).arg("--").args(command).output().expect("provost starts")
    }

    /// What a command prints that must end well.
    fn printed(&self, options: &[&str], command: &[&str]) -> String {
        let output = self.run(options, command);
        assert!(output.status.success(), "{command:?}: {}", shown(&output));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }
}

/// Binds ports below 1024, and sends itself an echo, which it must get back: `bound` or the error, `echoed` or the error.
const LOW_PORTS_AND_ECHO: &str = "
import socket as s
def attempt(what, do):
    try:
        do()
        print(what)
    except OSError as error:
        print(error.strerror)
def listen():
    for kind, port in ((s.SOCK_STREAM, 80), (s.SOCK_DGRAM, 443)):
        one = s.socket(s.AF_INET, kind)
        one.bind(('0.0.0.0', port))
def echo():
    for family, protocol, address, kind in ((s.AF_INET, s.IPPROTO_ICMP, '127.0.0.1', 8), (s.AF_INET6, s.IPPROTO_ICMPV6, '::1', 128)):
        one = s.socket(family, s.SOCK_DGRAM, protocol)
        one.settimeout(20)
        try:
            one.sendto(bytes([kind, 0, 0, 0, 0, 0, 0, 1]) + b'echo', (address, 0))
        except OSError as error:
            # A host without IPv6.
            if family == s.AF_INET: raise
            continue
        assert one.recv(99).endswith(b'echo')
attempt('bound', listen)
attempt('echoed', echo)
";

fn has_low_ports_and_ping(person: Person) {
    let desk = Desk::new(person);
    let script = ["python3", "-c", LOW_PORTS_AND_ECHO];
    for options in [&[][..], &["--network", "proxy"], &["--profile", "offline"]] {
        assert_eq!(desk.printed(options, &script), "bound\nechoed", "{options:?}");
    }
    // What the proxies and the resolver listen on stays theirs.
    let taken = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind(('127.0.0.1', 53))";
    for options in [&[][..], &["--network", "proxy"]] {
        let output = desk.run(options, &["python3", "-c", taken]);
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("Address already in use"),
            "{}",
            shown(&output)
        );
    }
    // The host's network has the host's rules.
    let policies = desk.person.policies_with_hosts_network();
    let policies = policies.to_str().expect("it is text");
    let on_host = desk.printed(&["--policies", policies, "--network", "host"], &script);
    assert_eq!(on_host.lines().next(), Some("Permission denied"));
}

fn knows_its_own_name(person: Person) {
    let desk = Desk::new(person);
    let policies = desk.person.policies_with_hosts_network();
    let policies = policies.to_str().expect("it is text");
    let own = "set -e; getent ahosts $(hostname) | head -1; hostname -f; getent ahosts localhost | tail -1
        python3 -c 'import socket; print(socket.gethostbyname(socket.gethostname()))'";
    for options in [&[][..], &["--network", "proxy"], &["--policies", policies, "--network", "host"]] {
        let printed = desk.printed(options, &["sh", "-c", own]);
        let lines: Vec<&str> = printed.lines().collect();
        assert!(lines[0].starts_with("127.0.0.1 "), "{options:?}: {printed}");
        assert_eq!(
            (lines[1], *lines.last().expect("there are some")),
            ("sandbox", "127.0.0.1"),
            "{options:?}: {printed}"
        );
    }
    // A server of the own host is no matter of the proxy.
    let served = "python3 -m http.server 8123 >/dev/null 2>&1 & trap 'kill $!' EXIT
        for i in $(seq 100); do curl -fs http://$(hostname):8123/ >/dev/null && echo reached && exit; sleep 0.1; done";
    assert_eq!(desk.printed(&["--network", "proxy"], &["sh", "-c", served]), "reached");
}

/// Directories and links of a home, and by which name the workspace is then worked in.
const LINKED: [(&str, &str, &str); 6] = [
    ("a link to the workspace", "mkdir -p data/one; ln -s $PWD/data/one named", "named"),
    ("a relative one", "mkdir -p data/two links; ln -s ../data/two links/two", "links/two"),
    ("a chain", "mkdir -p data/three; ln -s data mid; ln -s mid/three last", "last"),
    ("one in the middle", "mkdir -p data/four; ln -s data middle", "middle/four"),
    ("one in a workspace", "mkdir -p repo/sub; ln -s sub repo/link; git init -q repo", "repo/link"),
    (
        "below a link to a workspace",
        "mkdir -p repository/sub; git init -q repository; ln -s repository by",
        "by/sub",
    ),
];

fn is_at_its_name(person: Person) {
    let home = person.home();
    let desk = Desk::new(person);
    for (what, make, name) in LINKED {
        let made = desk.person.outside(make, &home);
        assert!(made.status.success(), "{what}: {}", shown(&made));
        let named = home.join(name);
        let script = "pwd; pwd -P; cd \"$PWD\" && echo hello > file && cat \"$NAMED/file\"; printenv PWD; readlink -f \"$NAMED\"";
        let say = |prefix: &str| {
            let line = format!("cd {name} && {prefix} sh -c '{script}'");
            let output = desk.person.outside(&line, &home);
            assert!(output.status.success(), "{what}: {}", shown(&output));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let (named, provost) = (named.display(), desk.person.provost());
        let outside = say(&format!("env NAMED={named}"));
        let inside = say(&format!("{} run --env NAMED={named} --", provost.display()));
        assert_eq!(inside, outside, "{what}");
        assert!(outside.starts_with(&format!("{named}\n")), "{what}: {outside}");
        // Named by an option, and a program in it by its whole name.
        let program = format!(
            "printf '#!/bin/sh\\necho ran\\n' > {name}/program; chmod +x {name}/program; {0} run --root {name} -- {named}/program",
            provost.display()
        );
        let ran = desk.person.outside(&program, &home);
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "ran\n", "{what}: {}", shown(&ran));
    }
    // A name that another link took, or that only pretends to lead here, is none.
    for pwd in ["/", "work/..", "/no/such", "relative", "."] {
        let mut run = desk.person.command(desk.person.provost(), &desk.work);
        let output = run.env("PWD", pwd).args(["run", "--", "pwd"]).output().expect("provost starts");
        let expected = format!("{}\n", desk.work.display());
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{pwd}: {}", shown(&output));
    }
    // Nothing more of the home is shown than what is on the way.
    let listed = desk.person.outside(
        &format!("cd named && {} run -- ls {}", desk.person.provost().display(), home.display()),
        &home,
    );
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "data\nnamed\n", "{}", shown(&listed));
}

/// Questions about what is installed, whose answers are those of the host.
const INSTALLED: [&str; 6] = [
    "dpkg-query -W -f '${Package} ${Version}\\n' | sort | head -20",
    "dpkg -S /bin/bash /usr/bin/env",
    "dpkg -L coreutils | head -40",
    "dpkg -s bash | head -5",
    "dpkg -V coreutils; echo $?",
    "dpkg --print-foreign-architectures; update-alternatives --list editor; dpkg -l 'lib*' | wc -l",
];

fn answers_what_is_installed(person: Person) {
    let desk = Desk::new(person);
    if !std::path::Path::new("/var/lib/dpkg/status").exists() {
        println!("SKIPPED: this host has no dpkg");
        return;
    }
    for question in INSTALLED {
        let outside = desk.person.outside(question, &desk.work);
        assert_eq!(
            desk.printed(&[], &["sh", "-c", question]),
            String::from_utf8_lossy(&outside.stdout).trim_end()
        );
    }
    let tried = "for path in status info/new; do touch /var/lib/dpkg/$path && echo written; done; ls /var/lib /var/cache; true";
    let output = desk.run(&[], &["sh", "-c", tried]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "/var/lib:\ndpkg\n", "{}", shown(&output));
}

/// What fails by a protection, and what is then said of it: error, path below the workspace and key.
const REFUSED: [(&str, &str, &str, &str); 7] = [
    ("touch .git/hooks/pre-commit", "EROFS", "/.git/hooks", "filesystem.reserved"),
    ("cd .git && echo x > ../.npmrc", "EROFS", "/.npmrc", "filesystem.protected"),
    (
        "python3 -c 'import os; open(os.environ[\"HERE\"] + \"/.git/hooks/x\", \"w\")'",
        "EROFS",
        "/.git/hooks",
        "filesystem.reserved",
    ),
    ("chmod 2775 .git/hooks", "EROFS", "/.git/hooks", "filesystem.reserved"),
    ("mv .git elsewhere", "EBUSY", "/.git", "filesystem.protected"),
    ("rm -rf run", "EBUSY", "/run/host.sock", "network.sockets"),
    ("cd run && rm host.sock", "EBUSY", "/run/host.sock", "network.sockets"),
];

fn says_what_refused(person: Person) {
    let desk = Desk::new(person);
    let made =
        desk.person.outside("git init -q . && mkdir run && echo a=b > .npmrc && chmod 777 run && touch set-group-id && chmod 2755 set-group-id", &desk.work);
    assert!(made.status.success(), "{}", shown(&made));
    let _socket =
        std::os::unix::net::UnixListener::bind(desk.work.join("run/host.sock")).expect("it can be bound");
    let work = desk.work.to_str().expect("it is text");
    let notices = |script: &str| -> Vec<String> {
        let output = desk.run(&[], &["sh", "-c", script]);
        assert!(!output.status.success(), "{script}: {}", shown(&output));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let notices = text.lines().filter_map(|line| line.strip_prefix("provost: "));
        notices.filter(|line| !line.starts_with("notice: ")).map(str::to_owned).collect()
    };
    for (script, error, path, key) in REFUSED {
        let said = notices(&format!("export HERE={work}; {script}; exit 3"));
        let expected = format!("perhaps refused: {error} at {work}{path}: ");
        let is_it = |line: &&String| line.starts_with(&expected) && line.ends_with(&format!(" ({key})"));
        assert!(said.iter().any(|line| is_it(&line)), "{script}: {said:?}");
    }
    let said = notices("getent hosts registry.example; touch .git/hooks/x");
    assert!(!said.iter().any(|line| line.contains("network")), "the network is blamed: {said:?}");
    let remedy = "filesystem = { drop = [\".git/hooks\"], changes = \"report\" }";
    assert!(said.iter().any(|line| line.contains(&format!("`{remedy}`"))), "{said:?}");
    // As it says.
    let policies = desk.person.home().join("remedied");
    desk.person.make(&policies);
    let shipped = include_str!("../../policies/default.toml")
        .replace("default_profile = \"workspace\"", "default_profile = \"mine\"")
        .replace("requirement = \"require\"", "requirement = \"prefer\"");
    let policy = format!("{shipped}\n[profile.mine]\nextends = \"workspace\"\n{remedy}\n");
    std::fs::write(policies.join("mine.toml"), policy).expect("a file can be written");
    let options = ["--policies", policies.to_str().expect("it is text")];
    assert_eq!(
        desk.printed(&options, &["sh", "-c", "touch .git/hooks/y && ls .git/hooks/y"]),
        ".git/hooks/y"
    );
    std::fs::remove_file(desk.work.join(".git/hooks/y")).expect("it is there");
    let generally = notices("touch /usr/bin/x");
    assert!(generally[0].starts_with("perhaps refused: EROFS: what lies outside"), "{generally:?}");
    for refused in [
        "touch f; chmod u+s f",
        "chmod g+s f",
        "mkdir d; chmod u+s d",
        "cp /bin/true t; install -m 2755 t f",
        "cp -p set-group-id copy",
        "printf x > p; tar cf a.tar --mode=2755 p; tar xpf a.tar",
    ] {
        let filtered = notices(refused);
        let expected = "perhaps refused: EPERM: the system call filter refuses set-user-id modes, and set-group-id modes of files";
        assert!(filtered.iter().any(|line| line.starts_with(expected)), "{refused}: {filtered:?}");
    }
    let killed = notices("kill -SYS $$");
    assert!(killed[0].starts_with("perhaps refused: SIGSYS: "), "{killed:?}");
    // What ends well, or fails by itself, is nobody's refusal.
    assert_eq!(desk.printed(&[], &["sh", "-c", "touch .git/hooks/x 2>&1 | grep -c Read-only"]), "1");
    assert_eq!(notices("cat no-such-file"), [""; 0]);
}

/// What tools do with set-group-id directories.
const SHARED_DIRECTORIES: &str = r#"
umask 022; set -e
mkdir a; chmod 2775 a; mkdir a/inner; echo of a > a/inner/file
cp -a a copied
tar cf a.tar a; mkdir unpacked; tar xpf a.tar -C unpacked
install -d -m 2775 installed/deep
git init -q --shared=group repository
git init -q --bare --shared=all bare.git
python3 - <<'EOF'
import os, shutil
os.umask(0)
os.makedirs('by_python/in', 0o755)
os.mkdir('made', 0o6775)
directory = os.open('by_python', os.O_RDONLY | os.O_DIRECTORY)
os.fchmod(directory, 0o2750)
os.chmod('in', 0o2711, dir_fd=directory)
os.symlink('by_python/in', 'link')
os.chmod('link', 0o3755)
shutil.copytree('by_python', 'by_shutil', symlinks=True)
os.chdir('by_shutil')
os.chmod('.', 0o2700)
os.chmod('../by_shutil/in/..', 0o2770)
EOF
cd installed; chmod g-s deep; chmod u=rwx,g=rxs deep; cd ..
find . -path ./repository -prune -o -path ./bare.git -prune -o -type d -printf '%m %p
' | sort -k 2
find repository bare.git -type d -printf '%m %p
' | sort -k 2
"#;

fn shares_directories_with_a_group(person: Person) {
    let desk = Desk::new(person);
    let without_gate = desk.person.home().join("without_gate");
    desk.person.make(&without_gate);
    let policy = "default_profile = 'one'\n[profile.one.limits]\nrequirement = 'prefer'\n\
        [[rule]]\nid = 'all'\ndecision = 'allow'\nargv = ['**']\n";
    std::fs::write(without_gate.join("one.toml"), policy).expect("a file can be written");
    let places = ["outside", "gate", "plain"].map(|name| desk.work.join(name));
    places.iter().for_each(|place| desk.person.make(place));
    let outside = desk.person.outside(SHARED_DIRECTORIES, &places[0]);
    assert!(outside.status.success(), "{}", shown(&outside));
    let expected = String::from_utf8_lossy(&outside.stdout).into_owned();
    assert!(expected.lines().filter(|line| line.starts_with('2')).count() > 20, "{expected}");
    let list = "find . -type d -printf '%m %p\\n' | sort -k 2";
    let on_host = |place| String::from_utf8_lossy(&desk.person.outside(list, place).stdout).into_owned();
    let policies = without_gate.to_str().expect("it is text");
    for (place, options) in [(&places[1], &[][..]), (&places[2], &["--policies", policies])] {
        let mut run = desk.person.command(desk.person.provost(), place);
        run.args(["run", "--root", "."]).args(options).args(["--", "sh", "-c", SHARED_DIRECTORIES]);
        let inside = run.output().expect("provost starts");
        assert!(inside.status.success(), "{options:?}: {}", shown(&inside));
        assert_eq!(String::from_utf8_lossy(&inside.stdout), expected, "{options:?}");
        assert_eq!(on_host(place), on_host(&places[0]), "on the host, {options:?}");
    }
}

/// What a program finds of its processors and its memory.
fn knows_its_limits(person: Person) {
    let desk = Desk::new(person);
    let policy = "default_profile = 'small'\n[profile.small.limits]\nrequirement = 'prefer'\n\
        [profile.small.limits.terminal]\nmemory_bytes = 536870912\n\
        [[rule]]\nid = 'all'\ndecision = 'allow'\nargv = ['**']\n";
    let policies = desk.person.home().join("small");
    desk.person.make(&policies);
    std::fs::write(policies.join("small.toml"), policy).expect("a file can be written");
    let options = ["--policies", policies.to_str().expect("it is text")];
    let own = "cd /sys/devices/system/cpu && cat online present possible && ls -d cpu[0-9]* | wc -l && nproc --all && lscpu -p=cpu | grep -vc '#'
        cat cpu[0-9]*/topology/core_id > /dev/null && cat cpu[0-9]*/cache/index0/size > /dev/null || echo none";
    let (inside, outside) =
        (desk.printed(&options, &["sh", "-c", own]), desk.person.outside(own, &desk.work));
    assert_eq!(inside, String::from_utf8_lossy(&outside.stdout).trim_end());
    let shown_by = |script: &str| desk.printed(&options, &["sh", "-c", script]);
    // Nothing of the kernel's but this, nothing that counts, and nothing that can be written.
    let more = "cd /sys; find . -maxdepth 3 | sort | tr '\n' ' '; find . -name cpufreq -o -name cpuidle -o -name uevent; touch x 2>&1; true";
    let seen = shown_by(more);
    assert!(!seen.contains("cpufreq") && !seen.contains("class") && !seen.contains("block"), "{seen}");
    // The limit, where the host has one for it.
    let limit =
        "own=$(sed -n 's/.*memory[^:]*://p' /proc/self/cgroup); v2=$(sed -n 's/^0:://p' /proc/self/cgroup)
        cat /sys/fs/cgroup/memory$own/memory.limit_in_bytes /sys/fs/cgroup$v2/memory.max 2>/dev/null; true";
    let found = shown_by(limit);
    match found.is_empty() {
        true => println!("SKIPPED: this user has no memory controller"),
        false => {
            assert_eq!(found, "536870912");
            // Whatever umask the gateway has, which is this command's here.
            let masked = "umask 077; exec \"$0\" run \"$@\"";
            let mut run = desk.person.command("sh", &desk.work);
            run.args(["-c", masked]).arg(desk.person.provost()).args(options).args(["--", "sh", "-c", limit]);
            let seen = run.output().expect("a shell starts");
            assert_eq!(String::from_utf8_lossy(&seen.stdout).trim_end(), found, "{}", shown(&seen));
        }
    }
    let write = "for f in $(find /sys/fs/cgroup -type f | head -400); do (echo 1 > $f) 2>/dev/null && echo $f; done; true";
    assert_eq!(shown_by(write), "", "these can be written");
    if !found.is_empty() && desk.person.outside("command -v java", &desk.work).status.success() {
        let heap = shown_by(
            "java -XX:+PrintFlagsFinal -version 2>/dev/null | sed -n 's/.* MaxHeapSize *= \\([0-9]*\\).*/\\1/p'",
        );
        assert_eq!(heap, "134217728", "a quarter of the limit");
    }
}

/// A group that shares a directory, and the member who owns it.
const GROUP: u32 = 59_901;
const OWNER: u32 = 59_902;

/// A gateway of root, where `$SERVE` says so, and the caller with its group.
const IN_SHARED: &str = r#"
as_caller() { setpriv --reuid=$CALLER --regid=$CALLER --groups=$GROUP "$@"; }
if [ -n "$SERVE" ]; then
    "$PROVOST" serve --config "$PLACE/conf" --listen "unix:$PLACE/socket" --state "$PLACE/state" --policies "$POLICIES" 2> "$PLACE/log" &
    gateway=$!
    export PROVOST_GATEWAY="unix:$PLACE/socket"
    for try in $(seq 1200); do "$PROVOST" ps > /dev/null 2>&1 && break; sleep 0.05; done
else
    embedded="--policies $POLICIES"
fi
as_caller "$PROVOST" run $embedded -- sh -c "$SCRIPT"
status=$?
[ -z "$gateway" ] || { kill -INT $gateway; wait $gateway; }
exit $status
"#;

#[test]
fn a_group_works_in_the_directory_that_it_shares_as_far_as_its_members_may() {
    let (Some(_), Some(person)) = (Person::root(), Person::ordinary()) else { return };
    let place = tempfile::tempdir().expect("a directory can be made");
    let place = place.path().canonicalize().expect("it is there");
    std::fs::write(place.join("conf"), "socket_mode = \"0666\"\n").expect("a file can be written");
    let make = format!(
        "chmod 755 {0}; mkdir {0}/shared; cd {0}/shared; echo of owner > theirs; echo of group > ours; chmod 664 ours; chmod 644 theirs
         mkdir ../own; echo mine > ../own/mine; chown {OWNER}:{GROUP} . ours theirs; chmod 2775 .",
        place.display()
    );
    let made = std::process::Command::new("sh").args(["-c", &make]).output().expect("a shell is there");
    assert!(made.status.success(), "{}", shown(&made));
    let policies = |shared: &str| {
        let directory = place.join(format!("policies{}", shared.len()));
        std::fs::create_dir(&directory).expect("a directory can be made");
        let policy = format!(
            "default_profile = 'one'\n[profile.one.filesystem]\ntmp_inodes = 1000\n{shared}\n[profile.one.limits]\nrequirement = 'prefer'\n\
             [[rule]]\nid = 'all'\ndecision = 'allow'\nargv = ['**']\n"
        );
        std::fs::write(directory.join("one.toml"), policy).expect("a file can be written");
        directory
    };
    let (closed, open) = (policies(""), policies("shared_workspaces = true"));
    let script = "for file in ours theirs new; do (echo inside >> $file) 2>/dev/null && echo $file; done; stat -c %g new; cat theirs
        chown 0 ours 2>/dev/null && echo given; chmod 600 theirs 2>/dev/null && echo changed
        mkdir sub; chmod 00775 sub; stat -c %a sub; chmod g+s sub; stat -c %a sub";
    let run = |serve: &str, policies: &std::path::Path| {
        let mut command = std::process::Command::new("bash");
        command.current_dir(place.join("shared")).args(["-c", IN_SHARED]).env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", person.home());
        command.env("XDG_RUNTIME_DIR", person.home()).env("PROVOST", person.provost()).env("SCRIPT", script);
        command.env("CALLER", person.id().to_string()).env("GROUP", GROUP.to_string());
        command.env("SERVE", serve).env("PLACE", &place).env("POLICIES", policies);
        command.output().expect("a shell is there")
    };
    for serve in ["", "yes"] {
        let refused = run(serve, &closed);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && said.contains("filesystem.shared_workspaces = true"),
            "{}",
            shown(&refused)
        );
        let worked = run(serve, &open);
        assert!(worked.status.success(), "{}", shown(&worked));
        let printed = String::from_utf8_lossy(&worked.stdout).into_owned();
        let lines: Vec<&str> = printed.lines().collect();
        assert_eq!(
            (&lines[..2], &lines[3..]),
            (&["ours", "new"][..], &["of owner", "775", "2775"][..]),
            "{serve:?}: {}",
            shown(&worked)
        );
        let stat = |name: &str| std::fs::metadata(place.join("shared").join(name)).expect("it is there");
        use std::os::unix::fs::MetadataExt;
        let (new, ours) = (stat("new"), stat("ours"));
        assert_eq!((new.uid(), new.gid(), ours.uid(), ours.gid()), (person.id(), GROUP, OWNER, GROUP));
        let sub = stat("sub");
        assert_eq!((sub.mode() & 0o7777, sub.gid()), (0o2775, GROUP));
        std::fs::remove_file(place.join("shared/new")).expect("it is there");
        std::fs::remove_dir(place.join("shared/sub")).expect("it is empty");
    }
}

macro_rules! each_as {
    ($($test:ident: [$person:ident, $check:ident];)*) => { $(
        #[test]
        fn $test() {
            Person::$person().into_iter().for_each($check);
        }
    )* };
}

each_as! {
    low_ports_can_be_bound_and_ping_answers: [root, has_low_ports_and_ping];
    low_ports_can_be_bound_and_ping_answers_for_an_ordinary_user: [ordinary, has_low_ports_and_ping];
    a_sandbox_knows_its_own_name: [root, knows_its_own_name];
    a_sandbox_of_an_ordinary_user_knows_its_own_name: [ordinary, knows_its_own_name];
    a_workspace_is_found_by_the_callers_name: [root, is_at_its_name];
    a_workspace_of_an_ordinary_user_is_found_by_the_callers_name: [ordinary, is_at_its_name];
    what_is_installed_is_known: [root, answers_what_is_installed];
    what_is_installed_is_known_to_an_ordinary_user: [ordinary, answers_what_is_installed];
    what_a_protection_refuses_is_said: [root, says_what_refused];
    what_a_protection_refuses_is_said_to_an_ordinary_user: [ordinary, says_what_refused];
    directories_are_shared_with_a_group: [root, shares_directories_with_a_group];
    directories_of_an_ordinary_user_are_shared_with_a_group: [ordinary, shares_directories_with_a_group];
    a_program_finds_its_limits: [root, knows_its_limits];
    a_program_of_an_ordinary_user_finds_its_limits: [ordinary, knows_its_limits];
}
