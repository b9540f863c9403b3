//! Constants that a gateway and the screen processes of its sandboxes share.

/// `argv[0]` of a screen process, and of the launcher that starts it.
pub const PROCESS_NAME: &str = "provost-screen";

/// The version of the plan.
pub const PLAN_VERSION: u32 = 1;

/// The versions of the protocol that this build speaks: lowest and highest, both inclusive.
pub const VERSIONS: (u32, u32) = (1, 1);

/// The listening socket, in the sandbox's directory.
pub const SOCKET_NAME: &str = "screen.sock";

/// Terminals of one screen process: more than a sandbox may have pseudo-terminals.
pub const MAX_TERMINALS: usize = 512;

/// Rows of scrollback in one answer.
pub const MAX_SCROLLBACK_ROWS: u32 = 200;
