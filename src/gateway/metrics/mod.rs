//! The gateway's metrics, and the endpoint at which a scraper finds them.
//!
//! Off unless an address is given. Who may connect there may read counts, and nothing else: no names of principals,
//! sessions, commands, rules or files are among them. Nothing can be changed from there.

mod endpoint;
mod exposition;

pub(crate) use endpoint::Endpoint;
pub(crate) use endpoint::MetricsError;
pub(super) use exposition::Exposition;
