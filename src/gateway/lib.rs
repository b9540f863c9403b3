//! The gateway: sessions and their terminals, sandboxes from outside, and the services by which callers use them.
//!
//! `composition` puts these parts together, and `server` serves them: [`serve()`] is `provost serve`, and [`embed`] is a private
//! gateway inside another command, which leaves nothing behind.

#![forbid(unsafe_code)]

mod approval;
mod grpc;
pub mod kept_cache;
mod kept_shell;
mod pool;
mod reason;
pub mod sandbox;
mod session;
mod terminal;
mod workspace;

use provost_base::{
    byte_text, cgroup, counters, display, failpoint, link, masking, output, printable, sandbox_program,
    signal, statefile, sys, wire,
};
use provost_journal as journal;
use provost_policy::{self as policy, certificate, network, resolve, ssh_agent};
use provost_proto as proto;

mod admission;
mod adoption;
mod authority;
mod composition;
mod config;
mod embedded;
mod journal_lifecycle;
mod metrics;
mod path_trust;
pub mod policy_directory;
mod policy_reload;
pub mod quarantine;
mod server;
mod shutdown;
mod socket;
mod state_directory;
mod threads;

// What a program that embeds a gateway configures: everything that the fields of [`Config`] have.
pub use approval::{ApprovalConfig, Approvers};
pub use config::{Config, ConfigError, DieWithGateway, IdRange, MetricsAddress, PolicySource};
pub use journal::{Retention, SyncRule};
pub use journal_lifecycle::JournalConfig;
pub use sandbox::{
    net_link::{NameFiles, TrustedRoots},
    spec::WithoutGateway,
};
pub use shutdown::OnStop;
pub use terminal::Quotas;

pub use composition::ServeError;
pub use config::{
    absolute_path, compiled_in_prefers_limits, default_kept_caches, default_listen, default_state,
    parse_listen,
};
pub use embedded::{Embedded, embed};
pub use path_trust::{GoverningConflict, check_secrets};
pub use server::serve;
pub use threads::runtime;
