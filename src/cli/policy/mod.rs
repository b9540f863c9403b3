//! `provost policy`: checks, explains, tests and formats policy files, and makes the first ones.
//!
//! Works on files, without a gateway (but for `status` and `reload`): what would be decided is computed here by the very code that decides
//! there. It runs no command. `fmt` and `schema` are here, and how a policy is loaded from files.

pub(super) mod init;
mod policy_check;
mod policy_explain;
mod policy_status;
mod policy_test;

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};

use init::PolicyInitArguments;
use policy_check::CheckArguments;
use policy_explain::ExplainArguments;
use policy_status::{ReloadArguments, StatusArguments};
use policy_test::TestArguments;

use super::console::{error::CliError, output_file, stdio, table::print_to_stdout};
use crate::{
    gateway::{ConfigError, PolicySource, policy_directory},
    policy::{PolicySet, format, schema},
    printable,
};

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
        PolicyCommand::Fmt(arguments) => format_files(&arguments),
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

/// `provost policy fmt`.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 when every file is laid out, 1 with --check when one is not\n\n\
                        Example:\n  provost policy fmt /etc/provost/policies")]
pub(in crate::cli) struct FormatArguments {
    /// Change nothing, and name the files that would change
    #[arg(long)]
    check: bool,
    /// Files, or directories of them
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
}

/// Lays out the files.
pub(in crate::cli) fn format_files(arguments: &FormatArguments) -> Result<u8, CliError> {
    let mut status = 0;
    let mut changed = String::new();
    for file in files(&arguments.paths)? {
        let name = printable::path(&file);
        let failed = |error: io::Error| CliError::caused_by(format!("cannot read or write {name}"), error);
        let text = fs::read_to_string(&file).map_err(failed)?;
        let formatted =
            format::format(&text).map_err(|error| CliError::message_only(format!("{name}: {error}")))?;
        if formatted == text {
            continue;
        }
        changed.push_str(&format!("{name}\n"));
        match arguments.check {
            true => status = 1,
            false => replace(&file, &formatted).map_err(failed)?,
        }
    }
    Ok(print_to_stdout(&changed)?.max(status))
}

fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let failed = |error| CliError::caused_by(format!("cannot read {}", printable::path(path)), error);
        for entry in fs::read_dir(path).map_err(failed)? {
            let file = entry.map_err(failed)?.path();
            if file.extension().is_some_and(|extension| extension == "toml") && file.is_file() {
                files.push(file);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Puts the new text in the file's place in one step: a gateway reads the old one or the new one.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let file = fs::canonicalize(file)?;
    output_file::replace(&file, text, fs::metadata(&file)?.permissions().mode())
}

/// The policy in a directory, or the one that is compiled in.
pub(in crate::cli) fn load(directory: Option<&Path>) -> Result<PolicySet, CliError> {
    let source =
        directory.map_or(PolicySource::CompiledIn, |directory| PolicySource::Directory(directory.to_owned()));
    source.load().map_err(|error| match &error {
        ConfigError::Policies(error) => CliError::message_only(error_text(error)),
        ConfigError::Read { .. } | ConfigError::File(_) => CliError::caused_by("policy", error),
    })
}

/// A mistake in a file says all by itself, over several lines.
fn error_text(error: &policy_directory::PolicyDirectoryError) -> String {
    match error {
        policy_directory::PolicyDirectoryError::Read { source, .. } => format!("{error}: {source}"),
        policy_directory::PolicyDirectoryError::File(_)
        | policy_directory::PolicyDirectoryError::Empty(_)
        | policy_directory::PolicyDirectoryError::TooLarge(_)
        | policy_directory::PolicyDirectoryError::NotAFile(_) => error.to_string(),
    }
}

/// Prints text and a line end.
pub(in crate::cli) fn print(text: &str) -> Result<(), CliError> {
    // A reader that has gone away wants no more.
    match stdio::print(&format!("{text}\n")) {
        Ok(_) => Ok(()),
        Err(error) => Err(CliError::caused_by("stdout", error)),
    }
}
