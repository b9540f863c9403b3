//! A socket as a configuration file has it: its address and its permission bits.

use std::path::PathBuf;

use serde::{Deserialize, Deserializer, de::Error as _};

/// `unix:/absolute/path`.
pub fn parse_listen(text: &str) -> Result<PathBuf, &'static str> {
    let path = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:"));
    match path.map(PathBuf::from) {
        Some(path) if path.is_absolute() && path.file_name().is_some() => Ok(path),
        _ => Err("must be of the form unix:/absolute/path"),
    }
}

/// Reads the address of a unix socket.
pub(super) fn listen_address<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<PathBuf>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_listen(&text).map(Some).map_err(D::Error::custom)
}

/// Reads permission bits in octal.
pub(super) fn octal_mode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let text = String::deserialize(deserializer)?;
    match u32::from_str_radix(&text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(Some(mode)),
        _ => Err(D::Error::custom("must be permission bits in octal, as in \"0600\"")),
    }
}
