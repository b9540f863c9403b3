//! Every reason for which a gateway does not start, or ends.

use std::io;

use super::{
    adoption::AdoptionError,
    config::ConfigError,
    journal_lifecycle::JournalError,
    metrics::MetricsError,
    path_trust::{GoverningConflict, TrustError},
    socket::ListenError,
    state_directory::StateError,
};
use crate::{
    sandbox::host::{HostCgroupError, nested::Nested},
    sandbox_program::ProgramError,
};

/// Why a gateway did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It would be in a sandbox of another one.
    #[error(transparent)]
    Nested(#[from] Nested),
    /// The configuration or the policy cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The socket cannot be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Others could change what governs the commands.
    #[error(transparent)]
    Distrust(#[from] TrustError),
    /// Commands would reach what governs them.
    #[error(transparent)]
    Conflict(#[from] GoverningConflict),
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// What an earlier gateway has left cannot be taken over.
    #[error(transparent)]
    Adoption(#[from] AdoptionError),
    /// The program of the sandboxes cannot be used.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The configured cgroup cannot be used.
    #[error(transparent)]
    Cgroup(#[from] HostCgroupError),
    /// The journal cannot be kept.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The metrics cannot be served.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// Signals cannot be watched.
    #[error("cannot watch for signals")]
    Signals(#[source] io::Error),
    /// The API cannot be described.
    #[error("cannot describe the API for reflection")]
    Reflection(#[source] tonic_reflection::server::Error),
    /// The server failed.
    #[error("the server failed")]
    Transport(#[from] tonic::transport::Error),
}
