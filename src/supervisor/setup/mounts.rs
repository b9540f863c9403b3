//! The sandbox's view of the file system, built mount by mount as the plan lists them.
//!
//! The new root is a detached tmpfs, laid over the old root only when it is entered, so every source can still
//! be named while it is built. Sources that must not change under us come as descriptors. Places in the view are
//! found without following any link. Decides nothing about what is shown.

use std::{
    collections::VecDeque,
    ffi::{CStr, CString},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat, openat2},
    sys::stat::{Mode, mkdirat},
};

use super::{StageError, cgroups::V1JoinFd, malformed};
use crate::{
    cgroup::{CgroupDirectory, Hierarchy},
    proto::supervisor::{Identity, Mount, SandboxPlan, Stage, cgroup_directory, mount::Kind},
    sys::{
        file::c_path,
        mount::{self, Attributes, FsOption, MountScope},
        namespace::{self, IdPair},
    },
    wire::launch::ID_MAPPED_MOUNTS_FROM,
};

/// The plan's descriptors, by what they are for.
#[derive(Debug)]
pub struct PlanDescriptors {
    /// The control listener.
    pub listener: OwnedFd,
    /// The cgroup directories, in the plan's order.
    pub directories: Vec<CgroupDirectory>,
    /// What the binds with `from_descriptor` show, in the plan's order: first the sources, later their mounts.
    pub binds: VecDeque<OwnedFd>,
    /// The claim on the host ids.
    pub claim: Option<OwnedFd>,
    /// Its places in v1 directories, from when the launcher has opened them to when the supervisor has taken them.
    pub v1_join_fds: Vec<V1JoinFd>,
}

impl PlanDescriptors {
    /// Tells them apart: as many of each as the plan says, no more and no fewer.
    pub fn from_plan(plan: &SandboxPlan, descriptors: Vec<OwnedFd>) -> Result<Self, StageError> {
        let mut rest = VecDeque::from(descriptors);
        let listener = rest.pop_front().ok_or_else(malformed)?;
        let directories = plan
            .cgroups
            .iter()
            .map(|directory| {
                let hierarchy = match directory.hierarchy() {
                    cgroup_directory::Hierarchy::V2 => Hierarchy::V2,
                    cgroup_directory::Hierarchy::V1 => Hierarchy::V1,
                    cgroup_directory::Hierarchy::Unspecified => return Err(malformed()),
                };
                let descriptor = rest.pop_front().ok_or_else(malformed)?;
                Ok(CgroupDirectory { descriptor, hierarchy, controllers: directory.controllers.clone() })
            })
            .collect::<Result<_, _>>()?;
        let count = plan.mounts.iter().filter(|mount| mount.from_descriptor).count();
        if rest.len() < count {
            return Err(malformed());
        }
        let mut claims = rest.split_off(count);
        let claim = claims.pop_front();
        if claims.is_empty() {
            Ok(Self { listener, directories, binds: rest, claim, v1_join_fds: Vec::new() })
        } else {
            Err(malformed())
        }
    }
}

/// In the privileged launcher: turns each source that came by descriptor into a detached mount, with its owner's ids
/// mapped to the command's. Only the host's root may do that, and only out here.
pub fn detach_sources(
    plan: &SandboxPlan,
    ids: &Identity,
    descriptors: &mut PlanDescriptors,
) -> Result<(), StageError> {
    let planned = plan.mounts.iter().enumerate().filter(|(_, mount)| mount.from_descriptor);
    let mut maps: Vec<((u32, u32), OwnedFd)> = Vec::new();
    for ((index, planned), source) in planned.zip(&mut descriptors.binds) {
        let step = StageError::of_step(Stage::Mount, index);
        let detached = mount::copy(source.as_fd(), c"", scope_of(planned)).map_err(&step)?;
        // Out here nothing is private yet, and most hosts share all of their mounts.
        mount::leave_peer_group(detached.as_fd(), scope_of(planned)).map_err(&step)?;
        if planned.idmap {
            let owner = (planned.disk_uid, planned.disk_gid);
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
        *source = detached;
    }
    Ok(())
}

fn id_map_namespace(mount: &Mount, ids: &Identity) -> Result<OwnedFd, Errno> {
    let uids = [IdPair { inside: mount.disk_uid, outside: ids.command_host_uid }];
    let mut gids = vec![IdPair { inside: mount.disk_gid, outside: ids.command_host_gid }];
    let more = ids.groups.iter().filter(|group| group.disk_gid != mount.disk_gid);
    gids.extend(more.map(|group| IdPair { inside: group.disk_gid, outside: group.host_gid }));
    namespace::make_user_namespace(&uids, &gids)
}

fn scope_of(mount: &Mount) -> MountScope {
    if mount.recursive { MountScope::Recursive } else { MountScope::Single }
}

/// The finished view, not yet entered.
#[derive(Debug)]
pub struct NewRoot {
    /// The new root, attached over the old one.
    pub root: OwnedFd,
    /// The new /proc by a mount of its own that is writable and that no path leads to.
    pub proc: Option<OwnedFd>,
}

/// Everything in the view that is not the host's: no set-id programs, no devices.
const NO_SUID_NO_DEV: Attributes = Attributes::NO_SET_ID.and(Attributes::NO_DEVICES);

/// Builds the view in the supervisor's mount namespace.
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

    let mut view = NewRoot { root, proc: None };
    for (index, mount) in plan.mounts.iter().enumerate() {
        let source =
            if mount.from_descriptor { Some(binds.pop_front().ok_or_else(malformed)?) } else { None };
        let placed = view.add(mount, source, ids);
        match placed {
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
            Kind::Tmpfs => self.tmpfs(mount),
            Kind::Proc => self.proc(mount),
            Kind::Dev => self.dev(mount),
            Kind::Symlink => {
                let place = self.parent_of(Path::new(&mount.target))?;
                nix::unistd::symlinkat(
                    Path::new(&mount.source),
                    place.directory.as_fd(),
                    place.name.as_path(),
                )
            }
            Kind::File => self.file(mount),
            Kind::Directory => self.directory(Path::new(&mount.target)).map(drop),
            Kind::Unspecified => Err(Errno::EINVAL),
        }
    }

    fn bind(&self, mount: &Mount, source: Option<OwnedFd>, ids: &Identity) -> Result<(), Errno> {
        let detached = match source {
            // The launcher has made a mount of it.
            Some(detached) if ids.privileged => detached,
            Some(wanted) => copy_if_unchanged(&wanted, mount)?,
            None => mount::copy(AT_FDCWD, &c_path(Path::new(&mount.source))?, scope_of(mount))?,
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
            self.directory(Path::new(&mount.target))?
        } else {
            self.empty_file(Path::new(&mount.target))?
        };
        mount::attach(detached.as_fd(), place.as_fd(), c"")
    }

    fn tmpfs(&self, mount: &Mount) -> Result<(), Errno> {
        let mut attributes = NO_SUID_NO_DEV;
        if mount.no_exec {
            attributes = attributes.and(Attributes::NO_EXEC);
        }
        let options = [
            fs_option(c"mode", &format!("{:o}", mount.mode)),
            fs_option(c"size", &mount.size_bytes.to_string()),
            fs_option(c"nr_inodes", &mount.inodes.to_string()),
            fs_option(c"uid", &mount.disk_uid.to_string()),
            fs_option(c"gid", &mount.disk_gid.to_string()),
        ];
        let tmpfs = mount::make(c"tmpfs", &options, attributes)?;
        mount::attach(tmpfs.as_fd(), self.directory(Path::new(&mount.target))?.as_fd(), c"")
    }

    /// Two mounts of one proc: a read-only one for the commands, and one that stays in the supervisor's hand until
    /// the last write of set-up.
    fn proc(&mut self, mount: &Mount) -> Result<(), Errno> {
        let attributes = NO_SUID_NO_DEV.and(Attributes::NO_EXEC);
        let proc = mount::make(c"proc", &[fs_option(c"hidepid", "invisible")], attributes)?;
        let place = self.directory(Path::new(&mount.target))?;
        mount::attach(proc.as_fd(), place.as_fd(), c"")?;
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
        self.proc = Some(writable);
        Ok(())
    }

    fn dev(&self, mount: &Mount) -> Result<(), Errno> {
        let attributes = Attributes::NO_SET_ID.and(Attributes::NO_EXEC);
        let dev =
            mount::make(c"tmpfs", &[fs_option(c"mode", "0755"), fs_option(c"size", "65536")], attributes)?;
        mount::attach(dev.as_fd(), self.directory(Path::new(&mount.target))?.as_fd(), c"")?;
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
        // Without any, /dev/ptmx leads nowhere: a devpts of none would be one without a bound.
        if let Some(most) = mount.ptys.filter(|most| *most > 0) {
            let most = most.to_string();
            let options =
                [fs_option(c"ptmxmode", "0666"), fs_option(c"mode", "0600"), fs_option(c"max", &most)];
            let terminals = mount::make(c"devpts", &options, attributes)?;
            mount::attach(terminals.as_fd(), dev.as_fd(), c"pts")?;
        }
        // For the tmpfs that the plan puts there: /dev itself can be read only from here on.
        mkdirat(dev.as_fd(), "shm", Mode::from_bits_truncate(0o755))?;
        mount::restrict(dev.as_fd(), Attributes::READ_ONLY, MountScope::Single)
    }

    /// Queues of mq_overview(7) are files of the ipc namespace: here landlock can be told to let them be opened.
    fn message_queues(&self, dev: BorrowedFd<'_>, attributes: Attributes) -> Result<(), Errno> {
        let queues = match mount::make(c"mqueue", &[], attributes) {
            // A kernel without them: opening one says so.
            Err(Errno::ENODEV) => return Ok(()),
            made => made?,
        };
        mkdirat(dev, "mqueue", Mode::from_bits_truncate(0o755))?;
        mount::attach(queues.as_fd(), dev, c"mqueue")
    }

    /// A small file of the plan's own: in place where the directory is ours, else as a mount over the host's file.
    fn file(&self, mount: &Mount) -> Result<(), Errno> {
        let target = Path::new(&mount.target);
        let Ok(covered) = self.find(target) else {
            let place = self.parent_of(target)?;
            return write_new(place.directory.as_fd(), &place.name, mount).map(drop);
        };
        let staging = Path::new(".staged");
        let staged = write_new(self.root.as_fd(), staging, mount)?;
        let detached = mount::copy(staged.as_fd(), c"", MountScope::Single)?;
        let attributes = NO_SUID_NO_DEV.and(Attributes::NO_EXEC).and(Attributes::READ_ONLY);
        mount::restrict(detached.as_fd(), attributes, MountScope::Single)?;
        mount::attach(detached.as_fd(), covered.as_fd(), c"")?;
        // The mount keeps the file; its first name has served.
        nix::unistd::unlinkat(self.root.as_fd(), staging, nix::unistd::UnlinkatFlags::NoRemoveDir)
    }

    /// The directory at this place of the view, made if it is not there.
    fn directory(&self, target: &Path) -> Result<OwnedFd, Errno> {
        let mut directory = self.root.as_fd().try_clone_to_owned().map_err(|_| Errno::EMFILE)?;
        for name in below_root(target)?.components() {
            let name = Path::new(name.as_os_str());
            match open_beneath(directory.as_fd(), name) {
                Ok(next) => directory = next,
                Err(Errno::ENOENT) => {
                    mkdirat(directory.as_fd(), name, Mode::from_bits_truncate(0o755))?;
                    directory = open_beneath(directory.as_fd(), name)?;
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok(directory)
    }

    fn empty_file(&self, target: &Path) -> Result<OwnedFd, Errno> {
        if let Ok(found) = self.find(target) {
            return Ok(found);
        }
        let place = self.parent_of(target)?;
        create_file(place.directory.as_fd(), &place.name)?;
        self.find(target)
    }

    fn find(&self, target: &Path) -> Result<OwnedFd, Errno> {
        open_beneath(self.root.as_fd(), below_root(target)?)
    }

    fn parent_of(&self, target: &Path) -> Result<NewEntry, Errno> {
        let name = target.file_name().ok_or(Errno::EINVAL)?;
        let directory = self.directory(target.parent().ok_or(Errno::EINVAL)?)?;
        Ok(NewEntry { directory, name: PathBuf::from(name) })
    }
}

/// Files of /proc that are about the whole machine and that no namespace narrows: its keys, its kernel's addresses, its
/// modules, its memory, its timers, the locks of all processes, how it was started (where passwords may stand). Not those that programs size themselves by (cpuinfo,
/// meminfo, stat, loadavg, uptime).
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

/// Directories of /proc, likewise: devices, interrupts, file systems that others have mounted.
const MASKED_PROC_DIRECTORIES: [&str; 8] = ["acpi", "asound", "bus", "driver", "fs", "ide", "irq", "scsi"];

/// Lays the null device over a file of /proc, if this kernel has it. `cover`: the first one that was laid, of which the
/// others are copies.
fn mask_file(proc: BorrowedFd<'_>, name: &Path, cover: &mut Option<OwnedFd>) -> Result<(), Errno> {
    // Through the mount that was just attached there.
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
    // A copy is made of what is attached (open_tree(2)).
    cover.get_or_insert(null);
    Ok(())
}

/// Lays an empty directory over one of /proc, if this kernel has it. `empty`: as for a file.
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

/// A name in a directory of the view.
struct NewEntry {
    directory: OwnedFd,
    name: PathBuf,
}

/// Opens what is there without following a link or leaving the directory.
fn open_beneath(directory: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    openat2(directory, name, how)
}

/// A copy of the mount at the bind's path, if that is still what the gateway had opened. An ordinary user's
/// descriptors belong to mounts of the host's namespace, which cannot be copied from inside.
fn copy_if_unchanged(wanted: &OwnedFd, mount: &Mount) -> Result<OwnedFd, Errno> {
    let path = Path::new(&mount.source);
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let found = openat2(AT_FDCWD, path, how)?;
    let (wanted, seen) = (nix::sys::stat::fstat(wanted)?, nix::sys::stat::fstat(&found)?);
    if (wanted.st_dev, wanted.st_ino) != (seen.st_dev, seen.st_ino) {
        return Err(Errno::ESTALE);
    }
    mount::copy(found.as_fd(), c"", scope_of(mount))
}

fn is_directory(object: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(nix::sys::stat::fstat(object)?.st_mode & libc::S_IFMT == libc::S_IFDIR)
}

fn create_file(directory: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    openat(directory, name, flags, Mode::from_bits_truncate(0o644))
}

fn write_new(directory: BorrowedFd<'_>, name: &Path, mount: &Mount) -> Result<OwnedFd, Errno> {
    let file = create_file(directory, name)?;
    let mut rest = mount.content.as_ref();
    while !rest.is_empty() {
        rest = &rest[nix::unistd::write(&file, rest)?..];
    }
    nix::sys::stat::fchmod(&file, Mode::from_bits_truncate(mount.mode))?;
    Ok(file)
}

/// The path below the root; refuses one that could lead out.
fn below_root(target: &Path) -> Result<&Path, Errno> {
    let below = target.strip_prefix("/").map_err(|_| Errno::EINVAL)?;
    if below.components().all(|part| matches!(part, std::path::Component::Normal(_))) {
        Ok(below)
    } else {
        Err(Errno::EINVAL)
    }
}

fn fs_option(name: &'static CStr, value: &str) -> FsOption {
    FsOption::Value(name, CString::new(value).unwrap_or_default())
}
