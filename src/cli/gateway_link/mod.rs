//! A gateway, running or embedded: the connection, calls over its outages, questions that it asks, attached terminals.

pub mod approval_prompt;
pub mod attached;
pub mod connection;
pub mod reconnect;
