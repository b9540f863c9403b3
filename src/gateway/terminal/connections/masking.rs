//! Before a request is given a secret: its value is masked in what the commands write that may get it back.
//!
//! The file of a secret may have changed since a command began, and the server may say the new value again.

use std::sync::Arc;

use crate::{
    policy::profile::Network,
    session::{Principal, SessionId},
    terminal::{
        connections::{attempt::Wanted, connections::Connections},
        state::terminal::Terminal,
    },
};

impl Connections {
    /// Masks these values in the output of all commands of the session that can reach the proxy: a request says which terminal it belongs
    /// to, and any of them can say another. An error says why that is not possible: the request is refused then.
    pub(in crate::terminal) fn mask_values(
        &self,
        wanted: Wanted<'_>,
        values: &[Vec<u8>],
    ) -> Result<(), String> {
        if values.is_empty() {
            return Ok(());
        }
        for terminal in self.running_terminals(wanted) {
            let spec = &terminal.spec;
            // Commands of another profile have another loopback.
            let can_ask =
                spec.network == Network::Proxy.name() && spec.profile.as_str() == wanted.owner.profile;
            let Some(live) = terminal.live().filter(|_| can_ask) else { continue };
            // Masking works on a stream of bytes; a reader of the screen would see it.
            if terminal.pty_size().is_some() && !live.masker.masks_any() {
                return Err(
                    "its secret could not be read when a command of the session began, whose screen \
                            cannot be masked"
                        .to_owned(),
                );
            }
            for value in values {
                live.masker.add(value).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// All that run in the session of a connection.
    pub(in crate::terminal) fn running_terminals(&self, wanted: Wanted<'_>) -> Vec<Arc<Terminal>> {
        let Some(session) = SessionId::parse(&wanted.owner.session_id) else { return Vec::new() };
        let principal = Principal { uid: wanted.owner.uid };
        let mut terminals = self.registry.list(principal, Some(session));
        terminals.retain(|terminal| !terminal.stage().is_over());
        terminals
    }
}
