//! What `provost run` says when something of a repository's does not work, its words and its exit status: one row of the table in
//! docs/errors.md each, where no other test has it.

use std::fs;

use crate::cli::fixture::{Place, code, shown, stderr};

/// Lets a shell run, and of what it starts only echo.
const NARROW: &str = "[[rule]]\nid = 'shells'\ndecision = 'allow'\nargv = [['sh', 'echo'], '**']\n\
    [[rule]]\nid = 'no-rm'\ndecision = 'deny'\nargv = ['rm', '**']\nreason = 'keep it'\n";

/// Puts these rules in place of the shipped ones.
fn narrow(place: &Place) {
    let directory = place.policies();
    let shipped = fs::read_to_string(directory.join("default.toml")).expect("it is there");
    // Its profiles, without its one rule, which lets everything run.
    let profiles = shipped.split("[[rule]]").next().expect("a beginning");
    fs::write(directory.join("default.toml"), format!("{profiles}\n{NARROW}"))
        .expect("a file can be written");
}

/// Options, a command, its exit status, and what it says.
type Case<'a> = (&'a [&'a str], &'a [&'a str], i32, &'a [&'a str]);

#[test]
fn a_refusal_names_the_rule_or_the_line_that_would_allow_it() {
    let place = Place::new();
    narrow(&place);
    let cases: [Case<'_>; 7] = [
        (
            &[],
            &["uname"],
            126,
            &["no rule allows: uname", "a [[rule]] of the policy with decision = \"allow\""],
        ),
        (&[], &["rm", "x"], 126, &["keep it (rule \"no-rm\" denies: rm x)"]),
        (
            &["--profile", "offline", "--network", "host"],
            &["echo"],
            126,
            &["does not offer the network \"host\"", "`network = { choices = [...] }`"],
        ),
        (
            &["--env", "LD_PRELOAD=/tmp/x.so"],
            &["echo"],
            126,
            &["LD_PRELOAD", "`environment = { drop = [\"LD_"],
        ),
        (
            &["--profile", "offline", "--env", "MINE=1"],
            &["echo"],
            126,
            &["\"MINE\"", "`environment = { allow"],
        ),
        (&["--profile", "nobodys"], &["echo"], 126, &["there is no profile \"nobodys\""]),
        (
            &[],
            &["sh", "-c", "$(echo uname); exit 3"],
            3,
            &[
                "provost: denied: ",
                "no rule allows it",
                "a [[rule]] of the policy would allow it: decision = \"allow\", argv = [\"uname\", \"**\"]",
            ],
        ),
    ];
    for (options, command, status, words) in cases {
        let output = place.output(options, command);
        assert_eq!(code(&output), status, "{command:?}: {}", shown(&output));
        for word in words {
            assert!(stderr(&output).contains(word), "{command:?} {word:?}: {}", shown(&output));
        }
    }
    // What a rule denies is denied on purpose.
    let denied = place.output(&[], &["rm", "x"]);
    assert!(!stderr(&denied).contains("would allow"), "{}", shown(&denied));
}

#[test]
fn a_program_that_is_not_shown_is_told_with_a_line_that_a_profile_can_have() {
    let place = Place::new();
    // Where no profile looks.
    let hidden = tempfile::Builder::new().prefix("a \"b").tempdir_in("/var/tmp").expect("a directory");
    let tool = hidden.path().join("tool");
    std::fs::write(&tool, "#!/bin/sh\necho ran\n").expect("a script");
    std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is ours");
    let output = place.output(&[], &[tool.to_str().expect("it is text")]);
    let told = shown(&output);
    let line = told.split('`').nth(1).unwrap_or_else(|| panic!("no line in {told}"));
    let line: toml::Table = toml::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    let directories = &line["filesystem"]["read_only"];
    assert_eq!(directories.as_array().and_then(|all| all[0].as_str()), hidden.path().to_str(), "{told}");
}
