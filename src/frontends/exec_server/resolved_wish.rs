//! A client's wish, with the real paths of what it wants to do without.
//!
//! A client can name a link. What it wishes is about the place to which the link leads in the sandbox, and about the link.

use serde_json::Value;

use super::{
    file_status::{self, MissingFiles},
    message::RpcError,
    session::ExecSession,
    wish::Wish,
};

/// What a request's `sandbox` says. Runs a command in the sandbox if it names exceptions, and only then.
pub(super) async fn wish_of(session: &ExecSession, sandbox: Option<&Value>) -> Result<Wish, RpcError> {
    let wish = Wish::of(sandbox, &session.roots)?.with_linked_roots(&session.linked);
    let exceptions = wish.named_exceptions();
    if exceptions.is_empty() {
        return Ok(wish);
    }
    let real = file_status::real_paths(session, &exceptions, MissingFiles::Allowed).await?;
    Ok(wish.with_real_paths(real))
}
