//! The names under which a loopback address is asked for: a page in a browser that was led here by another name is refused.

use std::net::SocketAddr;

use hyper::{
    StatusCode,
    header::{HOST, HeaderMap, HeaderName, ORIGIN},
};

/// An address that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalAddress(pub(super) SocketAddr);

impl LocalAddress {
    /// Where it is.
    pub fn socket(self) -> SocketAddr {
        self.0
    }

    /// What `Host` may be.
    pub fn hosts(self) -> [String; 2] {
        [self.0.to_string(), format!("localhost:{}", self.0.port())]
    }

    /// What `Origin` may be, if there is one.
    pub fn origins(self) -> [String; 2] {
        self.hosts().map(|host| format!("http://{host}"))
    }

    /// Whether a request with these headers means this address and comes from no other origin.
    ///
    /// # Errors
    /// The status and the sentence to refuse it with.
    pub fn admits(self, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
        match only(headers, &HOST) {
            Ok(Some(host)) if self.hosts().iter().any(|own| own.eq_ignore_ascii_case(host)) => {}
            _ => return Err((StatusCode::MISDIRECTED_REQUEST, "the host is not this address\n")),
        }
        match only(headers, &ORIGIN) {
            Ok(None) => Ok(()),
            Ok(Some(origin)) if self.origins().iter().any(|own| own == origin) => Ok(()),
            _ => Err((StatusCode::FORBIDDEN, "the origin is not this address\n")),
        }
    }
}

/// The one value of a header; an error if there are several, or one that is no text.
pub(crate) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| ()),
        (Some(_), Some(_)) => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_this_address_once_and_comes_from_no_other_page() {
        let address = LocalAddress("127.0.0.1:7322".parse().unwrap());
        let admits = |pairs: &[(&HeaderName, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, value.parse().unwrap());
            }
            address.admits(&headers).map_err(|(status, _)| status.as_u16())
        };
        assert_eq!(admits(&[(&HOST, "127.0.0.1:7322")]), Ok(()));
        assert_eq!(admits(&[(&HOST, "LocalHost:7322"), (&ORIGIN, "http://localhost:7322")]), Ok(()));
        assert_eq!(admits(&[]), Err(421));
        assert_eq!(admits(&[(&HOST, "127.0.0.1")]), Err(421));
        assert_eq!(admits(&[(&HOST, "attacker.example:7322")]), Err(421));
        assert_eq!(admits(&[(&HOST, "127.0.0.1:7322"), (&HOST, "127.0.0.1:7322")]), Err(421));
        for origin in ["null", "https://attacker.example", "http://127.0.0.1:1", "ws://127.0.0.1:7322"] {
            assert_eq!(admits(&[(&HOST, "127.0.0.1:7322"), (&ORIGIN, origin)]), Err(403), "{origin}");
        }
    }
}
