//! `provost policy explain`: what would happen to a command, and why; with `--connect`, what a policy says about one connection.
//!
//! Resolves no name and connects to nothing.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use serde::Serialize;

use super::{load, print};
use crate::{
    cli::{
        console::error::CliError,
        request::arguments::{OutputArguments, OutputFormat, WorkspaceArguments, parse_assignment},
    },
    network::{
        destination::Host,
        http_request::{Scheme, WantedConnection},
        socket_path::SocketPath,
    },
    policy::{
        AbsPath, CommandSpec, ExecRequest, PolicySet, ProfileResolvers, Request,
        command::{
            program::{self, Resolved, interpreted_argv},
            rule::Decision,
            shell::LineCwd,
        },
        connect::{ConnectingProgram, SocketRequest, TlsHandling, Tunnel},
        connect_decision::{AppliedCa, AppliedCredential, ConnectDecision, NAME_RULE, SOCKET_RULE},
        environment::{self, EnvEntry},
        executed_path,
        explain::Explanation,
    },
    printable,
    resolve::{ProgramCache, SessionResolver},
};

/// `provost policy explain`.
#[derive(Debug, Args)]
#[command(after_help = "One argument that holds a blank is taken for a shell line.\n\n\
                        Exit status: 0 allowed, 3 asks for approval, 1 denied\n\n\
                        Examples:\n  provost policy explain -- git push --force\n  \
                        provost policy explain --exec -- cc -c x.c\n  \
                        provost policy explain -o json -- 'cd x && make install'\n  \
                        provost policy explain --connect registry.npmjs.org:443")]
pub(in crate::cli) struct ExplainArguments {
    /// The policy. Without it: the one that is compiled in
    #[arg(long, value_name = "DIR")]
    policies: Option<PathBuf>,
    /// Who asks; without it you
    #[arg(long = "as", value_name = "PRINCIPAL")]
    principal: Option<String>,
    #[command(flatten)]
    workspace: WorkspaceArguments,
    /// A variable that the caller passes; may be given many times
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = parse_assignment)]
    env: Vec<(String, String)>,
    /// A label of the session; may be given many times
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment)]
    label: Vec<(String, String)>,
    /// The profile; without it the policy's default
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// The command is what a process of a running terminal executes, as the exec gate sees it
    #[arg(long)]
    exec: bool,
    /// The rule with `starts = "any"` that allowed the terminal's command
    #[arg(long, value_name = "RULE", requires = "exec")]
    starts_any: Option<String>,
    #[command(flatten)]
    output: OutputArguments,
    /// The command and its arguments, or one shell line
    #[arg(last = true, required_unless_present = "connect", value_name = "COMMAND [ARG]...")]
    command: Vec<String>,
    /// Say what would happen to a connection of a command with the network "proxy" (HOST:PORT, unix:PATH, or "GET http://HOST/PATH"), instead of a
    /// command
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["command", "exec", "env"])]
    connect: Option<String>,
    /// With --connect: an address that the name leads to; may be given many times
    #[arg(long, value_name = "ADDRESS", requires = "connect")]
    address: Vec<std::net::IpAddr>,
    /// With --connect: the program that connects, by its path; without it rules with `program` restrict
    #[arg(long, value_name = "PATH", requires = "connect")]
    program: Option<String>,
}

pub(in crate::cli) fn explain(arguments: ExplainArguments) -> Result<u8, CliError> {
    let policy = load(arguments.policies.as_deref())?;
    if let Some(destination) = &arguments.connect {
        let principal = arguments.principal.clone().unwrap_or_else(own_principal);
        let caller = Caller {
            principal: &principal,
            profile: arguments.profile.as_deref(),
            program: arguments.program.as_deref(),
        };
        let format = arguments.output.output;
        let (shown, status) = explain_connect(&policy, caller, destination, &arguments.address, format)?;
        print(&shown)?;
        return Ok(status);
    }
    let request = request(&arguments)?;
    let remembered = ProgramCache::default();
    let roots = request.roots.iter().map(|root| root.as_path().to_owned()).collect();
    let views = SessionResolver::as_gateway(roots, &remembered);
    let explanation = match arguments.exec {
        true => explain_exec(&policy, &request, arguments.starts_any.as_deref(), &views)?,
        false => Explanation::new(&policy.evaluate(&request, &views)),
    };
    if arguments.output.output == OutputFormat::Json {
        let json =
            serde_json::to_string_pretty(&explanation).map_err(|e| CliError::caused_by("explanation", e))?;
        print(&printable::json(&json))?;
    } else {
        print(&explanation_text(&explanation))?;
    }
    Ok(match explanation.decision.as_str() {
        "allow" => 0,
        "ask" => 3,
        _ => 1,
    })
}

/// Explains what would be decided about an exec in a terminal of the request's principal, session and profile.
fn explain_exec(
    policy: &PolicySet,
    request: &Request,
    starts_any_rule: Option<&str>,
    views: &SessionResolver<'_>,
) -> Result<Explanation, CliError> {
    let CommandSpec::Argv { command, args } = &request.command else {
        return Err(CliError::message_only("an exec has a program and arguments, not a line".to_owned()));
    };
    let (name, profile) = policy
        .profile(request.profile.as_deref())
        .ok_or_else(|| CliError::message_only(format!("there is no profile {:?}", request.profile)))?;
    let resolver = views.for_profile(profile);
    let cwd = request.cwd.as_str();
    let file = match program::resolve_command(resolver.as_ref(), command, cwd, &LineCwd::Start) {
        Resolved::File(file) => file,
        Resolved::Missing | Resolved::Builtin => {
            let problem =
                format!("{command:?} is no file in the sandbox: the exec would fail, without a decision");
            return Err(CliError::message_only(problem));
        }
        Resolved::Unknown => {
            return Err(CliError::message_only(format!("{command:?} may be a file in the sandbox only")));
        }
    };
    let argv: Vec<String> = std::iter::once(command).chain(args).cloned().collect();
    let env = environment::merge_variables(profile, &request.session_env, &request.env);
    let interpreters = resolver.interpreters(&file, cwd).chain;
    let lines = interpreters.iter().map(|one| (one.path_text(), one.argument_text()));
    let script = program::script_name(command, &file).to_owned();
    let final_argv = interpreted_argv(script, args.iter().cloned(), lines);
    let exec = ExecRequest {
        principal: &request.principal,
        labels: &request.labels,
        profile: name,
        cwd,
        relative_from: &request.relative_from(),
        path: &executed_path(command, &file, cwd),
        argv: &argv,
        env: Some(&env),
        further_env: &BTreeMap::new(),
        interpreters: &interpreters,
        final_argv: &final_argv,
        file,
        starts_any_rule,
        approved: &[],
    };
    Ok(Explanation::of_exec(policy, &exec, resolver.as_ref()))
}

fn request(arguments: &ExplainArguments) -> Result<Request, CliError> {
    let roots = match arguments.workspace.roots() {
        [] => {
            vec![
                std::env::current_dir()
                    .map_err(|error| CliError::caused_by("the current directory", error))?,
            ]
        }
        roots => roots.to_vec(),
    };
    let cwd = absolute(&arguments.workspace.working_directory(&roots[0])?, "--workdir")?;
    let roots = roots.iter().map(|root| absolute(root, "--root")).collect::<Result<Vec<_>, _>>()?;
    let entry = |(name, value): &(String, String)| EnvEntry::new(name.clone(), value.clone());
    let env: Result<Vec<EnvEntry>, _> = arguments.env.iter().map(entry).collect();
    let program = match arguments.command.as_slice() {
        [line] if line.contains(char::is_whitespace) => CommandSpec::ShellLine(line.clone()),
        [command, args @ ..] => CommandSpec::Argv { command: command.clone(), args: args.to_vec() },
        [] => return Err(CliError::message_only("a command is needed".to_owned())),
    };
    let principal = arguments.principal.clone().unwrap_or_else(own_principal);
    Ok(Request {
        labels: Arc::new(arguments.label.iter().cloned().collect::<BTreeMap<_, _>>()),
        env: env.map_err(|error| CliError::caused_by("--env", error))?,
        profile: arguments.profile.clone(),
        ..Request::plain(principal, Arc::from(roots), cwd, program)
    })
}

fn own_principal() -> String {
    format!("uid:{}", nix::unistd::geteuid())
}

fn absolute(path: &Path, option: &str) -> Result<AbsPath, CliError> {
    AbsPath::of_path(path).map_err(|error| CliError::caused_by(option, error))
}

/// An explanation as text.
fn explanation_text(explanation: &Explanation) -> String {
    let mut lines = vec![format!("{}: {}", explanation.decision, explanation.because)];
    for command in &explanation.commands {
        let within = match command.within.as_slice() {
            [] => String::new(),
            within => format!(" (in {})", within.join(", ")),
        };
        lines.push(format!("\n  {}{within}", printable::line(&command.normal_form)));
        if let Some(file) = &command.file {
            lines.push(format!("    file     {}", printable::line(file)));
        }
        lines.push(format!("    {:8} {}", command.decision, command.because));
        for matched in &command.matched {
            let surely = if matched.surely { "matches" } else { "may match" };
            let place = matched.place.as_deref().unwrap_or("?");
            lines.push(format!("    {surely:8} {} ({}, {place})", matched.rule, matched.decision));
        }
    }
    for observed in &explanation.observed {
        lines.push(format!("\n  observed: rule {:?} would say {}", observed.rule, observed.decision));
    }
    if let Some(run) = &explanation.run {
        let file = printable::line(run.file.as_deref().unwrap_or("found when it runs"));
        lines.push(format!("\n  profile  {}\n  network  {}\n  executes {file}", run.profile, run.network));
        lines.push(format!("  cwd      {}", printable::line(&run.cwd)));
        lines.extend(
            run.environment
                .iter()
                .map(|(name, value)| format!("  env      {}", printable::line(&format!("{name}={value}")))),
        );
        if let Some(limit) = run.time_limit_ms {
            lines.push(format!("  limit    {limit} ms"));
        }
    }
    lines.push(format!("\n  policy   generation {}, {}", explanation.generation, explanation.policy));
    lines.join("\n")
}

/// Who would connect.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller<'a> {
    /// The principal.
    pub(in crate::cli) principal: &'a str,
    /// The profile's name; absent: the default one.
    pub(in crate::cli) profile: Option<&'a str>,
    /// The program; absent: it is not known.
    pub(in crate::cli) program: Option<&'a str>,
}

/// A decision about a name or an address.
#[derive(Debug, Serialize)]
struct ExplainedConnection {
    /// "allow", "ask" or "deny".
    decision: Decision,
    /// The rule that decided, `default`, or the name of a check of the proxy's own.
    rule: String,
    /// Why.
    reason: String,
    /// File and line of the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<String>,
    /// As the rules see it.
    destination: String,
    /// The address that was decided on; absent: the name was.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    /// What may be spoken, unless it is denied: "checked" or "any".
    #[serde(skip_serializing_if = "Option::is_none")]
    tunnel: Option<Tunnel>,
    /// Only HTTP requests may be spoken, each of which is judged.
    requests_only: bool,
    /// What becomes of TLS, unless it is denied: "carry" or "terminate".
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<TlsHandling>,
    /// The headers into which secrets are put, in opened TLS, and the rules that say so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    credentials: Vec<ExplainedCredential>,
    /// The files by which servers are verified in opened TLS, in the place of the host's trusted roots, and the rules that say so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    authorities: Vec<ExplainedCa>,
    /// Rules that only watch and that are about it.
    observed: Vec<String>,
}

/// A secret that a request is given.
#[derive(Debug, Serialize)]
struct ExplainedCredential {
    /// The name of the secret.
    secret: String,
    /// The header.
    header: String,
    /// The rule.
    rule: String,
}

/// A file by whose certificates a server is verified.
#[derive(Debug, Serialize)]
struct ExplainedCa {
    /// The file.
    file: String,
    /// The rule.
    rule: String,
}

/// The explanation, and the exit status.
pub(in crate::cli) fn explain_connect(
    policy: &PolicySet,
    caller: Caller<'_>,
    destination: &str,
    addresses: &[IpAddr],
    format: OutputFormat,
) -> Result<(String, u8), CliError> {
    let (profile, _) = policy
        .profile(caller.profile)
        .ok_or_else(|| CliError::message_only(format!("there is no profile {:?}", caller.profile)))?;
    let program = match caller.program {
        Some(one) => ConnectingProgram::Known(vec![one.to_owned()]),
        None => ConnectingProgram::Unknown,
    };
    let by = (caller.principal, profile.as_str(), &program);
    let explained = match (SocketPath::parse_connection(destination), WantedConnection::parse(destination)) {
        (Some(Ok(path)), _) => vec![decide_socket(policy, by, &path)],
        (Some(Err(error)), _) => vec![malformed(destination, SOCKET_RULE, error.to_string())],
        (None, Err(error)) => vec![malformed(destination, NAME_RULE, error.to_string())],
        (None, Ok(wanted)) => decide(policy, by, &wanted, addresses),
    };
    let shown = match format {
        OutputFormat::Json => {
            let json = serde_json::to_string_pretty(&explained)
                .map_err(|e| CliError::caused_by("explanation", e))?;
            printable::json(&json).into_owned()
        }
        OutputFormat::Text => explained.iter().map(text).collect::<Vec<_>>().join("\n"),
    };
    let is_allowed = explained.iter().all(|one| one.decision == Decision::Allow);
    Ok((shown, u8::from(!is_allowed)))
}

/// What is refused before any rule is looked at.
fn malformed(destination: &str, rule: &str, reason: String) -> ExplainedConnection {
    ExplainedConnection {
        decision: Decision::Deny,
        rule: rule.to_owned(),
        reason,
        location: None,
        destination: destination.to_owned(),
        address: None,
        tunnel: None,
        requests_only: false,
        tls: None,
        credentials: Vec::new(),
        authorities: Vec::new(),
        observed: Vec::new(),
    }
}

fn decide_socket(
    policy: &PolicySet,
    (principal, profile, program): (&str, &str, &ConnectingProgram),
    path: &SocketPath,
) -> ExplainedConnection {
    let request = SocketRequest { principal, profile, path, program, is_approved: false };
    let decided = policy.connect_socket(&request);
    ExplainedConnection {
        decision: decided.decision,
        location: location(policy, &decided),
        tunnel: (decided.decision != Decision::Deny).then_some(decided.tunnel),
        observed: decided.observed.clone(),
        ..malformed(&path.to_string(), decided.reason.rule(), decided.reason.text())
    }
}

/// File and line of the rule.
fn location(policy: &PolicySet, decided: &ConnectDecision) -> Option<String> {
    policy.rule_location(decided.reason.rule()).map(|at| format!("{}:{}", at.file, at.line))
}

fn decide(
    policy: &PolicySet,
    (principal, profile, program): (&str, &str, &ConnectingProgram),
    wanted: &WantedConnection,
    addresses: &[IpAddr],
) -> Vec<ExplainedConnection> {
    let caller = (principal, profile);
    let explained = |decided: ConnectDecision, address: Option<IpAddr>| ExplainedConnection {
        decision: decided.decision,
        rule: decided.reason.rule().to_owned(),
        reason: decided.reason.text(),
        location: location(policy, &decided),
        destination: match &wanted.request {
            None => wanted.destination.to_string(),
            Some(http) => format!("{} {http}", wanted.destination),
        },
        address,
        tunnel: (decided.decision != Decision::Deny).then_some(decided.tunnel),
        requests_only: decided.requests_only,
        tls: (decided.decision != Decision::Deny).then_some(decided.tls),
        credentials: decided
            .credentials
            .into_iter()
            .filter(|_| wanted.scheme != Some(Scheme::Http))
            .map(|AppliedCredential { credential, rule }| ExplainedCredential {
                secret: credential.secret,
                header: credential.header,
                rule,
            })
            .collect(),
        authorities: decided
            .authorities
            .into_iter()
            .filter(|_| wanted.scheme != Some(Scheme::Http))
            .map(|AppliedCa { file, rule }| ExplainedCa { file: file.to_string(), rule })
            .collect(),
        observed: decided.observed,
    };
    let at = |address: IpAddr| {
        explained(policy.connect_wanted(caller, wanted, Some(address), program), Some(address))
    };
    if let Host::Address(address) = wanted.destination.host {
        return vec![at(address)];
    }
    let name = explained(policy.connect_wanted(caller, wanted, None, program), None);
    // A name that is refused is not resolved.
    let is_resolved = name.decision != Decision::Deny;
    std::iter::once(name)
        .chain(addresses.iter().filter(|_| is_resolved).map(|address| at(*address)))
        .collect()
}

fn text(one: &ExplainedConnection) -> String {
    let place = one.location.as_ref().map(|place| format!(" ({place})")).unwrap_or_default();
    let address = one.address.map(|address| format!(" at {address}")).unwrap_or_default();
    let mut lines = vec![format!(
        "{}: {}{address}: {} ({}{place})",
        one.decision,
        printable::line(&one.destination),
        printable::line(&one.reason),
        one.rule
    )];
    match one.tunnel {
        Some(_) if one.tls == Some(TlsHandling::Terminate) => {
            lines.push("  HTTP, also in TLS, which is opened: its requests are judged".to_owned());
        }
        Some(_) if one.requests_only => {
            lines.push("  HTTP without TLS: rules are about its requests".to_owned());
        }
        Some(Tunnel::Checked) => lines.push("  TLS that names the same host, or HTTP".to_owned()),
        Some(Tunnel::Any) => lines.push("  any protocol".to_owned()),
        None => {}
    }
    lines.extend(one.credentials.iter().map(|ExplainedCredential { secret, header, rule }| {
        format!("  in TLS the secret {secret} as the header {header} ({rule})")
    }));
    lines.extend(one.authorities.iter().map(|ExplainedCa { file, rule }| {
        format!("  in TLS the server verified by {} ({rule})", printable::line(file))
    }));
    lines.extend(one.observed.iter().map(|rule| format!("  watched by {rule}")));
    lines.join("\n")
}
