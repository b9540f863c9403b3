//! `provost policy`: check, test and explain policies.
//!
//! Works on files, without a gateway (but for `status` and `reload`): what would be decided is computed here by the very
//! code that decides there.
//! It runs no command.

use clap::Subcommand;

use super::{
    init::{self, PolicyInitArguments},
    policy_check::{self, CheckArguments},
    policy_explain::{self, ExplainArguments},
    policy_files::print,
    policy_format::{self, FormatArguments},
    policy_status::{self, ReloadArguments, StatusArguments},
    policy_test::{self, TestArguments},
};
use crate::{cli::console::error::CliError, policy::schema};

/// `provost policy`.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "one is parsed in the life of a process")]
pub(in crate::cli) enum PolicyCommand {
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

/// Does what is asked; answers with the exit status.
pub(in crate::cli) async fn run(command: PolicyCommand) -> Result<u8, CliError> {
    match command {
        PolicyCommand::Init(arguments) => init::init_policy(&arguments),
        PolicyCommand::Fmt(arguments) => policy_format::run(&arguments),
        PolicyCommand::Check(arguments) => policy_check::check(&arguments),
        PolicyCommand::Test(arguments) => policy_test::test(&arguments),
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
