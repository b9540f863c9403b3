//! Secrets by name: which file has the value, and which commands get it.
//!
//! Policy never has the value: it evaluates, explains and hashes the name, and the gateway reads the file when a command
//! is started.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{command::changes_lookup, environment::EnvEntry};

/// The longest name, in bytes.
const MAX_NAME_BYTES: usize = 128;

/// Variables that every command has anyway.
const RESERVED_NAMES: [&str; 4] = ["PATH", "HOME", "USER", "LOGNAME"];

/// A secret as a policy file writes it: `[secrets.NAME]`. The name is that of the variable which holds it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretSource {
    /// The file that holds the value: absolute, not readable by everybody. One newline at its end is no part of it.
    pub file: PathBuf,
}

/// A secret that a command is given.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretGrant {
    /// The variable.
    pub name: String,
    /// The file that holds the value.
    pub file: PathBuf,
}

/// Checks a secret and its name. The error says what is wrong.
pub(super) fn check(name: &str, source: &SecretSource) -> Result<(), String> {
    let mut letters = name.bytes();
    let is_name = letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
        && name.len() <= MAX_NAME_BYTES;
    if !is_name {
        return Err(format!("{name:?} must be 1 to {MAX_NAME_BYTES} of a-z, A-Z, 0-9 and \"_\""));
    }
    if RESERVED_NAMES.contains(&name) {
        return Err(format!("{name:?} is given to every command with a value of its own"));
    }
    if changes_lookup(name) {
        return Err(format!("{name:?} changes what names in command lines mean"));
    }
    let is_plain = source.file.to_str().is_some_and(|text| super::AbsPath::parse(text).is_ok());
    if !is_plain {
        return Err(format!(
            "file: {} must be absolute, without \"..\"",
            crate::printable::path(&source.file)
        ));
    }
    EnvEntry::new(name.to_owned(), String::new()).map(drop).map_err(|error| error.to_string())
}
