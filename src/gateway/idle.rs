//! Ends what nobody uses: sessions with a name, and a gateway that was told to end when it is idle.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, interval};

use super::{composition::Gateway, shutdown::ShutdownSignal};
use crate::{
    session::{Lifetime, Session},
    terminal::CloseReason,
};

/// How long a session with a name, and without an owner process, stays open without a command that runs.
pub const NAMED_SESSION_KEPT: Duration = Duration::from_secs(30 * 60);
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
                let live = self.terminals.session_usage(session.id).live;
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
