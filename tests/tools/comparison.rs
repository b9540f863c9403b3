//! One command run twice on equal projects, by itself and through `provost run`, and the results compared.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use super::{directories, toolchains::Found};

/// Stands for the project's directory in a variable's value.
const WORK: &str = "@WORK@";

/// A command, and what it needs.
pub(crate) struct Run {
    command: Vec<String>,
    tools: Vec<Found>,
    env: Vec<(String, String)>,
}

impl Run {
    /// A script for the shell.
    pub(crate) fn shell(script: &str) -> Self {
        Self { command: ["sh", "-c", script].map(str::to_owned).into(), tools: Vec::new(), env: Vec::new() }
    }

    /// A tool itself.
    pub(crate) fn program(tool: &Found, arguments: &[&str]) -> Self {
        let program = tool.program.display().to_string();
        let command =
            std::iter::once(program).chain(arguments.iter().map(|word| (*word).to_owned())).collect();
        Self { command, tools: vec![tool.clone()], env: Vec::new() }
    }

    /// With a tool to be found by its bare name.
    pub(crate) fn with_tool(mut self, tool: &Found) -> Self {
        self.tools.push(tool.clone());
        self
    }

    /// With a variable.
    pub(crate) fn with_env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Where bare names are looked for: the same directories for both runs.
    fn path(&self) -> Vec<String> {
        let mut path: Vec<String> =
            self.tools.iter().map(|tool| tool.directory().display().to_string()).collect();
        path.extend(["/usr/local/bin", "/usr/bin", "/bin"].map(str::to_owned));
        path
    }

    fn variables(&self, work: &Path) -> Vec<(String, String)> {
        let work = work.display().to_string();
        self.env.iter().map(|(name, value)| (name.clone(), value.replace(WORK, &work))).collect()
    }
}

/// Two runs of one command, done when they are judged.
pub(crate) struct Comparison<'a> {
    directory: PathBuf,
    prepare: Box<dyn Fn(&Path) + 'a>,
    run: &'a Run,
    except: fn(&Path) -> bool,
    masked: fn(&str) -> bool,
}

impl<'a> Comparison<'a> {
    /// Compares `run`, in a project that `prepare` makes.
    pub(crate) fn of(name: &str, prepare: impl Fn(&Path) + 'a, run: &'a Run) -> Self {
        let directory =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tools-{name}-{}", std::process::id()));
        Self { directory, prepare: Box::new(prepare), run, except: |_| false, masked: |_| false }
    }

    /// Without looking into the files that `except` names.
    pub(crate) fn except(mut self, except: fn(&Path) -> bool) -> Self {
        self.except = except;
        self
    }

    /// Without the numbers in the lines that `masked` names: they tell a time.
    pub(crate) fn masking(mut self, masked: fn(&str) -> bool) -> Self {
        self.masked = masked;
        self
    }

    /// Both must succeed, alike.
    pub(crate) fn succeed(self) {
        self.end_with(0);
    }

    /// Both must end with `code`, alike.
    pub(crate) fn end_with(self, code: i32) {
        let _ = fs::remove_dir_all(&self.directory);
        let plain = self.once("plain", |work| self.unconfined(work));
        assert_eq!(plain.status.code(), Some(code), "unconfined:\n{}", plain.shown());
        let confined = self.once("confined", |work| self.confined(work));
        assert_eq!(confined.status.code(), Some(code), "confined:\n{}", confined.shown());
        self.assert_same_text(&plain.stdout, &confined.stdout);
        self.assert_same_text(&plain.stderr, &confined.stderr);
        let differences = directories::differences(&plain.directory, &confined.directory, self.except);
        assert!(differences.is_empty(), "the files differ:\n{}", differences.join("\n"));
        fs::remove_dir_all(&self.directory).expect("what a command wrote can be removed");
    }

    /// Makes the project at its one path, runs, and moves the result aside.
    fn once(&self, name: &str, command: impl Fn(&Path) -> Command) -> Result {
        let work = self.directory.join("work");
        fs::create_dir_all(&work).expect("directories can be made");
        (self.prepare)(&work);
        directories::fix_times(&work);
        let (stdout, stderr) =
            (self.directory.join(format!("{name}.out")), self.directory.join(format!("{name}.err")));
        let status = command(&work)
            .stdin(Stdio::null())
            .stdout(File::create(&stdout).expect("files can be made"))
            .stderr(File::create(&stderr).expect("files can be made"))
            .status()
            .expect("the command starts");
        let directory = self.directory.join(name);
        fs::rename(&work, &directory).expect("the result can be moved");
        Result { status, stdout, stderr, directory }
    }

    fn unconfined(&self, work: &Path) -> Command {
        let mut command = Command::new(&self.run.command[0]);
        // As in policies/default.toml: what a confined command has of itself.
        command.args(&self.run.command[1..]).current_dir(work).env_clear();
        command
            .envs(profile_environment())
            .env("HOME", self.directory.join("home"))
            .env("PATH", self.run.path().join(":"));
        command.envs(self.run.variables(work));
        command
    }

    fn confined(&self, work: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_provost"));
        // The tools are those that the policy names, and not the toolchains of a home.
        command.env("HOME", self.directory.join("home"));
        command.arg("run").arg("--policies").arg(self.policies()).arg("--root").arg(work);
        for (name, value) in self.run.variables(work) {
            command.arg("--env").arg(format!("{name}={value}"));
        }
        command.arg("--").args(&self.run.command);
        command
    }

    /// A policies directory with the default policy, which also shows the tools' directories.
    fn policies(&self) -> PathBuf {
        let mut policy = default_policy();
        let workspace = policy["profile"]["workspace"].as_table_mut().expect("a profile");
        let shown: Vec<toml::Value> = self
            .run
            .tools
            .iter()
            .filter(|tool| tool.must_be_shown())
            .map(|tool| tool.prefix.display().to_string().into())
            .collect();
        let filesystem = toml::Table::from_iter([("read_only".to_owned(), shown.into())]);
        workspace.insert("filesystem".to_owned(), filesystem.into());
        workspace.insert("path".to_owned(), self.run.path().into());
        workspace["limits"]["requirement"] = "prefer".into();
        // Caches of a tool's own, in the directory that is compared.
        let environment = workspace["environment"].as_table_mut().expect("a table");
        environment.insert("drop".to_owned(), vec!["CARGO_HOME"].into());
        let directory = self.directory.join("policies");
        fs::create_dir_all(&directory).expect("directories can be made");
        fs::write(directory.join("default.toml"), policy.to_string()).expect("files can be written");
        directory
    }

    fn assert_same_text(&self, plain: &Path, confined: &Path) {
        if directories::same_bytes(plain, confined) {
            return;
        }
        let (plain, confined) = (self.masked_text(plain), self.masked_text(confined));
        assert_eq!(plain, confined, "the output differs");
    }

    fn masked_text(&self, path: &Path) -> Vec<String> {
        let text = String::from_utf8_lossy(&fs::read(path).expect("reads")).into_owned();
        text.lines()
            .map(|line| {
                let mask = |c: char| if c.is_ascii_digit() { '0' } else { c };
                if (self.masked)(line) { line.chars().map(mask).collect() } else { line.to_owned() }
            })
            .collect()
    }
}

/// One run that has ended.
struct Result {
    status: ExitStatus,
    stdout: PathBuf,
    stderr: PathBuf,
    directory: PathBuf,
}

impl Result {
    fn shown(&self) -> String {
        let text = |path| {
            fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes[..bytes.len().min(4000)]).into_owned())
        };
        format!(
            "{}\n{}\n{}",
            self.status,
            text(&self.stdout).unwrap_or_default(),
            text(&self.stderr).unwrap_or_default()
        )
    }
}

fn default_policy() -> toml::Table {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("policies/default.toml"));
    text.expect("the policy is there").parse().expect("the policy is TOML")
}

/// The variables that the default profile sets.
fn profile_environment() -> Vec<(String, String)> {
    let policy = default_policy();
    let set = policy["profile"]["workspace"]["environment"]["set"].as_table().expect("a table").clone();
    set.into_iter().map(|(name, value)| (name, value.as_str().expect("a text").to_owned())).collect()
}
