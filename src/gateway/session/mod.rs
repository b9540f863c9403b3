//! Sessions: trust domains opened by a principal.

#![forbid(unsafe_code)]

mod caches;
mod descriptors;
mod directories;
mod files;
mod git_configuration;
mod git_identity;
mod home_search;
mod id;
mod kept_caches;
mod launch;
mod launch_context;
mod networks;
mod new_session;
mod opened_caches;
mod owner_process;
mod principal;
mod real_path;
mod registry;
mod repository;
mod sandboxes;
#[expect(clippy::module_inception, reason = "the directory is about sessions, the file about one")]
mod session;
mod small_file;
mod store;
mod store_roots;
mod toolchains;
mod workspace_extent;
mod workspace_roots;

pub use descriptors::{DescriptorQuota, DescriptorQuotaReached, DescriptorReservation as HeldDescriptors};
pub use directories::EscapesRoot;
pub use id::{SessionId, parse_ulid};
pub use kept_caches::KeptReport;
pub use launch::SandboxOrigin;
pub use launch_context::{FILESYSTEM_TIMEOUT, LaunchContext};
pub use new_session::{NamedProcess, NewSession, OpenError};
pub use principal::{GivenInput, Peer, Principal};
pub use registry::{Opened, RestoredSessions, Sessions};
pub use session::{Closing, Lifetime, Session, SessionGuard};
pub use store::{Persistence, RestoreError};
pub use toolchains::Toolchains;
pub use workspace_extent::{RepositoryOutcome, WorkspaceExtent};
