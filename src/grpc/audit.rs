//! The audit service: the journal's records for whom they are about, and its check for who keeps it.
//!
//! Reads files, by the same readers as `provost audit`; writes nothing. A caller that reads slowly holds a place and
//! no thread. Whose records are whose is decided here and nowhere else: by the principal in the record.

use std::{
    collections::{HashMap, VecDeque},
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::stream::unfold;
use tokio::sync::Semaphore;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::{caller, errors, fields::FieldError};
use crate::{
    journal::{
        Entries, Filter, Folder, Follower, Integrity, Journal, JournalPublicKey, Look, ReadError, Report,
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
/// Records that are looked at, wanted or not, before another reader has its turn.
const LOOKS: usize = 2_048;
/// Readers that read files at the same moment. Those beyond wait: the threads that may wait for files also bring
/// sandboxes up.
const READING_AT_ONCE: usize = 4;
/// The last records that can be asked for.
const LAST_MAX: u32 = 10_000;
/// The files that they are looked for in.
const LAST_FILES: usize = 2;

/// The service.
#[derive(Debug, Clone)]
pub struct AuditService {
    terminals: Arc<Terminals>,
    readers: Arc<Readers>,
    turns: Arc<Semaphore>,
    checking: Arc<Semaphore>,
}

type Streaming = Pin<Box<dyn Stream<Item = Result<AuditRecord, Status>> + Send>>;

impl AuditService {
    /// Of the journal that these terminals' lives are written to.
    pub fn new(terminals: Arc<Terminals>) -> Self {
        let (turns, checking) = (Semaphore::new(READING_AT_ONCE), Semaphore::new(1));
        Self { terminals, readers: Arc::default(), turns: Arc::new(turns), checking: Arc::new(checking) }
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
        let QueryAuditRequest { filter, last } = request.into_inner();
        let filter = self.filter(&peer, filter.unwrap_or_default())?;
        let last = checked_last(last)?;
        let journal = self.journal()?;
        journal.settled().await;
        let folder = journal.folder().clone();
        let reader = Reader { _place: self.readers.take(peer.principal)?, turns: self.turns.clone() };
        let Some(last) = last else {
            let entries = reader.read(move || Entries::new(&folder, filter)).await?;
            let entries = entries.map_err(|error| errors::journal_unreadable(&error))?;
            return Ok(Response::new(records(Source::There(entries), None, reader)));
        };
        let after = before_last(&reader, &folder, &filter, last).await?.unwrap_or(u64::MAX);
        let follower = reader.read(move || Follower::new(&folder, filter, LAST_FILES)).await?;
        let follower = follower.map_err(|error| errors::journal_unreadable(&error))?;
        Ok(Response::new(records(Source::Coming { follower, after }, None, reader)))
    }

    async fn follow(&self, request: Request<FollowAuditRequest>) -> Result<Response<Streaming>, Status> {
        let peer = caller(&request)?;
        let FollowAuditRequest { filter, after_sequence, last } = request.into_inner();
        let filter = self.filter(&peer, filter.unwrap_or_default())?;
        let journal = self.journal()?;
        journal.settled().await;
        let (folder, written) = (journal.folder().clone(), journal.written());
        let reader = Reader { _place: self.readers.take(peer.principal)?, turns: self.turns.clone() };
        let after = match (after_sequence, checked_last(last)?) {
            (Some(_), Some(_)) => {
                let problem = "is not for a request with after_sequence".to_owned();
                return Err(errors::bad_field(FieldError { field: "last".into(), problem }));
            }
            (after, None) => after.unwrap_or(written.last()),
            (None, Some(last)) => {
                before_last(&reader, &folder, &filter, last).await?.unwrap_or(written.last())
            }
        };
        let follower = reader.read(move || follow_after(&folder, filter, after)).await?;
        let follower = follower.map_err(|error| errors::journal_unreadable(&error))?;
        Ok(Response::new(records(Source::Coming { follower, after }, Some(written), reader)))
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

/// Some records.
#[derive(Default)]
struct Batch {
    records: Vec<AuditRecord>,
    /// Nothing more is there, or not yet.
    is_at_end: bool,
}

impl Source {
    fn look(&mut self) -> Result<Look, ReadError> {
        match self {
            Self::There(entries) => entries.look(),
            Self::Coming { follower, after } => match follower.look()? {
                Look::Entry(entry) if entry.line.sequence <= *after => Ok(Look::Passed),
                found => Ok(found),
            },
        }
    }

    /// Some records, or none yet among those that were looked at. Bad lines are passed over here, and named by
    /// verifying.
    fn batch(&mut self) -> io::Result<Batch> {
        let (mut batch, mut bytes) = (Batch::default(), 0);
        for _ in 0..LOOKS {
            match self.look() {
                Ok(Look::Entry(entry)) => {
                    bytes += entry.text.len();
                    let sequence = entry.line.sequence;
                    batch.records.push(AuditRecord { sequence, line: entry.text });
                    if batch.records.len() >= BATCH_RECORDS || bytes >= BATCH_BYTES {
                        break;
                    }
                }
                Ok(Look::Passed) | Err(ReadError::BadLine { .. }) => {}
                Ok(Look::End) => {
                    batch.is_at_end = true;
                    break;
                }
                Err(ReadError::Io(error)) => return Err(error),
            }
        }
        Ok(batch)
    }
}

fn checked_last(last: Option<u32>) -> Result<Option<usize>, Status> {
    if last.is_some_and(|last| last > LAST_MAX) {
        let problem = format!("is more than {LAST_MAX}");
        return Err(errors::bad_field(FieldError { field: "last".into(), problem }));
    }
    Ok(last.map(|last| last as usize))
}

/// The number before the first of the last so many records that a filter wants; `None` when there are none.
async fn before_last(
    reader: &Reader,
    folder: &Folder,
    filter: &Filter,
    last: usize,
) -> Result<Option<u64>, Status> {
    let (folder, filter) = (folder.clone(), filter.clone());
    let follower = reader.read(move || Follower::new(&folder, filter, LAST_FILES)).await?;
    let follower = follower.map_err(|error| errors::journal_unreadable(&error))?;
    let mut source = Source::Coming { follower, after: 0 };
    let mut found = VecDeque::new();
    loop {
        let batch;
        (batch, source) = reader.read(move || (source.batch(), source)).await?;
        let batch = batch.map_err(|error| errors::journal_unreadable(&error))?;
        for record in batch.records {
            found.push_back(record.sequence);
            if found.len() > last {
                found.pop_front();
            }
        }
        if batch.is_at_end {
            return Ok(found.front().map(|first| first.saturating_sub(1)));
        }
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
    is_at_end: bool,
    reader: Reader,
}

fn records(source: Source, written: Option<Written>, reader: Reader) -> Streaming {
    let reading = Reading { source, written, read: Vec::new().into_iter(), is_at_end: false, reader };
    Box::pin(unfold(Some(reading), |reading| async {
        let mut reading = reading?;
        loop {
            if let Some(record) = reading.read.next() {
                return Some((Ok(record), Some(reading)));
            }
            if reading.is_at_end {
                // Records that came since the look are told of at once.
                reading.written.as_mut()?.more().await;
            }
            let mut source = reading.source;
            let batch = reading.reader.read(move || (source.batch(), source)).await;
            match batch {
                Ok((Ok(batch), source)) => {
                    reading.source = source;
                    reading.read = batch.records.into_iter();
                    reading.is_at_end = batch.is_at_end;
                }
                Ok((Err(error), _)) => return Some((Err(errors::journal_unreadable(&error)), None)),
                Err(status) => return Some((Err(status), None)),
            }
        }
    }))
}

/// A caller that reads: its place, and its turns at the files.
struct Reader {
    _place: Place,
    turns: Arc<Semaphore>,
}

impl Reader {
    /// Runs what waits for files on a thread that may wait, when it is this reader's turn.
    async fn read<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
        // Never closed: at worst all read at once.
        let turn = self.turns.clone().acquire_owned().await;
        blocking(move || {
            let _turn = turn;
            work()
        })
        .await
    }
}

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
