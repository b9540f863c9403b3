//! The sandboxes: how each is asked to run a command in a workspace, in its own usual way, and what it is made for.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};

use super::host::HostSide;

/// Our own name in the table.
pub(crate) const PROVOST: &str = "`provost run`";

const BINARY: &str = env!("CARGO_BIN_EXE_provost");

/// What sandboxes with such limits are given, so that a bomb is small. The peers without them are not made for this.
const MEMORY_BYTES: u64 = 256 << 20;
const PIDS: u64 = 256;

/// A sandbox.
#[derive(Debug)]
pub(crate) struct Sandbox {
    /// For the table's head.
    pub name: &'static str,
    /// The program that has to be in `PATH`.
    program: &'static str,
    /// Arguments that make it say its version.
    version: &'static [&'static str],
    /// What it is made for, and how it was configured.
    pub about: &'static str,
    /// The whole command line for a command inside.
    command: fn(&HostSide, &Path, &[String]) -> Vec<String>,
}

impl Sandbox {
    /// No sandbox.
    pub(crate) fn nothing() -> Self {
        Self {
            name: "nothing",
            program: "true",
            version: &[],
            about: "",
            command: |_, _, inside| inside.to_vec(),
        }
    }

    /// Whether its program is there.
    pub(crate) fn is_installed(&self) -> bool {
        std::env::var_os("PATH").is_some_and(|path| {
            std::env::split_paths(&path).any(|directory| directory.join(self.program).exists())
        })
    }

    /// The first line that it says of its version.
    pub(crate) fn version(&self) -> String {
        let said = Command::new(self.program).args(self.version).output();
        let text =
            said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        text.lines().next().unwrap_or("unknown").trim().to_owned()
    }

    /// The command line that runs `inside` in this sandbox.
    pub(crate) fn command(&self, host: &HostSide, workspace: &Path, inside: &[String]) -> Vec<String> {
        (self.command)(host, workspace, inside)
    }
}

/// All but "nothing", ours last.
pub(crate) fn all(host: &HostSide) -> Vec<Sandbox> {
    write_policy(host);
    vec![
        Sandbox {
            name: "`bwrap`",
            program: "bwrap",
            version: &["--version"],
            about: "a tool with which others build sandboxes: what it is told to show is shown, and it brings no system call \
                    filter and no limits of its own. `--unshare-all --ro-bind / / --dev /dev --proc /proc`, the workspace \
                    writable. `--new-session`, which its manual recommends, would stop `TIOCSTI`.",
            command: bwrap,
        },
        Sandbox {
            name: "`runc`",
            program: "runc",
            version: &["--version"],
            about: "runs containers for engines such as Docker, which add a seccomp profile and more; files that people's \
                    tools run are no concern of a container. The specification is what `runc spec` writes, with the system's \
                    programs read-only, the workspace writable, and limits of 256 processes and 256 MiB.",
            command: runc,
        },
        Sandbox {
            name: "Codex",
            program: "codex",
            version: &["--version"],
            about: "keeps an agent's commands from writing outside of the workspace and from the network; reading is allowed \
                    and limits are not its aim. `codex sandbox` with `sandbox_mode=\"workspace-write\"`.",
            command: codex,
        },
        Sandbox {
            name: "`srt`",
            program: "srt",
            version: &["--version"],
            about: "keeps an agent's commands from writing outside of the workspace and from all but the allowed names of the \
                    network; reading is allowed unless its settings deny it, and limits are not its aim. Settings: \
                    `allowWrite` with the workspace, no allowed names.",
            command: srt,
        },
        Sandbox {
            name: PROVOST,
            program: BINARY,
            version: &["--version"],
            about: "`policies/default.toml` as it is, with limits of 256 processes and 256 MiB.",
            command: provost,
        },
    ]
}

fn words(words: &[&str], inside: &[String]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).chain(inside.iter().cloned()).collect()
}

fn bwrap(_: &HostSide, workspace: &Path, inside: &[String]) -> Vec<String> {
    let workspace = workspace.display().to_string();
    let root = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"];
    let work = ["--bind", &workspace, &workspace, "--chdir", &workspace];
    words(&[&["bwrap", "--unshare-all"], &root[..], &work].concat(), inside)
}

fn runc(host: &HostSide, workspace: &Path, inside: &[String]) -> Vec<String> {
    let bundle = host.base().join("bundle");
    // An earlier trial may have left it.
    let _ = fs::remove_dir_all(&bundle);
    fs::create_dir_all(bundle.join("rootfs")).expect("a directory");
    let made = Command::new("runc").arg("spec").current_dir(&bundle).status();
    assert!(made.is_ok_and(|status| status.success()), "runc spec works where runc does");
    let file = bundle.join("config.json");
    let text = fs::read_to_string(&file).expect("runc has written it");
    let mut spec: Value = serde_json::from_str(&text).expect("runc writes JSON");
    spec["process"]["terminal"] = json!(false);
    spec["process"]["args"] = json!(inside);
    spec["process"]["cwd"] = json!(workspace);
    spec["linux"]["resources"]["memory"] = json!({ "limit": MEMORY_BYTES });
    spec["linux"]["resources"]["pids"] = json!({ "limit": PIDS });
    // The specification's root is read-only: what is mounted in it has to be there.
    let mounts = spec["mounts"].as_array_mut().expect("it has mounts");
    for (directory, access) in ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"]
        .map(Path::new)
        .map(|d| (d, "ro"))
        .into_iter()
        .chain([(workspace, "rw")])
    {
        if directory.exists() {
            let inside = bundle.join("rootfs").join(directory.strip_prefix("/").expect("it is absolute"));
            fs::create_dir_all(inside).expect("a directory");
            let options = ["bind", "nosuid", "nodev", access];
            mounts.push(
                json!({ "destination": directory, "type": "bind", "source": directory, "options": options }),
            );
        }
    }
    for directory in ["proc", "dev", "sys"] {
        fs::create_dir_all(bundle.join("rootfs").join(directory)).expect("a directory");
    }
    fs::write(&file, spec.to_string()).expect("it can be written");
    let (state, bundle) = (host.base().join("runc").display().to_string(), bundle.display().to_string());
    let name = workspace.file_name().expect("it has a name").to_string_lossy().into_owned();
    words(&["runc", "--root", &state, "run", "--bundle", &bundle, &format!("confinement-{name}")], &[])
}

fn codex(_: &HostSide, _: &Path, inside: &[String]) -> Vec<String> {
    words(&["codex", "sandbox", "-c", "sandbox_mode=\"workspace-write\"", "--"], inside)
}

fn srt(host: &HostSide, _: &Path, inside: &[String]) -> Vec<String> {
    let settings = host.base().join("srt.json");
    let text = json!({
        "network": { "allowedDomains": [], "deniedDomains": [] },
        "filesystem": { "denyRead": [], "allowWrite": ["."], "denyWrite": [] },
    });
    fs::write(&settings, text.to_string()).expect("it can be written");
    words(&["srt", "--settings", &settings.display().to_string(), "--"], inside)
}

fn provost(host: &HostSide, _: &Path, inside: &[String]) -> Vec<String> {
    let policies = host.base().join("policies").display().to_string();
    words(&[BINARY, "run", "--policies", &policies, "--"], inside)
}

/// The default policy with small limits.
fn write_policy(host: &HostSide) {
    let text = include_str!("../../policies/default.toml");
    let mut policy: toml::Table = text.parse().expect("the shipped policy is valid");
    let limits = &mut policy["profile"]["workspace"]["limits"];
    for scope in ["terminal", "session"] {
        limits[scope]["memory_bytes"] = toml::Value::Integer(MEMORY_BYTES.cast_signed());
        limits[scope]["pids"] = toml::Value::Integer(PIDS.cast_signed());
    }
    let directory = host.base().join("policies");
    fs::create_dir_all(&directory).expect("a directory");
    fs::write(directory.join("default.toml"), policy.to_string()).expect("it can be written");
}
