//! The subreaper of an agent: a process between `provost acp` and an agent that is in no sandbox. It ends every
//! process that the agent leaves behind.
//!
//! An agent's processes may move into other sessions and process groups, and an orphan belongs to PID 1. Below a
//! subreaper (PR_SET_CHILD_SUBREAPER in prctl(2)) an orphan belongs to that instead. So the agent is started by a
//! process that has no other children: every process below it is the agent's. `provost acp` cannot be that process,
//! because it has an embedded gateway's children too and may be killed. The subreaper ends everything when the
//! other end of its socket is closed, for whatever reason. It confines nothing, and cannot follow processes that
//! others start for the agent (a service manager, a container daemon) or that become another user.

mod descendants;
mod process;

pub(crate) use crate::wire::subreaper::PROCESS_NAME;
pub(crate) use process::main;
