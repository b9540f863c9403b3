//! Sessions: trust domains opened by a principal.

#![forbid(unsafe_code)]

mod descriptors;
mod directories;
mod id;
mod launch;
mod launch_context;
mod principal;
mod registry;
mod sandboxes;
#[expect(clippy::module_inception, reason = "the directory is about sessions, the file about one")]
mod session;
mod store;

pub use descriptors::{DescriptorQuota, DescriptorQuotaReached, DescriptorReservation as HeldDescriptors};
pub use directories::EscapesRoot;
pub use id::{SessionId, parse_ulid};
pub use launch::SandboxOrigin;
pub use launch_context::{FILESYSTEM_TIMEOUT, LaunchContext};
pub use principal::{Peer, Principal};
pub use registry::{NewSession, OpenError, Opened, RestoredSessions, Sessions};
pub use session::{Closing, Lifetime, Session, SessionGuard};
pub use store::{Persistence, RestoreError};
