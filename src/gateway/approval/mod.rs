//! Approvals: the questions that rules ask about requests, kept until a person answers or they expire.
//!
//! The [`ApprovalStore`] keeps a bounded number of them and gives each approval once, to the request that it is for. It does
//! not judge: policy evaluates the request again. It writes no journal and speaks no protocol.

#![forbid(unsafe_code)]

mod config;
mod request;
mod store;
mod table;

pub use config::{ApprovalConfig, ApprovalLimitReached, Approver, Approvers};
pub use request::{
    Answer, Approval, ApprovalId, ApprovalRequest, ApprovalStatus, ApproverDecision, AskedConnection,
    AskedExec, AskedWithin, RequestMode, RequestedAction,
};
pub use store::{ApprovalObserver, ApprovalResolveError, ApprovalStore, ApprovalWait, Resolution};
