//! `provost policy`: checks, explains, tests and formats policy files, and makes the first ones.

pub mod init;
#[expect(clippy::module_inception, reason = "the directory is about policys, the file about one")]
pub mod policy;
mod policy_check;
mod policy_connect;
mod policy_explain;
mod policy_files;
mod policy_format;
mod policy_status;
mod policy_test;
