//! The caller's sessions, as the gateway lists them, and the one that a person means.

use crate::{cli::console::error::CliError, client::Client, proto::v1};

/// The letters of an id behind its prefix.
const ULID_LENGTH: usize = 26;

/// All sessions of the caller.
pub(in crate::cli) async fn all(client: &mut Client) -> Result<Vec<v1::Session>, CliError> {
    let (mut sessions, mut request) = (Vec::new(), v1::ListSessionsRequest::default());
    loop {
        let page = client.sessions.list_sessions(request.clone()).await?.into_inner();
        sessions.extend(page.sessions);
        if page.next_page_token.is_empty() {
            return Ok(sessions);
        }
        request.page_token = page.next_page_token;
    }
}

/// The id of the session that a person means by its id or by its name. A name is the caller's own, and no id is one: ids are looked for by
/// the gateway, which says so where there is none.
pub(in crate::cli) async fn id_of(client: &mut Client, session: String) -> Result<String, CliError> {
    if session.strip_prefix("sess_").is_some_and(|id| id.len() == ULID_LENGTH) {
        return Ok(session);
    }
    let is_named = |other: &v1::Session| !other.name.is_empty() && other.name == session;
    let named = all(client).await?.into_iter().find(is_named);
    Ok(named.map_or(session, |named| named.id))
}
