//! The client's session at the gateway: opened with the handshake, closed when the client goes away, and ended by the gateway in any
//! case when this process ends.

use tonic::Code;

use super::{ExecServerOptions, message::RpcError, refusal};
use crate::{
    client::{FrontEnd, RetryingClient},
    printable,
    proto::v1,
};

/// The longest name of a client that becomes a label, in bytes.
const CLIENT_NAME_MAX_BYTES: usize = 128;
/// The label with the client's name, as it says itself.
const CLIENT_LABEL: &str = "exec_server.client";

/// An open session.
#[derive(Debug)]
pub(super) struct ExecSession {
    pub(super) client: RetryingClient,
    /// The gateway's id.
    pub(super) id: String,
    /// Where commands start that name no directory: the first root, as the user names it.
    pub(super) directory: String,
    /// The directories in which commands may write, without links.
    pub(super) roots: Vec<String>,
    /// Those that links lead to, by the user's name and without links.
    pub(super) linked: Vec<(String, String)>,
}

impl ExecSession {
    /// Opens the session of a client.
    pub(super) async fn open(
        client: RetryingClient,
        options: &ExecServerOptions,
        client_name: &str,
    ) -> Result<Self, RpcError> {
        let name = printable::truncate(&printable::line(client_name), CLIENT_NAME_MAX_BYTES).to_owned();
        let name = Some((CLIENT_LABEL.to_owned(), name)).filter(|(_, name)| !name.is_empty());
        let named: Vec<String> =
            options.roots.iter().map(|root| root.to_string_lossy().into_owned()).collect();
        let request = FrontEnd::ExecServer.sign(v1::CreateSessionRequest {
            roots: named.clone(),
            labels: name.into_iter().collect(),
            profile: options.profile.clone().unwrap_or_default(),
            lifetime: v1::Lifetime::OwnerProcess.into(),
            request_id: ulid::Ulid::generate().to_string(),
            ..Default::default()
        });
        let opened = client.call_with_timeout(|client| {
            let request = request.clone();
            async move { client.sessions.clone().create_session(request).await }
        });
        let opened = opened.await.map_err(|status| refusal::not_started(&status))?;
        let session = opened.into_inner().session.unwrap_or_default();
        tracing::info!(gateway.session = session.id, roots = ?session.roots, "session opened at the gateway");
        let directory = named.first().cloned().unwrap_or_default();
        // The gateway answers in the order of the request.
        let pairs = named.into_iter().zip(session.roots.iter().cloned());
        let linked = pairs.filter(|(name, real)| name != real).collect();
        Ok(Self { client, id: session.id, directory, roots: session.roots, linked })
    }

    /// Stops and releases everything of the session.
    pub(super) async fn close(&self) {
        let request = v1::CloseSessionRequest { session_id: self.id.clone() };
        match self.client.client().sessions.close_session(request).await {
            Ok(_) => {}
            Err(status) if status.code() == Code::NotFound => {}
            Err(status) => {
                tracing::warn!(error = %status, "cannot close the session: it ends with this process")
            }
        }
    }
}
