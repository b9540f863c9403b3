//! `provost run` and `provost exec`: one command, from its request to its report.

mod denial_remedy;
pub mod exec;
pub mod report;
#[expect(clippy::module_inception, reason = "the directory is about runs, the file about one")]
pub mod run;
pub mod run_attached;
pub mod run_control;
