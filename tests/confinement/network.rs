//! The network of a command: its own loopback and nothing else, unless the host's was asked for.

use crate::support::lacks;
use std::{
    fs,
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::PermissionsExt,
            net::{SocketAddr, UnixListener},
        },
    },
};

use crate::support::{Attack, Gateway, api::Network, in_session, offer_hosts_network, run_outside};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_hosts_loopback_and_the_metadata_address_cannot_be_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port().to_string();
    let (_, outside) = run_outside(&Attack::compiled("attack"), &["connect_tcp", "127.0.0.1", &port]);
    assert_eq!(outside, "connect_tcp OK\n");
    in_session(&Gateway::shared(), async |session| {
        for (address, port, errno) in [
            ("127.0.0.1", port.as_str(), "ECONNREFUSED"),
            ("169.254.169.254", "80", "ENETUNREACH"),
            ("10.0.0.1", "80", "ENETUNREACH"),
            ("1.1.1.1", "53", "ENETUNREACH"),
        ] {
            let done = session.attack("attack").args(["connect_tcp", address, port]).finish().await;
            assert_eq!(done.text(), format!("connect_tcp {errno}\n"), "{address}");
        }
        let done = session.attack("attack").args(["send_udp", "8.8.8.8", "53"]).finish().await;
        assert_eq!(done.text(), "send_udp ENETUNREACH\n");
        let done = session.sh("cat /proc/net/dev | tail -n +3 | cut -d: -f1").finish().await;
        assert_eq!(done.text().trim(), "lo", "one interface, the loopback");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn commands_of_one_session_reach_each_other_over_their_loopback_and_another_session_does_not() {
    if lacks(&["python3"]) {
        return;
    }
    let gateway = Gateway::shared();
    in_session(&gateway, async |one| {
        in_session(&gateway, async |other| {
            let server = "import socket\ns = socket.create_server(('127.0.0.1', 4711))\nprint('listening', flush=True)\nwhile True:\n c, _ = s.accept()\n c.close()";
            let held = one.command("python3").args(["-c", server]).create().await;
            held.until("listening").await;
            let reach = ["connect_tcp", "127.0.0.1", "4711"];
            assert_eq!(one.attack("attack").args(reach).finish().await.text(), "connect_tcp OK\n");
            assert_eq!(other.attack("attack").args(reach).finish().await.text(), "connect_tcp ECONNREFUSED\n");
            let (_, host) = run_outside(&Attack::compiled("attack"), &reach);
            assert_eq!(host, "connect_tcp ECONNREFUSED\n", "nor does the host");
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn unix_sockets_of_the_host_cannot_be_reached_by_name_with_either_network() {
    let name = format!("provost-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let _abstract_listener = UnixListener::bind_addr(&address).expect("an abstract socket");
    let (_, outside) = run_outside(&Attack::compiled("attack"), &["connect_abstract", &name]);
    assert_eq!(outside, "connect_abstract OK\n");
    let gateway = Gateway::with_policy(offer_hosts_network);
    let path = gateway.directory().join("host.sock");
    let _path_listener = UnixListener::bind(&path).expect("a path socket");
    in_session(&gateway, async |session| {
        let none = session.attack("attack").args(["connect_abstract", &name]).finish().await;
        assert_eq!(none.text(), "connect_abstract ECONNREFUSED\n", "another network namespace");
        for network in [1, 2] {
            let with = |verb: &str, to: &str| {
                session.attack("attack").args([verb, to]).with(|r| r.network = network).finish()
            };
            let done = with("connect_abstract", &name).await;
            assert_ne!(done.text(), "connect_abstract OK\n", "network {network}");
            let done = with("connect_path", &path.display().to_string()).await;
            assert_eq!(done.text(), "connect_path ENOENT\n", "network {network}");
        }
        // With the host's network it is landlock's scope that refuses.
        let host =
            session.attack("attack").args(["connect_abstract", &name]).with(|r| r.network = 2).finish().await;
        assert_eq!(host.text(), "connect_abstract EPERM\n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_socket_of_the_host_in_the_workspace_cannot_be_reached_and_one_of_the_sandbox_can() {
    if lacks(&["python3"]) {
        return;
    }
    in_session(&Gateway::shared(), async |session| {
        let path = session.workspace.join("deep/host.sock");
        fs::create_dir(session.workspace.join("deep")).expect("the host can write");
        let _listener = UnixListener::bind(&path).expect("a path socket");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("it is ours");
        let path = path.display().to_string();
        let (_, outside) = run_outside(&Attack::compiled("attack"), &["connect_path", &path]);
        assert_eq!(outside, "connect_path OK\n");
        for way in [path.as_str(), "deep/host.sock", "moved/host.sock", "deep/link.sock"] {
            let done = session.attack("attack").args(["connect_path", way]).finish().await;
            assert_ne!(done.text(), "connect_path OK\n", "{way}");
            // Neither by another way nor by another name.
            session.sh("mv deep moved; ln deep/host.sock deep/link.sock; mv deep/host.sock y; rm -f deep/host.sock").finish().await;
        }
        assert!(session.workspace.join("deep/host.sock").exists(), "the host still has it");
        let own = "import socket\na = socket.socket(socket.AF_UNIX)\na.bind('own.sock')\na.listen()\n\
                   b = socket.socket(socket.AF_UNIX)\nb.connect('own.sock')\nprint('connected')";
        let done = session.command("python3").args(["-c", own]).finish().await;
        assert_eq!(done.text(), "connected\n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_hosts_network_is_there_when_it_is_asked_for_and_allowed() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port().to_string();
    in_session(&Gateway::with_policy(offer_hosts_network), async |session| {
        let terminal = session
            .attack("attack")
            .args(["connect_tcp", "127.0.0.1", &port])
            .with(|r| r.network = 2)
            .create()
            .await;
        terminal.wait().await;
        assert_eq!(terminal.output().await.data, &b"connect_tcp OK\n"[..]);
        let receipt = terminal.info.receipt.clone().expect("a receipt");
        assert_eq!(receipt.network(), Network::Host);
        assert!(receipt.network_exposure.iter().any(|what| what.contains("loopback")), "{receipt:?}");
        let own = session.command("true").create().await.info.receipt.clone().expect("a receipt");
        assert_eq!((own.network(), own.network_exposure.len()), (Network::None, 0), "{own:?}");
        assert!(!receipt.namespaces.iter().any(|n| n == "net"), "{receipt:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_shipped_policy_does_not_offer_the_hosts_network() {
    in_session(&Gateway::shared(), async |session| {
        let refusal = session.command("true").with(|r| r.network = 2).refusal().await;
        assert_eq!(refusal.meta("rule"), "profile.workspace.network.choices", "{refusal:?}");
        for network in [1, 3] {
            session.command("true").with(|r| r.network = network).finish().await;
        }
    })
    .await;
}
