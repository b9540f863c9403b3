//! Constants that `provost acp` and the subreaper of its agent share.

/// `argv[0]` of this process; the agent's words follow.
pub const PROCESS_NAME: &str = "provost-subreaper";

/// The length of its first message: the errno with which the agent could not be started, or 0, as a little-endian
/// `i32`. Then follow a byte with the agent's exit status, or 128 plus its signal's number, and, when it is done, a
/// byte with the number of processes that are left.
pub const STARTED_BYTES: usize = 4;

/// How long the agent's processes have after TERM, in seconds. Then they are killed.
pub const GRACE_S: u64 = 3;

/// How long killing may take, in seconds. Processes that the kernel does not end by then are left and reported.
pub const KILL_LIMIT_S: u64 = 5;
