//! Before a request is given a secret: its value is masked in what the commands write that may get it back.
//!
//! The file of a secret may have changed since a command began, and the server may say the new value again.

use super::{connect_attempt::Wanted, connections::Connections};
use crate::policy::profile::Network;

impl Connections {
    /// Masks these values in the output of the terminal that a request belongs to, or of all that it may belong to. An error says why that is
    /// not possible: the request is refused then.
    pub(super) fn mask_values(&self, wanted: Wanted<'_>, values: &[Vec<u8>]) -> Result<(), String> {
        if values.is_empty() {
            return Ok(());
        }
        for terminal in self.asking_terminals(wanted) {
            let Some(live) = terminal.live().filter(|_| terminal.spec.network == Network::Proxy.name())
            else {
                continue;
            };
            // Masking works on a stream of bytes; a reader of the screen would see it.
            if terminal.pty_size().is_some() && !live.masker.masks_any() {
                return Err(
                    "its secret could not be read when the command began, and its screen cannot be masked"
                        .to_owned(),
                );
            }
            for value in values {
                live.masker.add(value).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }
}
