//! A principal's connection to a gateway: generated clients over the unix socket, as this process or, for root,
//! as another user through a small relay that runs under that user's id.

use std::{
    fs,
    os::{
        fd::OwnedFd,
        unix::{fs::PermissionsExt, net::UnixStream as StdUnixStream, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::{
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
        let relay = Attack::compiled("principal").placed_in(directory);
        fs::set_permissions(&relay, fs::Permissions::from_mode(0o755)).expect("the relay is ours");
        let relays = Arc::new(Relays::default());
        let (socket, kept) = (socket.to_owned(), relays.clone());
        let channel = endpoint()
            .connect_with_connector(service_fn(move |_| {
                let (relay, socket, kept) = (relay.clone(), socket.clone(), kept.clone());
                async move { relayed(relay, socket, uid, &kept) }
            }))
            .await
            .expect("the gateway's socket accepts another user");
        Self::over(channel, relays)
    }

    /// Connects as another user of these groups, the first of them its own.
    pub async fn connect_in_groups(
        socket: &Path,
        uid: u32,
        groups: &'static [u32],
        directory: &Path,
    ) -> Self {
        let relay = Attack::compiled("principal").placed_in(directory);
        fs::set_permissions(&relay, fs::Permissions::from_mode(0o755)).expect("the relay is ours");
        let relays = Arc::new(Relays::default());
        let (socket, kept) = (socket.to_owned(), relays.clone());
        let channel = endpoint()
            .connect_with_connector(service_fn(move |_| {
                let (relay, socket, kept) = (relay.clone(), socket.clone(), kept.clone());
                let all: Vec<String> = groups.iter().map(u32::to_string).collect();
                let mut command = Command::new("setpriv");
                command.arg(format!("--reuid={uid}")).arg(format!("--regid={}", groups[0]));
                command.arg(format!("--groups={}", all.join(","))).arg(relay);
                async move { spawned(command, socket, &kept) }
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

fn relayed(relay: PathBuf, socket: PathBuf, uid: u32, kept: &Relays) -> std::io::Result<TokioIo<UnixStream>> {
    let mut command = Command::new(relay);
    command.uid(uid).gid(uid);
    spawned(command, socket, kept)
}

fn spawned(mut command: Command, socket: PathBuf, kept: &Relays) -> std::io::Result<TokioIo<UnixStream>> {
    let (ours, theirs) = StdUnixStream::pair()?;
    let child =
        command.arg(socket).stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).spawn()?;
    kept.0.lock().unwrap_or_else(|e| e.into_inner()).push(child);
    ours.set_nonblocking(true)?;
    UnixStream::from_std(ours).map(TokioIo::new)
}
