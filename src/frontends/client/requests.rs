//! What every front end sends with a session and with a command because it is a property of the front end or of its own process; and texts
//! that are no UTF-8.
//!
//! By which front end a session was opened is a field of the session, which the journal records with it and with each decision. It is the
//! caller's claim, which the gateway does not check. The label of the same name is for rules, which may restrict by it and never
//! grant. A session that a program opened over gRPC itself has the field `grpc`, and no such label.

use std::{os::unix::ffi::OsStringExt, path::Path, sync::OnceLock};

use nix::sys::stat::{Mode, umask};
use prost::bytes::Bytes;

use crate::{
    byte_text, printable,
    proto::v1::{CreateSessionRequest, CreateTerminalRequest, create_terminal_request::Command},
};

/// The name of the label with the front end.
const FRONT_END_LABEL: &str = "front_end";
/// The longest name of a client that becomes a label, in bytes.
const CLIENT_NAME_MAX_BYTES: usize = 128;

/// A request with what this process gives to all of its commands: as if it started them itself. Front ends begin with it in place of an
/// empty one.
pub fn new_terminal() -> CreateTerminalRequest {
    CreateTerminalRequest {
        umask: own_umask(),
        search_path: own_search_path(),
        virtual_env: std::env::var_os("VIRTUAL_ENV").and_then(real_directory).unwrap_or_default(),
        ..Default::default()
    }
}

/// The gateway takes no more.
const SEARCH_PATH_MAX: usize = 256;

/// The directories in which a shell would look for the command, as they are named in the sandbox.
fn own_search_path() -> Vec<Bytes> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).filter_map(real_directory).take(SEARCH_PATH_MAX).collect()
}

fn real_directory(path: impl AsRef<Path>) -> Option<Bytes> {
    let path = path.as_ref();
    let real = path.is_absolute().then(|| path.canonicalize().ok())??;
    let is_directory = real.is_dir();
    is_directory.then(|| Bytes::from(real.into_os_string().into_vec()))
}

/// The umask with which this process was started.
static STARTED_WITH: OnceLock<u32> = OnceLock::new();
const OWNERS_BITS: Mode = Mode::S_IRWXU;

/// Remembers this process's umask for its commands, and takes the owner's bits out of it: what Provost makes for itself, it must be able
/// to use. To be called before there is another thread.
pub fn keep_umask() {
    let own = umask(Mode::S_IRWXG | Mode::S_IRWXO);
    umask(own.difference(OWNERS_BITS));
    STARTED_WITH.get_or_init(|| own.bits());
}

/// Where nothing was remembered it is read without changing it, unlike umask(2), so that no thread ever has another one. Absent where there
/// is no proc(5).
fn own_umask() -> Option<u32> {
    if let Some(own) = STARTED_WITH.get() {
        return Some(*own);
    }
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let digits = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(digits.trim(), 8).ok()
}

/// A request whose texts are in the form of [`byte_text`], as the gateway takes it: what is no UTF-8 in the fields for bytes.
pub fn terminal_in_bytes(mut request: CreateTerminalRequest) -> CreateTerminalRequest {
    request.command = request.command.map(|command| match command {
        Command::Program(text) if !is_plain(&text) => Command::ProgramBytes(bytes_of(&text)),
        Command::ShellLine(text) if !is_plain(&text) => Command::ShellLineBytes(bytes_of(&text)),
        plain => plain,
    });
    list_in_bytes(&mut request.args, &mut request.args_bytes);
    text_in_bytes(&mut request.cwd, &mut request.cwd_bytes);
    for variable in &mut request.env {
        text_in_bytes(&mut variable.name, &mut variable.name_bytes);
        text_in_bytes(&mut variable.value, &mut variable.value_bytes);
    }
    request
}

/// As [`terminal_in_bytes`], of a session.
pub fn session_in_bytes(mut request: CreateSessionRequest) -> CreateSessionRequest {
    list_in_bytes(&mut request.roots, &mut request.roots_bytes);
    list_in_bytes(&mut request.read_only_roots, &mut request.read_only_roots_bytes);
    text_in_bytes(&mut request.cwd, &mut request.cwd_bytes);
    request
}

fn is_plain(text: &str) -> bool {
    !text.chars().any(|c| byte_text::stand_in(c).is_some())
}

fn bytes_of(text: &str) -> Bytes {
    byte_text::to_bytes(text).into_owned().into()
}

fn text_in_bytes(text: &mut String, bytes: &mut Bytes) {
    if !is_plain(text) {
        *bytes = bytes_of(text);
        text.clear();
    }
}

fn list_in_bytes(texts: &mut Vec<String>, bytes: &mut Vec<Bytes>) {
    if !texts.iter().all(|text| is_plain(text)) {
        *bytes = texts.drain(..).map(|text| bytes_of(&text)).collect();
    }
}

/// The socket that `SSH_AUTH_SOCK` names, for `CreateSessionRequest.ssh_agent`; empty: none that can be named.
pub fn ssh_agent_socket() -> String {
    let socket = std::env::var("SSH_AUTH_SOCK").unwrap_or_default();
    if socket.starts_with('/') { socket } else { String::new() }
}

/// A front end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrontEnd {
    /// `provost run` and `provost shell`.
    Cli,
    /// `provost acp`, and programs that embed its terminals.
    Acp,
    /// `provost mcp`.
    Mcp,
    /// `provost shell-wrapper`.
    Shell,
    /// `provost exec-server`.
    ExecServer,
}

impl FrontEnd {
    /// The request as one of this front end: with its name in the field and in the label.
    #[must_use]
    pub fn sign(self, mut request: CreateSessionRequest) -> CreateSessionRequest {
        self.name().clone_into(&mut request.front_end);
        request.labels.insert(FRONT_END_LABEL.to_owned(), self.name().to_owned());
        request
    }

    fn name(self) -> &'static str {
        match self {
            Self::Cli => "cli",
            Self::Acp => "acp",
            Self::Mcp => "mcp",
            Self::Shell => "shell",
            Self::ExecServer => "exec-server",
        }
    }
}

/// The label with a client's name, as it says itself; none for one that has no name.
pub(crate) fn client_label(label: &str, name: &str) -> Option<(String, String)> {
    let name = printable::line(name);
    let name = printable::truncate(&name, CLIENT_NAME_MAX_BYTES);
    (!name.is_empty()).then(|| (label.to_owned(), name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signed_request_keeps_its_own_labels_and_cannot_name_another_front_end() {
        let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let request = CreateSessionRequest {
            labels: [own("team", "a"), own(FRONT_END_LABEL, "mcp")].into(),
            ..Default::default()
        };
        let signed = FrontEnd::Shell.sign(request);
        assert_eq!(signed.front_end, "shell");
        assert_eq!(signed.labels, [own("team", "a"), own(FRONT_END_LABEL, "shell")].into());
    }
}
