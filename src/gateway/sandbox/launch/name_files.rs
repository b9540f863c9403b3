//! The files by which programs in a sandbox find names: nsswitch.conf(5), resolv.conf(5) and hosts(5).

use std::{io::Read, net::Ipv4Addr};

use crate::network::OWN_NAME;

/// The most of the host's hosts(5) that a sandbox has with its own name: lists against advertisements have megabytes.
const HOSTS_MAX_BYTES: usize = 128 << 10;

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

/// hosts(5): the host's, with the sandbox's own name, which else nothing knows. `None` where the host's is too long, so that it stays
/// as it is.
pub(super) fn hosts() -> Option<String> {
    let mut bytes = Vec::new();
    if let Ok(file) = std::fs::File::open("/etc/hosts") {
        file.take(HOSTS_MAX_BYTES as u64 + 1).read_to_end(&mut bytes).ok()?;
    }
    (bytes.len() <= HOSTS_MAX_BYTES).then(|| with_own_name(&String::from_utf8_lossy(&bytes)))
}

/// The name stands last: the loopback's own name stays `localhost`.
fn with_own_name(hosts: &str) -> String {
    let localhost = if hosts.contains("localhost") { "" } else { "127.0.0.1 localhost\n" };
    let end = if hosts.is_empty() || hosts.ends_with('\n') { "" } else { "\n" };
    format!("{localhost}{hosts}{end}127.0.0.1 {OWN_NAME}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandboxs_own_name_comes_after_the_hosts_names() {
        assert_eq!(with_own_name(""), "127.0.0.1 localhost\n127.0.0.1 sandbox\n");
        let host = "127.0.0.1 localhost\n10.0.0.7 db";
        assert_eq!(with_own_name(host), format!("{host}\n127.0.0.1 sandbox\n"));
    }
}
