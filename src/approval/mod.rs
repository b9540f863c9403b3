//! Approvals: the questions that rules ask about requests, kept until a person answers or time does.
//!
//! The [`ApprovalStore`] keeps them, within bounds, and hands each yes out once, to the request that it was given for. It
//! judges nothing: what a yes allows is for policy, which looks at the request again. It writes no journal and
//! speaks no protocol.

#![forbid(unsafe_code)]

mod approvers;
mod config;
mod id;
mod request;
mod store;
mod table;

pub use approvers::{Approver, Approvers};
pub use config::{ApprovalConfig, ApprovalLimitReached};
pub use id::ApprovalId;
pub use request::{
    Answer, Approval, ApprovalRequest, ApprovalStatus, ApproverDecision, RequestMode, RequestedAction,
};
pub use store::{ApprovalObserver, ApprovalResolveError, ApprovalStore, ApprovalWait, Resolution};
