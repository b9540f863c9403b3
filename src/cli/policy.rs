//! `provost policy`: check, test and explain policies.
//!
//! Works on files, without a gateway (but for `status` and `reload`): what would be decided is computed here by the very
//! code that decides there.
//! It runs no command.

use std::{fs, path::PathBuf};

use clap::{Args, Subcommand};

use super::{
    error::CliError,
    init::{self, PolicyInitArguments},
    policy_explain::{self, ExplainArguments},
    policy_files::{error_text, load, print},
    policy_format::{self, FormatArguments},
    policy_status::{self, ReloadArguments, StatusArguments},
    stdio,
};
use crate::{
    gateway::policy_directory,
    policy::{
        schema,
        suite::{Corpus, Suite},
        warning::{PolicyWarning, WarningId},
    },
    printable,
};

/// `provost policy`.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "one is parsed in the life of a process")]
pub(super) enum PolicyCommand {
    /// Write the shipped policy into a directory, to go on from
    Init(PolicyInitArguments),
    /// Lay out policy files: blank lines, indents, blanks around "="
    Fmt(FormatArguments),
    /// Check a directory of policy files, or one file
    Check(CheckArguments),
    /// Run test files against a policy, or try the ways round a policy that are known
    Test(TestArguments),
    /// Say what would happen to a command, and why
    Explain(ExplainArguments),
    /// Show the policy that a gateway has in force, and whether newer files could not be loaded
    Status(StatusArguments),
    /// Have a gateway load its policy files again, and show what is in force then
    Reload(ReloadArguments),
    /// Print the JSON schema of policy files, for editors
    #[command(after_help = "Example:\n  provost policy schema > policy.schema.json")]
    Schema,
}

/// `provost policy check`.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 when the policy is valid, 1 when it is not\n\n\
                        Example:\n  provost policy check /etc/provost/policies")]
pub(super) struct CheckArguments {
    /// The directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// `provost policy test`.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 when everything is as expected, 1 when it is not\n\n\
                        Example:\n  provost policy test --policies policies --corpus policies/tests/cases.toml")]
pub(super) struct TestArguments {
    /// The policy. Without it: the one that is compiled in
    #[arg(long, value_name = "DIR")]
    policies: Option<PathBuf>,
    /// Try every known way round a policy with every example of a rule that denies or asks
    #[arg(long)]
    corpus: bool,
    /// Test files
    #[arg(value_name = "FILE", required_unless_present = "corpus")]
    files: Vec<PathBuf>,
}

/// Does what is asked; answers with the exit status.
pub(super) async fn run(command: PolicyCommand) -> Result<u8, CliError> {
    match command {
        PolicyCommand::Init(arguments) => init::init_policy(&arguments),
        PolicyCommand::Fmt(arguments) => policy_format::run(&arguments),
        PolicyCommand::Check(arguments) => check(&arguments),
        PolicyCommand::Test(arguments) => test(&arguments),
        PolicyCommand::Explain(arguments) => policy_explain::explain(arguments),
        PolicyCommand::Status(arguments) => policy_status::status(arguments).await,
        PolicyCommand::Reload(arguments) => policy_status::reload(arguments).await,
        PolicyCommand::Schema => {
            print(
                &serde_json::to_string_pretty(&schema::policy_file_schema())
                    .map_err(|e| CliError::caused_by("schema", e))?,
            )?;
            Ok(0)
        }
    }
}

fn check(arguments: &CheckArguments) -> Result<u8, CliError> {
    match policy_directory::read(&arguments.directory) {
        Ok(policy) => {
            let (profiles, rules) = (policy.profiles().count(), policy.rules().len());
            let about_connections = match policy.connect_rules().len() {
                0 => String::new(),
                count => format!(", {count} rules about connections"),
            };
            print(&format!(
                "valid: {profiles} profiles, {rules} rules{about_connections}; {}",
                policy.digest()
            ))?;
            for PolicyWarning { id, subject, location, problem } in policy.warnings() {
                let place =
                    location.as_ref().map_or_else(String::new, |at| format!("{}:{}: ", at.file, at.line));
                let kind = if *id == WarningId::NoGate { "profile" } else { "rule" };
                let text = format!("{place}{kind} {subject:?} {problem} [{}]", id.name());
                stdio::print_notice(&printable::line(&text));
            }
            if rules == 0 {
                stdio::print_notice("there is no rule, and what no rule allows is denied: nothing would run");
            }
            Ok(0)
        }
        Err(error) => {
            stdio::print_to_stderr(&format!("{}\n", error_text(&error)));
            Ok(1)
        }
    }
}

fn test(arguments: &TestArguments) -> Result<u8, CliError> {
    let policy = load(arguments.policies.as_deref())?;
    let mut failures = 0;
    for path in &arguments.files {
        let name = printable::bytes(path.as_os_str().as_encoded_bytes());
        let text = fs::read_to_string(path)
            .map_err(|error| CliError::caused_by(format!("cannot read {name}"), error))?;
        let suite = Suite::parse(&name, &text).map_err(|error| CliError::message_only(error.to_string()))?;
        let failed = suite.run(&policy, &text);
        for case in &failed {
            let problem = printable::line(&case.problem);
            print(&format!("{name}:{}: {:?}: {problem}", case.line, case.command))?;
        }
        print(&format!(
            "{name}: {} of {} cases as expected",
            suite.cases.len() - failed.len(),
            suite.cases.len()
        ))?;
        failures += failed.len();
    }
    if arguments.corpus {
        let findings = Corpus::compiled_in().run(&policy);
        for found in &findings.bypasses {
            let by = found.by.as_deref().unwrap_or("no rule");
            print(&format!("way round {:?}: {:?} is allowed by {by}", found.rule, found.line))?;
        }
        for found in &findings.mistaken {
            print(&format!(
                "{:?} catches {:?}, which only mentions {:?}",
                found.rule, found.line, found.plain
            ))?;
        }
        let wrong = findings.bypasses.len() + findings.mistaken.len();
        print(&format!(
            "corpus: {} of {} lines as expected",
            findings.evaluated - wrong,
            findings.evaluated
        ))?;
        if findings.evaluated == 0 {
            stdio::print_notice(
                "no rule that denies or asks has examples (`matches`), so that nothing could be tried",
            );
        }
        failures += wrong;
    }
    Ok(u8::from(failures > 0))
}
