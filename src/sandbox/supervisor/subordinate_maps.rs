//! Writes the id maps of an ordinary user's sandbox with subordinate ids, by newuidmap(1) and newgidmap(1).
//!
//! Both are set-id programs of the host that check /etc/subuid and /etc/subgid. Nothing of the gateway's environment reaches them. Below a
//! user namespace in which the ids are mapped already the launcher writes the maps itself.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use nix::{errno::Errno, unistd::Pid};

use super::setup::StageError;
use crate::{
    proto::supervisor::Stage,
    sys::{
        map_programs::{NEWGIDMAP, NEWUIDMAP, find},
        namespace::{IdPair, write_map},
    },
};

/// Which ids of a sandbox are which outside.
#[derive(Debug)]
pub(super) struct IdMaps {
    pub(super) uids: Vec<IdPair>,
    pub(super) gids: Vec<IdPair>,
}

/// Whether maps are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mapped {
    Written,
    /// Not one of them: the process can still write the map of its one id.
    Refused,
}

/// Writes both maps of a process. Where the first is refused, as in containers whose mounts have `nosuid`, none is written.
///
/// # Errors
/// [`Stage::IdMap`] with index 3 when only the first could be written.
pub(super) fn write(process: Pid, uids: &[IdPair], gids: &[IdPair]) -> Result<Mapped, StageError> {
    if !run(NEWUIDMAP, process, uids) {
        return Ok(Mapped::Refused);
    }
    match run(NEWGIDMAP, process, gids) {
        true => Ok(Mapped::Written),
        false => Err(StageError::at(Stage::IdMap, 3, Errno::EPERM)),
    }
}

/// As [`write()`], by a process with every capability in the parent of the process's user namespace.
pub(super) fn write_directly(process: Pid, uids: &[IdPair], gids: &[IdPair]) -> Result<Mapped, StageError> {
    let directory = PathBuf::from(format!("/proc/{process}"));
    match write_map(&directory, "uid_map", uids) {
        Ok(()) => {}
        // The parent has not these ids.
        Err(Errno::EPERM) => return Ok(Mapped::Refused),
        Err(errno) => return Err(StageError::at(Stage::IdMap, 0, errno)),
    }
    write_map(&directory, "gid_map", gids).map_err(StageError::of_step(Stage::IdMap, 3))?;
    Ok(Mapped::Written)
}

fn run(name: &str, process: Pid, pairs: &[IdPair]) -> bool {
    let Some(program) = find(name) else { return false };
    let mut command = Command::new(program);
    command.arg(process.to_string());
    for pair in pairs {
        command.args([pair.inside.to_string(), pair.outside.to_string(), "1".to_owned()]);
    }
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
