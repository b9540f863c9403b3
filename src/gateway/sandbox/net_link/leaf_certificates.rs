//! The certificates of single hosts that a session's authorities have signed: one for each host, as long as it is good, and not too many.
//!
//! So a connection to a known host waits for no new key. A net process that is taken over has, for the hosts it was sent, keys
//! that other connections of the same session use: it had their plain text before.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::SystemTime,
};

use crate::{certificate::HostCertificate, network::name::HostName};

/// The most of one session. The one that was made the longest ago goes.
const MAX_LEAVES: usize = 256;

/// The certificates of one session.
#[derive(Default)]
pub(super) struct LeafCertificates {
    by_host: BTreeMap<HostName, (Arc<HostCertificate>, SystemTime)>,
    in_order: VecDeque<HostName>,
}

impl LeafCertificates {
    /// The one of a host, if it is good at this time.
    pub(super) fn find(&self, host: &HostName, at: SystemTime) -> Option<Arc<HostCertificate>> {
        self.by_host.get(host).filter(|(_, not_after)| *not_after > at).map(|(leaf, _)| leaf.clone())
    }

    /// Keeps one that is good until then.
    pub(super) fn keep(&mut self, host: &HostName, leaf: Arc<HostCertificate>, not_after: SystemTime) {
        if self.by_host.insert(host.clone(), (leaf, not_after)).is_some() {
            return;
        }
        self.in_order.push_back(host.clone());
        while self.in_order.len() > MAX_LEAVES {
            if let Some(oldest) = self.in_order.pop_front() {
                self.by_host.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_certificate_is_kept_for_its_host_while_it_is_good_and_not_too_many_are() {
        let (now, later) = (SystemTime::now(), SystemTime::now() + Duration::from_secs(60));
        let host = |number: usize| HostName::parse(&format!("h{number}.test")).unwrap();
        let leaf =
            |byte| Arc::new(HostCertificate { certificate: vec![byte], key: Vec::new(), issuer: Vec::new() });
        let mut leaves = LeafCertificates::default();
        leaves.keep(&host(0), leaf(1), later);
        leaves.keep(&host(0), leaf(2), later);
        assert_eq!(leaves.find(&host(0), now).unwrap().certificate, [2]);
        assert!(leaves.find(&host(0), later).is_none() && leaves.find(&host(1), now).is_none());
        for number in 1..=MAX_LEAVES {
            leaves.keep(&host(number), leaf(3), later);
        }
        assert!(leaves.find(&host(0), now).is_none() && leaves.find(&host(1), now).is_some());
        assert_eq!((leaves.by_host.len(), leaves.in_order.len()), (MAX_LEAVES, MAX_LEAVES));
    }
}
