//! A line of a session's kept shell: its name at the gateway, how it is interrupted, and whether it is over.

use std::time::Duration;

use tokio::sync::watch;
use tonic::{Code, Status};

use crate::{
    acp::session::session::SessionShell,
    client::RetryingClient,
    proto::v1::{GetShellRequest, GetShellResponse, InterruptLineRequest, ShellActivity},
};

/// How often a shell is asked whether a line is over that nobody follows any more.
const ASK_INTERVAL: Duration = Duration::from_millis(500);

impl SessionShell {
    /// What it does now.
    async fn status(&self, client: &RetryingClient) -> Result<GetShellResponse, Status> {
        let request =
            GetShellRequest { terminal_id: self.terminal_id.clone(), session_id: self.session_id.clone() };
        let asked = client.call_with_timeout(|client| {
            let request = request.clone();
            async move { client.terminals.clone().get_shell(request).await }
        });
        asked.await.map(tonic::Response::into_inner)
    }
}

/// One line.
#[derive(Debug)]
pub(in crate::acp) struct ShellLine {
    pub(in crate::acp) shell: SessionShell,
    line_id: String,
    changed: watch::Sender<()>,
}

impl ShellLine {
    pub(in crate::acp) fn new(shell: SessionShell, line_id: String) -> Self {
        Self { shell, line_id, changed: watch::Sender::new(()) }
    }

    /// The protocol's id of it.
    pub(super) fn protocol_id(&self) -> String {
        format!("{}-{}", self.shell.terminal_id, self.line_id)
    }

    /// There is more output, or the end.
    pub(super) fn has_changed(&self) {
        self.changed.send_replace(());
    }

    /// Waits until what its task takes in makes this so.
    pub(super) async fn wait_until(&self, is_so: impl Fn() -> bool) {
        let mut changed = self.changed.subscribe();
        while !is_so() {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Does what Ctrl-C does, if the line still has the shell.
    pub(super) async fn interrupt(&self, client: &RetryingClient) -> Result<(), Status> {
        if self.shell.status(client).await?.line_id != self.line_id {
            return Ok(());
        }
        let SessionShell { session_id, terminal_id } = self.shell.clone();
        let request = InterruptLineRequest { terminal_id, session_id };
        client.client().terminals.interrupt_line(request).await.map(drop)
    }

    /// Waits until the shell is at its prompt, has ended, or is gone.
    pub(super) async fn wait_unfollowed(&self, client: &RetryingClient) {
        loop {
            match self.shell.status(client).await {
                Ok(status) if !matches!(status.activity(), ShellActivity::Idle | ShellActivity::Ended) => {}
                Ok(_) => return,
                Err(status) if status.code() == Code::NotFound => return,
                // The gateway is away.
                Err(_) => {}
            }
            tokio::time::sleep(ASK_INTERVAL).await;
        }
    }
}
