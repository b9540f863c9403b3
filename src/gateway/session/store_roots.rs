//! What is stored of a session's directories, to and from its types. Pure.

use super::session::{NamedRoot, RepositoryOutcome};
use crate::{
    policy::{AbsPath, PathError},
    proto::state::{NamedRootRecord, RepositoryRecord, RootRecord, root_record::Role},
    sandbox::spec::RootRole,
};

/// What a root is for. A role that this build does not know gives the fewest rights.
pub(super) fn role(root: &RootRecord) -> RootRole {
    match Role::try_from(root.role) {
        Ok(Role::Unspecified) => RootRole::Work,
        Ok(Role::GitDirectory) => RootRole::GitDirectory,
        Ok(Role::Volume) => RootRole::Volume,
        Ok(Role::ReadOnly) | Err(_) => RootRole::ReadOnly,
    }
}

pub(super) fn role_record(role: RootRole) -> Role {
    match role {
        RootRole::Work => Role::Unspecified,
        RootRole::ReadOnly => Role::ReadOnly,
        RootRole::GitDirectory => Role::GitDirectory,
        RootRole::Volume => Role::Volume,
    }
}

/// The caller's names. A record of an older gateway has them with the roots.
pub(super) fn named_roots(
    named: &[NamedRootRecord],
    roots: &[RootRecord],
) -> Result<Vec<NamedRoot>, PathError> {
    let pairs: Vec<(&str, &str)> = match named {
        [] => roots.iter().map(|root| (root.requested_path.as_str(), root.path.as_str())).collect(),
        named => named.iter().map(|one| (one.requested_path.as_str(), one.path.as_str())).collect(),
    };
    let parse = |(requested, real)| {
        Ok(NamedRoot { requested: AbsPath::parse(requested)?, real: AbsPath::parse(real)? })
    };
    pairs.into_iter().map(parse).collect()
}

pub(super) fn named_record(named: &NamedRoot) -> NamedRootRecord {
    NamedRootRecord { requested_path: named.requested.to_string(), path: named.real.to_string() }
}

pub(super) fn repository(record: Option<RepositoryRecord>) -> Result<RepositoryOutcome, PathError> {
    let Some(record) = record else { return Ok(RepositoryOutcome::None) };
    if record.worktree.is_empty() {
        return Ok(RepositoryOutcome::NotTaken(record.not_taken));
    }
    let git_directory = Some(record.git_directory.as_str()).filter(|path| !path.is_empty());
    Ok(RepositoryOutcome::Taken {
        worktree: AbsPath::parse(&record.worktree)?,
        git_directory: git_directory.map(AbsPath::parse).transpose()?,
    })
}

pub(super) fn repository_record(repository: &RepositoryOutcome) -> Option<RepositoryRecord> {
    match repository {
        RepositoryOutcome::None => None,
        RepositoryOutcome::Taken { worktree, git_directory } => Some(RepositoryRecord {
            worktree: worktree.to_string(),
            git_directory: git_directory.as_ref().map(ToString::to_string).unwrap_or_default(),
            ..RepositoryRecord::default()
        }),
        RepositoryOutcome::NotTaken(reason) => {
            Some(RepositoryRecord { not_taken: reason.clone(), ..RepositoryRecord::default() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_comes_back_as_it_was_and_one_that_is_not_known_may_only_be_read() {
        let stored = |number| role(&RootRecord { role: number, ..RootRecord::default() });
        for one in [RootRole::Work, RootRole::ReadOnly, RootRole::GitDirectory, RootRole::Volume] {
            assert_eq!(stored(role_record(one).into()), one);
        }
        assert_eq!(stored(99), RootRole::ReadOnly);
    }

    #[test]
    fn what_was_found_of_a_repository_comes_back_as_it_was() {
        let path = |path| AbsPath::parse(path).unwrap();
        for outcome in [
            RepositoryOutcome::None,
            RepositoryOutcome::NotTaken("it is another's".into()),
            RepositoryOutcome::Taken { worktree: path("/work"), git_directory: None },
            RepositoryOutcome::Taken { worktree: path("/work"), git_directory: Some(path("/main/.git")) },
        ] {
            assert_eq!(repository(repository_record(&outcome)), Ok(outcome));
        }
    }

    #[test]
    fn a_record_of_an_older_gateway_has_the_callers_names_with_its_roots() {
        let named = |requested: &str, path: &str| NamedRoot {
            requested: AbsPath::parse(requested).unwrap(),
            real: AbsPath::parse(path).unwrap(),
        };
        let root =
            RootRecord { path: "/real".into(), requested_path: "/by/a/link".into(), ..RootRecord::default() };
        let roots = std::slice::from_ref(&root);
        assert_eq!(named_roots(&[], roots), Ok(vec![named("/by/a/link", "/real")]));
        let newer = named("/by/another", "/real/below");
        assert_eq!(named_roots(&[named_record(&newer)], roots), Ok(vec![newer]));
    }
}
