//! `provost reap`: ends and removes what a gateway could not adopt.
//!
//! Only what the gateway has listed. What cannot be ended is said, and the rest is reaped all the same.

use crate::{
    cli::{
        console::{error::CliError, table::print_to_stdout},
        request::arguments::ReapArguments,
    },
    gateway::{default_state, quarantine},
};

/// Reaps what is named.
pub(in crate::cli) fn reap(arguments: &ReapArguments) -> Result<u8, CliError> {
    let state = arguments.state.clone().unwrap_or_else(default_state);
    let ids = if arguments.all {
        let listed = quarantine::list(&state);
        let listed =
            listed.map_err(|error| CliError::caused_by("cannot read the list of what was left", error))?;
        listed.into_iter().map(|one| one.id).collect()
    } else {
        arguments.ids.clone()
    };
    let mut failed = None;
    let mut page = String::new();
    for id in ids {
        match quarantine::reap(&state, &id) {
            Ok(()) => page.push_str(&format!("{id} is gone\n")),
            Err(error) => {
                let failure = CliError::caused_by(format!("cannot reap {id}"), error);
                // All but the last are said here; the last is this command's own failure.
                if let Some(before) = failed.replace(failure) {
                    before.print_and_exit();
                }
            }
        }
    }
    let status = print_to_stdout(&page)?;
    failed.map_or(Ok(status), Err)
}
