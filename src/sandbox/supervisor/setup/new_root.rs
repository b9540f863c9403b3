//! Builds the sandbox's root file system, mount by mount, as the plan lists them.
//!
//! The new root is a tmpfs over the old root, which is entered only later, so every source can still be named while
//! it is built. Sources that must not be replaced come as descriptors. Paths in the new root are resolved without
//! following any link, and where the supervisor may not go on, with the commands' rights: what is private to the
//! caller is closed to the supervisor, which has an id of its own.

use std::{
    collections::VecDeque,
    ffi::{CStr, CString},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2},
    mount::{MntFlags, umount2},
    sys::stat::{Mode, mkdirat},
    unistd::{Gid, Uid, UnlinkatFlags, fchownat, unlinkat},
};

use super::{PlanDescriptors, StageError};
use crate::{
    byte_text::to_path,
    proto::supervisor::{Identity, Mount, SandboxPlan, Stage, mount::Kind},
    sys::{
        credentials::set_file_access_ids,
        file::c_path,
        mount::{self, Attributes, FsOption, MountScope},
        namespace::{self, IdPair},
    },
    wire::launch::ID_MAPPED_MOUNTS_FROM,
};

/// How often something may come in the place of what is to be covered, while the sandbox is set up.
const COVER_ATTEMPTS: usize = 16;

/// The new root, not yet entered.
#[derive(Debug)]
pub(crate) struct NewRoot {
    /// The tmpfs, attached over the old root.
    pub root: OwnedFd,
    /// The new /proc by a second mount, which is writable and at no path.
    pub proc: Option<OwnedFd>,
    /// Detached mounts of what the session's sandboxes have in common, by name.
    pub shared: Vec<(String, Arc<OwnedFd>)>,
    /// What was mounted, by its place in the plan, but for what another mount's rules are about. Landlock is told of these objects and not
    /// of their paths, which the supervisor may not be able to walk.
    pub mounted: Vec<(usize, OwnedFd)>,
    /// Detached mounts for the next overlay.
    layers: Vec<OwnedFd>,
    pub(super) rights: CommandsRights,
}

/// Builds the new root in the supervisor's mount namespace.
pub(crate) fn build(
    plan: &SandboxPlan,
    ids: &Identity,
    mut binds: VecDeque<OwnedFd>,
) -> Result<NewRoot, StageError> {
    let setup = StageError::of_step(Stage::Mount, plan.mounts.len());
    mount::make_private(c"/").map_err(&setup)?;
    let root =
        mount::make(c"tmpfs", &[fs_option(c"mode", "0755"), fs_option(c"size", "1048576")], NO_SUID_NO_DEV)
            .map_err(&setup)?;
    mount::attach(root.as_fd(), AT_FDCWD, c"/").map_err(&setup)?;

    let mut view = NewRoot {
        root,
        proc: None,
        shared: Vec::new(),
        mounted: Vec::new(),
        layers: Vec::new(),
        rights: CommandsRights::of(ids),
    };
    for (index, mount) in plan.mounts.iter().enumerate() {
        let source = if is_source(mount, ids) {
            Some(binds.pop_front().ok_or_else(StageError::malformed_plan)?)
        } else {
            None
        };
        let placed = view.add(mount, source, ids);
        match placed.and_then(|()| view.remember(index, mount)) {
            Ok(()) => {}
            Err(Errno::ENOENT) if mount.optional => {}
            Err(errno) => return Err(StageError::at(Stage::Mount, index, errno)),
        }
    }
    Ok(view)
}

impl NewRoot {
    fn add(&mut self, mount: &Mount, source: Option<OwnedFd>, ids: &Identity) -> Result<(), Errno> {
        match mount.kind() {
            Kind::Bind => self.bind(mount, source, ids),
            Kind::Tmpfs => self.tmpfs(mount, source, ids),
            Kind::Overlay => self.overlay(mount, source.ok_or(Errno::EINVAL)?, ids),
            Kind::Layer => {
                self.layers.push(self.detached(source.ok_or(Errno::EINVAL)?, mount, ids)?);
                Ok(())
            }
            Kind::Proc => self.proc(mount),
            Kind::Dev => self.dev(mount),
            Kind::Symlink => {
                let made = self.parent_of(&to_path(&mount.target)).and_then(|place| {
                    let (target, directory) = (to_path(&mount.source), place.directory.as_fd());
                    nix::unistd::symlinkat(&*target, directory, place.name.as_path())
                });
                match made {
                    // Something else is there, or in place of a directory on the way, or there is no room.
                    Err(Errno::EEXIST | Errno::ENOTDIR | Errno::ELOOP | Errno::ENOSPC | Errno::EDQUOT)
                        if mount.optional =>
                    {
                        Ok(())
                    }
                    made => made,
                }
            }
            Kind::File => self.file(mount),
            Kind::Directory => self.owned_directory(mount, ids),
            Kind::Cover => self.cover(mount),
            Kind::Unspecified => Err(Errno::EINVAL),
        }
    }

    /// Keeps what was mounted open, where landlock has a rule of its own for it.
    fn remember(&mut self, index: usize, mount: &Mount) -> Result<(), Errno> {
        match mount.kind() {
            Kind::Bind | Kind::Tmpfs | Kind::Proc | Kind::Dev | Kind::File => {
                self.mounted.push((index, self.find(&to_path(&mount.target))?));
                Ok(())
            }
            // Covered by the rule of the root, of the link's target, or of the temporary file system that it is in.
            Kind::Overlay
            | Kind::Layer
            | Kind::Symlink
            | Kind::Directory
            | Kind::Cover
            | Kind::Unspecified => Ok(()),
        }
    }

    fn bind(&self, mount: &Mount, source: Option<OwnedFd>, ids: &Identity) -> Result<(), Errno> {
        let detached = match source {
            Some(source) => self.detached(source, mount, ids)?,
            None => {
                let path = c_path(&to_path(&mount.source))?;
                self.rights.walk(|| mount::copy(AT_FDCWD, &path, scope_of(mount)))?
            }
        };
        let mut attributes = NO_SUID_NO_DEV;
        if mount.read_only {
            attributes = attributes.and(Attributes::READ_ONLY);
        }
        if mount.no_exec {
            attributes = attributes.and(Attributes::NO_EXEC);
        }
        mount::restrict(detached.as_fd(), attributes, scope_of(mount))?;
        let place = if is_directory(detached.as_fd())? {
            self.directory(&to_path(&mount.target))?
        } else {
            self.empty_file(&to_path(&mount.target))?
        };
        mount::attach(detached.as_fd(), place.as_fd(), c"")
    }

    fn tmpfs(&mut self, mount: &Mount, source: Option<OwnedFd>, ids: &Identity) -> Result<(), Errno> {
        let owner = owner_inside((mount.disk_uid, mount.disk_gid), ids);
        let tmpfs = source.map_or_else(|| make_tmpfs(mount, owner), Ok)?;
        self.attach(tmpfs, mount)
    }

    fn overlay(&mut self, mount: &Mount, source: OwnedFd, ids: &Identity) -> Result<(), Errno> {
        if mount.given {
            return self.attach(source, mount);
        }
        let owner = owner_inside((ids.command_uid, ids.command_gid), ids);
        let mut below = std::mem::take(&mut self.layers);
        below.push(self.detached(source, mount, ids)?);
        let made = make_overlay(&self.root, below, mount, owner)?;
        if !mount.written.is_empty() {
            self.shared.push((mount.written.clone(), Arc::new(made.written)));
        }
        self.attach(made.mount, mount)
    }

    /// Attaches what the sandbox has for itself, or shares with others of its session.
    fn attach(&mut self, file_system: OwnedFd, mount: &Mount) -> Result<(), Errno> {
        let place = self.directory(&to_path(&mount.target))?;
        if mount.shared.is_empty() {
            return mount::attach(file_system.as_fd(), place.as_fd(), c"");
        }
        let next = attach_shared(file_system, mount, place.as_fd())?;
        self.shared.push((mount.shared.clone(), Arc::new(next)));
        Ok(())
    }

    fn proc(&mut self, mount: &Mount) -> Result<(), Errno> {
        let place = self.directory(&to_path(&mount.target))?;
        self.proc = Some(mount_masked_proc(place.as_fd())?);
        Ok(())
    }

    fn dev(&self, mount: &Mount) -> Result<(), Errno> {
        let attributes = Attributes::NO_SET_ID.and(Attributes::NO_EXEC);
        let dev =
            mount::make(c"tmpfs", &[fs_option(c"mode", "0755"), fs_option(c"size", "65536")], attributes)?;
        mount::attach(dev.as_fd(), self.directory(&to_path(&mount.target))?.as_fd(), c"")?;
        for name in [c"null", c"zero", c"full", c"random", c"urandom", c"tty"] {
            let host = PathBuf::from("/dev").join(name.to_str().map_err(|_| Errno::EINVAL)?);
            let node = mount::copy(AT_FDCWD, &c_path(&host)?, MountScope::Single)?;
            mount::restrict(node.as_fd(), attributes, MountScope::Single)?;
            create_file(dev.as_fd(), Path::new(name.to_str().map_err(|_| Errno::EINVAL)?))?;
            mount::attach(node.as_fd(), dev.as_fd(), name)?;
        }
        let links = [
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
            ("ptmx", "pts/ptmx"),
        ];
        for (name, target) in links {
            nix::unistd::symlinkat(target, dev.as_fd(), name)?;
        }
        self.message_queues(dev.as_fd(), attributes)?;
        mkdirat(dev.as_fd(), "pts", Mode::from_bits_truncate(0o755))?;
        // With no pseudo-terminals, /dev/ptmx dangles: a devpts with `max=0` would have no limit.
        if let Some(most) = mount.ptys.filter(|most| *most > 0) {
            let most = most.to_string();
            let options =
                [fs_option(c"ptmxmode", "0666"), fs_option(c"mode", "0600"), fs_option(c"max", &most)];
            let terminals = mount::make(c"devpts", &options, attributes)?;
            mount::attach(terminals.as_fd(), dev.as_fd(), c"pts")?;
        }
        // The plan mounts a tmpfs there; /dev is read-only from here on.
        mkdirat(dev.as_fd(), "shm", Mode::from_bits_truncate(0o755))?;
        mount::restrict(dev.as_fd(), Attributes::READ_ONLY, MountScope::Single)
    }

    /// Message queues (mq_overview(7)) are files of the ipc namespace. Mounted here, landlock can allow them.
    fn message_queues(&self, dev: BorrowedFd<'_>, attributes: Attributes) -> Result<(), Errno> {
        let queues = match mount::make(c"mqueue", &[], attributes) {
            // This kernel has none; opening one fails with that.
            Err(Errno::ENODEV) => return Ok(()),
            made => made?,
        };
        mkdirat(dev, "mqueue", Mode::from_bits_truncate(0o755))?;
        mount::attach(queues.as_fd(), dev, c"mqueue")
    }

    /// A small file from the plan: written in place in a directory of ours, else mounted over the host's file.
    fn file(&self, mount: &Mount) -> Result<(), Errno> {
        let target = to_path(&mount.target);
        let target = &*target;
        let Ok(covered) = self.find(target) else {
            let place = self.parent_of(target)?;
            return write_new(place.directory.as_fd(), &place.name, mount).map(drop);
        };
        let attributes = NO_SUID_NO_DEV.and(Attributes::NO_EXEC).and(Attributes::READ_ONLY);
        self.cover_file(covered.as_fd(), mount, attributes)
    }

    /// Mounts a small file over another one.
    fn cover_file(
        &self,
        covered: BorrowedFd<'_>,
        mount: &Mount,
        attributes: Attributes,
    ) -> Result<(), Errno> {
        let staging = Path::new(".staged");
        let staged = write_new(self.root.as_fd(), staging, mount)?;
        let detached = mount::copy(staged.as_fd(), c"", MountScope::Single)?;
        mount::restrict(detached.as_fd(), attributes, MountScope::Single)?;
        // What has no name cannot be attached. The mount keeps the file, so its temporary name can go then, also when nothing was
        // attached: it is used again.
        let attached = mount::attach(detached.as_fd(), covered, c"");
        nix::unistd::unlinkat(self.root.as_fd(), staging, nix::unistd::UnlinkatFlags::NoRemoveDir)?;
        attached
    }

    /// Leaves nothing to use of what is at a place. What has gone meanwhile, or was replaced by a link, is nothing to cover.
    fn cover(&self, mount: &Mount) -> Result<(), Errno> {
        for _ in 0..COVER_ATTEMPTS {
            match self.cover_once(mount) {
                // The host has removed it, and may have put something else there.
                Err(Errno::ENOENT) => {}
                done => return done,
            }
        }
        Err(Errno::ENOENT)
    }

    fn cover_once(&self, mount: &Mount) -> Result<(), Errno> {
        let covered = match self.find(&to_path(&mount.target)) {
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return Ok(()),
            // A directory on the way is closed to this process, and perhaps not to a group of the commands'.
            Err(Errno::EACCES) => self.closed_directory(Path::new(&mount.target))?,
            found => found?,
        };
        let attributes = NO_SUID_NO_DEV.and(Attributes::NO_EXEC).and(Attributes::READ_ONLY);
        if mount.recursive {
            return match mount::restrict(covered.as_fd(), Attributes::READ_ONLY, MountScope::Recursive) {
                // Nothing is mounted there any more.
                Err(Errno::EINVAL) => Ok(()),
                done => done,
            };
        }
        if is_directory(covered.as_fd())? {
            let options = [fs_option(c"mode", "0555"), fs_option(c"nr_inodes", "2")];
            let empty = mount::make(c"tmpfs", &options, attributes)?;
            return mount::attach(empty.as_fd(), covered.as_fd(), c"");
        }
        self.cover_file(covered.as_fd(), &Mount { mode: 0o444, ..Mount::default() }, attributes)
    }

    /// The directory on the way to a place that this process cannot enter.
    fn closed_directory(&self, target: &Path) -> Result<OwnedFd, Errno> {
        let mut at = self.root.as_fd().try_clone_to_owned().map_err(|_| Errno::EMFILE)?;
        for name in below_root(target)?.components() {
            match self.rights.open_beneath(at.as_fd(), Path::new(name.as_os_str())) {
                Ok(next) => at = next,
                Err(Errno::EACCES) => return Ok(at),
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::EACCES)
    }

    /// A directory that belongs to the commands, if the plan says so and it is not there yet.
    fn owned_directory(&self, mount: &Mount, ids: &Identity) -> Result<(), Errno> {
        let target = to_path(&mount.target);
        let target = &*target;
        match self.find(target) {
            Err(Errno::ENOENT) => {}
            found => return found.map(drop),
        }
        let made = self.directory(target)?;
        let (uid, gid) = owner_inside((mount.disk_uid, mount.disk_gid), ids);
        fchownat(&made, "", Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::AT_EMPTY_PATH)
    }

    /// The directory at this path of the new root, made if it is missing.
    pub(super) fn directory(&self, target: &Path) -> Result<OwnedFd, Errno> {
        let mut directory = self.root.as_fd().try_clone_to_owned().map_err(|_| Errno::EMFILE)?;
        for name in below_root(target)?.components() {
            let name = Path::new(name.as_os_str());
            match self.rights.open_beneath(directory.as_fd(), name) {
                Ok(next) => directory = next,
                Err(Errno::ENOENT) => {
                    mkdirat(directory.as_fd(), name, Mode::from_bits_truncate(0o755))?;
                    directory = self.rights.open_beneath(directory.as_fd(), name)?;
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok(directory)
    }

    pub(super) fn empty_file(&self, target: &Path) -> Result<OwnedFd, Errno> {
        if let Ok(found) = self.find(target) {
            return Ok(found);
        }
        let place = self.parent_of(target)?;
        create_file(place.directory.as_fd(), &place.name)?;
        self.find(target)
    }

    fn find(&self, target: &Path) -> Result<OwnedFd, Errno> {
        self.rights.open_beneath(self.root.as_fd(), below_root(target)?)
    }

    /// A detached mount of the directory that came by descriptor.
    fn detached(&self, source: OwnedFd, mount: &Mount, ids: &Identity) -> Result<OwnedFd, Errno> {
        // The privileged launcher has made one.
        if ids.privileged { Ok(source) } else { self.copy_if_unchanged(&source, mount) }
    }

    /// A copy of the mount at the bind's path, if that is still the object that the gateway had opened. An ordinary
    /// user's descriptors belong to mounts of the host's namespace, which cannot be copied from inside.
    fn copy_if_unchanged(&self, wanted: &OwnedFd, mount: &Mount) -> Result<OwnedFd, Errno> {
        let path = to_path(&mount.source);
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let found = self.rights.walk(|| openat2(AT_FDCWD, &*path, how))?;
        let (wanted, seen) = (nix::sys::stat::fstat(wanted)?, nix::sys::stat::fstat(&found)?);
        if (wanted.st_dev, wanted.st_ino) != (seen.st_dev, seen.st_ino) {
            return Err(Errno::ESTALE);
        }
        mount::copy(found.as_fd(), c"", scope_of(mount))
    }

    fn parent_of(&self, target: &Path) -> Result<NewEntry, Errno> {
        let name = target.file_name().ok_or(Errno::EINVAL)?;
        let directory = self.directory(target.parent().ok_or(Errno::EINVAL)?)?;
        Ok(NewEntry { directory, name: PathBuf::from(name) })
    }
}

/// A name in a directory of the new root.
struct NewEntry {
    directory: OwnedFd,
    name: PathBuf,
}

/// Without an id of their own, commands own what the namespace's root owns.
fn owner_inside(commands: (u32, u32), ids: &Identity) -> (u32, u32) {
    if ids.separate_ids { commands } else { (0, 0) }
}

/// Enters the new root with pivot_root(2) and makes it read-only. The old root is unmounted.
pub(crate) fn enter(view: &NewRoot) -> Result<(), StageError> {
    let step = |index| StageError::of_step(Stage::PivotRoot, index);
    let root: &OwnedFd = &view.root;
    nix::unistd::fchdir(root).map_err(step(0))?;
    // With both arguments the same, the old root is stacked on the new one until it is unmounted (pivot_root(2),
    // NOTES).
    nix::unistd::pivot_root(".", ".").map_err(step(1))?;
    nix::mount::umount2(".", MntFlags::MNT_DETACH).map_err(step(2))?;
    nix::unistd::chdir(Path::new("/")).map_err(step(3))?;
    mount::restrict(root.as_fd(), Attributes::READ_ONLY, MountScope::Single).map_err(step(4))
}

/// For all file systems that are not the host's own: no set-id programs, no devices.
pub(super) const NO_SUID_NO_DEV: Attributes = Attributes::NO_SET_ID.and(Attributes::NO_DEVICES);

/// Opens an object without following a link or leaving the directory.
pub(super) fn open_beneath(directory: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    openat2(directory, name, how)
}

pub(super) fn is_directory(object: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(nix::sys::stat::fstat(object)?.st_mode & libc::S_IFMT == libc::S_IFDIR)
}

pub(super) fn create_file(directory: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    openat(directory, name, flags, Mode::from_bits_truncate(0o644))
}

pub(super) fn write_new(directory: BorrowedFd<'_>, name: &Path, mount: &Mount) -> Result<OwnedFd, Errno> {
    let file = create_file(directory, name)?;
    let mut rest = mount.content.as_ref();
    while !rest.is_empty() {
        rest = &rest[nix::unistd::write(&file, rest)?..];
    }
    nix::sys::stat::fchmod(&file, Mode::from_bits_truncate(mount.mode))?;
    Ok(file)
}

/// The path relative to the root; `EINVAL` if it could lead out.
pub(super) fn below_root(target: &Path) -> Result<&Path, Errno> {
    let below = target.strip_prefix("/").map_err(|_| Errno::EINVAL)?;
    if below.components().all(|part| matches!(part, std::path::Component::Normal(_))) {
        Ok(below)
    } else {
        Err(Errno::EINVAL)
    }
}

pub(super) fn fs_option(name: &'static CStr, value: &str) -> FsOption {
    FsOption::Value(name, CString::new(value).unwrap_or_default())
}

/// The commands' rights to files, where they are not the supervisor's own.
///
/// With an id of its own the supervisor may not pass a directory that is private to the caller: not once it has dropped its
/// capabilities, and before that not where the directory's group has no id in the sandbox. The commands, which have the caller's
/// rights there, may. Only walks are done so; what is made is the supervisor's.
#[derive(Debug)]
pub(super) struct CommandsRights(Option<(Uid, Gid)>);

impl CommandsRights {
    pub(super) fn of(ids: &Identity) -> Self {
        let own = (Uid::from_raw(ids.command_uid), Gid::from_raw(ids.command_gid));
        Self(ids.separate_ids.then_some(own))
    }

    /// Looks with the supervisor's rights, and where they do not reach, with the commands'.
    pub(super) fn walk<T>(&self, look: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        match (look(), self.0) {
            (Err(Errno::EACCES), Some((uid, gid))) => {
                let found = set_file_access_ids(uid, gid).and_then(|()| look());
                // With its own rights the supervisor has its capabilities again.
                set_file_access_ids(Uid::from_raw(0), Gid::from_raw(0))?;
                found
            }
            (found, _) => found,
        }
    }

    /// As [`open_beneath`].
    pub(super) fn open_beneath(&self, directory: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd, Errno> {
        self.walk(|| open_beneath(directory, name))
    }
}

/// A tmpfs as planned, detached, whose root has this owner.
///
/// No two sandboxes see one another's mounts, and none can copy a mount that is attached in another. So every supervisor
/// keeps a detached mount of each, and hands it to the next sandbox through the gateway.
pub(super) fn make_tmpfs(planned: &Mount, (uid, gid): (u32, u32)) -> Result<OwnedFd, Errno> {
    let options = [
        fs_option(c"mode", &format!("{:o}", planned.mode)),
        fs_option(c"size", &planned.size_bytes.to_string()),
        fs_option(c"nr_inodes", &planned.inodes.to_string()),
        fs_option(c"uid", &uid.to_string()),
        fs_option(c"gid", &gid.to_string()),
    ];
    mount::make(c"tmpfs", &options, attributes(planned))
}

/// Attaches the tmpfs, and returns a detached mount of it for the next sandbox.
fn attach_shared(source: OwnedFd, planned: &Mount, place: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let copy = |of: &OwnedFd| mount::copy(of.as_fd(), c"", MountScope::Single);
    let restrict = |one: &OwnedFd| mount::restrict(one.as_fd(), attributes(planned), MountScope::Single);
    match copy(&source) {
        Ok(own) => {
            restrict(&own)?;
            mount::attach(own.as_fd(), place, c"")?;
            Ok(source)
        }
        // Before Linux 6.15 only an attached mount can be copied. Nobody runs here who could see it unrestricted.
        Err(Errno::EINVAL) => {
            mount::attach(source.as_fd(), place, c"")?;
            let next = copy(&source)?;
            restrict(&source)?;
            Ok(next)
        }
        Err(errno) => Err(errno),
    }
}

fn attributes(planned: &Mount) -> Attributes {
    if planned.no_exec { NO_SUID_NO_DEV.and(Attributes::NO_EXEC) } else { NO_SUID_NO_DEV }
}

/// Turns each source that came by descriptor into a detached mount, with its owner's ids mapped to the command's, and makes
/// what the session's sandboxes will have in common: in the host's user namespace, so that each of their supervisors can write to it.
/// Only the host's root may do that, and only outside of the sandbox's user namespace.
///
/// Only a privileged launcher does it.
pub(crate) fn detach_sources(
    plan: &SandboxPlan,
    ids: &Identity,
    descriptors: &mut PlanDescriptors,
) -> Result<(), StageError> {
    let mut given = std::mem::replace(&mut descriptors.binds, VecDeque::with_capacity(plan.mounts.len()));
    let mut maps: Vec<((u32, u32, bool), OwnedFd)> = Vec::new();
    for (index, planned) in plan.mounts.iter().enumerate().filter(|(_, mount)| is_source(mount, ids)) {
        let step = StageError::of_step(Stage::Mount, index);
        if !planned.from_descriptor {
            let owner = (ids.command_host_uid, ids.command_host_gid);
            descriptors.binds.push_back(make_tmpfs(planned, owner).map_err(&step)?);
            continue;
        }
        let source = given.pop_front().ok_or_else(StageError::malformed_plan)?;
        if planned.given {
            descriptors.binds.push_back(source);
            continue;
        }
        let detached = mount::copy(source.as_fd(), c"", scope_of(planned)).map_err(&step)?;
        // The host's mounts are usually shared, so the copy must leave their peer group.
        mount::leave_peer_group(detached.as_fd(), scope_of(planned)).map_err(&step)?;
        if planned.idmap {
            let owner = (planned.disk_uid, planned.disk_gid, planned.keep_owners);
            if !maps.iter().any(|(known, _)| *known == owner) {
                maps.push((
                    owner,
                    id_map_namespace(planned, ids).map_err(StageError::of(Stage::CloneNamespaces))?,
                ));
            }
            for (_, namespace) in maps.iter().filter(|(known, _)| *known == owner) {
                mount::map_ids(detached.as_fd(), namespace.as_fd())
                    .map_err(StageError::of_step(Stage::IdMap, index + ID_MAPPED_MOUNTS_FROM as usize))?;
            }
        }
        descriptors.binds.push_back(detached);
    }
    Ok(())
}

/// Whether set-up finds a descriptor for this mount.
pub(super) fn is_source(mount: &Mount, ids: &Identity) -> bool {
    let is_made = mount.kind() == Kind::Tmpfs && !mount.shared.is_empty();
    mount.from_descriptor || (ids.privileged && is_made)
}

fn id_map_namespace(mount: &Mount, ids: &Identity) -> Result<OwnedFd, Errno> {
    let own = IdPair { inside: mount.disk_uid, outside: ids.command_host_uid };
    let uids = match mount.keep_owners {
        false => namespace::map_lines(&[own]),
        true => namespace::map_lines_with_others(own),
    };
    let mut gids = vec![IdPair { inside: mount.disk_gid, outside: ids.command_host_gid }];
    let more = ids.groups.iter().filter(|group| group.disk_gid != mount.disk_gid);
    gids.extend(more.map(|group| IdPair { inside: group.disk_gid, outside: group.host_gid }));
    namespace::make_user_namespace(&uids, &namespace::map_lines(&gids))
}

/// Whether a planned mount takes the mounts below it along.
pub(super) fn scope_of(mount: &Mount) -> MountScope {
    if mount.recursive { MountScope::Recursive } else { MountScope::Single }
}

/// Where the parts are attached while the overlay is made: overlayfs takes paths, and no detached mounts before Linux 6.15.
const BELOW: &str = ".below";
const ABOVE: &str = ".above";
/// What commands write, and what overlayfs needs next to it, in the tmpfs.
const UPPER: &str = "upper";
const WORK: &str = "work";

/// An overlay, detached, and the directory that has what is written to it.
pub(super) struct Overlay {
    pub(super) mount: OwnedFd,
    pub(super) written: OwnedFd,
}

/// Makes an overlay: `below` are detached mounts of the host's directories, the lowest last, and what is above them
/// belongs to `owner`. `root` is the sandbox's new root, in which nothing runs yet.
///
/// Made with the power that the supervisor has over its own user namespace, and no other: below and above are reached with the
/// rights of that namespace's root, whose ids are those of the sandbox.
fn make_overlay(
    root: &OwnedFd,
    below: Vec<OwnedFd>,
    planned: &Mount,
    owner: (u32, u32),
) -> Result<Overlay, Errno> {
    let read_only = NO_SUID_NO_DEV.and(Attributes::READ_ONLY);
    let above = make_tmpfs(planned, owner)?;
    let mut layers = Vec::with_capacity(below.len());
    for (index, layer) in below.into_iter().enumerate() {
        mount::restrict(layer.as_fd(), read_only, MountScope::Single)?;
        layers.push(Staged::attach(root, format!("{BELOW}{index}"), layer)?);
    }
    let above = Staged::attach(root, ABOVE.into(), above)?;
    for name in [UPPER, WORK] {
        mkdirat(&above.mount, name, Mode::from_bits_truncate(0o755))?;
    }
    let (uid, gid) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
    fchownat(&above.mount, UPPER, Some(uid), Some(gid), nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW)?;
    let options = [
        fs_option(c"lowerdir", &layers.iter().map(Staged::path).collect::<Vec<_>>().join(":")),
        fs_option(c"upperdir", &format!("{}/{UPPER}", above.path())),
        fs_option(c"workdir", &format!("{}/{WORK}", above.path())),
        // An ordinary user's overlay keeps its notes in attributes that such a user may write.
        FsOption::Flag(c"userxattr"),
    ];
    let mount = mount::make(c"overlay", &options, NO_SUID_NO_DEV)?;
    let written = open_beneath(above.mount.as_fd(), Path::new(UPPER))?;
    // The overlay holds them all by itself.
    layers.into_iter().try_for_each(|layer| layer.detach(root))?;
    above.detach(root)?;
    Ok(Overlay { mount, written })
}

/// A mount at a place of the new root that no command ever sees.
struct Staged {
    mount: OwnedFd,
    name: String,
}

impl Staged {
    fn attach(root: &OwnedFd, name: String, mount: OwnedFd) -> Result<Self, Errno> {
        mkdirat(root, name.as_str(), Mode::from_bits_truncate(0o755))?;
        let place = open_beneath(root.as_fd(), Path::new(&name))?;
        mount::attach(mount.as_fd(), place.as_fd(), c"")?;
        Ok(Self { mount, name })
    }

    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.mount.as_raw_fd())
    }

    fn detach(self, root: &OwnedFd) -> Result<(), Errno> {
        umount2(self.path().as_str(), MntFlags::MNT_DETACH)?;
        unlinkat(root, self.name.as_str(), UnlinkatFlags::RemoveDir)
    }
}

/// Mounts a new proc twice: at `place`, read-only, for the commands; and detached and writable, for the supervisor until
/// the last write of set-up. Returns the second.
fn mount_masked_proc(place: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let attributes = NO_SUID_NO_DEV.and(Attributes::NO_EXEC);
    let proc = mount::make(c"proc", &[fs_option(c"hidepid", "invisible")], attributes)?;
    mount::attach(proc.as_fd(), place, c"")?;
    let writable = mount::copy(proc.as_fd(), c"", MountScope::Single)?;
    mount::restrict(proc.as_fd(), Attributes::READ_ONLY, MountScope::Single)?;
    let mut cover = None;
    for name in MASKED_PROC_FILES {
        mask_file(proc.as_fd(), Path::new(name), &mut cover)?;
    }
    let mut empty = None;
    for name in MASKED_PROC_DIRECTORIES {
        mask_directory(proc.as_fd(), Path::new(name), &mut empty)?;
    }
    Ok(writable)
}

/// Files of /proc that are about the whole machine and that no namespace limits: keys, kernel addresses, modules,
/// memory, timers, locks, and the kernel's command line (which may hold passwords). Files that programs read to
/// size themselves stay visible (cpuinfo, meminfo, stat, loadavg, uptime).
const MASKED_PROC_FILES: [&str; 29] = [
    "keys",
    "key-users",
    "kallsyms",
    "modules",
    "timer_list",
    "sched_debug",
    "schedstat",
    "slabinfo",
    "allocinfo",
    "vmallocinfo",
    "pagetypeinfo",
    "latency_stats",
    "locks",
    "kmsg",
    "kcore",
    "kpagecount",
    "kpageflags",
    "kpagecgroup",
    "sysrq-trigger",
    "iomem",
    "ioports",
    "interrupts",
    "bootconfig",
    "cmdline",
    "buddyinfo",
    "zoneinfo",
    "softirqs",
    "diskstats",
    "consoles",
];

/// Directories of /proc about the whole machine: devices, interrupts, file systems that others have mounted.
const MASKED_PROC_DIRECTORIES: [&str; 8] = ["acpi", "asound", "bus", "driver", "fs", "ide", "irq", "scsi"];

/// Mounts the null device over a file of /proc, if this kernel has it. `cover` is the first such mount, of which
/// the others are copies.
fn mask_file(proc: BorrowedFd<'_>, name: &Path, cover: &mut Option<OwnedFd>) -> Result<(), Errno> {
    // Resolved through the mount that was just attached.
    let file = match open_beneath(proc, name) {
        Ok(file) => file,
        Err(Errno::ENOENT) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    let null = match cover {
        Some(cover) => mount::copy(cover.as_fd(), c"", MountScope::Single)?,
        None => {
            let null = mount::copy(AT_FDCWD, c"/dev/null", MountScope::Single)?;
            let attributes = Attributes::NO_SET_ID.and(Attributes::NO_EXEC).and(Attributes::READ_ONLY);
            mount::restrict(null.as_fd(), attributes, MountScope::Single)?;
            null
        }
    };
    mount::attach(null.as_fd(), file.as_fd(), c"")?;
    // Only an attached mount can be copied (open_tree(2)).
    cover.get_or_insert(null);
    Ok(())
}

/// Mounts an empty directory over one of /proc, if this kernel has it. `empty` is the first such mount.
fn mask_directory(proc: BorrowedFd<'_>, name: &Path, empty: &mut Option<OwnedFd>) -> Result<(), Errno> {
    let directory = match open_beneath(proc, name) {
        Ok(directory) => directory,
        Err(Errno::ENOENT) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    let laid = match empty {
        Some(empty) => mount::copy(empty.as_fd(), c"", MountScope::Single)?,
        None => {
            let attributes = NO_SUID_NO_DEV.and(Attributes::NO_EXEC).and(Attributes::READ_ONLY);
            mount::make(c"tmpfs", &[fs_option(c"mode", "0555"), fs_option(c"nr_inodes", "1")], attributes)?
        }
    };
    mount::attach(laid.as_fd(), directory.as_fd(), c"")?;
    empty.get_or_insert(laid);
    Ok(())
}
