//! `provost serve`: a gateway from its first descriptor to its last signal.

use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::task::AbortOnDropHandle;

use super::{
    admission, adoption,
    composition::Gateway,
    config::{Config, PolicySource},
    error::ServeError,
    metrics,
    shutdown::{self, ShutdownSignal},
    socket,
    systemd::notify_systemd,
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
