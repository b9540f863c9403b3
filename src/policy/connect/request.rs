//! What is decided about: a connection, and an address for it. Types only.

use std::net::IpAddr;

use crate::network::{destination::Destination, http_request::HttpRequest, socket_path::SocketPath};

/// A connection that a command wants.
#[derive(Debug, Clone, Copy)]
pub struct ConnectRequest<'a> {
    /// Who runs the command.
    pub principal: &'a str,
    /// Its profile.
    pub profile: &'a str,
    /// Where to.
    pub destination: &'a Destination,
    /// The HTTP request that it is for, where that is known.
    pub http: Option<&'a HttpRequest>,
    /// Which program wants it.
    pub program: &'a ConnectingProgram,
    /// What a person has said yes to.
    pub approved: Approved<'a>,
}

/// Which program wants a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectingProgram {
    /// Nobody has connected yet, so that any of them may be meant.
    Any,
    /// It cannot be known: what restricts programs holds.
    Unknown,
    /// The files of all processes that have the connection.
    Known(Vec<String>),
}

/// A connection to a socket that a command wants.
#[derive(Debug, Clone, Copy)]
pub struct SocketRequest<'a> {
    /// Who runs the command.
    pub principal: &'a str,
    /// Its profile.
    pub profile: &'a str,
    /// The socket, on the host.
    pub path: &'a SocketPath,
    /// Which program wants it.
    pub program: &'a ConnectingProgram,
    /// Whether a person has said yes. Rules that ask count as rules that allow then.
    pub is_approved: bool,
}

/// How far a person has approved a connection. Rules that ask count as rules that allow then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approved<'a> {
    /// Nobody was asked.
    Nothing,
    /// The name: rules that name it have their answer.
    Name,
    /// These addresses, too: all rules about them have their answer.
    Addresses(&'a [IpAddr]),
}

/// An address that is to be dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DialTarget {
    /// The address.
    pub address: IpAddr,
    /// It is one of the host's own: what listens there is on the host.
    pub is_hosts_own: bool,
}
