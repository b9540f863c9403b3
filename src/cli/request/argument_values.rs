//! The values of options, as text on the command line: variables, durations, `unix:PATH`.
//!
//! They are parsed here as far as that needs no input or output.

use std::{os::unix::ffi::OsStrExt, time::Duration};

use clap::{
    Command,
    builder::{OsStringValueParser, Resettable, TypedValueParser},
};

use crate::{byte_text, gateway::parse_listen, policy::duration};

/// A variable for a command, as `-e` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum EnvArgument {
    /// With this value.
    Set(String, String),
    /// With the value that it has here, if it has one.
    PassedOn(String),
}

impl EnvArgument {
    /// For clap: an argument of any bytes.
    pub(in crate::cli) fn parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().try_map(|word| Self::parse(&byte_text::from_bytes(word.as_bytes())))
    }

    /// Reads `NAME=VALUE` or `NAME`.
    pub(in crate::cli) fn parse(text: &str) -> Result<Self, String> {
        if text.contains('=') {
            return parse_assignment(text).map(|(name, value)| Self::Set(name, value));
        }
        match text {
            "" => Err("the name is empty".to_owned()),
            name => Ok(Self::PassedOn(name.to_owned())),
        }
    }

    /// The name and the value, in the form of [`byte_text`]; `None`: it is not set here.
    pub(in crate::cli) fn resolve(self) -> Option<(String, String)> {
        match self {
            Self::Set(name, value) => Some((name, value)),
            // It goes with every command, as far as it lies in the workspace.
            Self::PassedOn(name) if name == "PATH" => None,
            Self::PassedOn(name) => {
                let value = std::env::var_os(&*byte_text::to_path(&name));
                value.map(|value| (name, byte_text::from_bytes(value.as_bytes())))
            }
        }
    }
}

/// Checks the form of a gateway's address, so that a mistake is reported as one in the arguments; the client parses the
/// address again.
pub(in crate::cli) fn parse_gateway(text: &str) -> Result<String, &'static str> {
    parse_listen(text).map(|_| text.to_owned())
}

/// Splits `NAME=VALUE`.
pub(in crate::cli) fn parse_assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some(("", _)) => Err("the name before \"=\" is empty".to_owned()),
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err("it is written NAME=VALUE".to_owned()),
    }
}

/// Parses a whole number with ms, s, m or h.
pub(in crate::cli) fn parse_duration(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|error| error.to_string())
}

/// The command, for which a variable that is set and empty is as one that is not set: that is how scripts take a setting back.
pub(in crate::cli) fn without_empty_variables(command: Command) -> Command {
    command.mut_args(|argument| {
        let value = argument.get_env().and_then(std::env::var_os);
        match value.is_some_and(|value| value.is_empty()) {
            true => argument.env(Resettable::Reset),
            false => argument,
        }
    })
}
