//! Questions of the policy, put to a person.

pub mod approval_prompt;
pub mod exec_questions;
pub mod permission_requests;
