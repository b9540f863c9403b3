//! The section `[metrics]` of the configuration.
//!
//! No metrics are served unless an address is given. An address beyond loopback needs a word of its own.

use std::{net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Deserializer, de::Error as _};

use super::socket_config;

/// Where metrics are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsAddress {
    /// To everybody on this host, or beyond it when that was said.
    Tcp(SocketAddr),
    /// To whom the socket's permission bits let in.
    Unix {
        /// The socket.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
}

/// The section, as it is meant: `None` where no metrics are served.
#[derive(Debug, Default)]
pub(super) struct MetricsSection(pub Option<MetricsAddress>);

/// The section, as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricsTable {
    listen: Option<String>,
    #[serde(default, deserialize_with = "socket_config::octal_mode")]
    socket_mode: Option<u32>,
    #[serde(default)]
    beyond_loopback: bool,
}

/// What of the section cannot be meant.
#[derive(Debug, thiserror::Error)]
enum MetricsConfigError {
    #[error("metrics.listen must be of the form IP:PORT or unix:/absolute/path")]
    Address,
    #[error(
        "metrics.listen is for everybody who reaches {0}, without a password or encryption: say \
         metrics.beyond_loopback = true if that is meant"
    )]
    BeyondLoopback(SocketAddr),
    #[error("metrics.{0} is for a metrics.listen that it fits")]
    Stray(&'static str),
}

/// A socket of its own is for its user alone, as the gateway's is.
const SOCKET_MODE: u32 = 0o600;

impl<'de> Deserialize<'de> for MetricsSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        address(MetricsTable::deserialize(deserializer)?).map(Self).map_err(D::Error::custom)
    }
}

fn address(written: MetricsTable) -> Result<Option<MetricsAddress>, MetricsConfigError> {
    let MetricsTable { listen, socket_mode, beyond_loopback } = written;
    let address = match &listen {
        None => None,
        Some(text) => Some(match (text.parse::<SocketAddr>(), socket_config::parse_listen(text)) {
            (Ok(address), _) if !address.ip().is_loopback() && !beyond_loopback => {
                return Err(MetricsConfigError::BeyondLoopback(address));
            }
            (Ok(address), _) => MetricsAddress::Tcp(address),
            (Err(_), Ok(path)) => MetricsAddress::Unix { path, mode: socket_mode.unwrap_or(SOCKET_MODE) },
            (Err(_), Err(_)) => return Err(MetricsConfigError::Address),
        }),
    };
    let is_tcp = matches!(address, Some(MetricsAddress::Tcp(_)));
    if beyond_loopback && !is_tcp {
        return Err(MetricsConfigError::Stray("beyond_loopback"));
    }
    if socket_mode.is_some() && (is_tcp || address.is_none()) {
        return Err(MetricsConfigError::Stray("socket_mode"));
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::{super::config::Config, *};

    fn section(text: &str) -> Result<Option<MetricsAddress>, String> {
        let parsed = Config::parse("c.toml", &format!("[metrics]\n{text}\n"));
        parsed.map(|config| config.metrics).map_err(|error| error.to_string())
    }

    #[test]
    fn an_address_is_on_this_host_unless_the_file_says_that_more_is_meant() {
        assert_eq!(section("").unwrap(), None);
        for here in ["127.0.0.1:9464", "[::1]:0"] {
            let address = here.parse().unwrap();
            assert_eq!(section(&format!("listen = '{here}'")).unwrap(), Some(MetricsAddress::Tcp(address)));
        }
        let everywhere = "listen = '0.0.0.0:9464'";
        assert!(section(everywhere).unwrap_err().contains("metrics.beyond_loopback = true"));
        assert!(section(&format!("{everywhere}\nbeyond_loopback = true")).unwrap().is_some());
        let socket = MetricsAddress::Unix { path: "/run/m.sock".into(), mode: 0o600 };
        assert_eq!(section("listen = 'unix:/run/m.sock'").unwrap(), Some(socket));
        let shared = MetricsAddress::Unix { path: "/run/m.sock".into(), mode: 0o660 };
        assert_eq!(section("listen = 'unix:/run/m.sock'\nsocket_mode = '0660'").unwrap(), Some(shared));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_its_name() {
        for (text, problem) in [
            ("listen = 'localhost:9464'", "IP:PORT"),
            ("listen = '9464'", "IP:PORT"),
            ("listen = 'unix:m.sock'", "IP:PORT"),
            ("listen = '127.0.0.1:1'\nsocket_mode = '0600'", "metrics.socket_mode"),
            ("socket_mode = '0600'", "metrics.socket_mode"),
            ("beyond_loopback = true", "metrics.beyond_loopback"),
            ("address = '127.0.0.1:1'", "unknown field `address`"),
        ] {
            let error = section(text).unwrap_err();
            assert!(error.starts_with("c.toml:") && error.contains(problem), "{text}: {error}");
        }
    }
}
