//! Secret values: read for commands, and taken out of what is recorded and shown.

pub mod command_secrets;
pub mod redact;
pub mod redactor;
