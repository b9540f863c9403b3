//! The loopback is a session's, too: a server in one command and its client in another one meet, whether they have one sandbox or each has
//! its own for want of cgroups.

use crate::support::lacks;
use std::{fs, path::Path, sync::Arc};

use crate::support::{
    Command, EndOfInput, Gateway, Options, Session, Terminal,
    api::{Network, Outcome},
    code, is_root, skip,
};

/// A user that nobody is.
const USER: u32 = 54_372;

const SERVER: &str = "import socket\n\
                      server = socket.create_server(('127.0.0.1', 8123))\nprint('ready', flush=True)\n\
                      while True:\n peer, _ = server.accept()\n peer.sendall(b'hello\\n')\n peer.close()";
const CLIENT: &str = "exec 3<>/dev/tcp/127.0.0.1/8123 && cat <&3";

/// An ordinary user has no cgroup to make limits in, and neither has a host without a v2 tree.
fn without_limits(policy: &mut toml::Table) {
    let alone: toml::Table = toml::from_str("extends = 'workspace'\nisolation = 'terminal'\n").expect("TOML");
    let profiles = policy["profile"].as_table_mut().expect("a table");
    profiles.insert("alone".into(), alone.into());
    for profile in ["workspace", "offline"] {
        policy["profile"][profile]["limits"]["requirement"] = "prefer".into();
    }
}

/// Commands of a session with one network.
#[derive(Clone, Copy)]
struct Commands<'a>(&'a Session, Network);

impl Commands<'_> {
    fn command(self, program: &str) -> Command {
        self.0.command(program).with(|request| request.network = self.1 as i32)
    }

    fn sh(self, script: &str) -> Command {
        self.command("sh").args(["-c", script])
    }
}

async fn serve(commands: Commands<'_>) -> Terminal {
    let server = commands.command("python3").args(["-u", "-c", SERVER]).create().await;
    server.until("ready").await;
    server
}

/// What a client of the session says, under a profile.
async fn fetch(commands: Commands<'_>, profile: &str) -> Result<String, String> {
    let client = commands.command("bash").args(["-c", CLIENT]);
    let done = client.with(|request| request.profile = profile.into()).finish().await;
    match code(&done.outcome) {
        0 => Ok(done.text()),
        _ => Err(done.text()),
    }
}

async fn must_meet(commands: Commands<'_>, other: Commands<'_>) {
    let server = serve(commands).await;
    assert_eq!(fetch(commands, "workspace").await.as_deref(), Ok("hello\n"));
    // The end of one command's sandbox ends nothing of another's.
    assert_eq!(fetch(commands, "workspace").await.as_deref(), Ok("hello\n"));
    let another_network = match commands.1 {
        Network::None => Network::Proxy,
        _ => Network::None,
    };
    for (whose, commands, profile) in [
        ("another profile", commands, "offline"),
        ("a sandbox that is to be alone", commands, "alone"),
        ("another network", Commands(commands.0, another_network), "workspace"),
        ("another session", other, "workspace"),
    ] {
        if profile == "offline" && commands.1 == Network::Proxy {
            // It offers no other network.
            continue;
        }
        let refused = fetch(commands, profile).await.expect_err(whose);
        assert!(refused.contains("Connection refused"), "{whose}: {refused}");
    }
    // Neither do two commands of a profile that isolates them meet.
    let alone = commands.command("python3").args(["-u", "-c", SERVER]);
    let alone = alone.with(|request| request.profile = "alone".into()).create().await;
    alone.until("ready").await;
    let refused = fetch(commands, "alone").await.expect_err("its server is alone");
    assert!(refused.contains("Connection refused"), "{refused}");
    alone.release().await;
    server.kill(None).await;
    server.wait().await;
    server.release().await;
    // The network is there when the sandbox that began it is not any more.
    let server = serve(commands).await;
    assert_eq!(fetch(commands, "workspace").await.as_deref(), Ok("hello\n"));
    server.release().await;
    let refused = fetch(commands, "workspace").await.expect_err("its server is gone");
    assert!(refused.contains("Connection refused"), "{refused}");
    // As in a network of its own, there is nothing but the loopback, and nobody may change it.
    let links =
        commands.sh("tail -n +3 /proc/net/dev | cut -d: -f1; cat /proc/net/route | wc -l").finish().await;
    assert_eq!(links.text().split_whitespace().collect::<Vec<_>>(), ["lo", "1"]);
    let changed = "import fcntl, socket, struct\ns = socket.socket()\n\
                   fcntl.ioctl(s, 0x8914, struct.pack('16sh', b'lo', 0))";
    let changed = commands.command("python3").args(["-c", changed]).finish().await;
    assert!(changed.text().contains("PermissionError"), "{}", changed.text());
    let nested = commands.sh("unshare --user true").finish().await;
    assert_ne!(code(&nested.outcome), 0, "{}", nested.text());
}

/// What began under one gateway is met by what begins under the next one, also when all that the next one has found is over.
async fn must_meet_after_a_restart(
    gateway: &Arc<Gateway>,
    user: Option<u32>,
    session: &mut Session,
    network: Network,
) {
    let server = serve(Commands(session, network)).await;
    gateway.crash();
    gateway.start_again();
    let caller = match user {
        Some(user) => gateway.caller_as(user).await,
        None => gateway.caller().await,
    };
    session.go_on(&caller);
    let (commands, server) = (Commands(session, network), server.over(&caller));
    assert_eq!(fetch(commands, "workspace").await.as_deref(), Ok("hello\n"));
    let waiting = commands.sh("echo up; read line; exec 3<>/dev/tcp/127.0.0.1/8123").stdin().create().await;
    waiting.until("up").await;
    server.release().await;
    let server = serve(commands).await;
    assert_eq!(fetch(commands, "workspace").await.as_deref(), Ok("hello\n"));
    server.release().await;
    waiting.release().await;
}

/// Commands that ask at the same time: each is told of its own names.
async fn must_be_told_apart(commands: Commands<'_>) {
    if !Path::new("/etc/resolv.conf").exists() {
        println!("SKIPPED: this host has no resolv.conf(5), so that its sandboxes have none");
        return;
    }
    // By the resolver that resolv.conf(5) names, as every resolver does; the C library's may not be installed here.
    let ask = |label: &str, then: &str| {
        let question = format!(
            "read -r _ server </etc/resolv.conf; exec 3<>/dev/udp/$server/53; printf \
             '\\x12\\x34\\x01\\0\\0\\x01\\0\\0\\0\\0\\0\\0\\x{:02x}{label}\\x07example\\0\\0\\x01\\0\\x01' >&3; \
             head -c 2 <&3 | od -An -tx1; {then}; exit 1",
            label.len()
        );
        commands.command("bash").args(["-c".to_owned(), question]).stdin()
    };
    let first = ask("first", "read line").create().await;
    first.until("12 34").await;
    let second = ask("second", "true").finish().await;
    assert_eq!(second.text(), " 12 34\n");
    let names = |outcome: &Outcome| {
        outcome.unreachable.as_ref().map(|unreachable| unreachable.names.clone()).unwrap_or_default()
    };
    assert_eq!(names(&second.outcome), ["second.example"]);
    first.write(b"\n", EndOfInput::After).await.expect("it reads");
    assert_eq!(names(&first.wait().await), ["first.example"]);
    first.release().await;
}

/// What has no route is told of the command that it made fail, and neither of one that succeeds nor of the next one.
async fn must_tell_of_failures_only(commands: Commands<'_>) {
    let connect = "exec 3<>/dev/tcp/192.0.2.1/9";
    for (script, exit, fails_for_want_of_a_route) in [
        (format!("({connect}); exit 3"), 3, true),
        (format!("({connect}); exit 0"), 0, false),
        ("exit 4".to_owned(), 4, false),
        (format!("({connect}); exit 3"), 3, true),
        ("exit 4".to_owned(), 4, false),
    ] {
        let done = commands.command("bash").args(["-c", &script]).finish().await;
        assert_eq!(code(&done.outcome), exit, "{script}: {}", done.text());
        let counted = done.outcome.unreachable.as_ref().map(|unreachable| unreachable.no_route > 0);
        assert_eq!(counted, fails_for_want_of_a_route.then_some(true), "{script}: {:?}", done.outcome);
    }
}

async fn must_hold_for(options: Options, has_own_sandboxes: bool) {
    let user = options.user;
    let gateway: Arc<Gateway> = Gateway::start_with(options);
    let open = async || match user {
        Some(user) => Session::open_as(&gateway, user).await,
        None => Session::open(&gateway).await,
    };
    let (mut session, other) = (open().await, open().await);
    let two = [session.idle("one").create().await, session.idle("two").create().await];
    let sandboxes = fs::read_dir(gateway.state.join("sandboxes")).expect("it is there").count();
    assert_eq!(sandboxes, if has_own_sandboxes { 2 } else { 1 });
    for terminal in two {
        terminal.release().await;
    }
    for network in [Network::None, Network::Proxy] {
        must_meet(Commands(&session, network), Commands(&other, network)).await;
    }
    if has_own_sandboxes {
        must_be_told_apart(Commands(&session, Network::None)).await;
    }
    must_tell_of_failures_only(Commands(&session, Network::None)).await;
    let proxied = Commands(&session, Network::Proxy).sh("echo $HTTP_PROXY").finish().await;
    assert!(proxied.text().trim().ends_with("@127.0.0.1:3128"), "{}", proxied.text());
    if gateway.can_start_again() {
        for network in [Network::None, Network::Proxy] {
            must_meet_after_a_restart(&gateway, user, &mut session, network).await;
        }
    } else {
        println!(
            "SKIPPED: the restart, where the gateway's cgroup hands controllers down and takes no other gateway"
        );
    }
    session.close().await;
    gateway.stop();
}

fn options() -> Options {
    Options { policy: Some(without_limits), ..Options::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn commands_of_one_sandbox_meet_on_the_loopback() {
    if lacks(&["python3"]) {
        return;
    }
    must_hold_for(options(), false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn commands_of_a_user_with_cgroups_meet_on_the_loopback() {
    if lacks(&["python3"]) {
        return;
    }
    if !is_root() {
        return skip("only root can start a gateway as another user");
    }
    must_hold_for(Options { user: Some(USER), delegated: true, ..options() }, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn commands_of_a_user_with_sandboxes_of_their_own_meet_on_the_loopback() {
    if lacks(&["python3"]) {
        return;
    }
    if !is_root() {
        return skip("only root can start a gateway as another user");
    }
    must_hold_for(Options { user: Some(USER), ..options() }, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn commands_of_a_user_with_subordinate_ids_and_sandboxes_of_their_own_meet_on_the_loopback() {
    if lacks(&["python3"]) {
        return;
    }
    if !is_root() {
        return skip("only root can start a gateway as another user");
    }
    must_hold_for(Options { user: Some(USER), subordinate_ids: true, ..options() }, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn commands_on_a_host_without_a_v2_tree_meet_on_the_loopback() {
    if lacks(&["python3"]) {
        return;
    }
    let mounts = fs::read_to_string("/proc/self/mounts").expect("a host has mounts");
    let mounted = |kind: &str| {
        let mut lines = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        lines.find(|words| words.get(2) == Some(&kind)).map(|words| words[1].to_owned())
    };
    let Some(tree) = mounted("cgroup").and(mounted("cgroup2")).filter(|_| is_root()) else {
        println!("SKIPPED: needs root, v1 hierarchies and a v2 tree that can be hidden");
        return;
    };
    must_hold_for(Options { hidden_mount: Some(tree), ..options() }, true).await;
}
