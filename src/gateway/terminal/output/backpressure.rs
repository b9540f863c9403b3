//! Backpressure: a reader can keep a terminal's output from being overwritten.
//!
//! With block-when-full the command waits for a reader of each ring, from the start on. One reader of a ring holds it; other
//! readers may miss bytes, which are counted. When the reader that holds a ring goes away, the ring waits for no reader; when
//! the last such reader of the terminal goes away, no ring does. The rings of a run wait for that run only.
//!
//! The hold of a stream, or of a resumable run, trails behind what was sent, and stays when the gateway ends or dies: its reader
//! comes back to the next one and has lost nothing (decisions 0194 and 0260).

use crate::terminal::{
    channel::Channel,
    spec::{Backpressure, ReaderKind},
    state::{claim::Claim, terminal::Terminal},
};

fn index(channel: Channel) -> usize {
    match channel {
        Channel::Stdout => 0,
        Channel::Stderr => 1,
    }
}

impl Terminal {
    /// Takes the hold of a ring: from `offset` on nothing is overwritten.
    pub(in crate::terminal) fn hold(&self, channel: Channel, offset: u64, reader: ReaderKind) -> Claim {
        let may = match self.spec.backpressure {
            Backpressure::Never => false,
            Backpressure::ForStream => reader == ReaderKind::Stream,
            Backpressure::ForRun | Backpressure::ForResumableRun => reader != ReaderKind::Stream,
        };
        let Some(live) = self.live().filter(|_| may) else { return Claim::Taken };
        let ring = match channel {
            Channel::Stdout => Some(&live.stdout),
            Channel::Stderr => live.stderr.as_ref(),
        };
        let Some(ring) = ring else { return Claim::Taken };
        {
            let mut held = self.holds.lock();
            if std::mem::replace(&mut held[index(channel)], true) {
                return Claim::Taken;
            }
            ring.set_hold(offset);
        }
        self.resume_stalled();
        Claim::Granted
    }

    /// Gives the hold of a ring back, by who has it.
    pub(in crate::terminal) fn release_hold(&self, channel: Channel) {
        if self.holds.is_left() {
            return;
        }
        let Some(live) = self.live() else { return };
        {
            let mut held = self.holds.lock();
            held[index(channel)] = false;
            let is_unheld = *held == [false; 2];
            // Under the lock, so that a hold taken meanwhile is not cleared.
            if is_unheld || channel == Channel::Stdout {
                live.stdout.clear_hold();
            }
            if let Some(stderr) = live.stderr.as_ref().filter(|_| is_unheld || channel == Channel::Stderr) {
                stderr.clear_hold();
            }
        }
        self.resume_stalled();
    }

    /// Notifies a supervisor that waits for a reader, without waiting for its answer.
    fn resume_stalled(&self) {
        let Some(live) = self.live() else { return };
        let stdout = live.stdout.take_stalled();
        let stderr = live.stderr.as_ref().is_some_and(crate::sys::ring::RingReader::take_stalled);
        // Outside of a runtime the gateway itself is ending.
        if (stdout || stderr)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (sandbox, id) = (live.sandbox.clone(), self.id.to_string());
            // A sandbox that is gone has nothing more to write.
            runtime.spawn(async move { sandbox.resume(id).await });
        }
    }
}
