//! What is to be known of a command's end in addition to its output and its status: what of it was refused, what it did not reach of a
//! network, what was seen in its workspace, why it ended, and what ended with it. In lines for people and agents, the same words on stderr
//! and in an agent's output, and as data for front ends that give an agent more than text.

use serde_json::{Value, json};

use crate::{
    printable,
    proto::v1::{
        ConnectDenial, ExecDenial, ExecDenialCause, ExitCause, Network, Outcome, ProtectionHint, Unreachable,
        WorkspaceAction, WorkspaceChange,
    },
};

/// The most changes of the workspace that are told one by one.
const WORKSPACE_LINES_MAX: usize = 16;
/// The longest command in a line about a refused exec, in bytes.
const COMMAND_SHOWN_BYTES: usize = 384;
/// The most bytes of the method, and of the path, of a request that are shown.
const REQUEST_SHOWN_BYTES: usize = 256;
/// Names in a line about what was not reached. The others are counted.
const NAMES_SHOWN: usize = 3;

/// All of them. `instead`: what to use for a process that is to go on.
pub fn end_lines(outcome: &Outcome, instead: &str) -> Vec<String> {
    let refused = denial_lines(outcome).chain(workspace_lines(outcome));
    refused.chain(unusual_end(outcome).map(str::to_owned)).chain(ended_line(outcome, instead)).collect()
}

/// What was seen in the workspace while the command ran.
pub(crate) fn workspace_lines(outcome: &Outcome) -> Vec<String> {
    let mut lines: Vec<String> =
        outcome.workspace_changes.iter().take(WORKSPACE_LINES_MAX).map(change_line).collect();
    let shown = u64::try_from(lines.len()).unwrap_or(u64::MAX);
    let all = u64::try_from(outcome.workspace_changes.len()).unwrap_or(u64::MAX);
    let left = (all - shown).saturating_add(outcome.workspace_changes_omitted);
    if left > 0 {
        lines.push(format!("workspace: {left} more dangerous changes, in the journal"));
    }
    lines
}

/// What of the workspace was not looked at. It is a matter of the host and not of the command, in whose output no agent looks for it.
pub fn workspace_shortfall_line(outcome: &Outcome) -> Option<String> {
    let shortfall = printable::line(&outcome.workspace_shortfall);
    (!shortfall.is_empty()).then(|| format!("workspace: not all of it was looked at: {shortfall}"))
}

fn change_line(change: &WorkspaceChange) -> String {
    let done = match change.action() {
        WorkspaceAction::Restored => "put back".into(),
        WorkspaceAction::Quarantined => "moved aside".into(),
        WorkspaceAction::Reported => "left as it is".into(),
        WorkspaceAction::Failed => format!("cannot be undone: {}", printable::line(&change.failure)),
        WorkspaceAction::Unspecified => "unknown".to_owned(),
    };
    format!("workspace: {}: {} ({done})", printable::line(&change.path), printable::line(&change.description))
}

/// Why a command ended, where its status alone does not tell.
fn unusual_end(outcome: &Outcome) -> Option<&'static str> {
    match outcome.cause() {
        ExitCause::TimeLimit => Some("the command was stopped at its time limit"),
        ExitCause::IdleLimit => Some("the command was stopped: no output for as long as the idle limit"),
        ExitCause::MemoryLimit => Some("the kernel killed the command, or a part of it, at its memory limit"),
        ExitCause::SandboxLost => {
            Some("the sandbox was lost, and how the command would have ended is not known")
        }
        ExitCause::Shutdown => Some("the command was stopped with its session or its gateway"),
        ExitCause::Unspecified | ExitCause::Exited | ExitCause::Signalled | ExitCause::Killed => None,
    }
}

/// The lines about all that was refused within a command.
pub(crate) fn denial_lines(outcome: &Outcome) -> impl Iterator<Item = String> + '_ {
    let omitted = outcome.exec_denials_omitted;
    let rest = (omitted > 0).then(|| format!("denied: {omitted} more execs, in the journal"));
    let lines = |alike| once_with_count(alike, denial_line);
    let execs = outcome.exec_denials.chunk_by(is_alike).filter_map(lines).chain(rest);
    let hints = outcome.protection_hints.iter().map(hint_line);
    let network = network_cause(outcome).map(unreachable_line);
    execs.chain(connect_denial_lines(outcome)).chain(hints).chain(network)
}

/// What of a network a failed command did not reach, where nothing else explains its end: what it says of a file system that is read-only
/// comes last.
pub fn network_cause(outcome: &Outcome) -> Option<&Unreachable> {
    let has_other_cause = outcome.protection_hints.iter().any(|hint| hint.error == "EROFS");
    outcome.unreachable.as_ref().filter(|_| !has_other_cause)
}

/// `perhaps refused: EROFS at /work/.git/hooks: why (key)`.
fn hint_line(hint: &ProtectionHint) -> String {
    let ProtectionHint { error, path, protection, key } = hint;
    let at = if path.is_empty() { String::new() } else { format!(" at {}", printable::line(path)) };
    format!("perhaps refused: {error}{at}: {protection} ({key})")
}

/// A hint as data, for front ends that give an agent more than text.
pub fn hint_json(hint: &ProtectionHint) -> serde_json::Value {
    let ProtectionHint { error, path, protection, key } = hint;
    serde_json::json!({ "error": error, "path": path, "protection": protection, "key": key })
}

/// The lines about all refused connections of a command: one for each destination.
fn connect_denial_lines(outcome: &Outcome) -> impl Iterator<Item = String> + '_ {
    let omitted = outcome.connect_denials_omitted;
    let rest = (omitted > 0).then(|| format!("denied: {omitted} more connections, in the journal"));
    let is_alike = |one: &ConnectDenial, next: &ConnectDenial| {
        (&one.host, one.port, &one.method, &one.path, &one.rule)
            == (&next.host, next.port, &next.method, &next.path, &next.rule)
    };
    let lines = |alike| once_with_count(alike, connect_denial_line);
    outcome.connect_denials.chunk_by(is_alike).filter_map(lines).chain(rest)
}

/// One line for all that are alike.
fn once_with_count<T>(alike: &[T], line: impl FnOnce(&T) -> String) -> Option<String> {
    let line = alike.first().map(line)?;
    Some(if alike.len() > 1 { format!("{line} ({} times)", alike.len()) } else { line })
}

/// `denied: connection to HOST:PORT: reason (rule "x")`, or `denied: request METHOD PATH to HOST:PORT: ...`. A socket of the host is `unix:PATH`.
fn connect_denial_line(denial: &ConnectDenial) -> String {
    let host = printable::line(&denial.host);
    let host = match host.contains(':') && !host.starts_with("unix:") && !host.starts_with('[') {
        // An IPv6 address.
        true => format!("[{host}]").into(),
        false => host,
    };
    let reason = printable::line(denial.reason.trim());
    let request =
        [&denial.method, &denial.path].map(|part| printable::bounded_line(part, REQUEST_SHOWN_BYTES));
    match denial.port {
        port if !denial.method.is_empty() => {
            let [method, path] = request;
            format!("denied: request {method} {path} to {host}:{port}: {reason} (rule {:?})", denial.rule)
        }
        0 if host.starts_with("unix:") => {
            format!("denied: connection to {host}: {reason} (rule {:?})", denial.rule)
        }
        0 => format!("denied: the name {host}: {reason} (rule {:?})", denial.rule),
        port => format!("denied: connection to {host}:{port}: {reason} (rule {:?})", denial.rule),
    }
}

/// A refused exec as data, for front ends that give an agent more than text.
pub(crate) fn denial_json(denial: &ExecDenial) -> serde_json::Value {
    serde_json::json!({
        "program": denial.program,
        "args": denial.args,
        "rule": denial.rule,
        "reason": denial.reason,
    })
}

/// Whether two in a row are shown as one: a shell that looks for a name tries each directory of its path.
fn is_alike(one: &ExecDenial, next: &ExecDenial) -> bool {
    let name = |denial: &ExecDenial| denial.program.rsplit('/').next().map(str::to_owned);
    let of =
        |denial: &ExecDenial| (name(denial), denial.args.clone(), denial.rule.clone(), denial.reason.clone());
    of(one) == of(next)
}

/// `denied: PROGRAM ARGS...: reason (rule "x")`.
fn denial_line(denial: &ExecDenial) -> String {
    let command = printable::command(std::iter::once(&denial.program).chain(&denial.args));
    let command = printable::bounded_line(&command, COMMAND_SHOWN_BYTES);
    let more = if denial.args_omitted > 0 { " ..." } else { "" };
    let reason = match denial.reason.trim() {
        "" => default_reason(denial.cause()),
        reason => reason,
    };
    if denial.program.is_empty() {
        return format!("denied: {}", printable::line(reason));
    }
    let rule = if denial.rule.is_empty() { String::new() } else { format!(" (rule {:?})", denial.rule) };
    format!("denied: {command}{more}: {}{rule}", printable::line(reason))
}

fn default_reason(cause: ExecDenialCause) -> &'static str {
    match cause {
        ExecDenialCause::Unspecified => "refused",
        ExecDenialCause::Rule => "a rule denies it",
        ExecDenialCause::Default => "no rule allows it",
        ExecDenialCause::Changed => "it was changed while it was evaluated",
        ExecDenialCause::Unreadable => "it cannot be read",
        ExecDenialCause::Traced => "another process traces it",
        ExecDenialCause::Unavailable => "it cannot be evaluated",
        ExecDenialCause::AskRefused => "it needs a person's approval, and was refused",
        ExecDenialCause::AskExpired => "it needs a person's approval, and nobody gave it in time",
    }
}

/// `not reached: the name registry.npmjs.org: ...`. What is seen is what was tried, not why the command failed.
fn unreachable_line(unreachable: &Unreachable) -> String {
    let mut tried = Vec::new();
    let names = unreachable.names.iter().take(NAMES_SHOWN);
    let names = names.map(|name| printable::line(name).into_owned()).collect::<Vec<_>>().join(", ");
    let more = unreachable.names.len().saturating_sub(NAMES_SHOWN) as u64 + unreachable.names_omitted;
    match (unreachable.names.len(), more) {
        (0, _) => {}
        (1, 0) => tried.push(format!("the name {names}")),
        (_, 0) => tried.push(format!("the names {names}")),
        (_, more) => tried.push(format!("the names {names} and {more} more")),
    }
    match unreachable.no_route {
        0 => {}
        1 => tried.push("an address without a route".to_owned()),
        times => tried.push(format!("addresses without a route ({times} times)")),
    }
    let tried = tried.join(", ");
    let reason = match unreachable.network() {
        Network::Proxy => {
            "with the network \"proxy\", programs reach names by its proxies and resolver, and no address"
        }
        Network::None | Network::Host | Network::Unspecified if offers_proxy(unreachable) => {
            "it has no network; the network \"proxy\" reaches what the policy's [[connect]] rules allow"
        }
        Network::None | Network::Host | Network::Unspecified => {
            "it has no network, and its profile offers none that reaches names"
        }
    };
    format!("not reached: {tried}: {reason}")
}

/// Whether the profile offers the network that reaches names by rules.
pub fn offers_proxy(unreachable: &Unreachable) -> bool {
    unreachable.offered().any(|network| network == Network::Proxy)
}

/// What was not reached as data, for front ends that give an agent more than text.
pub(crate) fn unreachable_json(unreachable: &Unreachable) -> serde_json::Value {
    serde_json::json!({
        "names": unreachable.names,
        "omitted": unreachable.names_omitted,
        "unrouted": unreachable.no_route,
        "network": network_word(unreachable.network()),
        "offered": unreachable.offered().map(network_word).collect::<Vec<_>>(),
    })
}

/// A network, as the profile names it.
pub fn network_word(network: Network) -> &'static str {
    match network {
        Network::Unspecified => "unknown",
        Network::None => "none",
        Network::Proxy => "proxy",
        Network::Host => "host",
    }
}

/// `ended with the command: 2 processes that it had left running (python3, sleep); INSTEAD`: with what to use instead. `None` if the
/// command left nothing running.
pub fn ended_line(outcome: &Outcome, instead: &str) -> Option<String> {
    let count = outcome.ended_processes;
    let processes = match count {
        0 => return None,
        1 => "1 process that it had left running".to_owned(),
        more => format!("{more} processes that it had left running"),
    };
    // The gateway has bounded the names and written out what is not printable.
    let names = match outcome.ended_commands.as_slice() {
        [] => String::new(),
        names => format!(" ({})", names.join(", ")),
    };
    Some(format!("ended with the command: {processes}{names}; {instead}"))
}

/// The same for programs.
pub(crate) fn ended_json(outcome: &Outcome) -> Option<Value> {
    let count = outcome.ended_processes;
    (count > 0).then(|| json!({ "processes": count, "commands": outcome.ended_commands }))
}

/// The cause of an end, as it is written everywhere.
pub fn cause_word(cause: ExitCause) -> &'static str {
    match cause {
        ExitCause::Unspecified => "unknown",
        ExitCause::Exited => "exited",
        ExitCause::Signalled => "signalled",
        ExitCause::Killed => "killed",
        ExitCause::TimeLimit => "time_limit",
        ExitCause::IdleLimit => "idle_limit",
        ExitCause::MemoryLimit => "memory_limit",
        ExitCause::SandboxLost => "sandbox_lost",
        ExitCause::Shutdown => "shutdown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_undone_is_told_with_what_became_of_it_and_the_rest_is_counted() {
        let change = |number: usize| WorkspaceChange {
            path: format!("a\n{number}"),
            description: "a hook".to_owned(),
            action: WorkspaceAction::Quarantined.into(),
            ..Default::default()
        };
        let outcome = Outcome {
            workspace_changes: (0..WORKSPACE_LINES_MAX + 2).map(change).collect(),
            workspace_changes_omitted: 3,
            cause: ExitCause::TimeLimit.into(),
            ended_processes: 1,
            ..Default::default()
        };
        let lines = end_lines(&outcome, "use y");
        assert_eq!(lines[0], "workspace: a\\n0: a hook (moved aside)");
        assert_eq!(lines[WORKSPACE_LINES_MAX], "workspace: 5 more dangerous changes, in the journal");
        assert_eq!(lines[WORKSPACE_LINES_MAX + 1], "the command was stopped at its time limit");
        assert!(lines.last().is_some_and(|line| line.ends_with("; use y")), "{lines:?}");
    }

    #[test]
    fn a_line_names_program_reason_and_rule() {
        let denial = ExecDenial {
            program: "/usr/bin/git".into(),
            args: vec!["push".into(), "my remote".into()],
            rule: "no-push".into(),
            reason: "pushing is for people".into(),
            ..ExecDenial::default()
        };
        assert_eq!(
            denial_line(&denial),
            "denied: /usr/bin/git push 'my remote': pushing is for people (rule \"no-push\")"
        );
        let by_default = ExecDenial {
            program: "/bin/nc".into(),
            args_omitted: 3,
            cause: ExecDenialCause::Default.into(),
            ..ExecDenial::default()
        };
        assert_eq!(denial_line(&by_default), "denied: /bin/nc ...: no rule allows it");
        let outcome = Outcome {
            exec_denials: vec![denial.clone(), denial],
            exec_denials_omitted: 2,
            ..Outcome::default()
        };
        let lines: Vec<_> = denial_lines(&outcome).collect();
        assert!(lines.len() == 2 && lines[0].ends_with("(rule \"no-push\") (2 times)"), "{lines:?}");
        assert_eq!(denial_lines(&outcome).last().unwrap(), "denied: 2 more execs, in the journal");
    }

    #[test]
    fn the_line_says_what_was_tried_and_what_would_reach_it() {
        let names = ["a.example", "b.example", "c.example", "d.example"].map(str::to_owned);
        let one = Unreachable {
            names: names[..1].to_vec(),
            network: Network::None.into(),
            offered: vec![Network::Proxy.into()],
            ..Unreachable::default()
        };
        assert_eq!(
            unreachable_line(&one),
            "not reached: the name a.example: it has no network; the network \"proxy\" reaches what the policy's \
             [[connect]] rules allow"
        );
        let many = Unreachable {
            names: names.to_vec(),
            names_omitted: 2,
            no_route: 5,
            offered: vec![],
            ..one.clone()
        };
        assert_eq!(
            unreachable_line(&many),
            "not reached: the names a.example, b.example, c.example and 3 more, addresses without a route (5 times): \
             it has no network, and its profile offers none that reaches names"
        );
        let with_proxy = Unreachable { names: vec![], no_route: 1, network: Network::Proxy.into(), ..one };
        assert!(
            unreachable_line(&with_proxy).starts_with("not reached: an address without a route: with the")
        );
    }

    #[test]
    fn what_ended_is_counted_and_named() {
        let outcome = |ended_processes, names: &[&str]| Outcome {
            ended_processes,
            ended_commands: names.iter().map(|&name| name.to_owned()).collect(),
            ..Outcome::default()
        };
        assert_eq!(ended_line(&outcome(0, &[]), "x"), None);
        assert_eq!(
            ended_line(&outcome(3, &["python3", "sleep"]), "use y").as_deref(),
            Some("ended with the command: 3 processes that it had left running (python3, sleep); use y")
        );
        assert_eq!(
            ended_line(&outcome(1, &[]), "use y").as_deref(),
            Some("ended with the command: 1 process that it had left running; use y")
        );
    }
}
