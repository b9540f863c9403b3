//! What callers and the gateway do with terminals and sessions, one file for each use case.

pub mod adopt;
pub mod approve;
pub mod close_session;
pub mod context;
pub mod control;
pub mod create;
pub mod explain;
pub mod new_request;
pub mod open_session;
pub mod release;
pub mod resolve_approval;
pub mod run;
pub mod shutdown;
pub mod steps;
