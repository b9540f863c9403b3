//! The policies service.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use tokio::sync::{mpsc, oneshot};
use tonic::{Request, Response, Status};

use super::{
    caller, deadline,
    errors::{self, ResourceKind},
    request,
    response::shown,
};
use crate::{
    policy::{
        FailedLoad, LoadOutcome, PolicyFileError, PolicySet,
        explain::{self, Explanation},
    },
    proto::v1::{
        self, CheckPolicyRequest, CheckPolicyResponse, Decision, ExplainRequest, ExplainResponse,
        ExplainedCommand, ExplainedRun, GetPolicyRequest, GetPolicyResponse, MatchedRule, Network, Policy,
        PolicyProblem, ReloadPolicyRequest, ReloadPolicyResponse, policies_server::Policies as Service,
    },
    session::{Principal, Sessions},
    terminal::{Terminals, outcome::timestamp},
};

/// What became of a load that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReloadOutcome {
    /// The files are a policy.
    Valid(LoadOutcome),
    /// They are not.
    Refused,
}

/// Where a load is asked for.
pub(super) type ReloadSender = mpsc::Sender<oneshot::Sender<ReloadOutcome>>;

/// The service.
#[derive(Debug, Clone)]
pub(crate) struct PoliciesService {
    /// All sessions.
    pub sessions: Arc<Sessions>,
    /// All terminals, with the policy that judges.
    pub terminals: Arc<Terminals>,
    /// Who loads.
    pub reloads: ReloadSender,
}

impl PoliciesService {
    fn policy(&self, caller: Principal) -> Policy {
        let in_force = self.terminals.policy();
        // In this order: a load between the two shows as a newer load of the older policy, and not as a wrong one.
        let (set, loading) = (in_force.current(), in_force.load_status());
        let default_profile = set.profile(None).map(|(name, _)| name.to_string());
        let may_read = self.terminals.approvals().is_administrator(caller);
        Policy {
            generation: set.generation(),
            digest: set.digest().to_string(),
            files: set.files().to_vec(),
            rules: count(set.rules().len()),
            profiles: profiles(&set),
            default_profile: default_profile.unwrap_or_default(),
            loaded_at: Some(timestamp(UNIX_EPOCH + Duration::from_millis(loading.loaded_at_unix_ms))),
            load_problem: loading.last_failure.as_ref().map(|refusal| problem_message(refusal, may_read)),
            loads: loading.loads,
            unchanged_loads: loading.unchanged,
            refused_loads: loading.failed,
        }
    }
}

#[tonic::async_trait]
impl Service for PoliciesService {
    async fn check_policy(
        &self,
        request: Request<CheckPolicyRequest>,
    ) -> Result<Response<CheckPolicyResponse>, Status> {
        let uid = caller(&request)?.principal.uid;
        let limit = deadline::timeout_of(request.metadata());
        let files = request::policy_files(request.into_inner()).map_err(errors::bad_field)?;
        let check = move || {
            let texts: Vec<(&str, &str)> =
                files.iter().map(|file| (file.name.as_str(), file.text.as_str())).collect();
            PolicySet::load(&texts).map(|set| CheckPolicyResponse {
                problem: None,
                digest: set.digest().to_string(),
                rules: count(set.rules().len()),
                profiles: profiles(&set),
            })
        };
        let checked = deadline::within(limit, self.terminals.on_large_request_pool(uid, check)).await?;
        let checked = checked.map_err(|overdue| errors::file_system(&overdue, overdue.to_string()))?;
        Ok(Response::new(match checked {
            Ok(checked) => checked,
            Err(error) => CheckPolicyResponse {
                problem: Some(PolicyProblem { rendered: error.to_string(), ..problem_location(&error) }),
                ..CheckPolicyResponse::default()
            },
        }))
    }

    async fn explain(&self, request: Request<ExplainRequest>) -> Result<Response<ExplainResponse>, Status> {
        let caller = caller(&request)?.principal;
        let limit = deadline::timeout_of(request.metadata());
        let create = request.into_inner().create.unwrap_or_default();
        let session = self.sessions.find(caller, &create.session_id);
        let session = session.ok_or_else(|| errors::not_found(ResourceKind::Session))?;
        request::arguments_fit("create.", &create).map_err(errors::arguments_too_long)?;
        let new = request::new_terminal("create.", session, create).map_err(errors::bad_field)?;
        let explained = deadline::within(limit, self.terminals.explain(&new)).await?;
        let explained = explained.map_err(|overdue| errors::file_system(&overdue, overdue.to_string()))?;
        Ok(Response::new(explanation_message(explained)))
    }

    async fn get_policy(
        &self,
        request: Request<GetPolicyRequest>,
    ) -> Result<Response<GetPolicyResponse>, Status> {
        let policy = self.policy(caller(&request)?.principal);
        Ok(Response::new(GetPolicyResponse { policy: Some(policy) }))
    }

    async fn reload_policy(
        &self,
        request: Request<ReloadPolicyRequest>,
    ) -> Result<Response<ReloadPolicyResponse>, Status> {
        let caller = caller(&request)?.principal;
        if !self.terminals.approvals().is_administrator(caller) {
            return Err(errors::not_an_administrator());
        }
        let (answer, answered) = oneshot::channel();
        let reloaded = async {
            // Closed only when the gateway ends.
            self.reloads.send(answer).await.map_err(|_| errors::draining())?;
            answered.await.map_err(|_| errors::draining())
        };
        let reloaded = deadline::within(deadline::timeout_of(request.metadata()), reloaded).await??;
        let changed = match reloaded {
            ReloadOutcome::Valid(LoadOutcome::Replaced(_)) => true,
            ReloadOutcome::Valid(LoadOutcome::Unchanged) | ReloadOutcome::Refused => false,
        };
        Ok(Response::new(ReloadPolicyResponse { policy: Some(self.policy(caller)), changed }))
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn profiles(set: &PolicySet) -> Vec<String> {
    set.profiles().map(|(name, _)| name.to_string()).collect()
}

/// Why the files were refused; with their text only for who may read them.
fn problem_message(refusal: &FailedLoad, may_read: bool) -> PolicyProblem {
    let problem = match &refusal.place {
        Some(error) => problem_location(error),
        None => PolicyProblem { message: refusal.problem.clone(), ..PolicyProblem::default() },
    };
    let rendered = if may_read { refusal.problem.clone() } else { String::new() };
    let at = timestamp(UNIX_EPOCH + Duration::from_millis(refusal.at_unix_ms));
    PolicyProblem { rendered, refused_at: Some(at), ..problem }
}

fn problem_location(error: &PolicyFileError) -> PolicyProblem {
    PolicyProblem {
        message: error.problem.clone(),
        file: error.file.clone(),
        line: count(error.line),
        column: count(error.column),
        rendered: String::new(),
        refused_at: None,
    }
}

fn explanation_message(explanation: Explanation) -> ExplainResponse {
    ExplainResponse {
        decision: decision(&explanation.decision).into(),
        rule: explanation.rule.unwrap_or_default(),
        reason: explanation.because,
        generation: explanation.generation,
        policy_digest: explanation.policy,
        commands: explanation.commands.into_iter().map(command_message).collect(),
        observed_rules: explanation
            .observed
            .into_iter()
            .map(|it| MatchedRule {
                rule: it.rule,
                decision: decision(&it.decision).into(),
                certain: true,
                ..Default::default()
            })
            .collect(),
        run: explanation.run.map(run_message),
    }
}

fn command_message(command: explain::CommandExplanation) -> ExplainedCommand {
    let matched = command.matched.into_iter().map(|it| MatchedRule {
        rule: it.rule,
        decision: decision(&it.decision).into(),
        certain: it.surely,
        location: it.place.unwrap_or_default(),
    });
    ExplainedCommand {
        normal_form: shown(&command.normal_form),
        wrappers: command.within,
        file: shown(&command.file.unwrap_or_default()),
        decision: decision(&command.decision).into(),
        reason: command.because,
        matched_rules: matched.collect(),
    }
}

fn run_message(run: explain::PlannedRun) -> ExplainedRun {
    v1::ExplainedRun {
        profile: run.profile,
        argv: run.argv,
        file: run.file.unwrap_or_default(),
        cwd: run.cwd,
        network: network(&run.network).into(),
        env_names: run.environment.into_keys().collect(),
        time_limit: run.time_limit_ms.map(duration),
        idle_limit: run.idle_limit_ms.map(duration),
    }
}

fn duration(milliseconds: u64) -> prost_types::Duration {
    let seconds = i64::try_from(milliseconds / 1_000).unwrap_or(i64::MAX);
    prost_types::Duration { seconds, nanos: (milliseconds % 1_000) as i32 * 1_000_000 }
}

/// Parses a decision's name in an explanation; a rule that is no longer there has none.
fn decision(name: &str) -> Decision {
    match name {
        "allow" => Decision::Allow,
        "deny" => Decision::Deny,
        "ask" => Decision::Ask,
        _ => Decision::Unspecified,
    }
}

fn network(name: &str) -> Network {
    match name {
        "none" => Network::None,
        "host" => Network::Host,
        "proxy" => Network::Proxy,
        _ => Network::Unspecified,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_tells_all_that_was_found() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let matched = explain::MatchedRule {
            rule: "seen".into(),
            decision: "allow".into(),
            surely: true,
            place: Some("p.toml:3".into()),
        };
        let command = explain::CommandExplanation {
            normal_form: "touch a".into(),
            within: names(&["env"]),
            file: Some("/bin/touch".into()),
            decision: "ask".into(),
            because: "a rule asks".into(),
            matched: vec![matched],
        };
        let run = explain::PlannedRun {
            profile: "offline".into(),
            argv: names(&["touch", "a"]),
            file: Some("/bin/touch".into()),
            cwd: "/work".into(),
            network: "none".into(),
            environment: [("A".to_owned(), "a value".to_owned())].into(),
            time_limit_ms: Some(61_500),
            idle_limit_ms: Some(2_001),
        };
        let explanation = Explanation {
            decision: "ask".into(),
            rule: Some("careful".into()),
            because: "a person must say yes".into(),
            generation: 7,
            policy: "digest".into(),
            commands: vec![command],
            observed: vec![explain::ObservedRule { rule: "watched".into(), decision: "deny".into() }],
            run: Some(run),
        };
        let response = ExplainResponse {
            decision: Decision::Ask.into(),
            rule: "careful".into(),
            reason: "a person must say yes".into(),
            generation: 7,
            policy_digest: "digest".into(),
            commands: vec![ExplainedCommand {
                normal_form: "touch a".into(),
                wrappers: names(&["env"]),
                file: "/bin/touch".into(),
                decision: Decision::Ask.into(),
                reason: "a rule asks".into(),
                matched_rules: vec![MatchedRule {
                    rule: "seen".into(),
                    decision: Decision::Allow.into(),
                    certain: true,
                    location: "p.toml:3".into(),
                }],
            }],
            observed_rules: vec![MatchedRule {
                rule: "watched".into(),
                decision: Decision::Deny.into(),
                certain: true,
                location: String::new(),
            }],
            run: Some(ExplainedRun {
                profile: "offline".into(),
                argv: names(&["touch", "a"]),
                file: "/bin/touch".into(),
                cwd: "/work".into(),
                network: Network::None.into(),
                env_names: names(&["A"]),
                time_limit: Some(prost_types::Duration { seconds: 61, nanos: 500_000_000 }),
                idle_limit: Some(prost_types::Duration { seconds: 2, nanos: 1_000_000 }),
            }),
        };
        assert_eq!(explanation_message(explanation), response);
    }

    #[test]
    fn decisions_and_networks_are_told_by_their_names() {
        for (name, expected) in [
            ("allow", Decision::Allow),
            ("deny", Decision::Deny),
            ("ask", Decision::Ask),
            ("", Decision::Unspecified),
        ] {
            assert_eq!(decision(name), expected, "{name:?}");
        }
        for (name, expected) in [
            ("none", Network::None),
            ("host", Network::Host),
            ("proxy", Network::Proxy),
            ("", Network::Unspecified),
        ] {
            assert_eq!(network(name), expected, "{name:?}");
        }
    }

    #[test]
    fn what_was_refused_is_told_with_its_place_and_its_text_only_to_who_may_read_it() {
        let at = prost_types::Timestamp { seconds: 1_700_000_000, nanos: 500_000_000 };
        let message = |place, may_read| {
            let refusal =
                FailedLoad { problem: "what is wrong".into(), place, at_unix_ms: 1_700_000_000_500 };
            problem_message(&refusal, may_read)
        };
        let place = PolicyFileError::at("p.toml", "a = 1\nbb = 2\n", 7..8, "unknown key");
        let placed = PolicyProblem {
            message: "unknown key".into(),
            file: "p.toml".into(),
            line: 2,
            column: 2,
            rendered: String::new(),
            refused_at: Some(at),
        };
        assert_eq!(message(Some(place.clone()), false), placed);
        assert_eq!(message(Some(place), true), PolicyProblem { rendered: "what is wrong".into(), ..placed });
        let unplaced = PolicyProblem {
            message: "what is wrong".into(),
            refused_at: Some(at),
            ..PolicyProblem::default()
        };
        assert_eq!(message(None, false), unplaced);
    }
}
