//! What every front end sends with a command because it is a property of the front end's own process.

use crate::proto::v1::CreateTerminalRequest;

/// A request with what this process gives to all of its commands: as if it started them itself. Front ends begin with it in place of an
/// empty one.
pub fn new_terminal() -> CreateTerminalRequest {
    CreateTerminalRequest { umask: own_umask(), ..Default::default() }
}

/// Read without changing it, unlike umask(2), so that no thread ever has another one. Absent where there is no proc(5).
fn own_umask() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let digits = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(digits.trim(), 8).ok()
}
