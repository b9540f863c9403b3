//! `provost policy test`: runs test files against a policy, and the known ways round a policy.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use serde::Serialize;

use super::{load, print};
use crate::{
    cli::{
        console::{
            error::CliError,
            stdio,
            table::{print_to_stdout, to_json_line},
        },
        request::arguments::{OutputArguments, OutputFormat},
    },
    policy::{
        PolicySet,
        suite::{Bypass, Corpus, Findings, Suite},
    },
    printable,
};

/// `provost policy test`.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 when everything is as expected, 1 when it is not\n\n\
                        Examples:\n  provost policy test --policies policies --corpus policies/tests/cases.toml\n  \
                        provost policy test -o json --policies policies cases.toml | jq '.files[].failed'")]
pub(in crate::cli) struct TestArguments {
    /// The policy. Without it: the one that is compiled in
    #[arg(long, value_name = "DIR")]
    policies: Option<PathBuf>,
    /// Try every known way round a policy with every example of a rule that denies or asks
    #[arg(long)]
    corpus: bool,
    /// Test files
    #[arg(value_name = "FILE", required_unless_present = "corpus")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Tests; answers with the exit status.
pub(in crate::cli) fn test(arguments: &TestArguments) -> Result<u8, CliError> {
    let policy = load(arguments.policies.as_deref())?;
    let format = arguments.output.output;
    let mut files = Vec::with_capacity(arguments.files.len());
    for path in &arguments.files {
        let file = FileJson::run(path, &policy)?;
        if format == OutputFormat::Text {
            file.print_text()?;
        }
        files.push(file);
    }
    let corpus = arguments.corpus.then(|| Corpus::compiled_in().run(&policy)).map(CorpusJson::from);
    if let (Some(corpus), OutputFormat::Text) = (&corpus, format) {
        corpus.print_text()?;
    }
    let failures: usize = files.iter().map(|file| file.failed.len()).sum::<usize>()
        + corpus.as_ref().map_or(0, CorpusJson::failures);
    if format == OutputFormat::Json {
        let written = print_to_stdout(&to_json_line(&TestJson { passed: failures == 0, files, corpus })?)?;
        if written != 0 {
            return Ok(written);
        }
    }
    Ok(u8::from(failures > 0))
}

/// What came of it, as `-o json` prints it.
#[derive(Debug, Serialize)]
struct TestJson {
    passed: bool,
    files: Vec<FileJson>,
    /// With `--corpus`.
    corpus: Option<CorpusJson>,
}

/// One test file.
#[derive(Debug, Serialize)]
struct FileJson {
    file: String,
    cases: usize,
    failed: Vec<FailedJson>,
}

#[derive(Debug, Serialize)]
struct FailedJson {
    line: usize,
    command: String,
    problem: String,
}

impl FileJson {
    fn run(path: &Path, policy: &PolicySet) -> Result<Self, CliError> {
        let name = printable::bytes(path.as_os_str().as_encoded_bytes());
        let text = fs::read_to_string(path)
            .map_err(|error| CliError::caused_by(format!("cannot read {name}"), error))?;
        let suite = Suite::parse(&name, &text).map_err(|error| CliError::message_only(error.to_string()))?;
        let failed = suite.run(policy, &text).into_iter();
        let failed =
            failed.map(|case| FailedJson { line: case.line, command: case.command, problem: case.problem });
        Ok(Self { failed: failed.collect(), cases: suite.cases.len(), file: name.to_string() })
    }

    fn print_text(&self) -> Result<(), CliError> {
        let Self { file, cases, failed } = self;
        for case in failed {
            let problem = printable::line(&case.problem);
            print(&format!("{file}:{}: {:?}: {problem}", case.line, case.command))?;
        }
        print(&format!("{file}: {} of {cases} cases as expected", cases - failed.len()))
    }
}

/// The known ways round a policy.
#[derive(Debug, Serialize)]
struct CorpusJson {
    lines: usize,
    /// Lines that hide a command that a rule denies or asks about, and are allowed.
    bypasses: Vec<BypassJson>,
    /// Lines that only mention such a command, and that the rule catches.
    mistaken: Vec<BypassJson>,
}

#[derive(Debug, Serialize)]
struct BypassJson {
    rule: String,
    line: String,
    command: String,
    decision: String,
    /// The rule that decided on the line; null: none.
    decided_by: Option<String>,
}

impl From<Bypass> for BypassJson {
    fn from(bypass: Bypass) -> Self {
        Self {
            decision: bypass.decision.to_string(),
            rule: bypass.rule,
            line: bypass.line,
            command: bypass.plain,
            decided_by: bypass.by,
        }
    }
}

impl From<Findings> for CorpusJson {
    fn from(findings: Findings) -> Self {
        let all = |list: Vec<Bypass>| list.into_iter().map(BypassJson::from).collect();
        Self { lines: findings.evaluated, bypasses: all(findings.bypasses), mistaken: all(findings.mistaken) }
    }
}

impl CorpusJson {
    fn failures(&self) -> usize {
        self.bypasses.len() + self.mistaken.len()
    }

    fn print_text(&self) -> Result<(), CliError> {
        for found in &self.bypasses {
            let by = found.decided_by.as_deref().unwrap_or("no rule");
            print(&format!("way round {:?}: {:?} is allowed by {by}", found.rule, found.line))?;
        }
        for found in &self.mistaken {
            let BypassJson { rule, line, command, .. } = found;
            print(&format!("{rule:?} catches {line:?}, which only mentions {command:?}"))?;
        }
        let expected = self.lines - self.failures();
        print(&format!("corpus: {expected} of {} lines as expected", self.lines))?;
        if self.lines == 0 {
            stdio::print_notice(
                "no rule that denies or asks has examples (`matches`), so that nothing could be tried",
            );
        }
        Ok(())
    }
}
