//! Sessions: trust domains opened by a principal.

#![forbid(unsafe_code)]

mod descriptors;
mod directories;
mod id;
mod principal;
mod registry;
mod sandboxes;
#[expect(clippy::module_inception, reason = "the directory is about sessions, the file about one")]
mod session;
mod store;

pub use descriptors::{DescriptorQuota, DescriptorQuotaReached, DescriptorReservation as HeldDescriptors};
pub use directories::EscapesRoot;
pub use id::{SessionId, parse_ulid};
pub use principal::{Peer, Principal};
pub use registry::{FILESYSTEM_TIMEOUT, NewSession, OpenError, Opened, RestoredSessions, Sessions};
pub use sandboxes::{LaunchContext, SandboxOrigin};
pub use session::{Closing, Lifetime, Session, SessionGuard};
pub use store::{Persistence, RestoreError};
