//! Where the SSH agent of this process's user listens.

/// The socket that `SSH_AUTH_SOCK` names, for `CreateSessionRequest.ssh_agent`; empty: none that can be named.
pub fn ssh_agent_socket() -> String {
    let socket = std::env::var("SSH_AUTH_SOCK").unwrap_or_default();
    if socket.starts_with('/') { socket } else { String::new() }
}
