//! What the subcommands of `provost policy` share: a policy is loaded from files, and text is printed.

use std::path::Path;

use crate::{
    cli::console::{error::CliError, stdio},
    gateway::{ConfigError, PolicySource, policy_directory},
    policy::PolicySet,
};

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
pub(super) fn error_text(error: &policy_directory::PolicyDirectoryError) -> String {
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
