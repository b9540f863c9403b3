//! The terminal log of a session: a file with its terminals, for the case that their supervisor does not survive.
//!
//! A terminal is added before its spawn is requested, and its outcome before the outcome is published. Both are removed
//! when it is released. What its supervisor reports goes before what stands here. Holds no argument and no secret, and is
//! not synced: no terminal survives the crash of a host.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use prost::Message as _;

use crate::{
    proto::{
        state::{
            TerminalCreated, TerminalEnded, TerminalExecDenied, TerminalLogRecord, TerminalRecord,
            terminal_log_record::Record,
        },
        v1::{ConnectDenial, ExecDenial, Outcome},
    },
    session::SessionId,
    statefile::{
        StatefileError, StatefileProblem, TEMP_SUFFIX,
        append_log::{self, AppendLog, LogCondition},
    },
    terminal::spec::TerminalId,
};

/// The directory of all terminal logs, in the state directory.
const DIRECTORY: &str = "terminals";
/// The suffix of a terminal log that was found damaged and put aside. Another one of the same session replaces it.
const DAMAGED_SUFFIX: &str = ".damaged";
/// A file that is shorter is not written again, however little of it still counts.
const REWRITE_ABOVE_BYTES: u64 = 256 << 10;
/// How often as long as after it was last written again a file may become.
const REWRITE_AT_TIMES: u64 = 4;

/// A terminal log cannot be read in full.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TerminalLogError {
    /// None of it can be read.
    #[error("cannot read the terminal log")]
    Unreadable(#[from] StatefileError),
    /// A part of it can be read.
    #[error("the terminal log is damaged at byte {0}")]
    Damaged(u64),
}

/// The terminal logs of all sessions.
#[derive(Debug)]
pub(in crate::terminal) struct TerminalLogs {
    /// None: what this gateway starts ends with it, and nothing is kept.
    directory: Option<PathBuf>,
    of: Mutex<HashMap<SessionId, Arc<TerminalLog>>>,
}

impl TerminalLogs {
    /// In files of this state directory.
    pub(in crate::terminal) fn in_directory(state: &Path) -> Self {
        Self { directory: Some(state.join(DIRECTORY)), of: Mutex::default() }
    }

    /// Nowhere.
    pub(in crate::terminal) fn disabled() -> Self {
        Self { directory: None, of: Mutex::default() }
    }

    /// The terminal log of a session; an empty one, without a file, where there was none.
    pub(in crate::terminal) fn of(&self, session: SessionId) -> Arc<TerminalLog> {
        self.lock().entry(session).or_insert_with(|| Arc::new(TerminalLog::empty(self.file(session)))).clone()
    }

    /// Reads the log that a gateway before this one has left, before anything else is done with it. What is damaged is
    /// put aside, and what can be read of it is written again.
    pub(in crate::terminal) fn adopt(
        &self,
        session: SessionId,
    ) -> (Arc<TerminalLog>, Result<(), TerminalLogError>) {
        let Some(file) = self.file(session) else { return (self.of(session), Ok(())) };
        let (file, read) = LogFile::adopt(file);
        let log = Arc::new(TerminalLog { file: Some(Mutex::new(file)) });
        self.lock().insert(session, log.clone());
        (log, read)
    }

    /// Forgets the session, which has no terminals any more.
    pub(in crate::terminal) fn remove(&self, session: SessionId) {
        self.lock().remove(&session);
        let Some(file) = self.file(session) else { return };
        if let Err(error) = remove_if_there(&file) {
            // The next start removes it: its session is not there.
            tracing::error!(session.id = %session, error = %error, "cannot remove the terminal log");
        }
    }

    /// Removes the files of sessions that are not among these, and the names of those that were put aside as damaged,
    /// now or before.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub(in crate::terminal) fn remove_stale(&self, sessions: &HashSet<String>) -> io::Result<Vec<String>> {
        let Some(directory) = &self.directory else { return Ok(Vec::new()) };
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut damaged = Vec::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(DAMAGED_SUFFIX) {
                damaged.push(name);
            } else if name.ends_with(TEMP_SUFFIX) || !sessions.contains(&name) {
                // A failure shows at the next start.
                let _ = fs::remove_file(entry.path());
            }
        }
        damaged.sort();
        Ok(damaged)
    }

    fn file(&self, session: SessionId) -> Option<PathBuf> {
        self.directory.as_ref().map(|directory| directory.join(session.to_string()))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Arc<TerminalLog>>> {
        self.of.lock().expect("no code panics while it holds the table of terminal logs")
    }
}

/// The path of a terminal log that was put aside.
pub(crate) fn damaged_file(state: &Path, name: &str) -> PathBuf {
    state.join(DIRECTORY).join(name)
}

/// The terminal log of one session.
#[derive(Debug)]
pub(in crate::terminal) struct TerminalLog {
    file: Option<Mutex<LogFile>>,
}

/// What a log has of one terminal.
#[derive(Debug, Clone)]
pub(in crate::terminal) struct LogEntry {
    pub(in crate::terminal) begun: TerminalCreated,
    pub(in crate::terminal) denials: CountedDenials,
    pub(in crate::terminal) ended: Option<TerminalEnded>,
}

impl LogEntry {
    /// Its outcome, as it was published.
    pub(in crate::terminal) fn outcome(&self) -> Option<Outcome> {
        // What is in the log has a checksum: it is what a gateway wrote.
        self.ended.as_ref().and_then(|ended| Outcome::decode(&ended.outcome[..]).ok())
    }
}

impl TerminalLog {
    fn empty(file: Option<PathBuf>) -> Self {
        Self { file: file.map(|file| Mutex::new(LogFile::empty(AppendLog::new(file)))) }
    }

    /// Enters a terminal that is about to be spawned in a sandbox, or that was found in it.
    ///
    /// # Errors
    /// It cannot be written, and must not be spawned.
    pub(in crate::terminal) fn add(
        &self,
        id: TerminalId,
        sandbox_id: &str,
        record: impl FnOnce() -> TerminalRecord,
    ) -> io::Result<()> {
        let Some(mut file) = self.lock() else { return Ok(()) };
        if file.entries.contains_key(&id) {
            return Ok(());
        }
        let begun = TerminalCreated {
            terminal_id: id.to_string(),
            sandbox_id: sandbox_id.to_owned(),
            terminal: Some(record()),
        };
        file.append(Record::Created(begun.clone()))?;
        file.entries.insert(id, LogEntry { begun, denials: CountedDenials::default(), ended: None });
        Ok(())
    }

    /// Enters how a terminal has ended, once. It has ended whether that can be written or not.
    pub(in crate::terminal) fn set_outcome(&self, id: TerminalId, outcome: &Outcome) {
        let Some(mut file) = self.lock() else { return };
        let ended = TerminalEnded { terminal_id: id.to_string(), outcome: outcome.encode_to_vec().into() };
        match file.entries.get_mut(&id) {
            Some(entry) if entry.ended.is_none() => entry.ended = Some(ended.clone()),
            Some(_) | None => return,
        }
        if let Err(error) = file.append(Record::Ended(ended)) {
            tracing::error!(terminal.id = %id, error = %error, "the end of a command is not in its session's terminal log");
        }
    }

    /// Enters an exec that was denied. It was denied whether that can be written or not.
    pub(in crate::terminal) fn add_denial(&self, id: TerminalId, denial: TerminalExecDenied) {
        let Some(mut file) = self.lock() else { return };
        let denial = TerminalExecDenied { terminal_id: id.to_string(), ..denial };
        let Some(entry) = file.entries.get_mut(&id) else { return };
        entry.denials.replay(&denial);
        if let Err(error) = file.append(Record::ExecDenied(denial)) {
            tracing::error!(terminal.id = %id, error = %error, "a denied exec is not in its session's terminal log");
        }
        file.rewrite_when_long();
    }

    /// The execs of a terminal that were denied, as far as they are entered.
    pub(in crate::terminal) fn denials(&self, id: TerminalId) -> CountedDenials {
        self.lock().and_then(|file| Some(file.entries.get(&id)?.denials.clone())).unwrap_or_default()
    }

    /// Removes a terminal that was released, or was never started.
    pub(in crate::terminal) fn remove(&self, id: TerminalId) {
        let Some(mut file) = self.lock() else { return };
        if file.entries.remove(&id).is_none() {
            return;
        }
        if let Err(error) = file.append(Record::Removed(id.to_string())) {
            tracing::error!(terminal.id = %id, error = %error, "a released terminal is still in its session's terminal log");
        }
        file.rewrite_when_long();
    }

    /// The outcome of a terminal, where it was published.
    pub(in crate::terminal) fn outcome(&self, id: TerminalId) -> Option<Outcome> {
        self.lock()?.entries.get(&id)?.outcome()
    }

    /// All that stands on it.
    pub(in crate::terminal) fn entries(&self) -> Vec<(TerminalId, LogEntry)> {
        let Some(file) = self.lock() else { return Vec::new() };
        file.entries.iter().map(|(id, entry)| (*id, entry.clone())).collect()
    }

    fn lock(&self) -> Option<std::sync::MutexGuard<'_, LogFile>> {
        let file = self.file.as_ref()?;
        Some(file.lock().expect("no code panics while it holds a terminal log"))
    }
}

/// The entries of a log, and its file.
#[derive(Debug)]
struct LogFile {
    log: AppendLog,
    entries: HashMap<TerminalId, LogEntry>,
    rewrite_at_bytes: u64,
    /// Whether something is held here that could not be written.
    has_unwritten: bool,
}

impl LogFile {
    fn empty(log: AppendLog) -> Self {
        Self { log, entries: HashMap::new(), rewrite_at_bytes: REWRITE_ABOVE_BYTES, has_unwritten: false }
    }

    fn adopt(file: PathBuf) -> (Self, Result<(), TerminalLogError>) {
        let error = match append_log::read::<TerminalLogRecord>(&file) {
            Err(error) if error.is_missing() => {
                return (Self::empty(AppendLog::new(file)), Ok(()));
            }
            Err(error) => TerminalLogError::from(error),
            Ok(contents) => {
                let entries = replay(contents.messages);
                let damage = match contents.condition {
                    LogCondition::Intact => match AppendLog::resume(file.clone(), contents.length) {
                        Ok(series) => return (Self { entries, ..Self::empty(series) }, Ok(())),
                        Err(error) => {
                            StatefileError { path: file.clone(), problem: StatefileProblem::Read(error) }
                                .into()
                        }
                    },
                    LogCondition::Damaged { at } => TerminalLogError::Damaged(at),
                };
                return (Self::replace_damaged(file, entries), Err(damage));
            }
        };
        (Self::replace_damaged(file, HashMap::new()), Err(error))
    }

    /// Puts the file aside, and begins another one with what could be read of it.
    fn replace_damaged(file: PathBuf, entries: HashMap<TerminalId, LogEntry>) -> Self {
        let mut aside: OsString = file.clone().into();
        aside.push(DAMAGED_SUFFIX);
        if let Err(error) = fs::rename(&file, &aside) {
            tracing::error!(file = %crate::printable::path(&file), error = %error, "cannot put a damaged terminal log aside");
        }
        let mut file = Self { entries, ..Self::empty(AppendLog::new(file)) };
        if !file.entries.is_empty() {
            file.rewrite_or_log();
        }
        file
    }

    /// Adds a record. What could not be written before is written first: no end that was published is forgotten because the
    /// disk was full for a moment.
    fn append(&mut self, record: Record) -> io::Result<()> {
        if self.has_unwritten {
            self.rewrite()?;
        }
        let appended = self.log.append(&TerminalLogRecord { record: Some(record) });
        self.has_unwritten = appended.is_err();
        appended
    }

    fn rewrite_when_long(&mut self) {
        if self.log.length() >= self.rewrite_at_bytes {
            self.rewrite_or_log();
        }
    }

    fn rewrite_or_log(&mut self) {
        if let Err(error) = self.rewrite() {
            tracing::error!(error = %error, "cannot rewrite a session's terminal log");
        }
    }

    fn rewrite(&mut self) -> io::Result<()> {
        let records = self.entries.values().flat_map(|entry| {
            let begun = Some(Record::Created(entry.begun.clone()));
            let denials = entry.denials.entries(&entry.begun.terminal_id).into_iter().map(Record::ExecDenied);
            begun.into_iter().chain(denials).chain(entry.ended.clone().map(Record::Ended))
        });
        let written = self.log.rewrite(records.map(|record| TerminalLogRecord { record: Some(record) }));
        self.has_unwritten = written.is_err();
        // After a failure, too: it is not tried again with each terminal.
        self.rewrite_at_bytes = (self.log.length() * REWRITE_AT_TIMES).max(REWRITE_ABOVE_BYTES);
        written
    }
}

fn replay(records: Vec<TerminalLogRecord>) -> HashMap<TerminalId, LogEntry> {
    let mut entries = HashMap::<TerminalId, LogEntry>::new();
    for record in records {
        match record.record {
            Some(Record::Created(begun)) => {
                if let Some(id) = TerminalId::parse(&begun.terminal_id) {
                    let denials = CountedDenials::default();
                    entries.insert(id, LogEntry { begun, denials, ended: None });
                }
            }
            Some(Record::Ended(ended)) => {
                let entry = TerminalId::parse(&ended.terminal_id).and_then(|id| entries.get_mut(&id));
                if let Some(entry) = entry {
                    entry.ended = Some(ended);
                }
            }
            Some(Record::Removed(id)) => {
                if let Some(id) = TerminalId::parse(&id) {
                    entries.remove(&id);
                }
            }
            Some(Record::ExecDenied(denial)) => {
                let entry = TerminalId::parse(&denial.terminal_id).and_then(|id| entries.get_mut(&id));
                if let Some(entry) = entry {
                    entry.denials.replay(&denial);
                }
            }
            // A later version has written it, about something else.
            None => {}
        }
    }
    entries
}

fn remove_if_there(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The denied execs and connections of one terminal.
#[derive(Debug)]
pub(in crate::terminal) struct Denials {
    /// The execs.
    pub(in crate::terminal) execs: ExecDenials,
    /// The connections.
    pub(in crate::terminal) connections: ConnectDenials,
}

impl Denials {
    /// With the execs that are known already.
    pub(in crate::terminal) fn new(execs: ExecDenials) -> Self {
        Self { execs, connections: ConnectDenials::default() }
    }

    /// Puts them into the outcome.
    pub(in crate::terminal) fn report(&self, outcome: &mut Outcome) {
        self.execs.report(outcome);
        self.connections.report(outcome);
    }
}

/// The most denied execs, and the most denied connections, in one outcome.
const DENIALS_MAX: usize = 64;

/// The denied execs of one terminal: the first ones, and the number of the others. A report counts once, whichever gateway takes
/// it and however often: its number says whether it has been counted.
#[derive(Debug, Default)]
pub(in crate::terminal) struct ExecDenials(Mutex<CountedDenials>);

/// What was counted so far.
#[derive(Debug, Clone, Default)]
pub(in crate::terminal) struct CountedDenials {
    first: Vec<ExecDenial>,
    omitted: u64,
    /// The number of the last report that was counted.
    last_report: u64,
}

impl ExecDenials {
    /// Those that an earlier gateway has counted.
    pub(in crate::terminal) fn adopted(counted: CountedDenials) -> Self {
        Self(Mutex::new(counted))
    }

    /// Counts a report; what the terminal log is to have of it. `None`: it was counted before.
    pub(in crate::terminal) fn count(&self, report: u64, denial: ExecDenial) -> Option<TerminalExecDenied> {
        let mut counted = self.lock();
        if report <= counted.last_report {
            return None;
        }
        counted.last_report = report;
        let mut entry = TerminalExecDenied { report, ..TerminalExecDenied::default() };
        if counted.first.len() < DENIALS_MAX {
            entry.denial = denial.encode_to_vec().into();
            counted.first.push(denial);
        } else {
            counted.omitted += 1;
        }
        entry.omitted = counted.omitted;
        Some(entry)
    }

    /// Puts them into the outcome.
    pub(in crate::terminal) fn report(&self, outcome: &mut Outcome) {
        let counted = self.lock();
        outcome.exec_denials.clone_from(&counted.first);
        outcome.exec_denials_omitted = counted.omitted;
    }

    fn lock(&self) -> MutexGuard<'_, CountedDenials> {
        self.0.lock().expect("no code panics while it holds denied execs")
    }
}

impl CountedDenials {
    /// Takes in an entry of a terminal log, in the order in which it was written.
    pub(in crate::terminal) fn replay(&mut self, entry: &TerminalExecDenied) {
        self.last_report = self.last_report.max(entry.report);
        self.omitted = self.omitted.max(entry.omitted);
        // What is in the log has a checksum: it is what a gateway wrote.
        if !entry.denial.is_empty()
            && self.first.len() < DENIALS_MAX
            && let Ok(denial) = ExecDenial::decode(&entry.denial[..])
        {
            self.first.push(denial);
        }
    }

    /// The entries from which the same is read again.
    pub(in crate::terminal) fn entries(&self, terminal_id: &str) -> Vec<TerminalExecDenied> {
        let denials = self.first.iter().map(|denial| denial.encode_to_vec().into());
        let count_only = self.first.is_empty() && self.last_report > 0;
        let denials = denials.chain(count_only.then(Default::default));
        denials
            .map(|denial| TerminalExecDenied {
                terminal_id: terminal_id.to_owned(),
                report: self.last_report,
                denial,
                omitted: self.omitted,
            })
            .collect()
    }
}

/// The denied connections of one terminal.
#[derive(Debug, Default)]
pub(in crate::terminal) struct ConnectDenials(Mutex<(Vec<ConnectDenial>, u64)>);

impl ConnectDenials {
    /// Counts one.
    pub(in crate::terminal) fn count(&self, denial: ConnectDenial) {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.0.len() < DENIALS_MAX {
            counted.0.push(denial);
        } else {
            counted.1 += 1;
        }
    }

    /// Puts them into the outcome, unless it has some already: of an end that another gateway has seen.
    pub(in crate::terminal) fn report(&self, outcome: &mut Outcome) {
        let counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !counted.0.is_empty() {
            outcome.connect_denials.clone_from(&counted.0);
            outcome.connect_denials_omitted = counted.1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_report_is_counted_once_also_by_the_next_gateway() {
        let denials = ExecDenials::default();
        let mut log = CountedDenials::default();
        for report in (1..=100).flat_map(|report| [report, report]) {
            let denial = ExecDenial { program: report.to_string(), ..ExecDenial::default() };
            if let Some(entry) = denials.count(report, denial) {
                log.replay(&entry);
            }
        }
        let mut rewritten = CountedDenials::default();
        log.entries("term_1").iter().for_each(|entry| rewritten.replay(entry));
        for counted in [log, rewritten] {
            let adopted = ExecDenials::adopted(counted);
            assert!(adopted.count(100, ExecDenial::default()).is_none());
            let mut outcome = Outcome::default();
            adopted.report(&mut outcome);
            let programs: Vec<_> = outcome.exec_denials.iter().map(|one| one.program.clone()).collect();
            assert_eq!(programs, (1..=64).map(|n| n.to_string()).collect::<Vec<_>>());
            assert_eq!(outcome.exec_denials_omitted, 36);
        }
    }

    #[test]
    fn the_first_are_listed_and_the_others_counted() {
        let denials = ConnectDenials::default();
        for port in 0..100 {
            denials.count(ConnectDenial { port, ..ConnectDenial::default() });
        }
        let mut outcome = Outcome::default();
        denials.report(&mut outcome);
        assert_eq!((outcome.connect_denials.len(), outcome.connect_denials_omitted), (64, 36));
        assert_eq!(outcome.connect_denials[63].port, 63);
    }
}
