//! Reports the state of this process to the service manager that started it.

use sd_notify::NotifyState;

/// Notifies the service manager, if it has asked for that (sd_notify(3)).
pub(super) fn notify_systemd(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(error = %error, "cannot tell the service manager");
    }
}
