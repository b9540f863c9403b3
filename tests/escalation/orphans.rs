//! Orphans: PID 1 of a sandbox reaps what nobody else does, while it goes on with its work.

use std::time::Duration;

use crate::support::{Gateway, Process, code, eventually, in_session};

fn zombies(gateway: &Gateway) -> usize {
    gateway.group.processes().into_iter().filter_map(Process::read).filter(Process::is_zombie).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn ten_thousand_orphans_are_reaped_while_the_command_runs() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let terminal = session.attack("escape").args(["orphans", "10000", "stay"]).create().await;
        terminal.until("ready").await;
        // It still runs: nobody has cleaned up after its end.
        eventually("no zombie", || (zombies(&gateway) == 0).then_some(())).await;
        terminal.kill(Some(Duration::ZERO)).await;
        terminal.wait().await;
        terminal.release().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn ten_thousand_orphans_do_not_hide_the_exit_of_the_command() {
    in_session(&Gateway::shared(), async |session| {
        for _ in 0..3 {
            let done = session.attack("escape").args(["orphans", "3500"]).finish().await;
            assert_eq!(code(&done.outcome), 0);
            assert_eq!(done.text(), "ready\n");
        }
    })
    .await;
}
