//! A screen shows text in any order, so that a secret cannot be masked on it: a terminal with secrets has none.

use tonic::Code;

use crate::{
    secrets::{Armed, with_secret},
    support::{
        Session, Terminal,
        api::{
            CreateTerminalRequest, Pty, SnapshotScreenRequest, SnapshotScreenResponse,
            screens_client::ScreensClient,
        },
    },
};

fn in_pty(request: &mut CreateTerminalRequest) {
    request.pty = Some(Pty { columns: 80, rows: 24, ..Pty::default() });
}

async fn snapshot(terminal: &Terminal) -> Result<SnapshotScreenResponse, tonic::Status> {
    let request =
        SnapshotScreenRequest { terminal_id: terminal.id.clone(), ..SnapshotScreenRequest::default() };
    let answer = ScreensClient::new(terminal.caller.channel()).snapshot_screen(request).await;
    answer.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn a_terminal_with_secrets_has_no_screen() {
    let armed = Armed::start().await;
    let session = Session::open(&armed.gateway).await;
    let script = "cat /proc/self/environ; sleep 1000";
    let secret = with_secret(session.sh(script)).with(in_pty).create().await;
    let error = snapshot(&secret).await.expect_err("it would show the secret");
    assert_eq!(error.code(), Code::FailedPrecondition, "{error:?}");
    assert!(error.message().contains("secrets"), "{error:?}");
    let plain = session.sh(script).with(in_pty).create().await;
    snapshot(&plain).await.expect("a terminal without secrets has a screen");
    session.close().await;
    armed.must_have_told_nobody();
}
