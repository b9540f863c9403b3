//! Tests of what is left of a record, kind by kind, and of texts that were cut.

use serde_json::json;

use super::*;

const SECRET: &str = "hunter2-secret";

/// What a caller or a command wrote, in all places of all records.
#[derive(Clone)]
struct Written {
    text: String,
    list: Vec<String>,
    cut_bytes: u64,
    /// The arguments of an exec.
    argv: Vec<String>,
    argv_omitted: u32,
    path: Option<String>,
    interpreters: Vec<String>,
}

impl Written {
    fn of(text: &str) -> Self {
        let list = vec![text.to_owned(); 2];
        Self {
            text: text.to_owned(),
            cut_bytes: 0,
            argv: list.clone(),
            argv_omitted: 0,
            path: Some(text.to_owned()),
            interpreters: list.clone(),
            list,
        }
    }

    /// One record of each kind that has something of it, and one that has not.
    fn records(&self) -> Vec<Record> {
        let Self { text, list, cut_bytes, argv, argv_omitted, path, interpreters } = self;
        let exec = json!({"file": text, "path": path, "argv": argv, "argv_omitted": argv_omitted,
            "argv_sha256": "aa", "cwd": text, "interpreters": interpreters});
        let mut allowed = exec.clone();
        allowed["count"] = json!(3);
        let command = json!({"argv": list, "cut_bytes": cut_bytes});
        let kinds = [
            json!({"kind": "decision", "decision": "deny", "generation": 1, "reason": text, "cwd": text,
                "command": command, "judged": {"commands": list, "cut_bytes": cut_bytes}}),
            json!({"kind": "spawn", "sandbox": "s", "profile": "p", "request_digest": "d", "generation": 1,
                "command": command}),
            json!({"kind": "spawn_failed", "reason": "COMMAND_NOT_FOUND", "problem": text}),
            json!({"kind": "exec_denied", "sandbox": "s", "report": 1, "generation": 1, "at_unix_ns": 1,
                "cause": "rule", "reason": text, "exec": exec}),
            json!({"kind": "exec_asked", "sandbox": "s", "report": 1, "generation": 1, "at_unix_ns": 1,
                "rule": "r", "exec": exec}),
            json!({"kind": "execs_allowed", "sandbox": "s", "report": 1, "generation": 1,
                "execs": [allowed, allowed]}),
            json!({"kind": "connection", "sandbox": "s", "decision": "deny", "port": 443, "host": text,
                "reason": text, "path": text}),
            json!({"kind": "connection_ended", "sandbox": "s", "port": 443, "host": text, "sent_bytes": 1,
                "received_bytes": 2, "duration_ms": 3}),
            json!({"kind": "gate_lost", "sandbox": "s"}),
        ];
        let of_terminal = |mut record: serde_json::Value| {
            for (field, value) in [("principal", "uid:1"), ("session", "a"), ("terminal", "b")] {
                record[field] = json!(value);
            }
            serde_json::from_value(record).unwrap()
        };
        kinds.map(of_terminal).into()
    }

    fn all_after(&self, redact: impl Fn(&mut Record)) -> Vec<Record> {
        let mut records = self.records();
        records.iter_mut().for_each(redact);
        records
    }
}

#[test]
fn secrets_are_masked_wherever_a_caller_or_a_command_wrote_them() {
    let masker = Masker::new([SECRET]).unwrap();
    let masked = Written::of(&format!("a {SECRET} b")).all_after(|record| redact_secrets(record, &masker));
    assert_eq!(masked, Written::of("a *** b").records());
}

#[test]
fn nothing_is_left_of_a_record_that_cannot_be_masked() {
    let expected = Written {
        text: REDACTED.to_owned(),
        list: Vec::new(),
        // Each text is cut by these, and one more is.
        cut_bytes: 40 + 2 * 6,
        argv: Vec::new(),
        argv_omitted: 7 + 2,
        path: None,
        interpreters: Vec::new(),
    };
    let written = Written { cut_bytes: 40, argv_omitted: 7, ..Written::of("12345") };
    assert_eq!(written.all_after(redact_all), expected.records());
}

#[test]
fn the_beginning_of_a_secret_is_taken_from_a_text_that_was_cut_and_from_no_other() {
    let masker = Masker::new([SECRET]).unwrap();
    // Its first byte is the last one of a character.
    let no_text = Masker::new([b"\xa9-secret"]).unwrap();
    let cases = [
        (&masker, "run hunter2-se", 0, ("run hunter2-se", 0)),
        (&masker, "run hunter2-se", 5, ("run ", 15)),
        (&masker, "run it", 5, ("run it", 5)),
        (&masker, "hunter2-secret hunter", 5, ("*** ", 11)),
        (&no_text, "run \u{e9}", 5, ("run ", 7)),
        (&no_text, "run \u{e9}", 0, ("run \u{e9}", 0)),
    ];
    for (masker, text, mut cut_bytes, expected) in cases {
        // Only the last text can have been cut.
        let mut texts = vec![text.to_owned(); 2];
        mask_texts(&mut texts, &mut cut_bytes, masker);
        assert_eq!((texts[1].as_str(), cut_bytes), expected, "{text}");
        assert_eq!(texts[0], masker.mask_text(text), "{text}");
    }
    mask_texts(&mut [], &mut 5, &masker);
}

#[test]
fn an_execs_last_argument_may_have_been_cut_where_others_are_missing_or_there_are_many_bytes() {
    let masker = Masker::new([SECRET]).unwrap();
    let end = "hunter2-se";
    for (bytes, argv_omitted, is_cut) in [
        (end.len(), 0, false),
        (end.len(), 1, true),
        (CUT_ARGUMENTS_MIN_BYTES - 1, 0, false),
        (CUT_ARGUMENTS_MIN_BYTES, 0, true),
        (CUT_ARGUMENTS_MIN_BYTES + 1, 0, true),
        (CUT_ARGUMENTS_MIN_BYTES, 1, true),
    ] {
        let first = "x".repeat(bytes - end.len());
        let written = Written { argv: vec![first, end.to_owned()], argv_omitted, ..Written::of("") };
        let mut expected = written.clone();
        if is_cut {
            expected.argv[1].clear();
        }
        let masked = written.all_after(|record| redact_secrets(record, &masker));
        assert_eq!(masked, expected.records(), "{bytes} bytes, {argv_omitted} omitted");
    }
}
