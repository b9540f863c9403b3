//! The gRPC services. Each call parses its request, calls a use case, and makes the response. They hold no state.

#![forbid(unsafe_code)]

mod abort;
mod approvals;
mod attach;
mod audit;
mod deadline;
pub(crate) mod errors;
mod forward;
mod lines;
mod pagination;
mod policies;
mod primary_screen;
pub(crate) mod request;
mod response;
mod screen_input;
mod screen_response;
mod screen_stream;
mod screens;
mod sessions;
mod terminals;

pub(crate) use approvals::ApprovalsService;
pub(crate) use audit::AuditService;
pub(crate) use policies::{PoliciesService, ReloadOutcome};
pub(crate) use screens::ScreensService;
pub(crate) use sessions::SessionsService;
pub(crate) use terminals::TerminalsService;
use tonic::{Request, Status};

use crate::session::Peer;

/// Who calls, as the kernel told when the connection was made.
fn caller<T>(request: &Request<T>) -> Result<Peer, Status> {
    let peer = request.extensions().get::<Peer>().cloned();
    peer.ok_or_else(|| Status::unauthenticated("the caller is not known"))
}
