//! What an address reaches: the public network, or something near that a name must not lead to; and addresses that stand for names inside a
//! sandbox, from a network that is assigned to no host (RFC 2544).
//!
//! Addresses that carry another one in them (mapped, compatible, NAT64, 6to4) count as the one that they carry.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::name::HostName;

/// Where an address leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// To the public network.
    Public,
    /// To the host itself.
    Loopback,
    /// To a private network.
    Private,
    /// To the link; 169.254.169.254 is where clouds hand out credentials.
    LinkLocal,
    /// To a service of the cloud that hosts the machine.
    Metadata,
    /// To many.
    Multicast,
    /// To nothing that is assigned to a host.
    Reserved,
}

impl Scope {
    /// For reasons and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::LinkLocal => "link-local",
            Self::Metadata => "cloud metadata",
            Self::Multicast => "multicast",
            Self::Reserved => "reserved",
        }
    }
}

/// A network, as address and length of its prefix.
type Network4 = ([u8; 4], u32);
type Network6 = ([u16; 8], u32);

/// IANA's special-purpose registry, and one public address that a cloud uses for itself.
const NEAR_4: [(Network4, Scope); 18] = [
    (([168, 63, 129, 16], 32), Scope::Metadata),
    (([100, 100, 100, 200], 32), Scope::Metadata),
    (([0, 0, 0, 0], 8), Scope::Reserved),
    (([10, 0, 0, 0], 8), Scope::Private),
    (([100, 64, 0, 0], 10), Scope::Private),
    (([127, 0, 0, 0], 8), Scope::Loopback),
    (([169, 254, 0, 0], 16), Scope::LinkLocal),
    (([172, 16, 0, 0], 12), Scope::Private),
    (([192, 0, 0, 0], 24), Scope::Reserved),
    (([192, 0, 2, 0], 24), Scope::Reserved),
    (([192, 88, 99, 0], 24), Scope::Reserved),
    (([192, 168, 0, 0], 16), Scope::Private),
    (([198, 18, 0, 0], 15), Scope::Reserved),
    (([198, 51, 100, 0], 24), Scope::Reserved),
    (([203, 0, 113, 0], 24), Scope::Reserved),
    (([224, 0, 0, 0], 4), Scope::Multicast),
    (([240, 0, 0, 0], 4), Scope::Reserved),
    (([192, 31, 196, 0], 24), Scope::Reserved),
];

/// The same of IPv6; outside 2000::/3 nothing is public.
const NEAR_6: [(Network6, Scope); 9] = [
    (([0, 0, 0, 0, 0, 0, 0, 1], 128), Scope::Loopback),
    (([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32), Scope::Metadata),
    (([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), Scope::Private),
    (([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), Scope::Private),
    (([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), Scope::LinkLocal),
    (([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), Scope::Multicast),
    // Protocol assignments, Teredo among them.
    (([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), Scope::Reserved),
    (([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), Scope::Reserved),
    (([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), Scope::Reserved),
];

const GLOBAL_UNICAST: Network6 = ([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);
const NAT64: Network6 = ([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);
const SIX_TO_FOUR: Network6 = ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16);
const COMPATIBLE: Network6 = ([0, 0, 0, 0, 0, 0, 0, 0], 96);

/// The address that counts: the one that another one carries, or the address itself.
pub fn effective(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(six) => carried(six).map_or(address, IpAddr::V4),
    }
}

/// The address to dial: IPv4 where it was written as a mapped one.
pub fn dialled(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Where an address leads.
pub fn scope(address: IpAddr) -> Scope {
    match effective(address) {
        IpAddr::V4(four) => {
            let near = NEAR_4
                .iter()
                .find(|((network, prefix), _)| contains_4(Ipv4Addr::from(*network), *prefix, four));
            near.map_or(Scope::Public, |(_, scope)| *scope)
        }
        IpAddr::V6(six) => {
            let near = NEAR_6.iter().find(|(network, _)| contains_6(*network, six));
            match near {
                Some((_, scope)) => *scope,
                None if contains_6(GLOBAL_UNICAST, six) => Scope::Public,
                None => Scope::Reserved,
            }
        }
    }
}

fn carried(six: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = six.segments();
    let pair = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    if let Some(four) = six.to_ipv4_mapped() {
        return Some(four);
    }
    if contains_6(SIX_TO_FOUR, six) {
        return Some(pair(segments[1], segments[2]));
    }
    // ::1 and :: are addresses of their own.
    let is_compatible = contains_6(COMPATIBLE, six) && segments[6] != 0;
    (contains_6(NAT64, six) || is_compatible).then(|| pair(segments[6], segments[7]))
}

pub(super) fn contains_4(network: Ipv4Addr, prefix: u32, address: Ipv4Addr) -> bool {
    let mask = u32::MAX.checked_shl(32 - prefix.min(32)).unwrap_or(0);
    u32::from(network) & mask == u32::from(address) & mask
}

fn contains_6((network, prefix): Network6, address: Ipv6Addr) -> bool {
    contains_v6(Ipv6Addr::from(network), prefix, address)
}

pub(super) fn contains_v6(network: Ipv6Addr, prefix: u32, address: Ipv6Addr) -> bool {
    let mask = u128::MAX.checked_shl(128 - prefix.min(128)).unwrap_or(0);
    u128::from(network) & mask == u128::from(address) & mask
}

/// The network of the addresses that stand for names.
pub const SYNTHETIC_NETWORK: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);

/// The length of its prefix.
pub const SYNTHETIC_PREFIX: u8 = 15;

/// How many addresses the network has without the first and the last one.
const SYNTHETIC_ADDRESSES: u32 = (1 << (32 - SYNTHETIC_PREFIX as u32)) - 2;

/// Addresses for a name, the best one first. A name has the same ones at any time in every sandbox with this address on its loopback, so
/// that an address that a program has kept stands for no other name while a place is free. Sandboxes that have one loopback in common have
/// different ones.
pub fn synthetic_candidates(name: &HostName, sandbox: Ipv4Addr) -> impl Iterator<Item = Ipv4Addr> + use<> {
    // FNV-1a. Who finds another name with the same place takes it from a name of the same sandbox.
    let hash = name
        .as_str()
        .bytes()
        .chain(sandbox.octets().into_iter().filter(|_| sandbox != Ipv4Addr::LOCALHOST))
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (0..SYNTHETIC_ADDRESSES).map(move |step| {
        let place = (hash % SYNTHETIC_ADDRESSES + step) % SYNTHETIC_ADDRESSES;
        Ipv4Addr::from(u32::from(SYNTHETIC_NETWORK) + 1 + place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_is_known_in_every_form() {
        for (text, expected) in [
            ("93.184.216.34", Scope::Public),
            ("2606:4700::1111", Scope::Public),
            ("64:ff9b::5db8:d822", Scope::Public),
            ("2002:5db8:d822::1", Scope::Public),
            ("127.0.0.1", Scope::Loopback),
            ("127.255.0.9", Scope::Loopback),
            ("::1", Scope::Loopback),
            ("::ffff:127.0.0.1", Scope::Loopback),
            ("::127.0.0.1", Scope::Loopback),
            ("64:ff9b::7f00:1", Scope::Loopback),
            ("2002:7f00:1::", Scope::Loopback),
            ("10.1.2.3", Scope::Private),
            ("172.31.255.255", Scope::Private),
            ("172.32.0.0", Scope::Public),
            ("192.168.0.1", Scope::Private),
            ("100.64.0.1", Scope::Private),
            ("fd12::1", Scope::Private),
            ("2002:a01:203::1", Scope::Private),
            ("169.254.169.254", Scope::LinkLocal),
            ("64:ff9b::a9fe:a9fe", Scope::LinkLocal),
            ("fe80::1", Scope::LinkLocal),
            ("fd00:ec2::254", Scope::Metadata),
            ("168.63.129.16", Scope::Metadata),
            ("100.100.100.200", Scope::Metadata),
            ("224.0.0.1", Scope::Multicast),
            ("ff02::1", Scope::Multicast),
            ("0.0.0.0", Scope::Reserved),
            ("::", Scope::Reserved),
            ("255.255.255.255", Scope::Reserved),
            ("198.18.0.1", Scope::Reserved),
            ("2001:0:1::1", Scope::Reserved),
            ("2001:db8::1", Scope::Reserved),
            ("64:ff9b:1::7f00:1", Scope::Reserved),
            ("4000::1", Scope::Reserved),
        ] {
            assert_eq!(scope(text.parse().unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn a_mapped_address_is_dialled_as_what_it_is() {
        let mapped: IpAddr = "::ffff:93.184.216.34".parse().unwrap();
        assert_eq!(dialled(mapped).to_string(), "93.184.216.34");
        assert_eq!(effective(mapped).to_string(), "93.184.216.34");
    }

    #[test]
    fn a_name_has_its_own_addresses_of_a_network_that_no_rule_reaches_unasked() {
        let first = |name| {
            synthetic_candidates(&HostName::parse(name).unwrap(), Ipv4Addr::LOCALHOST)
                .take(3)
                .collect::<Vec<_>>()
        };
        assert_eq!(first("a.test"), first("A.test."));
        assert_ne!(first("a.test"), first("b.test"));
        for name in ["a.test", "b.test", "c.test", "registry.npmjs.org"] {
            for address in first(name) {
                assert!(contains_4(SYNTHETIC_NETWORK, SYNTHETIC_PREFIX.into(), address), "{address}");
                assert_eq!(scope(address.into()), Scope::Reserved);
            }
        }
        let of = |sandbox: [u8; 4]| synthetic_candidates(&HostName::parse("a.test").unwrap(), sandbox.into());
        assert_eq!(of([127, 0, 0, 1]).count() as u32, SYNTHETIC_ADDRESSES);
        assert_ne!(of([127, 64, 0, 1]).next(), of([127, 64, 0, 2]).next());
    }
}
