//! How far a session's workspace reaches around the directory that its caller names. Types only.

use crate::{policy::AbsPath, proto::v1::Repository};

/// How much of what lies around the first directory belongs to a session's workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WorkspaceExtent {
    /// Nothing.
    #[default]
    Named,
    /// The repository that it lies in.
    Repository,
}

/// What became of the repository around a session's first directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RepositoryOutcome {
    /// Nobody asked, or there is none.
    #[default]
    None,
    /// It is the workspace.
    Taken {
        /// The directory of its files.
        worktree: AbsPath,
        /// Its git directory, where that is a root of its own.
        git_directory: Option<AbsPath>,
    },
    /// The reason, as one sentence.
    NotTaken(String),
}

impl RepositoryOutcome {
    /// For the caller; `None` where there is nothing to say.
    pub fn to_report(&self) -> Option<Repository> {
        match self {
            Self::None => None,
            Self::Taken { worktree, git_directory } => Some(Repository {
                worktree: worktree.to_string(),
                git_directory: git_directory.as_ref().map(ToString::to_string).unwrap_or_default(),
                not_taken: String::new(),
            }),
            Self::NotTaken(reason) => Some(Repository { not_taken: reason.clone(), ..Repository::default() }),
        }
    }
}
