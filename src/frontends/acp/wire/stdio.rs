//! This process's own stdin and stdout, without a thread in between where that can be had.
//!
//! A pipe is opened again by its name in /proc, so that the descriptor, which another process may share, keeps its flags;
//! anything else goes through a thread.

use std::os::unix::fs::FileTypeExt;

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::unix::pipe,
};

/// What is read from the editor.
pub(in crate::acp) fn input() -> Box<dyn AsyncRead + Send + Unpin> {
    let path = "/proc/self/fd/0";
    match is_pipe(path).then(|| pipe::OpenOptions::new().open_receiver(path)) {
        Some(Ok(pipe)) => Box::new(pipe),
        Some(Err(_)) | None => Box::new(crate::stdio::stdin()),
    }
}

/// What is written to the editor.
pub(in crate::acp) fn output() -> Box<dyn AsyncWrite + Send + Unpin> {
    let path = "/proc/self/fd/1";
    match is_pipe(path).then(|| pipe::OpenOptions::new().open_sender(path)) {
        Some(Ok(pipe)) => Box::new(pipe),
        Some(Err(_)) | None => Box::new(crate::stdio::stdout()),
    }
}

fn is_pipe(path: &str) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}
