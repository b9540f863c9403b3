//! Scripts that go on behind a command with the stdin that it had, and what they print if it has taken no more than it read.
//!
//! `run` is a function of the caller's: it runs its arguments confined.

/// What stdin is, a script for bash, and what that prints.
pub const SCRIPTS: [(&str, &str, &str); 10] = [
    (
        "a script from a pipe",
        r#"printf 'run sh -c "echo one"\necho two\nfalse\n' | bash; echo $?"#,
        "one\ntwo\n1\n",
    ),
    (
        "a script from a file",
        r#"printf 'run sh -c "echo one"\necho two\nfalse\n' > ../script; bash < ../script; echo $?"#,
        "one\ntwo\n1\n",
    ),
    (
        "the lines of a loop",
        r#"printf 'a\nb\nc\n' | while read -r x; do run echo "got $x"; done"#,
        "got a\ngot b\ngot c\n",
    ),
    ("a pipe", r#"printf 'a\nb\nc\n' | { run sh -c 'read -r l; echo "in $l"'; cat; }"#, "in a\nb\nc\n"),
    (
        "a pipe that is read for long",
        r#"seq 100000 | { run sh -c 'head -c 100000 | tail -c 6'; head -c 6; cat > /dev/null; }"#,
        "7\n18518\n1851",
    ),
    ("a file", "seq 20000 > ../lines; { run head -n 1; head -n 1; } < ../lines", "1\n2\n"),
    (
        "a file that can be written",
        "seq 20000 > ../lines; { run head -n 1; head -n 1; } 0<> ../lines",
        "1\n2\n",
    ),
    (
        "a file that is not copied",
        "truncate -s 20000000 ../long; \
         { run dd bs=1000 count=3 status=none | wc -c; cat | wc -c; } < ../long; rm ../long",
        "3000\n19997000\n",
    ),
    (
        "a text in the script",
        "{ run sh -c 'read -r l; echo \"in $l\"'; cat; } <<'END'\na\nb\nEND\n",
        "in a\nb\n",
    ),
    ("a device", "run head -c 3 < /dev/zero | wc -c", "3\n"),
];
