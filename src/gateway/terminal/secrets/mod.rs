//! Secrets: their values for commands, and their redaction from records and answers.

pub mod command_secrets;
pub mod redact;
pub mod redactor;
