//! Logins by the person's own SSH agent: to a host that the profile names by its key, and to no other. With the real ssh and sshd.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use crate::firsthour::{person::Person, signing::Signer, walk::shown};

/// A server for one user, with a host key of its own.
struct Server {
    process: Child,
    port: u16,
    /// As a profile has it.
    key: String,
}

impl Server {
    fn start(signer: &Signer, sshd: &Path, name: &str) -> Self {
        let person = signer.person();
        let directory = person.home().join(name);
        person.make(&directory);
        let made = signer
            .outside(&format!("ssh-keygen -q -t ed25519 -N '' -C '' -f '{}/host'", directory.display()));
        assert!(made.status.success(), "{}", shown(&made));
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let place = directory.display();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {place}/host\nPidFile none\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nAuthorizedKeysFile {}/.ssh/id.pub\n",
            person.home().display()
        );
        fs::write(directory.join("config"), config).expect("a file can be written");
        // A server lets only users in whom the host knows.
        let users = format!("walker:x:{0}:{0}::{1}:/bin/sh\n", person.id(), person.home().display());
        fs::write(directory.join("users"), users).expect("a file can be written");
        let script = "mount --bind users /etc/passwd && exec setpriv --reuid $1 --regid $1 --clear-groups \"$2\" -D -e -f \
                      \"$PWD/config\" 2> log";
        let mut process = Command::new("unshare");
        process.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
        process.arg(person.id().to_string()).arg(sshd).current_dir(&directory).stdin(Stdio::null());
        let process = process.spawn().expect("unshare is there");
        let key = fs::read_to_string(directory.join("host.pub")).expect("it is there").trim().to_owned();
        let server = Self { process, port, key };
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = fs::read_to_string(directory.join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "the server listens: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// A login there, for a shell.
    fn login(&self) -> String {
        format!(
            "ssh -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -p {} walker@127.0.0.1 \
             echo in",
            self.port
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The host's server, or Debian's in a directory.
fn sshd(directory: &Path) -> Option<PathBuf> {
    let own = PathBuf::from("/usr/sbin/sshd");
    if own.exists() {
        return Some(own);
    }
    let script = "apt-get download -q openssh-server > log 2>&1 && dpkg-deb -x openssh-server*.deb .";
    let taken = Command::new("sh").args(["-c", script]).current_dir(directory).status();
    let taken_to = directory.join("usr/sbin/sshd");
    if taken.is_ok_and(|status| status.success()) && taken_to.exists() {
        return Some(taken_to);
    }
    println!("SKIPPED: sshd is not installed, and Debian's cannot be taken");
    None
}

fn is_in(output: &Output) -> bool {
    output.status.success() && output.stdout == b"in\n"
}

#[test]
#[ignore = "long: takes sshd from Debian"]
fn the_callers_agent_logs_in_to_a_named_host_and_to_no_other() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: only root can give the server a user");
        return;
    }
    let place = tempfile::tempdir().expect("a directory can be made");
    fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("it is ours");
    let (Some(signer), Some(sshd)) = (Person::ordinary().and_then(Signer::new), sshd(place.path())) else {
        return;
    };
    let (named, other) = (Server::start(&signer, &sshd, "named"), Server::start(&signer, &sshd, "other"));
    for server in [&named, &other] {
        let outside = signer.outside(&server.login());
        assert!(is_in(&outside), "outside both let the agent's key in: {}", shown(&outside));
    }
    let hosts = format!("hosts = [{{ name = \"named.example\", keys = [\"{}\"] }}]", named.key);
    signer.change_policy("sign = [\"git\"]", &hosts);
    signer.change_policy("choices = [\"none\", \"proxy\"]", "choices = [\"none\", \"proxy\", \"host\"]");
    let journal = signer.journal();
    let options = ["--network", "host", "--journal", journal.to_str().expect("text")];
    let inside = signer.inside(&options, &named.login());
    assert!(is_in(&inside), "{}", shown(&inside));
    let refused = signer.inside(&options, &other.login());
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{}", shown(&refused));
    // A host that is named cannot use the keys in turn: a signature of bytes of its own works there outside, and not from inside.
    let probe = "'ssh-add -L > .ssh/forwarded.pub && ssh-add -q -T .ssh/forwarded.pub && echo in'";
    let forward = named.login().replacen("ssh ", "ssh -A ", 1).replace("echo in", probe);
    let outside = signer.outside(&forward);
    assert!(is_in(&outside), "outside a forwarded agent signs: {}", shown(&outside));
    let forwarded = signer.inside(&options, &forward);
    assert!(!forwarded.status.success() && forwarded.stdout.is_empty(), "{}", shown(&forwarded));
    let signs = "ssh-add -L > key.pub && echo text > text && ssh-keygen -q -Y sign -n git -f key.pub text";
    assert!(!signer.inside(&options, signs).status.success(), "the profile names no namespace");
    let records = signer.signatures(&journal);
    for wanted in [
        "\"host\":\"named.example\",\"user\":\"walker\"",
        "the profile names no host with this key",
        "nor a login to a host that has proven itself",
        "the agent is forwarded to a host",
    ] {
        assert!(records.iter().any(|line| line.contains(wanted)), "{wanted}: {records:#?}");
    }
}
