//! Converts what a supervisor reports into the outcome of a command, with what explains errors in the last output of one that failed by
//! the protections of its sandbox. Pure.
//!
//! Nobody sees a system call that fails, so only the words of programs tell: what is found is a hint, and said as one. Nothing of the
//! output itself is repeated.

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{
    printable,
    proto::{
        supervisor::{Exit, Started, StopCause, exit},
        v1::{
            ExitCause, MemoryPeakSource, Outcome, ProtectionHint, Unreachable, Usage,
            outcome::{self, End},
        },
    },
    sandbox::protections::{PlaceKind, ProtectedPlace, Protections},
    signal,
};

/// The most names of processes that ended with a command, and the bytes of each.
const ENDED_NAMES_MAX: usize = 8;
const ENDED_NAME_MAX_BYTES: usize = 64;

/// The outcome of a command whose end the supervisor saw.
pub(crate) fn reported(exit: &Exit) -> Outcome {
    let end = exit.end.map(|end| match end {
        exit::End::Code(code) => outcome::End::ExitCode(code),
        exit::End::Signal(number) => outcome::End::Signal(signal::name(number)),
    });
    let source = match exit.memory_peak_of_cgroup {
        true => MemoryPeakSource::Cgroup,
        false => MemoryPeakSource::LargestProcess,
    };
    Outcome {
        cause: cause(exit).into(),
        end,
        usage: Some(Usage {
            wall: Some(duration(Duration::from_micros(exit.wall_us))),
            cpu_user: Some(duration(Duration::from_micros(exit.cpu_user_us))),
            cpu_system: Some(duration(Duration::from_micros(exit.cpu_system_us))),
            memory_peak_bytes: exit.memory_peak_bytes,
            memory_peak_source: source.into(),
            io_read_bytes: exit.io_read_bytes,
            io_write_bytes: exit.io_write_bytes,
        }),
        started_at: Some(timestamp(nanoseconds(exit.started_at_ns))),
        ended_at: Some(timestamp(nanoseconds(exit.ended_at_ns))),
        survivors: exit.survivors,
        stragglers_killed: exit.stragglers_killed,
        ended_processes: exit.ended_processes,
        ended_commands: exit
            .ended_commands
            .iter()
            .take(ENDED_NAMES_MAX)
            .map(|name| shown_name(name))
            .collect(),
        core_dumped: exit.core_dumped,
        unreachable: exit.unreachable.as_ref().map(|reported| Unreachable {
            names: reported.names.clone(),
            names_omitted: reported.names_omitted,
            no_route: reported.no_route,
            ..Unreachable::default()
        }),
        ..Outcome::default()
    }
}

/// A command chooses its processes' names.
fn shown_name(name: &[u8]) -> String {
    printable::bounded_line(&String::from_utf8_lossy(name), ENDED_NAME_MAX_BYTES).into_owned()
}

/// The outcome of a command that went with its sandbox: nobody saw its end, so that there is no code. The cause is what it
/// was being ended for, if it was. The kernel had ended every process of the sandbox before this was known, but for those
/// that are counted as survivors.
pub(crate) fn lost(
    started: Option<&Started>,
    end_cause: Option<ExitCause>,
    survivors: u32,
    now: SystemTime,
) -> Outcome {
    let started_at = started.map(|started| nanoseconds(started.started_at_ns));
    let wall = started_at.and_then(|at| now.duration_since(at).ok());
    Outcome {
        end: None,
        cause: end_cause.unwrap_or(ExitCause::SandboxLost).into(),
        usage: wall.map(|wall| Usage { wall: Some(duration(wall)), ..Usage::default() }),
        started_at: started_at.map(timestamp),
        ended_at: Some(timestamp(now)),
        survivors,
        ..Outcome::default()
    }
}

/// What set the end in motion: ours if it was, else the kernel's, else the command's own.
fn cause(exit: &Exit) -> ExitCause {
    cause_of_stop(exit.stopped()).unwrap_or(match exit.end {
        _ if exit.memory_limit => ExitCause::MemoryLimit,
        Some(exit::End::Code(_)) => ExitCause::Exited,
        Some(exit::End::Signal(_)) => ExitCause::Signalled,
        None => ExitCause::SandboxLost,
    })
}

/// The cause of a stop that we began.
pub(crate) fn cause_of_stop(cause: StopCause) -> Option<ExitCause> {
    match cause {
        StopCause::Killed => Some(ExitCause::Killed),
        StopCause::TimeLimit => Some(ExitCause::TimeLimit),
        StopCause::IdleLimit => Some(ExitCause::IdleLimit),
        StopCause::Shutdown => Some(ExitCause::Shutdown),
        StopCause::Unspecified => None,
    }
}

fn nanoseconds(since_epoch: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(since_epoch)
}

/// A moment, in the protocol's words.
pub(crate) fn timestamp(at: SystemTime) -> prost_types::Timestamp {
    at.into()
}

fn duration(time: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        nanos: time.subsec_nanos().cast_signed(),
    }
}

/// How much of the end of each output is looked at, in bytes.
pub(in crate::terminal) const TAIL_BYTES: u64 = 16 << 10;
/// The most hints of one outcome.
const HINTS_MAX: usize = 4;
/// How far from the error, in lines, programs name its path.
const LINES_AROUND: usize = 12;
/// As a shell says that a process of its was ended by SIGSYS.
const EXIT_BY_SIGSYS: u32 = 128 + 31;

/// What programs print of an error, in small letters.
const READ_ONLY: [&str; 2] = ["read-only file system", "erofs"];
const BUSY: [&str; 2] = ["device or resource busy", "ebusy"];
const NOT_PERMITTED: [&str; 2] = ["operation not permitted", "eperm"];
const BAD_CALL: [&str; 2] = ["bad system call", "sigsys"];

/// What a line with EPERM is about, and what of it the system call filter refuses.
const FILTERED: [(&str, &str); 16] = [
    ("unshare", "new namespaces"),
    ("namespace", "new namespaces"),
    ("clone", "new namespaces"),
    ("setns", "entering namespaces"),
    ("mount", "mounts"),
    ("pivot_root", "mounts"),
    ("chroot", "chroot"),
    ("changing permissions", SET_ID_MODES),
    ("change permissions", SET_ID_MODES),
    ("preserving permissions", SET_ID_MODES),
    ("set permissions", SET_ID_MODES),
    ("change mode", SET_ID_MODES),
    ("chmod", SET_ID_MODES),
    ("perf_event", "perf events"),
    ("bpf", "programs in the kernel"),
    ("keyctl", "keyrings"),
];

const SET_ID_MODES: &str = "set-user-id modes, and set-group-id modes of files";

/// The hints for a command with this outcome and the ends of these outputs; none for one that ended well.
pub(in crate::terminal) fn hints(
    outcome: &Outcome,
    tails: &[String],
    known: &Protections,
    cwd: &Path,
) -> Vec<ProtectionHint> {
    if matches!(outcome.end, None | Some(End::ExitCode(0))) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for tail in tails {
        let lines: Vec<(&str, String)> = tail.lines().map(|line| (line, line.to_ascii_lowercase())).collect();
        let errors = |words: &[&str]| -> Vec<usize> {
            let has = |(_, line): &(&str, String)| words.iter().any(|word| line.contains(word));
            (0..lines.len()).filter(|at| has(&lines[*at])).collect()
        };
        let around = |errors: &[usize], kinds: &[PlaceKind]| {
            let place = |line: &str| named(line, known, kinds, cwd);
            let exact: Vec<_> = errors.iter().filter_map(|at| place(lines[*at].0)).collect();
            if !exact.is_empty() {
                return exact;
            }
            let near = |at: &usize| at.saturating_sub(LINES_AROUND)..(at + LINES_AROUND + 1).min(lines.len());
            errors.iter().flat_map(near).filter_map(|at| place(lines[at].0)).collect()
        };
        let read_only = errors(&READ_ONLY);
        let places = around(
            &read_only,
            &[
                PlaceKind::Protected,
                PlaceKind::Reserved,
                PlaceKind::ReadOnly,
                PlaceKind::ReadOnlyWorkspace,
                PlaceKind::Covered,
                PlaceKind::Mount,
            ],
        );
        found.extend(places.iter().map(|place| of_place("EROFS", place)));
        if !read_only.is_empty() && places.is_empty() {
            found.push(hint("EROFS", "", OUTSIDE, "filesystem.writable"));
        }
        let places = around(
            &errors(&BUSY),
            &[
                PlaceKind::Protected,
                PlaceKind::Reserved,
                PlaceKind::Above,
                PlaceKind::Covered,
                PlaceKind::Mount,
            ],
        );
        found.extend(places.iter().map(|place| of_place("EBUSY", place)));
        let filtered = errors(&NOT_PERMITTED).into_iter().filter_map(|at| {
            let (_, what) = FILTERED.iter().find(|(word, _)| lines[at].1.contains(word))?;
            Some(hint("EPERM", "", &format!("the system call filter refuses {what}"), "seccomp.enabled"))
        });
        found.extend(filtered);
        if !errors(&BAD_CALL).is_empty() {
            found.push(by_sigsys());
        }
    }
    let is_sigsys = match &outcome.end {
        Some(End::Signal(name)) => name == "SIGSYS",
        Some(End::ExitCode(code)) => *code == EXIT_BY_SIGSYS,
        None => false,
    };
    found.extend(is_sigsys.then(by_sigsys));
    let mut hints: Vec<ProtectionHint> = Vec::new();
    for hint in found {
        if hints.len() < HINTS_MAX && !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    hints
}

const OUTSIDE: &str = "what lies outside of the workspace, /tmp and the home is read-only, and so is what the workspace protects";

fn by_sigsys() -> ProtectionHint {
    let what =
        "the profile allows system calls of 64-bit programs only, and its filter ends a 32-bit program";
    hint("SIGSYS", "", what, "seccomp.enabled")
}

fn hint(error: &str, path: &str, protection: &str, key: &str) -> ProtectionHint {
    let own = str::to_owned;
    ProtectionHint { error: own(error), path: own(path), protection: own(protection), key: own(key) }
}

fn of_place(error: &str, place: &ProtectedPlace) -> ProtectionHint {
    const RUN_OUTSIDE: &str = "no command may change it, because people's tools run what is there, outside";
    let (protection, key) = match place.kind {
        PlaceKind::Protected => (RUN_OUTSIDE, "filesystem.protected"),
        PlaceKind::Reserved => (RUN_OUTSIDE, "filesystem.reserved"),
        PlaceKind::Above => {
            ("it has protected paths, and no command may rename or remove it", "filesystem.protected")
        }
        PlaceKind::ReadOnly => ("it is shown to be read", "read_only_roots, filesystem.read_only"),
        PlaceKind::ReadOnlyWorkspace => {
            ("the profile lets commands read the workspace only", "filesystem.workspace")
        }
        PlaceKind::Covered => (
            "a socket of the host is there, which is covered, and no command may use or remove it",
            "network.sockets",
        ),
        PlaceKind::Mount => (
            "a file system is mounted there in which the session does not work: it is another user's, the system's or shared by \
             all users, cannot be mapped to the commands' id, or was mounted after the session was opened",
            "roots",
        ),
    };
    hint(error, &place.path.to_string_lossy(), protection, key)
}

/// The innermost place of these kinds that a line names: by its whole path, or from the workspace or the working directory on.
fn named<'a>(
    line: &str,
    known: &'a Protections,
    kinds: &[PlaceKind],
    cwd: &Path,
) -> Option<&'a ProtectedPlace> {
    let is_named = |place: &&ProtectedPlace| {
        let starts = known.workspace.iter().map(AsRef::as_ref).chain([cwd]);
        let relative = starts.filter_map(|start| place.path.strip_prefix(start).ok());
        // The name of a socket is telling by itself.
        let name = place.path.file_name().map(Path::new).filter(|_| place.kind == PlaceKind::Covered);
        relative.chain(name).chain([place.path.as_path()]).any(|path| has_path(line, &path.to_string_lossy()))
    };
    let of_kind = known.places.iter().filter(|place| kinds.contains(&place.kind)).filter(is_named);
    of_kind.max_by_key(|place| place.path.as_os_str().len())
}

/// Whether a text has this path, or one below it, as whole names.
fn has_path(text: &str, path: &str) -> bool {
    let is_of_name =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.') || !byte.is_ascii();
    let is_whole = |(at, _): (usize, &str)| {
        let (before, after) = (text.as_bytes()[..at].last(), text.as_bytes().get(at + path.len()));
        !before.is_some_and(|byte| is_of_name(*byte)) && !after.is_some_and(|byte| is_of_name(*byte))
    };
    !path.is_empty() && text.match_indices(path).any(is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_did_wins_over_how_it_looks() {
        let mut exit = Exit { end: Some(exit::End::Signal(9)), ..Exit::default() };
        assert_eq!(cause(&exit), ExitCause::Signalled);
        exit.memory_limit = true;
        assert_eq!(cause(&exit), ExitCause::MemoryLimit);
        exit.stopped = StopCause::TimeLimit.into();
        assert_eq!(cause(&exit), ExitCause::TimeLimit);
    }

    #[test]
    fn a_lost_command_has_neither_code_nor_signal() {
        for (ends_for, cause) in
            [(None, ExitCause::SandboxLost), (Some(ExitCause::TimeLimit), ExitCause::TimeLimit)]
        {
            let outcome = lost(Some(&Started::default()), ends_for, 0, SystemTime::now());
            assert_eq!((outcome.end.clone(), outcome.cause()), (None, cause));
        }
        assert_eq!(reported(&Exit::default()).cause(), ExitCause::SandboxLost);
    }

    fn known() -> Protections {
        let place = |path: &str, kind| ProtectedPlace { path: path.into(), kind };
        Protections {
            workspace: vec!["/w".into()],
            places: vec![
                place("/w/.git", PlaceKind::Above),
                place("/w/.git/hooks", PlaceKind::Reserved),
                place("/w/.npmrc", PlaceKind::Protected),
                place("/w/run/s.sock", PlaceKind::Covered),
            ],
        }
    }

    fn said(end: End, text: &str) -> Vec<(String, String)> {
        let outcome = Outcome { end: Some(end), ..Outcome::default() };
        let found = hints(&outcome, &[text.to_owned()], &known(), Path::new("/w/run"));
        found.into_iter().map(|one| (one.error, one.path)).collect()
    }

    #[test]
    fn the_path_is_found_in_what_programs_say() {
        for text in [
            "npm error EROFS: read-only file system, open '/w/.git/hooks/pre-commit'",
            "sh: 1: cannot create .git/hooks/pre-commit: Read-only file system",
            "OSError: [Errno 30] Read-only file system: '/w/.git/hooks'",
            "npm error code EROFS\nnpm error syscall open\nnpm error path /w/.git/hooks/x\nnpm error errno -30",
            "cp: cannot create regular file '../.git/hooks/x': Read-only file system\r",
        ] {
            let expected = [("EROFS".to_owned(), "/w/.git/hooks".to_owned())];
            assert_eq!(said(End::ExitCode(1), text), expected, "{text}");
        }
        let moved = "mv: cannot move '.git' to 'x': Device or resource busy";
        assert_eq!(said(End::ExitCode(1), moved), [("EBUSY".into(), "/w/.git".into())]);
        for removed in [
            "rm: cannot remove 's.sock': Device or resource busy",
            "warning: failed to remove run/s.sock: Device or resource busy",
        ] {
            assert_eq!(
                said(End::ExitCode(1), removed),
                [("EBUSY".into(), "/w/run/s.sock".into())],
                "{removed}"
            );
        }
    }

    #[test]
    fn an_error_without_such_a_path_is_told_generally_or_not_at_all() {
        let elsewhere = "touch: cannot touch '/usr/x': Read-only file system";
        assert_eq!(said(End::ExitCode(1), elsewhere), [("EROFS".into(), String::new())]);
        assert_eq!(said(End::ExitCode(1), "umount: /m.git: Device or resource busy"), []);
        assert_eq!(said(End::ExitCode(1), "kill: (1) - Operation not permitted"), []);
        let filtered = "unshare: unshare failed: Operation not permitted";
        assert_eq!(said(End::ExitCode(1), filtered), [("EPERM".into(), String::new())]);
        for end in [End::ExitCode(159), End::Signal("SIGSYS".into())] {
            assert_eq!(said(end, "Bad system call"), [("SIGSYS".into(), String::new())]);
        }
        assert_eq!(said(End::ExitCode(0), elsewhere), [], "it ended well");
        assert_eq!(said(End::ExitCode(1), "my.npmrc: fine"), []);
    }

    #[test]
    fn there_are_not_too_many_and_none_twice() {
        let outcome = Outcome { end: Some(End::ExitCode(1)), ..Outcome::default() };
        let text =
            format!("{}\n{}", "chmod: Operation not permitted\n".repeat(9), "mount: x bpf keyctl: EPERM");
        assert_eq!(hints(&outcome, &[text.clone(), text], &known(), Path::new("/w")).len(), 2);
    }
}
