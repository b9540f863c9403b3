//! The audit service: the journal's records for whom they are about, and its check for who keeps it.
//!
//! Reads files, by the same readers as `provost audit`; writes nothing. A caller that reads slowly holds a place and
//! no thread. Whose records are whose is decided here and nowhere else: by the principal in the record.

mod reader;

use std::{sync::Arc, time::Duration};

use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use reader::{
    CONCURRENT_READS, LAST_FILES, ReaderLimits, RecordReader, RecordSource, RecordStream, before_last,
    blocking, follow_after, records,
};

use super::{caller, deadline, errors, request::FieldError};
use crate::{
    journal::{
        Entries, FaultKind, Follower, Integrity, Journal, JournalPublicKey, RecordFilter, RecordedVerdict,
        VerifyReport, verify,
    },
    proto::v1::{
        AuditFault, AuditFaultKind, AuditFilter, AuditIntegrity, AuditRecord, Decision, FollowRecordsRequest,
        FollowRecordsResponse, QueryRecordsRequest, QueryRecordsResponse, VerifyJournalRequest,
        VerifyJournalResponse, audit_server::Audit as Service,
    },
    session::Peer,
    terminal::Terminals,
};

/// The last records that can be asked for.
const LAST_MAX: u32 = 10_000;

/// The service.
#[derive(Debug, Clone)]
pub(crate) struct AuditService {
    terminals: Arc<Terminals>,
    readers: Arc<ReaderLimits>,
    read_permits: Arc<Semaphore>,
    verify_permit: Arc<Semaphore>,
}

impl AuditService {
    /// Makes the service that reads the journal to which these terminals' lives are written.
    pub(crate) fn new(terminals: Arc<Terminals>) -> Self {
        let (turns, checking) = (Semaphore::new(CONCURRENT_READS), Semaphore::new(1));
        Self {
            terminals,
            readers: Arc::default(),
            read_permits: Arc::new(turns),
            verify_permit: Arc::new(checking),
        }
    }

    fn journal(&self) -> Result<&Journal, Status> {
        self.terminals.recorder().journal().ok_or_else(errors::no_journal)
    }

    fn is_administrator(&self, peer: &Peer) -> bool {
        self.terminals.approvals().is_administrator(peer.principal)
    }

    /// What the caller asks for, and no more than it may see.
    fn filter(&self, peer: &Peer, requested: AuditFilter) -> Result<RecordFilter, Status> {
        let field_error = |field: &str, problem: &str| {
            errors::bad_field(FieldError { field: format!("filter.{field}"), problem: problem.to_owned() })
        };
        let verdict = match Decision::try_from(requested.decision) {
            Ok(Decision::Unspecified) => None,
            Ok(Decision::Allow) => Some(RecordedVerdict::Allow),
            Ok(Decision::Deny) => Some(RecordedVerdict::Deny),
            Ok(Decision::Ask) => Some(RecordedVerdict::Ask),
            Err(_) => return Err(field_error("decision", "is not a decision")),
        };
        let since_ns = match requested.since {
            None => None,
            Some(since) => {
                let since =
                    Duration::try_from(prost_types::Duration { seconds: since.seconds, nanos: since.nanos });
                let nanos = since.ok().and_then(|since| u64::try_from(since.as_nanos()).ok());
                Some(nanos.ok_or_else(|| field_error("since", "is not a time since 1970"))?)
            }
        };
        let own = peer.principal.to_string();
        let named = Some(requested.principal).filter(|named| !named.is_empty());
        let principal = match self.is_administrator(peer) {
            true => named,
            false if named.as_ref().is_none_or(|named| *named == own) => Some(own),
            false => return Err(field_error("principal", "is not the caller")),
        };
        let set = |text: String| Some(text).filter(|text| !text.is_empty());
        Ok(RecordFilter {
            principal,
            session: set(requested.session_id),
            terminal: set(requested.terminal_id),
            rule: set(requested.rule),
            verdict,
            front_end: set(requested.front_end),
            since_ns,
        })
    }

    async fn query(
        &self,
        peer: &Peer,
        request: QueryRecordsRequest,
    ) -> Result<Response<RecordStream<QueryRecordsResponse>>, Status> {
        let QueryRecordsRequest { filter, last } = request;
        let filter = self.filter(peer, filter.unwrap_or_default())?;
        let last = parse_last(last)?;
        let journal = self.journal()?;
        journal.flush().await;
        let directory = journal.directory().clone();
        let reader = RecordReader::new(self.readers.acquire(peer.principal)?, self.read_permits.clone());
        let Some(last) = last else {
            let entries = reader.read(move || Entries::new(&directory, filter)).await?;
            let entries = entries.map_err(|error| errors::journal_unreadable(&error))?;
            return Ok(Response::new(records(RecordSource::Existing(entries), None, reader, queried)));
        };
        let after = before_last(&reader, &directory, &filter, last).await?.unwrap_or(u64::MAX);
        let follower = reader.read(move || Follower::new(&directory, filter, LAST_FILES)).await?;
        let follower = follower.map_err(|error| errors::journal_unreadable(&error))?;
        Ok(Response::new(records(RecordSource::Followed { follower, after }, None, reader, queried)))
    }

    async fn follow(
        &self,
        peer: &Peer,
        request: FollowRecordsRequest,
    ) -> Result<Response<RecordStream<FollowRecordsResponse>>, Status> {
        let FollowRecordsRequest { filter, after_sequence, last } = request;
        let filter = self.filter(peer, filter.unwrap_or_default())?;
        let journal = self.journal()?;
        journal.flush().await;
        let (directory, mut written) = (journal.directory().clone(), journal.subscribe());
        let last_written = *written.borrow_and_update();
        let reader = RecordReader::new(self.readers.acquire(peer.principal)?, self.read_permits.clone());
        let after = match (after_sequence, parse_last(last)?) {
            (Some(_), Some(_)) => {
                let problem = "is not for a request with after_sequence".to_owned();
                return Err(errors::bad_field(FieldError { field: "last".into(), problem }));
            }
            (after, None) => after.unwrap_or(last_written),
            (None, Some(last)) => {
                before_last(&reader, &directory, &filter, last).await?.unwrap_or(last_written)
            }
        };
        let follower = reader.read(move || follow_after(&directory, filter, after)).await?;
        let follower = follower.map_err(|error| errors::journal_unreadable(&error))?;
        Ok(Response::new(records(
            RecordSource::Followed { follower, after },
            Some(written),
            reader,
            followed,
        )))
    }
}

#[tonic::async_trait]
impl Service for AuditService {
    type QueryRecordsStream = RecordStream<QueryRecordsResponse>;
    type FollowRecordsStream = RecordStream<FollowRecordsResponse>;

    async fn query_records(
        &self,
        request: Request<QueryRecordsRequest>,
    ) -> Result<Response<RecordStream<QueryRecordsResponse>>, Status> {
        let peer = caller(&request)?;
        let limit = deadline::timeout_of(request.metadata());
        let records = self.query(&peer, request.into_inner());
        deadline::within(limit, records).await?
    }

    async fn follow_records(
        &self,
        request: Request<FollowRecordsRequest>,
    ) -> Result<Response<RecordStream<FollowRecordsResponse>>, Status> {
        let peer = caller(&request)?;
        let limit = deadline::timeout_of(request.metadata());
        let records = self.follow(&peer, request.into_inner());
        deadline::within(limit, records).await?
    }

    async fn verify_journal(
        &self,
        request: Request<VerifyJournalRequest>,
    ) -> Result<Response<VerifyJournalResponse>, Status> {
        let peer = caller(&request)?;
        if !self.is_administrator(&peer) {
            return Err(errors::not_an_administrator());
        }
        let limit = deadline::timeout_of(request.metadata());
        let pem = request.into_inner().public_key_pem;
        let key = match pem.as_str() {
            "" => None,
            pem => Some(JournalPublicKey::from_pem(pem).ok_or_else(|| {
                let problem = "is no Ed25519 public key in PEM".to_owned();
                errors::bad_field(FieldError { field: "public_key_pem".into(), problem })
            })?),
        };
        let directory = self.journal()?.directory().clone();
        // All files are read: one at a time, and the next one is told so.
        let permit = self.verify_permit.clone().try_acquire_owned();
        let _permit = permit.map_err(|_| errors::too_many("audit_verifications", 1))?;
        let report = blocking(move || verify(&directory, key.as_ref()));
        let report = deadline::within(limit, report).await??;
        let report = report.map_err(|error| errors::journal_unreadable(&error))?;
        Ok(Response::new(verify_response(report)))
    }
}

fn queried(record: AuditRecord) -> QueryRecordsResponse {
    QueryRecordsResponse { record: Some(record) }
}

fn followed(record: AuditRecord) -> FollowRecordsResponse {
    FollowRecordsResponse { record: Some(record) }
}

fn parse_last(last: Option<u32>) -> Result<Option<usize>, Status> {
    if last.is_some_and(|last| last > LAST_MAX) {
        let problem = format!("is more than {LAST_MAX}");
        return Err(errors::bad_field(FieldError { field: "last".into(), problem }));
    }
    Ok(last.map(|last| last as usize))
}

fn verify_response(report: VerifyReport) -> VerifyJournalResponse {
    let integrity = match report.integrity() {
        Integrity::Intact => AuditIntegrity::Intact,
        Integrity::Torn => AuditIntegrity::Torn,
        Integrity::Broken => AuditIntegrity::Broken,
    };
    let fault = |fault: crate::journal::JournalFault| AuditFault {
        file: fault.file,
        line: fault.line,
        sequence: fault.sequence,
        kind: fault_kind(fault.kind).into(),
        message: fault.problem,
    };
    VerifyJournalResponse {
        integrity: integrity.into(),
        files: report.files,
        records: report.records,
        first_sequence: report.first_sequence.unwrap_or_default(),
        last_sequence: report.last.map_or(0, |last| last.sequence),
        last_hash: report.last.map(|last| last.hash.to_string()).unwrap_or_default(),
        last_signed_sequence: report.signed_through,
        faults: report.faults.into_iter().map(fault).collect(),
        faults_omitted: report.more_faults,
    }
}

fn fault_kind(kind: FaultKind) -> AuditFaultKind {
    match kind {
        FaultKind::Changed => AuditFaultKind::Changed,
        FaultKind::Removed => AuditFaultKind::Removed,
        FaultKind::Reordered => AuditFaultKind::Reordered,
        FaultKind::Inserted => AuditFaultKind::Inserted,
        FaultKind::Truncated => AuditFaultKind::Truncated,
        FaultKind::MissingFile => AuditFaultKind::MissingFile,
        FaultKind::Head => AuditFaultKind::Head,
        FaultKind::BadSignature => AuditFaultKind::BadSignature,
        FaultKind::Unsigned => AuditFaultKind::Unsigned,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_records_can_be_asked_for_and_no_more() {
        assert_eq!(parse_last(None).unwrap(), None);
        assert_eq!(parse_last(Some(0)).unwrap(), Some(0));
        assert_eq!(parse_last(Some(10_000)).unwrap(), Some(10_000));
        assert_eq!(parse_last(Some(10_001)).unwrap_err().code(), tonic::Code::InvalidArgument);
    }

    #[test]
    fn every_fault_is_told_by_its_kind() {
        for (found, name) in [
            (FaultKind::Changed, "CHANGED"),
            (FaultKind::Removed, "REMOVED"),
            (FaultKind::Reordered, "REORDERED"),
            (FaultKind::Inserted, "INSERTED"),
            (FaultKind::Truncated, "TRUNCATED"),
            (FaultKind::MissingFile, "MISSING_FILE"),
            (FaultKind::Head, "HEAD"),
            (FaultKind::BadSignature, "BAD_SIGNATURE"),
            (FaultKind::Unsigned, "UNSIGNED"),
        ] {
            assert_eq!(fault_kind(found).as_str_name(), format!("AUDIT_FAULT_KIND_{name}"));
        }
    }
}
