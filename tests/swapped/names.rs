//! Names: which file a name means, and that nothing else shows that it was executed by its descriptor.

use std::fs;

use crate::{
    support::{Gateway, code, in_session, skip},
    swapped::{program, real},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_name_that_is_allowed_means_the_trusted_file_and_not_its_shadow() {
    let gateway = Gateway::with_policy(|policy| {
        let rules: toml::Table =
            "rule = [{ id = 'git', decision = 'allow', argv = ['git', '**'] }]".parse().expect("rules");
        policy["rule"] = rules["rule"].clone();
        let environment = policy["profile"]["workspace"]["environment"].as_table_mut().expect("a table");
        environment.insert("drop".to_owned(), vec!["PATH"].into());
    });
    in_session(&gateway, async |session| {
        program(&session.workspace.join("git"), b"#!/bin/sh\necho shadow\n");
        let shadowed =
            session.command("git").args(["--version"]).env("PATH", &session.workspace.display().to_string());
        assert!(shadowed.finish().await.text().starts_with("git version"));
        for shadow in ["./git".to_owned(), session.workspace.join("git").display().to_string()] {
            let refusal = session.command(&shadow).refusal().await;
            assert_eq!(refusal.meta("rule"), "default", "{refusal:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn scripts_see_their_own_name_and_arguments_as_outside() {
    in_session(&Gateway::shared(), async |session| {
        let scripts: [(&str, &[u8]); 4] = [
            ("plain", b"#!/bin/sh\necho \"$0\" \"$#\" \"$@\"\n"),
            ("option", b"#!/bin/sh -e\nfalse\necho not here\n"),
            ("env", b"#!/usr/bin/env -S sh -u\necho \"$0\" \"$@\"\n"),
            ("nested", b"#!./plain one argument\n"),
        ];
        for (name, content) in scripts {
            program(&session.workspace.join(name), content);
        }
        for name in ["plain", "option", "env", "nested"] {
            for path in [format!("./{name}"), session.workspace.join(name).display().to_string()] {
                let outside = std::process::Command::new(&path)
                    .args(["a b", ""])
                    .current_dir(&session.workspace)
                    .output()
                    .expect("it runs outside");
                let inside = session.command(&path).args(["a b", ""]).finish().await;
                assert_eq!(inside.text(), String::from_utf8_lossy(&outside.stdout), "{path}");
                assert_eq!(Some(code(&inside.outcome) as i32), outside.status.code(), "{path}");
            }
        }
        // No execute bit, no execution, whatever the interpreter may read.
        fs::write(session.workspace.join("data"), "#!/bin/sh\necho no\n").expect("a file can be written");
        assert_eq!(session.command("./data").refusal().await.reason, "NOT_EXECUTABLE");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_program_keeps_its_name_and_has_no_descriptor_of_ours() {
    in_session(&Gateway::shared(), async |session| {
        let comm = "cat /proc/$$/comm; ls /proc/$$/fd";
        assert_eq!(session.sh(comm).finish().await.text(), "sh\n0\n1\n2\n");
        program(&session.workspace.join("own"), &fs::read(real("/bin/sh")).expect("a shell can be read"));
        let own = session.command("./own").args(["-c", comm]).finish().await.text();
        assert!(own.ends_with("\n0\n1\n2\n"), "{own}");
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel has a release");
        let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
        if (numbers.next(), numbers.next()) < (Some(6), Some(14)) {
            skip("before Linux 6.14 a program that is executed by its descriptor is named by its number");
        } else {
            assert!(own.starts_with("own\n"), "{own}");
        }
    })
    .await;
}
