//! Sandboxes of one session that share a loopback, each with proxies of its own there: what one reaches by another's, and who listens at an
//! address that is to be a sandbox's.

use provost::proto::v1::Network;

use crate::{
    fixture::Fixture,
    support::{EndOfInput, Session, is_root, skip},
};

/// A user that nobody is, whose gateway has no cgroup: each command has a sandbox of its own.
const USER: u32 = 54_394;

/// Says where its proxy is, and waits.
const SAY_AND_WAIT: &str = "echo \"proxy=$HTTP_PROXY\"; echo up; read line";

/// The proxy's address that a command has said.
fn proxy(text: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix("proxy=")).expect("it has said it");
    line.rsplit('@').next().expect("an address").to_owned()
}

const CODE: &str = "curl -s --noproxy '' -o /dev/null -w '%{http_code}\\n'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_reaches_no_more_by_the_proxies_of_another_one_of_its_session() {
    if !is_root() {
        return skip("another user's gateway needs root");
    }
    let fixture = Fixture::start_as(Some(USER));
    let session = Session::open_as(&fixture.gateway, USER).await;
    let first = fixture.sh(&session, SAY_AND_WAIT).stdin().create().await;
    let address = proxy(&first.until("up").await);
    assert_eq!(address, "127.0.0.1:3128");
    let own = fixture.sh(&session, "echo \"proxy=$HTTP_PROXY\"").finish().await.text();
    assert_ne!(proxy(&own), address, "each has its own");
    let ask = |host: &str, how: &str| format!("{CODE} -x http://{how} http://{host}:18080/; ");
    let user = format!("{}:x@{address}", first.id);
    // By the proxy of the other sandbox, as itself and as the other's command.
    let script: String = [&address, &user]
        .iter()
        .flat_map(|how| ["registry.test", "other.test", "secret.files.test"].map(|host| ask(host, how)))
        .collect();
    let done = fixture.sh(&session, &script).finish().await;
    assert_eq!(done.text(), "200\n403\n403\n".repeat(2));
    // Nobody takes the place of one that is there, also not at all addresses at once, nor by its resolver.
    let take = "import socket\n\
        for kind, place in ((1, ('127.0.0.1', 3128)), (1, ('0.0.0.0', 3128)), (1, ('127.0.0.1', 53)), (2, ('127.0.0.1', 53)), \
        (2, ('0.0.0.0', 53))):\n \
        for option in (0, socket.SO_REUSEADDR, socket.SO_REUSEPORT):\n  \
        one = socket.socket(socket.AF_INET, kind)\n  \
        if option: one.setsockopt(socket.SOL_SOCKET, option, 1)\n  \
        try:\n   \
        one.bind(place)\n   \
        if kind == 1: one.listen()\n   \
        print('taken', place)\n  \
        except OSError as error: print(error.strerror)\n";
    let taken = fixture.command(&session, Network::Proxy, "python3").args(["-c", take]).finish().await.text();
    assert_eq!(taken.lines().count(), 15, "{taken}");
    assert!(taken.lines().all(|line| line == "Address already in use"), "{taken}");
    first.write(b"\n", EndOfInput::After).await.expect("it reads");
    first.wait().await;
    session.close().await;
    fixture.gateway.stop();
}

/// Listens where the next sandbox would have its proxy, and says who has come.
const IN_ITS_PLACE: &str = "\
import socket, sys, time
print('up', flush=True)
sys.stdin.readline()
def listen(port):
    # It is free when the net process of the sandbox that had it is gone.
    while True:
        try:
            return socket.create_server(('127.0.0.1', port))
        except OSError:
            time.sleep(0.02)
listeners = [listen(port) for port in (3128, 1080)]
print('listening', flush=True)
for listener in listeners:
    listener.settimeout(1)
sys.stdin.readline()
for listener in listeners:
    try:
        print('caught', listener.accept()[1], flush=True)
    except OSError:
        print('nobody', flush=True)
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_listens_in_the_place_of_the_next_sandboxs_proxies_catches_nothing() {
    if !is_root() {
        return skip("another user's gateway needs root");
    }
    let fixture = Fixture::start_as(Some(USER));
    let session = Session::open_as(&fixture.gateway, USER).await;
    let first = fixture.sh(&session, SAY_AND_WAIT).stdin().create().await;
    first.until("up").await;
    let listening = fixture.command(&session, Network::Proxy, "python3").args(["-c", IN_ITS_PLACE]).stdin();
    let listening = listening.create().await;
    listening.until("up").await;
    first.write(b"\n", EndOfInput::After).await.expect("it reads");
    first.wait().await;
    first.release().await;
    listening.write(b"\n", EndOfInput::NotYet).await.expect("it reads");
    listening.until("listening").await;
    for _ in 0..2 {
        let script = format!(
            "echo \"proxy=$HTTP_PROXY\"; {CODE} http://registry.test:18080/; {CODE} http://other.test:18080/"
        );
        let text = fixture.sh(&session, &script).finish().await.text();
        assert_ne!(proxy(&text), "127.0.0.1:3128", "{text}");
        assert!(text.ends_with("200\n403\n"), "{text}");
    }
    listening.write(b"\n", EndOfInput::After).await.expect("it reads");
    let text = listening.until("nobody\nnobody\n").await;
    assert!(!text.contains("caught"), "{text}");
    session.close().await;
    fixture.gateway.stop();
}
