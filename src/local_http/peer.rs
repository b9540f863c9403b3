//! Whose process is at the other end of a connection over the loopback, as /proc/net/tcp has it.
//!
//! Another uid is refused even with the right token. What is not found there is refused, too.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::fs::MetadataExt,
};

/// Whether the process at `peer`, which has connected to `own`, runs under the uid of this one.
///
/// # Errors
/// When the kernel's table cannot be read or does not have the connection.
pub(super) fn is_same_user(own: SocketAddr, peer: SocketAddr) -> io::Result<bool> {
    // Whose /proc/self is is the effective user.
    let user = fs::metadata("/proc/self")?.uid();
    let table = fs::read_to_string(if own.is_ipv4() { "/proc/net/tcp" } else { "/proc/net/tcp6" })?;
    match uid_of(&table, peer, own) {
        Some(uid) => Ok(uid == user),
        None => Err(io::Error::new(io::ErrorKind::NotFound, "the kernel does not list it")),
    }
}

/// The uid of the socket with these local and remote addresses.
fn uid_of(table: &str, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let is_it = address(fields.next()?)? == local && address(fields.next()?)? == remote;
        // State, queues, timer, retransmits; then the uid.
        is_it.then(|| fields.nth(4)?.parse().ok()).flatten()
    })
}

/// An address as the table has it: words of 32 bits in this machine's order, in hexadecimal.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_mut(4).enumerate() {
                part.copy_from_slice(&word(at)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_of_this_process_is_this_users() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(host) else {
                println!("SKIPPED: this host has no {host}");
                continue;
            };
            let own = listener.local_addr().unwrap();
            let client = TcpStream::connect(own).unwrap();
            assert!(is_same_user(own, client.local_addr().unwrap()).unwrap());
            let nobodys = SocketAddr::new(own.ip(), 1);
            assert!(is_same_user(own, nobodys).is_err());
        }
    }

    #[test]
    fn the_uid_is_that_of_the_clients_socket_and_not_of_the_servers() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                     0: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 1 1\n   \
                     1: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 2 1\n";
        let (server, client) = ("127.0.0.1:8080".parse().unwrap(), "127.0.0.1:40000".parse().unwrap());
        if cfg!(target_endian = "little") {
            assert_eq!(uid_of(table, client, server), Some(1000));
            assert_eq!(uid_of(table, server, client), Some(0));
        }
    }
}
