//! The gateway: composition, listening, drain.
//!
//! [`serve`] is `provost serve`; [`embed`] is a private gateway inside another command, which leaves nothing
//! behind. Nothing here knows of commands or output: it puts the parts together and takes them apart.

#![forbid(unsafe_code)]

mod admission;
mod adoption;
mod adoption_scan;
mod config;
mod drain;
mod embedded_directory;
mod journal_lifecycle;
mod metrics;
mod path_trust;
pub mod policy_directory;
mod policy_reload;
pub mod quarantine;
mod socket;
mod state_directory;
mod threads;

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use admission::{Admission, AdmissionLayer};
pub use config::{
    Config, ConfigError, DieWithGateway, IdRange, PolicySource, default_listen, default_state, parse_listen,
};
pub use drain::OnStop;
use drain::ShutdownSignal;
pub use journal_lifecycle::{JournalConfig, JournalError};
pub use metrics::{MetricsAddress, MetricsError};
pub use path_trust::{GoverningConflict, TrustError};
use policy_reload::PolicyReloader;
use sd_notify::NotifyState;
pub use socket::ListenError;
use socket::{AdmittedConnections, BoundSocket};
use state_directory::StateDirectory;
pub use threads::runtime;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
    time::{interval, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};

use crate::{
    approval::ApprovalStore,
    grpc::{ApprovalsService, AuditService, PoliciesService, SessionsService, TerminalsService},
    policy::ActivePolicy,
    pool::Pool,
    proto::v1::{
        self, approvals_server::ApprovalsServer, audit_server::AuditServer, policies_server::PoliciesServer,
        sessions_server::SessionsServer, terminals_server::TerminalsServer,
    },
    sandbox::{
        governing::GoverningError,
        host::{Host, HostCgroupError},
        host_ids,
    },
    session::{DescriptorQuota, LaunchContext, Persistence, Sessions},
    terminal::{self, Terminals},
};

/// The largest request: one frame of the control protocol holds it, with room for what the gateway adds.
const REQUEST_MAX_BYTES: usize = 3 << 20;
/// Requests of one connection that may be under way at once; more wait in the client.
const STREAMS_PER_CONNECTION: u32 = 4_096;
/// How much of one stream may be under way towards the gateway.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// Of all streams of a connection together.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;
/// HTTP/2 frames of this size are taken. Memory is taken for a frame when its length is known.
const FRAME_BYTES: u32 = 64 << 10;
/// The headers of one call.
const HEADERS_BYTES: u32 = 16 << 10;
/// Calls that a client takes back before they are looked at, and streams that the gateway resets, at once on a
/// connection: with more of them it is closed.
const PENDING_RESETS_MAX: usize = 64;
const ERROR_RESETS_MAX: usize = 256;
/// A connection without any traffic is asked this often whether it lives.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// And must have answered in this time.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long streams may take to end when nothing is left that they could tell of.
const STREAMS_END_TIMEOUT: Duration = Duration::from_secs(2);
/// Requests of one user whose file systems are looked at, and that are judged, at once; more wait.
const FILE_SYSTEM_REQUESTS_PER_USER: usize = 4;
/// Of all users.
const FILE_SYSTEM_REQUESTS: usize = 64;
/// Large requests of one user that are judged at once. None are shared: one that hangs keeps nobody else's waiting.
const LARGE_REQUESTS_PER_USER: usize = 1;
/// Callers that may wait for a reload of the policy; more wait before that.
const RELOAD_REQUESTS_MAX: usize = 16;
/// The longest that a finished terminal may be kept beyond its time.
const COLLECT_INTERVAL_MAX: Duration = Duration::from_secs(30);

/// Why a gateway did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The configuration or the policy cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The socket cannot be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Others could change what governs the commands.
    #[error(transparent)]
    Distrust(#[from] TrustError),
    /// Commands would reach what governs them.
    #[error(transparent)]
    Conflict(#[from] GoverningConflict),
    /// Commands that a gateway before this one has left running reach what would govern them.
    #[error(
        "session {session} of the gateway before still runs commands, and {error} ({}): end it under the \
         configuration that it was opened under, or with `provost reap --state STATE --all`",
        crate::printable::path(error.governing())
    )]
    AdoptedConflict {
        /// The session.
        session: String,
        /// The root, and what it reaches.
        error: GoverningError,
    },
    /// The state directory cannot be used.
    #[error("cannot use the state directory {}", crate::printable::path(path))]
    State {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another gateway has it.
    #[error("the state directory {} belongs to a gateway that runs", crate::printable::path(.0))]
    StateInUse(PathBuf),
    /// Another build, with another format, has written the state directory.
    #[error(
        "the state directory {} has format {found}, and this build uses format {format}: start the build that wrote it, \
         stop that build with SIGINT, which ends its commands, and move the directory away",
        crate::printable::path(path),
        format = state_directory::FORMAT
    )]
    StateFormat {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: String,
    },
    /// The configured cgroup cannot be used.
    #[error(transparent)]
    Cgroup(#[from] HostCgroupError),
    /// The journal cannot be kept.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The metrics cannot be served.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// Signals cannot be watched.
    #[error("cannot watch for signals")]
    Signals(#[source] io::Error),
    /// The API cannot be described.
    #[error("cannot describe the API for reflection")]
    Reflection(#[source] tonic_reflection::server::Error),
    /// The server failed.
    #[error("the server failed")]
    Transport(#[from] tonic::transport::Error),
}

/// Serves until SIGTERM or SIGINT, then ends as [`draining`] says.
pub async fn serve(config: Config) -> Result<(), ServeError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Signals)?;
    let hangup = signal(SignalKind::hangup()).map_err(ServeError::Signals)?;
    let scan_hangup = signal(SignalKind::hangup()).map_err(ServeError::Signals)?;
    let inherited = socket::from_service_manager(&config.listen)?;
    admission::raise_descriptor_limit();
    let gateway = Gateway::open(&config)?;
    gateway.terminals.launch_context().host.protect_gateway();
    let endpoint = match &config.metrics {
        Some(address) => Some(metrics::Endpoint::bind(address).await?),
        None => None,
    };
    let quarantined = adoption::adopt(&gateway.state, &gateway.sessions, &gateway.terminals).await?;
    let exposition = metrics::exposition_of(
        &gateway.terminals,
        &gateway.sessions,
        &gateway.admission,
        quarantined.clone(),
    );
    let rescan =
        quarantined.keep_rescanning(gateway.sessions.clone(), gateway.terminals.clone(), scan_hangup);
    let _rescan = AbortOnDropHandle::new(tokio::spawn(rescan));
    let _metrics = endpoint.map(|endpoint| AbortOnDropHandle::new(tokio::spawn(endpoint.serve(exposition))));
    let socket = match inherited {
        Some(passed) => passed,
        None => socket::bind(&config.listen, config.socket_mode)?,
    };
    notify_systemd(NotifyState::Ready);
    tracing::info!(listen = %crate::printable::path(&config.listen), state = %crate::printable::path(&gateway.state.directory), "serving");

    let shutdown = ShutdownSignal::default();
    let signals = drain::watch_signals(&mut terminate, &mut interrupt, &shutdown);
    tokio::select! {
        served = gateway.serve(socket, &shutdown, Some(hangup)) => served,
        never = signals => match never {},
    }
}

/// What callers may call, for whoever looks around. Decoding it takes about a millisecond.
fn reflection_service() -> Result<ServerReflectionServer<impl ServerReflection>, ServeError> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(v1::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .map_err(ServeError::Reflection)
}

/// Tells whoever started this process, where it wants to know (sd_notify(3)).
fn notify_systemd(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(error = %error, "cannot tell the service manager");
    }
}

/// A gateway, put together and not yet listening.
struct Gateway {
    state: StateDirectory,
    admission: Arc<Admission>,
    sessions: Arc<Sessions>,
    terminals: Arc<Terminals>,
    policy_reloader: PolicyReloader,
    finished_kept: Duration,
    drain_timeout: Duration,
    on_stop: OnStop,
}

impl Gateway {
    fn open(config: &Config) -> Result<Self, ServeError> {
        let config = &config.with_absolute_paths()?;
        path_trust::check_trust_at_start(config)?;
        let stamps_before = PolicyReloader::stamps_before_load(&config.policies);
        let loaded = config.policies.load()?;
        let named_paths = path_trust::policy_paths(&config.policies, &loaded);
        path_trust::check_trust(&named_paths)?;
        let policy = Arc::new(ActivePolicy::new(loaded, policy_reload::now_unix_ms()));
        let state = StateDirectory::open(&config.state)?;
        let governing = Arc::new(path_trust::governing_paths(config));
        let recorder = journal_lifecycle::open(config.journal.as_ref(), &state.directory)?;
        journal_lifecycle::record_start(&recorder, &policy.current());
        let ids = host_ids::HostIdRange::new(
            config.ids.first,
            config.ids.count / 2,
            host_ids::DEFAULT_LOCKS.into(),
        );
        let mut host = Host::detect().with_ids(ids).with_principal_limits(config.caps.principal_limits());
        if let Some(cgroup) = &config.cgroup {
            host = host.with_cgroup(cgroup)?;
        }
        let pool = Arc::new(Pool::new(FILE_SYSTEM_REQUESTS_PER_USER, FILE_SYSTEM_REQUESTS));
        let (own_uid, descriptors_max) = (nix::unistd::geteuid().as_raw(), admission::descriptors_max());
        let descriptors = DescriptorQuota::new(own_uid, descriptors_max);
        let site = LaunchContext {
            host: Arc::new(host),
            pool: pool.clone(),
            large_request_pool: Pool::new(LARGE_REQUESTS_PER_USER, 0),
            state: state.directory.clone(),
            descriptors: descriptors.clone(),
            governing: governing.clone(),
            die_with_gateway: config.die_with_gateway == DieWithGateway::Yes,
            counters: Arc::default(),
        };
        // While the rest of the gateway is being opened.
        site.host.prewarm_launcher(&site.state);
        let store = match config.die_with_gateway {
            DieWithGateway::Yes => Persistence::InMemory,
            DieWithGateway::No => Persistence::InFiles,
        };
        let sessions_max = config.caps.sessions_per_principal;
        let sessions =
            Sessions::new(state.directory.clone(), governing.clone(), store, sessions_max, pool, descriptors);
        let sessions = Arc::new(sessions);
        path_trust::replace(&governing, named_paths, (&policy.current(), &policy.current()), &sessions)?;
        let observer = terminal::approval_observer(recorder.clone());
        let approvals =
            ApprovalStore::new(config.approvals.clone(), nix::unistd::geteuid().as_raw(), observer);
        Ok(Self {
            terminals: Terminals::new(site, policy.clone(), approvals.clone(), config.caps, recorder.clone()),
            policy_reloader: PolicyReloader {
                source: config.policies.clone(),
                in_force: policy,
                approvals,
                recorder,
                loaded_stamps: stamps_before,
                governing,
                sessions: sessions.clone(),
            },
            sessions,
            admission: Admission::new(nix::unistd::geteuid().as_raw(), admission::descriptors_max()),
            state,
            finished_kept: config.finished_kept,
            drain_timeout: config.drain,
            on_stop: config.on_stop,
        })
    }

    /// Serves until it is ordered to end. `hangup` loads the policy again.
    async fn serve(
        &self,
        socket: BoundSocket,
        shutdown: &ShutdownSignal,
        hangup: Option<Signal>,
    ) -> Result<(), ServeError> {
        let stop_listening = CancellationToken::new();
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_serving::<TerminalsServer<TerminalsService>>().await;
        health.set_serving::<SessionsServer<SessionsService>>().await;
        // An embedded one, which is told to load nothing again, has one client, who knows what to call.
        let reflection = match &hangup {
            Some(_) => Some(reflection_service()?),
            None => None,
        };
        let (sessions, terminals) = (self.sessions.clone(), self.terminals.clone());
        let sessions = SessionsService { sessions, terminals };
        let (all_sessions, terminals) = (self.sessions.clone(), self.terminals.clone());
        let terminals = TerminalsService { sessions: all_sessions, terminals };
        let approvals =
            ApprovalsService { sessions: self.sessions.clone(), terminals: self.terminals.clone() };
        let (reload_sender, mut reload_requests) = mpsc::channel(RELOAD_REQUESTS_MAX);
        let policies = PoliciesService {
            sessions: self.sessions.clone(),
            terminals: self.terminals.clone(),
            reloads: reload_sender,
        };

        let connections = AdmittedConnections::new(socket, self.admission.clone());
        let server = tonic::transport::Server::builder()
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES)
            .max_concurrent_streams(STREAMS_PER_CONNECTION)
            .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
            .http2_max_header_list_size(HEADERS_BYTES)
            .http2_max_pending_accept_reset_streams(Some(PENDING_RESETS_MAX))
            .http2_max_local_error_reset_streams(Some(ERROR_RESETS_MAX))
            .layer(AdmissionLayer(self.admission.clone()))
            .add_service(health_service)
            .add_optional_service(reflection)
            .add_service(SessionsServer::new(sessions).max_decoding_message_size(REQUEST_MAX_BYTES))
            .add_service(TerminalsServer::new(terminals).max_decoding_message_size(REQUEST_MAX_BYTES))
            .add_service(PoliciesServer::new(policies).max_decoding_message_size(REQUEST_MAX_BYTES))
            .add_service(ApprovalsServer::new(approvals).max_decoding_message_size(REQUEST_MAX_BYTES))
            .add_service(AuditServer::new(AuditService::new(self.terminals.clone())))
            .serve_with_incoming_shutdown(connections, stop_listening.clone().cancelled_owned());
        tokio::pin!(server);

        let reload_loop = self.policy_reloader.run(hangup, &mut reload_requests);
        tokio::select! {
            served = &mut server => return Ok(served?),
            never = reload_loop => match never {},
            () = self.release_expired() => {}
            () = self.terminals.approvals().expire_due() => {}
            never = self.terminals.recorder().write_repeated_refusals() => match never {},
            never = journal_lifecycle::report_health(self.terminals.recorder(), &health) => match never {},
            () = shutdown.drain.cancelled() => {}
        }
        self.terminals.drain();
        health.set_not_serving::<TerminalsServer<TerminalsService>>().await;
        health.set_not_serving::<SessionsServer<SessionsService>>().await;
        // The API answers to the last: waits and streams end with what became of their terminals.
        tokio::select! {
            served = &mut server => served?,
            outcome = self.drain(shutdown) => {
                journal_lifecycle::close(self.terminals.recorder(), outcome).await;
            }
        }
        stop_listening.cancel();
        tokio::select! {
            in_time = timeout(STREAMS_END_TIMEOUT, &mut server) => if in_time.is_err() {
                tracing::info!("connections that did not end were dropped");
            },
            () = shutdown.force.cancelled() => {}
        }
        self.terminals.launch_context().host.remove_cgroups();
        let counters = self.terminals.counters();
        tracing::info!(
            terminals.created = counters.created.read(),
            terminals.adopted = counters.adopted.read(),
            terminals.started = counters.started.read(),
            terminals.refused = counters.refused.read(),
            terminals.failed = counters.failed.read(),
            terminals.finished = counters.finished(),
            terminals.lost = counters.ended.get(v1::ExitCause::SandboxLost),
            terminals.released = counters.released.read(),
            terminals.collected = counters.collected.read(),
            "ended"
        );
        Ok(())
    }

    /// Releases finished terminals that nobody has released in time. Never ends.
    async fn release_expired(&self) {
        let period = (self.finished_kept / 4).clamp(Duration::from_millis(100), COLLECT_INTERVAL_MAX);
        let mut due = interval(period);
        loop {
            due.tick().await;
            self.terminals.collect_finished(self.finished_kept).await;
        }
    }
}

/// A gateway inside this process, for one command. Its directory is private, and goes with it.
#[derive(Debug)]
pub struct Embedded {
    uri: String,
    directory: PathBuf,
    shutdown: ShutdownSignal,
    serving: tokio::task::JoinHandle<Result<(), ServeError>>,
}

/// Starts a gateway of this process's own. The configuration's socket and state directory are not looked at: both are
/// made again, for this process only.
pub async fn embed(mut config: Config) -> Result<Embedded, ServeError> {
    let directory = embedded_directory::create()?;
    config.listen = directory.join("provost.sock");
    config.state = directory.join("state");
    let started = Gateway::open(&config)
        .and_then(|gateway| Ok((gateway, socket::bind(&config.listen, config.socket_mode)?)));
    let (gateway, listening) = match started {
        Ok(started) => started,
        Err(error) => {
            embedded_directory::remove(&directory);
            return Err(error);
        }
    };
    let uri = format!("unix:{}", config.listen.display());
    let shutdown = ShutdownSignal::default();
    let gateway_shutdown = shutdown.clone();
    let serving = tokio::spawn(async move { gateway.serve(listening, &gateway_shutdown, None).await });
    Ok(Embedded { uri, directory, shutdown, serving })
}

impl Embedded {
    /// Where it listens, for [`client::connect`](crate::client::connect).
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Stops everything and takes everything away. Returns when nothing is left.
    pub async fn close(self) -> Result<(), ServeError> {
        self.shutdown.stop_all();
        let served = self.serving.await;
        embedded_directory::remove(&self.directory);
        served.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()))
    }
}
