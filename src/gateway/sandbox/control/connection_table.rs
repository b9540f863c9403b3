//! The established TCP connections of a network, as `/proc/PID/net/tcp` lists them: proc_net_tcp(5). For a kernel that does not find one by
//! its ends. The table also lists what has ended within the last minute, so that a command can make it long: what is beyond a bound is not
//! read, and then nothing is known.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read},
    net::{Ipv4Addr, SocketAddrV4},
    path::Path,
};

/// Some 3,400 connections.
const MAX_TABLE_BYTES: u64 = 512 << 10;

/// The state of an established connection.
const ESTABLISHED: &str = "01";

/// By both ends, the socket's own one first.
pub(super) struct ConnectionTable(HashMap<(SocketAddrV4, SocketAddrV4), u64>);

impl ConnectionTable {
    /// Reads the table of this process's network. `None`: the table is too long.
    pub(super) fn of_process(pid: u32) -> io::Result<Option<Self>> {
        Self::read(&Path::new("/proc").join(pid.to_string()).join("net/tcp"))
    }

    fn read(path: &Path) -> io::Result<Option<Self>> {
        let mut text = String::new();
        File::open(path)?.take(MAX_TABLE_BYTES + 1).read_to_string(&mut text)?;
        Ok((text.len() as u64 <= MAX_TABLE_BYTES).then(|| Self::parse(&text)))
    }

    fn parse(text: &str) -> Self {
        let connection = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let ends = (end(words.get(1)?)?, end(words.get(2)?)?);
            (words.get(3) == Some(&ESTABLISHED)).then_some((ends, words.get(9)?.parse().ok()?))
        };
        Self(text.lines().skip(1).filter_map(connection).filter(|(_, inode)| *inode != 0).collect())
    }

    /// The inode of the socket with these ends.
    pub(super) fn find(&self, own: SocketAddrV4, other: SocketAddrV4) -> Option<u64> {
        self.0.get(&(own, other)).copied()
    }
}

/// An address as the kernel writes it: in the processor's byte order, and the port as a number.
fn end(text: &str) -> Option<SocketAddrV4> {
    let (address, port) = text.split_once(':')?;
    let address = u32::from_str_radix(address, 16).ok()?.to_ne_bytes();
    Some(SocketAddrV4::new(Ipv4Addr::from(address), u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use super::*;

    fn four(address: SocketAddr) -> SocketAddrV4 {
        match address {
            SocketAddr::V4(four) => four,
            SocketAddr::V6(_) => unreachable!("it is bound to IPv4"),
        }
    }

    #[test]
    fn a_connection_is_found_by_both_ends_and_a_listener_is_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let listening = four(listener.local_addr().unwrap());
        let client = TcpStream::connect(listening).unwrap();
        let (own, other) = (four(client.local_addr().unwrap()), four(client.peer_addr().unwrap()));
        // Others on this host may have made the table long.
        let text = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let table = ConnectionTable::parse(&text);
        let inode = nix::sys::stat::fstat(&client).unwrap().st_ino;
        assert_eq!(table.find(own, other), Some(inode));
        assert_ne!(table.find(other, own), Some(inode), "the other end is another socket");
        assert_eq!(table.find(listening, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)), None);
    }

    #[test]
    fn a_table_is_read_up_to_a_bound() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tcp");
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        std::fs::write(&file, head).unwrap();
        assert!(ConnectionTable::read(&file).unwrap().is_some());
        std::fs::write(&file, head.repeat(MAX_TABLE_BYTES as usize / head.len() + 1)).unwrap();
        assert!(ConnectionTable::read(&file).unwrap().is_none());
    }
}
