//! `provost policy explain`: what would happen to a command, and why.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;

use super::{
    policy_connect::{self, Caller},
    policy_files::{load, print},
};
use crate::{
    cli::{
        console::error::CliError,
        request::{
            argument_values::parse_assignment,
            arguments::{OutputArguments, OutputFormat, WorkspaceArguments},
        },
    },
    policy::{
        AbsPath, CommandSpec, ExecRequest, PolicySet, ProfileResolvers, Request,
        command::{
            interpreter::interpreted_argv,
            program::{self, Resolved},
            shell::LineCwd,
        },
        environment::{self, EnvEntry},
        exec_gate,
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
        let (shown, status) =
            policy_connect::explain(&policy, caller, destination, &arguments.address, format)?;
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
        path: &exec_gate::executed_path(command, &file, cwd),
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
