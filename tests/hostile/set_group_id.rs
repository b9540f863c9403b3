//! The set-group-id bit: of directories it is set as outside, of files by no call and no name, and the set-user-id bit of neither.

use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::Path,
    process::Command,
    time::Duration,
};

use crate::support::{Attack, Gateway, Options, Session, is_root, run_outside, skip};

const OWNER: u32 = 54_383;
/// A group that the owner is not in.
const FOREIGN_GROUP: u32 = 54_384;

/// Milliseconds.
const RACE: &str = "700";

fn with_gate(policy: &mut toml::Table) {
    policy["profile"]["workspace"]["limits"]["requirement"] = "prefer".into();
}

fn without_gate(policy: &mut toml::Table) {
    with_gate(policy);
    policy["profile"]["workspace"]["gate"]["enabled"] = false.into();
}

/// A line of the attack: what is changed, the mode, by which way, the error, and the bits that are there then.
fn parsed(line: &str) -> [&str; 5] {
    let fields: Vec<&str> = line.split(' ').collect();
    fields.try_into().unwrap_or_else(|_| panic!("no such line: {line}"))
}

/// What the attack says outside.
fn outside() -> String {
    let place = tempfile::tempdir().expect("a directory can be made");
    let place = place.path().display().to_string();
    let attack = Attack::compiled("set_group_id");
    let (_, raced) = run_outside(&attack, &["race", &place, "300"]);
    assert!(raced.ends_with(" file 2000\n"), "a file gets the bit outside: {raced}");
    let (_, said) = run_outside(&attack, &["each", &place]);
    let works = |line: &&str| parsed(line)[4] == parsed(line)[1].replace("755", "000");
    let count = said.lines().filter(works).count();
    assert!(count > 250, "most of it works outside, and only {count} did:\n{said}");
    said
}

fn must_be_as_outside_for_directories_alone(inside: &str, outside: &str) {
    assert_eq!(inside.lines().count(), outside.lines().count(), "{inside}");
    for (inside, outside) in inside.lines().zip(outside.lines()) {
        let ([object, mode, way, error, bits], [.., outside_error, _]) = (parsed(inside), parsed(outside));
        if matches!(object, "d" | "to_d") && mode == "2755" {
            assert_eq!(inside, outside);
            continue;
        }
        assert_eq!(bits, "0", "{object} {mode} {way} worked");
        // What fails outside may fail alike before anybody looks at the bits.
        let is_refused = error == "EPERM" || (error == outside_error && error != "OK");
        assert!(is_refused, "{object} {mode} {way}: {error}, and outside {outside_error}");
    }
}

fn bits_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("it is there").mode() & 0o6000
}

/// The kernel takes the bit away from a directory whose group the caller is not in, and says nothing. Where it has no id for the group it changes
/// no mode at all.
async fn must_ask_for_the_group(session: &Session) {
    let (own, foreign) = (session.workspace.join("own"), session.workspace.join("foreign"));
    let script = "chmod 2775 own; echo $?; chmod 775 foreign; echo $?; chmod 2775 foreign; echo $?";
    let remake = || {
        for (place, group) in [(&own, OWNER), (&foreign, FOREIGN_GROUP)] {
            let _ = fs::remove_dir(place);
            fs::create_dir(place).expect("a directory can be made");
            chown(place, Some(OWNER), Some(group)).expect("root may");
        }
    };
    remake();
    let id = OWNER.to_string();
    let mut outside = Command::new("setpriv");
    outside.args(["--reuid", &id, "--regid", &id, "--clear-groups", "sh", "-c", script]);
    let output = outside.current_dir(&session.workspace).output().expect("setpriv is there");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n0\n0\n");
    assert_eq!((bits_of(&own), bits_of(&foreign)), (0o2000, 0), "outside");
    remake();
    let said = session.sh(&format!("exec 2>/dev/null; {script}")).finish().await.text();
    assert!(["0\n0\n0\n", "0\n1\n1\n"].contains(&said.as_str()), "{said}");
    assert_eq!((bits_of(&own), bits_of(&foreign)), (0o2000, 0), "inside");
}

async fn must_hold_in(options: Options, outside: &str) {
    let gateway = Gateway::start_with(options);
    let session = Session::open_as(&gateway, OWNER).await;
    let at = session.workspace.display().to_string();
    let attack = async |words: &[&str]| {
        let command = session.attack("set_group_id").args([words[0], &at]).args(words[1..].iter().copied());
        command.retain(1 << 20).finish().await.text()
    };
    must_be_as_outside_for_directories_alone(&attack(&["each"]).await, outside);
    let raced = attack(&["race", RACE]).await;
    let changed = raced.strip_prefix("changed ").and_then(|rest| rest.strip_suffix(" file 0\n"));
    assert!(changed.is_some_and(|changed| changed != "0"), "{raced}");
    for (one, other) in [("x0", "x1"), ("x1", "x0")] {
        if session.workspace.join(one).is_file() {
            assert_eq!(bits_of(&session.workspace.join(one)), 0, "the file, on the host");
            assert_eq!(bits_of(&session.workspace.join(other)), 0o2000, "the directory, on the host");
        }
    }
    must_ask_for_the_group(&session).await;
    // Many at once, and many that are killed while they wait.
    let before = gateway.footprint();
    assert_eq!(attack(&["many", "40", "10"]).await, "set 400\n");
    for _ in 0..3 {
        for entry in fs::read_dir(&session.workspace).expect("the workspace").flatten() {
            if entry.file_name().to_string_lossy().starts_with("many") {
                fs::remove_dir(entry.path()).expect("it is empty");
            }
        }
        let endless = session.attack("set_group_id").args(["many", &at, "40", "0"]).create().await;
        endless.until("begun").await;
        endless.kill(Some(Duration::ZERO)).await;
        endless.wait().await;
        endless.release().await;
    }
    gateway.comes_back_to(&before).await;
    assert_eq!(session.sh("mkdir last; chmod g+s last; stat -c %a last").finish().await.text(), "2755\n");
    session.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_file_becomes_set_group_id_and_directories_do() {
    if !is_root() {
        return skip("another principal can only be had as root");
    }
    let outside = outside();
    for policy in [with_gate, without_gate] {
        must_hold_in(Options { policy: Some(policy), ..Options::default() }, &outside).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_an_ordinary_users_gateway_no_file_becomes_set_group_id_and_directories_do() {
    if !is_root() {
        return skip("only root can start a gateway as another user");
    }
    let outside = outside();
    for policy in [with_gate, without_gate] {
        for subordinate_ids in [false, true] {
            let (policy, user) = (Some(policy as fn(&mut toml::Table)), Some(OWNER));
            must_hold_in(Options { policy, user, subordinate_ids, ..Options::default() }, &outside).await;
        }
    }
}
