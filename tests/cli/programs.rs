//! `provost` and the program of its sandboxes: moved together, found by link and in `libexec`, missing, changeable by others, of another
//! build, and exchanged below a gateway that runs.

use std::{
    fs,
    io::Write,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    cli::fixture::{code, eventually, shown, stderr, stdout},
    support::copy_provost,
};

/// A host's directories, with the two programs in `bin`.
struct Installed {
    directory: tempfile::TempDir,
}

impl Installed {
    fn new() -> Self {
        let directory = tempfile::tempdir_in("/var/tmp").expect("a directory can be made");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        let installed = Self { directory };
        for name in ["bin", "libexec", "work", "elsewhere"] {
            fs::create_dir(installed.at(name)).expect("a directory can be made");
        }
        copy_provost(&installed.at("bin"));
        installed
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.at(from), self.at(to)).expect("it can be moved");
    }

    fn provost(&self, program: &str) -> Command {
        let mut command = Command::new(self.at(program));
        command.current_dir(self.at("work")).stdin(Stdio::null()).env_remove("PROVOST_GATEWAY");
        command
    }

    /// `provost run` of a command that says what confines it.
    fn run(&self, program: &str) -> Output {
        let words = ["run", "--no-stdin", "--", "grep", "Seccomp:", "/proc/self/status"];
        self.provost(program).args(words).output().expect("it starts")
    }

    fn must_run(&self, program: &str) {
        let ran = self.run(program);
        assert_eq!((code(&ran), stdout(&ran).as_str()), (0, "Seccomp:\t2\n"), "{program}: {}", shown(&ran));
    }

    /// Nothing runs, and one line says why.
    fn must_refuse(&self, program: &str, why: &str) {
        let ran = self.run(program);
        assert_eq!((code(&ran), stdout(&ran).as_str()), (125, ""), "{program}: {}", shown(&ran));
        let said = stderr(&ran);
        let lines: Vec<&str> = said.lines().filter(|line| !line.starts_with("provost: notice: ")).collect();
        assert!(lines.len() == 1 && lines[0].contains(why), "{program}: {said}");
    }

    /// Puts a program that does nothing but exit with this status in the place of that of sandboxes.
    fn exchange(&self, place: &str, status: u8) {
        let (new, source) = (self.at("elsewhere/new"), format!("int main(void) {{ return {status}; }}\n"));
        let mut compiler = Command::new("cc");
        compiler.args(["-x", "c", "-", "-o"]).arg(&new).stdin(Stdio::piped());
        let mut compiling = compiler.spawn().expect("there is a C compiler");
        compiling.stdin.take().expect("a pipe").write_all(source.as_bytes()).expect("it reads");
        assert!(compiling.wait().is_ok_and(|status| status.success()), "it can be compiled");
        self.rename("elsewhere/new", place);
    }
}

/// A gateway, which ends its sandboxes, too.
struct EndedWithTest(Child);

impl Drop for EndedWithTest {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

#[test]
fn the_two_programs_run_where_they_are_together_and_alone_provost_says_what_is_missing() {
    let host = Installed::new();
    host.must_run("bin/provost");
    symlink(host.at("bin/provost"), host.at("elsewhere/linked")).expect("a link can be made");
    host.must_run("elsewhere/linked");
    host.rename("bin", "moved");
    host.must_run("moved/provost");
    host.rename("moved", "bin");
    host.rename("bin/provost-sandbox", "libexec/provost-sandbox");
    host.must_run("bin/provost");
    // As it is where each package has a directory of its own, and links to its files.
    host.rename("libexec/provost-sandbox", "elsewhere/real");
    symlink(host.at("elsewhere/real"), host.at("bin/provost-sandbox")).expect("a link can be made");
    host.must_run("bin/provost");
    fs::remove_file(host.at("bin/provost-sandbox")).expect("it is ours");
    let alone = format!("provost-sandbox is neither in {} nor in ", host.at("bin").display());
    host.must_refuse("bin/provost", &alone);
    host.must_refuse("elsewhere/linked", &alone);
    let listen = format!("unix:{}", host.at("s").display());
    let mut others: Vec<Output> = [
        vec!["acp", "--", "true"],
        vec!["mcp", "--root", "."],
        vec!["exec-server"],
        vec!["serve", "--listen", &listen, "--state", "../state"],
        vec!["doctor"],
    ]
    .into_iter()
    .map(|words| host.provost("bin/provost").args(words).output().expect("it starts"))
    .collect();
    let doctor = others.pop().expect("there is one");
    assert!(code(&doctor) != 0 && stdout(&doctor).contains(&alone), "{}", shown(&doctor));
    for other in others {
        assert!(code(&other) != 0 && stderr(&other).contains(&alone), "{}", shown(&other));
    }
}

#[test]
fn a_program_that_others_can_change_who_cannot_change_provost_starts_nothing() {
    let host = Installed::new();
    let (program, sandbox) = (host.at("bin/provost"), host.at("bin/provost-sandbox"));
    for (of_provost, of_sandbox, works) in [
        (0o755, 0o755, true),
        (0o700, 0o700, true),
        (0o711, 0o711, true),
        (0o775, 0o775, true),
        (0o777, 0o777, true),
        (0o755, 0o775, false),
        (0o755, 0o757, false),
        (0o775, 0o777, false),
    ] {
        set_mode(&program, of_provost);
        set_mode(&sandbox, of_sandbox);
        match works {
            true => host.must_run("bin/provost"),
            false => host.must_refuse("bin/provost", "others than who can change provost can change it"),
        }
    }
    set_mode(&program, 0o755);
    set_mode(&sandbox, 0o644);
    host.must_refuse("bin/provost", "is no file that can be executed");
    set_mode(&sandbox, 0o755);
    host.rename("bin/provost-sandbox", "libexec/provost-sandbox");
    set_mode(&host.at("libexec"), 0o777);
    host.must_refuse("bin/provost", "others than who can change provost can change it");
    set_mode(&host.at("libexec"), 0o755);
    host.must_run("bin/provost");
    if nix::unistd::geteuid().is_root() {
        let sandbox = host.at("libexec/provost-sandbox");
        std::os::unix::fs::chown(&sandbox, Some(59_997), None).expect("root may");
        host.must_refuse("bin/provost", "uid 59997");
    }
}

#[test]
fn a_program_of_another_build_is_named_and_runs_nothing() {
    let by_hand = Command::new(env!("CARGO_BIN_EXE_provost-sandbox")).output().expect("it starts");
    assert_eq!(code(&by_hand), 78, "{}", shown(&by_hand));
    assert!(stderr(&by_hand).contains("only provost of the same build starts it"), "{}", shown(&by_hand));
    let host = Installed::new();
    host.exchange("bin/provost-sandbox", 78);
    host.must_refuse("bin/provost", "is of another build than this program");
    let listen = format!("unix:{}", host.at("s").display());
    let words = ["serve", "--listen", &listen, "--state", "../state"];
    let serve = host.provost("bin/provost").args(words).output().expect("it starts");
    assert!(code(&serve) != 0 && stderr(&serve).contains("is of another build"), "{}", shown(&serve));
}

#[test]
fn a_gateway_keeps_the_program_that_it_has_opened_while_another_takes_its_place() {
    let host = Installed::new();
    let (socket, state) = (host.at("s"), host.at("state"));
    let mut serve = host.provost("bin/provost");
    serve.arg("serve").arg("--listen").arg(format!("unix:{}", socket.display())).arg("--state").arg(&state);
    let serve = serve.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let _serve = EndedWithTest(serve);
    eventually("the gateway listens", || socket.exists());
    host.exchange("bin/provost-sandbox", 1);
    host.must_refuse("bin/provost", "the launcher");
    // Each has a sandbox of its own.
    for _ in 0..3 {
        let mut run = host.provost("bin/provost");
        run.args(["run", "--gateway", &format!("unix:{}", socket.display()), "--", "echo", "ran"]);
        let ran = run.output().expect("it starts");
        assert_eq!((code(&ran), stdout(&ran).as_str()), (0, "ran\n"), "{}", shown(&ran));
    }
}
