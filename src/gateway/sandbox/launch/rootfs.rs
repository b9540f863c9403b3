//! Plans the root file system of a sandbox, as a list of mounts in the order in which they are to be made.
//!
//! System directories are read-only, temporary directories are private, the session's roots and the profile's extra
//! directories appear at their own paths. There is no /run, nothing of /sys but what says how many processors and how much
//! memory there is, no homes, and no sockets of the host. Makes nothing but the directories that a profile reserves (see
//! `protected`).

mod caches;
mod roots_files;

use std::{
    os::{fd::AsFd, fd::OwnedFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
};

use crate::{
    byte_text,
    policy::profile::{Access, Filesystem, Network, Profile},
    proto::supervisor::{Identity, MappedGroup, Mount, mount::Kind},
    sandbox::{
        launch::{
            covers::{self, Covers},
            name_files::{hosts, name_sources, resolv_conf},
            named_links::{self, At, NamedWay},
            private_files::{self, PrivateFiles},
            protected::{self, DiskIdentity, MakeReserved},
            rootfs_error::RootfsError,
            shown::{ShownDirectory, ShownFor},
        },
        roots::{Root, RootRole, governing::GoverningView},
        spec::{Owner, SessionFilesUse, Shortfall},
    },
};

/// The planned mounts and their source descriptors.
#[derive(Debug)]
pub(super) struct Rootfs {
    /// In order.
    pub mounts: Vec<Mount>,
    /// The sources of mounts with `from_descriptor`, in order.
    pub sources: Vec<OwnedFd>,
    /// What is not known of what it shows.
    pub shortfall: Option<Shortfall>,
}

/// What governs commands, as the plan has to know it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Governs<'a> {
    /// Where it lies.
    pub view: &'a GoverningView,
    /// The gateway's own programs, where they lie in a root: they are shown to be read.
    pub programs: &'a [PathBuf],
}

/// Plans the mounts. The files `programs` are shown read-only in the root that holds them.
///
/// # Errors
/// [`RootfsError`].
pub(super) fn plan(
    profile: &Profile,
    roots: Vec<Root>,
    network: Network,
    ids: &Identity,
    owner: Owner,
    private: &PrivateFiles<'_>,
    Governs { view: governing, programs }: Governs<'_>,
) -> Result<Rootfs, RootfsError> {
    check_identity(ids)?;
    let covers = covers(&profile.filesystem, &roots, ids, governing)?;
    let mut plan = RootfsPlanner { entries: Vec::new(), covers, ids, read_only_programs: programs };
    for path in &profile.filesystem.system {
        plan.add_system(path)?;
    }
    if !ids.privileged && ids.command_host_uid == 0 {
        plan.cover_roots_files(&profile.filesystem.system)?;
    }
    plan.add_accounts();
    if let Some(hosts) = hosts() {
        plan.add_real_file("/etc/hosts", &hosts);
    }
    match network {
        Network::Host => plan.add_resolv_conf(),
        Network::None | Network::Proxy => {
            plan.add_real_file("/etc/nsswitch.conf", &name_sources());
            plan.add_real_file("/etc/resolv.conf", &resolv_conf(private.resolver));
        }
    }
    plan.add(Mount { kind: Kind::Proc.into(), target: "/proc".into(), ..Mount::default() });
    plan.add(Mount { kind: Kind::Dev.into(), target: "/dev".into(), ..Mount::default() });
    plan.add(Mount { kind: Kind::Directory.into(), target: "/var".into(), ..Mount::default() });
    let shown = |root: &Root| root.path.starts_with("/var/tmp");
    if !roots.iter().any(shown)
        && !profile.filesystem.writable.iter().any(|path| path.starts_with("/var/tmp"))
    {
        plan.add(Mount {
            kind: Kind::Symlink.into(),
            source: "../tmp".into(),
            target: "/var/tmp".into(),
            ..Mount::default()
        });
    }

    let fixed = plan.entries.len();
    let files = &profile.filesystem;
    plan.add_tmpfs("/tmp", 0o1777, files.tmp_bytes, files.tmp_inodes);
    plan.share("tmp", private.session)?;
    plan.add_tmpfs("/dev/shm", 0o1777, files.tmp_bytes, files.tmp_inodes);
    if !roots.iter().any(|root| root.path == Path::new(&ids.home)) {
        plan.add_tmpfs(&ids.home, 0o700, files.tmp_bytes, files.tmp_inodes);
        // In the private home alone: elsewhere it would be written on the host. In a session's, once.
        if !plan.share("home", private.session)? {
            private_files::git_configuration(ids, private.caller)
                .into_iter()
                .for_each(|mount| plan.add(mount));
        }
        for cache in private.caches {
            plan.add_cache(cache, files, private.session)?;
        }
    }
    for path in &files.read_only {
        plan.add_profile_path(path, Access::Read)?;
    }
    for path in &files.writable {
        plan.add_profile_path(path, Access::Write)?;
    }
    for root in roots {
        plan.add_root(root, files, owner)?;
    }
    let shortfall = plan.covers.shortfall.take();
    plan.cover();
    plan.add_links(private.named);
    // Mount outer directories before those inside them.
    plan.entries[fixed..].sort_by_key(|entry| Path::new(&entry.mount.target).components().count());

    let (mut mounts, mut sources) = (Vec::new(), Vec::new());
    for entry in plan.entries {
        mounts.push(entry.mount);
        sources.extend(entry.source);
    }
    Ok(Rootfs { mounts, sources, shortfall })
}

/// What is covered of all that is shown of the host.
fn covers(
    files: &Filesystem,
    roots: &[Root],
    ids: &Identity,
    governing: &GoverningView,
) -> Result<Covers, RootfsError> {
    let is_object = |path: &&PathBuf| path.symlink_metadata().is_ok_and(|found| !found.is_symlink());
    let listed = |paths: &[PathBuf]| -> Result<Vec<PathBuf>, RootfsError> {
        let real = |path: &PathBuf| {
            path.canonicalize().map_err(|cause| RootfsError::ProfilePath { path: path.clone(), cause })
        };
        paths.iter().map(real).collect()
    };
    let (read_only, writable) = (listed(&files.read_only)?, listed(&files.writable)?);
    let system = files.system.iter().filter(is_object).map(|path| (path.as_path(), ShownFor::System, true));
    let read_only = read_only.iter().map(|path| (path.as_path(), ShownFor::Profile, true));
    let writable = writable.iter().map(|path| (path.as_path(), ShownFor::Writable, !ids.privileged));
    let roots = roots.iter().map(|root| {
        let is_read = root.role == RootRole::ReadOnly;
        let shown_for = if is_read { ShownFor::SessionToRead } else { ShownFor::Session };
        (root.path.as_path(), shown_for, !ids.privileged)
    });
    let shown = system.chain(read_only).chain(writable).chain(roots);
    let shown: Vec<_> = shown
        .map(|(path, shown_for, is_recursive)| ShownDirectory { path, shown_for, is_recursive })
        .collect();
    covers::decide(&shown, &files.system, governing)
}

/// The host's object, read-only and where it is on the host; nothing where the host has none.
fn read_only_in_place(place: String) -> Mount {
    Mount {
        kind: Kind::Bind.into(),
        source: place.clone(),
        target: place,
        read_only: true,
        optional: true,
        recursive: true,
        ..Mount::default()
    }
}

fn group_line(group: &MappedGroup, user: &str) -> String {
    let id = group.inside_gid;
    format!("group{id}:x:{id}:{}\n", if group.member { user } else { "" })
}

fn check_identity(ids: &Identity) -> Result<(), RootfsError> {
    let name = &ids.command_user_name;
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    if name.is_empty() || name.len() > 32 || !name.bytes().all(plain) {
        return Err(RootfsError::UserName { name: name.clone() });
    }
    if ids.command_uid == 0 || ids.command_gid == 0 {
        return Err(RootfsError::RootId);
    }
    check_path(Path::new(&ids.home)).map(drop)
}

/// The path as the plan has it, in the form of [`byte_text`].
fn check_path(path: &Path) -> Result<String, RootfsError> {
    let mut parts = path.components();
    let plain = parts.next() == Some(std::path::Component::RootDir)
        && parts.clone().next().is_some()
        && parts.all(|part| matches!(part, std::path::Component::Normal(_)));
    match plain {
        true => Ok(byte_text::from_path(path)),
        false => Err(RootfsError::InvalidPath { path: path.to_owned() }),
    }
}

struct PlannedMount {
    mount: Mount,
    source: Option<OwnedFd>,
}

struct RootfsPlanner<'a> {
    entries: Vec<PlannedMount>,
    /// What is covered.
    covers: Covers,
    ids: &'a Identity,
    /// A file that is shown read-only in whichever root it lies.
    read_only_programs: &'a [PathBuf],
}

impl RootfsPlanner<'_> {
    fn add(&mut self, mount: Mount) {
        self.entries.push(PlannedMount { mount, source: None });
    }

    /// A system directory, file or symbolic link of the host. A missing one is left out.
    fn add_system(&mut self, path: &Path) -> Result<(), RootfsError> {
        let place = check_path(path)?;
        let Ok(found) = path.symlink_metadata() else { return Ok(()) };
        if found.is_symlink() {
            // A link that points into something that is not shown is as dangling inside as its target is absent.
            if let Some(to) = std::fs::read_link(path).ok().and_then(|to| to.to_str().map(str::to_owned)) {
                let link =
                    Mount { kind: Kind::Symlink.into(), source: to, target: place, ..Mount::default() };
                self.add(link);
            }
            return Ok(());
        }
        self.add(read_only_in_place(place));
        Ok(())
    }

    /// The users and groups of the sandbox: root of the namespace, the commands' user, nobody.
    fn add_accounts(&mut self) {
        let Identity { command_uid: uid, command_gid: gid, command_user_name: user, home, .. } = self.ids;
        let passwd = format!(
            "root:x:0:0:root:/root:/usr/sbin/nologin\n\
             {user}:x:{uid}:{gid}:{user}:{home}:/bin/sh\n\
             nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
        );
        let others: String = self.ids.groups.iter().map(|group| group_line(group, user)).collect();
        let group = format!("root:x:0:\n{user}:x:{gid}:\n{others}nogroup:x:65534:\n");
        self.add_file("/etc/passwd", &passwd);
        self.add_file("/etc/group", &group);
    }

    /// A file of the sandbox's own in `/etc`. It is left out where the host's `/etc` is shown and has none of that name: a
    /// directory that can only be read has no place for it.
    fn add_file(&mut self, target: &str, content: &str) {
        let host_has_none = Path::new("/etc").is_dir() && !Path::new(target).exists();
        if host_has_none && self.has_target("/etc") {
            return;
        }
        self.add(Mount {
            kind: Kind::File.into(),
            target: target.into(),
            content: content.as_bytes().to_vec().into(),
            mode: 0o644,
            ..Mount::default()
        });
    }

    fn has_target(&self, target: &str) -> bool {
        self.entries.iter().any(|entry| entry.mount.target == target)
    }

    /// Shows the target of /etc/resolv.conf where that is a link out of /etc.
    fn add_resolv_conf(&mut self) {
        let Ok(real) = Path::new("/etc/resolv.conf").canonicalize() else { return };
        if let (false, Ok(place)) = (real.starts_with("/etc"), check_path(&real)) {
            self.add(read_only_in_place(place));
        }
    }

    /// As [`Self::add_file`], where the host's file of that name may be a link to another one. Where there is no place for it, programs
    /// do without: resolvers ask the loopback then.
    fn add_real_file(&mut self, path: &str, content: &str) {
        let real = Path::new(path).canonicalize().unwrap_or_else(|_| path.into());
        if let Ok(place) = check_path(&real) {
            self.add_file(&place, content);
        }
    }

    /// A tmpfs that belongs to the commands.
    fn add_tmpfs(&mut self, target: &str, mode: u32, size_bytes: u64, inodes: u64) {
        self.add(Mount {
            kind: Kind::Tmpfs.into(),
            target: target.into(),
            mode,
            size_bytes,
            inodes,
            disk_uid: self.ids.command_uid,
            disk_gid: self.ids.command_gid,
            ..Mount::default()
        });
    }

    /// Makes the tmpfs that was added last one that the session's sandboxes have in common. Whether it was there before.
    fn share(&mut self, name: &str, files: &SessionFilesUse) -> Result<bool, RootfsError> {
        let Some(last) = self.entries.last_mut() else { return Ok(false) };
        last.source =
            private_files::share(&mut last.mount, name, files).map_err(RootfsError::SessionFiles)?;
        Ok(last.source.is_some())
    }

    /// A directory or file that the profile adds. It is opened here, so that it cannot be replaced before it is
    /// mounted.
    fn add_profile_path(&mut self, path: &Path, access: Access) -> Result<(), RootfsError> {
        check_path(path)?;
        let error = |cause| RootfsError::ProfilePath { path: path.to_owned(), cause };
        let real = path.canonicalize().map_err(error)?;
        let source = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_NOFOLLOW)
            .open(&real)
            .map_err(error)?;
        let stat = nix::sys::stat::fstat(source.as_fd()).map_err(|errno| error(errno.into()))?;
        let writable = access == Access::Write;
        let sockets = if writable { self.covers.sockets_below(&real) } else { Vec::new() };
        let ways =
            protected::ways_to(source.as_fd(), &sockets, &self.disk_identity(stat.st_uid, stat.st_gid))
                .map_err(|errno| error(errno.into()))?;
        let ways = ways.into_iter().map(|(path, descriptor)| (real.join(path), descriptor));
        for (path, source) in std::iter::once((real.clone(), source.into())).chain(ways) {
            let place = check_path(&path)?;
            self.entries.push(PlannedMount {
                mount: Mount {
                    kind: Kind::Bind.into(),
                    source: place.clone(),
                    target: place,
                    read_only: !writable,
                    from_descriptor: true,
                    // Writable directories are written as their owner, so they are mapped; read-only ones need no
                    // mapping.
                    idmap: writable && self.ids.privileged,
                    disk_uid: stat.st_uid,
                    disk_gid: stat.st_gid,
                    recursive: !(writable && self.ids.privileged),
                    ..Mount::default()
                },
                source: Some(source),
            });
        }
        Ok(())
    }

    /// Covers what was found, but for what the session shows by itself, or on the way to that.
    fn cover(&mut self) {
        let covers = std::mem::take(&mut self.covers);
        let shown: Vec<PathBuf> =
            self.entries.iter().map(|entry| PathBuf::from(&entry.mount.target)).collect();
        let is_shown = |place: &Path| shown.iter().any(|target| target.starts_with(place));
        covers.into_mounts(is_shown).for_each(|cover| self.add(cover));
    }

    /// Who commands are in a root of this owner.
    fn disk_identity(&self, uid: u32, gid: u32) -> DiskIdentity {
        if !self.ids.privileged {
            // Their own ids, and all groups of the gateway's user.
            let groups = nix::unistd::getgroups().unwrap_or_default();
            let gids = groups.into_iter().map(nix::unistd::Gid::as_raw).chain([self.ids.command_host_gid]);
            return DiskIdentity { uid: self.ids.command_host_uid, gids: gids.collect() };
        }
        let members = self.ids.groups.iter().filter(|group| group.member).map(|group| group.disk_gid);
        DiskIdentity { uid, gids: members.chain([gid]).collect() }
    }

    /// The links by which the caller names the roots.
    fn add_links(&mut self, ways: &[NamedWay]) {
        let links = named_links::to_make(ways.to_vec(), |place| self.at(place));
        for link in links {
            let Ok(place) = check_path(&link.place) else { continue };
            // Where a command has made something else meanwhile, in what the session's sandboxes share, that stays.
            self.add(Mount {
                kind: Kind::Symlink.into(),
                source: byte_text::from_path(&link.target),
                target: place,
                optional: true,
                ..Mount::default()
            });
        }
    }

    /// What a sandbox has at a place at which the host has a link.
    fn at(&self, place: &Path) -> At {
        let is_below = |entry: &PlannedMount| byte_text::to_path(&entry.mount.target).starts_with(place);
        // The gateway's own sockets and certificates are there.
        if place.starts_with("/run") || self.entries.iter().any(is_below) {
            return At::Own;
        }
        let above =
            self.entries.iter().filter(|entry| place.starts_with(byte_text::to_path(&entry.mount.target)));
        match above.max_by_key(|entry| entry.mount.target.len()).map(|entry| entry.mount.kind()) {
            None | Some(Kind::Tmpfs | Kind::Directory) => At::Nothing,
            Some(Kind::Bind | Kind::Overlay | Kind::Layer) => At::Host,
            Some(_) => At::Own,
        }
    }

    fn add_root(&mut self, root: Root, files: &Filesystem, owner: Owner) -> Result<(), RootfsError> {
        check_path(&root.path)?;
        let stat = nix::sys::stat::fstat(&root.descriptor)
            .map_err(|errno| RootfsError::Root { path: root.path.clone(), cause: errno.into() })?;
        // The host's root may name a directory of any user; commands then act as its owner.
        let (disk_uid, disk_gid) =
            if owner.uid == 0 { (stat.st_uid, stat.st_gid) } else { (owner.uid, owner.gid) };
        let is_foreign = stat.st_uid != disk_uid && root.role != RootRole::ReadOnly;
        if is_foreign && !files.shared_workspaces {
            return Err(RootfsError::Foreign { path: root.path, owner: stat.st_uid });
        }
        let programs = self.read_only_programs.iter();
        let covered: Vec<&Path> = programs.filter_map(|file| file.strip_prefix(&root.path).ok()).collect();
        let commands = self.disk_identity(disk_uid, disk_gid);
        let sockets = self.covers.sockets_below(&root.path);
        let make = if is_foreign { MakeReserved::No } else { MakeReserved::Yes };
        let protected = protected::protected_mounts(&root, files, &covered, &commands, &sockets, make)?;
        let keep_owners = self.ids.privileged && files.shared_workspaces && root.role != RootRole::ReadOnly;
        let whole = protected::ProtectedMount {
            path: root.path,
            descriptor: root.descriptor,
            access: if root.role == RootRole::ReadOnly { Access::Read } else { files.workspace },
        };
        for part in std::iter::once(whole).chain(protected) {
            let place = check_path(&part.path)?;
            self.entries.push(PlannedMount {
                mount: Mount {
                    kind: Kind::Bind.into(),
                    source: place.clone(),
                    target: place,
                    read_only: part.access == Access::Read,
                    from_descriptor: true,
                    idmap: self.ids.privileged,
                    keep_owners,
                    disk_uid,
                    disk_gid,
                    // A mount copied from outside cannot be torn from those below it without privilege.
                    recursive: !self.ids.privileged,
                    ..Mount::default()
                },
                source: Some(part.descriptor),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        policy::profile::PACKAGE_DATABASES,
        sandbox::{roots::governing::Governing, spec::CallerHome},
    };

    const NOTHING: PrivateFiles<'_> = PrivateFiles {
        caller: &CallerHome { git_identity: None, git_configuration: None },
        caches: &[],
        session: &SessionFilesUse::Own,
        resolver: std::net::Ipv4Addr::LOCALHOST,
        named: &[],
    };

    fn ids() -> Identity {
        Identity {
            privileged: true,
            command_uid: 1000,
            command_gid: 1000,
            command_user_name: "agent".into(),
            home: "/home/agent".into(),
            ..Identity::default()
        }
    }

    fn root(path: &str) -> Root {
        Root { path: path.into(), descriptor: std::fs::File::open("/").unwrap().into(), role: RootRole::Work }
    }

    fn try_plan(profile: &Profile, roots: Vec<Root>, ids: &Identity) -> Result<Rootfs, RootfsError> {
        let governing = Governing::default().look(Path::new("/")).unwrap();
        plan(
            profile,
            roots,
            Network::None,
            ids,
            Owner { uid: 0, gid: 0 },
            &NOTHING,
            Governs { view: &governing, programs: &[] },
        )
    }

    fn targets(roots: Vec<Root>) -> Vec<String> {
        let view = try_plan(&Profile::default(), roots, &ids()).unwrap();
        view.mounts.into_iter().map(|mount| mount.target).collect()
    }

    #[test]
    fn what_lies_inside_another_is_mounted_after_it() {
        let targets = targets(vec![root("/tmp/a/b"), root("/tmp/a"), root("/home/agent/project")]);
        let at = |path: &str| targets.iter().position(|target| target == path).unwrap();
        assert!(at("/tmp") < at("/tmp/a") && at("/tmp/a") < at("/tmp/a/b"));
        assert!(at("/home/agent") < at("/home/agent/project"));
        assert!(at("/dev") < at("/dev/shm"));
    }

    #[test]
    fn nothing_of_the_kernels_or_the_hosts_state_is_shown() {
        let shown =
            targets(vec![]).into_iter().filter(|target| !PACKAGE_DATABASES.contains(&target.as_str()));
        for target in shown {
            for hidden in ["/sys", "/run", "/root", "/var/lib", "/var/run"] {
                assert!(!Path::new(&target).starts_with(hidden), "{target}");
            }
        }
    }

    #[test]
    fn a_root_at_the_home_takes_its_place() {
        let targets = targets(vec![root("/home/agent")]);
        assert_eq!(targets.iter().filter(|target| *target == "/home/agent").count(), 1);
    }

    #[test]
    fn an_absent_extra_a_root_id_and_a_garbled_name_are_refused() {
        let try_with = |profile: &Profile, ids: &Identity| try_plan(profile, vec![], ids).unwrap_err();
        let mut profile = Profile::default();
        let garbled = Identity { command_user_name: "a:b\n".into(), ..ids() };
        assert!(matches!(try_with(&profile, &garbled), RootfsError::UserName { .. }));
        assert!(matches!(try_with(&profile, &Identity { command_uid: 0, ..ids() }), RootfsError::RootId));
        profile.filesystem.read_only.push("/no/such".into());
        assert!(matches!(try_with(&profile, &ids()), RootfsError::ProfilePath { .. }));
    }
}
