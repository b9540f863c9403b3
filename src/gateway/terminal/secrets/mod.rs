//! Secrets: their values for commands, and their redaction from records and answers.

pub(crate) mod command_secrets;
pub(crate) mod redact;
pub(crate) mod redactor;
