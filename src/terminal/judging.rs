//! Judging a request where its session is: folders by where they really are, names by the files that the sandbox of
//! the profile will show.
//!
//! Looks at the host and asks policy; nothing is taken, started or remembered.

use crate::{
    policy::{self, Denial, Hearing, Minutes, Permit, PolicySet, Request, explain::Explanation},
    sandbox::programs::{Remembered, SessionViews},
    session::{LeadsOut, Session},
};

/// Judges, with a person's yes where there is one. The working folder is then the one that was judged. What the
/// journal is to say of it is in the minutes.
pub(super) fn judge(
    policy: &PolicySet,
    session: &Session,
    request: &mut Request,
    remembered: &Remembered,
    yes: Option<policy::Approval>,
    minutes: &mut Minutes,
) -> Result<Permit, Denial> {
    *minutes = Minutes::default();
    locate(session, request)?;
    let judged = policy::judge_with_minutes(policy, request, &views(request, remembered), yes, minutes);
    for (rule, decision) in &minutes.observed {
        tracing::info!(rule, %decision, principal = request.principal, "a rule that observes would have decided");
    }
    judged
}

/// Says what judging would come to, and why.
pub(super) fn explain(
    policy: &PolicySet,
    session: &Session,
    request: &Request,
    remembered: &Remembered,
) -> Explanation {
    let mut request = request.clone();
    let heard = locate(session, &mut request).and_then(|()| hear(policy, &request, remembered));
    Explanation::of(policy, &heard)
}

fn hear(policy: &PolicySet, request: &Request, remembered: &Remembered) -> Result<Hearing, Denial> {
    policy::hear(policy, request, &views(request, remembered))
}

/// A working folder is judged by where it really is. What changes after this leads nowhere: the command enters
/// the folder without following a link. One that is not there is refused by who enters it.
fn locate(session: &Session, request: &mut Request) -> Result<(), Denial> {
    match session.locate(&request.cwd) {
        Ok(real) => {
            request.cwd = real;
            Ok(())
        }
        Err(LeadsOut) => Err(Denial::Cwd(request.cwd.clone())),
    }
}

fn views<'a>(request: &Request, remembered: &'a Remembered) -> SessionViews<'a> {
    SessionViews::new(request.roots.iter().map(|root| root.as_path().to_owned()).collect(), remembered)
}
