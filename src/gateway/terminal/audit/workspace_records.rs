//! Makes the audit records of workspaces: what was changed in one, and what was not looked at. Pure.

use super::subject::Subject;
use crate::{
    journal::{Record, ShortfallRecord, WorkspaceChange},
    policy,
    workspace::{ChangeAction, DangerousChange},
};

/// Something in a workspace has changed while a command ran, and something was done about it.
pub fn workspace_change(subject: Subject, change: &DangerousChange) -> Record {
    let (action, failure) = match &change.action {
        ChangeAction::Restored => ("restored", None),
        ChangeAction::Quarantined => ("quarantined", None),
        ChangeAction::Reported => ("reported", None),
        ChangeAction::Failed(reason) => ("failed", Some(reason.clone())),
    };
    Record::WorkspaceChange(WorkspaceChange {
        terminal: subject.terminal.to_string(),
        session: subject.session.to_string(),
        principal: subject.principal.to_string(),
        path: crate::printable::path(&change.path),
        what: change.what.clone(),
        action: action.to_owned(),
        failure,
        sha256: change.sha256.clone(),
    })
}

/// Some of a workspace was not looked at while a command ran.
pub fn workspace_shortfall(
    subject: Subject,
    sandbox_id: Option<String>,
    profile: &policy::ProfileName,
    reason: &str,
) -> Record {
    Record::Shortfall(ShortfallRecord {
        session: Some(subject.session.to_string()),
        principal: Some(subject.principal.to_string()),
        sandbox: sandbox_id,
        profile: Some(profile.to_string()),
        protection: "workspace".to_owned(),
        reason: reason.to_owned(),
    })
}
