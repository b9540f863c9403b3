//! `provost audit`: a journal's records, from the gateway that writes them or from its files, and their check.
//!
//! A gateway shows each caller its own records. A user who may read the journal's directory needs no gateway to read the files. Records are
//! printed as they were written, in the same words from both; nothing is changed. Bad lines are passed over by the gateway: to find them is
//! for `provost audit verify`.

use std::{
    collections::VecDeque,
    path::PathBuf,
    time::{Duration, UNIX_EPOCH},
};

use clap::{Args, Subcommand, ValueEnum};
use tonic::Streaming;

use super::{
    console::{
        error::CliError,
        exit_status,
        stdio::{self, WriteOutcome},
        table::{print_to_stdout, to_json_line},
    },
    gateway_link::connection::GatewayConnection,
    request::arguments::{OutputArguments, OutputFormat, parse_gateway},
};
use crate::{
    gateway::Config,
    journal::{
        Clock as _, CommandExpander, Entries, Follower, Integrity, JournalDirectory, JournalEntry,
        JournalPublicKey, JournalReadError, RecordFilter, RecordedVerdict, SystemClock, VerifyReport,
        parse_utc, verify,
    },
    policy::duration,
    printable,
    proto::v1,
};

/// The exit status for a journal that is not as it was written.
const BROKEN: u8 = 1;
/// The exit status for a last line that was not finished.
const TORN: u8 = 3;
/// How often a follower looks whether anybody still reads.
const FOLLOW_WAIT: Duration = Duration::from_secs(3600);
/// How many files `tail` looks into for the last records.
const TAIL_FILES: usize = 2;

/// `provost audit`.
#[derive(Debug, Args)]
#[command(
    about = "Read and verify the journal",
    long_about = "Reads the journal: one JSON object a line, each with the hash of the one before it. tail and query \
                  ask the gateway, which shows root and its own user all records and everybody else their own; with \
                  --journal, or where no gateway serves, they read the files. verify always does.",
    after_help = "Examples:\n  \
                  provost audit tail --follow\n  \
                  provost audit query --decision deny --since 24h\n  \
                  provost audit query --journal /var/lib/provost/journal --terminal term_01K9Z3\n  \
                  provost audit verify --key journal.pub"
)]
pub(in crate::cli) struct AuditArguments {
    /// Read the files in this directory. Without it: a gateway is asked, and `verify` reads `journal` in the default state
    /// directory
    #[arg(long, value_name = "DIR", global = true)]
    journal: Option<PathBuf>,
    /// The gateway's socket. Without it: $PROVOST_GATEWAY, else the socket that `provost serve` has by default
    #[arg(
        long, value_name = "unix:PATH", global = true, conflicts_with = "journal",
        value_parser = parse_gateway
    )]
    gateway: Option<String>,
    #[command(subcommand)]
    command: AuditCommand,
}

/// The commands of `provost audit`.
#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// Print the last records, and with --follow those to come
    Tail {
        /// How many
        #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 10)]
        lines: usize,
        /// Go on with new records as they are written
        #[arg(long, short = 'f')]
        follow: bool,
        #[command(flatten)]
        filter: FilterArguments,
    },
    /// Print the records that are about something
    Query {
        #[command(flatten)]
        filter: FilterArguments,
    },
    /// Prove that nothing was changed, removed, reordered, inserted or cut off, or say where
    ///
    /// Exit status: 0 intact; 1 not as it was written; 3 intact but for a last line that was not finished.
    Verify {
        /// Public key (Ed25519, PEM) that the signed checkpoints must be of
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
        #[command(flatten)]
        output: OutputArguments,
    },
}

/// Does what was asked.
pub(in crate::cli) async fn audit(arguments: AuditArguments) -> Result<u8, CliError> {
    let AuditArguments { journal, gateway, command } = arguments;
    match command {
        AuditCommand::Tail { lines, follow, filter } => match source(journal, gateway).await? {
            RecordSource::Gateway(connection) => tail_remote(&connection, lines, follow, &filter).await,
            RecordSource::Files(directory) => tail(&directory, lines, follow.then_some(FOLLOW_WAIT), &filter),
        },
        AuditCommand::Query { filter } => match source(journal, gateway).await? {
            RecordSource::Gateway(connection) => query_remote(&connection, &filter).await,
            RecordSource::Files(directory) => query(&directory, &filter),
        },
        AuditCommand::Verify { .. } if gateway.is_some() => {
            Err(CliError::message_only("verify reads the files, and no gateway".into())
                .with_advice("name their directory with --journal"))
        }
        AuditCommand::Verify { key, output } => {
            let directory = JournalDirectory::new(journal.unwrap_or_else(default_directory));
            let key = key.map(|path| JournalPublicKey::load(&path)).transpose();
            let key = key.map_err(|error| CliError::caused_by("cannot use the key", error))?;
            let report = verify(&directory, key.as_ref()).map_err(|error| unreadable(&directory, error))?;
            print_to_stdout(&if output.output == OutputFormat::Json {
                to_json_line(&report)?
            } else {
                report_text(&directory, &report)
            })?;
            Ok(match report.integrity() {
                Integrity::Intact => 0,
                Integrity::Torn => TORN,
                Integrity::Broken => BROKEN,
            })
        }
    }
}

/// Where records are read.
enum RecordSource {
    Gateway(Box<GatewayConnection>),
    Files(JournalDirectory),
}

async fn source(journal: Option<PathBuf>, gateway: Option<String>) -> Result<RecordSource, CliError> {
    if let Some(directory) = journal {
        return Ok(RecordSource::Files(JournalDirectory::new(directory)));
    }
    Ok(match GatewayConnection::running(gateway.as_deref(), None).await? {
        Some(connection) => RecordSource::Gateway(Box::new(connection)),
        None => {
            let directory = default_directory();
            stdio::print_notice(&format!(
                "notice: no gateway serves; reading the files in {}",
                crate::printable::path(&directory)
            ));
            RecordSource::Files(JournalDirectory::new(directory))
        }
    })
}

fn default_directory() -> PathBuf {
    Config::default().state.join("journal")
}

fn query(directory: &JournalDirectory, arguments: &FilterArguments) -> Result<u8, CliError> {
    let entries =
        Entries::new(directory, arguments.filter()).map_err(|error| unreadable(directory, error))?;
    let (mut status, mut commands) = (0, CommandExpander::from_directory(directory));
    for entry in entries {
        let Some(entry) = readable(directory, entry.map(Some), &mut status)? else { continue };
        if print(&entry.text, &mut commands, arguments)? == WriteOutcome::ReaderGone {
            return Ok(crate::cli::console::exit_status::BROKEN_PIPE);
        }
    }
    Ok(status)
}

fn tail(
    directory: &JournalDirectory,
    lines: usize,
    follow: Option<Duration>,
    arguments: &FilterArguments,
) -> Result<u8, CliError> {
    let mut status = 0;
    let mut follower = Follower::new(directory, arguments.filter(), TAIL_FILES)
        .map_err(|error| unreadable(directory, error))?;
    let (mut last, mut commands) = (VecDeque::new(), CommandExpander::from_directory(directory));
    loop {
        let mut bad = 0;
        match readable(directory, follower.next(Duration::ZERO), &mut bad)? {
            Some(entry) => last.push_back(entry),
            None if bad != 0 => status = bad,
            None => break,
        }
        if last.len() > lines {
            last.pop_front();
        }
    }
    for entry in last {
        if print(&entry.text, &mut commands, arguments)? == WriteOutcome::ReaderGone {
            return Ok(crate::cli::console::exit_status::BROKEN_PIPE);
        }
    }
    let Some(wait) = follow else { return Ok(status) };
    loop {
        if let Some(entry) = readable(directory, follower.next(wait), &mut status)?
            && print(&entry.text, &mut commands, arguments)? == WriteOutcome::ReaderGone
        {
            return Ok(crate::cli::console::exit_status::BROKEN_PIPE);
        }
    }
}

/// A line that is no record is said and passed over, and makes the status bad.
fn readable(
    directory: &JournalDirectory,
    entry: Result<Option<JournalEntry>, JournalReadError>,
    status: &mut u8,
) -> Result<Option<JournalEntry>, CliError> {
    match entry {
        Ok(entry) => Ok(entry),
        Err(error @ JournalReadError::BadLine { .. }) => {
            *status = BROKEN;
            stdio::print_notice(&format!("{:#}", anyhow::Error::new(error)));
            Ok(None)
        }
        Err(JournalReadError::Io(error)) => Err(unreadable(directory, error)),
    }
}

fn report_text(directory: &JournalDirectory, report: &VerifyReport) -> String {
    let mut page = String::new();
    let mut line = |text: String| page.extend([text.as_str(), "\n"]);
    for fault in &report.faults {
        line(format!(
            "{}:{}: record {}: {}: {}",
            fault.file,
            fault.line,
            fault.sequence,
            as_word(&fault.kind),
            fault.problem
        ));
    }
    if report.more_faults > 0 {
        line(format!("and {} more", report.more_faults));
    }
    if let Some(tear) = &report.torn_line {
        line(format!("{}:{}: the last line was not finished", tear.file, tear.line));
    }
    for notice in &report.notices {
        let said = serde_json::to_string(&notice.record).unwrap_or_default();
        let said = printable::json(&said);
        line(format!("note: record {}: {said}", notice.sequence));
    }
    let range = match (report.first_sequence, report.last) {
        (Some(first), Some(last)) => {
            format!("records {first} to {} in {} files", last.sequence, report.files)
        }
        _ => "no records".to_owned(),
    };
    line(format!("{}: {}: {range}", crate::printable::path(directory.path()), as_word(&report.integrity())));
    if let Some(through) = report.signed_through {
        line(format!("signed by the key up to record {through}"));
    }
    page
}

/// A word of the report, as `-o json` has it.
fn as_word(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().replace('_', " ")
}

fn unreadable(directory: &JournalDirectory, error: std::io::Error) -> CliError {
    CliError::caused_by(
        format!("cannot read the journal {}", crate::printable::path(directory.path())),
        error,
    )
    .with_advice("name its directory with --journal")
}

/// Prints the records that are there.
async fn query_remote(connection: &GatewayConnection, arguments: &FilterArguments) -> Result<u8, CliError> {
    let request = v1::QueryRecordsRequest { filter: Some(arguments.for_service()), last: None };
    let records = connection.client().audit.query_records(request).await?.into_inner();
    print_all(records, |response: v1::QueryRecordsResponse| response.record, arguments).await
}

/// Prints the last records, and with `follow` those to come.
async fn tail_remote(
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

/// Which records, and how.
#[derive(Debug, Args)]
struct FilterArguments {
    /// About this session
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// About this terminal
    #[arg(long, value_name = "ID")]
    terminal: Option<String>,
    /// About this principal, as uid:1000. Who is neither root nor the gateway's own user can name only itself
    #[arg(long, value_name = "PRINCIPAL")]
    principal: Option<String>,
    /// Decided by this rule
    #[arg(long, value_name = "RULE")]
    rule: Option<String>,
    /// Decided so
    #[arg(long, value_name = "DECISION")]
    decision: Option<DecisionChoice>,
    /// Only sessions that were opened by this front end (cli, acp, mcp, shell, grpc, ...), as their callers claim
    #[arg(long, value_name = "NAME")]
    front_end: Option<String>,
    /// Written since: a time ago as 90s, 15m or 24h, a date as 2026-11-21, or with a time as 2026-11-21T10:26:27Z
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<u64>,
    /// Print in this format; json prints each record as it was written, one JSON object a line
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DecisionChoice {
    Allow,
    Deny,
    Ask,
}

/// Prints a record, from its line, which says the same as it was written.
fn print(
    line: &str,
    commands: &mut CommandExpander,
    arguments: &FilterArguments,
) -> Result<WriteOutcome, CliError> {
    let text = match arguments.output {
        OutputFormat::Json => format!("{}\n", printable::json(line)),
        OutputFormat::Text => line_for_people(line, commands)?,
    };
    stdio::print(&text).map_err(|error| CliError::caused_by("cannot write to stdout", error))
}

/// Number, time, kind, then the fields that are not empty, as the record has them, with its texts whole.
fn line_for_people(line: &str, commands: &mut CommandExpander) -> Result<String, CliError> {
    let mut line = serde_json::from_str::<serde_json::Value>(line)
        .map_err(|error| CliError::caused_by("cannot show a record", error))?;
    commands.expand(&mut line);
    let fields = line["record"].as_object().cloned().unwrap_or_default();
    let kind = fields.get("kind").and_then(serde_json::Value::as_str).unwrap_or("?").to_owned();
    let rest: Vec<String> = fields
        .iter()
        .filter(|(name, value)| *name != "kind" && !value.is_null())
        .map(|(name, value)| printable::line(&format!("{name}={value}")).into_owned())
        .collect();
    let (sequence, time) = (&line["seq"], line["time"].as_str().unwrap_or("?"));
    Ok(format!("{:>8}  {time}  {kind:<16}  {}\n", sequence.to_string(), rest.join(" ")))
}

impl FilterArguments {
    /// For a gateway.
    fn for_service(&self) -> v1::AuditFilter {
        let decision = match self.decision {
            None => v1::Decision::Unspecified,
            Some(DecisionChoice::Allow) => v1::Decision::Allow,
            Some(DecisionChoice::Deny) => v1::Decision::Deny,
            Some(DecisionChoice::Ask) => v1::Decision::Ask,
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        v1::AuditFilter {
            session_id: text(&self.session),
            terminal_id: text(&self.terminal),
            rule: text(&self.rule),
            decision: decision.into(),
            since: self.since.map(|ns| (UNIX_EPOCH + Duration::from_nanos(ns)).into()),
            principal: text(&self.principal),
            front_end: text(&self.front_end),
        }
    }

    /// The filter for the files.
    pub(in crate::cli) fn filter(&self) -> RecordFilter {
        RecordFilter {
            principal: self.principal.clone(),
            session: self.session.clone(),
            terminal: self.terminal.clone(),
            rule: self.rule.clone(),
            verdict: self.decision.map(|decision| match decision {
                DecisionChoice::Allow => RecordedVerdict::Allow,
                DecisionChoice::Deny => RecordedVerdict::Deny,
                DecisionChoice::Ask => RecordedVerdict::Ask,
            }),
            front_end: self.front_end.clone(),
            since_ns: self.since,
        }
    }
}

fn since(text: &str) -> Result<u64, String> {
    if let Some(moment) = parse_utc(text) {
        return Ok(moment);
    }
    let ago = duration::parse(text)
        .map_err(|_| "neither a time ago as 24h nor a time in UTC as 2026-11-21T10:26:27Z".to_owned())?;
    let ago_ns = u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX);
    Ok(SystemClock.now().wall_ns.saturating_sub(ago_ns))
}
