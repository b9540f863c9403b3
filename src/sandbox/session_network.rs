//! The network namespace that sandboxes of a session have in common where each of them runs one command: a server in one and its client in
//! another one meet on its loopback.
//!
//! The first launch makes it. The gateway holds it, so that it outlives any one sandbox, and not the gateway.

use std::{
    net::Ipv4Addr,
    os::fd::OwnedFd,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

/// Descriptors that one of them takes: of its namespace, and of the user namespace to which it belongs.
pub const DESCRIPTORS: u64 = 2;

/// A network namespace, or the place for one.
#[derive(Debug, Default)]
pub struct SessionNetwork {
    made: OnceLock<Arc<[OwnedFd]>>,
    launches: AtomicU32,
}

/// What one launch has of it.
#[derive(Debug)]
pub(in crate::sandbox) struct LaunchShare {
    network: Arc<SessionNetwork>,
    /// Empty: this launch makes it.
    pub(in crate::sandbox) given: Arc<[OwnedFd]>,
    /// Where this sandbox's names are refused. Each has its own, so that it is known which command asked.
    pub(in crate::sandbox) resolver: Ipv4Addr,
}

impl SessionNetwork {
    /// For the next launch.
    pub(in crate::sandbox) fn share(self: &Arc<Self>) -> LaunchShare {
        let number = self.launches.fetch_add(1, Ordering::Relaxed);
        let given = self.made.get().cloned().unwrap_or_else(|| Arc::new([]));
        LaunchShare { network: self.clone(), given, resolver: resolver_address(number) }
    }
}

impl LaunchShare {
    /// The launch has made it.
    pub(in crate::sandbox) fn made(self, descriptors: Vec<OwnedFd>) {
        if !descriptors.is_empty() {
            // Launches of a session take turns, so no other one has made it meanwhile; its own would serve its sandbox alone.
            let _ = self.network.made.set(descriptors.into());
        }
    }
}

/// One of 2^16 addresses of the loopback that programs do not use.
fn resolver_address(number: u32) -> Ipv4Addr {
    let [_, _, high, low] = number.to_be_bytes();
    Ipv4Addr::new(127, 53, high, low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_first_launch_makes_the_next_one_is_given() {
        let network = Arc::new(SessionNetwork::default());
        let first = network.share();
        assert!(first.given.is_empty());
        let (one, other) = nix::unistd::pipe().unwrap();
        first.made(vec![one, other]);
        let second = network.share();
        assert_eq!(second.given.len(), 2);
        assert_eq!(second.resolver, Ipv4Addr::new(127, 53, 0, 1));
        assert_eq!(resolver_address(65_536), resolver_address(0));
        assert_eq!(resolver_address(300), Ipv4Addr::new(127, 53, 1, 44));
    }
}
