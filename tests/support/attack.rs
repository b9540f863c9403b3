//! Attack programs: C files in `tests/attacks`, compiled once for each build of the tests.
//!
//! The same program runs outside first, where it must succeed, and inside, where it must not.

use std::{
    collections::HashMap,
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

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
    /// Compiles `tests/attacks/NAME.c` (or `tests/support/NAME.c`), unless that was done before.
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
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let source = ["attacks", "support"]
        .iter()
        .map(|directory| tests.join(directory).join(format!("{name}.c")))
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("there is no attack program {name}"));
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("attacks");
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
