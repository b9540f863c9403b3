//! From a notified exec to its verdict: an exec that was read is held against the policy; it is answered, held, or let go on under
//! verification. Other calls are answered at once.
//!
//! Most tools execute the same thing again and again: a verdict is used again for a moment, for the same terminal, path, arguments (those
//! of the call and those that the kernel makes of them), directory, files and first lines of scripts, under the same policy.

use std::{
    cell::{OnceCell, RefCell},
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    os::fd::AsFd,
    rc::Rc,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags},
    sys::{
        stat::fstatat,
        statvfs::{FsFlags, fstatvfs},
    },
};
use sha2::{Digest as _, Sha256};

use super::{
    EvaluatedExec, Gate, Verification,
    exec_call::{
        ExecCall, LastLink, Lookup, ReadExec, ReadFailure, ReadFile, Wanted, check_executable, describe_call,
        read,
    },
    process::{Caller, FileVersion, HostProc},
    terminals::Terminal,
};
use crate::{
    byte_text,
    caller::{ModeCall, change_mode},
    policy::{
        ApprovedCommand, ExecDecision, ExecRequest, ExecVerdict, PolicySet,
        command::program::{Directory, FileId, Interpreter, PathStability, ProgramResolver, Resolved},
        profile::Profile,
    },
    proto::gate::{Exec, ask_ended::End, exec_denied::Cause, from_gate},
    resolve::found_file::Shebang,
    sys::{
        ptrace,
        seccomp_listener::{self, CallAnswer, NotifiedCall},
    },
};

/// Names of programs that are remembered.
pub(super) const MAX_NAMES: usize = 4_096;
/// How long a name means the file that was found.
const NAME_LIFETIME: Duration = Duration::from_secs(1);

/// One exec is described to people with this many arguments, and with so many bytes.
const MAX_DESCRIBED_ARGUMENTS: usize = 32;
const MAX_DESCRIBED_BYTES: usize = 4 << 10;

/// Programs by their names, for a second.
#[derive(Debug, Default)]
pub(super) struct ProgramNames {
    known: RefCell<HashMap<String, (Instant, Resolved)>>,
}

impl ProgramNames {
    /// Another policy may have another search path.
    pub(super) fn forget(&self) {
        self.known.borrow_mut().clear();
    }
}

/// Evaluates an exec of a terminal's process.
pub(super) fn evaluate_by_policy(
    policy: &PolicySet,
    terminal: &Terminal,
    exec: &ReadExec,
    proc: &HostProc,
    names: &ProgramNames,
    process: i32,
) -> ExecVerdict {
    let text = byte_text::from_bytes;
    let argv: Vec<String> = match exec.argv.is_empty() {
        true => vec![String::new()],
        false => exec.argv.iter().map(|one| text(one)).collect(),
    };
    let variables = exec.env.as_ref().map(|env| Variables::of(env));
    let none_further = BTreeMap::new();
    let (path, cwd) = (text(&exec.absolute_path), text(&exec.cwd));
    let interpreters: Vec<Interpreter> = exec
        .lines
        .iter()
        .zip(exec.files.iter().skip(1))
        .map(|(line, file)| Interpreter {
            path: line.path.clone(),
            argument: line.argument.clone(),
            file: Resolved::File(file_id(file)),
        })
        .collect();
    let final_argv: Vec<String> = exec.final_argv.iter().map(|one| text(one)).collect();
    let profile = policy.profile(Some(terminal.profile.as_str())).map(|(_, profile)| &**profile);
    let resolver = ViewResolver { proc, profile, names, directories: &exec.directories };
    let request = ExecRequest {
        principal: &terminal.principal,
        labels: &terminal.labels,
        profile: &terminal.profile,
        cwd: &cwd,
        relative_from: &terminal.relative_from,
        path: &path,
        argv: &argv,
        env: variables.as_ref().map(|variables| &variables.first),
        further_env: variables.as_ref().map_or(&none_further, |variables| &variables.further),
        file: file_id(&exec.files[0]),
        interpreters: &interpreters,
        final_argv: &final_argv,
        starts_any_rule: terminal.starts_any_rule.as_deref(),
        approved: approved_for(process, terminal, proc),
    };
    policy.evaluate_exec(&request, &resolver)
}

/// What a person has approved that a process may make use of.
fn approved_for<'t>(process: i32, terminal: &'t Terminal, proc: &HostProc) -> &'t [ApprovedCommand] {
    match terminal.line {
        Some(line) if !terminal.approved.is_empty() && !proc.is_of_line(process, line) => &[],
        Some(_) | None => &terminal.approved,
    }
}

/// The exec for people and for the journal.
pub(super) fn describe(exec: &ReadExec) -> Exec {
    let text = |bytes: &[u8]| byte_text::shown(&byte_text::from_bytes(bytes)).into_owned();
    let mut digest = Sha256::new();
    let (mut argv, mut bytes) = (Vec::new(), 0);
    for argument in &exec.argv {
        digest.update(argument);
        digest.update([0]);
        bytes += argument.len();
        // The first ones, without a gap.
        if argv.len() < MAX_DESCRIBED_ARGUMENTS && bytes <= MAX_DESCRIBED_BYTES {
            argv.push(text(argument));
        }
    }
    Exec {
        file: exec.files.first().map(|file| text(&file.path)).unwrap_or_default(),
        path: text(&exec.path),
        argv_omitted: (exec.argv.len() - argv.len()) as u32,
        argv,
        argv_sha256: digest.finalize().to_vec().into(),
        cwd: text(&exec.cwd),
        interpreters: exec.files.iter().skip(1).map(|file| text(&file.path)).collect(),
    }
}

/// An environment, as rules read it.
#[derive(Debug, Default)]
struct Variables {
    /// What getenv(3) finds.
    first: BTreeMap<String, String>,
    /// Further values of variables that are there more than once: some programs take the last one, as bash does.
    further: BTreeMap<String, Vec<String>>,
}

impl Variables {
    fn of(env: &[Vec<u8>]) -> Self {
        let text = byte_text::from_bytes;
        let mut variables = Self::default();
        for entry in env {
            // What has no `=` is a variable to nobody.
            let Some(end) = entry.iter().position(|byte| *byte == b'=') else { continue };
            let (name, value) = (text(&entry[..end]), text(&entry[end + 1..]));
            match variables.first.get(&name) {
                None => {
                    variables.first.insert(name, value);
                }
                Some(_) => variables.further.entry(name).or_default().push(value),
            }
        }
        variables
    }
}

fn file_id(file: &ReadFile) -> FileId {
    let FileVersion { device, inode, changed_nanos } = file.version;
    let path = byte_text::from_bytes(&file.path);
    FileId {
        lookup_path: path.clone(),
        path,
        device,
        inode,
        changed_nanos,
        stability: PathStability::Changeable,
    }
}

/// Programs as the sandbox shows them.
struct ViewResolver<'a> {
    proc: &'a HostProc,
    profile: Option<&'a Profile>,
    names: &'a ProgramNames,
    /// The working directory of the exec, and those above it.
    directories: &'a [Directory],
}

impl ViewResolver<'_> {
    fn find(&self, path: &[u8]) -> Resolved {
        let lookup = Lookup { proc: self.proc, thread: None };
        let Ok((opened, status)) = lookup.open(AT_FDCWD, path, LastLink::Follow) else {
            return Resolved::Missing;
        };
        let Ok(real) = self.proc.path_of(opened.as_fd()) else { return Resolved::Missing };
        if check_executable(opened.as_fd(), &status).is_err() {
            return Resolved::Missing;
        }
        let file =
            ReadFile { path: real, version: FileVersion::of(&status), lookup_path: Some(path.to_vec()) };
        Resolved::File(file_id(&file))
    }
}

impl ProgramResolver for ViewResolver<'_> {
    fn find_in_path(&self, name: &str) -> Resolved {
        let Some(profile) = self.profile else { return Resolved::Missing };
        if let Some((found_at, known)) = self.names.known.borrow().get(name)
            && found_at.elapsed() < NAME_LIFETIME
        {
            return known.clone();
        }
        let paths = profile.path.iter().map(|directory| directory.join(byte_text::to_path(name)));
        let found = paths.map(|path| self.find(path.as_os_str().as_encoded_bytes()));
        let found = found.into_iter().find(|found| *found != Resolved::Missing).unwrap_or(Resolved::Missing);
        let mut known = self.names.known.borrow_mut();
        if known.len() >= MAX_NAMES {
            known.clear();
        }
        known.insert(name.to_owned(), (Instant::now(), found.clone()));
        found
    }

    /// The directories above the one that the exec runs in: its evaluation asks about no other one.
    fn directories(&self, _: &str) -> Option<Vec<Directory>> {
        Some(self.directories.to_vec())
    }

    fn has_own_entry(&self, directory: &str, name: &str) -> bool {
        let lookup = Lookup { proc: self.proc, thread: None };
        let path = byte_text::to_path(directory);
        let Ok((opened, _)) = lookup.open(AT_FDCWD, path.as_os_str().as_encoded_bytes(), LastLink::Follow)
        else {
            return false;
        };
        // What the host alone writes is mounted to be read.
        let is_read_only = fstatvfs(&opened).is_ok_and(|found| found.flags().contains(FsFlags::ST_RDONLY));
        !is_read_only && fstatat(&opened, name, AtFlags::AT_SYMLINK_NOFOLLOW) != Err(Errno::ENOENT)
    }

    fn resolve_path(&self, path: &str, cwd: &str) -> Resolved {
        let path = byte_text::to_path(cwd).join(byte_text::to_path(path));
        self.find(path.as_os_str().as_encoded_bytes())
    }
}

impl Gate {
    /// Receives all calls that wait; there is one. Before it is received, a signal with a handler ends a caller's wait, and its exec fails
    /// with EINTR: so nothing is evaluated before the last one is received.
    pub(super) fn receive_calls(&mut self) {
        loop {
            if let Ok(Some(notified)) = seccomp_listener::receive(self.seccomp.as_fd()) {
                self.received.push_back(notified);
            }
            if !self.has_room() || !seccomp_listener::has_call(self.seccomp.as_fd()) {
                return;
            }
        }
    }

    /// Evaluates the first call that was received.
    pub(super) fn evaluate_next(&mut self) {
        let Some(notified) = self.received.pop_front() else { return };
        if i64::from(notified.number) == libc::SYS_clone {
            // It is remembered first: then each exec is looked at for it.
            self.shares_directories = true;
            let _ = seccomp_listener::answer(self.seccomp.as_fd(), notified.id, CallAnswer::Continue);
            return;
        }
        if let Some(call) = ModeCall::of(&notified) {
            let is_waiting = || seccomp_listener::is_waiting(self.seccomp.as_fd(), notified.id);
            let changed =
                call.and_then(|call| change_mode(&self.proc.viewpoint(), notified.thread, &call, is_waiting));
            let answer = changed.map_or_else(CallAnswer::Fail, |()| CallAnswer::Done);
            let _ = seccomp_listener::answer(self.seccomp.as_fd(), notified.id, answer);
            return;
        }
        match ExecCall::of(&notified) {
            Ok(call) => self.admit(&notified, call),
            Err(errno) => self.fail(notified.id, errno),
        }
    }

    /// One exec of a thread group at a time is verified: the kernel would let nobody seize a thread while another of its group
    /// is in its exec, and the gate would wait for that.
    fn admit(&mut self, notified: &NotifiedCall, call: ExecCall) {
        let (caller, opened) = match self.proc.caller(notified.thread) {
            Ok(known) => known,
            // It is gone, or cannot be seen: then nothing of it runs.
            Err(_) => return self.fail(call.id, Errno::EACCES),
        };
        self.spent.extend(opened);
        self.end_failed(&caller, notified.thread);
        if self.verifying.contains_key(&caller.group) {
            self.queued.entry(caller.group).or_default().push_back((call, caller));
        } else {
            self.evaluate(call, caller);
        }
    }

    /// A thread that calls again while its exec is in verification: that one has failed, and the interrupt found the thread here. It
    /// cannot stop before it is answered, so this is not waited for.
    fn end_failed(&mut self, caller: &Caller, thread: i32) {
        if self.verifying.get(&caller.group).is_some_and(|one| one.thread == thread) {
            self.seized.insert(thread);
            self.finish(thread, End::Gone);
        }
    }

    /// Evaluates the calls of a group whose verification is over, until one of them is in verification.
    pub(super) fn evaluate_queued(&mut self, group: i32) {
        while !self.verifying.contains_key(&group) {
            let Some(calls) = self.queued.get_mut(&group) else { return };
            let Some((call, caller)) = calls.pop_front() else {
                self.queued.remove(&group);
                return;
            };
            if seccomp_listener::is_waiting(self.seccomp.as_fd(), call.id) {
                self.evaluate(call, caller);
            }
        }
    }

    fn evaluate(&mut self, call: ExecCall, caller: Caller) {
        let Some(terminal_id) = self.terminal_of(&call, caller.cgroup) else {
            return self.deny(
                call.id,
                "",
                Exec::default(),
                Cause::Unavailable,
                "",
                "its terminal is not known",
            );
        };
        // The line that they were approved with may be over.
        if self.terminals.get(&terminal_id).is_some_and(|one| one.line.is_some() && !one.approved.is_empty())
        {
            self.receive_from_gateway();
        }
        let (policy, failed) = self.policy.current();
        if let Some(failed) = failed {
            self.send(from_gate::Message::PolicyInForce(failed));
        }
        let Some(policy) = policy else {
            let reason = "there is no policy";
            return self.deny(call.id, &terminal_id, Exec::default(), Cause::Unavailable, "", reason);
        };
        let has_approved = self.terminals.get(&terminal_id).is_some_and(|one| !one.approved.is_empty());
        let wanted = Wanted {
            env: policy.judges_environment_of_execs() || has_approved,
            directories: policy.judges_directory_of_execs(),
        };
        let exec = match read(&self.proc, &call, wanted, &mut self.lines) {
            Ok(exec) => exec,
            Err(ReadFailure::Gone) => return self.fail(call.id, Errno::EACCES),
            Err(ReadFailure::Errno(errno)) => return self.fail(call.id, errno),
            Err(ReadFailure::Unreadable(reason)) => {
                let exec = describe_call(&self.proc, &call);
                // Else it is another thread's that has the number now.
                if !seccomp_listener::is_waiting(self.seccomp.as_fd(), call.id) {
                    return;
                }
                return self.deny(call.id, &terminal_id, exec, Cause::Unreadable, "", &reason);
            }
        };
        let Some(terminal) = self.terminals.get_mut(&terminal_id) else {
            return self.fail(call.id, Errno::EACCES);
        };
        let verdict = match self.verdicts.find(terminal, &exec, self.now) {
            Some(known) => known,
            None => {
                let verdict = DescribedVerdict::new(evaluate_by_policy(
                    &policy,
                    terminal,
                    &exec,
                    &self.proc,
                    &self.names,
                    caller.group,
                ));
                self.verdicts.keep(terminal, &exec, self.now, &verdict);
                verdict
            }
        };
        let decision = verdict.by_policy.decision;
        let evaluated = EvaluatedExec { call, group: caller.group, terminal_id, exec, verdict, asked: None };
        match decision {
            // The kernel takes no answer for a caller that was gone meanwhile.
            ExecDecision::Allow => self.let_go_on(evaluated),
            // What was read by the thread's number may have been another one's.
            ExecDecision::Ask | ExecDecision::Deny
                if !seccomp_listener::is_waiting(self.seccomp.as_fd(), call.id) => {}
            ExecDecision::Ask | ExecDecision::Deny if self.is_denied_again(&evaluated, decision) => {
                self.fail(call.id, Errno::EACCES);
            }
            ExecDecision::Ask => self.ask(evaluated),
            ExecDecision::Deny => {
                let cause = if evaluated.rule().is_empty() { Cause::Default } else { Cause::Rule };
                let reason = evaluated.verdict.by_policy.reason.as_deref().unwrap_or_default();
                self.deny_evaluated(&evaluated, cause, reason);
            }
        }
    }

    fn terminal_of(&mut self, call: &ExecCall, cgroup: Option<u64>) -> Option<String> {
        if let Some(known) = cgroup.and_then(|cgroup| self.terminals.with_cgroup(cgroup)) {
            return Some(known.id.clone());
        }
        let leaves = self.proc.leaves_of(call.thread).unwrap_or_default();
        let known = |gate: &Self| {
            let terminal = match gate.has_cgroups {
                true => gate.terminals.with_leaf(&leaves),
                false => gate.terminals.only(),
            };
            terminal.map(|terminal| terminal.id.clone())
        };
        let found = known(self).or_else(|| {
            self.receive_from_gateway();
            known(self)
        })?;
        // Both were read of the caller, if it still waits.
        if let (Some(cgroup), Some(leaf), true) = (cgroup, &leaves.version_2, self.has_cgroups)
            && seccomp_listener::is_waiting(self.seccomp.as_fd(), call.id)
        {
            self.terminals.keep_cgroup(cgroup, leaf);
        }
        Some(found)
    }

    /// Lets the kernel execute it, and stops it at the exec.
    pub(super) fn let_go_on(&mut self, evaluated: EvaluatedExec) {
        let (id, thread, group) = (evaluated.call.id, evaluated.call.thread, evaluated.group);
        let seized = match self.seized.remove(&thread) {
            true => Ok(()),
            false => ptrace::seize(thread),
        };
        match seized {
            Ok(()) => {}
            // It ends, or has ended.
            Err(_) if !seccomp_listener::is_waiting(self.seccomp.as_fd(), id) => {
                return self.end_ask(&evaluated, End::Gone);
            }
            Err(_) => {
                let reason = "another process traces it, so that it cannot be verified";
                self.deny_evaluated(&evaluated, Cause::Traced, reason);
                return;
            }
        }
        // Where this fails the thread is gone, which will be seen. Before the answer where that does not end its wait: an exec that fails
        // then stops on its way out of the kernel, and not in the program's next call, which would fail with EINTR.
        if self.waits_killable {
            let _ = ptrace::interrupt(thread);
        }
        // Fails where the caller is gone, and another thread has its number.
        let continued = seccomp_listener::answer(self.seccomp.as_fd(), id, CallAnswer::Continue).is_ok();
        if !self.waits_killable {
            let _ = ptrace::interrupt(thread);
        }
        let evaluated = match continued {
            true => Some(Box::new(evaluated)),
            false => {
                self.end_ask(&evaluated, End::Gone);
                None
            }
        };
        self.verifying.insert(group, Verification { thread, evaluated, condemned: None });
    }

    /// Answers a caller, who may be gone.
    pub(super) fn fail(&self, id: u64, errno: Errno) {
        let _ = seccomp_listener::answer(self.seccomp.as_fd(), id, CallAnswer::Fail(errno));
    }
}

/// Verdicts that are kept, because builds and shell loops execute the same thing again and again. One that depends on the
/// environment is not. What is executed is still compared with what was read for that very exec.
pub(super) const MAX_VERDICTS: usize = 1_024;
/// For so long: what a program's name means may change.
const VERDICT_LIFETIME: Duration = Duration::from_secs(1);
/// Bytes of path and arguments of an exec whose verdict is kept.
const MAX_KEPT_BYTES: usize = 4 << 10;

/// All that are kept.
#[derive(Debug, Default)]
pub(super) struct KnownVerdicts {
    known: HashMap<u64, KnownVerdict>,
}

#[derive(Debug)]
struct KnownVerdict {
    found_at: Instant,
    terminal_id: String,
    starts_any_rule: Option<String>,
    path: Vec<u8>,
    /// With another descriptor the same path leads elsewhere, and has another name.
    absolute_path: Vec<u8>,
    argv: Vec<Vec<u8>>,
    final_argv: Vec<Vec<u8>>,
    cwd: Vec<u8>,
    directories: Vec<Directory>,
    files: Vec<(Vec<u8>, FileVersion)>,
    /// A file that is mapped can change without another version.
    lines: Vec<Shebang>,
    verdict: Rc<DescribedVerdict>,
}

/// A verdict, and what it is about.
#[derive(Debug)]
pub(super) struct DescribedVerdict {
    pub(super) by_policy: ExecVerdict,
    /// Made when it is first needed, which is mostly when the exec is over.
    described: OnceCell<Exec>,
}

impl DescribedVerdict {
    pub(super) fn new(verdict: ExecVerdict) -> Rc<Self> {
        Rc::new(Self { by_policy: verdict, described: OnceCell::new() })
    }

    /// The exec for people and for the journal. The same verdict is about the same exec.
    pub(super) fn describe(&self, exec: &ReadExec) -> &Exec {
        self.described.get_or_init(|| describe(exec))
    }
}

impl KnownVerdicts {
    /// The policy, or what is known about a terminal, is another one.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }

    /// The verdict on the same exec, if it is new enough.
    pub(super) fn find(
        &self,
        terminal: &Terminal,
        exec: &ReadExec,
        now: Instant,
    ) -> Option<Rc<DescribedVerdict>> {
        let known = self.known.get(&hash_of(terminal, exec))?;
        let is_new = now.saturating_duration_since(known.found_at) < VERDICT_LIFETIME;
        (is_new && known.is_about(terminal, exec)).then(|| known.verdict.clone())
    }

    /// Keeps a verdict that depends on nothing else.
    pub(super) fn keep(
        &mut self,
        terminal: &Terminal,
        exec: &ReadExec,
        now: Instant,
        verdict: &Rc<DescribedVerdict>,
    ) {
        let bytes = exec.path.len() + exec.argv.iter().map(|one| one.len() + 1).sum::<usize>();
        // What a person has approved is not for every process of a terminal, and while it is approved of a line, what another process of
        // the terminal is asked about is none of the line's.
        let depends_on_process = terminal.line.is_some() && !terminal.approved.is_empty();
        if bytes > MAX_KEPT_BYTES
            || verdict.by_policy.env_was_read
            || verdict.by_policy.was_approved
            || depends_on_process
        {
            return;
        }
        if self.known.len() >= MAX_VERDICTS {
            self.known.clear();
        }
        let known = KnownVerdict {
            found_at: now,
            terminal_id: terminal.id.clone(),
            starts_any_rule: terminal.starts_any_rule.clone(),
            path: exec.path.clone(),
            absolute_path: exec.absolute_path.clone(),
            argv: exec.argv.clone(),
            final_argv: exec.final_argv.clone(),
            cwd: exec.cwd.clone(),
            directories: exec.directories.clone(),
            files: exec.files.iter().map(|file| (file.path.clone(), file.version)).collect(),
            lines: exec.lines.clone(),
            verdict: verdict.clone(),
        };
        self.known.insert(hash_of(terminal, exec), known);
    }
}

impl KnownVerdict {
    fn is_about(&self, terminal: &Terminal, exec: &ReadExec) -> bool {
        let files = exec.files.iter().map(|file| (&file.path, file.version));
        self.terminal_id == terminal.id
            && self.starts_any_rule == terminal.starts_any_rule
            && self.path == exec.path
            && self.absolute_path == exec.absolute_path
            && self.argv == exec.argv
            && self.final_argv == exec.final_argv
            && self.cwd == exec.cwd
            && self.directories == exec.directories
            && self.lines == exec.lines
            && self.files.iter().map(|(path, version)| (path, *version)).eq(files)
    }
}

/// Only to find it: what is found is compared.
fn hash_of(terminal: &Terminal, exec: &ReadExec) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&terminal.id, &exec.path, &exec.argv).hash(&mut hasher);
    exec.files.first().map(|file| file.version).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        gate::{exec_call::ReadFile, terminals::Terminals},
        policy::{ExecDecision, command::program::DirectoryId},
        proto::gate::AddTerminal,
    };

    #[test]
    fn every_value_of_a_variable_is_kept() {
        let env = ["X=dev", "Y=a=b", "X", "X=prod", "X=", "Z"].map(|entry| entry.as_bytes().to_vec());
        let Variables { first, further } = Variables::of(&env);
        assert_eq!(first, BTreeMap::from([("X".into(), "dev".into()), ("Y".into(), "a=b".into())]));
        assert_eq!(further, BTreeMap::from([("X".into(), vec!["prod".into(), String::new()])]));
    }

    fn exec(argument: &str, version: i64) -> ReadExec {
        let version = FileVersion { device: 1, inode: 2, changed_nanos: version };
        ReadExec {
            path: b"/bin/x".to_vec(),
            absolute_path: b"/bin/x".to_vec(),
            argv: vec![b"x".to_vec(), argument.into()],
            env: None,
            cwd: b"/w".to_vec(),
            directories: Vec::new(),
            files: vec![ReadFile { path: b"/bin/x".to_vec(), version, lookup_path: None }],
            lines: Vec::new(),
            final_argv: Vec::new(),
            opened: Vec::new(),
        }
    }

    fn allowed() -> ExecVerdict {
        ExecVerdict {
            decision: ExecDecision::Allow,
            rule: Some("r".to_owned()),
            reason: None,
            starts_any: None,
            observed: Vec::new(),
            env_was_read: false,
            was_approved: false,
        }
    }

    #[test]
    fn a_verdict_is_used_for_the_same_exec_of_the_same_terminal_and_for_a_short_time() {
        let mut terminals = Terminals::default();
        for id in ["term_1", "term_2"] {
            terminals.add(AddTerminal { terminal_id: id.into(), ..AddTerminal::default() }, 0);
        }
        let (mut verdicts, now) = (KnownVerdicts::default(), Instant::now());
        let one = terminals.get_mut("term_1").unwrap();
        verdicts.keep(one, &exec("a", 1), now, &DescribedVerdict::new(allowed()));
        assert_eq!(
            verdicts.find(one, &exec("a", 1), now).map(|known| known.by_policy.clone()),
            Some(allowed())
        );
        assert!(verdicts.find(one, &exec("b", 1), now).is_none(), "another argument");
        assert!(verdicts.find(one, &exec("a", 2), now).is_none(), "the file was changed");
        let moved = ReadExec { cwd: b"/v".to_vec(), ..exec("a", 1) };
        assert!(verdicts.find(one, &moved, now).is_none(), "another directory");
        let line = Shebang { path: b"/bin/y".to_vec(), argument: None };
        let id = DirectoryId { device: 1, inode: 4 };
        let directories = vec![Directory { path: "/w".to_owned(), id, changed_nanos: 0 }];
        let renamed = ReadExec { directories, ..exec("a", 1) };
        assert!(verdicts.find(one, &renamed, now).is_none(), "another directory of that name");
        let rewritten = ReadExec { lines: vec![line], ..exec("a", 1) };
        assert!(verdicts.find(one, &rewritten, now).is_none(), "another first line");
        let named = ReadExec { final_argv: vec![b"push".to_vec()], ..exec("a", 1) };
        assert!(verdicts.find(one, &named, now).is_none(), "another name of a script");
        let elsewhere = ReadExec { absolute_path: b"/w/x".to_vec(), ..exec("a", 1) };
        assert!(verdicts.find(one, &elsewhere, now).is_none(), "of another descriptor");
        assert!(verdicts.find(one, &exec("a", 1), now + VERDICT_LIFETIME).is_none(), "too old");
        one.starts_any_rule = Some("any".to_owned());
        assert!(verdicts.find(one, &exec("a", 1), now).is_none(), "it may start anything now");
        let other = terminals.get_mut("term_2").unwrap();
        assert!(verdicts.find(other, &exec("a", 1), now).is_none(), "another terminal");
    }

    #[test]
    fn long_execs_and_those_that_were_evaluated_by_their_environment_are_not_kept() {
        let mut terminals = Terminals::default();
        terminals.add(AddTerminal { terminal_id: "term_1".into(), ..AddTerminal::default() }, 0);
        let terminal = terminals.get_mut("term_1").unwrap();
        let (mut verdicts, now) = (KnownVerdicts::default(), Instant::now());
        let long = exec(&"a".repeat(MAX_KEPT_BYTES), 1);
        verdicts.keep(terminal, &long, now, &DescribedVerdict::new(allowed()));
        assert!(verdicts.find(terminal, &long, now).is_none());
        let by_env = ExecVerdict { env_was_read: true, ..allowed() };
        verdicts.keep(terminal, &exec("a", 1), now, &DescribedVerdict::new(by_env));
        let approved = ExecVerdict { was_approved: true, ..allowed() };
        verdicts.keep(terminal, &exec("a", 1), now, &DescribedVerdict::new(approved));
        assert!(verdicts.find(terminal, &exec("a", 1), now).is_none());
        for index in 0..=MAX_VERDICTS {
            verdicts.keep(terminal, &exec(&index.to_string(), 1), now, &DescribedVerdict::new(allowed()));
        }
        assert!(verdicts.known.len() <= MAX_VERDICTS);
    }

    #[test]
    fn while_something_is_approved_of_a_line_no_verdict_is_another_processs() {
        let mut terminals = Terminals::default();
        let approved = crate::proto::gate::ApprovedCommand::default();
        let of_line = |approved| AddTerminal {
            terminal_id: "term_1".into(),
            line_of_shell: 7,
            approved,
            ..AddTerminal::default()
        };
        for (approved, is_kept) in [(vec![approved], false), (Vec::new(), true)] {
            terminals.add(of_line(approved), 0);
            let terminal = terminals.get_mut("term_1").unwrap();
            let (mut verdicts, now) = (KnownVerdicts::default(), Instant::now());
            let asked = ExecVerdict { decision: ExecDecision::Ask, ..allowed() };
            verdicts.keep(terminal, &exec("a", 1), now, &DescribedVerdict::new(asked));
            assert_eq!(verdicts.find(terminal, &exec("a", 1), now).is_some(), is_kept);
        }
    }
}
