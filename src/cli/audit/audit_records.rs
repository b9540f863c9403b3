//! Records of the journal as `provost audit` selects and prints them, whether a gateway or a file has given them.

use std::time::{Duration, UNIX_EPOCH};

use clap::{Args, ValueEnum};

use crate::{
    cli::{
        console::{
            error::CliError,
            stdio::{self, WriteOutcome},
        },
        request::arguments::OutputFormat,
    },
    journal::{Clock as _, CommandExpander, RecordFilter, RecordedVerdict, SystemClock, parse_utc},
    policy::duration,
    printable,
    proto::v1,
};

/// Which records, and how.
#[derive(Debug, Args)]
pub(super) struct FilterArguments {
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
    /// Of sessions that were opened by this front end (cli, acp, mcp, shell, grpc, ...), as their callers claim
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
pub(in crate::cli) fn print(
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
    pub(super) fn for_service(&self) -> v1::AuditFilter {
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
