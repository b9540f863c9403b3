//! `provost policy fmt`: lays out policy files.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use clap::Args;

use crate::{
    cli::console::{error::CliError, output_file, table::print_to_stdout},
    policy::format,
    printable,
};

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
pub(in crate::cli) fn run(arguments: &FormatArguments) -> Result<u8, CliError> {
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
