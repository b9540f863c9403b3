//! Records what terminals, sessions and approvals do, in the gateway's journal.
//!
//! A record of what may be refused is written before its effect, and when that fails the effect does not happen. What happens
//! in any case (ends, kills, observations) is recorded with best effort and never waits or fails. The journal has both in the
//! order of the calls. The contents are made in [`records`](super::records); secret values are removed before they come here.
//!
//! A principal could push all other records out of the retention by what costs it nothing: refused requests, questions, signals, repeated
//! kills, reports. Such records are written in full up to a rate. Beyond it they are counted, by session and rule, limit or kind, and the
//! counts are written; a file has them for the next gateway, should this one be killed. The records of a command's start and end are never
//! only counted; the principal's share of the journal limits those.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    convert::Infallible,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::{
    journal::{
        AppendError, DecisionRecord, Journal, QuotaRefused, Record, RecordedExec, RecordedVerdict,
        RecordsRepeated, RefusalsRepeated,
    },
    session::Principal,
    terminal::quotas::{LimitName, QuotaReached},
};

/// Writes to the gateway's journal, or nowhere when the configuration has none.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    journal: Option<Journal>,
    limiter: Arc<RecordLimiter>,
}

/// The denials of this principal are too many to be written one by one: this one was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::terminal) struct CountedOnly;

/// The journal did not take a record: what it was to say must not happen.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the journal cannot be written, and nothing is started unrecorded")]
pub(crate) struct Unrecorded(#[from] pub AppendError);

impl Recorder {
    /// Writes to this journal.
    pub(crate) fn new(journal: Journal) -> Self {
        let limiter = Arc::new(RecordLimiter::open(journal.directory().path()));
        Self { journal: Some(journal), limiter }
    }

    /// Writes nothing, and refuses nothing: the configuration has no journal.
    pub(crate) fn disabled() -> Self {
        Self { journal: None, limiter: Arc::default() }
    }

    /// The journal, where there is one.
    pub(crate) fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Writes a record before its effect, and waits until that is done. An error forbids the effect.
    pub(crate) async fn record(&self, record: &Record) -> Result<(), Unrecorded> {
        self.record_all([record]).await.map(drop)
    }

    /// Writes records before their effect: all in one go, in this order, or none. The number of the first, where there is
    /// a journal.
    pub(crate) async fn record_all<'a>(
        &self,
        records: impl IntoIterator<Item = &'a Record>,
    ) -> Result<Option<u64>, Unrecorded> {
        match &self.journal {
            None => Ok(None),
            Some(journal) => Ok(journal.append_all_async(records).await.map(Some)?),
        }
    }

    /// Writes a denial and answers with its number, or counts it where its principal's are too many.
    pub(in crate::terminal) async fn record_denial(
        &self,
        record: &Record,
    ) -> Result<Result<Option<u64>, CountedOnly>, Unrecorded> {
        if self.journal.is_some()
            && self.limiter.admit(record, self.share_room(record)) == RateDecision::Count
        {
            return Ok(Err(CountedOnly));
        }
        self.record_all([record]).await.map(Ok)
    }

    /// Notes what its principal can have happen again and again at no cost, or counts it where that is too often.
    pub(in crate::terminal) fn record_or_count(&self, record: &Record) {
        if self.journal.is_some()
            && self.limiter.admit(record, self.share_room(record)) == RateDecision::Write
        {
            self.record_best_effort(record);
        }
    }

    /// Writes what a command has done, in one go, or counts it where its principal's share of the journal is full.
    pub(in crate::terminal) async fn record_all_within_share(
        &self,
        records: &[Record],
    ) -> Result<(), Unrecorded> {
        match records.first().map(|record| self.share_room(record)) {
            None => Ok(()),
            Some(ShareRoom::Available) => self.record_all(records).await.map(drop),
            Some(ShareRoom::Full) => {
                records.iter().for_each(|record| self.limiter.count(record));
                Ok(())
            }
        }
    }

    /// Notes what a command has done, or counts it where its principal's share of the journal is full.
    pub(in crate::terminal) fn record_within_share(&self, record: &Record) {
        match self.share_room(record) {
            ShareRoom::Available => self.record_best_effort(record),
            ShareRoom::Full => self.limiter.count(record),
        }
    }

    fn share_room(&self, record: &Record) -> ShareRoom {
        let Some((journal, principal)) = self.journal.as_ref().zip(record.subject().principal) else {
            return ShareRoom::Available;
        };
        // Whatever its length: what is at the bound is a little beyond it with the last record.
        if journal.write_quota().has_room(principal, 1).is_ok() {
            ShareRoom::Available
        } else {
            ShareRoom::Full
        }
    }

    /// Whether a principal's share of the journal has room for so many bytes of what a caller wrote, and what comes of
    /// them: else nothing new is begun for it.
    pub(in crate::terminal) fn check_share(
        &self,
        principal: Principal,
        bytes: usize,
    ) -> Result<(), QuotaReached> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let share = journal.write_quota().has_room(&principal.to_string(), bytes as u64);
        share.map_err(|reached| QuotaReached {
            limit: LimitName::Journal,
            max: reached.cap,
            within: Some(reached.within),
        })
    }

    /// Whether this principal may have another record written that says only what the principal wants it to.
    pub(crate) fn may_report(&self, principal: Principal) -> bool {
        let has_share = || self.check_share(principal, 1).is_ok();
        self.journal.is_none() || has_share() && self.limiter.try_spend(&principal.to_string())
    }

    /// Writes what was counted of refusals, from time to time. Never ends.
    pub(crate) async fn write_repeated_denials(&self) -> Infallible {
        let mut due = tokio::time::interval(COUNTS_WRITE_INTERVAL);
        loop {
            due.tick().await;
            if let Some(journal) = &self.journal
                && self.write_counted_denials()
            {
                journal.flush().await;
                self.limiter.confirm_written();
            }
        }
    }

    /// Writes what was counted of refusals by now; whether there was anything.
    pub(crate) fn write_counted_denials(&self) -> bool {
        let counted = self.limiter.drain();
        counted.iter().for_each(|record| self.record_best_effort(record));
        !counted.is_empty()
    }

    /// The journal is closed, with all that was counted.
    pub(crate) fn clear_counted_denials(&self) {
        self.limiter.confirm_written();
    }

    /// Records what happens in any case. Neither waits nor fails; may be called anywhere. What the disk does not
    /// take is counted in the journal as soon as it can be written again.
    pub(crate) fn record_best_effort(&self, record: &Record) {
        if let Some(journal) = &self.journal {
            journal.append_best_effort(record);
        }
    }

    /// To find out which ends a gateway before this one has written.
    pub(crate) fn recorded_exits(&self) -> RecordedExits {
        RecordedExits { journal: self.journal.clone(), known: HashSet::new(), since: None }
    }
}

/// How far the clock may have been set between the end of a command, or the report of a gate, and its record.
const CLOCK_MARGIN: Duration = Duration::from_secs(600);

/// The ends that are in the journal, read when first asked for: a command whose supervisor still reports its end must
/// not have it written twice.
#[derive(Debug)]
pub(crate) struct RecordedExits {
    journal: Option<Journal>,
    known: HashSet<String>,
    /// Ends since then are known.
    since: Option<SystemTime>,
}

impl RecordedExits {
    /// Whether the end of a terminal, so long ago, is written. Blocks.
    pub(in crate::terminal) fn contains(&mut self, terminal: &str, ago: Duration) -> bool {
        let Some(journal) = &self.journal else { return false };
        let since = SystemTime::now().checked_sub(ago.saturating_add(CLOCK_MARGIN));
        let since = since.unwrap_or(SystemTime::UNIX_EPOCH);
        if self.since.is_none_or(|known| since < known) {
            // Twice as far, so that it is not read again for each that is a little older.
            let since = since.checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH);
            match journal.terminals_with_exit(since) {
                Ok(known) => self.known = known,
                // Twice is better than not at all.
                Err(error) => tracing::error!(%error, "the journal's ends cannot be read"),
            }
            self.since = Some(since);
        }
        self.known.contains(terminal)
    }
}

/// Bytes that the refusals of one principal may write in a second, and at once. 4 GiB, the default retention, then last
/// for two and a half days with one principal that floods, and for 4 hours with 16 of them (decision 0158).
const BYTES_PER_S: u64 = 16 << 10;
const BURST_BYTES: u64 = 4 << 20;
/// Kinds of refusals of one principal that are counted apart; those beyond are counted together.
const KINDS_MAX: usize = 64;
/// Principals that are remembered although nothing is counted of them; beyond that they are forgotten.
const IDLE_PRINCIPALS: usize = 1_024;
/// How often counts are written.
pub(in crate::terminal) const COUNTS_WRITE_INTERVAL: Duration = Duration::from_secs(10);
/// What a record takes in addition to the texts in it.
const RECORD_OVERHEAD_BYTES: u64 = 768;
/// A question to a person is followed by the records of its being put and of its end.
const RECORDS_OF_A_QUESTION: u64 = 3;

/// What is to be done with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::terminal) enum RateDecision {
    /// It is written.
    Write,
    /// It was counted.
    Count,
}

/// Whether its principal's share of the journal has room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::terminal) enum ShareRoom {
    /// It has.
    Available,
    /// It has none, or nobody asked: see [`RecordLimiter::count`].
    Full,
}

/// The refusals of all principals.
#[derive(Debug, Default)]
pub(in crate::terminal) struct RecordLimiter {
    state: Mutex<LimiterState>,
}

#[derive(Debug, Default)]
struct LimiterState {
    principals: HashMap<String, PrincipalBudget>,
    /// What is counted, for the next gateway, should this one be killed.
    file: RepeatCountsFile,
    /// What a gateway before this one has counted and not written.
    before: Vec<Record>,
}

#[derive(Debug)]
struct PrincipalBudget {
    bytes_left: u64,
    at: Instant,
    counted: BTreeMap<RepeatKind, RepeatCount>,
}

/// Records that are alike.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct RepeatKind {
    session: Option<String>,
    rule: Option<String>,
    limit: Option<String>,
    is_question: bool,
    /// It is no refusal, but a record of this kind.
    of: Option<&'static str>,
}

#[derive(Debug)]
struct RepeatCount {
    times: u64,
    first: SystemTime,
    last: SystemTime,
    slot: u64,
}

impl RecordLimiter {
    /// Counts into files of this directory, too, and takes up what an earlier gateway has counted there.
    pub(in crate::terminal) fn open(directory: &Path) -> Self {
        let (file, before) = RepeatCountsFile::open(directory);
        Self { state: Mutex::new(LimiterState { file, before, ..LimiterState::default() }) }
    }

    /// Decides about a record that its principal may cause at no cost: one of something else is always written.
    pub(in crate::terminal) fn admit(&self, record: &Record, room: ShareRoom) -> RateDecision {
        let Some((principal, kind, bytes)) = classify(record) else { return RateDecision::Write };
        let mut held = self.lock();
        if room == ShareRoom::Available && held.of(principal).spend(bytes, Instant::now()) {
            return RateDecision::Write;
        }
        held.count(principal, kind);
        RateDecision::Count
    }

    /// Counts a record instead of its being written.
    pub(in crate::terminal) fn count(&self, record: &Record) {
        if let Some((principal, kind, _)) = classify(record) {
            self.lock().count(principal, kind);
        }
    }

    /// Whether this principal may write a record that only it has asked for.
    pub(in crate::terminal) fn try_spend(&self, principal: &str) -> bool {
        self.lock().of(principal).spend(RECORD_OVERHEAD_BYTES, Instant::now())
    }

    /// The records of what was counted since the last time. They stay in a file until [`RecordLimiter::confirm_written`].
    pub(in crate::terminal) fn drain(&self) -> Vec<Record> {
        let mut held = self.lock();
        let mut records = std::mem::take(&mut held.before);
        for (principal, one) in &mut held.principals {
            for (kind, count) in std::mem::take(&mut one.counted) {
                records.push(record(principal, kind, &count));
            }
        }
        if !records.is_empty() {
            held.file.rotate();
        }
        records
    }

    /// What was drained is in the journal.
    pub(in crate::terminal) fn confirm_written(&self) {
        self.lock().file.clear_rotated();
    }

    fn lock(&self) -> MutexGuard<'_, LimiterState> {
        self.state.lock().expect("no code panics while it holds the refusals")
    }
}

impl LimiterState {
    fn of(&mut self, principal: &str) -> &mut PrincipalBudget {
        if !self.principals.contains_key(principal) {
            if self.principals.len() > IDLE_PRINCIPALS {
                self.principals.retain(|_, one| !one.counted.is_empty());
            }
            self.principals.insert(principal.to_owned(), PrincipalBudget::new());
        }
        self.principals.get_mut(principal).expect("it is there by now")
    }

    fn count(&mut self, principal: &str, kind: RepeatKind) {
        let slot = self.file.free_slot();
        let one = self.of(principal);
        let is_known = one.counted.contains_key(&kind) || one.counted.len() < KINDS_MAX;
        let kind = if is_known {
            kind
        } else {
            RepeatKind { is_question: kind.is_question, of: kind.of, ..RepeatKind::default() }
        };
        let at = SystemTime::now();
        let count =
            one.counted.entry(kind.clone()).or_insert(RepeatCount { times: 0, first: at, last: at, slot });
        count.times += 1;
        count.last = at;
        let (slot, record) = (count.slot, record(principal, kind, count));
        self.file.write(slot, record);
    }
}

fn record(principal: &str, kind: RepeatKind, count: &RepeatCount) -> Record {
    let RepeatKind { session, rule, limit, is_question, of } = kind;
    let principal = principal.to_owned();
    let (times, first_unix_ms, last_unix_ms) = (count.times, unix_ms(count.first), unix_ms(count.last));
    match of {
        Some(of) => {
            let of = of.to_owned();
            Record::RecordsRepeated(RecordsRepeated {
                principal,
                session,
                of,
                times,
                first_unix_ms,
                last_unix_ms,
            })
        }
        None => {
            let verdict = if is_question { RecordedVerdict::Ask } else { RecordedVerdict::Deny };
            Record::RefusalsRepeated(RefusalsRepeated {
                principal,
                session,
                rule,
                limit,
                verdict,
                times,
                first_unix_ms,
                last_unix_ms,
            })
        }
    }
}

impl PrincipalBudget {
    fn new() -> Self {
        Self { bytes_left: BURST_BYTES, at: Instant::now(), counted: BTreeMap::new() }
    }

    fn spend(&mut self, bytes: u64, now: Instant) -> bool {
        let passed_ms = u64::try_from(now.saturating_duration_since(self.at).as_millis()).unwrap_or(u64::MAX);
        let come_back = passed_ms.saturating_mul(BYTES_PER_S) / 1_000;
        if come_back > 0 {
            self.bytes_left = self.bytes_left.saturating_add(come_back).min(BURST_BYTES);
            self.at = now;
        }
        let left = self.bytes_left.checked_sub(bytes);
        self.bytes_left = left.unwrap_or(self.bytes_left);
        left.is_some()
    }
}

/// Whose a record is, of what kind, and about how long; `None`: its principal cannot cause it at no cost.
fn classify(record: &Record) -> Option<(&str, RepeatKind, u64)> {
    match record {
        Record::Decision(DecisionRecord {
            verdict: RecordedVerdict::Deny | RecordedVerdict::Ask, ..
        }) => {
            let Record::Decision(it) = record else { return None };
            let is_question = it.verdict == RecordedVerdict::Ask;
            let session = Some(it.session.clone());
            let kind = RepeatKind { session, rule: it.rule.clone(), is_question, ..RepeatKind::default() };
            let texts = it.command.argv.iter().chain(&it.judged.commands).map(String::len).sum::<usize>();
            let bytes = RECORD_OVERHEAD_BYTES + (texts + it.reason.len() + it.cwd.len()) as u64;
            let records = if is_question { RECORDS_OF_A_QUESTION } else { 1 };
            Some((&it.principal, kind, bytes * records))
        }
        Record::QuotaRefused(QuotaRefused { principal, session, limit, .. }) => {
            let kind =
                RepeatKind { session: session.clone(), limit: Some(limit.clone()), ..RepeatKind::default() };
            Some((principal, kind, RECORD_OVERHEAD_BYTES))
        }
        Record::ExecDenied(it) => {
            let session = Some(it.session.clone());
            let kind = RepeatKind { session, rule: it.rule.clone(), ..RepeatKind::default() };
            Some((&it.principal, kind, exec_bytes(&it.exec) + it.reason.len() as u64))
        }
        Record::ExecDeniedAgain(it) => {
            Some((&it.principal, RepeatKind::of("exec_denied_again", &it.session), RECORD_OVERHEAD_BYTES))
        }
        Record::ExecAsked(it) => {
            let (session, rule) = (Some(it.session.clone()), Some(it.rule.clone()));
            let kind = RepeatKind { session, rule, is_question: true, ..RepeatKind::default() };
            Some((&it.principal, kind, exec_bytes(&it.exec) * RECORDS_OF_A_QUESTION))
        }
        Record::ExecsAllowed(it) => {
            let bytes = it.execs.iter().map(|one| exec_bytes(&one.exec)).sum();
            Some((&it.principal, RepeatKind::of("execs_allowed", &it.session), bytes))
        }
        Record::Connection(it) => {
            let bytes = RECORD_OVERHEAD_BYTES + (it.host.len() + it.reason.len()) as u64;
            let kind = match it.verdict {
                RecordedVerdict::Allow => RepeatKind::of("connection", &it.session),
                RecordedVerdict::Deny | RecordedVerdict::Ask => {
                    let session = Some(it.session.clone());
                    RepeatKind { session, rule: it.rule.clone(), ..RepeatKind::default() }
                }
            };
            Some((&it.principal, kind, bytes))
        }
        Record::ConnectionEnded(it) => {
            let bytes = RECORD_OVERHEAD_BYTES + (it.host.len() + it.failure.len()) as u64;
            Some((&it.principal, RepeatKind::of("connection_ended", &it.session), bytes))
        }
        Record::Signature(it) => {
            let kind = match it.verdict {
                RecordedVerdict::Allow => RepeatKind::of("signature", &it.session),
                RecordedVerdict::Deny | RecordedVerdict::Ask => {
                    let (session, rule) = (Some(it.session.clone()), Some(it.rule.clone()));
                    RepeatKind { session, rule, ..RepeatKind::default() }
                }
            };
            Some((&it.principal, kind, RECORD_OVERHEAD_BYTES))
        }
        Record::ForwardEnded(it) => {
            Some((&it.principal, RepeatKind::of("forward_ended", &it.session), RECORD_OVERHEAD_BYTES))
        }
        Record::Signal(it) => {
            Some((&it.principal, RepeatKind::of("signal", &it.session), RECORD_OVERHEAD_BYTES))
        }
        Record::KillRequested(it) => {
            Some((&it.principal, RepeatKind::of("kill_requested", &it.session), RECORD_OVERHEAD_BYTES))
        }
        Record::WorkspaceChange(it) => {
            let bytes = RECORD_OVERHEAD_BYTES + (it.path.len() + it.what.len()) as u64;
            Some((&it.principal, RepeatKind::of("workspace_change", &it.session), bytes))
        }
        _ => None,
    }
}

fn exec_bytes(exec: &RecordedExec) -> u64 {
    let texts = exec.argv.iter().chain(&exec.interpreters).chain(&exec.path).map(String::len).sum::<usize>();
    RECORD_OVERHEAD_BYTES + (texts + exec.file.len() + exec.cwd.len()) as u64
}

impl RepeatKind {
    fn of(kind: &'static str, session: &str) -> Self {
        Self { session: Some(session.to_owned()), of: Some(kind), ..Self::default() }
    }
}

fn unix_ms(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The files' names.
const NAMES: [&str; 2] = ["counts-0", "counts-1"];
/// The length of a slot. It divides a page, so that a write is not torn by the end of the process.
const SLOT_BYTES: usize = 1_024;
/// The longest file that is read: 65 counts of 1,024 principals.
const FILE_MAX_BYTES: u64 = 65 * 1_024 * SLOT_BYTES as u64;

/// Keeps the counts in files of the journal's directory, so that they survive a gateway that is killed; by default in none.
///
/// Each count has a slot, which is written again as it grows, by one pwrite(2) without a sync. There are two files: one is
/// counted into while the counts of the other go into the journal. If a gateway is killed after the journal has them and before
/// that file is emptied, the next gateway writes them once more; none is lost. A count that cannot be written is kept in memory
/// only.
#[derive(Debug, Default)]
pub(in crate::terminal) struct RepeatCountsFile {
    files: Option<[File; 2]>,
    /// The one that is counted into.
    current: usize,
    slots: u64,
}

impl RepeatCountsFile {
    /// Takes up the files of a directory, and what is counted in them.
    pub(in crate::terminal) fn open(directory: &Path) -> (Self, Vec<Record>) {
        match Self::load(directory) {
            Ok(opened) => opened,
            Err(error) => {
                tracing::error!(
                    error = %error,
                    "counts of repeated records cannot be kept in files: a gateway that is killed loses those of 10 s"
                );
                (Self::default(), Vec::new())
            }
        }
    }

    fn load(directory: &Path) -> io::Result<(Self, Vec<Record>)> {
        let paths = NAMES.map(|name| directory.join(name));
        let mut records = Vec::new();
        for path in &paths {
            records.extend(read(path)?);
        }
        // All of it in one file, before the others are emptied.
        let unfinished: PathBuf = directory.join("counts.new");
        let file = private_options().create(true).truncate(true).open(&unfinished)?;
        let mut slots = 0;
        for record in &records {
            write(&file, slots, record)?;
            slots += 1;
        }
        fs::rename(&unfinished, &paths[0])?;
        let other = private_options().create(true).truncate(true).open(&paths[1])?;
        Ok((Self { files: Some([file, other]), current: 0, slots }, records))
    }

    /// The slot of a new count.
    pub(in crate::terminal) fn free_slot(&self) -> u64 {
        self.slots
    }

    /// Writes how far a count has come.
    pub(in crate::terminal) fn write(&mut self, slot: u64, record: Record) {
        self.slots = self.slots.max(slot + 1);
        if let Some(files) = &self.files
            && (slot + 1) * SLOT_BYTES as u64 <= FILE_MAX_BYTES
        {
            // The disk may be full: the count is in memory all the same.
            let _ = write(&files[self.current], slot, &record);
        }
    }

    /// From here on the other file is counted into; what stands in this one is about to be written.
    pub(in crate::terminal) fn rotate(&mut self) {
        // Were it not empty, it would be what nobody has said to be written.
        self.current = 1 - self.current;
        self.slots = self.files.as_ref().map_or(0, |files| length_in_slots(&files[self.current]));
    }

    /// What stood in the other file is written.
    pub(in crate::terminal) fn clear_rotated(&mut self) {
        if let Some(files) = &self.files {
            let _ = files[1 - self.current].set_len(0);
        }
    }
}

fn length_in_slots(file: &File) -> u64 {
    file.metadata().map_or(0, |found| found.len().div_ceil(SLOT_BYTES as u64))
}

fn private_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600).custom_flags(nix::libc::O_NOFOLLOW);
    options
}

fn write(file: &File, slot: u64, record: &Record) -> io::Result<()> {
    file.write_all_at(&padded(record)?, slot * SLOT_BYTES as u64)
}

/// A count as its slot has it. Names that are too long for it are left out.
fn padded(record: &Record) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(record)?;
    if text.len() >= SLOT_BYTES {
        let mut shorter = record.clone();
        if let Record::RefusalsRepeated(it) = &mut shorter {
            (it.rule, it.limit) = (None, None);
        }
        text = serde_json::to_vec(&shorter)?;
    }
    if text.len() >= SLOT_BYTES {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    text.resize(SLOT_BYTES - 1, b' ');
    text.push(b'\n');
    Ok(text)
}

fn read(path: &Path) -> io::Result<Vec<Record>> {
    let file = match OpenOptions::new().read(true).custom_flags(nix::libc::O_NOFOLLOW).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(file, FILE_MAX_BYTES), &mut bytes)?;
    let mut records = Vec::new();
    for slot in bytes.chunks(SLOT_BYTES) {
        match serde_json::from_slice(slot) {
            Ok(record @ (Record::RefusalsRepeated(_) | Record::RecordsRepeated(_))) => records.push(record),
            Ok(_) | Err(_) => tracing::error!("a count of repeated records cannot be read"),
        }
    }
    Ok(records)
}

/// Which reports of gates the journal had when this gateway came. A gate sends again what was not confirmed to it, and what a
/// gateway has written and not confirmed must not be written twice.
///
/// Reads the journal when first asked, and again for an older report.
#[derive(Debug)]
pub(in crate::terminal) struct RecordedReports {
    recorder: Recorder,
    known: tokio::sync::Mutex<KnownReports>,
}

#[derive(Debug, Default)]
struct KnownReports {
    /// The last report of each sandbox.
    last: HashMap<String, u64>,
    /// Records since then are known.
    since: Option<SystemTime>,
}

impl RecordedReports {
    /// Knows what the journal of this recorder has.
    pub(in crate::terminal) fn new(recorder: Recorder) -> Self {
        Self { recorder, known: tokio::sync::Mutex::default() }
    }

    /// Whether the journal has a report that was made at `at`. Reports are written in the order of their numbers, so it has
    /// every one up to the last of its sandbox.
    pub(in crate::terminal) async fn contains(&self, sandbox_id: &str, report: u64, at: SystemTime) -> bool {
        let Some(journal) = self.recorder.journal() else { return false };
        let mut known = self.known.lock().await;
        let since = at.checked_sub(CLOCK_MARGIN).unwrap_or(SystemTime::UNIX_EPOCH);
        if known.since.is_none_or(|known| since < known) {
            let journal = journal.clone();
            let read = tokio::task::spawn_blocking(move || journal.last_reports(since)).await;
            match read.map_err(std::io::Error::other).and_then(|last| last) {
                Ok(last) => known.last = last,
                // Twice is better than not at all.
                Err(error) => tracing::error!(%error, "the journal's reports cannot be read"),
            }
            known.since = Some(since);
        }
        known.last.get(sandbox_id).is_some_and(|last| report <= *last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::SignalRecord;

    fn refused(principal: &str, session: &str) -> Record {
        Record::QuotaRefused(QuotaRefused {
            principal: principal.into(),
            session: Some(session.into()),
            limit: "sessions_per_principal".into(),
            bound: 1,
        })
    }

    fn times(records: &[Record]) -> u64 {
        let times = records.iter().map(|record| match record {
            Record::RefusalsRepeated(it) => it.times,
            Record::RecordsRepeated(it) => it.times,
            other => panic!("{other:?}"),
        });
        times.sum()
    }

    #[test]
    fn beyond_the_rate_refusals_are_counted_and_every_one_of_them() {
        let limiter = RecordLimiter::default();
        let mut written = 0;
        for n in 0..20_000 {
            let record = refused("uid:1", &format!("sess_{}", n % 200));
            written += u64::from(limiter.admit(&record, ShareRoom::Available) == RateDecision::Write);
        }
        assert!(written * RECORD_OVERHEAD_BYTES < 2 * BURST_BYTES);
        let another = refused("uid:2", "sess_0");
        assert_eq!(limiter.admit(&another, ShareRoom::Available), RateDecision::Write, "another one's are");
        let drained = limiter.drain();
        assert!(drained.len() <= KINDS_MAX + 1, "{} records", drained.len());
        assert_eq!(written + times(&drained), 20_000);
        assert!(limiter.drain().is_empty());
    }

    #[test]
    fn what_was_counted_survives_the_gateway_and_is_not_there_twice() {
        let directory = tempfile::tempdir().unwrap();
        let count = |refusals: &RecordLimiter, times| {
            for n in 0..times {
                let session = format!("sess_{}", n % 3);
                assert_eq!(refusals.admit(&refused("uid:1", &session), ShareRoom::Full), RateDecision::Count);
                let (principal, terminal) = ("uid:1".to_owned(), "term_1".to_owned());
                let signal = SignalRecord { terminal, session, principal, signal: "SIGINT".to_owned() };
                refusals.count(&Record::Signal(signal));
            }
        };
        let first = RecordLimiter::open(directory.path());
        count(&first, 100);
        assert_eq!(times(&first.drain()), 200);
        first.confirm_written();
        count(&first, 50);
        drop(first);
        let second = RecordLimiter::open(directory.path());
        count(&second, 10);
        // Killed behind the drain, and before the records were written.
        assert_eq!(times(&second.drain()), 120);
        count(&second, 1);
        drop(second);
        let third = RecordLimiter::open(directory.path());
        let drained = third.drain();
        assert_eq!(times(&drained), 122);
        third.confirm_written();
        drop(third);
        assert!(RecordLimiter::open(directory.path()).drain().is_empty());
    }
}
