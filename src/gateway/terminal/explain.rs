//! Explains what policy would decide about a request, without running it.

use std::sync::Arc;

use crate::{
    policy::{ActivePolicy, explain::Explanation},
    pool::PoolError,
    resolve::ProgramCache,
    session::{FILESYSTEM_TIMEOUT, LaunchContext},
    terminal::{evaluation, new_request::NewRequest},
};

/// What policy would decide about a request, and the reason.
///
/// # Errors
/// When the file systems of the caller do not answer.
pub async fn explain(
    policy: &ActivePolicy,
    program_cache: &Arc<ProgramCache>,
    launch_context: &LaunchContext,
    new: &NewRequest,
) -> Result<Explanation, PoolError> {
    let (policy, program_cache) = (policy.current(), program_cache.clone());
    let (session, request) = (new.session.clone(), new.request.clone());
    let governing = launch_context.governing.clone();
    let explain = move || evaluation::explain(&policy, &session, &governing, &request, &program_cache);
    launch_context.pool.run(new.session.principal.uid, FILESYSTEM_TIMEOUT, explain).await
}
