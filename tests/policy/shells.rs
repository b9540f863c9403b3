//! The judge's reading of a line, held against what bash and dash really run.
//!
//! Lines are made by a seeded generator out of parts that are known to be hard. Each is run by a real shell in
//! an empty directory with nothing on its path but recorders; whatever was run must be among what the parser saw,
//! unless that said that there was something that it could not see, or the judge would not have let it pass.

use std::{
    env, fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use provost_policy::{
    PolicySet,
    command::{
        rule::Decision,
        shell::{self, Dialect, ParsedLine, Word},
    },
};

use crate::policy::{dice::Dice, fuzz};

const PARTS: &[&str] = &[
    "aa",
    "bb",
    "cc",
    "aa x",
    "bb -f 'y z'",
    "c'c'",
    "\"aa\"",
    "\\bb",
    "$'\\x61a'",
    "$'\\'; cc #'",
    "a\\\na",
    " ",
    " ",
    " ",
    " ",
    "; ",
    " && ",
    " || ",
    " | ",
    " |& ",
    " & ",
    "\n",
    "\\\n",
    "\t",
    "$(bb)",
    "`cc`",
    "\"$(aa)\"",
    "\"`bb`\"",
    "\"a\\`b\"",
    "<(aa)",
    "${x:-$(bb)}",
    "${x:-`cc`}",
    "$((1))",
    "$X",
    "\"$X\"",
    "> f",
    " > f ",
    " 2>&1 ",
    " 2>/dev/null ",
    " &> f ",
    " >&- ",
    " < /dev/null ",
    "(aa)",
    "{ bb; }",
    "(",
    ")",
    "{ ",
    "; }",
    "if aa; then bb; fi",
    "while aa; do break; done",
    "until aa; do cc; done",
    "for i in 1 2; do bb; done",
    "case x in x) aa;; *) bb;; esac",
    "! ",
    "#",
    " # ",
    "a#b",
    "'#'",
    "f() { aa; }; f",
    "f() (bb)",
    "f ",
    "function g { cc; }; g",
    "<<E\naa\nE\n",
    "<<'E'\n$(bb)\nE\n",
    "<<E\n$(cc)\nE\n",
    "<<-E\n\t`aa`\n\tE\n",
    "<<E | bb\nx\nE\n",
    "<<E bb\nx\nE\n",
    "<<\"E F\"\naa\nE F\n",
    "<<E\nE\n",
    "<<< aa",
    "A=1 ",
    "A=1 B=2 ",
    "A=$(aa) ",
    "A=`bb` ",
    "A=(aa bb) ",
    "A+=x ",
    "export A=1",
    "[[ x || bb ]]",
    "[ x ]",
    "((1))",
    "((aa))",
    "((cc); aa)",
    "!(bb)",
    "@(aa)",
    "eval aa",
    "eval 'bb x'",
    "exec cc",
    "command aa",
    "builtin echo",
    "time bb",
    "coproc cc",
    "\\",
    "'",
    "\"",
    "`",
    "$",
    "$(",
    "${",
    "''",
    "\"\"",
    "{aa,bb}",
    "{a,a}a",
    "*",
    "?",
    "[a]a",
    "~",
    "=aa",
    "-",
    "--",
    "aa$'\\t'bb",
    "$\"aa\"",
    "\\'",
    "\\\"",
    "\"\\\"; aa #\"",
    "'\\'; bb #'",
    "trap 'aa' EXIT",
    "cd . && bb",
    "\u{e9}",
    "\u{a0}",
    "aa\u{a0}bb",
    ";;",
    "&",
    "|",
    "<",
    ">",
    "then",
    "do",
    "fi",
    "done",
    "esac",
    "case aa in aa",
    ") ",
    "select i in 1; do aa; done <<E\n1\nE\n",
    "a=b",
    "x[0]=`aa`",
    "x[$(bb)]=1",
    "declare x=$(aa)",
    "let x=1",
    "echo",
    "echo aa",
    "printf x",
    "env aa",
    "sh -c 'bb; cc'",
    "sh -c \"aa\"",
    "nohup cc",
    "xargs aa </dev/null",
    "true",
    "false",
    ":",
    "\r",
    "$((`cc`))",
    "$(( $(aa) ))",
    "\"${x:-\"$(bb)\"}\"",
    "\"a $(cc \"b\") d\"",
    "`aa \\`bb\\``",
    "\"`aa \"bb\"`\"",
    "$(aa # )\n)",
    "$(cat <<E\naa\nE\n)",
    "$(case x in x) bb;; esac)",
    "{",
    "}",
    "{ aa }",
    "aa;bb",
    "aa&&cc",
    "aa|bb",
    "(aa;bb)",
    "(aa)|cc",
    "time A=1 aa",
    "time -p ",
    "time ",
    "coproc ",
    "! ! ",
    "{fd}>f ",
    "12>f ",
    "2>f",
    "&>f ",
    "&>>f ",
    ">|f ",
    "<>f ",
    ">&-aa",
    "<&- ",
    "$[1]",
    "${x:=aa}",
    "${x#\\'}",
    "\"${x%'}'}\"",
    "${x:-'$(aa)'}",
    "${x:-\"$(aa)\"}",
    "${x//a/`bb`}",
    "${x:-<(aa)}",
    "${x:-{a}}",
    "${#x}",
    "<<\\E\naa\nE\n",
    "<<E;",
    "<<E <<F\naa\nE\n$(bb)\nF\n",
    "<<E\nx\\\nE\nE\n",
    "\nE\n",
    "\naa\n",
    "in",
    "\"`echo 'aa'`\"",
    "`#aa`",
    "$(#aa\n)",
    "case x in (aa) bb;; esac",
    "case x in\n(aa)\nbb;; esac",
    "f() aa",
    "function g\n{ aa; }",
    "a=(aa $(bb))",
    "a=(",
    "[[ x =~ (aa|bb) ]]",
    "[[ x == @(aa|bb) ]]",
    "[[ aa && `bb` ]]",
    "$\\\n(aa)",
    "&\\\n&",
    ">\\\n&",
    "aa\\\n",
    "{aa",
    "aa}",
    "\"$'aa'\"",
    "$'a\\'",
    "\"a\\\nb\"",
    "if",
    "while",
    "for",
    "x=1 if",
    "> f if",
    "x+=aa",
    "PATH=. ",
    "IFS=a ",
    "set -- aa",
    "\"$@\"",
    "x=$(echo 'a[$(cc)]'); ",
    "read x <<< 'a[$(bb)]'; ",
    "for x in 'a[$(aa)]'; do ((x)); done",
    "set -- 'a[$(cc)]'; ",
    "f() { echo $(($1)); }; f 'a[$(bb)]'; ",
    "((x))",
    "$((x))",
    "$(($1))",
    "$(($(echo 'a[$(aa)]')))",
    "[[ x -eq 1 ]]",
    "[[ $x -gt 1 ]]",
    "${y[x]}",
    "${y:x}",
    "y[x]=1",
    "y=([x]=1)",
    "let y=x",
    "declare -i y=x; ",
    "test -v 'y[x]'",
    "printf -v 'y[x]' 1",
    "unset 'y[x]'",
];

/// The argument vectors that one run of a shell started, in order.
fn run(shell: &str, arguments: &[&str], line: &str, directory: &Path, number: usize) -> Vec<Vec<String>> {
    // What an earlier line left in the background goes on in the directory and writes to the log of that line.
    let log = directory.join(format!("log{number}"));
    let work = directory.join(format!("work{number}"));
    fs::create_dir(&work).expect("a directory can be made");
    let mut child = Command::new(shell)
        .args(arguments)
        .args(["-c", line])
        .env_clear()
        .env("PATH", directory.join("bin"))
        .env("LOG", &log)
        .env("LC_ALL", "C.UTF-8")
        .current_dir(&work)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the shell starts");
    let deadline = Instant::now() + Duration::from_secs(2);
    // A line may wait for a pipe that nobody closes: it is stopped at a deadline.
    while child.try_wait().expect("a child can be waited for").is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            break;
        }
        std::thread::yield_now();
    }
    let text = fs::read_to_string(&log).unwrap_or_default();
    text.split("\u{1}\n")
        .filter(|one| !one.is_empty())
        .map(|one| one.split('\u{2}').map(str::to_owned).collect())
        .collect()
}

/// Whether the judge saw this argument vector, where a word that it could not know stands for any words.
fn saw(line: &ParsedLine, argv: &[String]) -> bool {
    line.commands.iter().any(|command| {
        // What builtins and wrappers run is unwrapped by the judge, not by the parser.
        let texts: Vec<&str> = command.words.iter().filter_map(Word::literal).collect();
        let is_unknown = command.words.first().is_some_and(|word| word.literal().is_none());
        is_unknown
            || covers(&command.words, argv)
            || match texts.as_slice() {
                [
                    "eval" | "exec" | "command" | "time" | "coproc" | "env" | "nohup" | "xargs" | "builtin"
                    | "-",
                    rest @ ..,
                ] => {
                    (1..command.words.len()).any(|at| {
                        let words = &command.words[at..];
                        // xargs adds what it reads.
                        covers(words, &argv[..argv.len().min(words.len())])
                            || saw(&shell::parse(&shell::print(words), Dialect::Bash), argv)
                    }) || rest.len() + 1 < command.words.len()
                        || saw(&shell::parse(&rest.join(" "), Dialect::Bash), argv)
                        || !shell::parse(&rest.join(" "), Dialect::Bash).opaque.is_empty()
                }
                ["sh", rest @ ..] => {
                    rest.len() + 1 < command.words.len()
                        || rest.iter().any(|text| {
                            let inner = shell::parse(text, Dialect::Posix);
                            saw(&inner, argv) || !inner.opaque.is_empty()
                        })
                }
                ["trap", inner, ..] => saw(&shell::parse(inner, Dialect::Bash), argv),
                _ => false,
            }
    })
}

/// Whether a policy that allows everything but this very command lets the line pass. The parser leaves to the judge what is
/// in the words of builtins, which may be expressions and names of variables that run something.
fn passes_a_denial(line: &str, dialect: Dialect, argv: &[String]) -> bool {
    let escaped = |text: &String| text.chars().flat_map(|c| ['\\', c]).collect::<String>();
    let pattern: Vec<_> = argv.iter().map(|text| toml::Value::String(escaped(text)).to_string()).collect();
    let policy = format!(
        "default_profile = 'a'\n[profile.a]\n\
         [[rule]]\nid = 'others'\ndecision = 'allow'\nargv = ['**']\n\
         [[rule]]\nid = 'this'\ndecision = 'deny'\nargv = [{}]\n",
        pattern.join(", ")
    );
    let policy = PolicySet::parse("all but one", &policy).expect("it is a policy");
    fuzz::verdict(line, dialect, policy.rules()) == Decision::Allow
}

fn covers(words: &[Word], argv: &[String]) -> bool {
    match (words.split_first(), argv.split_first()) {
        (None, None) => true,
        (Some((Word::Literal(word), rest)), Some((arg, more))) => word == arg && covers(rest, more),
        (Some((Word::Opaque { .. }, rest)), _) => {
            covers(rest, argv) || argv.split_first().is_some_and(|(_, more)| covers(words, more))
        }
        _ => false,
    }
}

fn make_recorders(directory: &Path) {
    let bin = directory.join("bin");
    fs::create_dir(&bin).expect("a directory can be made");
    // One write, so that two at a time do not mix.
    let recorder = "#!/bin/bash\nt=${0##*/}; for a in \"$@\"; do t+=$'\\x02'$a; done\nprintf '%s\\x01\\n' \"$t\" >> \"$LOG\"\n";
    for name in ["aa", "bb", "cc", "x", "a#b", "aabb", "aaa", "[[", "aa\u{a0}bb"] {
        let path = bin.join(name);
        fs::write(&path, recorder).expect("a recorder can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a recorder can be made to run");
    }
    for name in ["sh", "env", "nohup", "xargs"] {
        let real = ["/usr/bin", "/bin"].iter().map(|f| Path::new(f).join(name)).find(|p| p.exists());
        symlink(real.expect("the system has it"), bin.join(name)).expect("a link can be made");
    }
}

/// A shell, how it is started, and the readings of a line that are held against it.
type Shell = (&'static str, &'static [&'static str], &'static [Dialect]);

/// bash and dash must be there; others are compared with where they are installed.
fn installed() -> Vec<Shell> {
    const SHELLS: [Shell; 6] = [
        ("/bin/bash", &[], &[Dialect::Bash, Dialect::Posix]),
        ("/bin/dash", &[], &[Dialect::Posix]),
        ("/bin/bash", &["--posix"], &[Dialect::Posix]),
        ("/bin/busybox", &["sh"], &[Dialect::Posix]),
        ("/bin/mksh", &[], &[Dialect::Posix]),
        ("/bin/zsh", &["-f"], &[Dialect::Other]),
    ];
    let is_there = |(program, ..): &Shell| {
        let is_there = Path::new(program).exists();
        if !is_there {
            println!("SKIPPED: {program} is not installed");
            let is_needed = program.ends_with("bash") || program.ends_with("dash");
            assert!(!is_needed || env::var_os("CI").is_none(), "CI has {program}");
        }
        is_there
    };
    SHELLS.into_iter().filter(is_there).collect()
}

fn number(name: &str, otherwise: u64) -> u64 {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn whatever_a_shell_runs_of_a_line_the_judge_has_seen() {
    // The comparison can fail.
    let argv = ["aa", "x*"].map(str::to_owned);
    assert!(passes_a_denial("aa 'x'; bb", Dialect::Posix, &argv));
    assert!(!passes_a_denial("bb; aa 'x*'", Dialect::Posix, &argv));
    let directory = tempfile::tempdir().expect("a directory");
    make_recorders(directory.path());
    let rounds = number("PROVOST_SHELL_ROUNDS", 250);
    let mut dice = Dice(number("PROVOST_SHELL_SEED", 0x5eed));
    let (mut ran, mut readings) = (0, 0);
    let mut missed = Vec::new();
    let shells = installed();
    for _ in 0..rounds {
        let line: String = (0..1 + dice.roll(7)).map(|_| PARTS[dice.roll(PARTS.len())]).collect();
        for (program, arguments, dialects) in &shells {
            let readings_of = dialects.iter().map(|dialect| (*dialect, shell::parse(&line, *dialect)));
            let whole: Vec<_> = readings_of.filter(|(_, parsed)| parsed.opaque.is_empty()).collect();
            // A line that nobody can see through is asked about: there is nothing to compare.
            if whole.is_empty() {
                continue;
            }
            readings += whole.len();
            let argvs = run(program, arguments, &line, directory.path(), readings);
            ran += argvs.len();
            for (dialect, parsed) in &whole {
                let is_missed =
                    |argv: &&Vec<String>| !saw(parsed, argv) && passes_a_denial(&line, *dialect, argv);
                if let Some(argv) = argvs.iter().find(is_missed) {
                    let seen: Vec<_> = parsed.commands.iter().map(|c| shell::print(&c.words)).collect();
                    missed.push(format!("{program} {arguments:?} ran {argv:?} of {line:?}; seen: {seen:?}"));
                }
            }
        }
    }
    println!("{rounds} lines, {readings} readings without an opaque part, {ran} commands run");
    assert!(missed.is_empty(), "{} missed:\n{}", missed.len(), missed.join("\n"));
    assert!(ran as u64 > rounds / 10, "the generator makes lines that run: {ran}");
}
