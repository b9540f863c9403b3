//! `provost close`: ends a session of a running gateway.

use crate::{
    cli::{
        console::error::CliError,
        gateway_link::{connection::GatewayConnection, sessions::id_of},
        request::terminal_arguments::CloseArguments,
    },
    proto::v1,
};

/// `provost close`.
pub(in crate::cli) async fn close(arguments: CloseArguments) -> Result<u8, CliError> {
    let connection = GatewayConnection::find(arguments.gateway.gateway.as_deref()).await?;
    let mut client = connection.client();
    let session_id = id_of(&mut client, arguments.session).await?;
    client.sessions.close_session(v1::CloseSessionRequest { session_id }).await?;
    Ok(0)
}
