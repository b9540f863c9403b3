//! What others named drives no terminal: in errors, pages, JSON and the journal.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt, process::Output};

use provost_base::printable::needs_escape;

use super::fixture::{Place, code, final_object, shown, stderr, stdout};

/// Sets a title, clears the screen by one byte, turns the line, hides.
const HOSTILE: &str = "x\u{1b}]0;t\u{7}\u{7f}\u{9b}2J\u{202e}cod\u{2066}\u{61c}\u{200f}\u{2028}y";

/// Fails where a character of it could do more than be seen.
fn must_be_seen(what: &str, output: &Output) {
    for text in [stdout(output), stderr(output)] {
        let hidden = text.chars().find(|c| needs_escape(*c) && !matches!(c, '\n' | '\t'));
        assert_eq!(hidden, None, "{what}: {text:?}");
    }
}

/// As [`must_be_seen`], and the name is there.
fn must_be_written_out(what: &str, output: &Output) {
    must_be_seen(what, output);
    assert!(shown(output).contains("u{9b}") || shown(output).contains("u009b"), "{what}: {}", shown(output));
}

#[test]
fn names_in_errors_are_written_out() {
    let place = Place::new();
    let missing = place.path().join(HOSTILE).display().to_string();
    let script = place.work().join(HOSTILE);
    fs::write(&script, "#!/bin/sh\n").expect("a file can be written");
    let here = format!("./{HOSTILE}");
    let variable = format!("LD_{HOSTILE}=1");
    for (what, options, command) in [
        ("a program", &[][..], HOSTILE),
        ("a file", &[], here.as_str()),
        ("a directory", &["--root", missing.as_str()], "true"),
        ("a variable", &["--env", variable.as_str()], "true"),
        ("a profile", &["--profile", HOSTILE], "true"),
        ("a mistake in the arguments", &["--network", HOSTILE], "true"),
    ] {
        let output = place.output(options, &[command]);
        assert!(code(&output) >= 125, "{what}: {}", shown(&output));
        match what {
            // It is not said again.
            "a program" | "a file" => must_be_seen(what, &output),
            _ => must_be_written_out(what, &output),
        }
    }
    let output = place.output(&["--report", "/dev/stderr", "--profile", HOSTILE], &["true"]);
    must_be_written_out("JSON", &output);
    let message = final_object(&output)["error"].to_string();
    assert!(message.contains("no profile"), "{message}");
}

#[test]
fn bytes_that_are_no_text_are_written_as_numbers() {
    let place = Place::new();
    let missing = OsStr::from_bytes(b"a\xff\x1b[31m\xc2z");
    let mut run = place.provost();
    let output = run.args(["run", "--root"]).arg(missing).args(["--", "true"]).output();
    let output = output.expect("provost starts");
    must_be_seen("a workspace", &output);
    assert!(stderr(&output).contains("a\\xff\\u{1b}[31m\\xc2z"), "{}", shown(&output));
    let mut check = place.provost();
    let output = check.args(["policy", "check"]).arg(missing).output().expect("provost starts");
    must_be_seen("a file", &output);
    assert!(shown(&output).contains("a\\xff\\u{1b}[31m\\xc2z"), "{}", shown(&output));
}

#[test]
fn what_a_policy_page_says_is_written_out() {
    let place = Place::new();
    let bad = place.path().join(format!("bad{HOSTILE}"));
    fs::create_dir(&bad).expect("a directory can be made");
    let seen = HOSTILE.replace(['\u{1b}', '\u{7}', '\u{7f}'], "");
    fs::write(bad.join(format!("{HOSTILE}.toml")), format!("\"{seen}\" = 1\n"))
        .expect("a file can be written");
    let mut check = place.provost();
    let output = check.args(["policy", "check"]).arg(&bad).output().expect("provost starts");
    assert_eq!(code(&output), 1, "{}", shown(&output));
    must_be_written_out("policy check", &output);
    assert!(shown(&output).contains("\n1 | \"x]0;t\\u{9b}2J\\u{202e}cod"), "{}", shown(&output));

    for json in [&["-o", "json"][..], &[]] {
        let mut explain = place.provost();
        let output = explain
            .args(["policy", "explain", "--env", &format!("A={HOSTILE}")])
            .args(json)
            .args(["--", "echo", HOSTILE])
            .output()
            .expect("provost starts");
        assert_eq!(code(&output), 0, "{}", shown(&output));
        must_be_written_out("policy explain", &output);
        if !json.is_empty() {
            let value: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("it is JSON");
            assert_eq!(value["run"]["argv"][1], HOSTILE);
            assert_eq!(value["run"]["environment"]["A"], HOSTILE);
        }
    }
    let cases = place.path().join(format!("{HOSTILE}.toml"));
    let line =
        serde_json::to_string(&format!("echo {HOSTILE}")).expect("it is text").replace('\u{7f}', "\\u007f");
    fs::write(&cases, format!("[[case]]\nline = {line}\nexpect = \"deny\"\n"))
        .expect("a file can be written");
    let mut test = place.provost();
    let output = test.args(["policy", "test"]).arg(&cases).output().expect("provost starts");
    assert_eq!(code(&output), 1, "{}", shown(&output));
    must_be_written_out("policy test", &output);
}

#[test]
fn the_journal_says_it_in_bytes_that_are_seen_and_its_chain_holds() {
    let place = Place::new();
    let journal = place.path().join("journal");
    let journal = journal.display().to_string();
    let output = place.output(&["--journal", &journal], &["echo", HOSTILE]);
    assert_eq!(code(&output), 0, "{}", shown(&output));
    let mut files = 0;
    for file in fs::read_dir(&journal).expect("it is there").flatten() {
        let text = fs::read(file.path()).expect("it can be read");
        let Ok(text) = String::from_utf8(text) else { continue };
        files += usize::from(text.contains("\\u009b2J\\u202ecod"));
        assert!(text.chars().all(|c| !needs_escape(c) || c == '\n'), "{text:?}");
    }
    assert_eq!(files, 1, "the command is in one file");
    for arguments in [&["query", "-o", "json"][..], &["query"], &["tail"]] {
        let mut audit = place.provost();
        let output =
            audit.args(["audit", "--journal", &journal]).args(arguments).output().expect("provost starts");
        assert_eq!(code(&output), 0, "{}", shown(&output));
        must_be_written_out("audit", &output);
        if arguments.contains(&"json") {
            let is_it = |line: &str| {
                let value: serde_json::Value = serde_json::from_str(line).expect("it is JSON");
                value.to_string().contains(serde_json::Value::from(HOSTILE).to_string().trim_matches('"'))
            };
            assert!(stdout(&output).lines().any(is_it), "{}", shown(&output));
        }
    }
    let mut verify = place.provost();
    let output = verify.args(["audit", "--journal", &journal, "verify"]).output().expect("provost starts");
    assert_eq!(code(&output), 0, "{}", shown(&output));
}
