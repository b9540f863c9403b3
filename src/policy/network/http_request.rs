//! HTTP requests as rules see them: a method, and a path that every server reads in the same way.
//!
//! A path that some server could read as another one is no path here: dot segments, empty segments, backslashes, parameters behind `;`, and
//! encoded characters that need no encoding or that part a path.

use std::fmt;

use super::destination::{Destination, DestinationError};

/// The longest path that is judged, in bytes.
pub const MAX_PATH_BYTES: usize = 2_048;

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// As it was sent: methods are case-sensitive.
    pub method: String,
    /// Without the query.
    pub path: RequestPath,
}

/// A path that can be read in one way only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestPath(String);

/// Why a text is no such path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestPathError {
    /// It is `*`, or an address.
    #[error("a path begins with \"/\"")]
    Relative,
    /// Too long to be judged.
    #[error("a path has at most {MAX_PATH_BYTES} bytes")]
    TooLong,
    /// `.`, `..` or nothing between two slashes.
    #[error("a path with \".\", \"..\" or an empty part can be read in two ways")]
    Part,
    /// A character that servers read differently.
    #[error("a path with {0:?} can be read in two ways")]
    Character(char),
    /// An encoded character that servers read differently.
    #[error("a path with an encoded slash, dot, letter or control character can be read in two ways")]
    Encoded,
}

impl RequestPath {
    /// Reads a path.
    ///
    /// # Errors
    /// [`RequestPathError`].
    pub fn parse(text: &str) -> Result<Self, RequestPathError> {
        if text.len() > MAX_PATH_BYTES {
            return Err(RequestPathError::TooLong);
        }
        let parts = text.strip_prefix('/').ok_or(RequestPathError::Relative)?;
        if let Some(wrong) = text.chars().find(|c| !c.is_ascii_graphic() || "\\;?#".contains(*c)) {
            return Err(RequestPathError::Character(wrong));
        }
        let mut rest = parts.split('/').peekable();
        while let Some(part) = rest.next() {
            let is_last = rest.peek().is_none();
            if part == "." || part == ".." || (part.is_empty() && !is_last) {
                return Err(RequestPathError::Part);
            }
        }
        let mut encoded = text.split('%');
        encoded.next();
        if encoded.all(is_plainly_encoded) {
            Ok(Self(text.to_owned()))
        } else {
            Err(RequestPathError::Encoded)
        }
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').skip(1)
    }
}

/// Whether what begins with two hexadecimal digits is a character that has to be encoded, and that parts nothing.
fn is_plainly_encoded(text: &str) -> bool {
    let Some(digits) = text.get(..2).filter(|two| two.bytes().all(|byte| byte.is_ascii_hexdigit())) else {
        return false;
    };
    let Ok(byte) = u8::from_str_radix(digits, 16) else { return false };
    !(byte.is_ascii_alphanumeric() || byte.is_ascii_control() || b"-._~/\\%;".contains(&byte))
}

impl fmt::Display for HttpRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path.0)
    }
}

/// Paths that a rule is about: `/simple/*/files/**`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    parts: Vec<PatternPart>,
    /// Whether anything may follow: `**`.
    is_open: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternPart {
    Exact(String),
    /// `*`: one part that is not empty.
    Any,
}

/// Why a text is no pattern of paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathPatternError {
    /// A star within a part, or `**` before the end.
    #[error("\"*\" is a whole part of a path, and \"**\" its last one")]
    Star,
    /// No path.
    #[error(transparent)]
    Path(#[from] RequestPathError),
}

impl PathPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`PathPatternError`].
    pub fn parse(text: &str) -> Result<Self, PathPatternError> {
        let (fixed, is_open) = match text.strip_suffix("/**") {
            Some(fixed) => (fixed, true),
            None => (text, false),
        };
        if is_open && fixed.is_empty() {
            return Ok(Self { parts: Vec::new(), is_open });
        }
        let path = RequestPath::parse(fixed)?;
        let part = |part: &str| match part {
            "*" => Ok(PatternPart::Any),
            part if part.contains('*') => Err(PathPatternError::Star),
            part => Ok(PatternPart::Exact(part.to_owned())),
        };
        Ok(Self { parts: path.parts().map(part).collect::<Result<_, _>>()?, is_open })
    }

    /// Whether it is about this path.
    pub fn matches(&self, path: &RequestPath) -> bool {
        let mut parts = path.parts();
        let begins = self.parts.iter().all(|own| match (own, parts.next()) {
            (PatternPart::Exact(own), Some(part)) => own == part,
            (PatternPart::Any, Some(part)) => !part.is_empty(),
            (PatternPart::Exact(_) | PatternPart::Any, None) => false,
        });
        let rest = parts.next();
        begins && (self.is_open == rest.is_some())
    }
}

/// What an example, or a person, asks about: `example.org:443`, or `GET https://example.org/path`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedConnection {
    /// Where to.
    pub destination: Destination,
    /// The request in it.
    pub request: Option<HttpRequest>,
    /// The request's scheme.
    pub scheme: Option<Scheme>,
}

/// How a request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// As it is.
    Http,
    /// In TLS.
    Https,
}

impl Scheme {
    /// The port that an address without one means.
    pub fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    /// As an address writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// Why a text is neither.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WantedConnectionError {
    /// No destination.
    #[error(transparent)]
    Destination(#[from] DestinationError),
    /// No path.
    #[error(transparent)]
    Path(#[from] RequestPathError),
}

impl WantedConnection {
    /// Reads one.
    ///
    /// # Errors
    /// [`WantedConnectionError`].
    pub fn parse(text: &str) -> Result<Self, WantedConnectionError> {
        let by = |scheme, prefix| text.split_once(prefix).map(|(method, url)| (scheme, method, url));
        let found = by(Scheme::Http, " http://").or_else(|| by(Scheme::Https, " https://"));
        let Some((scheme, method, url)) = found else {
            return Ok(Self { destination: Destination::parse(text)?, request: None, scheme: None });
        };
        let (authority, path) = url.split_at(url.find('/').unwrap_or(url.len()));
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        let destination = if has_port {
            Destination::parse(authority)?
        } else {
            Destination::parse(&format!("{authority}:{}", scheme.port()))?
        };
        let path = RequestPath::parse(if path.is_empty() { "/" } else { path })?;
        let request = Some(HttpRequest { method: method.to_owned(), path });
        Ok(Self { destination, request, scheme: Some(scheme) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_could_be_read_in_two_ways_is_none() {
        for good in ["/", "/a", "/a/", "/a/b.c/~d", "/a%20b", "/%40scope/name", "/a/...", "/a:b@c"] {
            assert!(RequestPath::parse(good).is_ok(), "{good}");
        }
        let long = "/".to_owned() + &"a".repeat(MAX_PATH_BYTES);
        for bad in [
            "",
            "*",
            "a",
            "//a",
            "/a//b",
            "/.",
            "/..",
            "/a/../b",
            "/a/./b",
            "/a/..",
            "/a\\b",
            "/a;b",
            "/a?b",
            "/a#b",
            "/%2e%2e/b",
            "/a%2Fb",
            "/a%2fb",
            "/a%5cb",
            "/%61",
            "/a%00",
            "/a%0d",
            "/a%",
            "/a%2",
            "/a%zz",
            "/a%25b",
            "/a%3bb",
            "/ü",
            "/a b",
            &long,
        ] {
            assert!(RequestPath::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_pattern_is_about_whole_parts() {
        for (pattern, path, matches) in [
            ("/a/b", "/a/b", true),
            ("/a/b", "/a/b/", false),
            ("/a/b", "/a/B", false),
            ("/a/*", "/a/b", true),
            ("/a/*", "/a/", false),
            ("/a/*", "/a/b/c", false),
            ("/a/*/c", "/a/b/c", true),
            ("/a/**", "/a/", true),
            ("/a/**", "/a/b/c", true),
            ("/a/**", "/a", false),
            ("/a/**", "/ab", false),
            ("/**", "/", true),
            ("/**", "/a/b", true),
            ("/", "/", true),
            ("/", "/a", false),
        ] {
            let pattern_read = PathPattern::parse(pattern).unwrap();
            assert_eq!(pattern_read.matches(&RequestPath::parse(path).unwrap()), matches, "{pattern} {path}");
        }
        for bad in ["a", "/a*", "/**/b", "/a/../b", "/a/***", "", "**"] {
            assert!(PathPattern::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_request_is_written_as_its_method_and_address() {
        let read = |text: &str| WantedConnection::parse(text).map(|wanted| wanted.destination.to_string());
        assert_eq!(read("a.test:443").as_deref(), Ok("a.test:443"));
        assert_eq!(read("GET http://a.test/x").as_deref(), Ok("a.test:80"));
        assert_eq!(read("GET http://a.test:81").as_deref(), Ok("a.test:81"));
        assert_eq!(read("GET https://a.test/x").as_deref(), Ok("a.test:443"));
        assert!(read("GET http://a.test/../x").is_err() && read("GET ftp://a.test/x").is_err());
        let wanted = WantedConnection::parse("PUT http://a.test/x/y").unwrap();
        assert_eq!(wanted.request.unwrap().to_string(), "PUT /x/y");
    }
}
