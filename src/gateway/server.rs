//! `provost serve`, and the gRPC server of any gateway: its services, its limits, and its way from the first descriptor to the last signal
//! and the end of the drain.
//!
//! The drain waits for callers, then leaves the commands to the next gateway or stops them. What nobody uses is ended: sessions with a
//! name, and a gateway that was told to end when it is idle.

use std::{sync::Arc, time::Duration};

use sd_notify::NotifyState;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
    time::{Instant, interval, timeout, timeout_at},
};
use tokio_stream::StreamExt;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    admission::{self, AdmissionLayer, REQUEST_MAX_BYTES},
    adoption,
    authority::ValidAuthority,
    composition::{Gateway, ServeError},
    config::{Config, PolicySource},
    grpc::{
        ApprovalsService, AuditService, PoliciesService, ScreensService, SessionsService, TerminalsService,
    },
    journal_lifecycle::{self, DrainOutcome},
    metrics,
    proto::v1::{
        self, approvals_server::ApprovalsServer, audit_server::AuditServer, policies_server::PoliciesServer,
        screens_server::ScreensServer, sessions_server::SessionsServer, terminals_server::TerminalsServer,
    },
    session::{Lifetime, Session},
    shutdown::{self, OnStop, ShutdownSignal, notify_systemd},
    socket::{self, AdmittedConnections, BoundSocket},
    terminal::CloseReason,
};

/// Serves until SIGTERM or SIGINT, or until it is idle where it is to end then, and drains as [`shutdown`] says.
pub async fn serve(config: Config) -> Result<(), ServeError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Signals)?;
    let hangup = signal(SignalKind::hangup()).map_err(ServeError::Signals)?;
    let scan_hangup = signal(SignalKind::hangup()).map_err(ServeError::Signals)?;
    let inherited = socket::inherited(&config.listen)?;
    admission::raise_descriptor_limit();
    let gateway = Gateway::open(&config)?;
    gateway.terminals.launch_context().host.protect_gateway();
    if config.policies == PolicySource::CompiledInPreferringLimits {
        warn_of_missing_limits(&gateway);
    }
    let endpoint = match &config.metrics {
        Some(address) => Some(metrics::Endpoint::bind(address).await?),
        None => None,
    };
    let quarantined = adoption::adopt(&gateway.state, &gateway.sessions, &gateway.terminals).await?;
    let exposition = metrics::Exposition::new(
        gateway.terminals.clone(),
        gateway.sessions.clone(),
        gateway.admission.clone(),
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

    let shutdown_signal = ShutdownSignal::default();
    let signals = shutdown::watch_signals(&mut terminate, &mut interrupt, &shutdown_signal);
    let idle = async {
        match config.idle_exit {
            Some(limit) => gateway.watch_idle(limit, &shutdown_signal).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        served = gateway.serve(socket, &shutdown_signal, Some(hangup)) => served,
        never = signals => match never {},
        () = idle => Ok(()),
    }
}

/// Says once which limits commands run without; each sandbox's receipt says it again.
fn warn_of_missing_limits(gateway: &Gateway) {
    let host = &gateway.terminals.launch_context().host;
    for (controller, reason) in host.missing_controllers(&gateway.state.directory) {
        tracing::warn!(controller, reason = %crate::printable::line(&reason), "commands run without the limits of this controller");
    }
}

/// Requests of one connection that may be under way at once; more wait in the client.
const STREAMS_PER_CONNECTION: u32 = 4_096;
/// How much of one stream may be under way towards the gateway.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// How much of all streams of a connection together may be.
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
/// Callers that may wait for a reload of the policy; more wait before that.
const RELOAD_REQUESTS_MAX: usize = 16;
/// The longest that a finished terminal may be kept beyond its time.
const COLLECT_INTERVAL_MAX: Duration = Duration::from_secs(30);

impl Gateway {
    /// Serves until `shutdown` ends it. Each `hangup` loads the policy again.
    pub(super) async fn serve(
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
        let (reflection, reflection_v1alpha) = match &hangup {
            Some(_) => (
                Some(reflection_builder().build_v1().map_err(ServeError::Reflection)?),
                Some(reflection_builder().build_v1alpha().map_err(ServeError::Reflection)?),
            ),
            None => (None, None),
        };
        let (sessions, terminals) = (self.sessions.clone(), self.terminals.clone());
        let sessions = SessionsService { sessions, terminals };
        let (all_sessions, terminals) = (self.sessions.clone(), self.terminals.clone());
        let terminals = TerminalsService { sessions: all_sessions, terminals };
        let screens = ScreensService { sessions: self.sessions.clone(), terminals: self.terminals.clone() };
        let approvals =
            ApprovalsService { sessions: self.sessions.clone(), terminals: self.terminals.clone() };
        let (reload_sender, mut reload_requests) = mpsc::channel(RELOAD_REQUESTS_MAX);
        let policies = PoliciesService {
            sessions: self.sessions.clone(),
            terminals: self.terminals.clone(),
            reloads: reload_sender,
        };

        let connections = AdmittedConnections::new(socket, self.admission.clone())
            .map(|accepted| accepted.map(ValidAuthority::new));
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
            .add_optional_service(reflection_v1alpha)
            .add_service(SessionsServer::new(sessions).max_decoding_message_size(REQUEST_MAX_BYTES))
            .add_service(TerminalsServer::new(terminals).max_decoding_message_size(REQUEST_MAX_BYTES))
            .add_service(ScreensServer::new(screens).max_decoding_message_size(REQUEST_MAX_BYTES))
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
            () = self.close_unused_sessions() => {}
            () = self.terminals.approvals().expire_due() => {}
            never = self.terminals.recorder().write_repeated_denials() => match never {},
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
            terminals.lost = counters.ended.get(crate::terminal::CountedCause(v1::ExitCause::SandboxLost)),
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

/// Describes the API to clients that ask. Decoding the descriptors takes about a millisecond.
///
/// The reflection clients of grpcio and of C++ know only v1alpha.
fn reflection_builder() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(v1::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

/// However long was waited for callers: commands that are stopped have this time at least.
const STOP_TIMEOUT_MIN: Duration = Duration::from_secs(5);
/// How long the runs of callers that go away with the gateway may take to end, before they are left to the next one.
const RUNS_END_TIMEOUT: Duration = Duration::from_secs(5);

impl Gateway {
    /// The end of all that was begun. The API answers meanwhile.
    pub(super) async fn drain(&self, shutdown: &ShutdownSignal) -> DrainOutcome {
        let deadline = Instant::now() + self.drain_timeout;
        tokio::select! {
            in_time = timeout_at(deadline, self.terminals.waiters().wait_until_none()) => if in_time.is_err() {
                tracing::info!("the drain has taken its time: waits and streams end");
            },
            () = shutdown.stop.cancelled() => {}
            () = shutdown.force.cancelled() => {}
        }
        if self.on_stop == OnStop::Leave && !shutdown.stop.is_cancelled() {
            return self.leave_running(&shutdown.force).await;
        }
        let remaining = deadline.saturating_duration_since(Instant::now()).max(STOP_TIMEOUT_MIN);
        self.stop_sessions(remaining, &shutdown.force).await
    }

    /// Leaves what runs to the next gateway, but for what was run for callers that cannot come back.
    async fn leave_running(&self, force: &CancellationToken) -> DrainOutcome {
        self.terminals.leave_holds();
        tokio::select! {
            in_time = timeout(RUNS_END_TIMEOUT, self.terminals.end_runs()) => if in_time.is_err() {
                tracing::warn!("runs do not end: the next gateway will end them");
            },
            () = force.cancelled() => {}
        }
        DrainOutcome::LeftRunning { live_terminals: self.terminals.live_count() }
    }

    /// Closes every session: in good order for as long as that may take, then by force.
    async fn stop_sessions(&self, limit: Duration, force: &CancellationToken) -> DrainOutcome {
        let outcome;
        let graceful = timeout(limit, self.close_sessions(None));
        tokio::select! {
            in_time = graceful => {
                if in_time.is_ok() {
                    return DrainOutcome::InOrder;
                }
                tracing::warn!("drain took too long: killing what is left");
                outcome = DrainOutcome::TimedOut;
            }
            () = force.cancelled() => outcome = DrainOutcome::Forced,
        }
        let mut killing = tokio::task::JoinSet::new();
        for session in self.sessions.all() {
            killing.spawn(async move { session.sandboxes.kill().await });
        }
        killing.join_all().await;
        self.close_sessions(Some(Duration::ZERO)).await;
        outcome
    }

    async fn close_sessions(&self, grace: Option<Duration>) {
        let mut closing = tokio::task::JoinSet::new();
        for session in self.sessions.all() {
            let (terminals, sessions) = (self.terminals.clone(), self.sessions.clone());
            closing.spawn(async move {
                terminals.close_session(&sessions, &session, CloseReason::Shutdown, grace).await
            });
        }
        closing.join_all().await;
    }
}

/// How long a session with a name, and without an owner process, stays open without a command that runs.
pub(crate) const NAMED_SESSION_KEPT: Duration = Duration::from_secs(30 * 60);
/// How often it is looked for sessions that nobody uses.
const LOOK_INTERVAL: Duration = Duration::from_secs(15);
/// The shortest time between two looks at whether the gateway is idle.
const IDLE_LOOK_MIN: Duration = Duration::from_millis(50);

impl Gateway {
    /// Closes sessions with a name in which nothing has run for a time, unless they end with a process. Never ends.
    pub(super) async fn close_unused_sessions(&self) {
        let mut due = interval(LOOK_INTERVAL);
        loop {
            due.tick().await;
            let may_end =
                |session: &Arc<Session>| session.name.is_some() && session.lifetime == Lifetime::Explicit;
            for session in self.sessions.all().into_iter().filter(may_end) {
                let live = self.terminals.quotas().session_usage(session.id).live;
                if session.unused_for(live) >= NAMED_SESSION_KEPT {
                    self.terminals.close_session(&self.sessions, &session, CloseReason::Unused, None).await;
                }
            }
        }
    }

    /// Tells the gateway to end once it has had no session for so long. Never ends.
    pub(super) async fn watch_idle(&self, limit: Duration, shutdown: &ShutdownSignal) {
        let mut due = interval((limit / 4).max(IDLE_LOOK_MIN));
        let mut idle_since = Instant::now();
        while !shutdown.drain.is_cancelled() {
            due.tick().await;
            if self.sessions.count() > 0 {
                idle_since = Instant::now();
            } else if idle_since.elapsed() >= limit {
                tracing::info!("idle: draining");
                shutdown.drain.cancel();
            }
        }
        std::future::pending().await
    }
}
