//! Tells from outside whether anything of a command still lives: a named pipe in the workspace whose writing end
//! the command holds and all of its children inherit. The kernel says end-of-file when the last of them is gone,
//! whatever namespace, session or process group they had fled to.

use std::{
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use nix::{sys::stat::Mode, unistd::mkfifo};
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe::{OpenOptions, Receiver},
    time::Instant,
};

use super::fault::Fault;

/// How often a pipe that nobody has opened yet is looked at: it cannot be waited for.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A named pipe, read here.
pub(super) struct FifoProbe {
    path: PathBuf,
    receiver: Receiver,
    /// How long a start or an end may take.
    limit: Duration,
}

impl FifoProbe {
    /// Makes one in a directory that commands can write to. What takes hold of it, and what lets it go, must have done so
    /// within `limit`.
    pub(super) fn create_in(directory: &Path, limit: Duration) -> io::Result<Self> {
        let name = format!("fifo-probe-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = directory.join(name);
        mkfifo(&path, Mode::from_bits_truncate(0o600))?;
        let receiver = OpenOptions::new().open_receiver(&path)?;
        Ok(Self { path, receiver, limit })
    }

    /// A script that takes hold of the pipe and says so, and goes on with `script`. What is to live on writes to 9 again
    /// and again, so that it ends with the suite where a backend does not end it.
    pub(super) fn holding_script(&self, script: &str) -> String {
        format!("exec 9>'{}'; echo held >&9; {script}", self.path.display())
    }

    /// Waits until the command holds it.
    pub(super) async fn wait_until_held(&mut self) -> Result<(), Fault> {
        let begun = Instant::now();
        let mut byte = [0; 1];
        while begun.elapsed() < self.limit {
            // End-of-file: nobody has opened it yet.
            match tokio::time::timeout(self.limit, self.receiver.read(&mut byte)).await {
                Ok(Ok(1..)) => return Ok(()),
                Ok(Ok(0)) => tokio::time::sleep(POLL_INTERVAL).await,
                Ok(Err(error)) => return Err(Fault::Workspace(error)),
                Err(_) => break,
            }
        }
        Err(Fault::Silent { what: "the command's start".to_owned(), waited: self.limit })
    }

    /// Fails unless all that held it is gone within the limit.
    pub(super) async fn wait_until_released(&mut self) -> Result<(), Fault> {
        self.wait_until_released_within(self.limit).await
    }

    async fn wait_until_released_within(&mut self, limit: Duration) -> Result<(), Fault> {
        let mut buffer = [0; 4096];
        // A pipe that no command has opened would never report an end.
        drop(OpenOptions::new().open_sender(&self.path)?);
        let draining = async {
            loop {
                match self.receiver.read(&mut buffer).await {
                    Ok(0) => return Ok(()),
                    Ok(_) => {}
                    Err(error) => return Err(Fault::Workspace(error)),
                }
            }
        };
        match tokio::time::timeout(limit, draining).await {
            Ok(result) => result,
            Err(_) => Err(Fault::Unmet(format!("processes of the command still live {limit:?} later"))),
        }
    }

    /// Whether something still holds it, looked at for a moment.
    pub(super) async fn is_held_for(&mut self, moment: Duration) -> bool {
        matches!(self.wait_until_released_within(moment).await, Err(Fault::Unmet(_)))
    }
}

impl Drop for FifoProbe {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
