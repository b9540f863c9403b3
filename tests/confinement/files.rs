//! Files: the workspace as its owner has it, the system to read, nothing else.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tonic::Code;

use crate::support::{Attack, Gateway, Session, in_session, is_root, run_outside, skip};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn files_keep_their_owner_on_disk_and_belong_to_the_command_inside() {
    let gateway = Gateway::shared();
    let session =
        if is_root() { Session::open_as(&gateway, 54321).await } else { Session::open(&gateway).await };
    let owner = fs::metadata(&session.workspace).expect("the workspace").uid();
    let done = session
        .sh("echo x > made; mkdir dir; echo y > dir/inner; ln -s made link; stat -c %u . made dir dir/inner; id -u")
        .finish()
        .await;
    let text = done.text();
    let ids: Vec<&str> = text.lines().collect();
    assert_eq!(ids.len(), 5, "{ids:?}");
    assert!(ids.iter().all(|id| id == &ids[4]), "inside, all of it is the command's own: {ids:?}");
    for name in ["made", "dir", "dir/inner", "link"] {
        let seen = fs::symlink_metadata(session.workspace.join(name)).expect("it is on the host");
        assert_eq!(seen.uid(), owner, "{name} belongs to the workspace's owner on disk");
    }
    session.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn set_id_bits_never_reach_the_hosts_disk() {
    let verbs = [
        "suid_chmod",
        "suid_fchmod",
        "suid_fchmodat",
        "suid_fchmodat2",
        "sgid_chmod",
        "suid_creat",
        "suid_open",
        "suid_openat",
        "suid_openat2",
        "suid_mknod",
    ];
    let gateway = Gateway::shared();
    let outside = tempfile::tempdir().expect("a directory");
    for verb in verbs {
        let at = outside.path().join(verb);
        let (_, said) = run_outside(&Attack::compiled("attack"), &[verb, &at.display().to_string()]);
        assert_eq!(said, format!("{verb} OK\n"));
        assert_ne!(fs::metadata(&at).expect("it was made").mode() & 0o6000, 0, "{verb} works outside");
    }
    in_session(&gateway, async |session| {
        for verb in verbs {
            let at = session.workspace.join(verb);
            let done = session.attack("attack").args([verb, &at.display().to_string()]).finish().await;
            let expected = if verb == "suid_openat2" { "ENOSYS" } else { "EPERM" };
            assert_eq!(done.text(), format!("{verb} {expected}\n"));
            if let Ok(seen) = fs::metadata(&at) {
                assert_eq!(seen.mode() & 0o6000, 0, "{verb} left {:o} on the host", seen.mode());
            }
        }
        // And by the tools that people use.
        let done = session
            .sh("cp /bin/sh s; chmod u+s s; chmod 4755 s; install -m 4755 /bin/sh t; \
                 python3 -c \"import os; os.chmod('s', 0o4755)\"; tar cf a.tar s; ls -l s t")
            .finish()
            .await;
        for entry in fs::read_dir(&session.workspace).expect("the workspace") {
            let seen = entry.expect("an entry");
            let mode = seen.metadata().expect("it is there").mode();
            assert_eq!(mode & 0o6000, 0, "{:?} has {mode:o}: {}", seen.file_name(), done.text());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_system_can_be_read_and_not_written() {
    in_session(&Gateway::shared(), async |session| {
        for path in [
            "/usr/bin/provost-test",
            "/etc/provost-test",
            "/bin/provost-test",
            "/provost-test",
            "/var/provost-test",
        ] {
            if is_root() && path != "/provost-test" && path != "/var/provost-test" {
                let (_, outside) = run_outside(&Attack::compiled("attack"), &["create", path]);
                assert_eq!(outside, "create OK\n", "{path}");
            }
            let done = session.attack("attack").args(["create", path]).finish().await;
            assert!(
                ["create EROFS\n", "create EACCES\n"].contains(&done.text().as_str()),
                "{path}: {}",
                done.text()
            );
        }
        assert_eq!(session.sh("test -r /usr/bin/env && echo yes").finish().await.text(), "yes\n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn homes_secrets_and_runtime_sockets_are_absent() {
    in_session(&Gateway::shared(), async |session| {
        for path in [
            "/root",
            "/home/user",
            "/run/docker.sock",
            "/var/run/docker.sock",
            "/run/user",
            "/run/systemd",
            "/boot",
            "/var/lib/systemd",
            "/var/cache",
            "/var/log",
            "/sys/class",
            "/sys/kernel",
            "/srv",
            "/mnt",
            "/media",
            "/proc/1/root",
        ] {
            let done = session.attack("attack").args(["list", path]).finish().await;
            assert_eq!(done.text(), "list ENOENT\n", "{path}");
        }
        let shown = session.sh("ls -A / ; ls -A /home; ls -A /run 2>/dev/null; echo end").finish().await;
        println!("{}", shown.text());
        if is_root() {
            assert_eq!(
                run_outside(&Attack::compiled("attack"), &["read_some", "/etc/shadow"]).1,
                "read_some OK\n"
            );
        }
        let done = session.attack("attack").args(["read_some", "/etc/shadow"]).finish().await;
        assert_eq!(done.text(), "read_some EACCES\n");
        // The command's user database knows itself, and nobody of the host.
        let done = session
            .sh("cat /etc/passwd; id -un; echo $HOME; ls -A $HOME; touch $HOME/x && echo home")
            .finish()
            .await;
        assert!(done.text().ends_with("home\n"), "{}", done.text());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: .ci/run runs it"]
async fn a_link_swapped_in_for_the_working_directory_never_leads_out() {
    let gateway = Gateway::shared();
    in_session(&gateway, async |session| {
        let (spot, real, out) =
            (session.workspace.join("spot"), session.workspace.join("real"), session.workspace.join("out"));
        fs::create_dir(&real).expect("a directory");
        symlink("/etc", &out).expect("a link");
        fs::create_dir(&spot).expect("a directory");
        let stop = Arc::new(AtomicBool::new(false));
        // Exchanges the directory and the link as fast as it can, with renameat2(RENAME_EXCHANGE).
        let swapper = std::thread::spawn({
            let (stop, spot, out) = (stop.clone(), spot.clone(), out.clone());
            move || {
                while !stop.load(Ordering::Relaxed) {
                    let _ = nix::fcntl::renameat2(
                        nix::fcntl::AT_FDCWD,
                        &spot,
                        nix::fcntl::AT_FDCWD,
                        &out,
                        nix::fcntl::RenameFlags::RENAME_EXCHANGE,
                    );
                }
            }
        });
        let (mut ran, mut refused) = (0, 0);
        for _ in 0..300 {
            match session.sh("pwd -P; ls passwd 2>/dev/null").cwd(&spot).try_create().await {
                Ok(terminal) => {
                    ran += 1;
                    terminal.wait().await;
                    let text = String::from_utf8_lossy(&terminal.output().await.data).into_owned();
                    assert!(!text.contains("passwd") && !text.starts_with("/etc"), "it was led out: {text}");
                    terminal.release().await;
                }
                Err(refusal) => {
                    refused += 1;
                    assert!(
                        matches!(refusal.code, Code::PermissionDenied | Code::FailedPrecondition),
                        "{refusal:?}"
                    );
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        swapper.join().expect("the swapper ends");
        println!("with a swapping link: {ran} ran inside, {refused} were refused");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn links_that_a_command_plants_lead_nowhere_for_the_next_one() {
    in_session(&Gateway::shared(), async |session| {
        session
            .sh("ln -s / root; ln -s /etc etc; ln -s /proc/self/root r; ln -s ../.. up; mkdir d")
            .finish()
            .await;
        for cwd in ["root", "etc", "r", "up", "d/../..", "root/etc", "./d/./../../.."] {
            let refusal =
                session.command("pwd").cwd(format!("{}/{cwd}", session.workspace.display())).refusal().await;
            let typed = (refusal.code == Code::PermissionDenied && !refusal.meta("rule").is_empty())
                || (refusal.code == Code::FailedPrecondition && refusal.reason == "CWD_NOT_A_DIRECTORY")
                || (refusal.code == Code::InvalidArgument && cwd.contains(".."));
            assert!(typed, "{cwd}: {refusal:?}");
        }
        let done = session.command("pwd").cwd(session.workspace.join("d")).finish().await;
        assert_eq!(done.text().trim(), session.workspace.join("d").display().to_string());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_workspace_for_reading_cannot_be_written() {
    if !is_root() {
        skip("the profile is the same, one run of it is enough");
    }
    let gateway = Gateway::with_policy(|policy| {
        for (_, profile) in policy["profile"].as_table_mut().expect("profiles").iter_mut() {
            let files: toml::Table = "workspace = \"read\"".parse().expect("TOML");
            profile.as_table_mut().expect("a table").insert("filesystem".into(), files.into());
        }
    });
    in_session(&gateway, async |session| {
        fs::write(session.workspace.join("there"), "content").expect("the host can write");
        let done = session.sh("cat there; echo x > new; echo y >> there; rm there; mkdir d").finish().await;
        assert!(done.text().starts_with("content"), "{}", done.text());
        let left: Vec<_> =
            fs::read_dir(&session.workspace).expect("it is there").flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, ["there"]);
        assert_eq!(fs::read_to_string(session.workspace.join("there")).expect("it is there"), "content");
        let mode = fs::metadata(session.workspace.join("there")).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o7777, 0o644);
    })
    .await;
}
