//! Ways by which git runs code although no key of its configuration, and no hook, says so in plain words: as for the other
//! ways, nothing of it is run where changes are undone.

use crate::workspace::attacks::{Way, nothing_is_run_by_peoples_tools};

/// Two branches with a conflict, and a program that a strategy of merges can name by its path.
const DIVERGED: &str = "git checkout -qb t; echo 2 > file; git commit -qam 2; echo 3 > b; git add b; git commit -qm 3; \
                        git checkout -q -; echo 4 > file; git commit -qam 4; mkdir git-merge-x; cp x.sh git-merge-x/e";

const WAYS: &[Way] = &[
    Way {
        name: "a name that a byte ends for git",
        host: "",
        command: r#"printf '[core "fsmonitor\000zz"]\n\ta = ./x.sh\n' >> .git/config"#,
        person: "git status",
    },
    Way {
        name: "a strategy for all merges of two",
        host: DIVERGED,
        command: "git config pull.twohead x/e",
        person: "git cherry-pick t",
    },
    Way {
        name: "a strategy of an alias",
        host: DIVERGED,
        command: "git config alias.up 'rebase -s x/e'",
        person: "git up t",
    },
    Way {
        name: "a strategy of an interrupted cherry-pick",
        host: DIVERGED,
        command: r"git cherry-pick t~1 t; printf '[options]\n\tstrategy = x/e\n' > .git/sequencer/opts",
        person: "git checkout -q --theirs file; git add file; GIT_EDITOR=true git cherry-pick --continue",
    },
    Way {
        name: "a strategy of an interrupted rebase",
        host: DIVERGED,
        command: "git checkout -q t; git rebase -; echo x/e > .git/rebase-merge/strategy",
        person: "git checkout -q --theirs file; git add file; GIT_EDITOR=true git rebase --continue",
    },
    Way {
        name: "an option of interrupted patches that writes a file of any name",
        host: "for i in 1 2 3; do echo $i > f$i; git add f$i; git commit -qm f$i; done; git format-patch -q -3 -o p; \
               git reset -q --hard HEAD~3; echo other > f2; git add f2; git commit -qm c",
        command: "git am p/*.patch; mark=$(sed -n 's/^touch //p' x.sh); \
                  echo \"'--build-fake-ancestor=$mark'\" > .git/rebase-apply/apply-opt",
        person: "git am --skip",
    },
    Way {
        name: "a link in place of an interrupted rebase's directory",
        host: "",
        command: "git update-ref ORIG_HEAD HEAD; mkdir r; cd r; git rev-parse HEAD | tee onto > orig-head; \
                  git rev-parse --symbolic-full-name HEAD > head-name; touch interactive done; \
                  echo 'exec ./x.sh' > git-rebase-todo; ln -s ../r ../.git/rebase-merge",
        person: "git rebase --continue",
    },
    Way {
        name: "a URL that is put together",
        host: "",
        command: "git config protocol.allow user; git config remote.origin.url https://xt::./x.sh; \
                  git config url.e.insteadOf https://",
        person: "git fetch",
    },
    Way {
        name: "a URL where old git has it",
        host: "git config protocol.ext.allow always",
        command: "mkdir -p .git/remotes; echo 'URL: ext::./x.sh' > .git/remotes/origin",
        person: "git fetch",
    },
    Way {
        name: "a remote that is a command by its name",
        host: "git config protocol.ext.allow always",
        command: "git config remote.ext::./x.sh.promisor true",
        person: "git cat-file -p 1234567890123456789012345678901234567890",
    },
    Way {
        name: "a worktree's file with a space at its end",
        host: "",
        command: "mkdir sub; git init -q .git/objects/zz/r; git -C .git/objects/zz/r config core.fsmonitor $PWD/x.sh; \
                  git init -q ok; ln -s $PWD/.git/objects/zz/r/.git 'ok/.git '; printf 'gitdir: ../ok/.git \\n' > sub/.git",
        person: "git -C sub status",
    },
    Way {
        name: "a tool for differences, by its path",
        host: "echo 2 > file",
        command: "git config diff.tool ../../../../../../../..$PWD/x.sh",
        // By itself git would take an editor that is installed, which waits for a person.
        person: r#"printf '[diff]\n\ttool = none\n[difftool "none"]\n\tcmd = true\n' > none; GIT_CONFIG_GLOBAL=$PWD/none git difftool -y < /dev/null"#,
    },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: .ci/run runs it"]
async fn by_none_of_gits_own_ways_anything_is_run() {
    nothing_is_run_by_peoples_tools(WAYS.iter()).await;
}

/// Shorter forms of what CI runs whole.
mod brief {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn by_every_third_of_gits_own_ways_nothing_is_run() {
        nothing_is_run_by_peoples_tools(WAYS.iter().step_by(3)).await;
    }
}
