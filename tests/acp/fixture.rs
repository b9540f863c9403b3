//! Where a conversation takes place: a directory with a policy, a workspace, a marker that no command may touch, and
//! what the shim wrote to either side.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// How long a conversation may take on a loaded machine.
const DEADLINE: Duration = Duration::from_secs(600);

/// Rules in addition to the default policy's own.
const RULES: &str = r#"
[[rule]]
id = "no-shredding"
decision = "deny"
argv = ["shred", "**"]
reason = "nothing is shredded here; move it aside"

[[rule]]
id = "factors"
decision = "ask"
argv = ["factor", "**"]
reason = "factors are for grown-ups"
"#;

const MARKER: &str = "not to be touched";

/// A directory for one conversation. It stays when the test fails, for what was said is in it.
pub(crate) struct Fixture {
    directory: TempDir,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.directory.disable_cleanup(true);
            eprintln!("what was said is in {}", self.directory.path().display());
        }
    }
}

impl Fixture {
    /// An empty one.
    pub(crate) fn new() -> Self {
        let directory =
            tempfile::Builder::new().prefix("provost-acp-").tempdir().expect("a temporary directory");
        let fixture = Self { directory };
        for name in ["policies", "workspace", "home"] {
            fs::create_dir(fixture.path(name)).expect("directories can be made");
        }
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies/default.toml");
        let shipped = fs::read_to_string(shipped).expect("the policy is there");
        let mut policy: toml::Table = shipped.parse().expect("the policy is TOML");
        // As `provost acp` has it by itself, for want of a delegated group.
        policy["profile"]["workspace"]["limits"]["requirement"] = "prefer".into();
        fs::write(fixture.path("policies/default.toml"), policy.to_string()).expect("files can be written");
        fs::write(fixture.path("policies/tests.toml"), RULES).expect("files can be written");
        fs::write(fixture.path("marker"), MARKER).expect("files can be written");
        fixture
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The words of a path in it.
    pub(crate) fn word(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// The shim before an agent, with all that it writes kept in `to_editor` and `to_agent`.
    pub(crate) fn shim(&self, options: &[&str], agent: &[String]) -> Vec<String> {
        // Some editors keep what their agent writes to stderr to themselves.
        let wrapped = r#"f=$1; e=$2; shift 2; "$@" 2>> "$e" | tee "$f""#;
        let mut words = ["sh", "-c", wrapped, "sh"].map(str::to_owned).to_vec();
        words.extend([self.word("to_editor"), self.word("stderr")]);
        words.extend([env!("CARGO_BIN_EXE_provost").to_owned(), "acp".to_owned()]);
        words.extend(["--policies".to_owned(), self.word("policies")]);
        words.extend(options.iter().map(|option| (*option).to_owned()));
        words.extend(["--", "sh", "-c", r#"f=$1; shift; tee "$f" | "$@""#, "sh"].map(str::to_owned));
        words.push(self.word("to_agent"));
        words.extend(agent.iter().cloned());
        words
    }

    /// Runs an editor to its end, which must be good, and gives what it and the shim wrote to stderr.
    pub(crate) fn run(&self, editor: &mut Command) -> String {
        let (status, said) = self.run_to_its_end(editor);
        assert!(status.success(), "the editor ended with {status}\n{said}");
        said
    }

    /// As [`Fixture::run`], whatever the end is.
    pub(crate) fn run_to_its_end(&self, editor: &mut Command) -> (ExitStatus, String) {
        let file = fs::File::options().create(true).append(true).open(self.path("stderr"));
        let file = file.expect("files can be made");
        let mut child = editor
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a descriptor can be copied"))
            .stderr(file)
            .spawn()
            .expect("the editor starts");
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().expect("a child can be waited for") {
                break status;
            }
            if begun.elapsed() > DEADLINE {
                let _ = child.kill();
                let _ = child.wait();
                panic!("the editor does not end\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        (status, self.log())
    }

    fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.path("stderr")).unwrap_or_default()).into_owned()
    }

    /// Fails unless the marker on the host is as it was.
    pub(crate) fn marker_is_untouched(&self) {
        let marker = fs::read_to_string(self.path("marker")).expect("the marker is there");
        assert_eq!(marker, MARKER, "a command touched the host");
    }

    /// Fails unless every line that the shim wrote is valid by the protocol's schema.
    pub(crate) fn is_valid_by_the_schema(&self, node: &Path) {
        let output = Command::new("node")
            .arg(node.join("validate.mjs"))
            .args([self.path("to_editor"), self.path("to_agent")])
            .output()
            .expect("node runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    }
}
