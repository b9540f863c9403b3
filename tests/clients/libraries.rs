//! Gets a gRPC library and makes its code: from PyPI and npm in exact versions, else from the host's packages.
//!
//! Each has a directory below `target/`, in which everything is made again by each run but what pip has installed.

use std::{
    env, fs,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// How long a client may take.
const CLIENT_DEADLINE: Duration = Duration::from_secs(120);

/// Why a test cannot run here.
pub(crate) struct Missing(pub(crate) String);

/// A library of one language.
pub(crate) struct Library {
    /// Its part of `tests/clients`.
    pub(crate) sources: PathBuf,
    /// Where its code is made.
    pub(crate) directory: PathBuf,
}

/// The directory of the API's files.
pub(crate) fn proto() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("proto")
}

/// The directory of this suite.
pub(crate) fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

/// The files of the API, below [`proto`].
pub(crate) fn api_files() -> Vec<String> {
    let entries = fs::read_dir(proto().join("provost/v1")).expect("the API is there");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("the directory can be read").file_name().to_string_lossy().into_owned())
        .map(|name| format!("provost/v1/{name}"))
        .collect();
    names.sort();
    names
}

impl Library {
    pub(crate) fn prepare(name: &str) -> Result<Self, Missing> {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients").join(name);
        for made in ["src", "proto", "provost"] {
            let _ = fs::remove_dir_all(directory.join(made));
        }
        fs::create_dir_all(directory.join("src")).expect("a directory can be made below target");
        Ok(Self { sources: clients().join(name), directory })
    }

    /// Runs a command in the directory. What fails is missing here.
    pub(crate) fn run(&self, command: &mut Command) -> Result<(), Missing> {
        let name = command.get_program().to_string_lossy().into_owned();
        let output = command
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| Missing(format!("{name}: {error}")))?;
        if output.status.success() {
            return Ok(());
        }
        let printed = [output.stdout, output.stderr].concat();
        Err(Missing(format!("{name} failed: {}", String::from_utf8_lossy(&printed))))
    }

    /// Finds a program of the host.
    pub(crate) fn program(&self, name: &str) -> Result<PathBuf, Missing> {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path)
            .map(|directory| directory.join(name))
            .find(|program| program.is_file())
            .ok_or_else(|| Missing(format!("this machine has no {name}")))
    }

    /// An interpreter with what `requirements.txt` names.
    pub(crate) fn python(&self) -> Result<PathBuf, Missing> {
        let environment = self.directory.join("venv");
        let python = environment.join("bin/python");
        if !python.exists() {
            self.run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
        }
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
        self.run(pip.arg(self.sources.join("requirements.txt")))?;
        Ok(python)
    }

    pub(crate) fn copy(&self, name: &str) {
        fs::copy(self.sources.join(name), self.directory.join(name)).expect("files can be copied");
    }

    /// Copies the API's files to `proto`, changed.
    pub(crate) fn copy_api(&self, change: impl Fn(&str) -> String) {
        let to = self.directory.join("proto");
        fs::create_dir_all(to.join("provost/v1")).expect("a directory can be made");
        for name in api_files() {
            let text = fs::read_to_string(proto().join(&name)).expect("the API is there");
            fs::write(to.join(&name), change(&text)).expect("files can be written");
        }
    }
}

/// What the client prints, and how it ends. It is killed when it takes too long.
pub(crate) fn run_bounded(command: &mut Command) -> (String, ExitStatus) {
    let mut printed = tempfile::tempfile().expect("a temporary file");
    let copy = || printed.try_clone().expect("a descriptor can be copied");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(copy())
        .stderr(copy())
        .spawn()
        .expect("what was made for this test can be started");
    let deadline = Instant::now() + CLIENT_DEADLINE;
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            break status;
        }
        if Instant::now() >= deadline {
            child.kill().expect("it is our child");
            break child.wait().expect("it is our child");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut text = String::new();
    printed.seek(SeekFrom::Start(0)).expect("a file can be read again");
    printed.read_to_string(&mut text).expect("clients print text");
    (text, status)
}
