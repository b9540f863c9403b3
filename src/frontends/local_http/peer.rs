//! Whose process is at the other end of a connection over the loopback, as /proc/net/tcp has it.
//!
//! Another uid is refused even with the right token. What is not found there is refused, too, and so is a connection whose other end
//! nobody holds any more: the kernel says that such a socket is root's.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::fs::MetadataExt,
};

/// A socket as the table has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Holder {
    uid: u32,
    inode: u64,
}

/// Whether the process at `peer`, which has connected to `own`, runs under the uid of this one.
///
/// # Errors
/// When the kernel's table cannot be read, or has no connection that a process holds.
pub(super) fn is_same_user(own: SocketAddr, peer: SocketAddr) -> io::Result<bool> {
    // Whose /proc/self is is the effective user.
    let user = fs::metadata("/proc/self")?.uid();
    let look = || -> io::Result<Option<Holder>> {
        let table = if own.is_ipv4() { "/proc/net/tcp" } else { "/proc/net/tcp6" };
        let known = holder_of(&fs::read_to_string(table)?, peer, own);
        match (mapped(peer), mapped(own)) {
            // A client's socket for both versions of the protocol is in the other table.
            (Some(peer), Some(own)) if known.is_none() => {
                Ok(fs::read_to_string("/proc/net/tcp6").ok().and_then(|table| holder_of(&table, peer, own)))
            }
            _ => Ok(known),
        }
    };
    match look()? {
        Some(Holder { uid, .. }) if uid != user => Ok(false),
        // The socket can be closed between the kernel's looks at its inode and at its uid. It was held then if it is held now.
        Some(holder) if look()? == Some(holder) => Ok(true),
        Some(_) | None => Err(io::Error::new(io::ErrorKind::NotFound, "no process holds its other end")),
    }
}

/// An IPv4 address as an IPv6 socket has it.
fn mapped(address: SocketAddr) -> Option<SocketAddr> {
    match address.ip() {
        IpAddr::V4(ip) => Some(SocketAddr::new(ip.to_ipv6_mapped().into(), address.port())),
        IpAddr::V6(_) => None,
    }
}

/// Who holds the socket with these local and remote addresses. A socket that was closed has no inode.
fn holder_of(table: &str, local: SocketAddr, remote: SocketAddr) -> Option<Holder> {
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let is_it = address(fields.next()?)? == local && address(fields.next()?)? == remote;
        // State, queues, timer, retransmits; then the uid, the unanswered probes and the inode.
        let uid = fields.nth(4).filter(|_| is_it)?.parse().ok()?;
        let inode = fields.nth(1)?.parse().ok()?;
        (inode != 0).then_some(Holder { uid, inode })
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
    fn a_connection_by_a_socket_of_both_versions_is_this_users() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        let Ok(client) = TcpStream::connect(mapped(own).unwrap()) else {
            println!("SKIPPED: this host has no IPv6");
            return;
        };
        let peer = SocketAddr::new(own.ip(), client.local_addr().unwrap().port());
        assert!(is_same_user(own, peer).unwrap());
        drop(client);
        assert!(is_same_user(own, peer).is_err());
    }

    #[test]
    fn a_connection_that_its_client_has_closed_is_nobodys() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        let client = TcpStream::connect(own).unwrap();
        let peer = client.local_addr().unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(is_same_user(own, peer).unwrap(), "it still reads");
        drop(client);
        assert!(is_same_user(own, peer).is_err());
    }

    #[test]
    fn the_holder_is_that_of_the_clients_socket_and_not_of_the_servers() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                     0: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 1 1\n   \
                     1: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 2 1\n   \
                     2: 0100007F:9C41 0100007F:1F90 05 00000000:00000000 00:00000000 00000000     0        0 0 1\n";
        let server = "127.0.0.1:8080".parse().unwrap();
        let of = |local, remote| holder_of(table, local, remote);
        let (client, gone) = ("127.0.0.1:40000".parse().unwrap(), "127.0.0.1:40001".parse().unwrap());
        if cfg!(target_endian = "little") {
            assert_eq!(of(client, server), Some(Holder { uid: 1000, inode: 2 }));
            assert_eq!(of(server, client), Some(Holder { uid: 0, inode: 1 }));
            assert_eq!(of(gone, server), None);
        }
    }
}
