//! Launching a sandbox: what it needs is prepared, the launcher is started, and its answer is awaited.

mod commands_id;
mod covers;
mod error;
mod filters;
mod host_sockets;
mod identity;
mod listen;
mod mapped_groups;
mod name_files;
mod named_links;
mod prepare;
mod private_files;
mod protected;
mod rootfs;
mod rootfs_error;
mod shown;
mod start;

pub use error::LaunchError;
pub(crate) use listen::control_socket_path;
pub use start::{LaunchedGate, LaunchedSandbox, launch, launch_blocking, reap};
