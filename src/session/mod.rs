//! Sessions: trust domains opened by a principal.

#![forbid(unsafe_code)]

mod descriptors;
mod folders;
mod id;
mod keeping;
mod principal;
mod registry;
mod sandboxes;
#[expect(clippy::module_inception, reason = "the folder is about sessions, the file about one")]
mod session;

pub use descriptors::{Descriptors, DescriptorsReached, Held as HeldDescriptors};
pub use folders::LeadsOut;
pub use id::{SessionId, parse_ulid};
pub use keeping::{Keeping, RestoreError};
pub use principal::{Peer, Principal};
pub use registry::{HOST_LIMIT, NewSession, OpenError, Opened, Restored, Sessions};
pub use sandboxes::{Origin, Site};
pub use session::{Closing, Entered, Lifetime, Session};
