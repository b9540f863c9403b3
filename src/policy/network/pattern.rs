//! Patterns of names and networks of addresses, as rules write them.

use std::{fmt, net::IpAddr};

use super::{
    address::{self, contains_4, contains_v6},
    name::{HostName, NameError, looks_like_number},
};

/// Names that a rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    /// `*`: every name.
    Any,
    /// One name.
    Exact(HostName),
    /// `*.NAME`: all names below this one, however deep, without itself.
    Below(HostName),
}

/// Why a text is no pattern of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostPatternError {
    /// A star at another place than the first label.
    #[error("\"*\" can only be the whole pattern, or its first part as in \"*.example.org\"")]
    Star,
    /// An address.
    #[error("an address is no name: write it under `address`")]
    Address,
    /// No name.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl HostPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`HostPatternError`].
    pub fn parse(text: &str) -> Result<Self, HostPatternError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let (is_below, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        if name.contains('*') {
            return Err(HostPatternError::Star);
        }
        if name.parse::<IpAddr>().is_ok() || name.rsplit('.').next().is_some_and(looks_like_number) {
            return Err(HostPatternError::Address);
        }
        let name = HostName::parse(name)?;
        Ok(if is_below { Self::Below(name) } else { Self::Exact(name) })
    }

    /// Whether it is about this name.
    pub fn matches(&self, name: &HostName) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(own) => own == name,
            Self::Below(parent) => name.is_below(parent),
        }
    }
}

/// A network of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    network: IpAddr,
    prefix: u32,
}

/// Why a text is no network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// Not `ADDRESS/PREFIX` and no address.
    #[error("it is no address and no network such as \"10.1.0.0/16\"")]
    Malformed,
    /// The prefix is longer than the address.
    #[error("the prefix is longer than the address")]
    Prefix,
    /// There are bits behind the prefix.
    #[error("the address has bits behind its prefix")]
    HostBits,
    /// It carries an IPv4 address: rules name that one.
    #[error("it carries an IPv4 address: write that one")]
    Carries,
}

impl Cidr {
    /// Reads an address, or a network as `ADDRESS/PREFIX`.
    ///
    /// # Errors
    /// [`CidrError`].
    pub fn parse(text: &str) -> Result<Self, CidrError> {
        let (network, prefix) = match text.split_once('/') {
            Some((network, prefix)) => {
                let is_plain = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
                let prefix = prefix.parse().ok().filter(|_| is_plain).ok_or(CidrError::Malformed)?;
                (network, Some(prefix))
            }
            None => (text, None),
        };
        let network: IpAddr = network.parse().map_err(|_| CidrError::Malformed)?;
        let bits = if network.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(bits);
        if prefix > bits {
            return Err(CidrError::Prefix);
        }
        if address::effective(network) != network {
            return Err(CidrError::Carries);
        }
        let host_bits = match network {
            IpAddr::V4(four) => u32::from(four) & !u32::MAX.checked_shl(32 - prefix).unwrap_or(0) != 0,
            IpAddr::V6(six) => u128::from(six) & !u128::MAX.checked_shl(128 - prefix).unwrap_or(0) != 0,
        };
        if host_bits {
            return Err(CidrError::HostBits);
        }
        Ok(Self { network, prefix })
    }

    /// Whether the address that counts lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.network, address::effective(address)) {
            (IpAddr::V4(network), IpAddr::V4(address)) => contains_4(network, self.prefix, address),
            (IpAddr::V6(network), IpAddr::V6(address)) => contains_v6(network, self.prefix, address),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_name_or_all_below_one() {
        let name = |text| HostName::parse(text).unwrap();
        let below = HostPattern::parse("*.Files.example.org").unwrap();
        assert!(below.matches(&name("a.files.example.org")) && below.matches(&name("a.b.files.example.org")));
        assert!(!below.matches(&name("files.example.org")) && !below.matches(&name("afiles.example.org")));
        assert!(HostPattern::parse("*").unwrap().matches(&name("x")));
        for text in ["a*.org", "**", "*.*.org", "10.0.0.1", "::1", "0x7f.1", "", "*.", "a b"] {
            assert!(HostPattern::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_network_holds_addresses_in_every_form() {
        let network = Cidr::parse("10.1.0.0/16").unwrap();
        for (text, is_in) in [
            ("10.1.2.3", true),
            ("10.2.0.0", false),
            ("::ffff:10.1.0.1", true),
            ("64:ff9b::a01:1", true),
            ("2002:a01:1::", true),
            ("fd00::a01:1", false),
        ] {
            assert_eq!(network.contains(text.parse().unwrap()), is_in, "{text}");
        }
        assert!(Cidr::parse("0.0.0.0/0").unwrap().contains("8.8.8.8".parse().unwrap()));
        assert!(Cidr::parse("::/0").is_ok_and(|all| all.contains("fd00::1".parse().unwrap())));
        assert!(Cidr::parse("fd00::/8").unwrap().contains("fd12::1".parse().unwrap()));
        for text in
            ["10.1.0.1/16", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "10.1", "x", "::ffff:10.0.0.0/104"]
        {
            assert!(Cidr::parse(text).is_err(), "{text:?}");
        }
    }
}
