//! The files by which programs in a sandbox find names: nsswitch.conf(5) and resolv.conf(5).

use std::net::Ipv4Addr;

/// nsswitch.conf(5) of a sandbox with a network of its own: files, and the resolver on its loopback, which answers or refuses at once.
/// Programs that ask a server that cannot be reached try again for a minute.
pub(super) fn name_sources() -> String {
    let host = std::fs::read_to_string("/etc/nsswitch.conf").unwrap_or_default();
    let hosts = host.lines().find_map(|line| line.trim_start().strip_prefix("hosts:")).unwrap_or_default();
    // A module that the host does not name may not be installed, and then every name is an error.
    let own_name = if hosts.split_whitespace().any(|word| word == "myhostname") { " myhostname" } else { "" };
    let databases = ["passwd", "group", "shadow", "networks", "protocols", "services", "ethers", "rpc"];
    let others: String = databases.iter().map(|name| format!("{name}: files\n")).collect();
    format!("{others}hosts: files dns{own_name}\n")
}

/// resolv.conf(5) where names are answered by the sandbox's own resolver, at once or never.
pub(super) fn resolv_conf(resolver: Ipv4Addr) -> String {
    format!("nameserver {resolver}\noptions timeout:5 attempts:2\n")
}
