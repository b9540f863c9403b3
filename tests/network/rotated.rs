//! Secrets of requests whose files change while a command runs: the new value is used, a file that is gone refuses, and neither value is in
//! what the command writes, in the journal, or in the gateway's log.

use std::{fs, path::Path};

use provost::proto::v1::Network;

use crate::{
    opened_servers::{OpenedFixture, SECRET},
    support::{EndOfInput, Session, Terminal, code, eventually, is_root, skip},
};

const ROTATED: &str = "rotated-value-of-the-vault-a95e";
const LONGER: &str = "a-longer-value-of-the-vault-that-came-at-the-very-last-4b77";

/// For each line of input asks for what it names, on connections that are kept; then says that it is done.
const ASKING: &str = "
import os, sys, urllib.request, http.client, ssl, urllib.parse
address = urllib.parse.urlsplit(os.environ['HTTPS_PROXY'])
context = ssl.create_default_context(cafile='/run/provost/certificates/bundle.pem')
kept = http.client.HTTPSConnection(address.hostname, address.port, context=context, timeout=60)
kept.set_tunnel('vault.test', 19443)
print('up', flush=True)
for line in sys.stdin:
    path = line.strip()
    kept.request('GET', path)
    answer = kept.getresponse()
    print(answer.status, answer.read().decode().strip(), flush=True)
    print('done', path, flush=True)
";

/// The token, in place of the one before, as an administrator does it.
fn rotate(fixture: &OpenedFixture, value: &str) {
    let (file, next) = (fixture.certificates.path().join("token"), fixture.certificates.path().join("next"));
    let before = fs::metadata(&file).expect("it is there");
    fs::write(&next, format!("{value}\n")).expect("a file");
    fs::set_permissions(&next, before.permissions()).expect("it is ours");
    let (uid, gid) =
        (std::os::unix::fs::MetadataExt::uid(&before), std::os::unix::fs::MetadataExt::gid(&before));
    std::os::unix::fs::chown(&next, Some(uid), Some(gid)).expect("it is ours");
    fs::rename(&next, &file).expect("it is ours");
}

/// What the command says to one more request.
async fn ask(terminal: &Terminal, number: usize, path: &str) -> String {
    let path = format!("{path}?{number}");
    terminal.write(format!("{path}\n").as_bytes(), EndOfInput::NotYet).await.expect("it reads");
    let text = terminal.until(&format!("done {path}\n")).await;
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len() - 2].to_owned()
}

fn has(directory: &Path, value: &str) -> Vec<String> {
    let mut found = Vec::new();
    crate::opened_secrets::in_files(directory, value.as_bytes(), &mut found);
    found
}

async fn a_running_command_gets_the_new_one(fixture: &OpenedFixture) {
    let session = Session::open(&fixture.gateway).await;
    let command = fixture.command(&session, Network::Proxy, "python3").args(["-c", ASKING]).stdin();
    let terminal = command.create().await;
    terminal.until("up").await;
    let auth = |value: &str| format!("auth={}", OpenedFixture::digest(&format!("Bearer {value}")));
    let hidden = |value: &str| format!("200 ECHO Bearer {}", "*".repeat(value.len()));
    assert!(ask(&terminal, 0, "/v1/x").await.contains(&auth(SECRET)));
    assert_eq!(ask(&terminal, 1, "/echo").await, hidden(SECRET));
    for (number, value) in [(2, ROTATED), (4, LONGER)] {
        rotate(fixture, value);
        let answer = ask(&terminal, number, "/v1/x").await;
        assert!(answer.contains(&auth(value)), "{answer}");
        // The server says the new value again, which the command did not begin with.
        assert_eq!(ask(&terminal, number + 1, "/echo").await, hidden(value));
    }
    fs::remove_file(fixture.certificates.path().join("token")).expect("it is there");
    let refused = ask(&terminal, 6, "/v1/x").await;
    assert!(refused.starts_with("403 ") && refused.contains("network.credential"), "{refused}");
    assert!(refused.contains("VAULT_TOKEN"), "{refused}");
    terminal.write(b"", EndOfInput::After).await.expect("it reads");
    assert_eq!(code(&terminal.wait().await), 0);
    let output = String::from_utf8_lossy(&terminal.output().await.data).into_owned();
    eventually("the last connection's end", || {
        (fixture.records("connection_ended").len() >= 6).then_some(())
    })
    .await;
    for value in [SECRET, ROTATED, LONGER] {
        assert!(!output.contains(value), "{output}");
        assert!(!fixture.gateway.log_tail().contains(value));
        assert_eq!(has(&fixture.gateway.state, value), Vec::<String>::new());
        assert_eq!(has(&session.workspace, value), Vec::<String>::new());
    }
    session.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_runs_is_given_the_secret_that_its_file_has_now() {
    let fixture = OpenedFixture::start();
    a_running_command_gets_the_new_one(&fixture).await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_runs_is_given_the_secret_that_its_file_has_now_by_an_ordinary_users_gateway() {
    if !is_root() {
        return skip("the other test is of an ordinary user's gateway already");
    }
    let fixture = OpenedFixture::start_as(Some(1_000));
    a_running_command_gets_the_new_one(&fixture).await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_comes_after_its_command_is_not_shown_on_a_screen() {
    let fixture = OpenedFixture::start();
    let session = Session::open(&fixture.gateway).await;
    let token = fixture.certificates.path().join("token");
    fs::rename(&token, token.with_extension("away")).expect("it is ours");
    let line = "echo up; read line; curl -sS https://vault.test:19443/echo";
    let terminal = fixture
        .sh(&session, line)
        .with(|request| {
            request.pty = Some(provost::proto::v1::Pty { columns: 200, rows: 24, term: String::new() })
        })
        .create()
        .await;
    terminal.until("up").await;
    fs::rename(token.with_extension("away"), &token).expect("it is ours");
    terminal.write(b"\n", EndOfInput::NotYet).await.expect("it reads");
    terminal.wait().await;
    let output = String::from_utf8_lossy(&terminal.output().await.data).into_owned();
    assert!(output.contains("network.credential") && output.contains("screen cannot be masked"), "{output}");
    assert!(!output.contains(SECRET), "{output}");
    // Where there is no screen it is used, and masked.
    let without = fixture.sh(&session, "curl -sS https://vault.test:19443/echo").finish().await;
    assert_eq!(without.text(), format!("ECHO Bearer {}\n", "*".repeat(SECRET.len())));
    session.close().await;
    fixture.gateway.stop();
}

/// As another terminal, whose name it says to the proxy.
fn asking_as(terminal: &Terminal) -> String {
    let user = format!(
        "headers={{'Proxy-Authorization': 'Basic ' + base64.b64encode(b'{}:x').decode()}}",
        terminal.id
    );
    ASKING
        .replace("import os", "import base64, os")
        .replace("'vault.test', 19443)", &format!("'vault.test', 19443, {user})"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_came_later_is_masked_whichever_terminal_a_command_says_that_it_is() {
    let fixture = OpenedFixture::start();
    let session = Session::open(&fixture.gateway).await;
    let command = |script: String| {
        fixture.command(&session, Network::Proxy, "python3").args(["-c".to_owned(), script]).stdin()
    };
    let claimed = command(ASKING.to_owned()).create().await;
    claimed.until("up").await;
    let claiming = command(asking_as(&claimed)).create().await;
    claiming.until("up").await;
    let hidden = |value: &str| format!("200 ECHO Bearer {}", "*".repeat(value.len()));
    assert_eq!(ask(&claiming, 0, "/echo").await, hidden(SECRET));
    rotate(&fixture, ROTATED);
    assert_eq!(ask(&claiming, 1, "/echo").await, hidden(ROTATED));
    // The records have what it says, and so the claim was taken.
    let records = fixture.records("connection");
    let of_claimed =
        records.iter().filter(|one| one["terminal"] == claimed.id.as_str() && one["path"] == "/echo");
    assert_eq!(of_claimed.count(), 2, "{records:#?}");
    for terminal in [&claiming, &claimed] {
        terminal.write(b"", EndOfInput::After).await.expect("it reads");
        assert_eq!(code(&terminal.wait().await), 0);
        let output = String::from_utf8_lossy(&terminal.output().await.data).into_owned();
        assert!(!output.contains(ROTATED), "{output}");
    }
    session.close().await;
    fixture.gateway.stop();
}
