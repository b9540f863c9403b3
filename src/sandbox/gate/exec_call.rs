//! An exec as its system call's arguments say it. Pure.

use nix::errno::Errno;

use crate::{
    caller::StartDirectory, policy::command::interpreter::interpreted_argv, resolve::shebang::Shebang,
    sys::seccomp_listener::NotifiedCall,
};

/// A notified exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ExecCall {
    /// The notification.
    pub(super) id: u64,
    /// The caller, in the host's pid namespace.
    pub(super) thread: i32,
    /// Where its path begins.
    pub(super) from: StartDirectory,
    /// Addresses in the caller's memory.
    pub(super) path: u64,
    pub(super) argv: u64,
    pub(super) env: u64,
    /// `AT_*`.
    pub(super) flags: i32,
}

/// `AT_EXECVE_CHECK`, since Linux 6.14: the exec is checked and not done.
const CHECK_ONLY: i32 = 0x10000;
const KNOWN_FLAGS: i32 = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW | CHECK_ONLY;

impl ExecCall {
    /// # Errors
    /// `ENOSYS` for a call that the filter does not notify, `EINVAL` for unknown flags.
    pub(super) fn of(call: &NotifiedCall) -> Result<Self, Errno> {
        let [first, second, third, fourth, fifth, _] = call.arguments;
        let common = Self {
            id: call.id,
            thread: call.thread,
            from: StartDirectory::Working,
            path: first,
            argv: second,
            env: third,
            flags: 0,
        };
        match i64::from(call.number) {
            libc::SYS_execve => Ok(common),
            libc::SYS_execveat => {
                // The kernel looks at the lower half.
                let flags = fifth as i32;
                if flags & !KNOWN_FLAGS != 0 {
                    return Err(Errno::EINVAL);
                }
                let from = StartDirectory::of(first);
                Ok(Self { from, path: second, argv: third, env: fourth, flags, ..common })
            }
            _ => Err(Errno::ENOSYS),
        }
    }
}

/// The name under which the kernel hands a script to its interpreter (fs/exec.c, `alloc_bprm`).
pub(super) fn script_name(from: StartDirectory, path: &[u8]) -> Vec<u8> {
    match from {
        StartDirectory::Descriptor(number) if !path.starts_with(b"/") => {
            let mut name = format!("/dev/fd/{number}").into_bytes();
            if !path.is_empty() {
                name.push(b'/');
                name.extend_from_slice(path);
            }
            name
        }
        StartDirectory::Working | StartDirectory::Descriptor(_) => path.to_vec(),
    }
}

/// The arguments that a program gets, after the interpreters of a script have taken its name in turn, that of the script first.
pub(super) fn final_arguments(script: Vec<u8>, argv: &[Vec<u8>], lines: &[Shebang]) -> Vec<Vec<u8>> {
    match (lines, argv) {
        // Since Linux 5.18 an empty vector gets one empty string.
        ([], []) => vec![Vec::new()],
        ([], argv) => argv.to_vec(),
        (lines, argv) => {
            let lines = lines.iter().map(|line| (line.path.clone(), line.argument.clone()));
            interpreted_argv(script, argv.iter().skip(1).cloned(), lines)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(texts: &[&str]) -> Vec<Vec<u8>> {
        texts.iter().map(|text| text.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_program_gets_its_arguments_as_they_are_and_never_none() {
        assert_eq!(final_arguments(b"/bin/x".to_vec(), &strings(&["x", "y"]), &[]), strings(&["x", "y"]));
        assert_eq!(final_arguments(b"/bin/x".to_vec(), &[], &[]), strings(&[""]));
    }

    #[test]
    fn interpreters_take_the_name_of_the_script_and_stand_before_it() {
        let argv = strings(&["zero", "one"]);
        let line = |path: &str, argument: Option<&str>| Shebang {
            path: path.into(),
            argument: argument.map(Into::into),
        };
        let name = || b"./s".to_vec();
        assert_eq!(
            final_arguments(name(), &argv, &[line("/bin/sh", Some("-e x"))]),
            strings(&["/bin/sh", "-e x", "./s", "one"])
        );
        assert_eq!(final_arguments(name(), &[], &[line("/bin/sh", None)]), strings(&["/bin/sh", "./s"]));
        assert_eq!(
            final_arguments(name(), &argv, &[line("/opt/i", Some("a")), line("/usr/bin/env", None)]),
            strings(&["/usr/bin/env", "/opt/i", "a", "./s", "one"])
        );
    }

    #[test]
    fn a_script_that_is_executed_by_descriptor_is_named_by_it() {
        assert_eq!(script_name(StartDirectory::Descriptor(7), b""), b"/dev/fd/7");
        assert_eq!(script_name(StartDirectory::Descriptor(7), b"a/b"), b"/dev/fd/7/a/b");
        assert_eq!(script_name(StartDirectory::Descriptor(7), b"/a"), b"/a");
        assert_eq!(script_name(StartDirectory::Working, b"a"), b"a");
    }
}
