//! Judging a request where its session is: folders by where they really are, names by the files that the sandbox of
//! the profile will show.
//!
//! Looks at the host and asks policy; nothing is taken, started or remembered.

use crate::{
    policy::{self, Denial, Hearing, Minutes, Permit, PolicySet, Program, Request, explain::Explanation},
    sandbox::programs::{Remembered, SessionViews},
    session::{LeadsOut, Session},
};

/// Requests of so many bytes at most are judged where they come in.
const AT_ONCE_BYTES: usize = 4 << 10;

/// Whether judging looks at no file system that the caller has chosen, and takes no time: a short command whose words
/// name no path but a program's of the host, in one of the session's roots itself. All others are judged on a thread of
/// the pool.
pub(super) fn is_settled_at_once(session: &Session, request: &Request) -> bool {
    let plain = |word: &String| !word.contains('/');
    let is_plain = match &request.program {
        Program::ShellLine(line) => plain(line),
        Program::Command { command, args } => {
            let of_host = HOST_PROGRAMS.iter().any(|place| command.starts_with(place));
            (plain(command) || of_host) && !command.contains("..") && args.iter().all(plain)
        }
    };
    is_plain && bytes(request) <= AT_ONCE_BYTES && session.roots.contains(&request.cwd)
}

/// Requests of more bytes are judged one at a time for each user.
const LARGE_BYTES: usize = 64 << 10;

/// Whether judging takes much time and memory.
pub(super) fn is_large(request: &Request) -> bool {
    bytes(request) > LARGE_BYTES
}

/// Of the command, as its caller wrote it.
pub(super) fn bytes(request: &Request) -> usize {
    match &request.program {
        Program::ShellLine(line) => line.len(),
        Program::Command { command, args } => {
            command.len() + args.iter().map(|word| word.len() + 1).sum::<usize>()
        }
    }
}

/// Where the host has its programs: no caller's file system is there.
const HOST_PROGRAMS: [&str; 4] = ["/usr/bin/", "/bin/", "/usr/sbin/", "/sbin/"];

/// Judges, with a person's yes where there is one. The working folder is then the one that was judged. What the
/// journal is to say of it is in the minutes.
pub(super) fn judge(
    policy: &PolicySet,
    session: &Session,
    request: &mut Request,
    remembered: &Remembered,
    yes: Option<policy::Approval>,
    minutes: &mut Minutes,
) -> Result<Permit, Denial> {
    *minutes = Minutes::default();
    locate(session, request)?;
    let judged =
        policy::judge_with_minutes(policy, request, &views(session, request, remembered), yes, minutes);
    for (rule, decision) in &minutes.observed {
        tracing::info!(rule, %decision, principal = request.principal, "a rule that observes would have decided");
    }
    judged
}

/// Says what judging would come to, and why.
pub(super) fn explain(
    policy: &PolicySet,
    session: &Session,
    request: &Request,
    remembered: &Remembered,
) -> Explanation {
    let mut request = request.clone();
    let heard = locate(session, &mut request).and_then(|()| hear(policy, session, &request, remembered));
    Explanation::of(policy, &heard)
}

fn hear(
    policy: &PolicySet,
    session: &Session,
    request: &Request,
    remembered: &Remembered,
) -> Result<Hearing, Denial> {
    policy::hear(policy, request, &views(session, request, remembered))
}

/// A working folder is judged by where it really is. What changes after this leads nowhere: the command enters
/// the folder without following a link. One that is not there is refused by who enters it.
fn locate(session: &Session, request: &mut Request) -> Result<(), Denial> {
    match session.locate(&request.cwd) {
        Ok(real) => {
            request.cwd = real;
            Ok(())
        }
        Err(LeadsOut) => Err(Denial::Cwd(request.cwd.clone())),
    }
}

fn views<'a>(session: &Session, request: &Request, remembered: &'a Remembered) -> SessionViews<'a> {
    let roots = request.roots.iter().map(|root| root.as_path().to_owned()).collect();
    SessionViews::new(roots, session.rights.clone(), remembered)
}
