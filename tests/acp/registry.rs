//! What the suite needs of the npm and PyPI registries, in exact versions, installed once into a directory below
//! `target/` by npm and pip themselves.
//!
//! Where a program or a registry is missing the tests that need it say so and pass; with `CI=true` they fail.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

/// Why a test cannot run here.
#[derive(Debug, Clone)]
pub(crate) struct Missing(String);

/// Says that a test is skipped, and fails where CI should have had everything.
pub(crate) fn skip(missing: &Missing) {
    println!("SKIPPED: {}", missing.0);
    eprintln!("SKIPPED: {}", missing.0);
    assert!(env::var("CI").is_err(), "CI must have it: {}", missing.0);
}

/// The directory with the npm SDK and the scripts that use it.
pub(crate) fn node() -> Result<&'static Path, Missing> {
    static DIRECTORY: OnceLock<Result<PathBuf, Missing>> = OnceLock::new();
    let directory = DIRECTORY.get_or_init(|| {
        let sources = sources("node");
        let directory = installed("node", &sources, |directory| {
            for name in ["package.json", "package-lock.json"] {
                fs::copy(sources.join(name), directory.join(name)).expect("files can be copied");
            }
            npm(directory, &["ci"])
        })?;
        copy_scripts(&sources, &directory, "mjs");
        Ok(directory)
    });
    directory.as_deref().map_err(Clone::clone)
}

/// The interpreter that has the PyPI SDK.
pub(crate) fn python() -> Result<&'static Path, Missing> {
    static PYTHON: OnceLock<Result<PathBuf, Missing>> = OnceLock::new();
    let python = PYTHON.get_or_init(|| {
        let requirements = sources("python").join("requirements.txt");
        let directory = installed("python", &sources("python"), |directory| {
            venv("python3", directory, &["-r", &requirements.display().to_string()])
        })?;
        Ok(directory.join("bin/python"))
    });
    python.as_deref().map_err(Clone::clone)
}

/// A directory in which something of `tests/acp/NAME` is installed, newly where that has changed.
pub(crate) fn installed(
    name: &str,
    sources: &Path,
    install: impl FnOnce(&Path) -> Result<(), Missing>,
) -> Result<PathBuf, Missing> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("acp").join(name);
    let wanted: String = ["package.json", "package-lock.json", "requirements.txt"]
        .iter()
        .filter_map(|file| fs::read_to_string(sources.join(file)).ok())
        .collect();
    // Written last: what was broken off is installed again.
    let mark = directory.join("installed");
    let _turn = turn(&directory);
    if fs::read_to_string(&mark).is_ok_and(|there| there == wanted) {
        return Ok(directory);
    }
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("a directory can be made below target");
    install(&directory)?;
    fs::write(mark, wanted).expect("files can be written");
    Ok(directory)
}

/// One installs at a time, of all processes that share the directory: another run of this suite may be under way. The lock
/// goes with the file.
fn turn(directory: &Path) -> fs::File {
    fs::create_dir_all(directory.parent().expect("it lies below target")).expect("directories can be made");
    let lock = fs::File::create(directory.with_extension("lock")).expect("files can be made");
    lock.lock().expect("files can be locked");
    lock
}

/// Runs npm in a directory. No package's own scripts are run.
pub(crate) fn npm(directory: &Path, arguments: &[&str]) -> Result<(), Missing> {
    let mut command = Command::new("npm");
    command.args(arguments).args(["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
    command.args(["--prefer-offline", "--fetch-retry-mintimeout=1000", "--fetch-timeout=60000"]);
    command.arg(format!("--fetch-retries={}", retries()));
    done(command.current_dir(directory), "npm")
}

/// Makes an environment with an interpreter of its own, and installs into it.
pub(crate) fn venv(python: &str, directory: &Path, packages: &[&str]) -> Result<(), Missing> {
    done(Command::new(python).args(["-m", "venv"]).arg(directory), "python3 -m venv")?;
    let mut pip = Command::new(directory.join("bin/python"));
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--retries",
        &retries().to_string(),
        "--timeout",
        "60",
    ]);
    pip.args(packages);
    done(&mut pip, "pip")
}

/// Between two tries.
const BAD_MOMENT: Duration = Duration::from_secs(5);

/// Registries have bad moments: what fails is done again, after a longer pause each time.
fn done(command: &mut Command, name: &str) -> Result<(), Missing> {
    let mut tries = 1;
    loop {
        match done_once(command, name) {
            Err(missing) if tries <= retries() => {
                println!("ONCE MORE: {}", missing.0);
                std::thread::sleep(BAD_MOMENT * tries);
                tries += 1;
            }
            done => return done,
        }
    }
}

/// A machine without a registry is to say so soon. CI has one.
fn retries() -> u32 {
    if env::var("CI").is_ok() { 4 } else { 1 }
}

fn done_once(command: &mut Command, name: &str) -> Result<(), Missing> {
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| Missing(format!("{name}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    Err(Missing(format!("{name} failed: {}", said.trim().chars().take(600).collect::<String>())))
}

/// A directory of `tests/acp`.
pub(crate) fn sources(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/acp").join(name)
}

/// Modules are looked up in the directory of the script that imports them.
fn copy_scripts(from: &Path, to: &Path, extension: &str) {
    for entry in fs::read_dir(from).expect("the scripts are there") {
        let path = entry.expect("the directory can be read").path();
        if path.extension().is_some_and(|found| found == extension) {
            // In one step: another suite may be reading it.
            let name = path.file_name().unwrap_or_default();
            let half = to.join(format!("{}.{}", name.display(), std::process::id()));
            fs::copy(&path, &half).expect("scripts can be copied");
            fs::rename(half, to.join(name)).expect("scripts can be replaced");
        }
    }
}
