//! Fuzzing of what reads text from outside: shell lines, policy files, test files.
//!
//! A mutator without instrumentation, on stable Rust (decision 0082): seeds are every case, the corpus of attacks and
//! every shipped policy. `PROVOST_FUZZ_SECONDS` says how long each target runs; `PROVOST_FUZZ_SEED` repeats a run.
//! What must hold of every text is more than that nothing panics.

use std::{
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use nix::time::{ClockId, clock_gettime};
use provost_gateway::policy_directory;
use provost_policy::{
    PolicySet,
    command::{
        evaluate_rules,
        program::NominalResolver,
        rule::{Decision, RequestContext, Rule, RuleSource},
        shell::{
            self, Dialect, LineCwd, MAX_COMMANDS, MAX_LINE_BYTES, Named, OpaqueReason, ParsedLine, Word,
        },
        verdict::{AssignmentVerdict, CommandInput, EvalContext, Lookup, Unseen},
    },
    suite::Suite,
};

use crate::policy::{dice::Dice, shipped};

const DIALECTS: [Dialect; 3] = [Dialect::Posix, Dialect::Bash, Dialect::Other];

#[rustfmt::skip]
const SHELL_TOKENS: &[&str] = &[
    "$(", ")", "`", "\"", "'", "\\", "\n", ";", "&&", "||", "|", "&", "<<E\n", "\nE\n", "<<'E'\n", "<<-E\n",
    "<<<", ">", "2>&1", "&>", "<(", ">(", "${", "${x:-", "}", "$((", "))", "((", "[[ ", " ]]", "{ ", "; }", "(",
    "if ", "; then ", "; fi", "while ", "; do ", "; done", "for i in ", "case x in ", ";;", " esac", "f() { ",
    "function ", "time ", "! ", "coproc ", "eval ", "trap ", "unset -f ", "cd ", "PATH=", "LD_PRELOAD=x ",
    "x=(", "x[0]=", "+=", "$'\\'", "$\"", "$x", "*", "~", "{a,b}", "#", " # ", "\\\n", "\t", "rm", "ls",
    "git push", "env ", "sh -c ", "xargs ", "\u{e9}", "\u{a0}", "\u{200b}", "\r", "\0", "\u{1f600}", "export ",
    "=~ ", "]", "[", "0", "-", "=",
];

#[rustfmt::skip]
const TOML_TOKENS: &[&str] = &[
    "[[rule]]\n", "id = ", "decision = ", "argv = ", "flags = ", "skip = ", "when = ", "effects = ",
    "matches = ", "rejects = ", "mode = ", "\"", "'", "\"\"\"", "[", "]", "{", "}", "=", ",", "\n", "#", "**",
    "*", "?", "[!a]", "\\", "{ regex = '", "(?i)", "(a*)*", "a{9999}", "\"allow\"", "\"deny\"", "\"observe\"",
    "[profile.x]\n", "extends = ", "default_profile = ", "1e9", "-1", "0x7fffffffffffffff",
    "99999999999999999999", "true", "1979-05-27", "\u{e9}", "\0", ".", "time_limit = '1s'", "[links]\n",
    "[[case]]\n", "line = ", "expect = ",
];

#[test]
fn no_line_makes_the_judge_panic_or_contradict_itself() {
    let rules = PolicySet::parse("fuzz", RULES).expect("the rules of the fuzzer are valid");
    let seeds = seeds_of_lines();
    fuzz("lines", &seeds, SHELL_TOKENS, |line, other| {
        for dialect in DIALECTS {
            check_line(line, dialect);
            check_together(line, other, dialect, &rules);
            check_more_denied(line, dialect, &rules);
        }
    });
}

#[test]
fn no_policy_or_test_file_makes_its_reader_panic_and_rules_are_printed_as_they_are_read() {
    let seeds = seeds_of_files();
    let lines = ["git push -f", "ls $X; rm -rf /", "sh -c 'a | b'", ""];
    fuzz("files", &seeds, TOML_TOKENS, |text, _| {
        let _ = Suite::parse("fuzz", text);
        if let Ok(policy) = PolicySet::parse("fuzz", text) {
            for line in lines {
                let _ = verdict(line, Dialect::Posix, policy.rules());
            }
            check_printed(text);
        }
    });
}

/// What is expected of every line by itself.
fn check_line(line: &str, dialect: Dialect) {
    let parsed = shell::parse(line, dialect);
    assert!(parsed.commands.len() <= MAX_COMMANDS);
    assert!(parsed.opaque.iter().all(|opaque| line.is_char_boundary(opaque.at)), "{:?}", parsed.opaque);
    assert!(parsed.loops.iter().all(|commands| commands.end <= parsed.commands.len()));
    if !parsed.opaque.is_empty() || line.len() > MAX_LINE_BYTES / 4 {
        return;
    }
    // `}<(x)` behind an assignment is a word; by itself it begins with one of the grammar, and no quotes can change that.
    let is_of_grammar = |word: &Word| match word {
        Word::Literal(_) => false,
        Word::Opaque { text, .. } => {
            let behind = text.trim_start_matches(|c: char| c.is_ascii_lowercase() || "{}![".contains(c));
            behind.len() < text.len() && behind.starts_with(['<', '>'])
        }
    };
    let is_printed = |words: &[Word]| words.first().is_some_and(|first| !is_of_grammar(first));
    for command in parsed.commands.iter().filter(|command| is_printed(&command.words)) {
        let printed = shell::print(&command.words);
        let again = shell::parse(&printed, dialect);
        let words = again.commands.last().map(|command| &command.words);
        assert_eq!(words, Some(&command.words), "{printed:?} is not what it was printed from");
    }
}

/// One line behind another is what both are: nothing of the second is hidden by the first.
fn check_together(first: &str, second: &str, dialect: Dialect, policy: &PolicySet) {
    let (a, b) = (shell::parse(first, dialect), shell::parse(second, dialect));
    let limit = MAX_LINE_BYTES / 4;
    // What holds something that no line may hold is read in part only.
    let is_whole = |line: &ParsedLine| line.opaque.iter().all(|o| o.reason != OpaqueReason::ControlCharacter);
    if !is_whole(&b) || (dialect == Dialect::Other && second.contains('(')) {
        return;
    }
    if !a.opaque.is_empty() || first.len() + second.len() > limit || a.commands.len() + b.commands.len() > 200
    {
        return;
    }
    let both = format!("{first}\n{second}");
    let together = shell::parse(&both, dialect);
    let words = |line: &ParsedLine| {
        line.commands.iter().map(|c| (c.words.clone(), c.assignments.clone())).collect::<Vec<_>>()
    };
    let expected: Vec<_> = words(&a).into_iter().chain(words(&b)).collect();
    // What one shell alone noted about the second is noted about both.
    assert_eq!(words(&together), expected, "{both:?}");
    assert_eq!(together.opaque.is_empty(), b.opaque.is_empty(), "{both:?}");
    let is_plain = |line: &ParsedLine| {
        line.commands.iter().all(|c| c.of_function == Named::Program && c.place == LineCwd::Start)
    };
    if is_plain(&a) && is_plain(&together) {
        let decide = |line: &str| verdict(line, dialect, policy.rules());
        let (one, two, all) = (decide(first), decide(second), decide(&both));
        // A line with nothing to run is denied only as long as nothing else is there.
        let runs =
            |line: &ParsedLine| line.commands.iter().any(|c| !c.words.is_empty()) || !line.opaque.is_empty();
        assert!(!runs(&a) || all >= one, "{both:?}: {one} became {all}");
        assert!(!runs(&b) || all >= two, "{both:?}: {two} became {all}");
    }
}

fn check_more_denied(line: &str, dialect: Dialect, policy: &PolicySet) {
    let before = verdict(line, dialect, policy.rules());
    for rule in policy.rules() {
        let mut more = policy.rules().to_vec();
        let mut deny = rule.clone();
        deny.id = "added".into();
        deny.decision = Decision::Deny;
        more.push(deny);
        let after = verdict(line, dialect, &more);
        assert!(
            after >= before,
            "{line:?}: {before} became {after} by a rule that denies what {} means",
            rule.id
        );
    }
}

/// Rules say the same when they are printed and read again.
fn check_printed(text: &str) {
    let table: toml::Table = toml::from_str(text).expect("a policy is TOML");
    let rules = table.get("rule").and_then(toml::Value::as_array).into_iter().flatten();
    for value in rules {
        let rule: RuleSource = value.clone().try_into().expect("a policy's rules are rules");
        let printed = toml::to_string(&rule).expect("a rule can be printed");
        let again: RuleSource = toml::from_str(&printed).unwrap_or_else(|error| panic!("{printed}\n{error}"));
        assert_eq!(again, rule, "{printed}");
    }
}

/// What rules say of a line.
pub(crate) fn verdict(line: &str, dialect: Dialect, rules: &[Rule]) -> Decision {
    let circumstances = RequestContext { cwd: "/workspace".into(), ..RequestContext::default() };
    evaluate_rules(
        CommandInput::ShellLine(line, dialect),
        EvalContext {
            rules,
            resolver: &NominalResolver,
            request: &circumstances,
            own_profile: "workspace",
            lookup: Lookup::Trusted,
            unseen: Unseen::Asked,
            assignment_verdict: &|name, _| match name.starts_with("LD_") {
                true => AssignmentVerdict::Denied,
                false => AssignmentVerdict::Allowed,
            },
        },
    )
    .decision
}

const RULES: &str = "default_profile = 'a'\n[profile.a]\n\
    [[rule]]\nid = 'read'\ndecision = 'allow'\nargv = [['ls', 'cat', 'true', 'echo'], '**']\n\
    [[rule]]\nid = 'push'\ndecision = 'ask'\nargv = ['git', '**', 'push', '**']\n\
    [[rule]]\nid = 'no-rm'\ndecision = 'deny'\nargv = ['rm', '**']\nflags = ['-r']\n\
    [[rule]]\nid = 'here'\ndecision = 'allow'\nargv = ['make', '**']\nwhen = { cwd = ['/workspace'] }\n";

/// Where chance begins, unless `PROVOST_FUZZ_SEED` says otherwise: who changes nothing sees nothing new fail.
const SEED: u64 = 0x5eed;

/// Texts that are tried in any case.
const LEAST_ROUNDS: u64 = 11;

/// Runs a target on mutated seeds until its time is over.
fn fuzz(target: &str, seeds: &[String], tokens: &[&str], check: impl Fn(&str, &str)) {
    let seed = number("PROVOST_FUZZ_SEED").unwrap_or(SEED).max(1);
    let time = Duration::from_secs(number("PROVOST_FUZZ_SECONDS").unwrap_or(2));
    let mut dice = Dice(seed);
    let deadline = Instant::now() + time;
    let mut rounds = 0_u64;
    // A host that is slow has a few all the same.
    while rounds < LEAST_ROUNDS || Instant::now() < deadline {
        let text = mutated(&mut dice, seeds, tokens);
        let other = &seeds[dice.roll(seeds.len())];
        if catch_unwind(AssertUnwindSafe(|| check(&text, other))).is_err() {
            panic!("PROVOST_FUZZ_SEED={seed}, round {rounds} of {target}:\n{text:?}\nand {other:?}");
        }
        rounds += 1;
    }
    println!("{target}: {rounds} texts in {time:?}, PROVOST_FUZZ_SEED={seed}");
}

fn mutated(dice: &mut Dice, seeds: &[String], tokens: &[&str]) -> String {
    let mut text: Vec<char> = seeds[dice.roll(seeds.len())].chars().collect();
    for _ in 0..=dice.roll(5) {
        let at = dice.roll(text.len() + 1);
        let length = dice.roll(12).min(text.len() - at);
        match dice.roll(7) {
            0 | 1 => drop(text.splice(at..at, tokens[dice.roll(tokens.len())].chars())),
            2 => drop(text.drain(at..at + length)),
            3 => drop(text.splice(at..at + length, tokens[dice.roll(tokens.len())].chars())),
            4 => {
                let copy: Vec<char> = text[at..at + length].to_vec();
                drop(text.splice(at..at, copy));
            }
            5 => {
                let other: Vec<char> = seeds[dice.roll(seeds.len())].chars().collect();
                let from = dice.roll(other.len() + 1);
                drop(text.splice(at..at, other[from..].iter().copied().take(40)));
            }
            _ if at < text.len() => text[at] = char::from(u8::try_from(dice.roll(128)).unwrap_or(b'a')),
            _ => {}
        }
    }
    text.into_iter().collect()
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

fn seeds_of_lines() -> Vec<String> {
    let suite =
        Suite::parse("cases", &shipped::read("policies/tests/cases.toml")).expect("the cases are valid");
    let corpus: toml::Table = toml::from_str(&shipped::read("policies/tests/corpus.toml")).expect("TOML");
    let templates = ["attack", "honest"].into_iter().filter_map(|key| corpus.get(key)?.as_array()).flatten();
    let filled = templates.filter_map(|template| template.get("line")?.as_str()).map(|line| {
        let quoted =
            line.replace("{quoted}", "'git push -f'").replace("{twice}", "'sh -c '\\''rm -r x'\\'''");
        let named = quoted.replace("{line}", "rm -r x").replace("{name}", "rm").replace("{rest}", "-r x");
        named.replace("{scattered}", "r''m").replace("{escaped}", "\\r\\m")
    });
    suite.cases.iter().filter_map(|case| case.get_ref().line.clone()).chain(filled).collect()
}

fn seeds_of_files() -> Vec<String> {
    let mut seeds = vec![RULES.to_owned(), shipped::read("policies/default.toml")];
    let directory = fs::read_dir(shipped::at("policies/examples")).expect("the examples are there");
    let head = "default_profile = 'build'\n[profile.build]\n[profile.workspace]\n";
    for entry in directory {
        let text = fs::read_to_string(entry.expect("a directory can be read").path())
            .expect("an example can be read");
        // Single rules are what a mutation can still turn into a policy.
        let rules = text.split("[[rule]]").skip(1).map(|rule| format!("{head}[[rule]]{rule}"));
        seeds.extend(rules);
        seeds.push(text);
    }
    let cases = shipped::read("policies/tests/cases.toml");
    seeds.extend(cases.split("\n\n").take(8).map(str::to_owned));
    seeds
}

#[test]
fn a_rules_file_of_arbitrary_bytes_is_refused_and_not_read_in_part() {
    let directory = tempfile::tempdir().expect("a directory");
    let rule = b"default_profile = 'a'\n[profile.a]\n[[rule]]\nid = 'r'\ndecision = 'allow'\nargv = ['x']\n";
    for bytes in [&b"\xff\xfe\x00"[..], b"# \xc3\x28\n", b"\0\0\0\0", b"\xef\xbb\xbf\xef\xbb\xbf"] {
        let text = [&rule[..], bytes].concat();
        fs::write(directory.path().join("p.toml"), &text).expect("a file can be written");
        assert!(policy_directory::read(directory.path()).is_err(), "{bytes:?}");
    }
    fs::write(directory.path().join("p.toml"), rule).expect("a file can be written");
    assert!(policy_directory::read(directory.path()).is_ok());
}

#[test]
fn the_time_for_a_line_grows_with_its_length_and_no_faster() {
    let long = |part: &str| part.repeat(MAX_LINE_BYTES / part.len());
    for part in [
        "$(",
        "${x:-",
        "\"$(",
        "`",
        "<<E ",
        "<<E\nE\n",
        "(",
        "((",
        "{ ",
        "a=(",
        "if ",
        "case x in ",
        "[[ ( ",
        "f()\n",
        "a\\\n",
        "\\\n",
        "' ",
        "\" ",
        "#",
        "\n",
        " ",
        "a",
        "0",
        "a[",
        "a;",
        "a[0]=1 ",
        "f() ((1));",
        "while ((1)); do ((1)); done;",
        "$((",
        "x=$x ",
        "a|",
        "! ",
        ">a ",
        "<(",
        "$'\\'",
        "=",
        "{",
        "a\u{e9}",
        "${x[",
        "`#`",
    ] {
        for dialect in DIALECTS {
            let line = long(part);
            must_be_quick(part, || drop(shell::parse(&line, dialect)));
        }
    }
    let rules = PolicySet::parse("fuzz", RULES).expect("the rules of the fuzzer are valid");
    for (before, part) in [
        ("find . ", "-exec a + "),
        ("find . ", "-exec a {} + "),
        ("find . ", "-exec "),
        ("find . ", "$x "),
        ("xargs ", "-i "),
        ("xargs ", "-iiii"),
        ("xargs -I % ", "% "),
        ("", "env "),
        ("", "eval "),
        ("env ", "a=b "),
        ("", "[[ x -eq y ]]; "),
        ("", "x=$(y); ((x)); "),
        ("let ", "x=y "),
        (": ", "${x[y]} "),
        ("PAGER=", "PAGER=x "),
    ] {
        let line = format!("{before}{}", part.repeat((MAX_LINE_BYTES - before.len()) / part.len()));
        must_be_quick(part, || {
            let _ = verdict(&line, Dialect::Bash, rules.rules());
        });
    }
    let argument = "a".repeat(2 << 20);
    let parsed = shell::parse(&format!("ls {argument}"), Dialect::Posix);
    assert!(parsed.commands.is_empty() && !parsed.opaque.is_empty(), "two megabytes are not read");
}

/// Some milliseconds of this thread, however busy the host is; seconds only if the time grew with the square.
#[track_caller]
fn must_be_quick(part: &str, work: impl FnOnce()) {
    let spent = || {
        let clock = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every Linux has this clock");
        Duration::from(clock)
    };
    let before = spent();
    work();
    let took = spent() - before;
    assert!(took < Duration::from_secs(2), "{part:?} takes {took:?}");
}
