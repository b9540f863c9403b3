//! Approvals: the questions that rules ask about requests, kept until a person answers or time does.
//!
//! The [`Book`] keeps them, within bounds, and hands each yes out once, to the request that it was given for. It
//! judges nothing: what a yes allows is for policy, which looks at the request again. It writes no journal and
//! speaks no protocol.

#![forbid(unsafe_code)]

mod approvers;
mod asked;
mod book;
mod id;
mod table;
mod terms;

pub use approvers::{Approver, Approvers};
pub use asked::{Answer, Approval, Asked, Asking, State, Wanted};
pub use book::{Book, End, ResolveError, Said, Waiting, Witness};
pub use id::ApprovalId;
pub use terms::{Full, Terms};
