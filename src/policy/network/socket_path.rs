//! Unix sockets of the host, as rules and profiles name them: by an absolute path that can be read in one way only.
//!
//! Some sockets are never let in, by no rule: who speaks to them has the user's session, keys or services, and what is asked of
//! them cannot be judged by a connection.

use std::{fmt, path::Path};

/// Before the path, where a connection is named in one text.
pub const SOCKET_PREFIX: &str = "unix:";

/// The longest path, in bytes.
const MAX_PATH_BYTES: usize = 255;

/// Where services listen that are never let in, as directories or files with their first parts. `*` is one part.
const REFUSED: [(&str, &str); 16] = [
    ("/run/dbus", "it is D-Bus"),
    ("/run/user/*/bus", "it is D-Bus"),
    ("/run/user/*/dbus-1", "it is D-Bus"),
    ("/run/user/*/at-spi", "it is D-Bus"),
    ("/run/systemd", "it is the host's service manager"),
    ("/run/user/*/systemd", "it is the user's service manager"),
    ("/run/user/*/keyring", "it is an agent with keys"),
    ("/run/user/*/gnupg", "it is an agent with keys"),
    ("/run/user/*/gcr", "it is an agent with keys"),
    ("/run/user/*/ssh-agent", "it is an agent with keys"),
    ("/run/user/*/ssh-agent.socket", "it is an agent with keys"),
    ("/run/user/*/openssh_agent", "it is an agent with keys"),
    ("/run/user/*/pulse", "it is the user's desktop"),
    ("/tmp/.X11-unix", "it is the user's desktop"),
    ("/tmp/.ICE-unix", "it is the user's desktop"),
    ("/proc", "it is a process's descriptor"),
];

/// Beginnings of names of files at which agents, D-Bus and the desktop listen, in whichever directory: a compositor counts its sockets up, and
/// XDG_RUNTIME_DIR can be anywhere.
const REFUSED_NAMES: [(&str, &str); 7] = [
    ("S.gpg-agent", "it is an agent with keys"),
    ("S.scdaemon", "it is an agent with keys"),
    ("agent.", "it is an agent with keys"),
    ("dbus-", "it is D-Bus"),
    ("system_bus_socket", "it is D-Bus"),
    ("wayland-", "it is the user's desktop"),
    ("pipewire-", "it is the user's desktop"),
];

/// The path of a socket that may be let in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketPath(String);

/// Why a text is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SocketPathError {
    /// It is no path, or one of several for the same file.
    #[error("it is no absolute path without \".\", \"..\", empty parts and control characters")]
    NotPlain,
    /// It is too long.
    #[error("it has more than {MAX_PATH_BYTES} bytes")]
    TooLong,
    /// It is never let in.
    #[error("{0}, which no rule lets in")]
    Refused(&'static str),
}

impl SocketPath {
    /// Reads a path.
    ///
    /// # Errors
    /// [`SocketPathError`].
    pub fn parse(text: &str) -> Result<Self, SocketPathError> {
        if text.len() > MAX_PATH_BYTES {
            return Err(SocketPathError::TooLong);
        }
        let parts = text.strip_prefix('/').ok_or(SocketPathError::NotPlain)?;
        let is_plain = |part: &str| !["", ".", ".."].contains(&part) && !part.chars().any(char::is_control);
        if !parts.split('/').all(is_plain) {
            return Err(SocketPathError::NotPlain);
        }
        match refusal(text) {
            Some(why) => Err(SocketPathError::Refused(why)),
            None => Ok(Self(text.to_owned())),
        }
    }

    /// Reads a connection in one text, as `unix:/run/example.sock`. `None`: it is to something else.
    pub fn parse_connection(text: &str) -> Option<Result<Self, SocketPathError>> {
        text.strip_prefix(SOCKET_PREFIX).map(Self::parse)
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As a file.
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl fmt::Display for SocketPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SOCKET_PREFIX}{}", self.0)
    }
}

/// Why a socket with this name is never let in, if it is not: also of a name that a listener has bound.
pub fn refusal(path: &str) -> Option<&'static str> {
    // /var/run is another name of /run.
    let path = path.strip_prefix("/var").filter(|rest| rest.starts_with("/run/")).unwrap_or(path);
    let begins = |pattern: &str| {
        let mut parts = path.split('/');
        pattern.split('/').all(|own| parts.next().is_some_and(|part| own == "*" || own == part))
    };
    let name = path.rsplit('/').next().unwrap_or_default();
    let by_place = REFUSED.iter().find(|(pattern, _)| begins(pattern));
    by_place.or_else(|| REFUSED_NAMES.iter().find(|(start, _)| name.starts_with(start))).map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_has_one_path_and_those_of_the_users_session_have_none() {
        for plain in
            ["/run/docker.sock", "/run/user/1000/podman/podman.sock", "/srv/x y.sock", "/srv/wayland.sock"]
        {
            assert_eq!(SocketPath::parse(plain).expect(plain).to_string(), format!("unix:{plain}"));
        }
        for wrong in ["", "run/x", "/", "/run/", "/run//x", "/run/./x", "/run/../x", "/run/x\n", "@x"] {
            assert_eq!(SocketPath::parse(wrong), Err(SocketPathError::NotPlain), "{wrong:?}");
        }
        assert_eq!(SocketPath::parse(&format!("/{}", "x".repeat(255))), Err(SocketPathError::TooLong));
        for refused in [
            "/run/dbus/system_bus_socket",
            "/var/run/dbus/system_bus_socket",
            "/run/user/1000/bus",
            "/run/user/0/keyring/ssh",
            "/run/user/1000/gnupg/S.gpg-agent.ssh",
            "/home/u/.gnupg/S.gpg-agent",
            "/tmp/ssh-XXabc/agent.123",
            "/run/systemd/private",
            "/tmp/.X11-unix/X0",
            "/run/user/1000/wayland-0",
            "/run/user/1000/wayland-7",
            "/run/user/1000/pipewire-1-manager",
            "/home/u/runtime/wayland-display",
            "/tmp/dbus-abc",
            "/proc/1/root/run/docker.sock",
        ] {
            assert!(matches!(SocketPath::parse(refused), Err(SocketPathError::Refused(_))), "{refused}");
        }
        assert!(SocketPath::parse_connection("/run/docker.sock").is_none());
        assert!(SocketPath::parse_connection("unix:/run/docker.sock").is_some_and(|parsed| parsed.is_ok()));
    }
}
