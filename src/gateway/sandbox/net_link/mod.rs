//! The net processes of sandboxes with the network `proxy`: starting them, and answering their questions.
//!
//! A net process is this gateway's: it ends with its socket, and the next gateway starts another one on the same listeners, which the
//! supervisor holds. A connection that comes meanwhile waits.

mod authorities;
mod host_socket;
mod leaf_certificates;
mod nets;
mod process;
mod serving;
mod trusted_roots;

pub(crate) use authorities::{Authorities, AuthorityError};
pub(crate) use host_socket::{HostSocketCaller, HostSocketError};
pub(crate) use nets::Judged;
pub use nets::NameFiles;
pub(crate) use nets::{Asker, ConnectionObserver, ConnectionOrigin, NetOwner, Nets, ProgramLook};
pub(crate) use process::{NetError, NetProcess};
pub(crate) use serving::{AllowedConnections, ServedSandbox};
pub use trusted_roots::TrustedRoots;
