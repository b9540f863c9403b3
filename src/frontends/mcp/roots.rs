//! The directories of a session: those that the command line allows, narrowed by those that the client works in.
//!
//! A client can only narrow: what it names beyond the allowed directories is left out.

use std::path::{Path, PathBuf};

/// What lies both in an allowed directory and in one of the client's, each directory once.
pub(super) fn narrowed(allowed: &[PathBuf], client: &[PathBuf]) -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = Vec::new();
    for of_client in client {
        for allowed in allowed {
            let inner = match (of_client.starts_with(allowed), allowed.starts_with(of_client)) {
                (true, _) => of_client,
                (false, true) => allowed,
                (false, false) => continue,
            };
            if !roots.iter().any(|root| inner.starts_with(root)) {
                roots.retain(|root| !root.starts_with(inner));
                roots.push(inner.clone());
            }
        }
    }
    roots
}

/// A directory by the name that it has below one of these, which links may lead to.
pub(super) fn named(real: PathBuf, names: &[PathBuf]) -> PathBuf {
    let below = |name: &PathBuf| Some(name.join(real.strip_prefix(name.canonicalize().ok()?).ok()?));
    names.iter().find_map(below).map_or(real.clone(), |named| named.components().collect())
}

/// The absolute path that a `file:` URI names on this host.
pub(super) fn path_of(uri: &str) -> Option<PathBuf> {
    let rest = uri.strip_prefix("file://")?;
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    let mut bytes = Vec::with_capacity(path.len());
    let mut left = path.bytes();
    while let Some(byte) = left.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: u8| (byte as char).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                let (high, low) = (digit(left.next()?)?, digit(left.next()?)?);
                high * 16 + low
            }
            // Neither belongs to a path.
            b'?' | b'#' => return None,
            byte => byte,
        });
    }
    let path = String::from_utf8(bytes).ok().filter(|path| !path.contains('\0'))?;
    Path::new(&path).is_absolute().then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(paths: &[&str]) -> Vec<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn a_client_narrows_and_never_widens() {
        let allowed = paths(&["/work/a", "/work/b"]);
        for (client, roots) in [
            (&["/work/a/sub"][..], &["/work/a/sub"][..]),
            (&["/work"], &["/work/a", "/work/b"]),
            (&["/work/a", "/etc"], &["/work/a"]),
            (&["/work/a/x", "/work/a"], &["/work/a"]),
            (&["/work/a", "/work/a/x"], &["/work/a"]),
            (&["/work/abc", "/"], &["/work/a", "/work/b"]),
            (&["/etc"], &[]),
            (&["/work/ab"], &[]),
            (&[], &[]),
        ] {
            assert_eq!(narrowed(&allowed, &paths(client)), paths(roots), "{client:?}");
        }
    }

    #[test]
    fn a_uri_names_a_path_of_this_host_or_none() {
        assert_eq!(path_of("file:///a%20b/%C3%A9").unwrap(), PathBuf::from("/a b/é"));
        assert_eq!(path_of("file://localhost/a").unwrap(), PathBuf::from("/a"));
        for bad in [
            "http://x/a",
            "file://host/a",
            "file:///a%2",
            "file:///a%zz",
            "file:///a%00",
            "file:///a?b",
            "/a",
            "file://",
        ] {
            assert_eq!(path_of(bad), None, "{bad}");
        }
    }
}
