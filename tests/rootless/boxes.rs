//! Small privileges: in containers, user namespaces and on file systems of all kinds `provost run` starts, or names in one line what is
//! missing; and `provost doctor` says the same.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, fs::chown},
    path::Path,
    process::{Command, Output, Stdio},
};

use crate::{
    rootless::user::{NOBODYS_ID, shown, text},
    support::copy_provost,
};

/// Whose workspace it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Root,
    Other,
}

/// What a box is.
struct Kind {
    name: &'static str,
    owner: Owner,
    /// A shell's lines that end in executing `"$@"`, as root in a mount namespace of their own. `$W` is the workspace, `$P` its parent.
    script: &'static str,
    /// `None`: commands run and write in the workspace. Else what the one line says.
    says: Option<&'static str>,
}

const fn runs(name: &'static str, owner: Owner, script: &'static str) -> Kind {
    Kind { name, owner, script, says: None }
}

const fn refuses(name: &'static str, owner: Owner, script: &'static str, says: &'static str) -> Kind {
    Kind { name, owner, script, says: Some(says) }
}

const WITHOUT_SETGID: &str = "exec setpriv --bounding-set=-setgid --inh-caps=-setgid \"$@\"";
const WITHOUT_SETUID: &str = "exec setpriv --bounding-set=-setuid --inh-caps=-setuid \"$@\"";
const WITHOUT_ALL: &str = "exec setpriv --bounding-set=-all --inh-caps=-all \"$@\"";
const ROOT_OF_A_NAMESPACE: &str = "exec unshare --user --map-root-user \"$@\"";
const READ_ONLY_RUN_AND_TMP: &str =
    "mount -t tmpfs -o ro none /run; mount -t tmpfs -o ro none /tmp; exec \"$@\"";
const ON_RAMFS: &str = "mount -t ramfs none $W; chown --reference=$P/like $W; cd $W; exec \"$@\"";
const ON_OVERLAY: &str = "mkdir -p $P/l; mount -t tmpfs none $P/l; mkdir $P/l/u $P/l/k $P/l/l; chown --reference=$P/like $P/l/u $P/l/l
    mount -t overlay -o lowerdir=$P/l/l,upperdir=$P/l/u,workdir=$P/l/k none $W; cd $W; exec \"$@\"";
const MASKED_PROC: &str = "mount -t tmpfs -o ro none /proc/acpi || mount -t tmpfs -o ro none /proc/irq
    mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys; exec \"$@\"";
const MASKED_PROC_IN_A_NAMESPACE: &str = "mount -t tmpfs -o ro none /proc/acpi || mount -t tmpfs -o ro none /proc/irq
    mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys; exec unshare --user --map-root-user \"$@\"";
const ORDINARY: &str = "exec setpriv --reuid=59999 --regid=59999 --clear-groups \"$@\"";
const ORDINARY_OF_ROOTS_GROUP: &str = "exec setpriv --reuid=59999 --regid=0 --clear-groups \"$@\"";
const NO_CGROUPS: &str = "umount -l /sys/fs/cgroup; exec \"$@\"";
const NO_DEVPTS: &str = "umount -l /dev/pts; exec \"$@\"";
const BUBBLEWRAP: &str =
    "exec bwrap --bind / / --dev /dev --proc /proc --unshare-user --unshare-pid --cap-drop ALL \"$@\"";
const BUBBLEWRAP_OF_ROOT: &str = "exec bwrap --bind / / --dev /dev --proc /proc \"$@\"";
const LISTENED_TO: &str = "exec python3 -c '
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
number = {\"x86_64\": 317, \"aarch64\": 277}[os.uname().machine]
program = struct.pack(\"HBBI\", 0x06, 0, 0, 0x7fff0000)
buffer = ctypes.create_string_buffer(program, len(program))
header = ctypes.create_string_buffer(struct.pack(\"HxxxxxxP\", 1, ctypes.addressof(buffer)), 16)
libc.prctl(38, 1, 0, 0, 0)
listener = libc.syscall(number, 1, 8, header)
assert listener >= 0, ctypes.get_errno()
os.set_inheritable(listener, True)
os.execvp(sys.argv[1], sys.argv[1:])' \"$@\"";

const BOXES: [Kind; 24] = [
    runs("root", Owner::Root, "exec \"$@\""),
    runs("root, for another user", Owner::Other, "exec \"$@\""),
    runs("root without CAP_SETGID", Owner::Root, WITHOUT_SETGID),
    refuses("root without CAP_SETGID, for another user", Owner::Other, WITHOUT_SETGID, "CAP_SETGID"),
    runs("root without CAP_SETUID", Owner::Root, WITHOUT_SETUID),
    refuses("root without CAP_SETUID, for another user", Owner::Other, WITHOUT_SETUID, "CAP_SETUID"),
    refuses("root without capabilities", Owner::Root, WITHOUT_ALL, "CAP_SETFCAP"),
    refuses("root without capabilities, for another user", Owner::Other, WITHOUT_ALL, "CAP_SYS_ADMIN"),
    runs("root of a user namespace", Owner::Root, ROOT_OF_A_NAMESPACE),
    refuses(
        "root of a user namespace, for another user",
        Owner::Other,
        ROOT_OF_A_NAMESPACE,
        "belongs to uid 65534",
    ),
    refuses("read-only /run and /tmp", Owner::Root, READ_ONLY_RUN_AND_TMP, "Read-only file system"),
    runs("ramfs", Owner::Root, ON_RAMFS),
    runs("ramfs, of another user", Owner::Other, ON_RAMFS),
    runs("overlay", Owner::Root, ON_OVERLAY),
    runs("overlay, of another user", Owner::Other, ON_OVERLAY),
    refuses("a masked /proc", Owner::Root, MASKED_PROC, "systempaths=unconfined"),
    refuses(
        "a masked /proc in a user namespace",
        Owner::Root,
        MASKED_PROC_IN_A_NAMESPACE,
        "systempaths=unconfined",
    ),
    runs("an ordinary user", Owner::Other, ORDINARY),
    runs("an ordinary user of root's group", Owner::Other, ORDINARY_OF_ROOTS_GROUP),
    runs("no cgroups", Owner::Root, NO_CGROUPS),
    runs("no devpts", Owner::Root, NO_DEVPTS),
    refuses("a container of bubblewrap without capabilities", Owner::Root, BUBBLEWRAP, "CAP_SETFCAP"),
    refuses("a container of bubblewrap", Owner::Root, BUBBLEWRAP_OF_ROOT, "systempaths=unconfined"),
    refuses("a seccomp listener that is there", Owner::Root, LISTENED_TO, "notified"),
];

/// A box's workspace and what is next to it, below the directory with the binary.
struct Place {
    directory: std::path::PathBuf,
}

/// Not below /tmp, which a box may cover.
fn directory_with_provost() -> tempfile::TempDir {
    let directory = tempfile::tempdir_in("/var/tmp").expect("a directory can be made");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    copy_provost(directory.path());
    directory
}

impl Place {
    fn new(above: &Path, name: &str, owner: Owner) -> Self {
        let place = Self { directory: above.join(name.replace([' ', '/', ','], "-")) };
        fs::create_dir(place.path()).expect("a directory can be made");
        for name in ["work", "like"] {
            fs::create_dir(place.path().join(name)).expect("a directory can be made");
            if owner == Owner::Other {
                chown(place.path().join(name), Some(NOBODYS_ID), Some(NOBODYS_ID)).expect("root may");
            }
        }
        place
    }

    fn path(&self) -> &Path {
        &self.directory
    }

    /// `provost WORDS` in the box, in its workspace.
    fn provost(&self, script: &str, words: &[&str]) -> Output {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c"]);
        command
            .arg(format!("cd \"$W\"\n{script}"))
            .arg("sh")
            .arg(self.path().with_file_name("provost"))
            .args(words);
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", "/nonexistent");
        command.env("P", self.path()).env("W", self.path().join("work"));
        command.current_dir(self.path().join("work")).stdin(Stdio::null());
        command.output().expect("unshare is there")
    }
}

/// What Provost says on stderr and is no notice.
fn errors(output: &Output) -> Vec<String> {
    let lines = text(&output.stderr);
    let is_error = |line: &&str| line.starts_with("provost: ") && !line.starts_with("provost: notice: ");
    lines.lines().filter(is_error).map(str::to_owned).collect()
}

fn judge(kind: &Kind, above: &Path) -> Result<(), String> {
    let place = Place::new(above, kind.name, kind.owner);
    let ran = place.provost(kind.script, &["run", "--", "sh", "-c", "echo in > file && cat file"]);
    let examined = place.provost(kind.script, &["doctor", "-o", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&examined.stdout)
        .map_err(|error| format!("doctor: {error}: {}", shown(&examined)))?;
    let said = format!("{}\ndoctor: {}", shown(&ran), report["trial"]);
    let errors = errors(&ran);
    match kind.says {
        None if ran.status.code() != Some(0) || text(&ran.stdout) != "in\n" => return Err(said),
        None if report["usable"] != true || examined.status.code() != Some(0) => return Err(said),
        None => {}
        Some(wanted) => {
            if ran.status.code() != Some(125) || errors.len() != 1 || !errors[0].contains(wanted) {
                return Err(said);
            }
            let told = report["trial"]["message"].as_str().unwrap_or_default();
            if report["usable"] != false || examined.status.code() != Some(1) || !told.contains(wanted) {
                return Err(said);
            }
        }
    }
    Ok(())
}

#[test]
fn in_every_box_a_command_runs_or_one_line_says_what_is_missing_and_doctor_says_the_same() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: only root can make the boxes");
        return;
    }
    let lacks = |program: &str| {
        let found = Command::new("sh").args(["-c", "command -v \"$0\"", program]).output();
        !found.is_ok_and(|found| found.status.success())
    };
    let above = directory_with_provost();
    let judged = |kind: &Kind| {
        let needed = [("bwrap", BUBBLEWRAP), ("bwrap", BUBBLEWRAP_OF_ROOT), ("python3", LISTENED_TO)];
        if let Some((program, _)) = needed.iter().find(|(program, of)| *of == kind.script && lacks(program)) {
            println!("SKIPPED: {}: {program} is not there", kind.name);
            assert!(std::env::var("CI").is_err(), "CI has {program}");
            return None;
        }
        judge(kind, above.path()).err().map(|said| format!("{}: {said}", kind.name))
    };
    let wrong: Vec<String> = std::thread::scope(|threads| {
        let parts = BOXES.chunks(BOXES.len() / 4);
        let all: Vec<_> =
            parts.map(|part| threads.spawn(|| part.iter().filter_map(judged).collect::<Vec<_>>())).collect();
        all.into_iter().flat_map(|one| one.join().expect("a part is judged")).collect()
    });
    assert!(wrong.is_empty(), "{} boxes:\n{}", wrong.len(), wrong.join("\n\n"));
}

#[test]
fn provost_inside_provost_names_itself() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: only root can make the box");
        return;
    }
    let above = directory_with_provost();
    let place = Place::new(above.path(), "nested", Owner::Root);
    copy_provost(&place.path().join("work"));
    let inside = |words: &str| {
        let line = format!("./provost {words}");
        place.provost("exec \"$@\"", &["run", "--", "sh", "-c", &line])
    };
    let ran = inside("run -- true");
    assert_eq!(ran.status.code(), Some(125), "{}", shown(&ran));
    assert!(text(&ran.stderr).contains("in a sandbox of Provost's"), "{}", shown(&ran));
    let examined = inside("doctor");
    assert_eq!(examined.status.code(), Some(1), "{}", shown(&examined));
    let page = text(&examined.stdout);
    assert!(page.contains("in a sandbox of Provost's"), "{page}");
    assert!(page.ends_with("Next: run the command as it is\n"), "{page}");
}

/// Without a gate a sandbox needs no listener: what the supervisor would be notified of is refused.
#[test]
fn where_a_seccomp_listener_is_there_a_sandbox_without_a_gate_starts_and_refuses_what_it_cannot_be_notified_of()
 {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: only root can make the box");
        return;
    }
    let above = directory_with_provost();
    let place = Place::new(above.path(), "listened to", Owner::Root);
    let policy = "default_profile = 'one'\n[profile.one.limits]\nrequirement = 'prefer'\n\
        [[rule]]\nid = 'all'\ndecision = 'allow'\nargv = ['**']\n";
    fs::write(place.path().join("one.toml"), policy).expect("a file can be written");
    let policies = place.path().join("one.toml").display().to_string();
    let script = "mkdir d; chmod 755 d && echo plain; chmod 2755 d || stat -c %a d; sh -c 'chmod 4755 d' || echo refused";
    let run =
        |box_script| place.provost(box_script, &["run", "--policies", &policies, "--", "sh", "-c", script]);
    let listened_to = run(LISTENED_TO);
    assert_eq!(text(&listened_to.stdout), "plain\n755\nrefused\n", "{}", shown(&listened_to));
    assert_eq!(
        text(&listened_to.stderr).matches("Operation not permitted").count(),
        2,
        "{}",
        shown(&listened_to)
    );
    fs::remove_dir(place.path().join("work/d")).expect("it is there");
    let alone = run("exec \"$@\"");
    assert_eq!(text(&alone.stdout), "plain\nrefused\n", "{}", shown(&alone));
}
