//! What an accepted file stands for: the target of a link, and what a configuration names, by whichever spelling and in
//! whichever work tree of the repository. A command's change of it is undone as a change of the file itself is.

use crate::workspace::attacks::{Way, nothing_is_run_by_peoples_tools};

const LINKS: &[Way] = &[
    Way {
        name: "the script that a hook is a link to",
        host: "mkdir scripts; printf '#!/bin/sh\\n' > scripts/check.sh; chmod +x scripts/check.sh; \
               ln -s ../../scripts/check.sh .git/hooks/pre-commit",
        command: "cat x.sh > scripts/check.sh",
        person: "git commit --allow-empty -m x",
    },
    Way {
        name: "the same by way of another link, which leads elsewhere then",
        host: "mkdir scripts; printf '#!/bin/sh\\n' > scripts/check.sh; chmod +x scripts/check.sh; \
               ln -s scripts s; ln -s ../../s/check.sh .git/hooks/pre-commit",
        command: "mkdir evil; cp x.sh evil/check.sh; rm s; ln -s evil s",
        person: "git commit --allow-empty -m x",
    },
    Way {
        name: "a directory on the way to it that becomes a link",
        host: "mkdir scripts; printf '#!/bin/sh\\n' > scripts/check.sh; chmod +x scripts/check.sh; \
               ln -s ../../scripts/check.sh .git/hooks/pre-commit",
        command: "mkdir evil; cp x.sh evil/check.sh; mv scripts old; ln -s evil scripts",
        person: "git commit --allow-empty -m x",
    },
    Way {
        name: "a link in a configured directory of hooks",
        host: "mkdir scripts own; printf '#!/bin/sh\\n' > scripts/check.sh; chmod +x scripts/check.sh; \
               ln -s ../scripts/check.sh own/pre-commit; git config core.hooksPath own",
        command: "cat x.sh > scripts/check.sh",
        person: "git commit --allow-empty -m x",
    },
    Way {
        name: "the configuration that git's is a link to",
        host: "cp .git/config own; ln -sf ../own .git/config",
        command: "git config -f own core.fsmonitor $PWD/x.sh",
        person: "git status",
    },
    Way {
        name: "the settings that a link below the root leads to",
        host: "mkdir cfg p; echo {} > cfg/tasks.json; ln -s ../cfg p/.vscode",
        command: "echo '{\"x\": 1}' > cfg/tasks.json",
        person: "grep -q x p/.vscode/tasks.json && ./x.sh",
    },
    Way {
        name: "the commands that a link below the root leads to",
        host: "mkdir p; echo > conf; ln -s ../conf p/.envrc",
        command: "cat x.sh > conf",
        person: "cd p && . ./.envrc",
    },
];

const NAMED: &[Way] = &[
    Way {
        name: "the hooks of a linked worktree",
        host: "git config core.hooksPath own; mkdir own; printf '#!/bin/sh\\n' > own/pre-commit; \
               chmod +x own/pre-commit; git add .; git commit -qm h; git worktree add -q w -b w",
        command: "cat x.sh > w/own/pre-commit",
        person: "git -C w commit --allow-empty -m x",
    },
    Way {
        name: "the hooks of a worktree that the command makes",
        host: "git config core.hooksPath own; mkdir own; printf '#!/bin/sh\\n' > own/pre-commit; \
               chmod +x own/pre-commit; git add .; git commit -qm h",
        command: "git worktree add -q w -b w; cat x.sh > w/own/pre-commit",
        person: "git -C w commit --allow-empty -m x",
    },
    Way {
        name: "the monitor of a linked worktree",
        host: "printf '#!/bin/sh\\n' > mon.sh; chmod +x mon.sh; git add .; git commit -qm h; \
               git config core.fsmonitor ./mon.sh; git worktree add -q w -b w",
        command: "cat x.sh > w/mon.sh",
        person: "git -C w status",
    },
    Way {
        name: "the hooks of a submodule",
        host: "git -c protocol.file.allow=always submodule add -q $PWD sub; git commit -qm sub; \
               git -C sub config core.hooksPath own; mkdir sub/own",
        command: "cp x.sh sub/own/pre-commit",
        person: "git -C sub -c user.name=A -c user.email=a@b.c commit --allow-empty -m x",
    },
    Way {
        name: "the hooks of a repository that is elsewhere",
        host: "git init -q --separate-git-dir=$PWD/gd n; git -C n config core.hooksPath own; mkdir n/own",
        command: "cp x.sh n/own/pre-commit",
        person: "git -C n -c user.name=A -c user.email=a@b.c commit --allow-empty -m x",
    },
    Way {
        name: "other files of the repository, with hooks",
        host: "git config core.hooksPath own; mkdir own; printf '#!/bin/sh\\n' > own/pre-commit; \
               chmod +x own/pre-commit",
        command: "mkdir -p evil/own; cp x.sh evil/own/pre-commit; cp file evil; git config core.worktree $PWD/evil",
        person: "git commit --allow-empty -m x",
    },
    Way {
        name: "hooks by way of a link to the root",
        host: "ln -s $(basename $PWD) ../$(basename $PWD).link; git config core.hooksPath $PWD.link/own; mkdir own",
        command: "cp x.sh own/pre-commit",
        person: "git commit --allow-empty -m x",
    },
    Way {
        name: "hooks by a path that goes down and up",
        host: "mkdir sub own; git config core.hooksPath ./sub/../own",
        command: "cp x.sh own/pre-commit",
        person: "git commit --allow-empty -m x",
    },
    Way {
        name: "hooks by a path that goes down and up, and down elsewhere then",
        host: "mkdir sub own; git config core.hooksPath ./sub/../own",
        command: "mkdir -p evil/own evil/sub; cp x.sh evil/own/pre-commit; rmdir sub; ln -s evil/sub sub",
        person: "git commit --allow-empty -m x",
    },
    Way {
        name: "hooks in a directory whose name is no text",
        host: "h=$(printf '.h\\366ks'); git config core.hooksPath \"$h\"; mkdir \"$h\"",
        command: "h=$(printf '.h\\366ks'); cp x.sh \"$h/pre-commit\"",
        person: "git commit --allow-empty -m x",
    },
    Way {
        name: "a program with a blank in its name",
        host: "mkdir 'my tools'; printf '#!/bin/sh\\n' > 'my tools/mon'; chmod +x 'my tools/mon'; \
               git config core.fsmonitor '\"my tools/mon\"'",
        command: "cat x.sh > 'my tools/mon'",
        person: "git status",
    },
    Way {
        name: "the script of an alias that is a function",
        host: "mkdir tools; printf '#!/bin/sh\\n' > tools/a.sh; chmod +x tools/a.sh; git config alias.st '!f() { tools/a.sh; }; f'",
        command: "cat x.sh > tools/a.sh",
        person: "git st",
    },
    Way {
        name: "the script of an alias, by the top of the files",
        host: "mkdir tools; printf '#!/bin/sh\\n' > tools/a.sh; chmod +x tools/a.sh; \
               git config alias.st '!$(git rev-parse --show-toplevel)/tools/a.sh'",
        command: "cat x.sh > tools/a.sh",
        person: "git st",
    },
    Way {
        name: "the script of an alias, in the directory that it changes to",
        host: "mkdir tools; printf '#!/bin/sh\\n' > tools/a.sh; chmod +x tools/a.sh; git config alias.st '!cd tools && ./a.sh'",
        command: "cat x.sh > tools/a.sh",
        person: "git st",
    },
];

const PYTHON: &[Way] = &[Way {
    name: "the module of a filter",
    host: "mkdir tools; echo pass > tools/clean.py; git config filter.x.clean 'python3 -m tools.clean'; \
           echo 'file filter=x' > .gitattributes",
    command: "echo 'import os; os.system(\"./x.sh\")' > tools/clean.py",
    person: "echo 2 > file; git add file",
}];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_run_that_an_accepted_link_leads_to() {
    nothing_is_run_by_peoples_tools(LINKS.iter()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_run_that_a_configuration_names_in_any_work_tree_or_by_any_spelling() {
    nothing_is_run_by_peoples_tools(NAMED.iter()).await;
    if !crate::support::lacks(&["python3"]) {
        nothing_is_run_by_peoples_tools(PYTHON.iter()).await;
    }
}
