//! The program `provost-sandbox`, of which the processes of sandboxes are: where it is, whether it may be trusted, how it is started.
//!
//! It is installed next to `provost`, or in the directory `libexec` next to that one's. Who starts sandboxes opens it once and executes that
//! file from then on: what an upgrade puts in its place belongs to the next gateway. Each process compares its build with that of who starts
//! it, before all else.

use std::{
    fs::{File, Metadata, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::{
            fs::{MetadataExt, OpenOptionsExt},
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Its file's name, and `argv[0]` where it only says whether it is of this build.
pub const NAME: &str = "provost-sandbox";

/// The version of Provost, and the number of what the two programs say to each other in it. The number changes with that.
pub const BUILD: &str = concat!(env!("CARGO_PKG_VERSION"), "-1");

/// The exit status of a process that a program of another build has started.
pub const EXIT_OTHER_BUILD: i32 = 78;

const WRITABLE: u32 = 0o022;

/// Why sandboxes cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// Nobody knows where to look.
    #[error("cannot find the file of this program, next to which {NAME} would be")]
    OwnFile(#[source] io::Error),
    /// It is not there.
    #[error(
        "{NAME} is neither in {} nor in {}: it starts every sandbox, and is installed with provost",
        crate::printable::path(own_directory),
        crate::printable::path(libexec)
    )]
    Missing {
        /// The directory of this program.
        own_directory: PathBuf,
        /// The other one.
        libexec: PathBuf,
    },
    /// It cannot be opened.
    #[error("cannot open {}, which starts every sandbox", crate::printable::path(path))]
    Open {
        /// Its name.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It is no program.
    #[error("{} starts every sandbox, and is no file that can be executed", crate::printable::path(.0))]
    NoProgram(PathBuf),
    /// A user can change it who cannot change this program.
    #[error(
        "{} starts every sandbox, and others than who can change provost can change it (uid {owner}, mode {mode:04o})",
        crate::printable::path(path)
    )]
    Changeable {
        /// It, or its directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its permission bits.
        mode: u32,
    },
    /// It is of another build.
    #[error(
        "{} is of another build than this program ({BUILD}): the two are installed together",
        crate::printable::path(.0)
    )]
    OtherBuild(PathBuf),
    /// It does not run.
    #[error("cannot run {}, which starts every sandbox", crate::printable::path(path))]
    Run {
        /// Its name.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// The file that is executed for each process of a sandbox.
#[derive(Debug)]
pub struct SandboxProgram {
    path: PathBuf,
    /// What is executed: the open file, by its name in /proc/self/fd, or a path.
    executed: PathBuf,
    /// Another one that is made would be found before it.
    can_be_preceded: bool,
    _file: Option<File>,
}

impl SandboxProgram {
    /// Opens the one that belongs to the running program.
    ///
    /// # Errors
    /// [`ProgramError`], of all that can be told without running it.
    pub fn find() -> Result<Self, ProgramError> {
        // The kernel's name of it: without links, and with " (deleted)" behind it where another is in its place. The directory is the same.
        let own = std::fs::read_link("/proc/self/exe").map_err(ProgramError::OwnFile)?;
        let running = std::fs::metadata("/proc/self/exe").map_err(ProgramError::OwnFile)?;
        let own_directory = own.parent().unwrap_or(Path::new("/"));
        let libexec = own_directory.parent().unwrap_or(Path::new("/")).join("libexec");
        for directory in [own_directory, &libexec] {
            match Self::open_checked(&running, directory.join(NAME)) {
                Err(ProgramError::Open { source, .. }) if is_missing(&source) => {}
                found if directory == own_directory => return found,
                found => {
                    check_owner(&metadata(own_directory)?, &metadata(directory)?, directory)?;
                    return found.map(|found| Self { can_be_preceded: true, ..found });
                }
            }
        }
        Err(ProgramError::Missing { own_directory: own_directory.to_owned(), libexec })
    }

    /// Opens the one of this name, for a program that it is not installed with.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn open(path: &Path) -> Result<Self, ProgramError> {
        let running = std::fs::metadata("/proc/self/exe").map_err(ProgramError::OwnFile)?;
        Self::open_checked(&running, path.to_owned())
    }

    fn open_checked(running: &Metadata, path: PathBuf) -> Result<Self, ProgramError> {
        let failed = |source| ProgramError::Open { path: path.clone(), source };
        // Its descriptor reads nothing, so that a program that may only be executed will do.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(&path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() || found.mode() & 0o111 == 0 {
            return Err(ProgramError::NoProgram(path));
        }
        check_owner(running, &found, &path)?;
        let executed = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
        Ok(Self { path, executed, can_be_preceded: false, _file: Some(file) })
    }

    /// Executes what has this name when a process is started, and trusts it.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self { executed: path.clone(), path, can_be_preceded: false, _file: None }
    }

    /// Its name.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a file that is made where the search begins, or that takes the place of a link, would be found instead of it.
    #[must_use]
    pub fn can_be_preceded(&self) -> bool {
        self.can_be_preceded || !std::fs::symlink_metadata(&self.path).is_ok_and(|found| found.is_file())
    }

    /// What starts a process of it. `name`: which one, its `argv[0]`.
    #[must_use]
    pub fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.executed);
        command.arg0(name).arg(BUILD);
        command
    }

    /// Runs it once, to see that it is of this build.
    ///
    /// # Errors
    /// [`ProgramError::OtherBuild`], [`ProgramError::Run`].
    pub fn check_build(&self) -> Result<(), ProgramError> {
        let failed = |source| ProgramError::Run { path: self.path.clone(), source };
        let mut command = self.command(NAME);
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = command.status().map_err(failed)?;
        match status.code() {
            Some(0) => Ok(()),
            Some(EXIT_OTHER_BUILD) => Err(ProgramError::OtherBuild(self.path.clone())),
            Some(_) | None => Err(failed(io::Error::other(status.to_string()))),
        }
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn metadata(path: &Path) -> Result<Metadata, ProgramError> {
    std::fs::metadata(path).map_err(|source| ProgramError::Open { path: path.to_owned(), source })
}

/// Refuses what can be changed by a user who cannot change the thing that is trusted already.
fn check_owner(trusted: &Metadata, found: &Metadata, path: &Path) -> Result<(), ProgramError> {
    let own_uid = nix::unistd::geteuid().as_raw();
    let is_owner_trusted = [0, own_uid, trusted.uid()].contains(&found.uid());
    let more = found.mode() & WRITABLE & !trusted.mode();
    let other_group = if found.gid() == trusted.gid() { 0 } else { found.mode() & 0o020 };
    if is_owner_trusted && more | other_group == 0 {
        return Ok(());
    }
    Err(ProgramError::Changeable { path: path.to_owned(), owner: found.uid(), mode: found.mode() & 0o7777 })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn what_others_can_change_is_refused_unless_they_can_change_the_program_too() {
        let place = tempfile::tempdir().unwrap();
        let file = |name: &str, mode| {
            let path = place.path().join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            fs::metadata(path).unwrap()
        };
        let is_refused = |trusted: u32, found: u32| {
            let (trusted, found) = (file("trusted", trusted), file("found", found));
            check_owner(&trusted, &found, place.path()).is_err()
        };
        for (trusted, found, expected) in [
            (0o755, 0o755, false),
            (0o755, 0o711, false),
            (0o755, 0o775, true),
            (0o755, 0o757, true),
            (0o775, 0o775, false),
            (0o775, 0o777, true),
            (0o777, 0o777, false),
        ] {
            assert_eq!(is_refused(trusted, found), expected, "{trusted:o} {found:o}");
        }
    }
}
