//! The exact command that a permit allows: what `execve(2)` gets, and under which limits.
//!
//! Read by the code that starts the command. Only `build_spec` makes one.

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;

use super::{
    approved_command::ApprovedCommand,
    command::{
        interpreter::Interpreter,
        program::{DirectoryId, FileId, Resolved},
        rule::Effects,
    },
    implied_variables::OpenedTls,
    path::AbsPath,
    profile::{Network, Profile, ProfileName},
    request::{OverflowMode, StdinSource, StreamMode},
    secret::SecretGrant,
    umask::Umask,
};

/// The command that is executed, with everything that decides how it runs.
#[derive(Debug)]
pub struct ExecSpec {
    pub(super) profile_name: ProfileName,
    pub(super) profile: Arc<Profile>,
    pub(super) confinement: u64,
    pub(super) network: Network,
    pub(super) program: String,
    pub(super) resolved: Resolved,
    pub(super) interpreters: Vec<Interpreter>,
    pub(super) argv: Vec<Bytes>,
    pub(super) env: Vec<Bytes>,
    pub(super) effects: Effects,
    pub(super) secrets: Vec<SecretGrant>,
    pub(super) opened_tls: OpenedTls,
    pub(super) has_program_rules: bool,
    pub(super) cwd: AbsPath,
    pub(super) directory: Option<DirectoryId>,
    pub(super) output_limit_bytes: u64,
    pub(super) streams: StreamMode,
    pub(super) stdin: StdinSource,
    pub(super) overflow: OverflowMode,
    pub(super) time_limit: Option<Duration>,
    pub(super) idle_limit: Option<Duration>,
    pub(super) kill_grace: Duration,
    pub(super) umask: Umask,
    pub(super) relative_from: Vec<String>,
    pub(super) starts_any_rule: Option<String>,
    pub(super) approved: Vec<ApprovedCommand>,
}

impl ExecSpec {
    /// The name of the profile that the command runs under.
    pub fn profile_name(&self) -> &ProfileName {
        &self.profile_name
    }

    /// The profile, with the limits that the rules have lowered.
    pub fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    /// Tells apart profiles of one name in two policies: a sandbox of one is not used for a command of the other.
    pub fn confinement(&self) -> u64 {
        self.confinement
    }

    /// The network that the command has.
    pub fn network(&self) -> Network {
        self.network
    }

    /// The program: a bare name to look for in [`Self::search_path`], or a path.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// The file that the rules have seen. Nothing else may be executed.
    pub fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    /// As [`Self::resolved`], where it is a file. Absent where there is no such file, or it could not be seen.
    pub fn resolved_file(&self) -> Option<&FileId> {
        match &self.resolved {
            Resolved::File(file) => Some(file),
            Resolved::Builtin | Resolved::Missing | Resolved::Unknown => None,
        }
    }

    /// The interpreters of a script that another process could exchange. They are executed in its place.
    pub fn interpreters(&self) -> &[Interpreter] {
        &self.interpreters
    }

    /// The argument vector, with `argv[0]`.
    pub fn argv(&self) -> &[Bytes] {
        &self.argv
    }

    /// The whole environment without the secrets, each entry as `NAME=value`.
    pub fn env(&self) -> &[Bytes] {
        &self.env
    }

    /// What the rules change about the command. The other fields have it already.
    pub fn effects(&self) -> &Effects {
        &self.effects
    }

    /// The secrets that are added to the environment, sorted by name, no name twice.
    pub fn secrets(&self) -> &[SecretGrant] {
        &self.secrets
    }

    /// What rules about connections do to its TLS.
    pub fn opened_tls(&self) -> &OpenedTls {
        &self.opened_tls
    }

    /// Whether rules by program are about its connections.
    pub fn has_program_rules(&self) -> bool {
        self.has_program_rules
    }

    /// The working directory.
    pub fn cwd(&self) -> &AbsPath {
        &self.cwd
    }

    /// Where relative patterns of rules that deny or ask begin, also for what the command executes: the working directory and the
    /// session's roots.
    pub fn relative_from(&self) -> &[String] {
        &self.relative_from
    }

    /// The directories in which a bare program name is looked up: the profile's, whatever `PATH` says, and those of the workspace that the
    /// caller has in PATH.
    pub fn search_path(&self) -> &[PathBuf] {
        self.profile.searched()
    }

    /// Bytes of output to retain for each stream.
    pub fn output_limit_bytes(&self) -> u64 {
        self.output_limit_bytes
    }

    /// Whether stdout and stderr are one stream or two, or a pseudo-terminal.
    pub fn streams(&self) -> StreamMode {
        self.streams
    }

    /// Where stdin comes from.
    pub fn stdin(&self) -> StdinSource {
        self.stdin
    }

    /// What happens when the ring is full.
    pub fn overflow(&self) -> OverflowMode {
        self.overflow
    }

    /// The command is stopped after this time.
    pub fn time_limit(&self) -> Option<Duration> {
        self.time_limit
    }

    /// The command is stopped when it has written nothing for this long.
    pub fn idle_limit(&self) -> Option<Duration> {
        self.idle_limit
    }

    /// The time between TERM and KILL.
    pub fn kill_grace(&self) -> Duration {
        self.kill_grace
    }

    /// The rule with `starts = "any"` that lets a part of the command run: processes of its terminal may execute what no rule matches.
    pub fn starts_any_rule(&self) -> Option<&str> {
        self.starts_any_rule.as_deref()
    }

    /// The file mode creation mask that the command starts with.
    pub fn umask(&self) -> Umask {
        self.umask
    }

    /// What the working directory is, where a rule or a person has looked at it. The command begins in no other.
    pub fn directory(&self) -> Option<DirectoryId> {
        self.directory
    }

    /// What a person has approved of the request, if rules asked: it is not asked about again when it is executed.
    pub fn approved(&self) -> impl Iterator<Item = ApprovedCommand> {
        self.approved.iter().map(|one| one.beginning_in(&self.env))
    }
}
