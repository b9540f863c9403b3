//! Rules that change, net processes and gateways that die, many connections.

use std::{fs, time::Duration};

use provost::proto::v1::Network;

use crate::{
    fixture::Fixture,
    support::{EndOfInput, Process, Session, code, eventually},
};

/// The net processes of a gateway.
fn net_processes(fixture: &Fixture) -> Vec<u32> {
    let gateway = fixture.gateway.pid_now();
    let children = fs::read_to_string(format!("/proc/{gateway}/task/{gateway}/children")).unwrap_or_default();
    let mut pids: Vec<u32> = children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    // A child belongs to the thread that has made it.
    for task in fs::read_dir(format!("/proc/{gateway}/task")).expect("the gateway runs").flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        pids.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    pids.sort_unstable();
    pids.dedup();
    let is_net =
        |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "provost-net\n");
    pids.into_iter().filter(is_net).collect()
}

const GET: &str = "curl -s -o /dev/null -w '%{http_code}\\n' http://registry.test:18080/";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_changes_holds_for_the_next_connection() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    assert_eq!(fixture.sh(&session, GET).finish().await.text(), "200\n");
    fixture.reload_with("[[connect]]\nid = 'closed'\ndecision = 'deny'\nhost = ['registry.test']\n");
    let done = fixture.sh(&session, GET).finish().await;
    assert_eq!(done.text(), "403\n");
    assert_eq!(done.outcome.connect_denials[0].rule, "closed");
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_net_process_has_nothing_and_another_one_takes_its_place() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    assert_eq!(fixture.sh(&session, GET).finish().await.text(), "200\n");
    let [pid] = net_processes(&fixture)[..] else { panic!("{:?}", net_processes(&fixture)) };
    let process = Process::read(pid).expect("it runs");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        if set != "CapBnd" || crate::support::is_root() {
            assert_eq!(process.field(set), "0000000000000000", "{set}");
        }
    }
    assert_eq!((process.field("NoNewPrivs"), process.field("Seccomp")), ("1", "2"));
    if crate::support::is_root() {
        let uids = process.field("Uid");
        assert!(uids.split_whitespace().all(|uid| uid != "0"), "{uids}");
        let commands = fixture
            .sh(&session, "sleep 600")
            .create()
            .await
            .info
            .receipt
            .clone()
            .expect("a receipt")
            .host_uid;
        assert!(!uids.split_whitespace().any(|uid| uid == commands.to_string()), "{uids}: an id of its own");
    }
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), nix::sys::signal::Signal::SIGKILL)
        .expect("it is there");
    // The connection waits in the listener until another process takes it.
    assert_eq!(fixture.sh(&session, GET).finish().await.text(), "200\n");
    assert!(!net_processes(&fixture).contains(&pid));
    session.close().await;
    eventually("the net process is gone", || net_processes(&fixture).is_empty().then_some(())).await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_crash_of_the_gateway_running_commands_have_the_network_of_the_rules_again() {
    let fixture = Fixture::start();
    let mut session = Session::open(&fixture.gateway).await;
    let script = format!(
        "{GET}; echo first; while [ ! -e go ]; do sleep 0.1; done; {GET}; curl -s http://other.test:18080/; echo last"
    );
    let terminal = fixture.sh(&session, &script).create().await;
    terminal.until("first").await;
    fixture.gateway.crash();
    fs::write(session.workspace.join("go"), "").expect("a file");
    fixture.gateway.start_again();
    let caller = fixture.gateway.caller().await;
    session.go_on(&caller);
    let terminal = terminal.over(&caller);
    let outcome = terminal.wait().await;
    let text = String::from_utf8_lossy(&terminal.output().await.data).into_owned();
    assert_eq!(code(&outcome), 0);
    assert!(text.starts_with("200\nfirst\n200\n") && text.contains("denied by rule \"default\""), "{text}");
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_that_say_nothing_hold_up_no_other() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    let hold = "import socket, time\n\
        held = [socket.create_connection(('127.0.0.1', port)) for port in (3128, 1080) for _ in range(300)]\n\
        print('held', flush=True)\ntime.sleep(600)\n";
    let holder = fixture.command(&session, Network::Proxy, "python3").args(["-c", hold]).create().await;
    holder.until("held").await;
    let done = tokio::time::timeout(Duration::from_secs(60), fixture.sh(&session, GET).finish()).await;
    assert_eq!(done.expect("in time").text(), "200\n");
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_connections_at_once_are_carried_in_bounded_memory() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    let many = "import asyncio\n\
        async def open():\n\
        \x20reader, writer = await asyncio.open_connection('127.0.0.1', 3128)\n\
        \x20writer.write(b'CONNECT plain.test:18080 HTTP/1.1\\r\\nHost: plain.test:18080\\r\\n\\r\\n')\n\
        \x20assert (await reader.readuntil(b'\\r\\n\\r\\n')).startswith(b'HTTP/1.1 200')\n\
        \x20return reader, writer\n\
        async def use(pair):\n\
        \x20pair[1].write(b'GET / HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n')\n\
        \x20return b'SERVED' in await pair[0].read()\n\
        async def main():\n\
        \x20pairs = await asyncio.gather(*[open() for _ in range(1000)])\n\
        \x20print('open', flush=True)\n\
        \x20await asyncio.get_running_loop().run_in_executor(None, input)\n\
        \x20print(sum(await asyncio.gather(*map(use, pairs))), 'served', flush=True)\n\
        asyncio.run(main())\n";
    let command = fixture.command(&session, Network::Proxy, "python3").args(["-c", many]).stdin();
    let terminal = command.create().await;
    terminal.until("open").await;
    let [pid] = net_processes(&fixture)[..] else { panic!("{:?}", net_processes(&fixture)) };
    // Without the pages of the program's file, of which a build with debug information has many.
    let process = Process::read(pid).expect("it runs");
    let anonymous = process.field("RssAnon").trim_end_matches(" kB").trim().parse::<u64>().expect("a number");
    println!("net process with 1,000 tunnels: {anonymous} KiB");
    assert!(anonymous < 64 << 10, "{anonymous} KiB for 1,000 connections");
    terminal.write(b"\n", EndOfInput::After).await.expect("it reads");
    let outcome = terminal.wait().await;
    let text = String::from_utf8_lossy(&terminal.output().await.data).into_owned();
    assert!(code(&outcome) == 0 && text.contains("1000 served"), "{text}");
    // Their places are free again.
    assert_eq!(fixture.sh(&session, GET).finish().await.text(), "200\n");
    session.close().await;
    fixture.gateway.stop();
}
