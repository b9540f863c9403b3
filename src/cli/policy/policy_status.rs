//! `provost policy status` and `reload`: the policy that a gateway has in force.
//!
//! Needs a gateway that runs; the other commands of `provost policy` work on files.

use clap::Args;
use serde::Serialize;

use crate::{
    cli::{
        console::{
            error::CliError,
            table::{print_to_stdout, to_json_line},
        },
        gateway_link::connection::GatewayConnection,
        request::arguments::{GatewayArguments, OutputArguments, OutputFormat},
    },
    proto::v1,
};

/// The exit status where newer files could not be loaded: an older policy is in force.
const REFUSED: u8 = 1;

/// `provost policy status`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 when what the files say is in force, 1 when they could not be loaded and an older \
                        policy is\n\nExample:\n  provost policy status -o json"
)]
pub(in crate::cli) struct StatusArguments {
    #[command(flatten)]
    gateway: GatewayArguments,
    #[command(flatten)]
    output: OutputArguments,
}

/// `provost policy reload`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 when what the files say is in force, 1 when they could not be loaded\n\n\
                        Example:\n  provost policy reload"
)]
pub(in crate::cli) struct ReloadArguments {
    #[command(flatten)]
    gateway: GatewayArguments,
    #[command(flatten)]
    output: OutputArguments,
}

/// Prints what is in force.
pub(in crate::cli) async fn status(arguments: StatusArguments) -> Result<u8, CliError> {
    let connection = GatewayConnection::find(arguments.gateway.gateway.as_deref()).await?;
    let policy = connection
        .client()
        .policies
        .get_policy(v1::GetPolicyRequest {})
        .await?
        .into_inner()
        .policy
        .unwrap_or_default();
    print(&policy, arguments.output.output)
}

/// Loads again, and prints what is in force then.
pub(super) async fn reload(arguments: ReloadArguments) -> Result<u8, CliError> {
    let connection = GatewayConnection::find(arguments.gateway.gateway.as_deref()).await?;
    let answer = connection.client().policies.reload_policy(v1::ReloadPolicyRequest {}).await?.into_inner();
    print(&answer.policy.unwrap_or_default(), arguments.output.output)
}

fn print(policy: &v1::Policy, format: OutputFormat) -> Result<u8, CliError> {
    let text = match format {
        OutputFormat::Json => to_json_line(&PolicyStatusJson::from(policy))?,
        OutputFormat::Text => status_text(policy),
    };
    let written = print_to_stdout(&text)?;
    Ok(if written == 0 && policy.load_problem.is_some() { REFUSED } else { written })
}

fn status_text(policy: &v1::Policy) -> String {
    let loaded = policy.loaded_at.as_ref().map_or_else(|| "?".to_owned(), ToString::to_string);
    let mut lines = vec![
        format!("generation {}, loaded {loaded}", policy.generation),
        format!("digest     {}", policy.digest),
        format!(
            "rules      {}; profiles {} (default {})",
            policy.rules,
            policy.profiles.join(", "),
            policy.default_profile
        ),
        format!(
            "loads      {} taken, {} without a change, {} refused",
            policy.loads, policy.unchanged_loads, policy.refused_loads
        ),
    ];
    lines.extend(policy.files.iter().map(|file| format!("file       {file}")));
    if let Some(problem) = &policy.load_problem {
        let at = problem.refused_at.as_ref().map_or_else(|| "?".to_owned(), ToString::to_string);
        lines.push(format!("REFUSED    at {at}: the files are not what is in force"));
        lines.push(match (problem.rendered.as_str(), problem.file.as_str()) {
            ("", "") => problem.message.clone(),
            ("", file) => format!("{file}:{}:{}: {}", problem.line, problem.column, problem.message),
            (shown, _) => shown.to_owned(),
        });
    }
    lines.push(String::new());
    lines.join("\n")
}

/// What `-o json` prints.
#[derive(Debug, Serialize)]
struct PolicyStatusJson {
    generation: u64,
    digest: String,
    files: Vec<String>,
    rules: u32,
    profiles: Vec<String>,
    default_profile: String,
    loaded_at: Option<String>,
    refused: Option<RefusedPolicyJson>,
    loads: u64,
    unchanged_loads: u64,
    refused_loads: u64,
}

#[derive(Debug, Serialize)]
struct RefusedPolicyJson {
    problem: String,
    file: Option<String>,
    line: Option<u32>,
    column: Option<u32>,
    at: Option<String>,
}

impl From<&v1::Policy> for PolicyStatusJson {
    fn from(policy: &v1::Policy) -> Self {
        Self {
            generation: policy.generation,
            digest: policy.digest.clone(),
            files: policy.files.clone(),
            rules: policy.rules,
            profiles: policy.profiles.clone(),
            default_profile: policy.default_profile.clone(),
            loaded_at: policy.loaded_at.as_ref().map(ToString::to_string),
            refused: policy.load_problem.as_ref().map(|problem| {
                let has_place = !problem.file.is_empty();
                RefusedPolicyJson {
                    problem: problem.message.clone(),
                    file: has_place.then(|| problem.file.clone()),
                    line: has_place.then_some(problem.line),
                    column: has_place.then_some(problem.column),
                    at: problem.refused_at.as_ref().map(ToString::to_string),
                }
            }),
            loads: policy.loads,
            unchanged_loads: policy.unchanged_loads,
            refused_loads: policy.refused_loads,
        }
    }
}
