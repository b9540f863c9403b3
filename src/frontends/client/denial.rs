//! What of a command was refused, in lines for people and agents: the same words on stderr and in an agent's output.

use super::unreachable::unreachable_line;
use crate::{
    printable,
    proto::v1::{ConnectDenial, ExecDenial, ExecDenialCause, Outcome, ProtectionHint, Unreachable},
};

/// The longest command in such a line, in bytes.
const COMMAND_SHOWN_BYTES: usize = 384;
/// The most bytes of the method, and of the path, of a request that are shown.
const REQUEST_SHOWN_BYTES: usize = 256;

/// The lines about all that was refused within a command.
pub fn denial_lines(outcome: &Outcome) -> impl Iterator<Item = String> + '_ {
    let omitted = outcome.exec_denials_omitted;
    let rest = (omitted > 0).then(|| format!("denied: {omitted} more execs, in the journal"));
    let times = |alike: &[ExecDenial]| {
        let line = alike.first().map(denial_line)?;
        Some(if alike.len() > 1 { format!("{line} ({} times)", alike.len()) } else { line })
    };
    let execs = outcome.exec_denials.chunk_by(is_alike).filter_map(times).chain(rest);
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
    let times = |alike: &[ConnectDenial]| {
        let line = alike.first().map(connect_denial_line)?;
        Some(if alike.len() > 1 { format!("{line} ({} times)", alike.len()) } else { line })
    };
    outcome.connect_denials.chunk_by(is_alike).filter_map(times).chain(rest)
}

/// `denied: connection to HOST:PORT: reason (rule "x")`, or `denied: request METHOD PATH to HOST:PORT: ...`. A socket of the host is `unix:PATH`.
pub fn connect_denial_line(denial: &ConnectDenial) -> String {
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
pub fn denial_json(denial: &ExecDenial) -> serde_json::Value {
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
pub fn denial_line(denial: &ExecDenial) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
