//! Names, addresses and the first bytes of connections: what a program in a sandbox says that it wants to reach. Pure.
//!
//! Everything here reads bytes that a hostile command chose. What is not understood is an error, never a guess. Whether
//! something may be reached is decided by `policy`.

#![forbid(unsafe_code)]

pub mod address;
pub mod client_hello;
pub mod destination;
pub mod dns;
pub mod http_request;
pub mod name;
pub mod pattern;
pub mod socket_path;

/// The host name of every sandbox.
pub const OWN_NAME: &str = "sandbox";

/// The port of the HTTP proxy on a sandbox's loopback.
pub const HTTP_PROXY_PORT: u16 = 3128;

/// The port of the SOCKS5 proxy on a sandbox's loopback.
pub const SOCKS_PORT: u16 = 1080;

/// The port of the resolver on a sandbox's loopback.
pub const RESOLVER_PORT: u16 = 53;
