//! `provost completions` and `provost man`: completion scripts and man pages, made from the same source as the help.

use std::{
    io,
    path::{Path, PathBuf},
};

use clap::{Args, Command};
use clap_complete::Shell;

use crate::cli::console::{error::CliError, output_file, table::print_bytes};

/// `provost completions`.
#[derive(Debug, Args)]
#[command(
    about = "Print a completion script for a shell",
    after_help = "Examples:\n  \
                  provost completions bash > /etc/bash_completion.d/provost\n  \
                  provost completions zsh > ~/.zfunc/_provost"
)]
pub(in crate::cli) struct CompletionsArguments {
    /// The shell to print the script for
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// `provost man`.
#[derive(Debug, Args)]
#[command(
    about = "Print the man page, or write one for each subcommand into a directory",
    after_help = "Examples:\n  provost man | man -l -\n  provost man /usr/share/man/man1"
)]
pub(in crate::cli) struct ManArguments {
    /// Write provost.1 and a page for each subcommand into this directory, which must exist; default: print provost.1
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

/// Prints the completion script.
pub(in crate::cli) fn completions(
    arguments: &CompletionsArguments,
    mut command: Command,
) -> Result<u8, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "provost", &mut script);
    print_bytes(&script)
}

/// Prints or writes the man pages.
pub(in crate::cli) fn man(arguments: &ManArguments, command: Command) -> Result<u8, CliError> {
    let Some(directory) = &arguments.directory else {
        let command = command.disable_help_subcommand(true);
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page).map_err(cannot_write)?;
        return print_bytes(&page);
    };
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write_pages(command, directory).map_err(|error| {
        CliError::caused_by(format!("cannot write man pages to {}", crate::printable::path(directory)), error)
    })?;
    Ok(0)
}

/// Writes the page of a command and those of its subcommands.
fn write_pages(command: Command, directory: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write_pages(subcommand.clone(), directory)?;
    }
    let page = clap_mangen::Man::new(command);
    let mut file = output_file::create(&directory.join(page.get_filename()))?;
    page.render(&mut file)
}

fn cannot_write(error: io::Error) -> CliError {
    CliError::caused_by("cannot make the man page", error)
}
