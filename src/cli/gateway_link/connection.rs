//! The gateway that a subcommand uses: the one that was named, the one on the default socket, one in the background, or an embedded one;
//! and the caller's sessions there.
//!
//! A default socket is trusted only if this user or root created it, in a directory that nobody else can write to. Otherwise another user
//! could receive this user's commands.
//!
//! A command that needs a gateway which outlives it starts one for this user where none serves. That one ends when nobody uses it. It is a
//! process of its own: it takes nothing of this one but its environment, and Ctrl-C in this terminal does not reach it.

use std::{
    os::{
        fd::OwnedFd,
        unix::{fs::MetadataExt, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tonic::transport::Channel;

use crate::{
    cli::console::error::CliError,
    client::{self, Client, ConnectError},
    gateway::{self, Config, Embedded, JournalConfig, PolicySource},
    proto::v1::{self, approvals_client::ApprovalsClient, terminals_client::TerminalsClient},
};

/// The terminals of a gateway.
pub(in crate::cli) type Terminals = TerminalsClient<Channel>;

/// The approvals of a gateway.
pub(in crate::cli) type Approvals = ApprovalsClient<Channel>;
/// The variable that names a gateway.
const VARIABLE: &str = "PROVOST_GATEWAY";

/// A connection to a gateway, with the gateway itself if it is embedded.
pub(in crate::cli) struct GatewayConnection {
    client: Client,
    uri: String,
    embedded: Option<Embedded>,
}

impl GatewayConnection {
    /// Connects to the gateway that the option names, else the environment, else to the default socket.
    pub(in crate::cli) async fn find(named: Option<&str>) -> Result<Self, CliError> {
        Self::find_giving(named, None).await
    }

    /// As [`GatewayConnection::find`], with what a command is to read.
    pub(in crate::cli) async fn find_giving(
        named: Option<&str>,
        given: Option<Arc<OwnedFd>>,
    ) -> Result<Self, CliError> {
        match running(named, given).await? {
            Some((client, uri)) => Ok(Self { client, uri, embedded: None }),
            None => Err(CliError::message_only(format!(
                "no gateway serves at {}",
                gateway::default_listen().display()
            ))
            .with_advice(format!("start one with `provost serve`, or name one by --gateway or {VARIABLE}"))),
        }
    }

    /// As [`GatewayConnection::find`], but none if no gateway serves.
    pub(in crate::cli) async fn running(
        named: Option<&str>,
        given: Option<Arc<OwnedFd>>,
    ) -> Result<Option<Self>, CliError> {
        Ok(running(named, given).await?.map(|(client, uri)| Self { client, uri, embedded: None }))
    }

    /// The gateway that serves, or an embedded one: also where policies or a journal of its own were asked for.
    pub(in crate::cli) async fn running_or_own(
        named: Option<&str>,
        policies: Option<&Path>,
        journal: Option<&Path>,
    ) -> Result<Self, CliError> {
        let found = match (policies, journal) {
            (Some(_), _) | (_, Some(_)) => None,
            (None, None) => Self::running(named, None).await?,
        };
        match found {
            Some(connection) => Ok(connection),
            None => Self::embed(policies, journal, None).await,
        }
    }

    /// Starts an embedded gateway, with these policies or the compiled-in ones, and with a journal in this directory or none.
    pub(in crate::cli) async fn embed(
        policies: Option<&Path>,
        journal: Option<&Path>,
        given: Option<Arc<OwnedFd>>,
    ) -> Result<Self, CliError> {
        let directory = |directory: &Path| PolicySource::Directory(directory.to_owned());
        let policies = policies.map_or(PolicySource::CompiledInPreferringLimits, directory);
        let journal = match journal.map(gateway::absolute_path).transpose() {
            Ok(directory) => directory
                .map(|directory| JournalConfig { directory: Some(directory), ..JournalConfig::default() }),
            Err(error) => return Err(CliError::caused_by("cannot name the journal's directory", error)),
        };
        let embedded = gateway::embed(Config { policies, journal, ..Config::embedded() })
            .await
            .map_err(|error| CliError::caused_by("cannot start an embedded gateway", error))?;
        match client::connect_giving(embedded.uri(), given).await {
            Ok(client) => {
                let uri = embedded.uri().to_owned();
                Ok(Self { client, uri, embedded: Some(embedded) })
            }
            Err(error) => {
                // Why the gateway ended says more than that nobody answers.
                embedded
                    .close()
                    .await
                    .map_err(|error| CliError::caused_by("the embedded gateway has failed", error))?;
                Err(CliError::caused_by("cannot talk to the embedded gateway", error))
            }
        }
    }

    /// The client of every service; a clone shares the connection.
    pub(in crate::cli) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Where the gateway listens, for `--gateway`.
    pub(in crate::cli) fn uri(&self) -> &str {
        &self.uri
    }

    /// Whether the gateway is this process's own.
    pub(in crate::cli) fn is_embedded(&self) -> bool {
        self.embedded.is_some()
    }

    /// Ends the connection; an embedded gateway stops whatever still runs and removes its state.
    pub(in crate::cli) async fn close(self) {
        let Some(embedded) = self.embedded else { return };
        // Its connections end first, or its drain would wait for them.
        drop(self.client);
        if let Err(error) = embedded.close().await {
            CliError::caused_by("ending the embedded gateway", error).print();
        }
    }
}

/// Whether the option or the environment names a gateway: then none is embedded.
pub(in crate::cli) fn names_gateway(named: Option<&str>) -> bool {
    named.is_some() || std::env::var(VARIABLE).is_ok_and(|name| !name.is_empty())
}

/// Connects to a running gateway, and says where. One that was named and does not answer is an error.
async fn running(
    named: Option<&str>,
    given: Option<Arc<OwnedFd>>,
) -> Result<Option<(Client, String)>, CliError> {
    let named =
        named.map(str::to_owned).or_else(|| std::env::var(VARIABLE).ok().filter(|name| !name.is_empty()));
    if let Some(named) = named {
        let connected = client::connect_giving(&named, given).await;
        return connected.map(|client| Some((client, named))).map_err(|error| {
            CliError::caused_by("cannot use the gateway", error)
                .with_advice(format!("see --gateway and {VARIABLE}"))
        });
    }
    let socket = gateway::default_listen();
    match socket_trust(&socket) {
        SocketTrust::Absent => return Ok(None),
        SocketTrust::Trusted => {}
        SocketTrust::Untrusted(why) => {
            crate::cli::console::stdio::print_notice(&format!(
                "notice: not using the gateway at {}: {why}",
                crate::printable::path(&socket)
            ));
            return Ok(None);
        }
    }
    let uri = format!("unix:{}", socket.display());
    match client::connect_giving(&uri, given).await {
        Ok(client) => Ok(Some((client, uri))),
        // Left behind by a gateway that is gone, or another user's.
        Err(ConnectError::Socket { .. }) => Ok(None),
        Err(error @ (ConnectError::Handshake { .. } | ConnectError::Address(_))) => {
            Err(CliError::caused_by("cannot use the gateway that serves here", error))
        }
    }
}

/// Who can have put a socket where it is.
enum SocketTrust {
    /// There is none.
    Absent,
    /// This user or root, and nobody else.
    Trusted,
    /// Another user, as the text says.
    Untrusted(String),
}

fn socket_trust(socket: &Path) -> SocketTrust {
    let directory = socket.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned);
    let (Ok(of_socket), Ok(of_directory)) = (socket.symlink_metadata(), directory.symlink_metadata()) else {
        return SocketTrust::Absent;
    };
    let user = nix::unistd::geteuid().as_raw();
    for (path, metadata) in [(&directory, &of_directory), (&socket.to_owned(), &of_socket)] {
        if metadata.uid() != user && metadata.uid() != 0 {
            return SocketTrust::Untrusted(format!(
                "{} belongs to uid {}",
                crate::printable::path(path),
                metadata.uid()
            ));
        }
    }
    if !of_directory.is_dir() || of_directory.mode() & 0o022 != 0 {
        return SocketTrust::Untrusted(format!("others can write to {}", crate::printable::path(&directory)));
    }
    SocketTrust::Trusted
}

/// How long a gateway that was started may take until it serves.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two looks at whether it serves.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// How long a gateway that was started stays without a session: a person who has looked away comes back to it.
const IDLE_EXIT: &str = "10m";

/// The gateway that serves, or one that is started now.
pub(in crate::cli) async fn running_or_started(
    named: Option<&str>,
    given: Option<Arc<OwnedFd>>,
) -> Result<GatewayConnection, CliError> {
    if let Some(connection) = GatewayConnection::running(named, given.clone()).await? {
        return Ok(connection);
    }
    let mut gateway =
        start_gateway().map_err(|error| CliError::caused_by("cannot start a gateway", error))?;
    let give_up_at = Instant::now() + START_TIMEOUT;
    loop {
        if let Some(connection) = GatewayConnection::running(None, given.clone()).await? {
            return Ok(connection);
        }
        let ended = gateway.try_wait().ok().flatten();
        if let Some(status) = ended.filter(|status| !status.success()) {
            // Another one may have been started at the same time, and serve.
            sleep(LOOK_INTERVAL).await;
            return GatewayConnection::running(None, given)
                .await?
                .ok_or_else(|| did_not_start(&format!("it ended with {status}")));
        }
        if Instant::now() >= give_up_at {
            return Err(did_not_start(&format!("it does not answer after {} s", START_TIMEOUT.as_secs())));
        }
        sleep(LOOK_INTERVAL).await;
    }
}

fn did_not_start(why: &str) -> CliError {
    CliError::message_only(format!("a gateway was started, and {why}"))
        .with_advice("start one with `provost serve`, which says what is wrong")
}

fn start_gateway() -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(["serve", "--idle-exit", IDLE_EXIT])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Signals that the terminal sends to this process's group are not for it.
        .process_group(0)
        .spawn()
}

/// The letters of an id behind its prefix.
const ULID_LENGTH: usize = 26;

/// All sessions of the caller.
pub(in crate::cli) async fn all_sessions(client: &mut Client) -> Result<Vec<v1::Session>, CliError> {
    let (mut sessions, mut request) = (Vec::new(), v1::ListSessionsRequest::default());
    loop {
        let page = client.sessions.list_sessions(request.clone()).await?.into_inner();
        sessions.extend(page.sessions);
        if page.next_page_token.is_empty() {
            return Ok(sessions);
        }
        request.page_token = page.next_page_token;
    }
}

/// The id of the session that a person means by its id or by its name. A name is the caller's own, and no id is one: ids are looked for by
/// the gateway, which says so where there is none.
pub(in crate::cli) async fn id_of(client: &mut Client, session: String) -> Result<String, CliError> {
    if session.strip_prefix("sess_").is_some_and(|id| id.len() == ULID_LENGTH) {
        return Ok(session);
    }
    let is_named = |other: &v1::Session| !other.name.is_empty() && other.name == session;
    let named = all_sessions(client).await?.into_iter().find(is_named);
    Ok(named.map_or(session, |named| named.id))
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::PermissionsExt, net::UnixListener};

    use super::*;

    #[test]
    fn a_socket_in_a_directory_that_others_can_write_to_is_not_trusted() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("provost.sock");
        assert!(matches!(socket_trust(&socket), SocketTrust::Absent));
        let _listener = UnixListener::bind(&socket).unwrap();
        assert!(matches!(socket_trust(&socket), SocketTrust::Trusted));
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(socket_trust(&socket), SocketTrust::Untrusted(_)));
    }

    #[test]
    fn a_socket_of_another_user_is_not_trusted() {
        if !nix::unistd::geteuid().is_root() {
            println!("SKIPPED: only root can make another user's socket");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("provost.sock");
        let _listener = UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::chown(&socket, Some(4242), None).unwrap();
        assert!(matches!(socket_trust(&socket), SocketTrust::Untrusted(_)));
    }
}
