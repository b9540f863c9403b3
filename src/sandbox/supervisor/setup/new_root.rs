//! Builds the sandbox's root file system, mount by mount, as the plan lists them.
//!
//! The new root is a tmpfs over the old root, which is entered only later, so every source can still be named while
//! it is built. Sources that must not be replaced come as descriptors. Paths in the new root are resolved without
//! following any link, and where the supervisor may not go on, with the commands' rights: what is private to the
//! caller is closed to the supervisor, which has an id of its own.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat2},
    sys::stat::{Mode, mkdirat},
    unistd::{Gid, Uid, fchownat},
};

use super::{
    beneath::{NO_SUID_NO_DEV, below_root, create_file, fs_option, is_directory, write_new},
    commands_rights::CommandsRights,
    detached_mounts::{is_source, scope_of},
    masked_proc, overlay, session_files,
    stage::StageError,
};
use crate::{
    byte_text::to_path,
    proto::supervisor::{Identity, Mount, SandboxPlan, Stage, mount::Kind},
    sys::{
        file::c_path,
        mount::{self, Attributes, MountScope},
    },
};

/// How often something may come in the place of what is to be covered, while the sandbox is set up.
const COVER_ATTEMPTS: usize = 16;

/// The new root, not yet entered.
#[derive(Debug)]
pub struct NewRoot {
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
pub fn build(
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
        let tmpfs = source.map_or_else(|| session_files::make_tmpfs(mount, owner), Ok)?;
        self.attach(tmpfs, mount)
    }

    fn overlay(&mut self, mount: &Mount, source: OwnedFd, ids: &Identity) -> Result<(), Errno> {
        if mount.given {
            return self.attach(source, mount);
        }
        let owner = owner_inside((ids.command_uid, ids.command_gid), ids);
        let mut below = std::mem::take(&mut self.layers);
        below.push(self.detached(source, mount, ids)?);
        let made = overlay::make(&self.root, below, mount, owner)?;
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
        let next = session_files::attach(file_system, mount, place.as_fd())?;
        self.shared.push((mount.shared.clone(), Arc::new(next)));
        Ok(())
    }

    fn proc(&mut self, mount: &Mount) -> Result<(), Errno> {
        let place = self.directory(&to_path(&mount.target))?;
        self.proc = Some(masked_proc::mount_at(place.as_fd())?);
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
