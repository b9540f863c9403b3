//! A gateway, running or embedded: the connection, calls over its outages, questions that it asks, attached terminals.

pub(super) mod approval_prompt;
pub(super) mod attached;
pub(super) mod connection;
pub(super) mod reconnect;
