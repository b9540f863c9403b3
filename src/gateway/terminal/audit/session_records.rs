//! Makes the audit records of sessions: opened, refused, closed, and what their sandboxes lack. Pure.

use crate::{
    journal::{
        BypassReport, BypassReported, CacheKept, QuotaRefused, Record, SessionClosed, SessionOpened,
        ShortfallRecord,
    },
    policy,
    policy::AbsPath,
    sandbox::handle::Sandbox,
    session::{KeptReport, Principal, Session},
    terminal::quotas::QuotaReached,
};

/// A session was opened.
pub fn session_opened(session: &Session) -> Record {
    Record::SessionOpened(SessionOpened {
        session: session.id.to_string(),
        principal: session.principal.to_string(),
        roots: session.writable_roots().map(AbsPath::shown).collect(),
        read_only_roots: session.read_only_roots().map(AbsPath::shown).collect(),
        profile: session.profile.clone(),
        labels: session.labels.clone(),
        front_end: session.front_end.clone(),
    })
}

/// A caller reports a command that bypassed the gateway.
pub fn bypass_reported(session: &Session, report: BypassReport) -> Record {
    let (session, principal) = (session.id.to_string(), session.principal.to_string());
    Record::BypassReported(BypassReported { session, principal, report })
}

/// What became of a kept cache when its session had ended.
pub fn cache_kept(session: &Session, report: &KeptReport) -> Record {
    let (kept, problem) = match &report.outcome {
        Ok(kept) => (Some(kept), None),
        Err(error) => (None, Some(error.to_string())),
    };
    Record::CacheKept(CacheKept {
        session: session.id.to_string(),
        principal: session.principal.to_string(),
        cache: report.place.display().to_string(),
        files: kept.map(|kept| kept.files),
        bytes: kept.map(|kept| kept.used_bytes),
        left_out: kept.map_or(0, |kept| kept.left_out),
        problem,
    })
}

/// Nothing is left of a session.
pub fn session_closed(session: &Session, cause: &str) -> Record {
    Record::SessionClosed(SessionClosed {
        session: session.id.to_string(),
        principal: session.principal.to_string(),
        cause: cause.to_owned(),
    })
}

/// A session that a cap refused.
pub fn session_refused(principal: Principal, limit: &str, bound: u64) -> Record {
    Record::QuotaRefused(QuotaRefused {
        principal: principal.to_string(),
        session: None,
        limit: limit.to_owned(),
        bound,
    })
}

/// A session that its principal's share of the journal has no room for.
pub fn journal_share_reached(principal: Principal, reached: &QuotaReached) -> Record {
    Record::QuotaRefused(QuotaRefused {
        principal: principal.to_string(),
        session: None,
        limit: reached.name().to_owned(),
        bound: reached.max,
    })
}

/// What a sandbox was to have and has not.
pub fn shortfalls(session: &Session, profile: &policy::ProfileName, sandbox: &Sandbox) -> Vec<Record> {
    let of = |shortfall: &crate::sandbox::spec::Shortfall| {
        Record::Shortfall(ShortfallRecord {
            session: Some(session.id.to_string()),
            principal: Some(session.principal.to_string()),
            sandbox: Some(sandbox.id().to_owned()),
            profile: Some(profile.to_string()),
            protection: shortfall.protection.clone().into_owned(),
            reason: shortfall.reason.clone(),
        })
    };
    sandbox.shortfalls().iter().map(of).collect()
}
