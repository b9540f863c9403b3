//! What a terminal has from its command's start on.

use std::sync::Arc;

use crate::{masking::Masker, proto::supervisor::Started, sandbox::handle::Sandbox, sys::ring};

/// What is there once the command runs.
#[derive(Debug)]
pub struct Live {
    /// As the supervisor saw it.
    pub started: Started,
    /// Of stdout, or of the merged output.
    pub stdout: ring::RingReader,
    /// Of stderr, when it is kept apart.
    pub stderr: Option<ring::RingReader>,
    /// Where it runs.
    pub sandbox: Arc<Sandbox>,
    /// Takes its secrets out of what leaves the gateway.
    pub masker: Masker,
}
