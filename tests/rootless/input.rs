//! What an ordinary user's command reads of stdin, and that it reaches nothing else by it: it has the user's id, and so the user's rights to
//! what stdin is.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::{
    rootless::user::{User, shown, text},
    support::stdin_scripts::SCRIPTS,
};

/// Writes to what stdin is, and lets everybody change it.
const ATTACK: &str = "echo 'echo injected' >&0; echo 'echo injected' > /proc/self/fd/0; \
     echo 'echo injected' > /dev/stdin; chmod 666 /proc/self/fd/0; true";

const AWAIT_STDIN: &str = "import select; select.select([0],[],[])";

fn bash(user: &User, script: &str) -> std::process::Output {
    let run = format!("run() {{ '{}' run -- \"$@\"; }}; export -f run", user.provost().display());
    // What scripts make next to the workspace.
    let script = format!("{run}\nmkdir -p ../kept/w; cd ../kept/w\n{script}");
    user.outside(&["bash", "-c", &script])
}

#[test]
fn nothing_is_taken_of_stdin_that_the_command_does_not_read() {
    let Some(user) = User::find() else { return };
    for (what, script, expected) in SCRIPTS {
        let output = bash(&user, script);
        assert_eq!(text(&output.stdout), expected, "{what}: {}", shown(&output));
    }
}

/// A command that had the pipe itself would write the next lines of the script.
#[test]
fn a_command_writes_nothing_into_the_script_that_it_is_a_line_of() {
    let Some(user) = User::find() else { return };
    fs::write(user.work().join("attack"), ATTACK).expect("it can be made");
    let script = |line: &str| format!("printf '{line}\\necho end\\n' | bash");
    let outside = user.outside(&["bash", "-c", &script("sh attack")]);
    assert!(text(&outside.stdout).contains("injected"), "the attack works outside: {}", shown(&outside));
    fs::write(user.work().join("run"), format!("'{}' run -- \"$@\"", user.provost().display()))
        .expect("it can be made");
    // As soon as it can, and when the next line is there to be read, which fills the command's pipe.
    fs::write(user.work().join("later"), format!("python3 -c '{AWAIT_STDIN}'\n{ATTACK}"))
        .expect("it can be made");
    for attack in ["attack", "later"] {
        let inside = user.outside(&["bash", "-c", &script(&format!("sh run sh {attack}"))]);
        assert_eq!(text(&inside.stdout), "end\n", "{attack}: {}", shown(&inside));
    }
}

#[test]
fn a_file_that_is_read_is_not_changed() {
    let Some(user) = User::find() else { return };
    fs::write(user.work().join("attack"), ATTACK).expect("it can be made");
    let file = user.kept().join("file");
    let attacked = |line: &str| {
        let make = format!("echo kept > '{0}'; chmod 600 '{0}'; {line} < '{0}'", file.display());
        let output = user.outside(&["bash", "-c", &make]);
        let mode = fs::metadata(&file).expect("it is there").permissions().mode() & 0o777;
        (fs::read_to_string(&file).expect("it is there"), mode, shown(&output))
    };
    let (content, mode, output) = attacked("sh attack");
    assert!(content.contains("injected") && mode == 0o666, "the attack works outside: {output}");
    let run = format!("'{}' run -- sh attack", user.provost().display());
    let (content, mode, output) = attacked(&run);
    assert_eq!((content.as_str(), mode), ("kept\n", 0o600), "{output}");
}
