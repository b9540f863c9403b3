//! A complete request for a command, parsed: what policy evaluates.
//!
//! Every field is well-formed. Nothing in it has been allowed yet.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    AbsPath,
    environment::EnvEntry,
    profile::{Network, Umask},
};

/// The command that is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandSpec {
    /// A program and its arguments.
    Argv {
        /// A bare name, or a path; not empty, no NUL.
        command: String,
        /// The arguments after it; no NUL.
        args: Vec<String>,
    },
    /// A line for the profile's shell; no NUL.
    ShellLine(String),
}

/// How stdout and stderr are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamMode {
    /// One stream, in the order of writing.
    Merged,
    /// Two streams.
    Split,
    /// One stream, what the command writes to a pseudo-terminal of this size.
    Pty(PtySize),
}

impl StreamMode {
    /// How many streams are kept.
    pub fn count(self) -> u64 {
        match self {
            Self::Merged | Self::Pty(_) => 1,
            Self::Split => 2,
        }
    }

    /// A number for digests: the size of a pseudo-terminal is not part of what is approved.
    pub(super) fn digest_number(self) -> u64 {
        match self {
            Self::Merged => 0,
            Self::Split => 1,
            Self::Pty(_) => 2,
        }
    }

    /// The size of the pseudo-terminal.
    pub fn pty(self) -> Option<PtySize> {
        match self {
            Self::Merged | Self::Split => None,
            Self::Pty(size) => Some(size),
        }
    }
}

/// The size of a pseudo-terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PtySize {
    columns: u16,
    rows: u16,
}

/// A size that no pseudo-terminal has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PtySizeError {
    /// Too few or too many columns.
    #[error("must be {min} to {max}", min = PtySize::MIN_COLUMNS, max = PtySize::MAX_COLUMNS)]
    Columns,
    /// Too few or too many rows.
    #[error("must be {min} to {max}", min = PtySize::MIN_ROWS, max = PtySize::MAX_ROWS)]
    Rows,
    /// Too many characters.
    #[error("must be at most {max} characters in all", max = PtySize::MAX_CELLS)]
    Cells,
}

impl PtySize {
    /// The fewest columns.
    pub const MIN_COLUMNS: u16 = 2;
    /// The most columns.
    pub const MAX_COLUMNS: u16 = 1_000;
    /// The fewest rows.
    pub const MIN_ROWS: u16 = 1;
    /// The most rows.
    pub const MAX_ROWS: u16 = 500;
    /// The most characters: a screen is kept for each terminal.
    pub const MAX_CELLS: u32 = 200_000;

    /// A size within the bounds.
    ///
    /// # Errors
    /// Which bound it exceeds.
    pub fn new(columns: u32, rows: u32) -> Result<Self, PtySizeError> {
        let within = |number: u32, min: u16, max: u16| {
            u16::try_from(number).ok().filter(|number| (min..=max).contains(number))
        };
        let columns = within(columns, Self::MIN_COLUMNS, Self::MAX_COLUMNS).ok_or(PtySizeError::Columns)?;
        let rows = within(rows, Self::MIN_ROWS, Self::MAX_ROWS).ok_or(PtySizeError::Rows)?;
        if u32::from(columns) * u32::from(rows) > Self::MAX_CELLS {
            return Err(PtySizeError::Cells);
        }
        Ok(Self { columns, rows })
    }

    /// The number of columns.
    pub fn columns(self) -> u16 {
        self.columns
    }

    /// The number of rows.
    pub fn rows(self) -> u16 {
        self.rows
    }
}

/// What happens when the ring is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverflowMode {
    /// The oldest bytes go.
    DropOldest,
    /// The command waits for its reader.
    Block,
}

/// Where stdin comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdinSource {
    /// `/dev/null`; a pseudo-terminal into which nobody types.
    Closed,
    /// A pipe that the caller writes to, or a pseudo-terminal.
    Open,
}

/// A request, complete: the caller's own words and what its session adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The principal, as the kernel has identified it.
    pub principal: String,
    /// The session's labels.
    pub labels: Arc<BTreeMap<String, String>>,
    /// The session's directories; at least one.
    pub roots: Arc<[AbsPath]>,
    /// The session's environment.
    pub session_env: Arc<[EnvEntry]>,
    /// What to run.
    pub command: CommandSpec,
    /// The caller's environment.
    pub env: Vec<EnvEntry>,
    /// The working directory: the caller's, or the session's.
    pub cwd: AbsPath,
    /// The profile's name: the caller's, or the session's; absent: the policy's default.
    pub profile: Option<String>,
    /// The network asked for; absent: the profile's default.
    pub network: Option<Network>,
    /// Bytes of output to retain; absent: the profile's default.
    pub output_limit_bytes: Option<u64>,
    /// How the output is kept.
    pub streams: StreamMode,
    /// Where stdin comes from.
    pub stdin: StdinSource,
    /// What happens when the ring is full.
    pub overflow: OverflowMode,
    /// Absent: the profile's.
    pub time_limit: Option<Duration>,
    /// Absent: the profile's.
    pub idle_limit: Option<Duration>,
    /// Absent: the profile's.
    pub kill_grace: Option<Duration>,
    /// The caller's; absent: [`Umask::default`]. A profile can fix another one.
    pub umask: Option<Umask>,
    /// The directories of the caller's PATH; those within the roots are searched.
    pub search_path: Arc<[AbsPath]>,
    /// The caller's virtual environment.
    pub virtual_env: Option<AbsPath>,
}

impl Request {
    /// Where relative patterns of rules that deny or ask begin: in the working directory and in the session's roots. Never in `/`: all
    /// programs lie below it.
    pub fn relative_from(&self) -> Vec<String> {
        let paths = std::iter::once(&self.cwd).chain(self.roots.iter()).map(|path| path.as_str());
        let mut directories: Vec<String> = paths.filter(|path| *path != "/").map(str::to_owned).collect();
        directories.sort_unstable();
        directories.dedup();
        directories
    }

    /// A request that leaves to profile and policy all that a caller may leave to them.
    pub fn plain(principal: String, roots: Arc<[AbsPath]>, cwd: AbsPath, command: CommandSpec) -> Self {
        Self {
            principal,
            labels: Arc::default(),
            roots,
            session_env: Arc::from([]),
            command,
            env: Vec::new(),
            cwd,
            profile: None,
            network: None,
            output_limit_bytes: None,
            streams: StreamMode::Merged,
            stdin: StdinSource::Closed,
            overflow: OverflowMode::DropOldest,
            time_limit: None,
            idle_limit: None,
            kill_grace: None,
            umask: None,
            search_path: Arc::default(),
            virtual_env: None,
        }
    }
}
