//! The permit: the proof that policy has allowed one exact request.
//!
//! Its fields are private and it is neither `Clone` nor `Default`: outside of this module there is no way to
//! come by one but [`judge`](super::judge), and no way to get at the [`ExecSpec`] inside but to give the permit up.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;

use super::{
    AbsPath, ProfileName,
    command::{
        program::{FileId, Interpreter, Resolved},
        rule::Decision,
    },
    profile::{Network, Profile},
    request::{OverflowMode, StdinSource, StreamMode},
    secret::SecretGrant,
};

/// SHA-256 of a request in its normal form.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub(super) [u8; 32]);

impl Digest {
    /// Its bytes.
    pub fn bytes(&self) -> [u8; 32] {
        self.0
    }

    /// One that was written down.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Leave to run one exact command, once.
#[derive(Debug)]
#[must_use = "a permit that nobody redeems runs nothing"]
pub struct Permit {
    pub(super) digest: Digest,
    pub(super) generation: u64,
    pub(super) rule: Option<String>,
    pub(super) observed: Vec<(String, Decision)>,
    pub(super) spec: ExecSpec,
}

impl Permit {
    /// The digest of the request that was judged.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The generation of the policy that judged.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The rule that allowed it; absent where nothing in it needed one.
    pub fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }

    /// Rules that only watch, and what they would have decided.
    pub fn observed(&self) -> &[(String, Decision)] {
        &self.observed
    }

    /// What was allowed, to look at: the sandbox is chosen by it.
    pub fn spec(&self) -> &ExecSpec {
        &self.spec
    }

    /// Gives the permit up for the command that it allows.
    pub fn into_spec(self) -> ExecSpec {
        self.spec
    }
}

/// What exactly is to be run. Made by judging, from the request and the profile together.
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
    pub(super) secrets: Vec<SecretGrant>,
    pub(super) cwd: AbsPath,
    pub(super) output_limit_bytes: u64,
    pub(super) streams: StreamMode,
    pub(super) stdin: StdinSource,
    pub(super) overflow: OverflowMode,
    pub(super) time_limit: Option<Duration>,
    pub(super) idle_limit: Option<Duration>,
    pub(super) kill_grace: Duration,
}

impl ExecSpec {
    /// The profile's name.
    pub fn profile_name(&self) -> &ProfileName {
        &self.profile_name
    }

    /// The profile.
    pub fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    /// Of which policy the profile is: sandboxes of one are not for orders of another.
    pub fn confinement(&self) -> u64 {
        self.confinement
    }

    /// The network.
    pub fn network(&self) -> Network {
        self.network
    }

    /// The program: a bare name to look for in [`Self::search_path`], or a path.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// What was judged, and nothing else may be executed: a file, or that there is none.
    pub fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    /// The file that was judged. Absent where there is none, or where it could not be seen.
    pub fn resolved_file(&self) -> Option<&FileId> {
        match &self.resolved {
            Resolved::File(file) => Some(file),
            Resolved::Builtin | Resolved::Missing | Resolved::Unknown => None,
        }
    }

    /// Of a script that somebody may exchange, what runs it: executed in its place.
    pub fn interpreters(&self) -> &[Interpreter] {
        &self.interpreters
    }

    /// The argument vector, with `argv[0]`.
    pub fn argv(&self) -> &[Bytes] {
        &self.argv
    }

    /// `NAME=value`, the whole environment but the secrets.
    pub fn env(&self) -> &[Bytes] {
        &self.env
    }

    /// The secrets that are put into its environment, in the order of their names, no name twice.
    pub fn secrets(&self) -> &[SecretGrant] {
        &self.secrets
    }

    /// The working directory.
    pub fn cwd(&self) -> &AbsPath {
        &self.cwd
    }

    /// Where a bare program name is looked for: the profile's directories, whatever `PATH` says.
    pub fn search_path(&self) -> &[PathBuf] {
        &self.profile.path
    }

    /// Bytes of output to retain for each stream.
    pub fn output_limit_bytes(&self) -> u64 {
        self.output_limit_bytes
    }

    /// How the output is kept.
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

    /// After which the command is stopped.
    pub fn time_limit(&self) -> Option<Duration> {
        self.time_limit
    }

    /// Without output for this long, the command is stopped.
    pub fn idle_limit(&self) -> Option<Duration> {
        self.idle_limit
    }

    /// Between TERM and KILL.
    pub fn kill_grace(&self) -> Duration {
        self.kill_grace
    }
}
