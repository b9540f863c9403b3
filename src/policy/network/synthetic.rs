//! Addresses that stand for names inside a sandbox, from a network that is assigned to no host (RFC 2544).

use std::net::Ipv4Addr;

use super::name::HostName;

/// The network of these addresses.
pub const NETWORK: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);

/// The length of its prefix.
pub const PREFIX: u8 = 15;

/// Addresses without the first and the last one.
const ADDRESSES: u32 = (1 << (32 - PREFIX as u32)) - 2;

/// Addresses for a name, the best one first. A name has the same ones at any time in every sandbox with this address on its loopback, so
/// that an address that a program has kept stands for no other name while a place is free. Sandboxes that have one loopback in common have
/// different ones.
pub fn candidates(name: &HostName, sandbox: Ipv4Addr) -> impl Iterator<Item = Ipv4Addr> + use<> {
    // FNV-1a. Who finds another name with the same place takes it from a name of the same sandbox.
    let hash = name
        .as_str()
        .bytes()
        .chain(sandbox.octets().into_iter().filter(|_| sandbox != Ipv4Addr::LOCALHOST))
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (0..ADDRESSES).map(move |step| {
        let place = (hash % ADDRESSES + step) % ADDRESSES;
        Ipv4Addr::from(u32::from(NETWORK) + 1 + place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::address;

    #[test]
    fn a_name_has_its_own_addresses_of_a_network_that_no_rule_reaches_unasked() {
        let first = |name| {
            candidates(&HostName::parse(name).unwrap(), Ipv4Addr::LOCALHOST).take(3).collect::<Vec<_>>()
        };
        assert_eq!(first("a.test"), first("A.test."));
        assert_ne!(first("a.test"), first("b.test"));
        for name in ["a.test", "b.test", "c.test", "registry.npmjs.org"] {
            for address in first(name) {
                assert!(address::contains_4(NETWORK, PREFIX.into(), address), "{address}");
                assert_eq!(address::scope(address.into()), address::Scope::Reserved);
            }
        }
        let of = |sandbox: [u8; 4]| candidates(&HostName::parse("a.test").unwrap(), sandbox.into());
        assert_eq!(of([127, 0, 0, 1]).count() as u32, ADDRESSES);
        assert_ne!(of([127, 64, 0, 1]).next(), of([127, 64, 0, 2]).next());
    }
}
