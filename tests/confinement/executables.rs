//! A profile that lists what may be executed, and the TCP ports that may be used: nothing else, for every process.

use crate::support::lacks;
use std::sync::Arc;

use tonic::Code;

use crate::support::{Gateway, Session, in_session};

/// Adds a line of TOML to a table of every profile.
fn add_to_profiles(policy: &mut toml::Table, table: &str, line: &str) {
    for (_, profile) in policy["profile"].as_table_mut().expect("profiles").iter_mut() {
        let added: toml::Table = line.parse().expect("TOML");
        let profile = profile.as_table_mut().expect("a table");
        let old = profile.entry(table).or_insert_with(|| toml::Table::new().into());
        old.as_table_mut().expect("a table").extend(added);
    }
}

/// The programs of the system, without those in /usr/sbin.
fn with_listed_programs() -> Arc<Gateway> {
    Gateway::with_policy(|policy| add_to_profiles(policy, "filesystem", "execute = ['/usr/bin', '/bin']"))
}

/// Each way prints "ran" where it works.
const WAYS: [&str; 11] = [
    "cp /usr/bin/printf own && ./own ran",
    "cp /usr/bin/printf /tmp/own && /tmp/own ran",
    "cp /usr/bin/printf ~/own && ~/own ran",
    "cp /usr/bin/printf /dev/shm/own && /dev/shm/own ran",
    "ln -s /usr/sbin/chroot link && ./link --version >/dev/null && echo ran",
    "/usr/sbin/chroot --version >/dev/null && echo ran",
    "printf '#!/bin/sh\\necho ran\\n' > script && chmod +x script && ./script",
    "cp /usr/bin/printf own && env ./own ran",
    "cp /usr/bin/printf own && python3 -c 'import subprocess; subprocess.run([\"./own\", \"ran\"])'",
    // Open, then gone: it has no path any more.
    "cp /usr/bin/printf own && exec python3 -c 'import os
fd = os.open(\"own\", os.O_RDONLY); os.unlink(\"own\"); os.execve(fd, [\"own\", \"ran\"], {})'",
    // A file that never had a name.
    "exec python3 -c 'import os
fd = os.memfd_create(\"own\"); os.write(fd, open(\"/usr/bin/printf\", \"rb\").read()); os.execve(fd, [\"own\", \"ran\"], {})'",
];

async fn ways_that_work(session: &Session) -> Vec<&'static str> {
    let mut working = Vec::new();
    for way in WAYS {
        let text = session.sh(&format!("({way}) 2>&1")).finish().await.text();
        if text.lines().any(|line| line == "ran") {
            working.push(way);
        }
    }
    working
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nothing_but_what_a_profile_lists_is_executed() {
    if lacks(&["python3"]) {
        return;
    }
    in_session(&Gateway::shared(), async |session| {
        assert_eq!(ways_that_work(session).await, WAYS, "without a list each works");
    })
    .await;
    in_session(&with_listed_programs(), async |session| {
        assert_eq!(ways_that_work(session).await, [""; 0]);
        // A file that never can be executed may be made, and is not.
        let sealed = "import os\nfd = os.memfd_create('own', 8)\nos.write(fd, open('/usr/bin/id', 'rb').read())\n\
                      try: os.execve(fd, ['own'], {})\nexcept PermissionError as error: print(error.errno)";
        let done = session.command("/usr/bin/python3").args(["-c", sealed]).finish().await;
        assert_eq!(done.text(), "13\n");
        // What is listed runs, by whatever link, with its loader and its libraries; and what interpreters read is theirs.
        let done = session.sh("echo 'echo read' > script; sh script; /bin/id -u; python3 -c 'print(7)'").finish().await;
        assert_eq!(done.text(), "read\n1000\n7\n");
        // The command that was asked for is no exception.
        let refusal = session.command("/usr/sbin/chroot").args(["--version"]).refusal().await;
        assert_eq!(refusal.meta("errno"), (nix::errno::Errno::EACCES as i32).to_string(), "{refusal:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_listed_program_that_is_not_there_is_a_refusal_with_its_stage_and_path() {
    let gateway = Gateway::with_policy(|policy| {
        add_to_profiles(policy, "filesystem", "execute = ['/usr/bin', '/no/such']")
    });
    in_session(&gateway, async |session| {
        let refusal = session.command("true").refusal().await;
        assert_eq!(
            (refusal.code, refusal.reason.as_str()),
            (Code::FailedPrecondition, "CONFINEMENT_UNAVAILABLE"),
            "{refusal:?}"
        );
        assert!(refusal.meta("stage").to_lowercase().contains("landlock"), "{refusal:?}");
        assert!(format!("{refusal:?}").contains("/no/such"), "{refusal:?}");
    })
    .await;
}

/// Prints each port with the errno of connect(2) and of bind(2).
const PORTS: &str = "import socket\nfor port in (4711, 4712):\n\
     \x20with socket.socket() as s: reached = s.connect_ex(('127.0.0.1', port))\n\
     \x20try:\n  with socket.socket() as s: s.bind(('127.0.0.1', port)); bound = 0\n\
     \x20except OSError as error: bound = error.errno\n\
     \x20print(port, reached, bound)";

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn no_tcp_port_is_used_but_those_that_a_profile_lists() {
    if lacks(&["python3"]) {
        return;
    }
    let ports = async |session: &Session| {
        session.command("/usr/bin/python3").args(["-c", PORTS]).finish().await.text()
    };
    let (refused, denied) = (nix::errno::Errno::ECONNREFUSED as i32, nix::errno::Errno::EACCES as i32);
    in_session(&Gateway::shared(), async |session| {
        assert_eq!(ports(session).await, format!("4711 {refused} 0\n4712 {refused} 0\n"));
    })
    .await;
    let gateway = Gateway::with_policy(|policy| {
        add_to_profiles(policy, "network", "tcp_connect = [4711]\ntcp_bind = [4712]");
    });
    in_session(&gateway, async |session| {
        assert_eq!(ports(session).await, format!("4711 {refused} {denied}\n4712 {denied} 0\n"));
    })
    .await;
}
