//! `provost audit tail --follow`: records as they are written.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc,
};

use serde_json::Value;

use crate::{
    journaled::directory,
    support::{DEADLINE, Gateway, in_session},
};

/// A follower's process, ended with this.
pub(crate) struct Tail(pub(crate) Child);

impl Drop for Tail {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_follower_sees_each_record_that_it_asked_for_as_it_is_written() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_provost"))
            .args(["audit", "--journal"])
            .arg(directory(&gateway))
            .args(["tail", "--follow", "-o", "json", "-n", "1", "--session", &session.id])
            .stdout(Stdio::piped())
            .spawn()
            .expect("provost can be started");
        let stdout = child.stdout.take().expect("it is a pipe");
        let _tail = Tail(child);
        let (send, lines) = mpsc::sync_channel(1024);
        std::thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        let next = || {
            let line = lines.recv_timeout(DEADLINE).expect("a record comes");
            serde_json::from_str::<Value>(&line).expect("it is JSON")["record"]["kind"].clone()
        };
        // What was there; then, as it happens.
        assert_eq!(next(), "session_opened");
        for _ in 0..3 {
            let terminal = session.command("true").create().await;
            let seen: Vec<Value> = (0..4).map(|_| next()).collect();
            assert_eq!(seen, ["decision", "spawn", "started", "exit"]);
            terminal.wait().await;
            terminal.release().await;
        }
    })
    .await;
}
