//! The request context of a command, and the conditions of rules on it.
//!
//! A directory that is not known fulfils no condition surely. Paths are compared by their letters, and where there is a host, by what they
//! lead to.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    super::{
        known_directories::{Below, DirectoryPattern, KnownByPattern, KnownDirectories, KnownDirectory},
        pattern::{Match, PatternError, TextPattern},
        program::{Directory, ProgramResolver, resolve_place},
        shell::LineCwd,
    },
    source::{ClaimedField, Decision, WhenSource},
};

/// Who runs a command, and in what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestContext {
    /// The principal.
    pub principal: String,
    /// The session's labels.
    pub labels: BTreeMap<String, String>,
    /// The working directory that was asked for.
    pub cwd: String,
    /// Where else a relative pattern of a rule that denies or asks begins: the session's roots, and for an exec where the terminal's command began.
    pub relative_from: Vec<String>,
    /// The environment that the command would have.
    pub env: BTreeMap<String, String>,
    /// Further values of variables that a process gives a program more than once. Programs differ in which one they take:
    /// getenv(3) the first, bash the last. Such an exec is not refused, because programs that have one by accident mean nothing
    /// by it, and nothing is taken out, because what is evaluated must be what is executed.
    pub further_env: BTreeMap<String, Vec<String>>,
    /// What the directories of rules are.
    pub known_directories: Arc<KnownByPattern>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Conditions {
    principal: Vec<TextPattern>,
    labels: Vec<(String, TextPattern)>,
    cwd: Vec<DirectoryPattern>,
    env: Vec<(String, TextPattern)>,
}

impl Conditions {
    /// A condition that any caller can fulfil by claiming something. `None` where it holds for certain principals only.
    pub(super) fn unproven_field(&self) -> Option<ClaimedField> {
        let claim = match (self.labels.is_empty(), self.env.is_empty()) {
            (false, _) => ClaimedField::Labels,
            (true, false) => ClaimedField::Env,
            (true, true) => return None,
        };
        let accepts = |uid: u32| self.principal.iter().any(|text| text.accepts(&format!("uid:{uid}")));
        // Every length that a uid but root's can have, and every digit that it can begin and end with: patterns that
        // accept all of these are for everybody.
        let lengths = (0..10).map(|length| 10_u64.pow(length));
        let mut everybody = lengths
            .flat_map(|unit| (1..=9).flat_map(move |first| (0..=9).map(move |last| first * unit + last)))
            .filter_map(|uid| u32::try_from(uid).ok());
        (self.principal.is_empty() || everybody.all(accepts)).then_some(claim)
    }

    pub(super) fn reads_environment(&self) -> bool {
        !self.env.is_empty()
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = &str> {
        self.env.iter().map(|(name, _)| name.as_str())
    }

    pub(super) fn reads_directory(&self) -> bool {
        !self.cwd.is_empty()
    }

    /// Records what its directories are.
    pub(super) fn look(
        &self,
        known: &KnownDirectories,
        below: Below,
        roots: &[&str],
        programs: &dyn ProgramResolver,
    ) {
        self.cwd.iter().for_each(|pattern| known.look(pattern, below, roots, programs));
    }

    pub(super) fn compile(source: &WhenSource) -> Result<Self, PatternError> {
        let list =
            |texts: &[String]| texts.iter().map(|t| TextPattern::compile(t)).collect::<Result<Vec<_>, _>>();
        let map = |texts: &BTreeMap<String, String>| {
            texts
                .iter()
                .map(|(k, t)| Ok((k.clone(), TextPattern::compile(t)?)))
                .collect::<Result<Vec<_>, PatternError>>()
        };
        Ok(Self {
            principal: list(&source.principal)?,
            labels: map(&source.labels)?,
            cwd: source.cwd.iter().zip(list(&source.cwd)?).map(directory_pattern).collect(),
            env: map(&source.env)?,
        })
    }

    /// Whether all conditions of a rule with this decision hold. A variable that has several values has any of them for a rule that
    /// denies or asks, and all for one that allows.
    pub(super) fn holds(
        &self,
        request: &RequestContext,
        place: &LineCwd,
        decision: Decision,
        programs: &dyn ProgramResolver,
    ) -> Match {
        let principal =
            self.principal.is_empty() || self.principal.iter().any(|t| t.accepts(&request.principal));
        let named = |wanted: &[(String, TextPattern)], given: &BTreeMap<String, String>| {
            wanted.iter().all(|(name, text)| given.get(name).is_some_and(|value| text.accepts(value)))
        };
        let env = self.env.iter().all(|(name, text)| {
            let further = request.further_env.get(name).into_iter().flatten();
            let mut values = request.env.get(name).into_iter().chain(further).peekable();
            match decision {
                Decision::Allow => values.peek().is_some() && values.all(|value| text.accepts(value)),
                Decision::Ask | Decision::Deny => values.any(|value| text.accepts(value)),
            }
        });
        Match::of(principal && named(&self.labels, &request.labels) && env)
            .and(self.cwd_holds(request, place, decision, programs))
    }

    fn cwd_holds(
        &self,
        request: &RequestContext,
        place: &LineCwd,
        decision: Decision,
        programs: &dyn ProgramResolver,
    ) -> Match {
        if self.cwd.is_empty() {
            return Match::Yes;
        }
        let Some(cwd) = resolve_place(&request.cwd, place) else { return Match::Perhaps };
        let seen = programs.directories(&cwd);
        let accepts = |path: &str| above(path).any(|name| self.cwd.iter().any(|one| one.text.accepts(name)));
        let Some(seen) = seen else { return Match::of(accepts(&cwd)) };
        let real = seen.first().map(|directory| directory.path.as_str());
        let known =
            |pattern: &DirectoryPattern| request.known_directories.get(&pattern.source).into_iter().flatten();
        // Whether it may be one that had the name: below this root, and renamed since not everything there was looked at.
        let may_be = |root: &KnownDirectory| {
            let at = seen.iter().position(|one: &Directory| one.id == root.id);
            let since = root.left_out_since.unwrap_or(i64::MAX);
            at.is_some_and(|at| seen[..at].iter().any(|one| one.changed_nanos >= since))
        };
        let may_have_been = || self.cwd.iter().any(|pattern| known(pattern).any(may_be));
        let known = |pattern: &DirectoryPattern| known(pattern).filter(|one| one.left_out_since.is_none());
        let is_seen = |id| seen.iter().any(|directory: &Directory| directory.id == id);
        Match::of(match decision {
            Decision::Ask | Decision::Deny => {
                accepts(&cwd)
                    || real.is_some_and(accepts)
                    || self.cwd.iter().any(|pattern| known(pattern).any(|one| is_seen(one.id)))
                    || {
                        if may_have_been() {
                            return Match::Perhaps;
                        }
                        false
                    }
            }
            Decision::Allow => self.cwd.iter().any(|pattern| {
                let holds = |name: &str, is_real: bool| {
                    let mut recorded = known(pattern).filter(|one| one.path == name).peekable();
                    pattern.text.accepts(name)
                        && match recorded.peek() {
                            Some(_) => recorded.any(|one| is_seen(one.id)),
                            // A directory that came later is known by its name alone.
                            None => is_real,
                        }
                };
                above(&cwd).any(|name| holds(name, real.is_none()))
                    || real.is_some_and(|real| above(real).any(|name| holds(name, true)))
            }),
        })
    }
}

fn directory_pattern((source, text): (&String, TextPattern)) -> DirectoryPattern {
    DirectoryPattern { source: source.clone(), text }
}

/// A directory, and all above it: a pattern holds for what is below, too.
fn above(directory: &str) -> impl Iterator<Item = &str> {
    let ends = directory.rmatch_indices('/').map(|(at, _)| &directory[..at]);
    std::iter::once(directory).chain(ends).map(|path| if path.is_empty() { "/" } else { path })
}
