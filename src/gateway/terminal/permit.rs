//! Gets a permit for a request from policy.
//!
//! A request is evaluated on this host: its working directory after all links, its program names by the files that the sandbox of the
//! profile shows. Where a rule asks, a person is asked (`approvals`), and the request is evaluated again. Starts nothing and reserves
//! nothing. A decision that does not allow the request is recorded here; one that does is recorded with the command's start.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use nix::unistd::geteuid;

use crate::{
    journal::{DecisionRecord, Record},
    policy::{
        AbsPath, ApprovalGrant, CommandSpec, Denial, EvaluationTrace, Permit, PolicySet, Request,
        command::rule::{Decision, Rule},
        explain::Explanation,
        profile::{Profile, ToolchainHomes},
        toolchain::ToolchainOrder,
    },
    pool::PoolError,
    resolve::{ProgramCache, SessionResolver},
    sandbox::roots::governing::Governing,
    session::{EscapesRoot, FILESYSTEM_TIMEOUT, Session, Toolchains},
    sys::allocator,
    terminal::{
        approvals::CallerGuard,
        errors::{ApprovalError, CreateError},
        recorder::CountedOnly,
        records,
        spec::Requested,
        terminals::Terminals,
    },
};

/// How long the evaluation of a large request may take.
const LARGE_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Requests of at most this size are evaluated on the thread that received them.
const INLINE_MAX_BYTES: usize = 4 << 10;

impl Terminals {
    /// Asks policy for a permit, and a person where a rule says so. After the answer policy decides again, because
    /// files, links and the policy may have changed meanwhile. The record of the decision comes with the permit; its terminal is not in it.
    pub(super) async fn permit(
        &self,
        requested: &mut Requested,
        caller: &CallerGuard,
    ) -> Result<(Permit, DecisionRecord), CreateError> {
        let mut grant: Option<ApprovalGrant> = None;
        let (mut approval_id, mut asked_in) = (None, None);
        loop {
            let (policy, begun) = (self.policy.current(), Instant::now());
            let (decided, trace) = self.evaluate(&policy, requested, grant.take()).await?;
            self.counters.timings.judge.observe(begun.elapsed());
            let decision = decided.as_ref().map_or_else(Denial::decision, |_| Decision::Allow);
            self.counters.decisions.inc(decision);
            let Requested { session, request, .. } = &*requested;
            let denial = match decided {
                Ok(permit) => {
                    let allowed = records::allowed(session, request, &permit, &trace);
                    return Ok((permit, records::with_approval(allowed, approval_id, asked_in)));
                }
                Err(denial) => denial,
            };
            let denied = records::denied(session, request, &denial, policy.generation(), &trace);
            let mut record = Record::Decision(records::with_approval(denied, approval_id, None));
            self.known_secrets.redactor(&policy).redact(&mut record);
            let recorded = self.recorder.record_denial(&record).await;
            let Denial::NeedsApproval(question) = denial else { return Err(CreateError::Denied(denial)) };
            // Nobody is asked about a decision that is not in the journal.
            asked_in = recorded?.map_err(|CountedOnly| CreateError::RefusalRateExceeded)?;
            if approval_id.is_some() {
                return Err(ApprovalError::Changed(question).into());
            }
            let (id, granted) = self.ask(requested, question, caller).await?;
            (approval_id, grant) = (Some(id), Some(granted));
        }
    }

    /// Evaluates a request and decides, with an approval where there is one: at once, or on a thread of the pool. With the decision
    /// comes what the journal keeps of the evaluation. The request's working directory is then the resolved one.
    ///
    /// # Errors
    /// When the file systems of the caller do not answer: policy has then not decided.
    async fn evaluate(
        &self,
        policy: &Arc<PolicySet>,
        Requested { session, request, .. }: &mut Requested,
        approval: Option<ApprovalGrant>,
    ) -> Result<(Result<Permit, Denial>, EvaluationTrace), PoolError> {
        let (is_inline, is_large) = (can_evaluate_inline(policy, session, request), is_large(request));
        let (policy, session, program_cache) = (policy.clone(), session.clone(), self.program_cache.clone());
        let (uid, governing) = (session.principal.uid, self.launch_context.governing.clone());
        let mut resolved = request.clone();
        let work = move || {
            let evaluation = match resolve_cwd(&session, &mut resolved) {
                Ok(()) => policy.evaluate(
                    &resolved,
                    &resolvers(&policy, &session, &governing, &resolved, &program_cache),
                ),
                Err(denial) => policy.deny(denial),
            };
            let trace = evaluation.trace();
            for (rule, decision) in &trace.observed {
                let principal = &resolved.principal;
                tracing::info!(rule, %decision, principal, "a rule in mode observe would have decided");
            }
            (evaluation.decide(approval), trace, resolved)
        };
        let (decided, trace, resolved) = match (is_inline, is_large) {
            (true, _) => work(),
            (false, true) => self.on_large_request_pool(uid, work).await?,
            (false, false) => self.launch_context.pool.run(uid, FILESYSTEM_TIMEOUT, work).await?,
        };
        *request = resolved;
        Ok((decided, trace))
    }

    /// Does what a large request asks for, one at a time of each user, and gives the memory that it took back to the system: freed memory
    /// would stay in the allocator's arenas.
    ///
    /// # Errors
    /// [`PoolError`].
    pub(crate) async fn on_large_request_pool<T: Send + 'static>(
        &self,
        uid: u32,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        let work = || {
            let done = work();
            allocator::trim();
            done
        };
        self.launch_context.large_request_pool.run(uid, LARGE_REQUEST_TIMEOUT, work).await
    }

    /// Explains what policy would decide about a request, without running it.
    ///
    /// # Errors
    /// When the file systems of the caller do not answer.
    pub(crate) async fn explain(&self, requested: &Requested) -> Result<Explanation, PoolError> {
        let (policy, program_cache) = (self.policy.current(), self.program_cache.clone());
        let (session, mut request) = (requested.session.clone(), requested.request.clone());
        let (uid, governing) = (session.principal.uid, self.launch_context.governing.clone());
        let explain = move || {
            let evaluation = match resolve_cwd(&session, &mut request) {
                Ok(()) => policy
                    .evaluate(&request, &resolvers(&policy, &session, &governing, &request, &program_cache)),
                Err(denial) => policy.deny(denial),
            };
            Explanation::new(&evaluation)
        };
        self.launch_context.pool.run(uid, FILESYSTEM_TIMEOUT, explain).await
    }
}

/// Whether an evaluation is quick and looks at no file system that the caller has chosen: a short command whose words
/// name no path except that of a host's program, in one of the session's roots itself. All others are evaluated on a
/// thread of the pool.
fn can_evaluate_inline(policy: &PolicySet, session: &Session, request: &Request) -> bool {
    if names_toolchains(policy, session) {
        // Another user's home is another user's file system.
        let is_known = |toolchains: &Toolchains| {
            toolchains.found.is_empty() || toolchains.order == ToolchainOrder::HomeFirst
        };
        if !session.known_toolchains().is_some_and(is_known) {
            return false;
        }
    }
    // What a person approves holds for a directory, and so may a rule: both are looked at.
    let looks = |rule: &Rule| rule.decision == Decision::Ask || rule.reads_directory();
    if policy.rules().iter().any(looks) {
        return false;
    }
    let plain = |word: &String| !word.contains('/');
    let is_plain = match &request.command {
        CommandSpec::ShellLine(line) => plain(line),
        CommandSpec::Argv { command, args } => {
            let of_host = HOST_PROGRAMS.iter().any(|place| command.starts_with(place));
            (plain(command) || of_host) && !command.contains("..") && args.iter().all(plain)
        }
    };
    // Programs are looked for there, too.
    let is_searched = |directory: &AbsPath| session.roots.iter().any(|root| directory.is_within(root));
    is_plain
        && command_bytes(request) <= INLINE_MAX_BYTES
        && session.roots.contains(&request.cwd)
        && !request.search_path.iter().any(is_searched)
}

/// Whether a profile shows anything of this caller's home.
fn names_toolchains(policy: &PolicySet, session: &Session) -> bool {
    let is_own = session.rights.uid == geteuid().as_raw();
    let shows = |profile: &Profile| {
        !profile.toolchains.is_empty() && (is_own || profile.toolchain_homes == ToolchainHomes::Callers)
    };
    policy.profiles().any(|(_, profile)| shows(profile))
}

/// Larger requests are evaluated one at a time for each user.
const LARGE_BYTES: usize = 64 << 10;

/// Whether an evaluation takes much time and memory.
fn is_large(request: &Request) -> bool {
    command_bytes(request) > LARGE_BYTES
}

/// The size of the command, as its caller wrote it.
pub(super) fn command_bytes(request: &Request) -> usize {
    match &request.command {
        CommandSpec::ShellLine(line) => line.len(),
        CommandSpec::Argv { command, args } => {
            command.len() + args.iter().map(|word| word.len() + 1).sum::<usize>()
        }
    }
}

/// Where the host has its programs. No caller's file system is mounted there.
const HOST_PROGRAMS: [&str; 4] = ["/usr/bin/", "/bin/", "/usr/sbin/", "/sbin/"];

/// Replaces the working directory by the one that it leads to. A link that is made later leads nowhere, because the
/// command enters the directory without following links. A directory that does not exist is refused at that point.
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
    policy: &PolicySet,
    session: &'a Session,
    governing: &Governing,
    request: &Request,
    program_cache: &'a ProgramCache,
) -> SessionResolver<'a> {
    let roots = request.roots.iter().map(|root| root.as_path().to_owned()).collect();
    let named = session.linked_names().into_iter().map(|one| (one.name, one.real)).collect();
    let resolver = SessionResolver::new(roots, session.rights.clone(), program_cache).with_names(named);
    if !names_toolchains(policy, session) {
        return resolver;
    }
    let toolchains = session.toolchains(governing);
    resolver.with_toolchains(&toolchains.found, toolchains.order)
}
