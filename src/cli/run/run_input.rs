//! This process's stdin, passed on to a command that it runs by a gateway that takes no descriptor.
//!
//! Each write says where it stands in the input, so that one whose response a restarted gateway has not sent is repeated
//! and nothing arrives twice.

use std::{os::fd::OwnedFd, sync::Arc, time::Duration};

use tokio::task::AbortHandle;

use super::run_control::is_end_of_reader;
use crate::{
    cli::{
        console::{error::CliError, stdio},
        gateway_link::{
            connection::Terminals,
            reconnect::{Outage, Restarts},
        },
    },
    client,
    proto::v1,
};

/// How long to wait until the command has read what a lost write has given it.
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// Feeds the command's stdin from what it would have been given, and closes it at the end.
pub(super) fn forward_input(
    given: Arc<OwnedFd>,
    terminals: Terminals,
    terminal_id: String,
    restarts: Restarts,
) -> AbortHandle {
    let mut stdin = crate::stdio::Input::new(given);
    let forwarding = tokio::spawn(async move {
        let mut offset = 0;
        loop {
            let data = match stdio::next_input(&mut stdin).await {
                Ok(data) => data,
                Err(error) => return stdio::print_notice(&format!("cannot read stdin: {error}")),
            };
            let (eof, length) = (data.is_none(), data.as_ref().map_or(0, Vec::len) as u64);
            let request = v1::WriteInputRequest {
                terminal_id: terminal_id.clone(),
                session_id: String::new(),
                data: data.unwrap_or_default().into(),
                eof,
                offset: Some(offset),
            };
            match write(&terminals, request, restarts).await {
                // The command has closed its stdin, or has ended: what it did not want is not an error.
                Ok(written) if eof || written < length => return,
                Ok(_) => offset += length,
                Err(status) if is_end_of_reader(status.code()) => return,
                Err(status) => return CliError::from(status).print(),
            }
        }
    });
    forwarding.abort_handle()
}

async fn write(
    terminals: &Terminals,
    request: v1::WriteInputRequest,
    restarts: Restarts,
) -> Result<u64, tonic::Status> {
    let mut outage = Outage::new(restarts);
    let mut is_repeated = false;
    loop {
        match terminals.clone().write_input(request.clone()).await {
            Ok(written) => return Ok(written.into_inner().written_bytes),
            // The command has not read what the same write gave it before.
            Err(status) if is_repeated && is_pending(&status) => tokio::time::sleep(RETRY_AFTER).await,
            Err(status) => {
                outage.wait(status).await?;
                is_repeated = true;
            }
        }
    }
}

/// Whether another write is under way.
fn is_pending(status: &tonic::Status) -> bool {
    client::reason_of(status) == "INPUT_BUSY"
}
