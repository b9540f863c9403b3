//! Set-up steps that fail: the command does not run, and the refusal names the stage and the errno.

use tonic::Code;

use crate::support::{Gateway, Mounted, Refusal, Session, in_session, is_root, skip};

fn must_be_unavailable(refusal: &Refusal, stage: &str) {
    assert_eq!(
        (refusal.code, refusal.reason.as_str()),
        (Code::FailedPrecondition, "CONFINEMENT_UNAVAILABLE"),
        "{refusal:?}"
    );
    assert!(refusal.meta("stage").to_lowercase().contains(stage), "not the stage {stage}: {refusal:?}");
    assert!(!refusal.meta("stage").is_empty(), "no stage: {refusal:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn roots_of_several_owners_whose_ids_cannot_be_mapped_run_nothing_and_are_named() {
    if !is_root() {
        return skip("only root can mount, and only root's gateway maps ids of mounts");
    }
    let gateway = Gateway::start();
    let session = Session::open(&gateway).await;
    session.close().await;
    // ramfs knows no id-mapped mounts: commands would have to be both owners at once.
    let place = crate::support::new_workspace(&gateway, None);
    let Some(_mounted) = Mounted::try_new(&["-t", "ramfs", "none"], &place) else {
        return skip("ramfs cannot be mounted here");
    };
    let roots = [("one", 0), ("two", 4242)].map(|(name, owner)| {
        let root = place.join(name);
        std::fs::create_dir(&root).expect("a directory can be made");
        std::os::unix::fs::chown(&root, Some(owner), Some(owner)).expect("root can give it away");
        root.display().to_string()
    });
    let session = Session::open_with(&gateway, gateway.caller().await, None, |request| {
        request.roots = roots.to_vec();
    })
    .await;
    let refusal = session.sh("echo ran > ran").refusal().await;
    must_be_unavailable(&refusal, "id_map");
    assert_eq!(refusal.meta("errno"), (nix::errno::Errno::EINVAL as i32).to_string(), "{refusal:?}");
    assert!(refusal.message.contains("ramfs"), "{refusal:?}");
    assert!(!place.join("one/ran").exists(), "the command has run");
    session.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_resource_limit_above_the_gateways_own_is_cut_to_that() {
    let gateway = Gateway::with_policy(|policy| {
        for (_, profile) in policy["profile"].as_table_mut().expect("profiles").iter_mut() {
            let limits = profile["limits"].as_table_mut().expect("limits");
            // Above the gateway's own hard limit, and nobody here may raise one.
            let rlimits: toml::Table = "nofile = 1000000000".parse().expect("TOML");
            limits.insert("rlimits".into(), rlimits.into());
        }
    });
    in_session(&gateway, async |session| {
        let outside = std::process::Command::new("sh").args(["-c", "ulimit -Hn"]).output().expect("a shell");
        let inside = session.sh("ulimit -Hn").finish().await;
        assert_eq!(inside.text(), String::from_utf8_lossy(&outside.stdout));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_directory_that_the_profile_demands_and_the_host_has_not_runs_nothing() {
    let gateway = Gateway::with_policy(|policy| {
        for (_, profile) in policy["profile"].as_table_mut().expect("profiles").iter_mut() {
            let files: toml::Table = "read_only = [\"/no/such/toolchain\"]".parse().expect("TOML");
            profile.as_table_mut().expect("a table").insert("filesystem".into(), files.into());
        }
    });
    in_session(&gateway, async |session| {
        let refusal = session.command("true").refusal().await;
        assert_eq!(
            (refusal.code, refusal.reason.as_str()),
            (Code::FailedPrecondition, "CONFINEMENT_UNAVAILABLE"),
            "{refusal:?}"
        );
        assert!(
            refusal.meta("path").contains("/no/such/toolchain")
                || refusal.message.contains("/no/such/toolchain"),
            "{refusal:?}"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_failed_set_up_leaves_nothing_behind() {
    let gateway = Gateway::with_policy(|policy| {
        for (_, profile) in policy["profile"].as_table_mut().expect("profiles").iter_mut() {
            let files: toml::Table = "read_only = [\"/no/such/toolchain\"]".parse().expect("TOML");
            profile.as_table_mut().expect("a table").insert("filesystem".into(), files.into());
        }
    });
    in_session(&gateway, async |session| {
        let refused = async || {
            let refusal = session.command("true").refusal().await;
            assert!(refusal.message.contains("/no/such/toolchain"), "{refusal:?}");
        };
        refused().await;
        let before = gateway.footprint();
        for _ in 0..20 {
            refused().await;
        }
        gateway.comes_back_to(&before).await;
    })
    .await;
}

/// Needs `--features failpoints`: each stage of set-up fails in turn.
#[cfg(feature = "failpoints")]
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn whichever_step_of_set_up_fails_the_command_does_not_run_and_the_step_is_named() {
    for stage in [
        "ID_MAP",
        "IDENTITY",
        "KEYRING",
        "CGROUP_NAMESPACE",
        "SUPERVISOR_CGROUP",
        "HOSTNAME",
        "LOOPBACK",
        "MOUNT",
        "PIVOT_ROOT",
        "NESTED_NAMESPACES",
        "CAPABILITIES",
        "NO_NEW_PRIVS",
        "LANDLOCK",
        "SECCOMP",
        "EFFECTIVE_CONFINEMENT",
    ] {
        let gateway = Gateway::start_with(crate::support::Options {
            env: vec![("PROVOST_FAIL_AT".into(), format!("STAGE_{stage}"))],
            ..Default::default()
        });
        in_session(&gateway, async |session| {
            let refusal = session.sh("echo ran > ran").refusal().await;
            must_be_unavailable(&refusal, &stage.to_lowercase());
            assert_eq!(
                refusal.meta("errno"),
                (nix::errno::Errno::ECANCELED as i32).to_string(),
                "{refusal:?}"
            );
            assert!(!session.workspace.join("ran").exists(), "the command has run although {stage} failed");
        })
        .await;
    }
}
