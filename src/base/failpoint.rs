//! Failpoints: places at which a test can kill the gateway, and a protocol version that a test can set. Without the feature
//! `failpoints` every function here is empty.
//!
//! A crash is SIGKILL: nothing is cleaned up, as when the kernel or a user kills a process. Environment variables select
//! the failpoint, so that the real binary is tested. No failpoint changes a decision of the gateway.

use crate::wire::versions;

/// Kills this process if a test has selected this failpoint: `PROVOST_CRASH_AT=NAME`, or `NAME:N` for the Nth call.
#[inline]
pub fn reach(place: &str) {
    #[cfg(feature = "failpoints")]
    crash::reach(place);
    #[cfg(not(feature = "failpoints"))]
    let _ = place;
}

/// The versions of the control protocol that this process speaks: those of this build, or the version that a test sets by
/// `PROVOST_PROTOCOL_VERSION`.
#[must_use]
pub fn spoken_versions() -> (u32, u32) {
    versions::spoken_by(wanted_version().unwrap_or(versions::CURRENT))
}

fn wanted_version() -> Option<u32> {
    #[cfg(feature = "failpoints")]
    return std::env::var(PROTOCOL_VARIABLE).ok()?.parse().ok();
    #[cfg(not(feature = "failpoints"))]
    None
}

/// The environment variable that a launcher inherits from the gateway; none in a build without failpoints.
#[must_use]
pub fn launcher_environment() -> Option<(&'static str, String)> {
    wanted_version().map(|version| (PROTOCOL_VARIABLE, version.to_string()))
}

const PROTOCOL_VARIABLE: &str = "PROVOST_PROTOCOL_VERSION";

#[cfg(feature = "failpoints")]
mod crash {
    use std::sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    };

    use nix::{
        sys::signal::{Signal, kill},
        unistd::Pid,
    };

    const VARIABLE: &str = "PROVOST_CRASH_AT";

    /// The selected failpoint, and how many calls are left until the crash.
    static WANTED: OnceLock<Option<(String, AtomicU64)>> = OnceLock::new();

    pub(super) fn reach(place: &str) {
        let wanted = WANTED.get_or_init(|| {
            let text = std::env::var(VARIABLE).ok()?;
            let (name, times) = match text.rsplit_once(':') {
                Some((name, times)) => (name.to_owned(), times.parse().ok()?),
                None => (text, 1),
            };
            Some((name, AtomicU64::new(times)))
        });
        let Some((name, left)) = wanted else { return };
        if name == place && left.fetch_sub(1, Ordering::SeqCst) == 1 {
            // A signal to the own process cannot fail.
            let _ = kill(Pid::this(), Signal::SIGKILL);
            loop {
                std::thread::park();
            }
        }
    }
}
