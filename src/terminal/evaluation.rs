//! Judging a request where its session is: directories by where they really are, names by the files that the sandbox of
//! the profile will show.
//!
//! Looks at the host and asks policy; nothing is taken, started or remembered.

use crate::{
    policy::{
        self, CommandSpec, Denial, Evaluation, EvaluationTrace, Permit, PolicySet, Request,
        explain::Explanation,
    },
    resolve::{ProgramCache, SessionResolver},
    session::{EscapesRoot, Session},
};

/// Requests of so many bytes at most are judged where they come in.
const INLINE_MAX_BYTES: usize = 4 << 10;

/// Whether judging looks at no file system that the caller has chosen, and takes no time: a short command whose words
/// name no path but a program's of the host, in one of the session's roots itself. All others are judged on a thread of
/// the pool.
pub(super) fn can_evaluate_inline(session: &Session, request: &Request) -> bool {
    let plain = |word: &String| !word.contains('/');
    let is_plain = match &request.command {
        CommandSpec::ShellLine(line) => plain(line),
        CommandSpec::Argv { command, args } => {
            let of_host = HOST_PROGRAMS.iter().any(|place| command.starts_with(place));
            (plain(command) || of_host) && !command.contains("..") && args.iter().all(plain)
        }
    };
    is_plain && command_bytes(request) <= INLINE_MAX_BYTES && session.roots.contains(&request.cwd)
}

/// Requests of more bytes are judged one at a time for each user.
const LARGE_BYTES: usize = 64 << 10;

/// Whether judging takes much time and memory.
pub(super) fn is_large(request: &Request) -> bool {
    command_bytes(request) > LARGE_BYTES
}

/// Of the command, as its caller wrote it.
pub(super) fn command_bytes(request: &Request) -> usize {
    match &request.command {
        CommandSpec::ShellLine(line) => line.len(),
        CommandSpec::Argv { command, args } => {
            command.len() + args.iter().map(|word| word.len() + 1).sum::<usize>()
        }
    }
}

/// Where the host has its programs: no caller's file system is there.
const HOST_PROGRAMS: [&str; 4] = ["/usr/bin/", "/bin/", "/usr/sbin/", "/sbin/"];

/// Judges, with a person's yes where there is one. The working directory is then the one that was judged. What the
/// journal is to say of it is in the minutes.
pub(super) fn evaluate(
    policy: &PolicySet,
    session: &Session,
    request: &mut Request,
    program_cache: &ProgramCache,
    approval: Option<policy::ApprovalGrant>,
    trace: &mut EvaluationTrace,
) -> Result<Permit, Denial> {
    *trace = EvaluationTrace::default();
    resolve_cwd(session, request)?;
    let judged = policy::judge_with_minutes(
        policy,
        request,
        &resolvers(session, request, program_cache),
        approval,
        trace,
    );
    for (rule, decision) in &trace.observed {
        tracing::info!(rule, %decision, principal = request.principal, "a rule that observes would have decided");
    }
    judged
}

/// Says what judging would come to, and why.
pub(super) fn explain(
    policy: &PolicySet,
    session: &Session,
    request: &Request,
    program_cache: &ProgramCache,
) -> Explanation {
    let mut request = request.clone();
    let heard =
        resolve_cwd(session, &mut request).and_then(|()| hear(policy, session, &request, program_cache));
    Explanation::new(policy, &heard)
}

fn hear(
    policy: &PolicySet,
    session: &Session,
    request: &Request,
    program_cache: &ProgramCache,
) -> Result<Evaluation, Denial> {
    policy::evaluate(policy, request, &resolvers(session, request, program_cache))
}

/// A working directory is judged by where it really is. What changes after this leads nowhere: the command enters
/// the directory without following a link. One that is not there is refused by who enters it.
fn resolve_cwd(session: &Session, request: &mut Request) -> Result<(), Denial> {
    match session.locate(&request.cwd) {
        Ok(real) => {
            request.cwd = real;
            Ok(())
        }
        Err(EscapesRoot) => Err(Denial::CwdOutsideRoots(request.cwd.clone())),
    }
}

fn resolvers<'a>(
    session: &Session,
    request: &Request,
    program_cache: &'a ProgramCache,
) -> SessionResolver<'a> {
    let roots = request.roots.iter().map(|root| root.as_path().to_owned()).collect();
    SessionResolver::new(roots, session.rights.clone(), program_cache)
}
