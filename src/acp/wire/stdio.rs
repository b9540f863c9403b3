//! This process's own stdin and stdout, without a thread in between where that can be had.
//!
//! A pipe is opened again by its name in /proc, so that the descriptor, which another process may share, keeps its flags;
//! a socket is duplicated and set not to block. Anything else goes through a thread.

use std::{
    io,
    os::{
        fd::AsFd,
        unix::{fs::FileTypeExt, net::UnixStream},
    },
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::unix::pipe,
};

/// What is read from the editor.
pub(in crate::acp) fn input() -> Box<dyn AsyncRead + Send + Unpin> {
    match kind("/proc/self/fd/0") {
        DescriptorKind::Pipe => match pipe::OpenOptions::new().open_receiver("/proc/self/fd/0") {
            Ok(pipe) => Box::new(pipe),
            Err(_) => Box::new(tokio::io::stdin()),
        },
        DescriptorKind::Socket => match socket(io::stdin().as_fd()) {
            Ok(socket) => Box::new(socket),
            Err(_) => Box::new(tokio::io::stdin()),
        },
        DescriptorKind::Other => Box::new(tokio::io::stdin()),
    }
}

/// What is written to the editor.
pub(in crate::acp) fn output() -> Box<dyn AsyncWrite + Send + Unpin> {
    match kind("/proc/self/fd/1") {
        DescriptorKind::Pipe => match pipe::OpenOptions::new().open_sender("/proc/self/fd/1") {
            Ok(pipe) => Box::new(pipe),
            Err(_) => Box::new(tokio::io::stdout()),
        },
        DescriptorKind::Socket => match socket(io::stdout().as_fd()) {
            Ok(socket) => Box::new(socket),
            Err(_) => Box::new(tokio::io::stdout()),
        },
        DescriptorKind::Other => Box::new(tokio::io::stdout()),
    }
}

enum DescriptorKind {
    Pipe,
    Socket,
    Other,
}

fn kind(path: &str) -> DescriptorKind {
    match std::fs::metadata(path).map(|metadata| metadata.file_type()) {
        Ok(kind) if kind.is_fifo() => DescriptorKind::Pipe,
        Ok(kind) if kind.is_socket() => DescriptorKind::Socket,
        Ok(_) | Err(_) => DescriptorKind::Other,
    }
}

fn socket(descriptor: std::os::fd::BorrowedFd<'_>) -> io::Result<tokio::net::UnixStream> {
    let socket = UnixStream::from(descriptor.try_clone_to_owned()?);
    socket.set_nonblocking(true)?;
    tokio::net::UnixStream::from_std(socket)
}
