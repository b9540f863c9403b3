//! A host and a port, as a program names them: in a CONNECT, a URL, a SOCKS request, an example of a rule.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::name::{HostName, NameError, looks_like_number};

/// The most of a text that is looked at.
const MAX_TEXT_BYTES: usize = 320;

/// A host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// By name.
    Name(HostName),
    /// By address, in whatever way it was written.
    Address(IpAddr),
}

/// A host and a TCP port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Destination {
    /// The host.
    pub host: Host,
    /// The port, not 0.
    pub port: u16,
}

/// Why a text names no destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// It is too long to be one.
    #[error("it has more than {MAX_TEXT_BYTES} bytes")]
    TooLong,
    /// The port is missing or no number from 1 to 65535.
    #[error("it has no port from 1 to 65535")]
    Port,
    /// Brackets that do not hold an IPv6 address, or one with a zone.
    #[error("it has brackets that hold no IPv6 address without a zone")]
    Brackets,
    /// An address in a form that nobody reads alike.
    #[error("it is no address that is read in one way only")]
    Address,
    /// No name.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl Host {
    /// Reads a host. A decimal, octal, hexadecimal or short IPv4 address is an address, as inet_aton(3) reads it.
    ///
    /// # Errors
    /// [`DestinationError`].
    pub fn parse(text: &str) -> Result<Self, DestinationError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(DestinationError::TooLong);
        }
        if let Some(rest) = text.strip_prefix('[') {
            let inner = rest.strip_suffix(']').ok_or(DestinationError::Brackets)?;
            let six: Ipv6Addr = inner.parse().map_err(|_| DestinationError::Brackets)?;
            return Ok(Self::Address(six.into()));
        }
        if let Ok(six) = text.parse::<Ipv6Addr>() {
            return Ok(Self::Address(six.into()));
        }
        let without_dot = text.strip_suffix('.').unwrap_or(text);
        if without_dot.rsplit('.').next().is_some_and(|last| !last.is_empty() && looks_like_number(last)) {
            return loose_ipv4(without_dot)
                .map(|four| Self::Address(four.into()))
                .ok_or(DestinationError::Address);
        }
        Ok(Self::Name(HostName::parse(text)?))
    }
}

impl Destination {
    /// Reads `HOST:PORT`.
    ///
    /// # Errors
    /// [`DestinationError`].
    pub fn parse(text: &str) -> Result<Self, DestinationError> {
        let (host, port) = text.rsplit_once(':').ok_or(DestinationError::Port)?;
        // Without brackets the last part of an IPv6 address could be meant.
        if host.contains(':') && !host.starts_with('[') {
            return Err(DestinationError::Brackets);
        }
        let is_plain = !port.is_empty() && port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|port| is_plain && *port != 0).ok_or(DestinationError::Port)?;
        Ok(Self { host: Host::parse(host)?, port })
    }
}

/// As inet_aton(3): one to four parts, each decimal, octal or hexadecimal, the last one filling what is left.
fn loose_ipv4(text: &str) -> Option<Ipv4Addr> {
    let parts: Vec<u64> = text.split('.').map(loose_number).collect::<Option<_>>()?;
    let (last, first) = parts.split_last()?;
    if first.len() > 3 || first.iter().any(|part| *part > 255) {
        return None;
    }
    let bits = 32 - 8 * first.len() as u32;
    if *last >= 1_u64 << bits {
        return None;
    }
    let high = first.iter().enumerate().fold(0, |sum, (at, part)| sum | (part << (24 - 8 * at)));
    u32::try_from(high | last).ok().map(Ipv4Addr::from)
}

fn loose_number(part: &str) -> Option<u64> {
    let hex = part.strip_prefix("0x").or_else(|| part.strip_prefix("0X"));
    if part.len() > 16 {
        return None;
    }
    match hex {
        Some("") => Some(0),
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if part.len() > 1 && part.starts_with('0') => u64::from_str_radix(part, 8).ok(),
        None => part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok()).flatten(),
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(IpAddr::V6(six)) => write!(f, "[{six}]:{}", self.port),
            host => write!(f, "{host}:{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_address_is_an_address_however_it_is_written() {
        for text in
            ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0x7f.0.0.1", "127.0.0.1."]
        {
            assert_eq!(Host::parse(text), Ok(Host::Address("127.0.0.1".parse().unwrap())), "{text}");
        }
        assert_eq!(Host::parse("[::ffff:127.0.0.1]").unwrap().to_string(), "::ffff:127.0.0.1");
        for text in [
            "256.0.0.1",
            "1.2.3.4.5",
            "08.0.0.1",
            "1.2.3.256",
            "4294967296",
            "a.1",
            "[::1%lo]",
            "[1.2.3.4]",
            "[::1",
        ] {
            assert!(Host::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_destination_has_a_host_and_one_port() {
        assert_eq!(Destination::parse("A.example.:443").unwrap().to_string(), "a.example:443");
        assert_eq!(Destination::parse("[::1]:80").unwrap().to_string(), "[::1]:80");
        for text in [
            "a", "a:", "a:0", "a:65536", "a:+1", "a:80:90", "::1:80", "a\0b:80", ":80", "a b:80", "a: 80",
            "a@b:1",
        ] {
            assert!(Destination::parse(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_and_read_as_the_same(text in "[ -~]{0,24}(:[0-9]{1,5})?") {
            if let Ok(destination) = Destination::parse(&text) {
                prop_assert_eq!(Destination::parse(&destination.to_string()), Ok(destination));
            }
        }
    }
}
