//! Effects of several allowing rules on one request, put together.
//!
//! Limits and times only ever get tighter. What can't be put together is refused, not chosen.

use super::rule::Effects;

/// Two rules ask for effects that exclude one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Excluded;

/// Adds effects; `Err` where both name a profile, or a value of one variable, and they differ.
pub(super) fn merge(effects: &mut Effects, more: &Effects) -> Result<(), Excluded> {
    match (&effects.profile, &more.profile) {
        (Some(a), Some(b)) if a != b => return Err(Excluded),
        (None, Some(b)) => effects.profile = Some(b.clone()),
        _ => {}
    }
    for (name, value) in &more.environment {
        if effects.environment.insert(name.clone(), value.clone()).is_some_and(|before| before != *value) {
            return Err(Excluded);
        }
    }
    effects.secrets.extend(more.secrets.iter().cloned());
    fn lower<T: Ord + Copy>(a: Option<T>, b: Option<T>) -> Option<T> {
        match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
    effects.time_limit = lower(effects.time_limit, more.time_limit);
    effects.idle_limit = lower(effects.idle_limit, more.idle_limit);
    effects.limits.memory_bytes = lower(effects.limits.memory_bytes, more.limits.memory_bytes);
    effects.limits.swap_bytes = lower(effects.limits.swap_bytes, more.limits.swap_bytes);
    effects.limits.pids = lower(effects.limits.pids, more.limits.pids);
    effects.limits.cpu_millis = lower(effects.limits.cpu_millis, more.limits.cpu_millis);
    Ok(())
}
