//! The gateway: composition, listening, drain.
//!
//! [`serve`] is `provost serve`; [`embed`] is a private gateway inside another command, which leaves nothing
//! behind. Nothing here knows of commands or output: it puts the parts together and takes them apart.

#![forbid(unsafe_code)]

mod admission;
mod adoption;
mod config;
mod draining;
mod governing;
mod journaling;
mod listen;
mod looking;
mod metrics;
pub mod policies;
mod private;
pub mod quarantine;
mod reload;
mod state;
mod threads;

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use admission::{Admission, CallLayer};
pub use config::{
    Config, ConfigError, DieWithGateway, IdRange, PolicySource, default_listen, default_state, parse_listen,
};
pub use draining::OnStop;
use draining::Orders;
pub use governing::{Conflict, Distrust};
pub use journaling::{JournalConfig, JournalError};
pub use listen::ListenError;
use listen::{Accepting, Listening};
pub use metrics::{MetricsAddress, MetricsError};
use reload::Reloading;
use sd_notify::NotifyState;
use state::State;
pub use threads::runtime;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
    time::{interval, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};

use crate::{
    approval::Book,
    grpc::{ApprovalsService, AuditService, PoliciesService, SessionsService, TerminalsService},
    policy::InForce,
    pool::Pool,
    proto::v1::{
        self, approvals_server::ApprovalsServer, audit_server::AuditServer, policies_server::PoliciesServer,
        sessions_server::SessionsServer, terminals_server::TerminalsServer,
    },
    sandbox::{
        governing::GoverningError,
        host::{GroupError, Host},
        identity,
    },
    session::{Descriptors, Keeping, Sessions, Site},
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
const RESETS_PENDING: usize = 64;
const RESETS_OF_ERRORS: usize = 256;
/// A connection without any traffic is asked this often whether it lives.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// And must have answered in this time.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long streams may take to end when nothing is left that they could tell of.
const STREAMS_END: Duration = Duration::from_secs(2);
/// Requests of one user whose file systems are looked at, and that are judged, at once; more wait.
const HOST_LOOKS_PER_USER: usize = 4;
/// Of all users.
const HOST_LOOKS: usize = 64;
/// Large requests of one user that are judged at once. None are shared: one that hangs keeps nobody else's waiting.
const LARGE_PER_USER: usize = 1;
/// Callers that may wait for a reload of the policy; more wait before that.
const RELOADS_ASKED: usize = 16;
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
    Distrust(#[from] Distrust),
    /// Commands would reach what governs them.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// Commands that a gateway before this one has left running reach what would govern them.
    #[error(
        "session {session} of the gateway before still runs commands, and {error} ({}): end it under the \
         configuration that it was opened under, or with `provost reap --state STATE --all`",
        crate::printable::path(error.governing())
    )]
    Adopted {
        /// The session.
        session: String,
        /// The root, and what it reaches.
        error: GoverningError,
    },
    /// The state folder cannot be used.
    #[error("cannot use the state folder {}", crate::printable::path(path))]
    State {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another gateway has it.
    #[error("the state folder {} belongs to a gateway that runs", crate::printable::path(.0))]
    StateInUse(PathBuf),
    /// The configured cgroup cannot be used.
    #[error(transparent)]
    Group(#[from] GroupError),
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
    let hangup_too = signal(SignalKind::hangup()).map_err(ServeError::Signals)?;
    let passed = listen::take_passed(&config.listen)?;
    admission::raise_descriptors();
    let gateway = Gateway::open(&config)?;
    gateway.terminals.site().host.protect_gateway();
    let endpoint = match &config.metrics {
        Some(address) => Some(metrics::Endpoint::bind(address).await?),
        None => None,
    };
    let left = adoption::adopt(&gateway.state, &gateway.sessions, &gateway.terminals).await?;
    let page = metrics::page(&gateway.terminals, &gateway.sessions, &gateway.admission, left.clone());
    let again = left.look_again(gateway.sessions.clone(), gateway.terminals.clone(), hangup_too);
    let _again = AbortOnDropHandle::new(tokio::spawn(again));
    let _metrics = endpoint.map(|endpoint| AbortOnDropHandle::new(tokio::spawn(endpoint.serve(page))));
    let listening = match passed {
        Some(passed) => passed,
        None => listen::bind(&config.listen, config.socket_mode)?,
    };
    tell_systemd(NotifyState::Ready);
    tracing::info!(listen = %crate::printable::path(&config.listen), state = %crate::printable::path(&gateway.state.folder), "serving");

    let orders = Orders::default();
    let signals = draining::watch_signals(&mut terminate, &mut interrupt, &orders);
    tokio::select! {
        served = gateway.serve(listening, &orders, Some(hangup)) => served,
        never = signals => match never {},
    }
}

/// What callers may call, for whoever looks around. Decoding it takes about a millisecond.
fn describe() -> Result<ServerReflectionServer<impl ServerReflection>, ServeError> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(v1::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .map_err(ServeError::Reflection)
}

/// Tells whoever started this process, where it wants to know (sd_notify(3)).
fn tell_systemd(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(error = %error, "cannot tell the service manager");
    }
}

/// A gateway, put together and not yet listening.
struct Gateway {
    state: State,
    admission: Arc<Admission>,
    sessions: Arc<Sessions>,
    terminals: Arc<Terminals>,
    reloading: Reloading,
    finished_kept: Duration,
    drain_limit: Duration,
    on_stop: OnStop,
}

impl Gateway {
    fn open(config: &Config) -> Result<Self, ServeError> {
        let config = &config.completed()?;
        governing::must_be_trusted_at_start(config)?;
        let seen = Reloading::before(&config.policies);
        let loaded = config.policies.load()?;
        let named = governing::of_policy(&config.policies, &loaded);
        governing::must_be_trusted(&named)?;
        let policy = Arc::new(InForce::new(loaded, reload::now_unix_ms()));
        let state = State::open(&config.state)?;
        let governing = Arc::new(governing::governing(config));
        let recorder = journaling::open(config.journal.as_ref(), &state.folder)?;
        journaling::note_start(&recorder, &policy.current());
        let ids =
            identity::IdRange::new(config.ids.first, config.ids.count / 2, identity::DEFAULT_LOCKS.into());
        let mut host = Host::probe().with_ids(ids).with_principal_limits(config.caps.of_a_principal());
        if let Some(group) = &config.cgroup {
            host = host.with_group(group)?;
        }
        let pool = Arc::new(Pool::new(HOST_LOOKS_PER_USER, HOST_LOOKS));
        let (own_uid, most) = (nix::unistd::geteuid().as_raw(), admission::descriptors_max());
        let descriptors = Descriptors::new(own_uid, most);
        let site = Site {
            host: Arc::new(host),
            pool: pool.clone(),
            large: Pool::new(LARGE_PER_USER, 0),
            state: state.folder.clone(),
            descriptors: descriptors.clone(),
            governing: governing.clone(),
            die_with_gateway: config.die_with_gateway == DieWithGateway::Yes,
            sandboxes: Arc::default(),
        };
        // While the rest of the gateway is being opened.
        site.host.expect_launch(&site.state);
        let keeping = match config.die_with_gateway {
            DieWithGateway::Yes => Keeping::InMemory,
            DieWithGateway::No => Keeping::InFiles,
        };
        let most = config.caps.sessions_per_principal;
        let sessions =
            Sessions::new(state.folder.clone(), governing.clone(), keeping, most, pool, descriptors);
        let sessions = Arc::new(sessions);
        governing::replace(&governing, named, (&policy.current(), &policy.current()), &sessions)?;
        let witness = terminal::witness(recorder.clone());
        let approvals = Book::new(config.approvals.clone(), nix::unistd::geteuid().as_raw(), witness);
        Ok(Self {
            terminals: Terminals::new(site, policy.clone(), approvals.clone(), config.caps, recorder.clone()),
            reloading: Reloading {
                source: config.policies.clone(),
                in_force: policy,
                approvals,
                recorder,
                seen,
                governing,
                sessions: sessions.clone(),
            },
            sessions,
            admission: Admission::new(nix::unistd::geteuid().as_raw(), admission::descriptors_max()),
            state,
            finished_kept: config.finished_kept,
            drain_limit: config.drain,
            on_stop: config.on_stop,
        })
    }

    /// Serves until it is ordered to end. `hangup` loads the policy anew.
    async fn serve(
        &self,
        listening: Listening,
        orders: &Orders,
        hangup: Option<Signal>,
    ) -> Result<(), ServeError> {
        let stop_listening = CancellationToken::new();
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_serving::<TerminalsServer<TerminalsService>>().await;
        health.set_serving::<SessionsServer<SessionsService>>().await;
        // An embedded one, which is told to load nothing anew, has one client, who knows what to call.
        let reflection = match &hangup {
            Some(_) => Some(describe()?),
            None => None,
        };
        let (sessions, terminals) = (self.sessions.clone(), self.terminals.clone());
        let sessions = SessionsService { sessions, terminals };
        let (sessions_too, terminals) = (self.sessions.clone(), self.terminals.clone());
        let terminals = TerminalsService { sessions: sessions_too, terminals };
        let approvals =
            ApprovalsService { sessions: self.sessions.clone(), terminals: self.terminals.clone() };
        let (reloads, mut asked) = mpsc::channel(RELOADS_ASKED);
        let policies =
            PoliciesService { sessions: self.sessions.clone(), terminals: self.terminals.clone(), reloads };

        let accepting = Accepting::new(listening, self.admission.clone());
        let server = tonic::transport::Server::builder()
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES)
            .max_concurrent_streams(STREAMS_PER_CONNECTION)
            .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
            .http2_max_header_list_size(HEADERS_BYTES)
            .http2_max_pending_accept_reset_streams(Some(RESETS_PENDING))
            .http2_max_local_error_reset_streams(Some(RESETS_OF_ERRORS))
            .layer(CallLayer(self.admission.clone()))
            .add_service(health_service)
            .add_optional_service(reflection)
            .add_service(SessionsServer::new(sessions).max_decoding_message_size(REQUEST_MAX_BYTES))
            .add_service(TerminalsServer::new(terminals).max_decoding_message_size(REQUEST_MAX_BYTES))
            .add_service(PoliciesServer::new(policies).max_decoding_message_size(REQUEST_MAX_BYTES))
            .add_service(ApprovalsServer::new(approvals).max_decoding_message_size(REQUEST_MAX_BYTES))
            .add_service(AuditServer::new(AuditService::new(self.terminals.clone())))
            .serve_with_incoming_shutdown(accepting, stop_listening.clone().cancelled_owned());
        tokio::pin!(server);

        let reloading = self.reloading.watch(hangup, &mut asked);
        tokio::select! {
            served = &mut server => return Ok(served?),
            never = reloading => match never {},
            () = self.collect() => {}
            () = self.terminals.approvals().expire() => {}
            never = self.terminals.recorder().write_repeated_refusals() => match never {},
            never = journaling::tell_health(self.terminals.recorder(), &health) => match never {},
            () = orders.drain.cancelled() => {}
        }
        self.terminals.drain();
        health.set_not_serving::<TerminalsServer<TerminalsService>>().await;
        health.set_not_serving::<SessionsServer<SessionsService>>().await;
        // The API answers to the last: waits and streams end with what became of their terminals.
        tokio::select! {
            served = &mut server => served?,
            drained = self.wind_up(orders) => {
                journaling::end(self.terminals.recorder(), drained).await;
            }
        }
        stop_listening.cancel();
        tokio::select! {
            in_time = timeout(STREAMS_END, &mut server) => if in_time.is_err() {
                tracing::info!("connections that did not end were dropped");
            },
            () = orders.hurry.cancelled() => {}
        }
        self.terminals.site().host.remove_groups();
        let counted = self.terminals.counters();
        tracing::info!(
            terminals.created = counted.created.read(),
            terminals.adopted = counted.adopted.read(),
            terminals.started = counted.started.read(),
            terminals.refused = counted.refused.read(),
            terminals.failed = counted.failed.read(),
            terminals.finished = counted.finished(),
            terminals.lost = counted.ended.of(v1::Cause::SandboxLost),
            terminals.released = counted.released.read(),
            terminals.collected = counted.collected.read(),
            "ended"
        );
        Ok(())
    }

    /// Releases finished terminals that nobody has released in time. Never ends.
    async fn collect(&self) {
        let period = (self.finished_kept / 4).clamp(Duration::from_millis(100), COLLECT_INTERVAL_MAX);
        let mut due = interval(period);
        loop {
            due.tick().await;
            self.terminals.collect(self.finished_kept).await;
        }
    }
}

/// A gateway inside this process, for one command. Its folder is private, and goes with it.
#[derive(Debug)]
pub struct Embedded {
    uri: String,
    folder: PathBuf,
    orders: Orders,
    serving: tokio::task::JoinHandle<Result<(), ServeError>>,
}

/// Starts a gateway of this process's own. The configuration's socket and state folder are not looked at: both are
/// made anew, for this process only.
pub async fn embed(mut config: Config) -> Result<Embedded, ServeError> {
    let folder = private::make()?;
    config.listen = folder.join("provost.sock");
    config.state = folder.join("state");
    let started = Gateway::open(&config)
        .and_then(|gateway| Ok((gateway, listen::bind(&config.listen, config.socket_mode)?)));
    let (gateway, listening) = match started {
        Ok(started) => started,
        Err(error) => {
            private::remove(&folder);
            return Err(error);
        }
    };
    let uri = format!("unix:{}", config.listen.display());
    let orders = Orders::default();
    let its = orders.clone();
    let serving = tokio::spawn(async move { gateway.serve(listening, &its, None).await });
    Ok(Embedded { uri, folder, orders, serving })
}

impl Embedded {
    /// Where it listens, for [`client::connect`](crate::client::connect).
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Stops everything and takes everything away. Returns when nothing is left.
    pub async fn close(self) -> Result<(), ServeError> {
        self.orders.stop_all();
        let served = self.serving.await;
        private::remove(&self.folder);
        served.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()))
    }
}
