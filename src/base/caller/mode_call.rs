//! A change of mode as its system call's arguments say it. Pure.

use nix::errno::Errno;

use super::{StartDirectory, walk::LastLink};
use crate::sys::seccomp_listener::NotifiedCall;

/// chmod(2), fchmod(2), fchmodat(2) or fchmodat2(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModeCall {
    pub(super) target: Target,
    /// Permissions, set-id and sticky bits; the kernel drops the rest.
    pub(super) mode: u32,
}

/// What is to be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// What the caller has open under this number, and not by `O_PATH`.
    Open(i32),
    Path {
        from: StartDirectory,
        /// In the caller's memory.
        address: u64,
        last: LastLink,
        /// Whether an empty path is the start itself.
        may_be_empty: bool,
    },
}

/// fchmodat2(2), which libc does not have for every machine.
const FCHMODAT2: libc::c_long = 452;

const MODE_BITS: u32 = 0o7777;

impl ModeCall {
    /// `None`: it is another call.
    ///
    /// # Errors
    /// `EINVAL` for flags that the kernel does not know.
    #[must_use]
    pub fn of(call: &NotifiedCall) -> Option<Result<Self, Errno>> {
        let [first, second, third, fourth, ..] = call.arguments;
        let path =
            |from, address| Target::Path { from, address, last: LastLink::Follow, may_be_empty: false };
        let (target, mode) = match libc::c_long::from(call.number) {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chmod => (path(StartDirectory::Working, first), second),
            libc::SYS_fchmod => (Target::Open(first as i32), second),
            libc::SYS_fchmodat => (path(StartDirectory::of(first), second), third),
            FCHMODAT2 => {
                let flags = fourth as i32;
                if flags & !(libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH) != 0 {
                    return Some(Err(Errno::EINVAL));
                }
                let last = match flags & libc::AT_SYMLINK_NOFOLLOW {
                    0 => LastLink::Follow,
                    _ => LastLink::Refuse,
                };
                let may_be_empty = flags & libc::AT_EMPTY_PATH != 0;
                let from = StartDirectory::of(first);
                (Target::Path { from, address: second, last, may_be_empty }, third)
            }
            _ => return None,
        };
        Some(Ok(Self { target, mode: mode as u32 & MODE_BITS }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(number: libc::c_long, arguments: [u64; 4]) -> Option<Result<ModeCall, Errno>> {
        let [first, second, third, fourth] = arguments;
        let number = i32::try_from(number).unwrap();
        ModeCall::of(&NotifiedCall {
            id: 1,
            thread: 2,
            number,
            arguments: [first, second, third, fourth, 0, 0],
        })
    }

    #[test]
    fn each_call_has_its_arguments_in_its_own_places() {
        let here = -100_i32 as u32;
        let path = |from, last, may_be_empty| Target::Path { from, address: 77, last, may_be_empty };
        let follow = path(StartDirectory::Working, LastLink::Follow, false);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(
            of(libc::SYS_chmod, [77, 0o42775, 0, 0]),
            Some(Ok(ModeCall { target: follow, mode: 0o2775 }))
        );
        for (number, arguments, target) in [
            (libc::SYS_fchmod, [5 | 1 << 32, 0o2775, 0, 0], Target::Open(5)),
            (libc::SYS_fchmodat, [here.into(), 77, 0o2775, 0x100], follow),
            (
                libc::SYS_fchmodat,
                [3, 77, 0o2775, 0],
                path(StartDirectory::Descriptor(3), LastLink::Follow, false),
            ),
            (FCHMODAT2, [3, 77, 0o2775, 0x1100], path(StartDirectory::Descriptor(3), LastLink::Refuse, true)),
        ] {
            assert_eq!(of(number, arguments), Some(Ok(ModeCall { target, mode: 0o2775 })), "{number}");
        }
        assert_eq!(of(FCHMODAT2, [3, 77, 0o2775, 0x400]), Some(Err(Errno::EINVAL)));
        assert_eq!(of(libc::SYS_execve, [1, 2, 3, 4]), None);
    }
}
