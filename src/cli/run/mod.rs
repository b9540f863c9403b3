//! `provost run` and `provost exec`: one command, from its request to its report.

mod denial_remedy;
pub(super) mod exec;
pub(super) mod report;
#[expect(clippy::module_inception, reason = "the directory is about runs, the file about one")]
pub(super) mod run;
pub(super) mod run_attached;
pub(super) mod run_control;
