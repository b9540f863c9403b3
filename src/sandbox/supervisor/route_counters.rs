//! Counts what had no route in a network namespace, by the files in which the kernel does: proc_net(5).
//!
//! connect(2) and sendto(2) to an address without a route fail with `ENETUNREACH`, and the kernel counts each, of TCP and of UDP, of IPv4
//! and of IPv6.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use crate::sys::file;

/// The files in which the kernel counts what had no route, of one network namespace: that of the process that opened them.
#[derive(Debug)]
pub struct RouteCounters {
    ipv4: OwnedFd,
    ipv6: Option<OwnedFd>,
}

impl RouteCounters {
    /// Opens those of the calling process. `None` without procfs: then nothing is counted.
    pub fn open() -> Option<Self> {
        let open = |path: &str| file::open_read(Path::new(path)).ok();
        // A kernel without IPv6 has no second one.
        Some(Self { ipv4: open("/proc/self/net/snmp")?, ipv6: open("/proc/self/net/snmp6") })
    }

    /// The files.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.ipv4.as_fd()).chain(self.ipv6.iter().map(AsFd::as_fd))
    }

    /// Packets and connections since the namespace was made: 0 if they cannot be read.
    pub fn read(&self) -> u64 {
        let mut bytes = [0; FILE_MAX_BYTES];
        let mut text_of = |file: &OwnedFd| {
            let count = nix::sys::uio::pread(file, &mut bytes, 0).unwrap_or(0);
            String::from_utf8_lossy(&bytes[..count]).into_owned()
        };
        let ipv4 = of_ipv4(&text_of(&self.ipv4)).unwrap_or(0);
        let ipv6 = self.ipv6.as_ref().and_then(|file| of_ipv6(&text_of(file))).unwrap_or(0);
        ipv4.saturating_add(ipv6)
    }
}

/// Both counters are in the first part of their files.
const FILE_MAX_BYTES: usize = 4_096;

/// A line of names, and one of values.
fn of_ipv4(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|name| name == "OutNoRoutes")?;
    values.split_whitespace().nth(at)?.parse().ok()
}

/// A line for each counter.
fn of_ipv6(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Ip6OutNoRoutes"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_are_found_by_their_names() {
        let ipv4 =
            "Ip: Forwarding OutDiscards OutNoRoutes ReasmTimeout\nIp: 1 3 7 0\nIcmp: InMsgs\nIcmp: 9\n";
        assert_eq!(of_ipv4(ipv4), Some(7));
        assert_eq!(of_ipv4("Ip: Forwarding\nIp: 1\n"), None);
        assert_eq!(of_ipv4("Ip: OutNoRoutes\n"), None);
        assert_eq!(of_ipv6("Ip6OutRequests  \t5\nIp6OutNoRoutes  \t12\nIp6InMsgs 1\n"), Some(12));
        assert_eq!(of_ipv6("Ip6OutRequests 5\n"), None);
    }

    #[test]
    fn those_of_this_process_can_be_read() {
        let counters = RouteCounters::open().unwrap();
        assert!(of_ipv4(&std::fs::read_to_string("/proc/self/net/snmp").unwrap()).is_some());
        assert!(counters.read() < u64::MAX);
    }
}
