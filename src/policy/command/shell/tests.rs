//! What lines are seen to run.

use super::*;

fn argvs(line: &str) -> Vec<String> {
    parse(line, Dialect::Bash)
        .commands
        .iter()
        .filter(|c| !c.words.is_empty())
        .map(|c| {
            let words = c.words.iter().map(|w| match w {
                Word::Literal(text) => format!("[{text}]"),
                Word::Opaque { reason, .. } => format!("<{reason:?}>"),
            });
            words.collect::<String>()
        })
        .collect()
}

#[test]
fn quoting_is_undone() {
    for line in [
        "git push",
        "g'i't push",
        "\"git\" push",
        "g\\it \\\n push",
        "$'\\x67it' push",
        "$'\\147it' pu\"sh\"",
        "''git '''push'",
        "\\g\\i\\t pus$'h'",
    ] {
        assert_eq!(argvs(line), ["[git][push]"], "{line:?}");
    }
}

#[test]
fn what_is_printed_reads_as_what_was_printed() {
    for line in ["ex\\port A=$(rrf /)", "\\local \"$x\"", "export A=1 $(b)", "'if' $x", "$'\\e' a"] {
        for command in parse(line, Dialect::Bash).commands.iter().filter(|c| !c.words.is_empty()) {
            let printed = print(&command.words);
            let again = parse(&printed, Dialect::Bash);
            assert_eq!(
                again.commands.last().map(|c| &c.words),
                Some(&command.words),
                "{line:?}: {printed:?}"
            );
        }
    }
}

#[test]
fn every_command_of_a_line_is_seen() {
    let cases: &[(&str, &[&str])] = &[
        ("a; b && c || d | e & f", &["[a]", "[b]", "[c]", "[d]", "[e]", "[f]"]),
        ("a\nb", &["[a]", "[b]"]),
        ("echo $(rm x)", &["[rm][x]", "[echo]<Substitution>"]),
        ("echo `rm x`", &["[rm][x]", "[echo]<Substitution>"]),
        ("echo \"a $(rm x) b\"", &["[rm][x]", "[echo]<Substitution>"]),
        ("cat <(rm x)", &["[rm][x]", "[cat]<Substitution>"]),
        ("if a; then b; else c; fi", &["[a]", "[b]", "[c]"]),
        ("while a; do b; done", &["[a]", "[b]"]),
        ("for i in 1; do b; done", &["[b]"]),
        ("case x in y) b;; esac", &["[b]"]),
        ("(a; b)", &["[a]", "[b]"]),
        ("{ a; b; }", &["[a]", "[b]"]),
        ("! a", &["[a]"]),
        ("f() { rm x; }; f", &["[rm][x]", "[f]"]),
        ("x=$(rm y)", &["[rm][y]"]),
        ("export X=$(rm y)", &["[rm][y]", "[export]"]),
        ("a > $(rm x)", &["[rm][x]", "[a]"]),
        ("[[ -f $(rm x) ]]", &["[rm][x]"]),
        ("cat <<E\n$(rm x)\nE", &["[cat]", "[rm][x]"]),
        ("${x:-$(rm y)}", &["[rm][y]", "<Expansion>"]),
    ];
    for (line, expected) in cases {
        assert_eq!(argvs(line), *expected, "{line:?}");
        assert_eq!(parse(line, Dialect::Bash).opaque, [], "{line:?}");
    }
    // What it prints is an expression, too.
    assert_eq!(argvs("echo $(($(rm x)))"), ["[rm][x]", "[echo]<Expansion>"]);
    let opaque = parse("echo $(($(rm x)))", Dialect::Bash).opaque;
    assert_eq!(opaque.first().map(|part| part.reason), Some(OpaqueReason::Assignment));
}

#[test]
fn text_that_is_only_data_is_no_command() {
    for line in
        ["cat <<'E'\nrm -rf /\n$(rm x)\nE", "cat <<E\nrm -rf /\nE", "echo 'rm x; $(rm y)'", "# rm x\necho a"]
    {
        assert!(argvs(line).iter().all(|c| !c.contains("rm]")), "{line:?}: {:?}", argvs(line));
    }
}

#[test]
fn what_is_known_only_at_run_time_is_opaque() {
    for line in ["$X", "${X}", "a$X", "\"$X\"", "$(x)", "`x`", "g*t", "~/x", "{a,b}", "[ab]c"] {
        let parsed = parse(line, Dialect::Bash);
        let last = parsed.commands.last().unwrap_or_else(|| panic!("{line:?}"));
        assert!(last.words[0].literal().is_none(), "{line:?}: {last:?}");
    }
    for line in ["{}", "a{}", "\"*\"", "'~'", "a~", "\\*", "a=b", "[", "{a}"] {
        let parsed = parse(&format!("x {line}"), Dialect::Bash);
        assert!(parsed.commands[0].words[1].literal().is_some(), "{line:?}");
    }
}

#[test]
fn a_line_that_no_shell_accepts_is_opaque_as_a_whole() {
    for line in ["if then", "a &&", "(a", "echo \"a", "a(b)", "p\\\nush", "a\rb", "a\0b", "a \u{1b}[1m"] {
        assert!(!parse(line, Dialect::Bash).opaque.is_empty(), "{line:?}");
    }
    assert!(!parse(&"a;".repeat(MAX_COMMANDS + 1), Dialect::Bash).opaque.is_empty());
    assert!(!parse(&"a".repeat(MAX_LINE_BYTES + 1), Dialect::Bash).opaque.is_empty());
    assert!(!parse(&"$(".repeat(5000), Dialect::Bash).opaque.is_empty());
}

#[test]
fn the_working_directory_is_followed_where_it_can_be_seen() {
    let place = |line: &str| parse(line, Dialect::Bash).commands.last().map(|c| c.place.clone());
    assert_eq!(place("x"), Some(LineCwd::Start));
    assert_eq!(place("cd /a && x"), Some(LineCwd::After("/a".into())));
    assert_eq!(place("cd '/a b'; cd c; x"), Some(LineCwd::After("/a b/c".into())));
    assert_eq!(place("cd -- a; x"), Some(LineCwd::After("a".into())));
    assert_eq!(place("(cd /a); x"), Some(LineCwd::Start));
    assert_eq!(place("cd /a | y; x"), Some(LineCwd::Start));
    for line in
        ["cd $X; x", "cd; x", "cd -; x", "pushd /a; x", "cd /a || cd /b; x", "if a; then cd /b; fi; x"]
    {
        assert_eq!(place(line), Some(LineCwd::Unknown), "{line:?}");
    }
}

#[test]
fn only_a_definition_that_surely_happens_makes_a_function() {
    let named = |line: &str| parse(line, Dialect::Bash).commands.last().map(|c| c.of_function);
    assert_eq!(named("f() { a; }; f"), Some(Named::Function));
    assert_eq!(named("false && f() { a; }; f"), Some(Named::Program));
    assert_eq!(named("if a; then f() { b; }; fi; f"), Some(Named::Program));
    assert_eq!(named("f; f() { a; }; f"), Some(Named::Function));
}

#[test]
fn characters_of_four_bytes_do_not_bring_the_parser_down() {
    for line in ["{\u{31860}", "{ x\u{1f600}; }", "${\u{10102}}", "a{\u{1f8c1}", "echo \u{1f600} \u{e9}"] {
        let _ = parse(line, Dialect::Bash);
    }
    assert_eq!(argvs("echo '\u{1f600}' \u{e9}x"), ["[echo][\u{1f600}][\u{e9}x]"]);
    assert_eq!(argvs("\u{e9}=1 rm"), ["[\u{e9}=1][rm]"]);
}

#[test]
fn an_opaque_part_says_where_it_begins_and_why() {
    let opaque = |line: &str, dialect| -> Vec<(usize, OpaqueReason)> {
        parse(line, dialect).opaque.iter().map(|part| (part.at, part.reason)).collect()
    };
    assert_eq!(opaque("ls; [[ x && y ]]", Dialect::Posix), [(4, OpaqueReason::Dialect)]);
    assert_eq!(opaque("ls; [[ x =~ a|rm ]]", Dialect::Posix), [(4, OpaqueReason::Dialect)]);
    assert_eq!(opaque("ls; [[ -f x ]]", Dialect::Posix), []);
    // To busybox it is a word of this one command up to `]]`.
    assert_eq!(opaque("cc [[ x || bb ]]", Dialect::Posix), [(3, OpaqueReason::Dialect)]);
    assert_eq!(opaque("cc '[[' x || bb ]]", Dialect::Posix), []);
    assert_eq!(opaque("bb 12>f", Dialect::Bash), []);
    assert_eq!(opaque("\u{e9}a=b rm x", Dialect::Bash), [(0, OpaqueReason::Dialect)]);
    // What zsh makes of a line is not known, and what bash would make of it is evaluated as well.
    assert_eq!(opaque("ls; ls", Dialect::Other), [(0, OpaqueReason::Dialect)]);
    for other in ["zsh", "fish", "mksh", "ksh93", "tcsh", "python3", ""] {
        assert_eq!(Dialect::of(other), Dialect::Other, "{other}");
    }
    assert_eq!(parse("ls; ls", Dialect::Other).commands, parse("ls; ls", Dialect::Bash).commands);
    assert_eq!(opaque("ls; [[ x ]]", Dialect::Bash), []);
    assert_eq!(opaque("ls $[1]", Dialect::Bash), [(3, OpaqueReason::Dialect)]);
    assert_eq!(opaque("ls\nls\u{200b}", Dialect::Bash), [(5, OpaqueReason::ControlCharacter)]);
    assert_eq!(opaque("ls (a)", Dialect::Bash), [(4, OpaqueReason::Syntax)]);
    // What stands before it is evaluated all the same.
    assert_eq!(argvs("rm x\nls\u{200b}"), ["[rm][x]"]);
    assert_eq!(argvs("rm x $[1]"), ["[rm][x]<Dialect>"]);
}

#[test]
fn a_here_document_does_not_wait_in_what_is_no_list() {
    for line in ["a=(<<E\nE\n)", "cat <<E | a=(\nE\nx)", "cat <<E && [[ x &&\nE\ny ]]", "cat <<E \"\nE\n\""] {
        assert!(!parse(line, Dialect::Bash).opaque.is_empty(), "{line:?}");
    }
    assert_eq!(argvs("a=(\nx\n); [[ x &&\ny ]]; ls"), ["[ls]"]);
}

#[test]
fn a_loop_comes_back_to_what_stands_before_its_end() {
    let line = parse("a; while b; do c; cd x; done; d", Dialect::Posix);
    assert_eq!(line.loops.first(), Some(&(1..4)));
    let places: Vec<_> = line.commands.iter().map(|command| command.place.clone()).collect();
    let unknown = || LineCwd::Unknown;
    assert_eq!(places, [LineCwd::Start, unknown(), unknown(), unknown(), unknown()]);
}

#[test]
fn what_may_become_an_expression_is_opaque() {
    let is_opaque =
        |line: &str| parse(line, Dialect::Bash).opaque.iter().any(|o| o.reason == OpaqueReason::Assignment);
    for line in [
        "ls {a[$(cat x)]}>f",
        "[ $x ]",
        "test -f $x",
        "[ \"$a\"$x = y ]",
        "[ -v \"$x\" ]",
        "x=a; x+=$y; echo $((x))",
        "read LINES",
        "for RANDOM in a b; do ls; done",
        "SECONDS=$x",
        "export OPTIND=x",
        "declare -i n; read n",
        "printf -v LINES x",
        "let n=1",
        "unset 'a[x]'",
        "a[i]=1",
        "echo ${a[i]} ",
        "echo ${x:n}",
        "[[ $n -gt 3 ]]",
    ] {
        assert!(is_opaque(line), "{line}");
    }
    for line in [
        "ls {a,b}>f",
        "[ \"$x\" = y ]",
        "[ $? -eq 0 ]",
        "[ $# -gt 1 ]",
        "[ -f x ]",
        "read line",
        "for i in 1 2; do ls; done",
        "LINES=40 COLUMNS=80 top",
        "echo $((1 + 2)) ${x:1:2} ${a[@]} ${a[0]}",
        "printf '%s[x]' y",
        "[[ $? -eq 0 ]]",
    ] {
        assert!(!is_opaque(line), "{line}");
    }
}
