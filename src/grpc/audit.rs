//! The audit service: the journal's records for whom they are about, and its check for who keeps it.
//!
//! Reads files, by the same readers as `provost audit`; writes nothing. A caller that reads slowly holds a place and
//! no thread. Whose records are whose is decided here and nowhere else: by the principal in the record.

use std::{
    collections::HashMap,
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::stream::unfold;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::{caller, errors, fields::FieldError};
use crate::{
    journal::{
        Entries, Entry, Filter, Folder, Follower, Integrity, Journal, JournalPublicKey, ReadError, Report,
        Verdict, Written, verify,
    },
    proto::v1::{
        AuditDecision, AuditFault, AuditFilter, AuditIntegrity, AuditRecord, FollowAuditRequest,
        QueryAuditRequest, VerifyAuditRequest, VerifyAuditResponse, audit_server::Audit as Service,
    },
    session::{Peer, Principal},
    terminal::Terminals,
};

/// Queries and follows under way, of all callers; each reads with a thread of the pool now and then.
const READERS_MAX: usize = 64;
/// Of one principal.
const READERS_PER_PRINCIPAL_MAX: usize = 8;
/// Records that are read at once.
const BATCH_RECORDS: usize = 256;
/// And their bytes.
const BATCH_BYTES: usize = 1 << 20;

/// The service.
#[derive(Debug, Clone)]
pub struct AuditService {
    terminals: Arc<Terminals>,
    readers: Arc<Readers>,
    checking: Arc<tokio::sync::Semaphore>,
}

type Streaming = Pin<Box<dyn Stream<Item = Result<AuditRecord, Status>> + Send>>;

impl AuditService {
    /// Of the journal that these terminals' lives are written to.
    pub fn new(terminals: Arc<Terminals>) -> Self {
        Self { terminals, readers: Arc::default(), checking: Arc::new(tokio::sync::Semaphore::new(1)) }
    }

    fn journal(&self) -> Result<&Journal, Status> {
        self.terminals.recorder().journal().ok_or_else(errors::no_journal)
    }

    fn is_administrator(&self, peer: &Peer) -> bool {
        self.terminals.approvals().is_administrator(peer.principal)
    }

    /// What the caller asks for, and no more than it may see.
    fn filter(&self, peer: &Peer, asked: AuditFilter) -> Result<Filter, Status> {
        let wrong = |field: &str, problem: &str| {
            errors::bad_field(FieldError { field: format!("filter.{field}"), problem: problem.to_owned() })
        };
        let verdict = match AuditDecision::try_from(asked.decision) {
            Ok(AuditDecision::Unspecified) => None,
            Ok(AuditDecision::Allow) => Some(Verdict::Allow),
            Ok(AuditDecision::Deny) => Some(Verdict::Deny),
            Ok(AuditDecision::Ask) => Some(Verdict::Ask),
            Err(_) => return Err(wrong("decision", "is not a decision")),
        };
        let since_ns = match asked.since {
            None => None,
            Some(since) => {
                let since =
                    Duration::try_from(prost_types::Duration { seconds: since.seconds, nanos: since.nanos });
                let nanos = since.ok().and_then(|since| u64::try_from(since.as_nanos()).ok());
                Some(nanos.ok_or_else(|| wrong("since", "is not a time since 1970"))?)
            }
        };
        let own = peer.principal.to_string();
        let named = Some(asked.principal).filter(|named| !named.is_empty());
        let principal = match self.is_administrator(peer) {
            true => named,
            false if named.as_ref().is_none_or(|named| *named == own) => Some(own),
            false => return Err(wrong("principal", "is not the caller")),
        };
        let set = |text: String| Some(text).filter(|text| !text.is_empty());
        Ok(Filter {
            principal,
            session: set(asked.session_id),
            terminal: set(asked.terminal_id),
            rule: set(asked.rule),
            verdict,
            since_ns,
        })
    }
}

#[tonic::async_trait]
impl Service for AuditService {
    type QueryStream = Streaming;
    type FollowStream = Streaming;

    async fn query(&self, request: Request<QueryAuditRequest>) -> Result<Response<Streaming>, Status> {
        let peer = caller(&request)?;
        let filter = self.filter(&peer, request.into_inner().filter.unwrap_or_default())?;
        let journal = self.journal()?;
        journal.settled().await;
        let folder = journal.folder().clone();
        let place = self.readers.take(peer.principal)?;
        let entries = blocking(move || Entries::new(&folder, filter)).await?;
        let entries = entries.map_err(|error| errors::journal_unreadable(&error))?;
        Ok(Response::new(records(Source::There(entries), None, place)))
    }

    async fn follow(&self, request: Request<FollowAuditRequest>) -> Result<Response<Streaming>, Status> {
        let peer = caller(&request)?;
        let FollowAuditRequest { filter, after_sequence } = request.into_inner();
        let filter = self.filter(&peer, filter.unwrap_or_default())?;
        let journal = self.journal()?;
        journal.settled().await;
        let (folder, written) = (journal.folder().clone(), journal.written());
        let after = after_sequence.unwrap_or(written.last());
        let place = self.readers.take(peer.principal)?;
        let follower = blocking(move || follow_after(&folder, filter, after)).await?;
        let follower = follower.map_err(|error| errors::journal_unreadable(&error))?;
        Ok(Response::new(records(Source::Coming { follower, after }, Some(written), place)))
    }

    async fn verify(
        &self,
        request: Request<VerifyAuditRequest>,
    ) -> Result<Response<VerifyAuditResponse>, Status> {
        let peer = caller(&request)?;
        if !self.is_administrator(&peer) {
            return Err(errors::not_an_administrator());
        }
        let pem = request.into_inner().public_key_pem;
        let key = match pem.as_str() {
            "" => None,
            pem => Some(JournalPublicKey::of_pem(pem).ok_or_else(|| {
                let problem = "is no Ed25519 public key in PEM".to_owned();
                errors::bad_field(FieldError { field: "public_key_pem".into(), problem })
            })?),
        };
        let folder = self.journal()?.folder().clone();
        // All files are read: one at a time, and the next one is told so.
        let turn = self.checking.clone().try_acquire_owned();
        let _turn = turn.map_err(|_| errors::too_many("audit_verifications", 1))?;
        let report = blocking(move || verify(&folder, key.as_ref())).await?;
        let report = report.map_err(|error| errors::journal_unreadable(&error))?;
        Ok(Response::new(rendered(report)))
    }
}

/// Where records come from.
enum Source {
    /// Those that are there.
    There(Entries),
    /// Those that are written from now on, and those after this number.
    Coming { follower: Follower, after: u64 },
}

impl Source {
    /// The next record; `None` when there is none, yet or at all.
    fn next(&mut self) -> Option<Result<Entry, ReadError>> {
        match self {
            Self::There(entries) => entries.next(),
            Self::Coming { follower, after } => loop {
                match follower.next(Duration::ZERO).transpose()? {
                    Ok(entry) if entry.line.sequence <= *after => {}
                    next => return Some(next),
                }
            },
        }
    }

    /// Some records; bad lines are passed over here, and named by verifying.
    fn batch(&mut self) -> Result<Vec<AuditRecord>, io::Error> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH_RECORDS && bytes < BATCH_BYTES {
            match self.next() {
                None => break,
                Some(Ok(entry)) => {
                    bytes += entry.text.len();
                    batch.push(AuditRecord { sequence: entry.line.sequence, line: entry.text });
                }
                Some(Err(ReadError::BadLine { .. })) => {}
                Some(Err(ReadError::Io(error))) => return Err(error),
            }
        }
        Ok(batch)
    }
}

fn follow_after(folder: &Folder, filter: Filter, after: u64) -> io::Result<Follower> {
    let files = folder.files()?;
    // Those that begin behind it, and the one that it is in.
    let newer = files.iter().filter(|file| file.first_sequence > after).count();
    Follower::new(folder, filter, (newer + 1).min(files.len()))
}

struct Reading {
    source: Source,
    /// Absent: what is there is all.
    written: Option<Written>,
    read: std::vec::IntoIter<AuditRecord>,
    _place: Place,
}

fn records(source: Source, written: Option<Written>, place: Place) -> Streaming {
    let reading = Reading { source, written, read: Vec::new().into_iter(), _place: place };
    Box::pin(unfold(Some(reading), |reading| async {
        let mut reading = reading?;
        loop {
            if let Some(record) = reading.read.next() {
                return Some((Ok(record), Some(reading)));
            }
            let mut source = reading.source;
            let batch = blocking(move || (source.batch(), source)).await;
            let batch = match batch {
                Ok((Ok(batch), source)) => {
                    reading.source = source;
                    batch
                }
                Ok((Err(error), _)) => return Some((Err(errors::journal_unreadable(&error)), None)),
                Err(status) => return Some((Err(status), None)),
            };
            match &mut reading.written {
                Some(written) if batch.is_empty() => written.more().await,
                None if batch.is_empty() => return None,
                Some(_) | None => reading.read = batch.into_iter(),
            }
        }
    }))
}

/// Runs what waits for files on a thread that may wait.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    tokio::task::spawn_blocking(work).await.map_err(|_| errors::internal("reading the journal has failed"))
}

/// Who reads how much at once.
#[derive(Debug, Default)]
struct Readers(Mutex<HashMap<Principal, usize>>);

impl Readers {
    fn take(self: &Arc<Self>, principal: Principal) -> Result<Place, Status> {
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if readers.values().sum::<usize>() >= READERS_MAX {
            return Err(errors::too_many("audit_readers", READERS_MAX));
        }
        let own = readers.entry(principal).or_default();
        if *own >= READERS_PER_PRINCIPAL_MAX {
            return Err(errors::too_many("audit_readers_per_principal", READERS_PER_PRINCIPAL_MAX));
        }
        *own += 1;
        Ok(Place { readers: self.clone(), principal })
    }
}

/// One reader's place.
struct Place {
    readers: Arc<Readers>,
    principal: Principal,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut readers = self.readers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = readers.get_mut(&self.principal) {
            *own -= 1;
            if *own == 0 {
                readers.remove(&self.principal);
            }
        }
    }
}

fn rendered(report: Report) -> VerifyAuditResponse {
    let integrity = match report.verdict() {
        Integrity::Intact => AuditIntegrity::Intact,
        Integrity::Torn => AuditIntegrity::Torn,
        Integrity::Broken => AuditIntegrity::Broken,
    };
    let fault = |fault: crate::journal::Fault| AuditFault {
        file: fault.file,
        line: fault.line,
        sequence: fault.sequence,
        kind: fault.kind.name().to_owned(),
        problem: fault.problem,
    };
    VerifyAuditResponse {
        integrity: integrity.into(),
        files: report.files,
        records: report.records,
        first_sequence: report.first_sequence.unwrap_or_default(),
        last_sequence: report.last.map_or(0, |last| last.sequence),
        last_hash: report.last.map(|last| last.hash.to_string()).unwrap_or_default(),
        signed_through: report.signed_through,
        faults: report.faults.into_iter().map(fault).collect(),
        more_faults: report.more_faults,
    }
}
