//! What is decided about: a connection, and an address for it. Types only.

use std::net::IpAddr;

use crate::network::destination::Destination;

/// A connection that a command wants.
#[derive(Debug, Clone, Copy)]
pub struct ConnectRequest<'a> {
    /// Who runs the command.
    pub principal: &'a str,
    /// Its profile.
    pub profile: &'a str,
    /// Where to.
    pub destination: &'a Destination,
}

/// An address that is to be dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DialTarget {
    /// The address.
    pub address: IpAddr,
    /// It is one of the host's own: what listens there is on the host.
    pub is_hosts_own: bool,
}
