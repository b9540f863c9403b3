//! The caller's umask holds for what its commands make, by every front end that starts commands as the caller's own.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use crate::cli::{
    fixture::{Place, code, shown, stdout},
    serving::Gateway,
};

/// Makes a file and a directory that have what the umask leaves.
const MAKE: &str = "umask; rm -rf made dir; : > made; mkdir dir";

/// A process with this umask that becomes the command.
fn with_umask(umask: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "umask \"$0\"; exec \"$@\"", umask])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.current_dir(command.get_current_dir().expect("it is said")).stdin(Stdio::null());
    shell
}

fn modes(place: &Place) -> (u32, u32) {
    let mode = |name: &str| {
        fs::metadata(place.work().join(name))
            .unwrap_or_else(|error| panic!("{name}: {error}"))
            .permissions()
            .mode()
            & 0o7777
    };
    (mode("made"), mode("dir"))
}

fn has_made(place: &Place, front_end: &str, umask: &str, command: &Command) {
    let done = with_umask(umask, command).output().expect("provost starts");
    assert_eq!(code(&done), 0, "{front_end}: {}", shown(&done));
    let bits = u32::from_str_radix(umask, 8).expect("octal digits");
    assert_eq!(modes(place), (0o666 & !bits, 0o777 & !bits), "{front_end} with {umask}: {}", shown(&done));
}

#[test]
fn what_a_command_makes_has_the_callers_umask_by_each_way_to_start_it() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let by_gateway = |arguments: &[&str]| {
        let mut command = place.provost();
        command.args(arguments).env("PROVOST_GATEWAY", gateway.address());
        command
    };
    let output = |arguments: &[&str]| by_gateway(arguments).output().expect("provost starts");
    assert_eq!(code(&output(&["run", "-d", "--session", "held", "--", "true"])), 0);
    let listed = stdout(&output(&["ps", "-o", "json"]));
    let held =
        listed.split('"').find(|word| word.starts_with("sess_")).expect("a session is listed").to_owned();
    for umask in ["0077", "0027", "0002", "0000", "0177", "0777"] {
        has_made(&place, "run, embedded", umask, &place.run(&[], &["sh", "-c", MAKE]));
        has_made(&place, "run", umask, &by_gateway(&["run", "--", "sh", "-c", MAKE]));
        has_made(
            &place,
            "run in a session",
            umask,
            &by_gateway(&["run", "--session", "held", "--", "sh", "-c", MAKE]),
        );
        has_made(&place, "exec", umask, &by_gateway(&["exec", &held, "--", "sh", "-c", MAKE]));
        has_made(&place, "a kept shell", umask, &by_gateway(&["shell", "--line", MAKE]));
        let mut shell = Command::new(env!("CARGO_BIN_EXE_provost-shell"));
        shell.args(["-c", MAKE]).current_dir(place.work()).env("PROVOST_GATEWAY", gateway.address());
        has_made(&place, "provost-shell", umask, shell.env("PROVOST_SHELL_ROOT", place.work()));
    }
    gateway.stop();
}

#[test]
fn a_tools_command_has_the_umask_of_the_server_that_offers_the_tool() {
    let place = Place::new();
    let mut mcp = place.provost();
    mcp.args(["mcp", "--policies"]).arg(place.policies()).arg("--root").arg(place.work());
    let mut server = with_umask("0077", &mcp)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("provost starts");
    let call = serde_json::json!({
        "jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": { "name": "run_command", "arguments": { "command": MAKE } },
    });
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
    let begun = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let mut input = server.stdin.take().expect("it is a pipe");
    writeln!(input, "{hello}\n{begun}\n{call}").expect("the server reads");
    let mut answers =
        std::io::BufRead::lines(std::io::BufReader::new(server.stdout.take().expect("it is a pipe")));
    let answer = answers.find(|line| line.as_ref().is_ok_and(|line| line.contains("\"id\":2")));
    assert_eq!(modes(&place), (0o600, 0o700), "{answer:?}");
    drop(input);
    server.wait().expect("our own child can be waited for");
}

#[test]
fn a_profile_can_fix_the_umask() {
    let place = Place::new();
    let more = "[profile.fixed]\nextends = \"workspace\"\nfilesystem = { umask = \"0027\" }\n";
    fs::write(place.policies().join("fixed.toml"), more).expect("a file can be written");
    let run = place.run(&["--profile", "fixed"], &["sh", "-c", MAKE]);
    let done = with_umask("0002", &run).output().expect("provost starts");
    assert_eq!((stdout(&done).as_str(), modes(&place)), ("0027\n", (0o640, 0o750)), "{}", shown(&done));
    let wrong = more.replace("0027", "1027");
    fs::write(place.policies().join("fixed.toml"), wrong).expect("a file can be written");
    let done = place.output(&["--profile", "fixed"], &["true"]);
    assert!(shown(&done).contains("\"1027\" is no umask in octal digits"), "{}", shown(&done));
}
