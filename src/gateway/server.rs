//! The gRPC server of a gateway: its services, its limits, and its way from the first connection to the end of the
//! drain.

use std::time::Duration;

use tokio::{
    signal::unix::Signal,
    sync::mpsc,
    time::{interval, timeout},
};
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;

use super::{
    admission::{AdmissionLayer, REQUEST_MAX_BYTES},
    authority::ValidAuthority,
    composition::Gateway,
    error::ServeError,
    journal_lifecycle,
    shutdown::ShutdownSignal,
    socket::{AdmittedConnections, BoundSocket},
};
use crate::{
    grpc::{
        ApprovalsService, AuditService, PoliciesService, ScreensService, SessionsService, TerminalsService,
    },
    proto::v1::{
        self, approvals_server::ApprovalsServer, audit_server::AuditServer, policies_server::PoliciesServer,
        screens_server::ScreensServer, sessions_server::SessionsServer, terminals_server::TerminalsServer,
    },
};

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
