//! Which sandbox a terminal is in, and whose state directory a gateway has.

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use tonic::Code;

use crate::support::{Gateway, api::ExitCause, in_session};

fn sandboxes(gateway: &Gateway) -> usize {
    fs::read_dir(gateway.state.join("sandboxes")).map_or(0, Iterator::count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn terminals_that_are_isolated_from_one_another_have_sandboxes_of_their_own() {
    let gateway = Gateway::with_policy(|policy| {
        policy["profile"]["workspace"]["isolation"] = "terminal".into();
    });
    in_session(&gateway, async |session| {
        let first = session.sh("echo ready; exec sleep 1000").create().await;
        let second = session.sh("echo ready; exec sleep 1000").create().await;
        assert_eq!(sandboxes(&gateway), 2);
        first.kill(Some(Duration::ZERO)).await;
        assert_eq!(first.wait().await.cause(), ExitCause::Killed);
        first.release().await;
        assert_eq!(sandboxes(&gateway), 1, "its sandbox went with it, and no other");
        second.until("ready").await;
        second.release().await;
        assert_eq!(sandboxes(&gateway), 0);
        let refusal = session.command("no-such-program").refusal().await;
        assert_eq!(refusal.code, Code::FailedPrecondition, "{refusal:?}");
        assert_eq!(sandboxes(&gateway), 0, "a refused spawn takes its sandbox along");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn two_gateways_never_share_a_state_directory() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let terminal = session.sh("echo ready; exec sleep 1000").create().await;
        terminal.until("ready").await;
        let second = Command::new(env!("CARGO_BIN_EXE_provost"))
            .args(["serve", "--listen"])
            .arg(format!("unix:{}", gateway.directory().join("run/other.sock").display()))
            .arg("--state")
            .arg(&gateway.state)
            .stdin(Stdio::null())
            .output()
            .expect("provost can be started");
        assert!(!second.status.success(), "{second:?}");
        assert_eq!(sandboxes(&gateway), 1, "the second gateway has touched nothing");
        terminal.get().await.expect("the first gateway goes on");
    })
    .await;
}
