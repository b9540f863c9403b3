//! A principal's connection to a gateway: generated clients over the unix socket, as this process or, for root,
//! as another user through a small relay that runs under that user's id.
//!
//! A refusal is what a gRPC status says by its code and its typed details, never by its text.

use std::{
    collections::HashMap,
    fs,
    os::{
        fd::OwnedFd,
        unix::{fs::PermissionsExt, net::UnixStream as StdUnixStream, process::CommandExt},
    },
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::{
    Code,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt;
use tower::service_fn;

use crate::{
    Attack,
    api::{sessions_client::SessionsClient, terminals_client::TerminalsClient},
};

/// The largest answer that a test is ready for.
const LARGEST_ANSWER_BYTES: usize = 256 << 20;

/// Clients of one principal.
#[derive(Clone)]
pub struct Caller {
    /// Sessions.
    pub sessions: SessionsClient<Channel>,
    /// Terminals.
    pub terminals: TerminalsClient<Channel>,
    channel: Channel,
    relays: Arc<Relays>,
}

/// Relay processes of another principal; ended with the last clone of its caller.
#[derive(Default)]
struct Relays(Mutex<Vec<Child>>);

impl Drop for Relays {
    fn drop(&mut self) {
        for mut child in self.0.lock().unwrap_or_else(|e| e.into_inner()).drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Caller {
    /// Connects as this process.
    pub async fn connect(socket: &Path) -> Self {
        let socket = socket.to_owned();
        let channel = endpoint()
            .connect_with_connector(service_fn(move |_| {
                let socket = socket.clone();
                async move { UnixStream::connect(socket).await.map(TokioIo::new) }
            }))
            .await
            .expect("the gateway's socket accepts");
        Self::over(channel, Arc::default())
    }

    /// Connects as another user. `directory` must be open to that user: the relay is put there.
    pub async fn connect_as(socket: &Path, uid: u32, directory: &Path) -> Self {
        let relayed = move |relay: &Path| {
            let mut command = Command::new(relay);
            command.uid(uid).gid(uid);
            command
        };
        Self::connect_by(socket, directory, relayed).await
    }

    /// Connects as another user of these groups, the first of them its own.
    pub(crate) async fn connect_in_groups(socket: &Path, uid: u32, groups: &[u32], directory: &Path) -> Self {
        let (own, all) = (groups[0], groups.iter().map(u32::to_string).collect::<Vec<_>>().join(","));
        let relayed = move |relay: &Path| {
            let mut command = Command::new("setpriv");
            command.arg(format!("--reuid={uid}")).arg(format!("--regid={own}"));
            command.arg(format!("--groups={all}")).arg(relay);
            command
        };
        Self::connect_by(socket, directory, relayed).await
    }

    /// Connects through a relay, which this command starts.
    async fn connect_by(
        socket: &Path,
        directory: &Path,
        relayed: impl Fn(&Path) -> Command + Send + Sync + 'static,
    ) -> Self {
        let relay = Attack::compiled("principal").placed_in(directory);
        fs::set_permissions(&relay, fs::Permissions::from_mode(0o755)).expect("the relay is ours");
        let relays = Arc::new(Relays::default());
        let (socket, kept) = (socket.to_owned(), relays.clone());
        let channel = endpoint()
            .connect_with_connector(service_fn(move |_| {
                let connected = spawned(relayed(&relay), &socket, &kept);
                async move { connected }
            }))
            .await
            .expect("the gateway's socket accepts another user");
        Self::over(channel, relays)
    }

    fn over(channel: Channel, relays: Arc<Relays>) -> Self {
        Self {
            sessions: SessionsClient::new(channel.clone()).max_decoding_message_size(LARGEST_ANSWER_BYTES),
            terminals: TerminalsClient::new(channel.clone()).max_decoding_message_size(LARGEST_ANSWER_BYTES),
            channel,
            relays,
        }
    }

    /// The channel, for other services.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Ends the relay processes: to the gateway, the principal's process is gone.
    pub fn vanish(&self) {
        for child in self.relays.0.lock().unwrap_or_else(|e| e.into_inner()).iter_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn endpoint() -> Endpoint {
    Endpoint::from_static("http://provost.invalid")
        .initial_connection_window_size(4 << 20)
        .initial_stream_window_size(4 << 20)
}

fn spawned(mut command: Command, socket: &Path, kept: &Relays) -> std::io::Result<TokioIo<UnixStream>> {
    let (ours, theirs) = StdUnixStream::pair()?;
    let child =
        command.arg(socket).stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).spawn()?;
    kept.0.lock().unwrap_or_else(|e| e.into_inner()).push(child);
    ours.set_nonblocking(true)?;
    UnixStream::from_std(ours).map(TokioIo::new)
}

/// A refusal, taken apart.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// The gRPC code.
    pub code: Code,
    /// `ErrorInfo.reason`, empty when there is none.
    pub reason: String,
    /// `ErrorInfo.metadata`.
    pub metadata: HashMap<String, String>,
    /// The fields of `BadRequest`.
    pub fields: Vec<String>,
    /// The subjects of `QuotaFailure`.
    pub quotas: Vec<String>,
    /// The sentence, for people.
    pub message: String,
}

impl From<tonic::Status> for Refusal {
    fn from(status: tonic::Status) -> Self {
        let details = status.get_error_details();
        let info = details.error_info();
        if let Some(info) = info {
            assert_eq!(info.domain, "provost", "the domain of an ErrorInfo");
        }
        Self {
            code: status.code(),
            reason: info.map(|i| i.reason.clone()).unwrap_or_default(),
            metadata: info.map(|i| i.metadata.clone()).unwrap_or_default(),
            fields: details
                .bad_request()
                .map(|b| b.field_violations.iter().map(|v| v.field.clone()).collect())
                .unwrap_or_default(),
            quotas: details
                .quota_failure()
                .map(|q| q.violations.iter().map(|v| v.subject.clone()).collect())
                .unwrap_or_default(),
            message: status.message().to_owned(),
        }
    }
}

impl Refusal {
    /// A value of the metadata.
    pub fn meta(&self, key: &str) -> &str {
        self.metadata.get(key).map(String::as_str).unwrap_or_default()
    }

    /// Fails unless this is INVALID_ARGUMENT that names the field.
    pub fn must_name_the_field(&self, field: &str) {
        assert_eq!(self.code, Code::InvalidArgument, "{self:?}");
        assert!(
            self.fields.iter().any(|f| f == field || f.starts_with(field)),
            "no violation of {field}: {self:?}"
        );
    }
}
