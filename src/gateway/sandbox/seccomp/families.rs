//! Address families and protocols that sockets may have. All others are refused: with `EAFNOSUPPORT` and
//! `EPROTONOSUPPORT`, which programs know from kernels without them.

/// An address family that is allowed.
#[derive(Debug, Clone, Copy)]
pub(super) struct AddressFamily {
    pub(super) number: u32,
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers and for the page"))]
    pub(super) name: &'static str,
    /// The protocols that are allowed; empty: all.
    pub(super) protocols: &'static [Protocol],
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers and for the page"))]
    pub(super) reason: &'static str,
}

/// A protocol of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Protocol {
    pub(super) number: u32,
    pub(super) name: &'static str,
}

const fn protocol(number: u32, name: &'static str) -> Protocol {
    Protocol { number, name }
}

/// All of them. What is not here is a part of the kernel that nobody needs in a sandbox; AF_VSOCK reaches the hypervisor's
/// host from any network namespace.
pub(super) const FAMILIES: &[AddressFamily] = &[
    AddressFamily {
        number: 1,
        name: "AF_UNIX",
        protocols: &[],
        reason: "processes of the sandbox among themselves",
    },
    AddressFamily {
        number: 2,
        name: "AF_INET",
        protocols: INET,
        reason: "the network namespace holds it; other protocols (SCTP, DCCP, MPTCP, L2TP, SMC) are modules that a socket loads",
    },
    AddressFamily { number: 10, name: "AF_INET6", protocols: INET, reason: "as AF_INET" },
    AddressFamily {
        number: 16,
        name: "AF_NETLINK",
        protocols: &[
            // getifaddrs(3) and ip(8), ss(8), libudev.
            protocol(0, "ROUTE"),
            protocol(4, "SOCK_DIAG"),
            protocol(15, "KOBJECT_UEVENT"),
        ],
        reason: "programs list interfaces and sockets by it; other protocols are settings of the kernel",
    },
];

const INET: &[Protocol] = &[
    // Whatever fits the type.
    protocol(0, "IP"),
    protocol(1, "ICMP"),
    protocol(6, "TCP"),
    protocol(17, "UDP"),
    protocol(58, "ICMPV6"),
];
