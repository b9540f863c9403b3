//! The agent that a backend starts: it only carries lines between the backend and the suite, over the suite's socket.

use std::{io, path::Path};

use tokio::{io::AsyncWriteExt, net::UnixStream};

/// Carries bytes both ways until either side ends.
pub async fn relay(socket: &Path) -> io::Result<()> {
    let (mut from_suite, mut to_suite) = UnixStream::connect(socket).await?.into_split();
    let (mut stdin, mut stdout) = (crate::stdio::stdin(), crate::stdio::stdout());
    let inward = async {
        tokio::io::copy(&mut stdin, &mut to_suite).await?;
        to_suite.shutdown().await
    };
    let outward = async {
        tokio::io::copy(&mut from_suite, &mut stdout).await?;
        stdout.flush().await
    };
    // Either end is the end: an agent whose suite is gone has nothing to say, one without a client nobody to say it to.
    tokio::select! {
        done = inward => done,
        done = outward => done,
    }
}
