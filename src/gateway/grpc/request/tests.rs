//! Every bound of a request: what is allowed at it, and which field is named beyond it.

use std::{collections::HashMap, time::Duration};

use super::{
    fields::{ARGUMENTS_MAX_BYTES, NAME_MAX_BYTES, env, labels, network, request_id},
    *,
};
use crate::{
    policy::profile::Network,
    proto::v1::{
        CreateSessionRequest, CreateTerminalRequest, EnvVar, RunLineRequest, create_terminal_request::Command,
    },
};

fn field<T>(parsed: Result<T, FieldError>) -> String {
    parsed.err().map(|error| error.field).unwrap_or_default()
}

#[test]
fn labels_are_bounded_by_number_and_length() {
    let of = |number: usize, name: usize, value: usize| {
        let one = |index: usize| (format!("{index:0name$}"), "v".repeat(value));
        labels("labels", (0..number).map(one).collect::<HashMap<_, _>>())
    };
    assert_eq!(of(64, NAME_MAX_BYTES, 1_024).unwrap().len(), 64);
    assert_eq!(field(of(65, 2, 1)), "labels");
    assert_eq!(field(of(1, NAME_MAX_BYTES + 1, 1)), "labels");
    assert_eq!(field(of(1, 1, 1_025)), "labels[0]");
    assert_eq!(field(labels("labels", HashMap::from([(String::new(), "v".into())]))), "labels");
}

#[test]
fn variables_are_bounded_by_number_and_bytes() {
    let of = |number: usize, value: usize| {
        let one = |index: usize| EnvVar {
            name: format!("V{index:04}"),
            value: "v".repeat(value),
            ..Default::default()
        };
        env("env", (0..number).map(one).collect())
    };
    assert_eq!(of(4_096, 0).unwrap().len(), 4_096);
    assert_eq!(field(of(4_097, 0)), "env");
    // A name of five bytes, "=", the NUL at the end, and a pointer. A single variable has another bound.
    let each = ARGUMENTS_MAX_BYTES / 32 - 15;
    assert_eq!(of(32, each).unwrap().len(), 32);
    assert_eq!(field(of(32, each + 1)), "env");
}

#[test]
fn a_request_id_is_bounded_and_an_empty_one_is_none() {
    assert_eq!(request_id("request_id", String::new()), Ok(None));
    let longest = "r".repeat(NAME_MAX_BYTES);
    assert_eq!(request_id("request_id", longest.clone()), Ok(Some(longest.clone())));
    assert_eq!(field(request_id("request_id", longest + "r")), "request_id");
}

#[test]
fn a_grace_may_be_ten_minutes_and_no_longer() {
    let time = |seconds, nanos| Some(prost_types::Duration { seconds, nanos });
    assert_eq!(grace("grace", time(600, 0)), Ok(Some(Duration::from_secs(600))));
    assert_eq!(field(grace("grace", time(600, 1))), "grace");
    assert_eq!(grace("grace", None), Ok(None));
    assert_eq!(grace("grace", time(1, 999_999_999)), Ok(Some(Duration::new(1, 999_999_999))));
}

#[test]
fn a_command_is_bounded_as_exec_bounds_it() {
    let of = |command: usize, args: Vec<String>, env: Vec<EnvVar>| CreateTerminalRequest {
        command: Some(Command::Program("c".repeat(command))),
        args,
        env,
        ..Default::default()
    };
    let fits = |request| field(arguments_fit("", &request));
    let argument = |bytes: usize| "a".repeat(bytes);
    assert_eq!(fits(of(131_071, vec![argument(131_071)], Vec::new())), "");
    assert_eq!(fits(of(131_072, Vec::new(), Vec::new())), "command");
    assert_eq!(fits(of(1, vec![argument(131_071), argument(131_072)], Vec::new())), "args[1]");
    // Each argument has a NUL at its end and a pointer, and a variable "=", too.
    assert_eq!(fits(of(1, vec![String::new(); (ARGUMENTS_MAX_BYTES - 1) / 9], Vec::new())), "");
    assert_eq!(fits(of(1, vec![String::new(); ARGUMENTS_MAX_BYTES / 9 + 1], Vec::new())), "args");
    let variable =
        |bytes: usize| vec![EnvVar { name: "V".into(), value: "v".repeat(bytes - 11), ..Default::default() }];
    let fifteen = || vec![argument(131_000); 15];
    let left = ARGUMENTS_MAX_BYTES - 15 * 131_009 - 10;
    assert_eq!(fits(of(10, fifteen(), variable(left))), "");
    assert_eq!(fits(of(11, fifteen(), variable(left))), "args");
    assert_eq!(fits(of(10, fifteen(), variable(left + 1))), "args");
    let bytes = |bytes: usize| CreateTerminalRequest {
        command: Some(Command::ProgramBytes(vec![0xff; 4].into())),
        args_bytes: vec![vec![0xff; bytes].into()],
        ..Default::default()
    };
    assert_eq!(fits(bytes(131_071)), "");
    assert_eq!(fits(bytes(131_072)), "args[0]");
    let shell_line = Some(Command::ShellLine(argument(131_072)));
    let line = CreateTerminalRequest { command: shell_line, ..Default::default() };
    assert_eq!(field(arguments_fit("create.", &line)), "create.command");
}

#[test]
fn a_session_is_bounded_in_directories_and_names() {
    let session = || CreateSessionRequest { roots: vec!["/a".into()], ..Default::default() };
    let roots = |number| CreateSessionRequest { roots: vec!["/a".into(); number], ..session() };
    assert_eq!(new_session(roots(64)).unwrap().roots.len(), 64);
    assert_eq!(field(new_session(roots(65))), "roots");
    let front_end = |name: &str| new_session(CreateSessionRequest { front_end: name.into(), ..session() });
    assert_eq!(front_end("a.9_z-0").unwrap().front_end, "a.9_z-0");
    assert_eq!(front_end(&"a".repeat(64)).unwrap().front_end.len(), 64);
    for wrong in [&"a".repeat(65), "A", "a b", "ä", "a/b"] {
        assert_eq!(field(front_end(wrong)), "front_end", "{wrong}");
    }
    let named = |name: &str| new_session(CreateSessionRequest { name: name.into(), ..session() });
    assert_eq!(named("A.9_z-0").unwrap().name.as_deref(), Some("A.9_z-0"));
    assert_eq!(named("").unwrap().name, None);
    assert_eq!(named(&"n".repeat(NAME_MAX_BYTES)).unwrap().name.map(|name| name.len()), Some(NAME_MAX_BYTES));
    for wrong in [&"n".repeat(NAME_MAX_BYTES + 1), "a b", "ä", "../a", "a\n"] {
        assert_eq!(field(named(wrong)), "name", "{wrong}");
    }
}

#[test]
fn the_idle_fallback_of_a_line_waits_a_tenth_of_a_second_to_an_hour() {
    let line = |seconds, nanos| {
        let quiet_limit = Some(prost_types::Duration { seconds, nanos });
        new_line(RunLineRequest { line: "true".into(), quiet_limit, ..Default::default() }, None)
    };
    assert_eq!(line(0, 100_000_000).unwrap().quiet_limit, Duration::from_millis(100));
    assert_eq!(line(3_600, 0).unwrap().quiet_limit, Duration::from_secs(3_600));
    for (seconds, nanos) in [(0, 0), (0, 99_999_999), (3_600, 1)] {
        assert_eq!(field(line(seconds, nanos)), "quiet_limit", "{seconds} s and {nanos} ns");
    }
    let without = RunLineRequest { line: "true".into(), ..Default::default() };
    assert_eq!(new_line(without, None).unwrap().quiet_limit, Duration::from_secs(5));
}

#[test]
fn an_answer_is_bounded_and_must_be_yes_or_no() {
    let answer = |decision, comment: usize, person: usize| {
        approval_answer(ResolveApprovalRequest {
            decision,
            comment: "c".repeat(comment),
            on_behalf_of: "p".repeat(person),
            ..Default::default()
        })
    };
    let (yes, no) = (i32::from(ApprovalDecision::Approve), i32::from(ApprovalDecision::Deny));
    let longest = answer(yes, 1_024, 256).unwrap();
    assert!(matches!(longest.decision, ApproverDecision::Approve));
    assert_eq!((longest.comment.len(), longest.on_behalf_of.len()), (1_024, 256));
    assert!(longest.id.is_none(), "an empty id is that of no approval");
    assert!(matches!(answer(no, 0, 0).unwrap().decision, ApproverDecision::Deny));
    assert_eq!(field(answer(yes, 1_025, 0)), "comment");
    assert_eq!(field(answer(yes, 0, 257)), "on_behalf_of");
    assert_eq!(field(answer(0, 0, 0)), "decision");
    assert_eq!(field(answer(99, 0, 0)), "decision");
}

#[test]
fn as_many_policy_files_are_checked_as_a_gateway_loads() {
    let files = |number| policy_files(CheckPolicyRequest { files: vec![PolicyFile::default(); number] });
    assert_eq!(field(files(0)), "files");
    assert_eq!(files(256).unwrap().len(), 256);
    assert_eq!(field(files(257)), "files");
}

#[test]
fn words_of_a_request_mean_what_they_say() {
    use crate::proto::v1::Network as Word;
    let asked = |word: Word| network("network", word.into()).unwrap();
    assert_eq!(asked(Word::Unspecified), None);
    assert_eq!(asked(Word::None), Some(Network::None));
    assert_eq!(asked(Word::Host), Some(Network::Host));
    assert_eq!(asked(Word::Proxy), Some(Network::Proxy));
    assert_eq!(field(network("network", 99)), "network");
    assert!(matches!(channel(OutputStream::Unspecified.into()), Ok(Channel::Stdout)));
    assert!(matches!(channel(OutputStream::Stdout.into()), Ok(Channel::Stdout)));
    assert!(matches!(channel(OutputStream::Stderr.into()), Ok(Channel::Stderr)));
    assert_eq!(field(channel(99)), "stream");
    assert!(matches!(bypass(Bypass::CommandRun.into()), Ok(BypassReport::Bypassed)));
    assert!(matches!(bypass(Bypass::AgentNotCovered.into()), Ok(BypassReport::AgentNotCovered)));
    assert_eq!(field(bypass(0)), "bypass");
    assert_eq!(field(bypass(99)), "bypass");
    assert_eq!(signal_number("TERM"), Ok(libc::SIGTERM));
    let unknown = signal_number(&"x".repeat(10_000)).unwrap_err();
    assert!(unknown.field == "signal" && unknown.problem.len() < 200, "{unknown}");
}
