//! Bounds of a net process; docs/internals/limits.md lists them.

use std::time::Duration;

/// New connections in one second: to the HTTP proxy, to the SOCKS proxy, and to all names together. More wait in the listeners.
pub(super) const ACCEPTS_PER_S: u32 = 500;

/// Questions for names in one second, and those that are answered at once. More wait in the socket, or are lost.
pub(super) const QUESTIONS_PER_S: u32 = 500;
pub(super) const MAX_QUESTIONS: usize = 64;

/// Names that have an address, and listeners for them. The name that was asked for the longest ago goes.
pub(super) const MAX_NAMES: usize = 256;
pub(super) const MAX_NAME_LISTENERS: usize = 1_024;

/// Addresses that are tried for a name, when others or a command hold them.
pub(super) const MAX_ADDRESSES_TRIED: usize = 4;

/// How long a program may take for the head of a request, a SOCKS greeting, or the first bytes in a tunnel.
pub(super) const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the gateway may take for a verdict.
pub(super) const VERDICT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a server of names may take, and how often each is asked.
pub(super) const NAME_TIMEOUT: Duration = Duration::from_secs(3);
pub(super) const NAME_ATTEMPTS: usize = 2;

/// The most servers of names that are asked.
pub(super) const MAX_NAMESERVERS: usize = 3;

/// How long one address may take to accept a connection.
pub(super) const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// The most addresses that are dialled for one connection.
pub(super) const MAX_DIALS: usize = 4;

/// How long a tunnel may be silent in both directions.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Bytes on their way in one direction of a tunnel.
pub(super) const COPY_BUFFER_BYTES: usize = 16 << 10;

/// The head of a request or of an answer.
pub(super) const MAX_HEAD_BYTES: usize = 64 << 10;

/// Requests of one HTTP/2 connection at once, and of all together. Each makes a connection of its own; more wait.
pub(super) const MAX_CONNECTION_STREAMS: u32 = 64;
pub(super) const MAX_STREAMS: usize = 512;

/// Open descriptors: two for each connection, one for each request of HTTP/2 and each listener of a name, and those of asking for names.
pub(super) const MAX_DESCRIPTORS: u64 = 4_096;
