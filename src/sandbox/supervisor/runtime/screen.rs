//! Takes the socket by which the process that keeps a terminal's screen is notified of output. That process may not read, or
//! be hostile: nothing waits for it.

use std::os::fd::OwnedFd;

use nix::errno::Errno;

use super::{screen_notifier::ScreenNotifier, state::Runtime};
use crate::proto::supervisor::NotifyScreen;

impl Runtime {
    /// Sets the socket of a terminal.
    pub(super) fn notify_screen(
        &mut self,
        request: &NotifyScreen,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Errno> {
        let [socket] = <[OwnedFd; 1]>::try_from(descriptors).map_err(|_| Errno::EINVAL)?;
        let key = self.key_of(&request.terminal_id)?;
        let terminal = self.terminals.get_mut(key).ok_or(Errno::ENOENT)?;
        let notifier = ScreenNotifier::new(socket);
        // For what was written before.
        terminal.screen = notifier.notify().then_some(notifier);
        Ok(())
    }
}
