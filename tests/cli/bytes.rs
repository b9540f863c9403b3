//! Commands, variables and directories that are no UTF-8, and long lists of arguments: as outside.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    process::{Command, Output, Stdio},
};

use crate::cli::{
    fixture::{Place, code, shown, stderr, stdout},
    serving::Gateway,
};

fn os(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

/// Writes its arguments, a variable and its directory, byte for byte.
const TELL: &str = "printf '%s|' \"$@\" \"$X\"; pwd";

fn runs(place: &Place, how: &[&str], directory: &[u8]) -> Command {
    let mut command = place.provost();
    command
        .args(how)
        .args(["sh", "-c", TELL, "sh"])
        .arg(os(b"caf\xe9"))
        .arg("plain")
        .env("X", os(b"\xfe=\xff"));
    command.current_dir(place.work().join(os(directory)));
    command
}

fn output(mut command: Command) -> Output {
    command.stdin(Stdio::null()).output().expect("provost starts")
}

fn journal(place: &Place) -> String {
    let files = fs::read_dir(place.path().join("state/journal")).into_iter().flatten().flatten();
    files.map(|file| fs::read_to_string(file.path()).unwrap_or_default()).collect()
}

#[test]
fn what_is_no_utf_8_goes_to_a_command_as_it_is() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    fs::create_dir(place.work().join(os(b"d\xe8"))).expect("a directory can be made");
    let address = gateway.address();
    let policies = place.policies();
    let embedded = ["run", "-e", "X", "--policies", policies.to_str().expect("UTF-8"), "--"];
    for how in [&embedded[..], &["run", "-e", "X", "--gateway", &address, "--"]] {
        let told = output(runs(&place, how, b"d\xe8"));
        let expected =
            [b"caf\xe9|plain|\xfe=\xff|", place.work().join(os(b"d\xe8")).as_os_str().as_bytes(), b"\n"]
                .concat();
        assert_eq!(told.stdout, expected, "{how:?}: {}", shown(&told));
    }
    let mut shell = Command::new(env!("CARGO_BIN_EXE_provost-shell"));
    shell.arg("-c").arg(os(b"printf 'l\xeene'; pwd")).current_dir(place.work().join(os(b"d\xe8")));
    shell.env("PROVOST_GATEWAY", &address).env("PROVOST_SHELL_ROOT", place.work());
    let told = output(shell);
    let expected = [b"l\xeene", place.work().join(os(b"d\xe8")).as_os_str().as_bytes(), b"\n"].concat();
    assert_eq!(told.stdout, expected, "{}", shown(&told));
    let listed =
        place.provost().args(["ps", "--gateway", &address, "-o", "json"]).output().expect("provost starts");
    assert_eq!(code(&listed), 0, "{}", shown(&listed));
    gateway.stop();
    let journal = journal(&place);
    assert!(journal.contains("caf\\\\xe9") && !journal.contains('\u{fffd}'), "{journal}");
}

#[test]
fn programs_scripts_and_their_interpreters_need_no_name_in_utf_8() {
    let place = Place::new();
    fs::copy("/bin/echo", place.work().join(os(b"ech\xf6"))).expect("a program can be copied");
    let script = [b"#!".as_slice(), place.work().as_os_str().as_bytes(), b"/ech\xf6 by\n"].concat();
    fs::write(place.work().join(os(b"s\xf7")), script).expect("a file can be written");
    fs::set_permissions(place.work().join(os(b"s\xf7")), fs::Permissions::from_mode(0o755))
        .expect("it is ours");
    let run = |word: &[u8], line: bool| {
        let mut command = place.run(&[], &[]);
        if line {
            command.args(["sh", "-c"]);
        }
        output({
            command.arg(os(word));
            command
        })
    };
    for (word, expected) in [(&b"./ech\xf6"[..], &b"\n"[..]), (b"./s\xf7", b"by ./s\xf7\n")] {
        for line in [false, true] {
            let ran = run(word, line);
            assert_eq!(ran.stdout, expected, "{line}: {}", shown(&ran));
        }
    }
}

#[test]
fn a_rule_meets_what_is_no_utf_8_and_names_it_by_numbers() {
    let place = Place::new();
    let rule = "[[rule]]\nid = \"no-e\"\ndecision = \"deny\"\nargv = [\"echo\", \"secret*\"]\n";
    fs::write(place.policies().join("no.toml"), rule).expect("a file can be written");
    let denied = |line: bool| {
        let mut command = place.run(&[], &[]);
        match line {
            true => command.args(["sh", "-c"]).arg(os(b"/bin/echo secret\xff")),
            false => command.arg("echo").arg(os(b"secret\xff")),
        };
        output(command)
    };
    for line in [false, true] {
        let refused = denied(line);
        assert_ne!(code(&refused), 0, "{}", shown(&refused));
        assert!(stderr(&refused).contains("secret\\xff"), "{}", shown(&refused));
        assert_eq!(stdout(&refused), "");
    }
}

#[test]
fn as_many_arguments_as_the_kernel_takes_are_taken() {
    let place = Place::new();
    let run = |count: usize| {
        output({
            let mut command = place.run(&[], &["sh", "-c", "echo $#", "sh"]);
            command.args((0..count).map(|number| number.to_string()));
            command
        })
    };
    let many = run(20_000);
    assert_eq!(stdout(&many), "20000\n", "{}", shown(&many));
    let most = run(130_000);
    assert_eq!(stdout(&most), "130000\n", "{}", shown(&most));
}
