//! Processes identified across restarts of the gateway: by pid, start time and boot.
//!
//! Reads /proc only (proc_pid_stat(5), pidfd_open(2)). A process that is not visible from here is reported as such,
//! never guessed.

use std::{
    fs, io,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    str::FromStr,
};

use super::pidfd::Pidfd;

/// Identifies a process among those of all boots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// In our pid namespace.
    pub pid: i32,
    /// Clock ticks from boot to its start.
    pub start_ticks: u64,
    /// The boot that it runs in.
    pub boot_id: String,
}

impl ProcessIdentity {
    /// The identity of the process of a pidfd. `None`: it has ended, or is outside of our pid namespace.
    ///
    /// # Errors
    /// When /proc cannot be read.
    pub fn of(process: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        let Some(pid) = namespaced_pids(process)?.first().copied().filter(|pid| *pid > 0) else {
            return Ok(None);
        };
        let Some(start_ticks) = start_ticks(pid)? else { return Ok(None) };
        // The number may have been another's when its start was read: then the descriptor has none any more.
        let is_still_its = namespaced_pids(process)?.first() == Some(&pid);
        Ok(is_still_its.then_some(Self { pid, start_ticks, boot_id: boot_id()? }))
    }

    /// Opens the process again. `None`: it has ended.
    ///
    /// # Errors
    /// When /proc cannot be read, or there are no descriptors left.
    pub fn open(&self) -> io::Result<Option<OwnedFd>> {
        if self.boot_id != boot_id()? {
            return Ok(None);
        }
        let process = match Pidfd::open(self.pid) {
            Ok(process) => OwnedFd::from(process),
            Err(nix::errno::Errno::ESRCH | nix::errno::Errno::EINVAL) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        // The descriptor refers to the process that has the number now. If the start time that is read after that is
        // the right one, it is the right process: a process that has ended never gets its number back.
        let is_it = start_ticks(self.pid)? == Some(self.start_ticks);
        Ok(is_it.then_some(process))
    }
}

/// Whether the process of a pidfd is the init process of a pid namespace below ours. `None`: it has ended.
///
/// # Errors
/// When /proc cannot be read.
pub fn is_namespace_init(process: BorrowedFd<'_>) -> io::Result<Option<bool>> {
    let pids = namespaced_pids(process)?;
    match pids.first() {
        None => Ok(None),
        Some(pid) if *pid < 0 => Ok(None),
        Some(_) => Ok(Some(pids.len() > 1 && pids.last() == Some(&1))),
    }
}

/// The real user id under which the process of a pidfd runs, in our user namespace. `None`: it has ended, or is outside of our
/// pid namespace.
///
/// # Errors
/// When /proc cannot be read.
pub fn real_uid(process: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let Some(pid) = namespaced_pids(process)?.first().copied().filter(|pid| *pid > 0) else {
        return Ok(None);
    };
    let Some(uid) = real_uid_of(pid)? else { return Ok(None) };
    // As above: the number may have been another's.
    let is_still_its = namespaced_pids(process)?.first() == Some(&pid);
    Ok(is_still_its.then_some(uid))
}

/// The real user id of the process that has the number now, in our user namespace. `None` when there is no such process.
///
/// # Errors
/// When /proc cannot be read.
pub fn real_uid_of(pid: i32) -> io::Result<Option<u32>> {
    let Some(status) = read_of_process(pid, "status")? else { return Ok(None) };
    let uid = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .and_then(|uids| uids.split_whitespace().next());
    uid.and_then(|uid| uid.parse().ok()).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The id of this boot of the host.
///
/// # Errors
/// When /proc cannot be read.
pub fn boot_id() -> io::Result<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_owned())
}

/// A process's number, in our pid namespace, while it lives.
///
/// # Errors
/// When it has ended, is not below our namespace, or /proc cannot be read.
pub fn pid_of(process: BorrowedFd<'_>) -> io::Result<u32> {
    let pid = namespaced_pids(process)?.first().copied().filter(|pid| *pid > 0);
    pid.and_then(|pid| u32::try_from(pid).ok()).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The process's numbers, from our pid namespace inwards; -1 when it has ended, 0 when it is not below ours.
fn namespaced_pids(process: BorrowedFd<'_>) -> io::Result<Vec<i32>> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd()))?;
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let numbers = line("NSpid:").or_else(|| line("Pid:"));
    let numbers = numbers.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no pidfd"))?;
    Ok(numbers.split_whitespace().filter_map(|number| number.parse().ok()).collect())
}

/// The parent of a process, in our pid namespace; 0 when it is outside of it. `None` when there is no such process.
///
/// # Errors
/// When /proc cannot be read.
pub fn parent_of(pid: i32) -> io::Result<Option<i32>> {
    stat_field(pid, 4)
}

/// Clock ticks from boot to the start of a process. `None` when there is no such process.
///
/// # Errors
/// When /proc cannot be read.
pub fn start_ticks(pid: i32) -> io::Result<Option<u64>> {
    stat_field(pid, 22)
}

/// A field behind the name, by its number in proc_pid_stat(5). `None` when there is no such process.
fn stat_field<T: FromStr>(pid: i32, number: usize) -> io::Result<Option<T>> {
    let Some(text) = read_of_process(pid, "stat")? else { return Ok(None) };
    // The name, in parentheses, may hold anything. What follows it is field 3.
    let after_name = text.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let field = after_name.split_whitespace().nth(number - 3).and_then(|field| field.parse().ok());
    field.map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// A file of /proc/PID. `None` when there is no such process.
fn read_of_process(pid: i32, name: &str) -> io::Result<Option<String>> {
    match fs::read_to_string(format!("/proc/{pid}/{name}")) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_process_is_found_again_for_as_long_as_it_lives() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let held = OwnedFd::from(Pidfd::open(child.id().cast_signed()).unwrap());
        let mark = ProcessIdentity::of(held.as_fd()).unwrap().unwrap();
        assert_eq!(mark.pid, child.id().cast_signed());
        assert!(mark.open().unwrap().is_some());
        let another = ProcessIdentity { start_ticks: mark.start_ticks + 1, ..mark.clone() };
        assert!(another.open().unwrap().is_none(), "another process of the same number");
        let earlier = ProcessIdentity { boot_id: "another".into(), ..mark.clone() };
        assert!(earlier.open().unwrap().is_none(), "a process of another boot");
        assert_eq!(is_namespace_init(held.as_fd()).unwrap(), Some(false));
        assert_eq!(real_uid(held.as_fd()).unwrap(), Some(nix::unistd::getuid().as_raw()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(mark.open().unwrap().is_none());
        assert!(ProcessIdentity::of(held.as_fd()).unwrap().is_none());
        assert_eq!(is_namespace_init(held.as_fd()).unwrap(), None);
        assert_eq!(real_uid(held.as_fd()).unwrap(), None);
    }
}
