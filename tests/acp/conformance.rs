//! The conformance suite, held against a backend that is right and against the same backend with one thing wrong:
//! the first must pass every case, and each of the others must fail the very case that is about its mistake.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
};

use serde_json::Value;

use super::fixture::Fixture;
use crate::support::acp_conformance;

/// Cases that take no time and that no defect below has to do with, unless it says so.
const CONTROLS: [&str; 2] = ["TC-001", "TC-052"];

fn plain_backend() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/acp/backends/plain.py")
}

/// Runs the suite, and gives its status and its report; where the backend could not be tested, what was said instead.
fn run_suite(timeout: &str, only: &[&str], backend: &[&str]) -> Result<(Option<i32>, Value), String> {
    let mut command = Command::new(acp_conformance());
    command.args(["-o", "json", "--timeout", timeout]);
    if !only.is_empty() {
        command.arg("--only").arg(only.join(","));
    }
    let Output { status, stdout, stderr } =
        command.arg("--").args(backend).stdin(Stdio::null()).output().expect("the suite starts");
    let report = serde_json::from_slice(&stdout);
    let report = report
        .map_err(|error| format!("no report ({error}), {status}\n{}", String::from_utf8_lossy(&stderr)))?;
    Ok((status.code(), report))
}

/// The ids of cases that failed, with what was seen.
fn failed(report: &Value) -> Vec<(String, String)> {
    let cases = report["cases"].as_array().expect("a report has cases");
    cases
        .iter()
        .filter(|case| case["outcome"] == "fail")
        .map(|case| (text(&case["id"]), format!("{}: {}", text(&case["rule"]), text(&case["detail"]))))
        .collect()
}

/// `plain.py` needs it.
fn has_python() -> bool {
    let runs = Command::new("python3").arg("--version").output().is_ok();
    if !runs {
        crate::support::skip("python3 is not here");
    }
    runs
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Runs of the suite side by side, with a part of the cases each: most cases wait.
const PARTS: usize = 4;

fn all_cases() -> Vec<String> {
    let listed = Command::new(acp_conformance()).arg("--list").output();
    let listed = String::from_utf8(listed.expect("the list").stdout).expect("UTF-8");
    let name =
        |line: &str| line.split_whitespace().next().filter(|name| name.starts_with("TC-")).map(str::to_owned);
    listed.lines().filter_map(name).collect()
}

/// Every case, of which none fails and none is skipped.
fn passes_every_case(backend: &[&str]) {
    let cases = all_cases();
    assert!(cases.len() >= 60, "{cases:?}");
    thread::scope(|scope| {
        for part in 0..PARTS {
            let only: Vec<&str> = cases.iter().skip(part).step_by(PARTS).map(String::as_str).collect();
            scope.spawn(move || {
                let (status, report) = run_suite("120s", &only, backend).expect("it is tested");
                assert!(failed(&report).is_empty(), "{:#?}", failed(&report));
                assert_eq!(status, Some(0));
                assert_eq!(report["passed"], only.len());
                assert_eq!(report["skipped"], 0);
            });
        }
    });
}

#[test]
#[ignore = "long: .ci/run runs it"]
fn a_backend_that_does_all_of_it_right_passes_every_case() {
    if has_python() {
        let backend = plain_backend();
        passes_every_case(&["python3", backend.to_str().expect("a path in UTF-8"), "--"]);
    }
}

#[test]
fn provost_passes_every_case() {
    let fixture = Fixture::new();
    passes_every_case(&[env!("CARGO_BIN_EXE_provost"), "acp", "--policies", &fixture.word("policies"), "--"]);
}

/// Cases in which signals end commands, or are sent to them before they are killed.
const SIGNAL_CASES: &str = "TC-072,TC-073,TC-074,TC-096,TC-098,TC-101";

/// Both backends are started as nohup(1) and jobs of scripts start programs.
#[test]
#[ignore = "long: .ci/run runs it"]
fn signals_that_the_suite_was_told_to_ignore_are_not_ignored_by_commands() {
    if !has_python() {
        return;
    }
    let fixture = Fixture::new();
    let plain = plain_backend();
    let plain = ["python3", plain.to_str().expect("a path in UTF-8"), "--"].map(str::to_owned);
    let shim = [env!("CARGO_BIN_EXE_provost"), "acp", "--policies", &fixture.word("policies"), "--"]
        .map(str::to_owned);
    for backend in [plain.as_slice(), shim.as_slice()] {
        let ignoring = Command::new("/bin/sh")
            .args(["-c", "trap '' HUP INT QUIT TERM USR1 CHLD; exec \"$@\"", "sh"])
            .arg(acp_conformance())
            .args(["-o", "json", "--timeout", "60s", "--only", SIGNAL_CASES, "--"])
            .args(backend)
            .stdin(Stdio::null())
            .output()
            .expect("the suite starts");
        let report: Value = serde_json::from_slice(&ignoring.stdout).expect("a report");
        assert!(failed(&report).is_empty(), "{backend:?}: {:#?}", failed(&report));
        assert_eq!(ignoring.status.code(), Some(0));
    }
}

#[test]
fn defects_of_creating_killing_and_cutting_are_noticed() {
    fails_only("ids-reused", &["TC-003", "TC-116"]);
    fails_only("keeps-the-beginning", &["TC-047"]);
    fails_only("kills-one", &["TC-096"]);
}

/// One test for each defect, run by `.ci/long` alone.
mod nightly {
    use super::fails_only;

    /// Each row is a defect of `plain.py` and the cases that are about it.
    macro_rules! defects {
        ($($name:ident: [$defect:literal, $($case:literal),+];)+) => {$(
            #[test]
            #[ignore = "long: .ci/long defects runs it"]
            fn $name() {
                fails_only($defect, &[$($case),+]);
            }
        )+};
    }

    defects! {
        create_that_waits_is_noticed: ["create-waits", "TC-002"];
        an_id_given_twice_is_noticed: ["ids-reused", "TC-003", "TC-116"];
        joined_arguments_are_noticed: ["arguments-joined", "TC-004", "TC-017"];
        dropped_variables_are_noticed: ["env-dropped", "TC-005", "TC-006", "TC-151"];
        a_lost_default_directory_is_noticed: ["default-cwd-lost", "TC-007", "TC-012"];
        an_ignored_directory_is_noticed: ["cwd-ignored", "TC-008"];
        a_line_taken_for_a_program_is_noticed: ["line-not-run", "TC-009", "TC-010"];
        refused_null_args_are_noticed: ["null-args-refused", "TC-020"];
        a_relative_directory_that_is_taken_is_noticed: ["relative-cwd-taken", "TC-024"];
        unchecked_parameters_are_noticed: ["unchecked", "TC-026", "TC-028"];
        an_unchecked_session_is_noticed: ["sessions-unchecked", "TC-035"];
        a_missing_exit_status_is_noticed: ["exit-status-missing", "TC-041", "TC-077"];
        a_lost_stderr_is_noticed: ["stderr-lost", "TC-042"];
        output_that_comes_late_is_noticed: ["output-late", "TC-045"];
        keeping_the_beginning_is_noticed: ["keeps-the-beginning", "TC-047"];
        an_ignored_limit_is_noticed: ["limit-ignored", "TC-047", "TC-049"];
        a_forgotten_truncation_is_noticed: ["truncated-forgotten", "TC-048"];
        a_null_output_is_noticed: ["output-null", "TC-052"];
        changed_line_ends_are_noticed: ["crlf", "TC-054"];
        cut_characters_are_noticed: ["cuts-characters", "TC-060", "TC-061"];
        half_a_character_is_noticed: ["half-characters", "TC-063"];
        bytes_that_disappear_are_noticed: ["drops-invalid", "TC-064"];
        a_nested_exit_status_is_noticed: ["wait-nested", "TC-070"];
        masked_exit_codes_are_noticed: ["code-masked", "TC-071"];
        a_signal_taken_for_success_is_noticed: ["signal-is-success", "TC-072", "TC-073"];
        a_signal_without_a_code_is_noticed: ["no-code-with-signal", "TC-073"];
        a_shortened_signal_is_noticed: ["signal-without-sig", "TC-074"];
        waits_that_block_are_noticed: ["one-at-a-time", "TC-078"];
        a_wait_for_the_pipe_is_noticed: ["waits-for-pipe", "TC-079"];
        a_wait_answered_early_is_noticed: ["wait-answers-early", "TC-080"];
        a_kill_that_does_nothing_is_noticed: ["kill-does-nothing", "TC-090"];
        a_kill_that_releases_is_noticed: ["kill-releases", "TC-091", "TC-094"];
        results_that_are_null_are_noticed: ["null-results", "TC-092", "TC-115"];
        a_kill_that_minds_the_end_is_noticed: ["kill-refused-after-end", "TC-093", "TC-094"];
        a_kill_of_one_process_is_noticed: ["kills-one", "TC-096"];
        a_kill_of_one_group_is_noticed: ["kills-group", "TC-097"];
        a_kill_that_only_asks_is_noticed: ["kill-asks-only", "TC-098"];
        a_kill_that_never_asks_is_noticed: ["kill-without-asking", "TC-101"];
        a_release_that_forgets_is_noticed: ["release-forgets", "TC-110"];
        a_released_terminal_that_stays_is_noticed: ["released-stays", "TC-112", "TC-113"];
        a_wait_left_behind_is_noticed: ["wait-left-behind", "TC-114"];
        another_code_for_unknown_ids_is_noticed: ["unknown-id-code", "TC-113", "TC-121"];
        a_taken_foreign_id_is_noticed: ["foreign-taken", "TC-123"];
        another_code_for_unknown_methods_is_noticed: ["unknown-method-code", "TC-125"];
        errors_that_ask_for_a_login_are_noticed: ["authentication-required", "TC-120"];
        errors_that_say_nothing_are_noticed: ["silent-errors", "TC-126"];
        ids_that_change_their_type_are_noticed: ["ids-become-text", "TC-001", "TC-052", "TC-130"];
        a_cancel_that_is_not_answered_is_noticed: ["cancel-unanswered", "TC-132"];
        a_backend_that_dies_of_a_bad_line_is_noticed: ["dies-of-no-json", "TC-136"];
        an_answered_notification_is_noticed: ["answers-notifications", "TC-137"];
        two_answers_are_noticed: ["answers-twice", "TC-139"];
        chatter_on_the_wire_is_noticed: ["chatters", "TC-139"];
        an_inherited_stdin_is_noticed: ["stdin-inherited", "TC-150"];
        a_leaked_descriptor_is_noticed: ["descriptor-leaks", "TC-152"];
        terminals_that_are_not_offered_are_noticed: ["not-offered", "TC-160"];
        a_newer_version_that_passes_is_noticed: ["version-passed", "TC-161"];
        a_later_version_of_the_agents_that_passes_is_noticed: ["later-version-passes", "TC-197"];
        dropped_servers_of_the_editor_are_noticed: ["servers-dropped", "TC-198"];
        terminals_that_reach_the_editor_are_noticed: ["terminals-passed", "TC-001", "TC-052", "TC-163"];
        swallowed_notifications_are_noticed: ["unknown-swallowed", "TC-165"];
        numbers_that_change_are_noticed: ["numbers-changed", "TC-171"];
        a_lost_directory_of_a_loaded_session_is_noticed: ["loaded-cwd-lost", "TC-174"];
        a_lost_directory_of_a_forked_session_is_noticed: ["forked-cwd-lost", "TC-176"];
        a_close_that_ends_too_much_is_noticed: ["close-ends-all", "TC-177"];
        a_refused_load_that_closes_is_noticed: ["refused-load-closes", "TC-178"];
        a_terminal_shown_to_the_editor_is_noticed: ["terminals-shown", "TC-180", "TC-181"];
        a_text_that_is_not_kept_up_is_noticed: ["shown-once", "TC-182"];
        dropped_content_is_noticed: ["content-dropped", "TC-184"];
        an_exit_that_is_not_told_is_noticed: ["exit-untold", "TC-185"];
        a_close_that_leaks_is_noticed: ["close-leaks", "TC-190", "TC-191"];
        an_agent_whose_end_leaks_is_noticed: ["agent-end-leaks", "TC-192"];
        an_editor_whose_end_is_ignored_is_noticed: ["editor-end-ignored", "TC-193", "TC-195"];
    }
}

/// The suite's timeout, from one try to the next. A defect that keeps silent costs all of it; on a machine that is
/// slow enough, so does everything else.
const TIMEOUT: [&str; 3] = ["6s", "30s", "120s"];

fn fails_only(defect: &str, cases: &[&str]) {
    if !has_python() {
        return;
    }
    let backend = plain_backend();
    let backend = backend.to_str().expect("a path in UTF-8");
    let selected: BTreeSet<&str> = cases.iter().chain(&CONTROLS).copied().collect();
    let selected: Vec<&str> = selected.into_iter().collect();
    let mut expected = cases.to_vec();
    expected.sort_unstable();
    let mut tries = Vec::new();
    for timeout in TIMEOUT {
        let seen = run_suite(timeout, &selected, &["python3", backend, "--defect", defect, "--"])
            .map(|(_, report)| failed(&report));
        if let Ok(seen) = &seen
            && seen.iter().map(|(id, _)| id.as_str()).eq(expected.iter().copied())
        {
            return;
        }
        println!("with a timeout of {timeout}: {seen:#?}");
        tries.push((timeout, seen));
    }
    panic!("{defect}: {expected:?} were to fail: {tries:#?}");
}
