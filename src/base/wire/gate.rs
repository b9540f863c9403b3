//! Constants that a gateway and the gates of its sandboxes share.

/// The versions of the gate's protocol that this build speaks: lowest and highest, both inclusive.
pub const VERSIONS: (u32, u32) = (1, 1);

/// The gate's listening socket, in the sandbox's directory.
pub const SOCKET_NAME: &str = "gate.sock";

/// Length of the nonce by which the filter knows a command's first exec, in bytes.
pub const NONCE_BYTES: usize = 24;

/// Terminals of one sandbox, running and ended: beyond this its supervisor refuses a spawn with `EDQUOT`, and its gate the execs of a further
/// one.
pub const MAX_TERMINALS: usize = 16_384;
