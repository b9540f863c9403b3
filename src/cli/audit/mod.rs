//! `provost audit`: the journal, from its files or from a gateway.

#[expect(clippy::module_inception, reason = "the directory is about audits, the file about one")]
pub mod audit;
mod audit_records;
mod audit_remote;
