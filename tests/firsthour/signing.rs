//! Signatures by the person's own SSH agent: git's, where the profile says so, and no others.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, net::UnixStream, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use crate::firsthour::{person::Person, walk::shown};

/// A request to sign a login: session, user authentication, user, service, method (RFC 4252, section 7).
const LOGIN: &str = r"
import os, socket, struct, subprocess, sys
def text(data): return struct.pack('>I', len(data)) + data
listed = subprocess.run(['ssh-add', '-L'], capture_output=True, text=True, check=True).stdout.split()
import base64
key = base64.b64decode(listed[1])
login = text(b'x' * 32) + b'\x32' + text(b'root') + text(b'ssh-connection') + text(b'publickey') + b'\x01' + text(b'ssh-ed25519') + text(key)
message = b'\x0d' + text(key) + text(login) + struct.pack('>I', 0)
agent = socket.socket(socket.AF_UNIX)
agent.connect(os.environ['SSH_AUTH_SOCK'])
agent.sendall(text(message))
print('answer', agent.recv(5)[4])
";

/// A person with a key in an agent, and git that signs by it.
pub(crate) struct Signer {
    person: Person,
    agent: Child,
    work: PathBuf,
    policies: PathBuf,
}

impl Signer {
    /// `None` where a tool is missing, which is said.
    pub(crate) fn new(person: Person) -> Option<Self> {
        for tool in ["ssh-agent", "ssh-keygen", "ssh-add"] {
            if !person.outside(&format!("command -v {tool}"), &person.home()).status.success() {
                println!("SKIPPED: {tool} is not installed");
                return None;
            }
        }
        let home = person.home();
        let (work, policies) = (home.join("work"), home.join("policies"));
        for directory in [&work, &policies, &home.join(".ssh")] {
            person.make(directory);
        }
        let policy = include_str!("../../policies/default.toml")
            .replace(
                "[profile.workspace.network]",
                "ssh_agent = { sign = [\"git\"] }\n\n[profile.workspace.network]",
            )
            .replace("requirement = \"require\"", "requirement = \"prefer\"");
        fs::write(policies.join("default.toml"), policy).expect("a file can be written");
        let socket = home.join(".ssh/agent");
        let mut agent = person.command("ssh-agent", &home);
        agent.args(["-D", "-a"]).arg(&socket).stdout(Stdio::null());
        let agent = agent.spawn().expect("it is installed");
        let deadline = Instant::now() + Duration::from_secs(30);
        while UnixStream::connect(&socket).is_err() {
            assert!(Instant::now() < deadline, "the agent listens");
            std::thread::sleep(Duration::from_millis(10));
        }
        let signer = Self { person, agent, work, policies };
        let prepared = signer.outside(
            "ssh-keygen -q -t ed25519 -N '' -C me@example.org -f ~/.ssh/id && ssh-add -q ~/.ssh/id && \
             printf 'first@example.org %s\n' \"$(cut -d' ' -f1,2 ~/.ssh/id.pub)\" > ~/.ssh/signers && \
             git config --global gpg.format ssh && git config --global user.signingkey '~/.ssh/id.pub' && \
             git config --global commit.gpgsign true && \
             git config --global gpg.ssh.allowedSignersFile ~/.ssh/signers && git init -q . && echo text > file",
        );
        assert!(prepared.status.success(), "{}", shown(&prepared));
        Some(signer)
    }

    fn with_agent(&self, command: &mut Command) -> Output {
        command.env("SSH_AUTH_SOCK", self.person.home().join(".ssh/agent")).output().expect("it starts")
    }

    /// Runs a line where the host knows the person: programs of ssh ask for the name of their user.
    pub(crate) fn outside(&self, line: &str) -> Output {
        let (id, home) = (self.person.id(), self.person.home());
        if id == nix::unistd::geteuid().as_raw() {
            return self.with_agent(self.person.command("sh", &self.work).args(["-c", line]));
        }
        let users = home.join(".ssh/users");
        fs::write(&users, format!("walker:x:{id}:{id}::{}:/bin/sh\n", home.display()))
            .expect("a file can be written");
        let script = "mount --bind \"$1\" /etc/passwd && exec setpriv --reuid \"$2\" --regid \"$2\" --clear-groups sh -c \"$3\"";
        let mut command = self.person.command("unshare", &self.work);
        command.uid(0).gid(0).args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
        self.with_agent(command.arg(users).arg(id.to_string()).arg(line))
    }

    pub(crate) fn inside(&self, options: &[&str], line: &str) -> Output {
        let mut command = self.person.command(self.person.provost(), &self.work);
        command.arg("run").arg("--policies").arg(&self.policies).args(options).args(["--", "sh", "-c", line]);
        self.with_agent(&mut command)
    }
}

impl Signer {
    pub(crate) fn person(&self) -> &Person {
        &self.person
    }

    /// Replaces a part of the policy.
    pub(crate) fn change_policy(&self, from: &str, to: &str) {
        let file = self.policies.join("default.toml");
        let policy = fs::read_to_string(&file).expect("it is there");
        assert!(policy.contains(from), "{from}");
        fs::write(file, policy.replace(from, to)).expect("a file can be written");
    }

    /// A directory for a journal.
    pub(crate) fn journal(&self) -> PathBuf {
        let journal = self.person.home().join("journal");
        self.person.make(&journal);
        fs::set_permissions(&journal, fs::Permissions::from_mode(0o700)).expect("it is ours");
        journal
    }

    /// What the journal has of requests to the agent.
    pub(crate) fn signatures(&self, journal: &Path) -> Vec<String> {
        let mut audit = self.person.command(self.person.provost(), &self.work);
        let audit = audit.args(["audit", "query", "-o", "json", "--journal"]).arg(journal).output();
        let records = String::from_utf8_lossy(&audit.expect("provost starts").stdout).into_owned();
        let is_meant = |line: &&str| line.contains("\"kind\":\"signature\"");
        records.lines().filter(is_meant).map(str::to_owned).collect()
    }
}

impl Drop for Signer {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

fn must_sign_for_git_and_for_nothing_else(person: Person) {
    let Some(signer) = Signer::new(person) else { return };
    let journal = signer.journal();
    let journaled = ["--journal", journal.to_str().expect("text")];
    // By the caller's configuration, without a word about it.
    let committed =
        signer.inside(&journaled, "git add file && git commit -q -m signed && git log -1 --format=%an");
    assert!(committed.status.success(), "{}", shown(&committed));
    let verified = signer.outside("git verify-commit -v HEAD 2>&1");
    assert!(verified.status.success(), "{}", shown(&verified));
    assert!(
        String::from_utf8_lossy(&verified.stdout).contains("Good \"git\" signature"),
        "{}",
        shown(&verified)
    );
    // What the agent does for everybody who reaches it, and for no command: another namespace, a login, another set of keys.
    let attacks = [
        "ssh-add -L > key.pub && ssh-keygen -q -Y sign -n file -f key.pub file && test -s file.sig",
        "ssh-keygen -q -t ed25519 -N '' -f other && ssh-add -q other",
        "ssh-add -q -x < /dev/null 2>&1 | grep -q locked || ssh-add -D 2>&1 | grep -q removed",
    ];
    for attack in attacks {
        let done = signer.inside(&journaled, &format!("rm -f file.sig key.pub other*; {attack}"));
        assert!(!done.status.success(), "{attack}: {}", shown(&done));
        let still = signer.outside("ssh-add -L | wc -l");
        assert_eq!(String::from_utf8_lossy(&still.stdout).trim(), "1", "{attack}: {}", shown(&still));
    }
    let login = format!("python3 -c '{}'", LOGIN.replace('\'', "\""));
    let done = signer.inside(&journaled, &login);
    assert_eq!(String::from_utf8_lossy(&done.stdout), "answer 5\n", "{}", shown(&done));
    let bound = signer.inside(&journaled, "ls ~/.ssh; test -e ~/.ssh/id");
    assert!(!bound.status.success(), "{}", shown(&bound));
    // Comments name people and paths.
    let listed = signer.inside(&journaled, "ssh-add -L");
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(text.starts_with("ssh-ed25519 ") && !text.contains("me@example.org"), "{}", shown(&listed));
    // Each is written down.
    let records = signer.signatures(&journal);
    for wanted in [
        "\"decision\":\"allow\"",
        "\"namespace\":\"file\"",
        "nor a login to a host that has proven itself",
        "message 17 of the protocol",
    ] {
        assert!(records.iter().any(|line| line.contains(wanted)), "{wanted}: {records:#?}");
    }
    // All of this works outside.
    for attack in &attacks[..2] {
        let done = signer.outside(&format!("rm -f file.sig key.pub other*; {attack}"));
        assert!(done.status.success(), "outside it works: {attack}: {}", shown(&done));
    }
    let done = signer.outside(&login);
    assert_eq!(String::from_utf8_lossy(&done.stdout), "answer 14\n", "outside it works: {}", shown(&done));
}

fn must_have_no_agent_unless_it_is_said(person: Person) {
    let Some(signer) = Signer::new(person) else { return };
    let script = "echo \"<$SSH_AUTH_SOCK>\"; ls /run/provost; git config --global --list | grep -c sign";
    let done = signer.inside(&["--profile", "offline"], script);
    assert_eq!(String::from_utf8_lossy(&done.stdout), "<>\n0\n", "{}", shown(&done));
    // The profile names it, and the person has none.
    let mut command = signer.person.command(signer.person.provost(), &signer.work);
    command.arg("run").arg("--policies").arg(&signer.policies).args(["--", "sh", "-c", "ssh-add -L"]);
    let done = command.output().expect("provost starts");
    assert_eq!(done.status.code(), Some(2), "{}", shown(&done));
}

#[test]
fn the_callers_agent_signs_for_git_and_for_nothing_else_as_root() {
    Person::root().into_iter().for_each(must_sign_for_git_and_for_nothing_else);
}

#[test]
fn the_callers_agent_signs_for_git_and_for_nothing_else_as_an_ordinary_user() {
    Person::ordinary().into_iter().for_each(must_sign_for_git_and_for_nothing_else);
}

#[test]
fn a_command_has_no_agent_unless_its_profile_says_so() {
    Person::ordinary().into_iter().for_each(must_have_no_agent_unless_it_is_said);
}
