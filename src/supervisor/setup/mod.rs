//! Set-up of a sandbox from inside: the first life of a supervisor, from its clone to its event loop.
//!
//! Each step either is done or ends the process with its stage, index and errno: there is no partial sandbox.
//! Nothing is decided here; what is to be done comes from the plan, in the order of the stages.

pub mod cgroups;
mod confinement;
pub mod counted;
mod identity;
pub mod mounts;
mod posture;
mod root;
mod stage;

use std::{
    os::fd::{AsFd, OwnedFd},
    process::exit,
};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    sched::CloneFlags,
    sys::stat::{Mode, umask},
};

pub use self::{mounts::Descriptors, stage::StageError};
use super::{CommandIdentity, Ready, launch::OOM_SCORE};
use crate::{
    proto::supervisor::{Identity, SandboxPlan, Stage},
    sys::{file, keyring, loopback, oom::OwnScore},
};

/// Exit code of a supervisor whose set-up failed; the failure itself has gone to the launcher.
const EXIT_SETUP_FAILED: i32 = 72;
/// Exit code of a supervisor whose launcher has not lived to hear that it is ready.
const EXIT_UNHEARD: i32 = 74;

/// Sets the sandbox up and goes on as its supervisor. `permission` ends the wait for the id maps; `report` is told
/// how it went.
pub fn run(
    plan: &SandboxPlan,
    identity: &Identity,
    descriptors: Descriptors,
    permission: &OwnedFd,
    report: OwnedFd,
) -> ! {
    match set_up(plan, identity, descriptors, permission, &report) {
        Ok((ready, _claim)) => {
            // Dropping the pipe's end would do as well, but then success and death would look the same.
            if nix::unistd::write(&report, &StageError::encode_success()).is_err() {
                // The launcher is gone: nobody will ever know of this sandbox.
                exit(EXIT_UNHEARD);
            }
            drop(report);
            super::runtime::run(ready)
        }
        Err(failure) => {
            let _ = nix::unistd::write(&report, &failure.encode());
            exit(EXIT_SETUP_FAILED)
        }
    }
}

/// The claim on the host ids, held open for as long as the supervisor lives.
type Claim = Option<OwnedFd>;

fn set_up(
    plan: &SandboxPlan,
    ids: &Identity,
    mut descriptors: Descriptors,
    permission: &OwnedFd,
    report: &OwnedFd,
) -> Result<(Ready, Claim), StageError> {
    let fail = |stage| stage::inject(plan, stage);

    // Commands must get into the folders that are made here, whatever mask the gateway was started with.
    umask(Mode::from_bits_truncate(0o022));
    cgroups::take_seats(std::mem::take(&mut descriptors.seats))?;
    fail(Stage::IdMap)?;
    identity::await_maps(ids, permission)?;
    let host_cgroup = posture::read_cgroup()?;
    fail(Stage::Identity)?;
    let score = OwnScore::open().map_err(StageError::of_step(Stage::Identity, OOM_SCORE))?;
    identity::become_root_of_namespace(ids)?;
    fail(Stage::Keyring)?;
    keyring::leave_inherited().map_err(StageError::of(Stage::Keyring))?;
    fail(Stage::CgroupNamespace)?;
    nix::sched::unshare(CloneFlags::CLONE_NEWCGROUP).map_err(StageError::of(Stage::CgroupNamespace))?;
    fail(Stage::SupervisorCgroup)?;
    cgroups::make_room_for_leaves(&descriptors)?;
    fail(Stage::Hostname)?;
    nix::unistd::sethostname(&plan.hostname).map_err(StageError::of(Stage::Hostname))?;
    fail(Stage::Loopback)?;
    if plan.own_network {
        loopback::bring_up().map_err(StageError::of(Stage::Loopback))?;
    }

    fail(Stage::Mount)?;
    let Descriptors { listener, folders, binds, claim, .. } = descriptors;
    let view = mounts::build(plan, ids, binds)?;
    fail(Stage::PivotRoot)?;
    root::enter(&view)?;
    fail(Stage::NestedNamespaces)?;
    counted::bound_sandbox(ids, &view)?;
    identity::close_nested_namespaces(ids, &view)?;
    drop(view);
    replace_standard_descriptors()?;

    fail(Stage::Capabilities)?;
    confinement::give_up_privileges(ids)?;
    fail(Stage::NoNewPrivs)?;
    nix::sys::prctl::set_no_new_privs().map_err(StageError::of(Stage::NoNewPrivs))?;
    let kept: Vec<_> = std::iter::once(listener.as_fd())
        .chain(folders.iter().map(|folder| folder.descriptor.as_fd()))
        .chain(claim.iter().map(AsFd::as_fd))
        .chain([score.descriptor().as_fd()])
        .chain([report.as_fd()])
        .collect();
    file::close_all_but(&kept).map_err(StageError::of(Stage::Descriptors))?;
    fail(Stage::Landlock)?;
    let landlock_abi = confinement::restrict_files(plan, &folders)?;
    fail(Stage::Seccomp)?;
    confinement::filter_calls(plan)?;
    fail(Stage::Posture)?;
    let posture = posture::read_back(plan, ids, landlock_abi, host_cgroup)?;

    let ready = Ready {
        sandbox_id: plan.sandbox_id.clone(),
        listener,
        folders,
        identity: if ids.privileged {
            CommandIdentity::Change { uid: ids.command_uid, gid: ids.command_gid }
        } else {
            CommandIdentity::Keep
        },
        posture,
        score,
        die_with_gateway: plan.die_with_gateway,
        fail_at: (!plan.fail_at.is_empty()).then(|| plan.fail_at.clone()),
    };
    Ok((ready, claim))
}

/// The launch socket and whatever the gateway had as its output give way to the sandbox's own null device.
fn replace_standard_descriptors() -> Result<(), StageError> {
    let null = nix::fcntl::open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(StageError::of(Stage::Descriptors))?;
    file::replace_standard(null.as_fd()).map_err(StageError::of(Stage::Descriptors))
}

/// What the plan must say and does not.
fn malformed() -> StageError {
    StageError::new(Stage::Plan, Errno::EINVAL)
}
