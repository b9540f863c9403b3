//! Scripts: what interprets them is judged as what it is, at a request and in the tree, and honest ones run.

use std::{
    fs,
    os::unix::{ffi::OsStringExt, fs::PermissionsExt},
    path::Path,
    process::Command,
    sync::Arc,
};

use crate::{
    gate::told::{RULE, gateway, records, without_gate},
    support::{Attack, Gateway, Session, add_rule, code, in_session},
};

const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

fn place(directory: &Path, name: &str, text: impl AsRef<[u8]>) {
    // Not open for writing in a child of another test.
    let aside = directory.join(".aside");
    fs::write(&aside, text).expect("a file can be made");
    fs::set_permissions(&aside, fs::Permissions::from_mode(0o755)).expect("it can be executable");
    fs::rename(aside, directory.join(name)).expect("it can be renamed");
}

/// Runs a script outside, in a directory of its own, and says whether it has made a file.
fn works_outside(name: &str, text: &str, command: &[&str], made: &str) -> bool {
    let directory = tempfile::tempdir().expect("a directory can be made");
    place(directory.path(), name, text);
    let (program, arguments) = command.split_first().expect("there is a program");
    let status = Command::new(program).args(arguments).current_dir(directory.path()).status();
    status.expect("it can be started");
    directory.path().join(made).exists()
}

fn denying(policy: &mut toml::Table) {
    add_rule(policy, &format!("id = '{RULE}'\ndecision = 'deny'\nargv = ['touch', '**']"));
}

fn denying_without_gate(policy: &mut toml::Table) {
    denying(policy);
    without_gate(policy);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_of_a_request_does_not_run_the_program_that_a_rule_denies() {
    let mut lines = vec!["#!/usr/bin/touch".to_owned(), "#!/usr/bin/env -S touch".to_owned()];
    if Path::new(LOADER).exists() {
        lines.push(format!("#!{LOADER} /usr/bin/touch"));
    }
    if Path::new("/usr/bin/busybox").exists() {
        lines.push("#!/usr/bin/busybox touch".to_owned());
    }
    for policy in [denying, denying_without_gate] {
        let gateway = Gateway::with_policy(policy);
        in_session(&gateway, async |session| {
            for line in &lines {
                assert!(works_outside("s", line, &["./s", "made"], "made"), "the attack works: {line}");
                place(&session.workspace, "s", format!("{line}\n"));
                let refusal = session.command("./s").args(["made"]).refusal().await;
                let rule = refusal.metadata.get("rule").map(String::as_str);
                assert_eq!((refusal.reason.as_str(), rule), ("POLICY_DENIED", Some(RULE)), "{line}");
                let refusal = session.command("true && ./s made").shell_line().refusal().await;
                assert_eq!(refusal.reason, "POLICY_DENIED", "{line}");
                assert!(!session.workspace.join("made").exists(), "{line}");
            }
            let decisions = records(&gateway, "decision");
            let commands = decisions.first().map(|decision| decision["judged"]["commands"].to_string());
            assert!(commands.is_some_and(|commands| commands.contains("/usr/bin/touch ")), "{decisions:?}");
            // What interprets honest ones needs no rule.
            place(&session.workspace, "s", "#!/bin/sh\necho ran $1\n");
            let done = session.command("./s").args(["touch"]).finish().await;
            assert_eq!((code(&done.outcome), done.text().as_str()), (0, "ran touch\n"));
        })
        .await;
        gateway.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_that_is_named_like_a_denied_argument_is_that_argument() {
    let by_name = ["sh", "-c", "PATH=; published"];
    assert!(works_outside("published", "#!/usr/bin/touch\n", &by_name, "published"), "it is there at least");
    let gateway = gateway();
    in_session(&gateway, async |session| {
        // `touch published`, by the kernel's argument vector.
        place(&session.workspace, "published", "#!/usr/bin/touch\n");
        let done = session.command("sh").args(["-c", "PATH=; published other; echo $?"]).finish().await;
        assert!(!session.workspace.join("other").exists(), "{}", done.text());
        let [denial] = &done.outcome.exec_denials[..] else { panic!("{:?}", done.outcome) };
        assert_eq!(denial.rule, RULE);
        // By its path the rule is not about it, and it runs.
        let done = session.command("sh").args(["-c", "./published other; echo $?"]).finish().await;
        assert_eq!(done.text(), "0\n");
        assert!(session.workspace.join("other").exists());
    })
    .await;
    gateway.stop();
}

/// Says what each script prints, or the error; where the name is its first line's length and kind.
fn results(output: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(output).lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_lines_of_any_length_and_bytes_run_as_outside() {
    let mut scripts: Vec<(String, Vec<u8>)> = Vec::new();
    for length in 250..=262 {
        let with = |byte: u8| {
            let mut line = b"#!/bin/echo ".to_vec();
            line.resize(length, byte);
            line
        };
        let path = [b"#!".to_vec(), vec![b' '; length - 11], b"/bin/echo".to_vec()].concat();
        for (kind, line) in [("long", with(b'a')), ("blank", with(b' ')), ("path", path)] {
            scripts.push((format!("{kind}{length}"), [line.as_slice(), b"\n"].concat()));
            scripts.push((format!("{kind}{length}-more"), [line.as_slice(), b" \nexit 1\n"].concat()));
        }
        let cut = [with(b'a'), "\u{e9}\u{e9}\n".as_bytes().to_vec()].concat();
        scripts.push((format!("cut{length}"), cut));
    }
    scripts.push(("latin".to_owned(), b"#!/bin/echo caf\xe9\n".to_vec()));
    scripts.push(("bytes".to_owned(), b"#!/bin/echo \xff\xfe\n".to_vec()));
    // An interpreter of such a name.
    let name = std::ffi::OsString::from_vec(b"caf\xe9".to_vec());
    scripts.push(("named".to_owned(), b"#!./caf\xe9 x\n".to_vec()));
    let prepare = |directory: &Path| {
        scripts.iter().for_each(|(name, text)| place(directory, name, text));
        fs::copy("/bin/echo", directory.join(&name)).expect("a program can be copied");
    };
    // A shell would read by itself what the kernel does not take for a script.
    let each =
        "for s in long* blank* path* cut* latin bytes named; do env ./$s end 2>&1; echo \"$s $?\"; done";
    let outside = tempfile::tempdir().expect("a directory can be made");
    prepare(outside.path());
    let plain =
        Command::new("sh").args(["-c", each]).current_dir(outside.path()).output().expect("it starts");
    let gateway = gateway();
    in_session(&gateway, async |session| {
        prepare(&session.workspace);
        let done = session.command("sh").args(["-c", each]).retain(1 << 20).finish().await;
        assert_eq!(results(&done.output), results(&plain.stdout));
        assert_eq!(done.outcome.exec_denials, []);
    })
    .await;
    gateway.stop();
    // As requests. A rule that asks would ask about the interpreter whose name is no text.
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        prepare(&session.workspace);
        for (name, _) in &scripts {
            let plain = Command::new(format!("./{name}")).arg("end").current_dir(outside.path()).output();
            let Ok(plain) = plain else { continue };
            let done = session.command(&format!("./{name}")).args(["end"]).finish().await;
            assert_eq!(results(&done.output), results(&plain.stdout), "{name}");
        }
    })
    .await;
    gateway.stop();
}

fn about_production(policy: &mut toml::Table) {
    let rule = format!(
        "id = '{RULE}'\ndecision = 'deny'\nargv = ['./deploy', '**']\nwhen.env = {{ TARGET = 'prod' }}"
    );
    add_rule(policy, &rule);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_variable_that_is_there_twice_does_not_hide_its_value_from_a_rule() {
    let deploy = "#!/bin/bash\necho to $TARGET\n";
    let outside = tempfile::tempdir().expect("a directory can be made");
    place(outside.path(), "deploy", deploy);
    let attack = Attack::compiled("doubled").placed_in(outside.path());
    let arguments = ["TARGET=dev", "TARGET=prod", "./deploy"];
    let plain = Command::new(attack).args(arguments).current_dir(outside.path()).output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&plain.stdout), "to prod\n", "the attack works");
    let gateway: Arc<Gateway> = Gateway::with_policy(about_production);
    let session = Session::open(&gateway).await;
    place(&session.workspace, "deploy", deploy);
    for (entries, is_denied) in [
        (["TARGET=dev", "TARGET=prod"], true),
        (["TARGET=prod", "TARGET=dev"], true),
        (["TARGET", "TARGET=prod"], true),
        (["TARGET=dev", "TARGET=dev"], false),
        (["OTHER=prod", "OTHER=x"], false),
    ] {
        let done = session.attack("doubled").args(entries).args(["./deploy"]).finish().await;
        assert_eq!(done.text().contains("to"), !is_denied, "{entries:?}: {}", done.text());
        let rules: Vec<&str> = done.outcome.exec_denials.iter().map(|denial| denial.rule.as_str()).collect();
        assert_eq!(rules, if is_denied { vec![RULE] } else { vec![] }, "{entries:?}");
    }
    session.close().await;
    gateway.stop();
}
