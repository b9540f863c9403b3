//! `provost init` and `provost policy init`: write policy files for people to go on from.
//!
//! Never into the project itself, where a command could change its own policy, and never over a file that is there.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;

use crate::{
    cli::console::{error::CliError, output_file, table::print_to_stdout},
    policy::{
        BUILT_IN_TEXT,
        presets::{self, PRESETS, Preset},
    },
    printable,
};

/// `provost init`.
#[derive(Debug, Args)]
#[command(
    about = "Write a policy for a project, chosen by the files in it",
    long_about = "Writes a policy for the project in a directory: package.json chooses the preset for node, pyproject.toml \
                  that for Python, Cargo.toml, go.mod, pom.xml theirs, and several files all of them. Without any, the \
                  policy that is shipped is written. The policy is outside of the project, so that no command can change it.",
    after_help = "Example:\n  provost init && provost run --policies ~/.config/provost/policies/project -- npm test"
)]
pub(in crate::cli) struct InitArguments {
    /// Where the policy goes; default: a directory of the project's name in ~/.config/provost/policies
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// The project
    #[arg(value_name = "PROJECT", default_value = ".")]
    project: PathBuf,
}

/// `provost policy init`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  provost policy init /etc/provost/policies")]
pub(in crate::cli) struct PolicyInitArguments {
    /// The directory, which is made where it is not there
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Writes a policy for a project.
pub(in crate::cli) fn init(arguments: &InitArguments) -> Result<u8, CliError> {
    let project = fs::canonicalize(&arguments.project).map_err(|error| {
        CliError::caused_by(format!("cannot use {}", printable::path(&arguments.project)), error)
    })?;
    let directory = match &arguments.to {
        Some(to) => absolute(to)?,
        None => default_directory(&project)?,
    };
    let kinds: Vec<Preset> = PRESETS
        .into_iter()
        .filter(|kind| kind.signs.iter().any(|sign| project.join(sign).is_file()))
        .collect();
    let (what, text) = match presets::compose(&kinds) {
        Some(text) => (kinds.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", "), text),
        // A person's own gateway may have no cgroup with the controllers that limits need.
        None => (
            "the shipped policy".to_owned(),
            BUILT_IN_TEXT.replace("requirement = \"require\"", "requirement = \"prefer\""),
        ),
    };
    let directory = make(&directory, Some(&project))?;
    write(&directory.join("policy.toml"), &text)?;
    let shown = printable::path(&directory);
    print_to_stdout(&format!(
        "{what}: {}\nprovost run --policies {shown} -- COMMAND\n",
        printable::path(&directory.join("policy.toml"))
    ))
}

/// Writes the shipped policy.
pub(super) fn init_policy(arguments: &PolicyInitArguments) -> Result<u8, CliError> {
    let directory = make(&absolute(&arguments.directory)?, None)?;
    let file = directory.join("default.toml");
    write(&file, BUILT_IN_TEXT)?;
    print_to_stdout(&format!("{}\n", printable::path(&file)))
}

fn absolute(path: &Path) -> Result<PathBuf, CliError> {
    std::path::absolute(path).map_err(|error| CliError::caused_by("cannot name the directory", error))
}

fn default_directory(project: &Path) -> Result<PathBuf, CliError> {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = named("XDG_CONFIG_HOME").or_else(|| Some(named("HOME")?.join(".config")));
    let config = config.ok_or_else(|| {
        CliError::message_only("HOME names no directory".to_owned()).with_advice("say where with --to DIR")
    })?;
    let name = project.file_name().unwrap_or("root".as_ref());
    Ok(config.join("provost/policies").join(name))
}

/// Makes the directory, and answers where it really is. One in the project is refused, by whatever name.
fn make(directory: &Path, project: Option<&Path>) -> Result<PathBuf, CliError> {
    let failed = |error| CliError::caused_by(format!("cannot make {}", printable::path(directory)), error);
    // Before anything is made: where the part of it is that is there.
    let there = directory.ancestors().find_map(|above| fs::canonicalize(above).ok()).unwrap_or_default();
    if project.is_some_and(|project| there.starts_with(project)) {
        let problem = format!(
            "{} is in the project: commands could change their own policy",
            printable::path(directory)
        );
        return Err(CliError::message_only(problem).with_advice("name another directory with --to DIR"));
    }
    output_file::create_directories(directory).map_err(failed)?;
    fs::canonicalize(directory).map_err(failed)
}

fn write(file: &Path, text: &str) -> Result<(), CliError> {
    let failed = |error: std::io::Error| {
        let failure = CliError::caused_by(format!("cannot write {}", printable::path(file)), error);
        failure.with_advice("what is there is not overwritten")
    };
    output_file::create_absent(file, text).map_err(failed)
}
