//! Files that the command line writes where commands write, too: a link that a command has left leads nowhere.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
    process::Stdio,
};

use crate::cli::{
    fixture::{Place, Running, code, eventually, shown, stderr, stdout},
    serving::Gateway,
};

/// What a later shell of the person would run.
fn startup_file(place: &Place) -> PathBuf {
    let file = place.path().join("bashrc");
    fs::write(&file, "# mine\n").expect("it can be made");
    file
}

#[test]
fn what_is_written_follows_no_link_of_a_command() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let startup = startup_file(&place);
    // A command leaves the links.
    fs::create_dir(place.path().join("outside")).expect("it can be made");
    let leave = format!(
        "ln -s '{}' report; ln -s '{}' elsewhere; ln -s '{}/s' sock",
        startup.display(),
        place.path().join("outside").display(),
        place.path().join("outside").display(),
    );
    let left = place.output(&[], &["sh", "-c", &leave]);
    assert_eq!(code(&left), 0, "{}", shown(&left));
    assert_eq!(fs::read_link(place.work().join("report")).expect("a link"), startup);

    for report in ["report", "./report", "elsewhere/report"] {
        let output = place.output(&["--report", report], &["sh", "-c", "echo ran"]);
        assert_eq!((code(&output), stdout(&output).as_str()), (125, ""), "{report}: {}", shown(&output));
        assert!(stderr(&output).contains("link"), "it says why: {}", shown(&output));
    }
    let address = gateway.address();
    let refused: [&[&str]; 6] = [
        &["mcp", "--log", "report", "--gateway", &address],
        &["exec-server", "--log", "elsewhere/log", "--gateway", &address],
        &["acp", "--log", "report", "--gateway", &address, "--", "true"],
        &["man", "elsewhere"],
        &["policy", "init", "elsewhere/policies"],
        &["init", "--to", "elsewhere/policies", "elsewhere"],
    ];
    for arguments in refused {
        let output = place.provost().args(arguments).output().expect("provost starts");
        assert_ne!(code(&output), 0, "{arguments:?}: {}", shown(&output));
    }
    let mut start = place.provost();
    start.args(["run", "-d", "--gateway", &address, "--session", "s", "--", "sleep", "600"]);
    let started = start.output().expect("provost starts");
    let terminal = stdout(&started).trim().to_owned();
    for listen in ["unix:sock", "unix:elsewhere/s"] {
        let forward = ["forward", "--gateway", &address, "--listen", listen, &terminal, "80"];
        let output = place.provost().args(forward).output().expect("provost starts");
        assert_eq!(code(&output), 125, "{listen}: {}", shown(&output));
    }
    assert_eq!(fs::read_to_string(&startup).expect("it is there"), "# mine\n");
    assert_eq!(fs::read_dir(place.path().join("outside")).expect("it is there").count(), 0);

    let mut forward = place.provost();
    forward.args(["forward", "--gateway", &address, "--listen", "unix:own", &terminal, "80"]);
    let mut forwarding = Running::start(forward.stdout(Stdio::piped()));
    assert!(forwarding.line().starts_with("unix:"));
    let socket = place.work().join("own");
    assert_eq!(fs::symlink_metadata(&socket).expect("it is there").permissions().mode() & 0o777, 0o600);
    forwarding.signal(nix::sys::signal::Signal::SIGTERM);
    forwarding.end();
    eventually("the socket is gone", || !socket.exists());
    gateway.stop();
}

#[test]
fn a_report_takes_the_place_of_a_file_and_changes_none() {
    let place = Place::new();
    let (file, other) = (place.work().join("report"), place.path().join("other"));
    fs::write(&file, "old").expect("it can be made");
    fs::hard_link(&file, &other).expect("it can be linked");
    let output = place.output(&["--report", "report"], &["true"]);
    assert_eq!(code(&output), 0, "{}", shown(&output));
    assert!(fs::read_to_string(&file).expect("it is there").starts_with('{'));
    assert_eq!(fs::read_to_string(&other).expect("it is there"), "old");
    // Links above, which no command can have made, are followed, and so are names of own descriptors.
    symlink(place.work(), place.path().join("link")).expect("a link can be made");
    let through = place
        .provost()
        .args(["run", "--policies"])
        .arg(place.policies())
        .args(["--report", "report", "--", "true"])
        .current_dir(place.path().join("link"))
        .output()
        .expect("provost starts");
    assert_eq!(code(&through), 0, "{}", shown(&through));
    let output = place.output(&["--report", "/dev/null"], &["true"]);
    assert_eq!(code(&output), 0, "{}", shown(&output));
}

/// What a command can do to the file of its report, and whether the report is where it was asked for all the same.
const FORGERIES: [(&str, bool); 6] = [
    ("rm report; echo '{\"forged\":0}' > report", true),
    ("echo '{\"forged\":0}' > report", true),
    ("echo '{\"forged\":0}' > f; mv f report", true),
    ("rm report; ln -s ../startup report", true),
    ("rm report; mkdir report", false),
    ("cd ..; mv d e; mkdir d; echo '{\"forged\":0}' > d/report", false),
];

#[test]
fn a_report_is_this_programs_whatever_a_command_has_put_there() {
    for (forgery, is_written) in FORGERIES {
        for status in [0, 7] {
            let place = Place::new();
            let startup = place.work().join("startup");
            fs::create_dir(place.work().join("d")).expect("it can be made");
            fs::write(&startup, "# mine\n").expect("it can be made");
            let script = format!("cd d; {forgery}; exit {status}");
            let output = place.output(&["--report", "d/report"], &["sh", "-c", &script]);
            let expected = if is_written || status != 0 { status } else { 125 };
            assert_eq!(code(&output), expected, "{script}: {}", shown(&output));
            assert_eq!(fs::read_to_string(&startup).expect("it is there"), "# mine\n", "{script}");
            let report = place.work().join("d/report");
            if is_written {
                let text = fs::read_to_string(&report).expect("it is there");
                let report: serde_json::Value = serde_json::from_str(&text).expect("a report");
                assert_eq!(report["exit_status"], status, "{script}: {text}");
                assert!(report["outcome"].is_object(), "{script}: {text}");
            } else {
                assert!(stderr(&output).contains("cannot write the report"), "{script}: {}", shown(&output));
            }
            // Nothing unfinished is left.
            let names = |directory: PathBuf| fs::read_dir(directory).into_iter().flatten().count();
            assert!(names(place.work().join("d")) <= 2 && names(place.work().join("e")) <= 1, "{script}");
        }
    }
}

#[test]
fn a_recording_that_a_command_changes_is_not_taken_for_one() {
    for (forgery, is_recorded) in [
        ("true", true),
        ("rm cast; echo forged > cast", false),
        ("printf forged | dd of=cast conv=notrunc 2>/dev/null", false),
    ] {
        let place = Place::new();
        let gateway = Gateway::start(&place);
        let address = gateway.address();
        let script = format!("until test -s cast; do sleep 0.05; done; sleep 0.2; {forgery}; echo done");
        let mut start = place.provost();
        start.args(["run", "-dt", "--gateway", &address, "--session", "s", "--", "sh", "-c", &script]);
        let started = start.output().expect("provost starts");
        let terminal = stdout(&started).trim().to_owned();
        assert!(terminal.starts_with("term_"), "{}", shown(&started));
        let recorded = place
            .provost()
            .args(["logs", "--gateway", &address, "-f", "--cast", "cast", &terminal])
            .output()
            .expect("provost starts");
        let expected = if is_recorded { 0 } else { 125 };
        assert_eq!(code(&recorded), expected, "{forgery}: {}", shown(&recorded));
        let says = stderr(&recorded).contains("cannot write the recording cast");
        assert_eq!(says, !is_recorded, "{forgery}: {}", shown(&recorded));
        gateway.stop();
    }
}
