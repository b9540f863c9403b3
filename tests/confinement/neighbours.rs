//! The gateway, the host and other sessions, as seen by a command: not at all.

use crate::support::{Attack, Gateway, Process, Session, in_session, is_root, run_outside};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn processes_of_the_host_the_gateway_and_a_neighbour_do_not_exist_for_a_command() {
    let gateway = Gateway::shared();
    in_session(&gateway, async |neighbour| {
        in_session(&gateway, async |session| {
            let marker = neighbour.marker();
            let other = neighbour.idle(&marker).create().await;
            other.until("ready").await;
            let victim = Process::all_marked(&marker).first().expect("it runs").pid;
            for pid in [victim, gateway.pid] {
                let pid = pid.to_string();
                if is_root() {
                    let (_, outside) = run_outside(&Attack::compiled("attack"), &["signal", &pid]);
                    assert_eq!(outside, "signal OK\n");
                    let (_, outside) =
                        run_outside(&Attack::compiled("attack"), &["proc_file", &pid, "environ"]);
                    assert_eq!(outside, "proc_file OK\n");
                }
                for (arguments, errno) in [
                    (vec!["signal", &pid], "ESRCH"),
                    (vec!["ptrace", &pid], "ESRCH"),
                    (vec!["pidfd", &pid], "ESRCH"),
                    (vec!["proc_file", &pid, "environ"], "ENOENT"),
                ] {
                    let done = session.attack("attack").args(arguments.clone()).finish().await;
                    assert_eq!(done.text(), format!("{} {errno}\n", arguments[0]), "{arguments:?}");
                }
            }
            let listed =
                session.sh("ls /proc | grep -E '^[0-9]+$' | wc -l; ps -ef 2>/dev/null | cat").finish().await;
            assert!(!listed.text().contains(&marker), "{}", listed.text());
            // To every process that it can name; the supervisor and the neighbour are none of them.
            session.sh("kill -9 -1").finish().await;
            assert_eq!(Process::all_marked(&marker).len(), 1, "the neighbour's command was killed");
            assert_eq!(session.sh("echo alive").finish().await.text(), "alive\n");
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn two_sessions_see_nothing_of_each_others_files_and_memory() {
    let gateway = Gateway::shared();
    in_session(&gateway, async |one| {
        in_session(&gateway, async |other| {
            let script = "echo secret > $PWD/file; echo secret > /tmp/file; echo secret > /dev/shm/file; \
                          echo secret > $HOME/file; ipcmk -M 4096 >/dev/null 2>&1; echo done; exec sleep 1000";
            let held = one.sh(script).create().await;
            held.until("done").await;
            // In the same session they are one machine.
            let same = one.sh("cat file /tmp/file /dev/shm/file $HOME/file").finish().await;
            assert_eq!(same.text(), "secret\n".repeat(4));
            let look = format!(
                "cat {} /tmp/file /dev/shm/file $HOME/file; ls {}; ls -A /tmp /dev/shm $HOME; ipcs -m | grep -c 0x",
                one.workspace.join("file").display(),
                one.workspace.display(),
            );
            let done = other.sh(&look).finish().await;
            assert!(!done.text().contains("secret"), "{}", done.text());
            assert_eq!(done.text().matches("No such file").count(), 5, "{}", done.text());
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn two_sessions_have_different_identities_on_the_host_and_neither_is_root() {
    let gateway = Gateway::shared();
    in_session(&gateway, async |one| {
        in_session(&gateway, async |other| {
            let mut ids = Vec::new();
            for session in [one, other] {
                let marker = session.marker();
                let held = session.idle(&marker).create().await;
                held.until("ready").await;
                let process = Process::all_marked(&marker).into_iter().next().expect("it runs");
                ids.push((process.field("Uid").to_owned(), process.field("Gid").to_owned()));
                let receipt = held.info.receipt.clone().expect("a receipt");
                let four = |id: u32| [id; 4].map(|i| i.to_string()).join("\t");
                assert_eq!(process.field("Uid"), four(receipt.host_uid), "the receipt says who it is");
                assert_eq!(process.field("Gid"), four(receipt.host_gid));
            }
            if is_root() {
                assert_ne!(ids[0], ids[1], "two sessions share an identity");
                assert!(
                    ids.iter().all(|(uid, gid)| !uid.starts_with("0\t") && !gid.starts_with("0\t")),
                    "{ids:?}"
                );
            }
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_gateways_own_files_and_sockets_are_not_there() {
    let gateway = Gateway::shared();
    in_session(&gateway, async |session: &Session| {
        let path = |p: &std::path::Path| p.display().to_string();
        let (_, outside) =
            run_outside(&Attack::compiled("attack"), &["connect_path", &path(&gateway.socket)]);
        assert_eq!(outside, "connect_path OK\n");
        for (verb, at) in [
            ("connect_path", path(&gateway.socket)),
            ("read_some", path(&gateway.marker())),
            ("list", path(&gateway.state)),
            ("list", path(&gateway.state.join("sandboxes"))),
        ] {
            let done = session.attack("attack").args([verb, at.as_str()]).finish().await;
            assert_eq!(done.text(), format!("{verb} ENOENT\n"), "{at}");
        }
        // Nothing below the directory that the workspace lies in but the workspace.
        let done = session.command("ls").args(["-A", &path(gateway.directory())]).finish().await;
        let name = session.workspace.file_name().expect("a name").to_string_lossy().into_owned();
        assert_eq!(done.text().trim(), name);
    })
    .await;
}
