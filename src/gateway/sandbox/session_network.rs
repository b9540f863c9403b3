//! The network namespace that sandboxes of a session have in common where each of them runs one command: a server in one and its client in
//! another one meet on its loopback.
//!
//! The first launch makes it. The gateway holds it, so that it outlives any one sandbox, and so does each supervisor, so that the next gateway
//! finds it. Each sandbox has an address of its own on it: one at a time the usual one, which programs may know without being told.

use std::{
    net::Ipv4Addr,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
};

use ulid::Ulid;

/// Descriptors that one of them takes: of its namespace, and of the user namespace to which it belongs.
pub(crate) const DESCRIPTORS: u64 = 2;

/// A network namespace, or the place for one.
#[derive(Debug, Default)]
pub struct SessionNetwork {
    made: OnceLock<Arc<[OwnedFd]>>,
    usual_address: Mutex<UsualAddress>,
}

/// Who has 127.0.0.1.
#[derive(Debug)]
enum UsualAddress {
    /// A sandbox of this gateway, as long as it holds it.
    Held(Weak<OwnAddress>),
    /// A sandbox of another gateway, or a command. It is not asked for again.
    Others,
}

impl Default for UsualAddress {
    fn default() -> Self {
        Self::Held(Weak::new())
    }
}

/// The address of a sandbox on the loopback, at which its proxies listen, and its names are answered or refused: so it is known which command
/// asked. No other sandbox has it while this is there.
#[derive(Debug)]
pub struct OwnAddress(pub(in crate::sandbox) Ipv4Addr);

/// What one launch has of it.
#[derive(Debug)]
pub(in crate::sandbox) struct LaunchShare {
    network: Arc<SessionNetwork>,
    /// Empty: this launch makes it.
    pub(in crate::sandbox) given: Arc<[OwnedFd]>,
    /// This sandbox's.
    pub(in crate::sandbox) own_address: Arc<OwnAddress>,
}

impl SessionNetwork {
    /// For the next launch.
    pub(in crate::sandbox) fn share(self: &Arc<Self>) -> LaunchShare {
        let given = self.made.get().cloned().unwrap_or_else(|| Arc::new([]));
        LaunchShare { network: self.clone(), given, own_address: self.next_address() }
    }

    /// Whether there is one.
    pub fn is_made(&self) -> bool {
        self.made.get().is_some()
    }

    /// A sandbox of an earlier gateway has it.
    pub fn found(&self, descriptors: Vec<OwnedFd>) {
        if !descriptors.is_empty() {
            self.usual_address_is_others();
            // The newest sandbox is asked first; what others have is let go.
            let _ = self.made.set(descriptors.into());
        }
    }

    fn next_address(&self) -> Arc<OwnAddress> {
        let mut usual = self.lock_usual_address();
        match &*usual {
            UsualAddress::Held(holder) if holder.upgrade().is_none() => {
                let own = Arc::new(OwnAddress(Ipv4Addr::LOCALHOST));
                *usual = UsualAddress::Held(Arc::downgrade(&own));
                own
            }
            UsualAddress::Held(_) | UsualAddress::Others => {
                Arc::new(OwnAddress(further_address(Ulid::generate().random())))
            }
        }
    }

    fn usual_address_is_others(&self) {
        *self.lock_usual_address() = UsualAddress::Others;
    }

    fn lock_usual_address(&self) -> std::sync::MutexGuard<'_, UsualAddress> {
        self.usual_address.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// The launch could not listen: a command may have its address.
    pub(in crate::sandbox) fn cannot_listen(&self) {
        self.network.usual_address_is_others();
    }
}

/// One of the 2^22 addresses of 127.64.0.0/10, which programs do not use. Those of sandboxes that an earlier gateway has launched are not
/// known here, and a command can hold some: at random none of them is met. A launch that meets one fails, and is tried once more.
fn further_address(random: u128) -> Ipv4Addr {
    const FIRST: u32 = u32::from_be_bytes([127, 64, 0, 0]);
    const COUNT: u32 = 1 << 22;
    // The remainder has so few bits.
    Ipv4Addr::from(FIRST + (random % u128::from(COUNT)) as u32)
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
        assert!(network.is_made());
        assert_eq!(network.share().given.len(), 2);
    }

    #[test]
    fn one_sandbox_at_a_time_has_the_usual_address_and_each_has_its_own() {
        let network = Arc::new(SessionNetwork::default());
        let (first, second, third) = (network.share(), network.share(), network.share());
        assert_eq!(first.own_address.0, Ipv4Addr::LOCALHOST);
        assert_ne!(second.own_address.0, third.own_address.0);
        assert!([&second, &third].iter().all(|share| share.own_address.0 != Ipv4Addr::LOCALHOST));
        drop(first);
        let next = network.share();
        assert_eq!(next.own_address.0, Ipv4Addr::LOCALHOST);
        next.cannot_listen();
        drop(next);
        assert_ne!(network.share().own_address.0, Ipv4Addr::LOCALHOST);
    }

    #[test]
    fn the_usual_address_of_a_network_that_was_found_is_anothers() {
        let network = Arc::new(SessionNetwork::default());
        let (one, other) = nix::unistd::pipe().unwrap();
        network.found(vec![one, other]);
        let share = network.share();
        assert_eq!(share.given.len(), 2);
        assert_ne!(share.own_address.0, Ipv4Addr::LOCALHOST);
    }

    #[test]
    fn further_addresses_are_of_one_part_of_the_loopback() {
        assert_eq!(further_address(0), Ipv4Addr::new(127, 64, 0, 0));
        assert_eq!(further_address((1 << 22) - 1), Ipv4Addr::new(127, 127, 255, 255));
        assert_eq!(further_address(1 << 22), further_address(0));
    }
}
