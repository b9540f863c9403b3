//! Constants that gateway and launcher share.

/// The supervisor's listening socket, in the sandbox's directory.
pub const CONTROL_SOCKET: &str = "control.sock";

/// `argv[0]` of the launcher and of the supervisor that it turns into.
pub const PROCESS_NAME: &str = "provost-supervisor";

/// The supervisor's leaf in a v2 cgroup whose controllers are enabled for the other leaves.
pub const SUPERVISOR_LEAF: &str = "supervisor";

/// The version of the plan.
pub const PLAN_VERSION: u32 = 3;

/// Indexes of `STAGE_ID_MAP` from here on mean the id-mapped mount with that number in the plan. `EINVAL` then
/// means that its file system cannot map ids.
pub const ID_MAPPED_MOUNTS_FROM: u32 = 16;

/// The index of `STAGE_CLONE_NAMESPACES` at which the user namespace of a session's network gets its map.
pub const MAP_OF_SESSION_NETWORK: u32 = 13;

/// Indexes of `STAGE_LANDLOCK` from here on mean the executable path with that number in the plan; below, the mount.
pub const EXECUTABLE_PATHS_FROM: u32 = 1 << 16;
