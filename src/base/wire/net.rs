//! Constants that a gateway and the net processes of its sandboxes share.

/// `argv[0]` of a net process.
pub const PROCESS_NAME: &str = "provost-net";

/// The most connections that a net process carries at once, of its whole sandbox. More wait in the listeners.
pub const MAX_CONNECTIONS: usize = 1_024;

/// The most ports of one name at which connections to it are accepted inside.
pub const MAX_NAME_PORTS: usize = 16;

/// Bytes that the connections of one sandbox are allowed at once, where they are counted.
pub const BYTES_AT_ONCE: u64 = 1 << 20;

/// The most of a host as a program wrote it, in bytes.
pub const MAX_HOST_BYTES: usize = 320;
