//! The programs that a test runs: those of this build, attack programs, and those of the host, which may lack them; and the same start
//! for every program of tests.
//!
//! Attack programs are C files in `tests/attacks`, compiled once for each build of the tests. The same program runs outside first,
//! where it must succeed, and inside, where it must not.

use std::{
    collections::HashMap,
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{
        LazyLock, Mutex, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use nix::sys::{
    signal::{SigHandler, SigSet, Signal, signal},
    stat::{Mode, umask},
};

use crate::skip;

/// Where a sandbox finds programs, too.
const DIRECTORIES: [&str; 3] = ["/usr/bin", "/usr/local/bin", "/bin"];
/// By which the standard library's harness is told how many tests run at once.
const TEST_THREADS: &str = "RUST_TEST_THREADS";
const TESTS_FOR_EACH_PROCESSOR: usize = 2;

/// What cargo tells a program of tests about its build when it compiles it.
#[derive(Debug)]
pub struct Built {
    /// The root of the repository.
    pub repository: &'static str,
    /// A directory for what tests make and keep.
    pub temporary: &'static str,
    /// The program under test.
    pub provost: &'static str,
    /// The program of its sandboxes.
    pub provost_sandbox: &'static str,
}

static BUILT: OnceLock<Built> = OnceLock::new();

/// Begins a program of tests, before its `main`: says to this crate, which is compiled once for all of them, where cargo has put the
/// programs under test, and gives every suite the same start, whatever started it: nohup, a script's background, another umask.
///
/// The programs under test inherit ignored signals and the umask from the test process. Tests mostly wait for other processes, so that two
/// run for each processor, unless the caller says how many.
#[macro_export]
macro_rules! test_program {
    () => {
        const _: () = {
            extern "C" fn begin() {
                $crate::begin($crate::Built {
                    repository: env!("CARGO_MANIFEST_DIR"),
                    temporary: env!("CARGO_TARGET_TMPDIR"),
                    provost: env!("CARGO_BIN_EXE_provost"),
                    provost_sandbox: env!("CARGO_BIN_EXE_provost-sandbox"),
                });
            }

            // SAFETY: the section holds pointers to functions that the C library calls before `main`, with the C calling convention
            // and nothing that they return; there is one thread then, and `begin` needs nothing that is set up later: the C
            // library has its copy of the environment before it calls them.
            #[used]
            #[allow(unsafe_code)]
            #[unsafe(link_section = ".init_array")]
            static BEFORE_MAIN: extern "C" fn() = begin;
        };
    };
}

/// What [`test_program`] calls before `main`.
#[allow(unsafe_code, clippy::disallowed_methods, reason = "before main, with one thread")]
pub fn begin(built: Built) {
    let _ = BUILT.set(built);
    if std::env::var_os(TEST_THREADS).is_none() {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        // SAFETY: there is one thread.
        unsafe { std::env::set_var(TEST_THREADS, (processors * TESTS_FOR_EACH_PROCESSOR).to_string()) };
    }
    umask(Mode::from_bits_truncate(0o022));
    for usual in Signal::iterator().filter(|one| !matches!(one, Signal::SIGKILL | Signal::SIGSTOP)) {
        // SAFETY: the default disposition runs no code of this process.
        let _ = unsafe { signal(usual, SigHandler::SigDfl) };
    }
    let _ = SigSet::empty().thread_set_mask();
}

/// What this program of tests was built with.
pub(crate) fn built() -> &'static Built {
    BUILT.get().expect("a program of tests has `test_program!()` at its root")
}

/// A file of the repository.
pub(crate) fn in_repository(path: &str) -> PathBuf {
    Path::new(built().repository).join(path)
}

/// Says loudly which of these programs the host lacks; fails instead where a CI host must have them. Whether one is missing.
pub fn lacks(programs: &[&str]) -> bool {
    let is_there =
        |program: &str| DIRECTORIES.iter().any(|directory| Path::new(directory).join(program).exists());
    let missing: Vec<&str> = programs.iter().copied().filter(|program| !is_there(program)).collect();
    if missing.is_empty() {
        return false;
    }
    skip(&format!("{} is not on this host", missing.join(", ")));
    true
}

/// Has cargo build what is no program of the package at the top, and gives the directory of all programs. `cargo test` builds it too; asked
/// for here so that a single suite can be run from a clean tree.
pub fn built_by_cargo(what: &[&str]) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--offline"]).args(what);
    // Variables of this test's own build. A build script that reads them would run again, and with it the whole build.
    for (name, _) in std::env::vars().filter(|(name, _)| {
        ["OUT_DIR", "CARGO_PKG_", "CARGO_MANIFEST_"]
            .iter()
            .any(|of_this_build| name.starts_with(of_this_build))
    }) {
        cargo.env_remove(name);
    }
    let done = cargo.current_dir(built().repository).output().expect("cargo runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Path::new(built().provost).parent().expect("it lies in a directory").to_owned()
}

/// The conformance suite for ACP terminals, which is not installed with `provost`.
pub fn acp_conformance() -> &'static Path {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
        built_by_cargo(&["--package", "provost-conformance", "--bin", "acp-conformance"])
            .join("acp-conformance")
    });
    &PROGRAM
}

/// Copies `provost` into a directory, with the program of its sandboxes, which belongs next to it.
pub fn copy_provost(directory: &Path) {
    // By another process: a child of another test could inherit a descriptor that is open for writing (ETXTBSY).
    let Built { provost, provost_sandbox, .. } = built();
    let copied = Command::new("cp").args([provost, provost_sandbox]).arg(directory).status();
    assert!(copied.is_ok_and(|status| status.success()), "the programs can be copied");
}

/// An attack program, compiled.
#[derive(Debug, Clone)]
pub struct Attack {
    /// Its name, without ".c".
    pub name: String,
    /// The program on the host.
    pub program: PathBuf,
}

static NEXT: AtomicU32 = AtomicU32::new(0);
static COMPILED: OnceLock<Mutex<HashMap<String, PathBuf>>> = OnceLock::new();

impl Attack {
    /// Compiles `tests/attacks/NAME.c`, unless that was done before.
    pub fn compiled(name: &str) -> Self {
        let mut known = COMPILED.get_or_init(Mutex::default).lock().unwrap_or_else(|e| e.into_inner());
        let program = known.entry(name.to_owned()).or_insert_with(|| compile(name)).clone();
        Self { name: name.to_owned(), program }
    }

    /// Puts the program into a directory, executable for all, and gives its path there.
    pub fn placed_in(&self, directory: &Path) -> PathBuf {
        let to = directory.join(&self.name);
        if !to.exists() {
            // A program that is open for writing cannot be executed (ETXTBSY): written by another process, so that no
            // child of this one inherits the descriptor, aside, under a name that no other test uses.
            let aside = directory.join(format!(".{}.{}", self.name, NEXT.fetch_add(1, Ordering::Relaxed)));
            let copied = Command::new("cp").arg(&self.program).arg(&aside).status();
            assert!(copied.is_ok_and(|status| status.success()), "the program can be copied");
            fs::rename(&aside, &to).expect("the program can be renamed");
        }
        to
    }
}

fn compile(name: &str) -> PathBuf {
    let source = in_repository(&format!("tests/attacks/{name}.c"));
    let cache = Path::new(built().temporary).join("attacks");
    fs::create_dir_all(&cache).expect("the cache directory can be made");
    let program = cache.join(name);
    let newer = |a: &Path, b: &Path| {
        Some(fs::metadata(a).ok()?.modified().ok()? > fs::metadata(b).ok()?.modified().ok()?)
    };
    if newer(&program, &source) == Some(true) {
        return program;
    }
    let aside = cache.join(format!(".{name}.{}", std::process::id()));
    // Static where the C library can be linked so: then a program needs nothing of the sandbox's view.
    let mut complaint = String::new();
    for link in [&["-static"][..], &[]] {
        let done = Command::new("cc")
            .args(["-O1", "-w", "-pthread"])
            .args(link)
            .arg("-o")
            .arg(&aside)
            .arg(&source)
            .output()
            .expect("a C compiler is there, for Rust links with it");
        if done.status.success() {
            fs::rename(&aside, &program).expect("the program can be renamed");
            return program;
        }
        complaint = String::from_utf8_lossy(&done.stderr).into_owned();
    }
    panic!("{} does not compile:\n{complaint}", source.display());
}

/// Runs an attack on the host, unconfined, and gives what it printed.
pub fn run_outside(attack: &Attack, arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, .. } = Command::new(&attack.program)
        .args(arguments)
        // Some signal their whole group.
        .process_group(0)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("the attack can be started outside");
    (status.code(), String::from_utf8_lossy(&stdout).into_owned())
}
