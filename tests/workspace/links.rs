//! Ways by which a command leaves code where nothing is looked at, or a link in place of what is looked at: as for the
//! other ways, nothing of it is run where changes are undone.

use crate::workspace::{
    attacks::{Way, nothing_is_run_by_peoples_tools},
    gateway, outside, session, shown,
};

const WAYS: &[Way] = &[
    Way {
        name: "a repository in the directory of objects, and a link to it",
        host: "",
        command: "git init -q .git/objects/zz; git -C .git/objects/zz config core.fsmonitor $PWD/x.sh; ln -s .git/objects/zz docs",
        person: "git -C docs status",
    },
    Way {
        name: "a repository in one of the directories of objects, and a link to it",
        host: "",
        command: "ln -s .git/objects/ab docs; git init -q .git/objects/ab; git -C .git/objects/ab config core.fsmonitor $PWD/x.sh",
        person: "git -C docs status",
    },
    Way {
        name: "a link by way of another one in git's directory",
        host: "",
        command: "git init -q .git/refs/r; git -C .git/refs/r config core.fsmonitor $PWD/x.sh; mkdir .git/f; ln -s .git/f docs; sleep 2; rmdir .git/f; ln -s refs/r .git/f",
        person: "git -C docs status",
    },
    Way {
        name: "a repository in a directory that looks like one",
        host: "",
        command: "mkdir -p lib/objects lib/refs; cp .git/HEAD lib; git init -q lib/logs/app; git -C lib/logs/app config core.fsmonitor $PWD/x.sh",
        person: "git -C lib/logs/app status",
    },
    Way {
        name: "an editor's tasks in a directory that looks like a repository",
        host: "",
        command: "mkdir -p lib/objects lib/refs lib/logs/.vscode; echo {} > lib/logs/.vscode/tasks.json",
        person: "test -f lib/logs/.vscode/tasks.json && ./x.sh",
    },
    Way {
        name: "an editor's tasks among packages, and a link to them",
        host: "",
        command: "mkdir -p target/y/.vscode; echo {} > target/y/.vscode/tasks.json; ln -s target/y docs",
        person: "test -f docs/.vscode/tasks.json && ./x.sh",
    },
    Way {
        name: "an editor's tasks among packages, after a link to where they will be",
        host: "",
        command: "ln -s target/y docs; sleep 1; mkdir -p target/y/.vscode; echo {} > target/y/.vscode/tasks.json",
        person: "test -f docs/.vscode/tasks.json && ./x.sh",
    },
    Way {
        name: "a link in place of a tool's directory",
        host: "",
        command: "mkdir c; echo > c/config.toml; ln -s c .cargo",
        person: "test -f .cargo/config.toml && ./x.sh",
    },
    Way {
        name: "a link in place of a tool's directory, to a file that becomes a directory",
        host: "",
        command: "echo > c; ln -s c .cargo; sleep 2; rm c; mkdir c; echo > c/config.toml",
        person: "test -f .cargo/config.toml && ./x.sh",
    },
    Way {
        name: "a tool's file behind a link that was there before",
        host: "mkdir c; ln -s c .cargo",
        command: "echo > c/config.toml",
        person: "test -f .cargo/config.toml && ./x.sh",
    },
    Way {
        name: "a section after a line's end that is no line feed",
        host: "",
        command: "mkdir -p m/.hg; printf '[paths]\\ndefault = x\\r[hooks]\\rupdate = ./x\\r' > m/.hg/hgrc",
        person: "grep -q hooks m/.hg/hgrc && ./x.sh",
    },
    Way {
        name: "another repository whose settings are read",
        host: "",
        command: "mkdir -p m/.hg; echo ../../e > m/.hg/sharedpath",
        person: "test -f m/.hg/sharedpath && ./x.sh",
    },
    Way {
        name: "a tool's settings by another of its names",
        host: "",
        command: "echo > mise.dev.toml",
        person: "test -f mise.dev.toml && ./x.sh",
    },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_run_that_is_where_nothing_is_looked_at_or_behind_a_link() {
    nothing_is_run_by_peoples_tools(WAYS.iter()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_protected_file_is_not_changed_by_another_of_its_names() {
    let gateway = gateway();
    let host = "echo first > real; ln real .mcp.json; mkdir .husky; echo first > hook; ln hook .husky/pre-commit; \
                echo first > one; ln one .envrc; echo first > other; ln other .npmrc";
    let attacks = [
        // The file is left, or its other name is not, or it is written through a descriptor that was opened before.
        "echo attack > real; echo attack > hook; echo attack > one; rm one; exec 3>> other; rm other; echo attack >&3",
        "sleep 0.5; echo attack >> real; rm real; echo attack >> hook; rm hook; sleep 1.3; echo attack > other; mv other x",
    ];
    let all = "cat .mcp.json .husky/pre-commit .envrc .npmrc";
    for attack in attacks {
        let session = session(&gateway, "workspace").await;
        outside(&session.workspace, host);
        let copy = format!("d=$(mktemp -d); cp -a . $d; cd $d; {attack}; {all}; rm -r $d");
        let without = outside(&session.workspace, &copy);
        assert!(without.contains("attack"), "{without}");
        let done = session.sh(&format!("ln .mcp.json new || echo refused; {attack}")).finish().await;
        assert!(done.text().contains("refused"), "a command makes no such name: {}", done.text());
        assert_eq!(outside(&session.workspace, all), "first\n".repeat(4), "{attack}");
        let told = shown(&done.outcome.workspace_changes);
        assert!(told.contains(".mcp.json") && told.contains(".husky/pre-commit"), "{told}");
        assert!(told.contains("Restored"), "{told}");
        // It has one name now, and what the person does with it is the person's.
        outside(&session.workspace, "echo second > .mcp.json");
        session.command("true").finish().await;
        assert_eq!(outside(&session.workspace, "cat .mcp.json"), "second\n");
        session.close().await;
    }
    gateway.stop();
}
