//! `provost audit tail` and `query` through a gateway: the records that its caller may see.
//!
//! Prints what the gateway sends, in the same words as from the files. Bad lines are passed over by the gateway: to
//! find them is for `provost audit verify`.

use tonic::Streaming;

use super::audit_records::{FilterArguments, print};
use crate::{
    cli::{
        console::{error::CliError, exit_status, stdio::WriteOutcome},
        gateway_link::connection::GatewayConnection,
    },
    journal::CommandExpander,
    proto::v1,
};

/// Prints the records that are there.
pub(super) async fn query(
    connection: &GatewayConnection,
    arguments: &FilterArguments,
) -> Result<u8, CliError> {
    let request = v1::QueryRecordsRequest { filter: Some(arguments.for_service()), last: None };
    let records = connection.client().audit.query_records(request).await?.into_inner();
    print_all(records, |response: v1::QueryRecordsResponse| response.record, arguments).await
}

/// Prints the last records, and with `follow` those to come.
pub(super) async fn tail(
    connection: &GatewayConnection,
    lines: usize,
    follow: bool,
    arguments: &FilterArguments,
) -> Result<u8, CliError> {
    let (filter, last) = (Some(arguments.for_service()), Some(u32::try_from(lines).unwrap_or(u32::MAX)));
    let mut audit = connection.client().audit;
    if !follow {
        let records = audit.query_records(v1::QueryRecordsRequest { filter, last }).await?.into_inner();
        return print_all(records, |response: v1::QueryRecordsResponse| response.record, arguments).await;
    }
    let request = v1::FollowRecordsRequest { filter, after_sequence: None, last };
    let records = audit.follow_records(request).await?.into_inner();
    match print_all(records, |response: v1::FollowRecordsResponse| response.record, arguments).await? {
        // Followed for ever, unless the gateway ends.
        0 => Err(CliError::message_only("the gateway has ended".into())),
        nobody_reads => Ok(nobody_reads),
    }
}

async fn print_all<T>(
    mut records: Streaming<T>,
    record_of: fn(T) -> Option<v1::AuditRecord>,
    arguments: &FilterArguments,
) -> Result<u8, CliError> {
    let mut commands = CommandExpander::default();
    while let Some(response) = records.message().await? {
        let record = record_of(response).unwrap_or_default();
        if print(&record.line, &mut commands, arguments)? == WriteOutcome::ReaderGone {
            return Ok(exit_status::BROKEN_PIPE);
        }
    }
    Ok(0)
}
