//! The sessions of a running gateway: all of the caller's, and `provost close`.

use crate::{
    cli::{
        console::error::CliError, gateway_link::connection::GatewayConnection,
        request::terminal_arguments::CloseArguments,
    },
    client::Client,
    proto::v1,
};

/// All sessions of the caller.
pub(super) async fn all(client: &mut Client) -> Result<Vec<v1::Session>, CliError> {
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

/// `provost close`.
pub(in crate::cli) async fn close(arguments: CloseArguments) -> Result<u8, CliError> {
    let connection = GatewayConnection::find(arguments.gateway.gateway.as_deref()).await?;
    let mut client = connection.client();
    // A name is the caller's own, and no id is one: ids are looked for by the gateway, which says so where there is none.
    let is_named = |session: &v1::Session| !session.name.is_empty() && session.name == arguments.session;
    let named = all(&mut client).await?.into_iter().find(is_named);
    let session_id = named.map_or(arguments.session, |session| session.id);
    client.sessions.close_session(v1::CloseSessionRequest { session_id }).await?;
    Ok(0)
}
