//! What holds for a command holds through every front end, as root and as an ordinary user: each row of the matrix is a check that is made
//! at every seat. Where a front end differs, the check says so with the reason.

use std::{
    ffi::OsString,
    fs,
    io::{BufRead, BufReader},
    os::unix::{
        ffi::OsStringExt,
        fs::{MetadataExt, PermissionsExt, chown},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use crate::{
    firsthour::{
        front_ends::{ALL, Desk, FrontEnd, Owner, Seat, VENV},
        person::Person,
    },
    support::{lacks, skip},
};

/// What the secret's file and the socket's server say.
const SECRET: &str = "a-value-that-no-command-sees";
const REACHED: &str = "the-host-answers";

/// A private workspace with what a repository has that is protected, made with a strict umask, and tools of its own.
const FURNISH: &str = r##"
umask 077; set -e
chmod 700 .; git init -q -b main .; chmod 700 .git; mkdir .vscode run dir; echo '{}' > .mcp.json
mkdir -p .venv/bin; printf '#!/bin/sh\necho of the workspace\n' > .venv/bin/workspace-tool; chmod 755 .venv/bin/workspace-tool
printf '[user]\n\tname = At Work\n\temail = work@example.org\n' > ~/at-work
printf '[includeIf "gitdir:%s/"]\n\tpath = ~/at-work\n' "$(pwd -P)" | cat ~/.gitconfig - > ~/new && mv -f ~/new ~/.gitconfig
"##;

/// Says its argument to everybody who connects.
const SERVER: &str = "
import os, socket, sys
one = socket.socket(socket.AF_UNIX)
one.bind('./host.sock')
one.listen()
print('ready', flush=True)
while True:
    other, _ = one.accept()
    other.sendall(sys.argv[1].encode())
    other.close()
";

/// A process of the host that listens on a socket, which it has bound by a name relative to a directory of the workspace.
struct Server(Child);

impl Server {
    fn start(desk: &Desk) -> Self {
        let mut server = desk.person.command("/usr/bin/python3", desk.named.join("run"));
        let mut child =
            server.args(["-c", SERVER, REACHED]).stdout(Stdio::piped()).spawn().expect("python starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it says that it listens");
        assert_eq!(line, "ready\n");
        Self(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Connects to the socket, and prints what it says.
const CONNECT: &str = "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"run/host.sock\"); print(s.recv(99).decode())'";

/// A desk with everything that the rows take.
struct Scene {
    /// First, so that its socket is there until no front end uses it.
    _server: Server,
    desk: Desk,
    secret: PathBuf,
    _system: TempDir,
}

impl Scene {
    /// None where this machine lacks something, which was said.
    fn new(person: Person, owner: Owner) -> Option<Self> {
        if lacks(&["git", "python3"]) {
            return None;
        }
        if !nix::unistd::geteuid().is_root() {
            skip("only root can place a secret below a directory of the system");
            return None;
        }
        // Every sandbox shows /opt.
        let system = tempfile::Builder::new().prefix("provost-test-").tempdir_in("/opt").expect("root can");
        fs::set_permissions(system.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        let secret = system.path().join("token");
        fs::write(&secret, SECRET).expect("a file can be written");
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("it is ours");
        // It is the gateway's to read.
        let reader = if owner == Owner::Root { 0 } else { person.id() };
        chown(&secret, Some(reader), Some(reader)).expect("root can give a file away");
        let shipped = include_str!("../../policies/default.toml");
        let policy = shipped.replace("requirement = \"require\"", "requirement = \"prefer\"").replacen(
            "memory_bytes = 4_294_967_296",
            "memory_bytes = 536_870_912",
            1,
        );
        let more = format!(
            "[[rule]]\nid = \"no-shredding\"\ndecision = \"deny\"\nargv = [\"shred\", \"**\"]\nreason = \"move it aside\"\n\
             [secrets.TOKEN]\nfile = {secret:?}\n"
        );
        let desk = Desk::new(person, owner, FURNISH, &format!("{policy}\n{more}"));
        Some(Self { _server: Server::start(&desk), desk, secret, _system: system })
    }
}

/// A row, at one seat.
type Row = fn(&Scene, &mut Seat<'_>);

const ROWS: [(&str, Row); 13] = [
    ("works in a private workspace", works_in_a_private_workspace),
    ("keeps secrets and sockets of the host", keeps_secrets_and_sockets),
    ("writes through no link", writes_through_no_link),
    ("tells what is denied", tells_what_is_denied),
    ("takes of stdin what is read", takes_of_stdin_what_is_read),
    ("tells what ended", tells_what_ended),
    ("is as outside", is_as_outside),
    ("tells which protection refuses", tells_which_protection_refuses),
    ("tells of a forbidden call", tells_of_a_forbidden_call),
    ("tells what is not reached", tells_what_is_not_reached),
    ("takes all arguments", takes_all_arguments),
    ("keeps what a person replaces", keeps_what_a_person_replaces),
    ("tells what is undone", tells_what_is_undone),
];

/// All rows at all seats; every failure is named before the test fails.
fn holds_everywhere(person: Person, owner: Owner) {
    let Some(scene) = Scene::new(person, owner) else { return };
    let user = scene.desk.person.id();
    let mut failed = Vec::new();
    for front_end in ALL {
        // A gateway of its own is the person's in any case.
        if (front_end, owner) == (FrontEnd::Run, Owner::Root) {
            continue;
        }
        let Some(mut seat) = scene.desk.seat(front_end) else { continue };
        for (what, row) in ROWS {
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| row(&scene, &mut seat)));
            if checked.is_err() {
                failed.push(format!("{front_end:?} as {user}: {what}"));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn what_holds_for_roots_commands_holds_through_every_front_end() {
    Person::root().into_iter().for_each(|person| holds_everywhere(person, Owner::Person));
}

#[test]
fn what_holds_for_an_ordinary_users_commands_holds_through_every_front_end() {
    Person::ordinary().into_iter().for_each(|person| holds_everywhere(person, Owner::Person));
}

#[test]
#[ignore = "long: every row again, at a second kind of gateway"]
fn what_holds_for_an_ordinary_users_commands_by_roots_gateway_holds_through_every_front_end() {
    Person::ordinary().into_iter().for_each(|person| holds_everywhere(person, Owner::Root));
}

/// A: nobody else may look into the workspace, and what is protected in it is as private.
fn works_in_a_private_workspace(scene: &Scene, seat: &mut Seat<'_>) {
    let told = seat.line("umask; rm -rf made; mkdir made && : > made/file && git status --porcelain > made/status && cat .mcp.json");
    assert_eq!((told.code, told.text().trim_end()), (Some(0), "0077\n{}"), "{told:?}");
    let of = |name: &str| fs::metadata(scene.desk.named.join(name)).expect("it was made");
    for (name, mode) in [("made", 0o700), ("made/file", 0o600), ("made/status", 0o600)] {
        let (one, user) = (of(name), scene.desk.person.id());
        assert_eq!((one.uid(), one.gid(), one.mode() & 0o7777), (user, user, mode), "{name}");
    }
}

/// B and C: first each is reached outside.
fn keeps_secrets_and_sockets(scene: &Scene, seat: &mut Seat<'_>) {
    let attack = format!("cat {}; {CONNECT}; echo went on", scene.secret.display());
    let outside = scene.desk.outside(&attack);
    // A secret of root's gateway is no ordinary user's to read outside either.
    let is_readable = scene.desk.owner == Owner::Person;
    assert_eq!(
        (outside.contains(SECRET), outside.contains(REACHED)),
        (is_readable, true),
        "outside it works: {outside}"
    );
    // It does not matter by which directory, nor under which name the directory is then.
    for attack in [attack.clone(), format!("mv run run2; ln -s run2 run; {attack}; rm run; mv run2 run")] {
        let told = seat.line(&attack);
        assert!(told.text().contains("went on"), "{told:?}");
        assert!(!told.text().contains(SECRET) && !told.text().contains(REACHED), "{told:?}");
        assert!(!told.said.contains(SECRET) && !told.said.contains(REACHED), "{told:?}");
    }
}

/// D: a command has left a link where a program of ours writes.
fn writes_through_no_link(scene: &Scene, seat: &mut Seat<'_>) {
    let desk = &scene.desk;
    let target = desk.aside().join("target");
    desk.outside("echo mine > ~/target");
    let left = seat.line(&format!("rm -f left; ln -s {} left", target.display()));
    assert_eq!(left.code, Some(0), "{left:?}");
    let held = desk.held_terminal();
    let arguments: &[&str] = match seat.front_end {
        FrontEnd::Acp => &["acp", "--log", "left", "--", "true"],
        FrontEnd::Mcp => &["mcp", "--log", "left"],
        FrontEnd::ExecServer => &["exec-server", "--log", "left"],
        FrontEnd::Run | FrontEnd::RunByGateway => &["run", "--report", "left", "--", "true"],
        FrontEnd::Detached => &["logs", "--cast", "left", &held],
        // They write no files.
        FrontEnd::Grpc | FrontEnd::Exec | FrontEnd::Shell | FrontEnd::Python | FrontEnd::TypeScript => return,
    };
    let mut command = match seat.front_end {
        FrontEnd::Run => desk.command("provost"),
        _ => desk.by_gateway("provost", &[]),
    };
    let output = command.args(arguments).output().expect("provost starts");
    assert!(!output.status.success(), "{}", crate::firsthour::walk::shown(&output));
    assert_eq!(desk.outside("cat ~/target"), "mine\n", "{}", crate::firsthour::walk::shown(&output));
}

/// E: at the start, and within a tree.
fn tells_what_is_denied(_: &Scene, seat: &mut Seat<'_>) {
    let told = seat.line("x=shred; $x .mcp.json; echo went on");
    assert!(told.code == Some(0) && told.text().contains("went on"), "{told:?}");
    assert!(told.said.contains("no-shredding") && told.said.contains("move it aside"), "{told:?}");
    let refused = seat.run(&["shred", ".mcp.json"].map(OsString::from));
    assert!(refused.said.contains("no-shredding") && refused.said.contains("move it aside"), "{refused:?}");
    // Shells have an exit code for it. Where nothing is started, programs get an error.
    let is_process = !matches!(
        seat.front_end,
        FrontEnd::Grpc
            | FrontEnd::Acp
            | FrontEnd::Mcp
            | FrontEnd::ExecServer
            | FrontEnd::Python
            | FrontEnd::TypeScript
    );
    assert_eq!(refused.code, is_process.then_some(126), "{refused:?}");
    assert!(seat.line("cat .mcp.json").text().contains("{}"), "it is as it was");
}

/// F: what the command does not read stays for who comes next. Where there is no process for each command, there is no stdin of a caller's.
fn takes_of_stdin_what_is_read(_: &Scene, seat: &mut Seat<'_>) {
    let words = ["sh", "-c", "echo got"].map(OsString::from);
    let Some(command) = seat.command_line(&words) else { return };
    let mut all = vec![command.get_program().to_owned()];
    all.extend(command.get_args().map(OsString::from));
    let mut again = Command::new("sh");
    again.args(["-c", "printf 'a\\nb\\nc\\n' | while read -r x; do \"$@\"; echo $x; done", "sh"]).args(all);
    let desk = seat.desk;
    let mut shell = desk.person.command("sh", &desk.named);
    shell.args(again.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    let output = shell.output().expect("a shell is there");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(printed, "got\na\ngot\nb\ngot\nc\n", "{}", crate::firsthour::walk::shown(&output));
}

/// H: and what to use instead, in the front end's own words; programs get what has ended as data.
fn tells_what_ended(_: &Scene, seat: &mut Seat<'_>) {
    // It ends under the name that it has by then.
    let told = seat.line("sleep 1000 & until grep -qx sleep /proc/$!/comm; do :; done; echo done");
    assert!(told.code == Some(0) && told.text().contains("done"), "{told:?}");
    let said = match seat.front_end {
        FrontEnd::Grpc => "ended_processes: 1, ended_commands: [\"sleep\"]",
        FrontEnd::Python => "ended_processes=1, ended_commands=('sleep',)",
        FrontEnd::TypeScript => "\"endedProcesses\":1,\"endedCommands\":[\"sleep\"]",
        FrontEnd::Mcp => "(sleep); `start_command` starts one that goes on",
        FrontEnd::Acp => "(sleep); what is to go on needs a terminal of its own",
        FrontEnd::ExecServer => "(sleep); what is to go on needs a process of its own",
        FrontEnd::Shell => "(sleep); a line's processes",
        FrontEnd::Run | FrontEnd::RunByGateway | FrontEnd::Exec => "(sleep); `provost run -d",
        FrontEnd::Detached => "(sleep); start what is to go on as a command of its own",
    };
    assert!(told.said.contains(said), "{said}: {told:?}");
}

/// Prints what a command finds of its person, its place and its machine.
const FIND: &str = r#"
say() { name=$1; shift; printf '%s=%s\n' "$name" "$("$@" 2>&1 | tail -1)"; }
say pwd pwd
say there sh -c 'cd "$PWD" && cat "$PWD/.mcp.json"'
say email git config user.email
say tool workspace-tool
say venv printenv VIRTUAL_ENV
say name sh -c 'getent ahosts "$(hostname)" | head -1 | cut -d" " -f1'
say port python3 -c 'import socket; socket.socket().bind(("127.0.0.1", 80)); print("bound")'
say online cat /sys/devices/system/cpu/online
say group sh -c 'own=$(sed -n "s/.*memory[^:]*://p" /proc/self/cgroup); v2=$(sed -n "s/^0:://p" /proc/self/cgroup)
    cat /sys/fs/cgroup/memory$own/memory.limit_in_bytes /sys/fs/cgroup$v2/memory.max 2>/dev/null'
"#;

/// I: what a program finds of its person, its place and its machine.
fn is_as_outside(scene: &Scene, seat: &mut Seat<'_>) {
    let told = seat.line(FIND);
    let value = |name: &str| told.value(name).unwrap_or_else(|| panic!("no {name}: {told:?}"));
    let named = scene.desk.named.display().to_string();
    let online = fs::read_to_string("/sys/devices/system/cpu/online").expect("there are processors");
    for (name, expected) in [
        ("pwd", named.as_str()),
        ("there", "{}"),
        ("email", "work@example.org"),
        ("name", "127.0.0.1"),
        ("port", "bound"),
        ("online", online.trim_end()),
    ] {
        assert_eq!(value(name), expected, "{name}: {told:?}");
    }
    // Where the host gives this user no memory controller, there is no limit to be shown.
    assert!(["536870912", ""].contains(&value("group").as_str()), "{told:?}");
    // The SDKs pass on nothing of their process's environment: who calls them names variables.
    if !matches!(seat.front_end, FrontEnd::Python | FrontEnd::TypeScript) {
        assert_eq!(value("tool"), "of the workspace", "{told:?}");
        let venv = scene.desk.named.join(VENV);
        assert_eq!(Path::new(&value("venv")).canonicalize().ok(), venv.canonicalize().ok(), "{told:?}");
    }
}

/// What fails by a protection, in one line, and what is then said of each: error, the end of the path, key.
const REFUSED: &str = "touch .git/hooks/x; : > f; chmod 4755 f; rm -f run/host.sock; exit 3";
const REFUSALS: [[&str; 3]; 3] = [
    ["EROFS", "/.git/hooks", "filesystem.reserved"],
    ["EPERM", "", "seccomp"],
    ["EBUSY", "/run/host.sock", "network.sockets"],
];

/// I: error, path, protection and key.
fn tells_which_protection_refuses(_: &Scene, seat: &mut Seat<'_>) {
    let told = seat.line(REFUSED);
    assert_eq!(told.code, Some(3), "{told:?}");
    let is_data = matches!(seat.front_end, FrontEnd::Grpc | FrontEnd::Python | FrontEnd::TypeScript);
    for [error, path, key] in REFUSALS {
        if is_data {
            for part in [error, path, key] {
                assert!(told.said.contains(part), "{part}: {told:?}");
            }
            continue;
        }
        let is_it = |line: &str| {
            line.contains(&format!("perhaps refused: {error}"))
                && line.contains(&format!("{path}: "))
                && line.trim_end().ends_with(')')
                && line.contains(key)
        };
        assert!(told.said.lines().any(is_it), "{error} {path} {key}: {told:?}");
    }
}

/// I: what a system call that the filter refuses with a signal looks like.
fn tells_of_a_forbidden_call(_: &Scene, seat: &mut Seat<'_>) {
    let told = seat.line("kill -SYS $$");
    assert!(told.code.is_none_or(|code| code == 159), "{told:?}");
    assert!(told.said.contains("SIGSYS") && told.said.contains("seccomp"), "{told:?}");
}

/// I: without a network the network is named, and where nothing of it failed it is not.
fn tells_what_is_not_reached(_: &Scene, seat: &mut Seat<'_>) {
    let told = seat.line("getent hosts registry.example; exit 3");
    assert!(told.code == Some(3) && told.said.contains("registry.example"), "{told:?}");
    let told = seat.line("exit 3");
    assert!(told.code == Some(3) && !told.said.contains("perhaps"), "{told:?}");
}

/// C: an editor's save puts another file in the place of a protected one. What the person has left stays.
fn keeps_what_a_person_replaces(scene: &Scene, seat: &mut Seat<'_>) {
    scene.desk.outside("echo '{\"mine\":1}' > ~/saved; mv ~/saved .mcp.json");
    let told =
        seat.line("echo attack > .mcp.json; mv .mcp.json elsewhere; echo attack > .mcp.json; echo done");
    assert!(told.text().contains("done"), "{told:?}");
    assert_eq!(scene.desk.outside("cat .mcp.json"), "{\"mine\":1}\n", "{told:?}");
    scene.desk.outside("rm -f elsewhere; echo '{}' > .mcp.json");
}

/// What people's tools would run is moved aside at the end of the command, which is told of it.
fn tells_what_is_undone(scene: &Scene, seat: &mut Seat<'_>) {
    let hook = "nested/.git/hooks/post-commit";
    let plant =
        format!("git init -q nested && printf '#!/bin/sh\\n' > {hook}; chmod +x {hook}; echo went on");
    let outside = scene.desk.outside(&format!("{plant}; ls {hook}; rm -rf nested"));
    assert!(outside.contains(hook), "outside it works: {outside}");
    let told = seat.line(&plant);
    assert!(told.text().contains("went on"), "{told:?}");
    let undone =
        |line: &str| line.contains(hook) && line.contains(": a hook") && line.ends_with("(moved aside)");
    let is_told = match seat.front_end {
        FrontEnd::Grpc => told.said.contains("action: Quarantined"),
        FrontEnd::Python => told.said.contains("action: WORKSPACE_ACTION_QUARANTINED"),
        FrontEnd::TypeScript => told.said.contains("\"action\":\"WORKSPACE_ACTION_QUARANTINED\""),
        _ => told.said.lines().any(undone),
    };
    assert!(is_told, "{told:?}");
    assert!(!scene.desk.named.join(hook).exists(), "{told:?}");
    scene.desk.outside("rm -rf nested");
}

/// How many arguments there are.
const MANY: usize = 20_000;

/// I: many, and bytes that are no text.
fn takes_all_arguments(_: &Scene, seat: &mut Seat<'_>) {
    let mut words = ["sh", "-c", "echo $#; printf %s \"$1\"", "sh"].map(OsString::from).to_vec();
    let odd = if seat.carries_bytes() { b"caf\xe9'".to_vec() } else { "café'".as_bytes().to_vec() };
    words.push(OsString::from_vec(odd.clone()));
    words.extend(std::iter::repeat_n(OsString::from("x"), MANY - 1));
    let told = seat.run(&words);
    let expected = [format!("{MANY}\n").as_bytes(), &odd].concat();
    let told_start: Vec<u8> = told.printed.iter().copied().take(expected.len()).collect();
    assert_eq!(told_start, expected, "{:?}", &told.said[..told.said.len().min(2_000)]);
}
