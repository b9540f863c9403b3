//! Approvals: the questions that rules ask about requests, kept until a person answers or they expire.
//!
//! The [`ApprovalStore`] keeps a bounded number of them and gives each approval once, to the request that it is for. It does
//! not judge: policy evaluates the request again. It writes no journal and speaks no protocol.

#![forbid(unsafe_code)]

mod config;
mod request;
mod store;
mod table;

pub(crate) use config::ApprovalLimitReached;
pub use config::{ApprovalConfig, Approvers};
pub(crate) use request::{Answer, Approval};
pub(crate) use request::{
    ApprovalId, ApprovalRequest, ApprovalStatus, ApproverDecision, AskedConnection, AskedExec, AskedWithin,
    RequestMode, RequestedAction,
};
pub(crate) use store::{ApprovalObserver, ApprovalResolveError, ApprovalStore, ApprovalWait, Resolution};
