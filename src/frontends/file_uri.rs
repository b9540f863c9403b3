//! The paths that protocols carry: `file:` URIs of this host, with percent-encoding (RFC 8089).
//!
//! Pure. A path is absolute and may have `..` in it: whoever uses it resolves it, not this.

/// The path of a URI, or what is wrong with it.
pub(crate) fn path_of(uri: &str) -> Result<String, &'static str> {
    let rest = uri.strip_prefix("file://").ok_or("it is no file: URI")?;
    let rest = rest.strip_prefix("localhost").unwrap_or(rest);
    if !rest.starts_with('/') {
        return Err("it names another host, or no absolute path");
    }
    if rest.contains(['?', '#']) {
        return Err("it has a query or a fragment");
    }
    let mut bytes = Vec::with_capacity(rest.len());
    let mut from = rest.bytes();
    while let Some(byte) = from.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (Some(high), Some(low)) = (digit(from.next()), digit(from.next())) else {
            return Err("its percent-encoding is broken");
        };
        bytes.push(u8::try_from(high * 16 + low).map_err(|_| "its percent-encoding is broken")?);
    }
    if bytes.contains(&0) {
        return Err("it contains NUL");
    }
    String::from_utf8(bytes).map_err(|_| "the path is no UTF-8, as which this protocol has file names")
}

/// The URI of an absolute path.
pub(crate) fn of_path(path: &str) -> String {
    let mut uri = String::from("file://");
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                uri.push(char::from(byte));
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_comes_back_as_it_was() {
        for path in ["/", "/a b/ü", "/100%/#x?", "/a/../b", "/\n"] {
            assert_eq!(path_of(&of_path(path)).unwrap(), path);
        }
        assert_eq!(path_of("file://localhost/a").unwrap(), "/a");
        assert_eq!(path_of("file:///a(b),c").unwrap(), "/a(b),c");
        assert_eq!(path_of("file:///a%20b/%C3%A9").unwrap(), "/a b/é");
    }

    #[test]
    fn what_is_no_path_of_this_host_is_refused() {
        for uri in [
            "",
            "/a",
            "http://x/a",
            "file://",
            "file://other/a",
            "file:///%0",
            "file:///%zz",
            "file:///%00",
            "file:///%ff",
            "file:///a?b",
        ] {
            assert!(path_of(uri).is_err(), "{uri}");
        }
    }
}
