//! Files that the command line writes where commands write, too: a link that a command has left leads nowhere.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
    process::Stdio,
};

use crate::{
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
