//! The workspace is the repository around the current directory, and nothing else becomes visible or writable by what a
//! command writes in its own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::cli::fixture::{Place, code, final_object, shown, stderr, stdout};

/// Makes a repository with one commit.
const REPOSITORY: &str = "git init -q . && git config user.name A && git config user.email a@b.c && \
                          echo first > file && git add file && git commit -qm first";

/// Runs a script on the host, as a person would.
fn outside(directory: &Path, script: &str) -> Output {
    Command::new("sh")
        .args(["-c", script])
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .expect("a shell is there")
}

/// As `outside`, for what must work.
fn prepared(directory: &Path, script: &str) -> String {
    let done = outside(directory, script);
    assert!(done.status.success(), "{script}: {}", shown(&done));
    stdout(&done)
}

/// A repository of that name next to the workspace.
fn repository(place: &Place, name: &str) -> PathBuf {
    let directory = place.path().canonicalize().expect("it is there").join(name);
    fs::create_dir_all(&directory).expect("a directory can be made");
    prepared(&directory, REPOSITORY);
    directory
}

/// Runs a script in a sandbox, started in a directory.
fn inside(place: &Place, directory: &Path, options: &[&str], script: &str) -> Output {
    place.run(options, &["sh", "-c", script]).current_dir(directory).output().expect("provost starts")
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path of a test is text")
}

#[test]
fn git_works_from_any_directory_of_a_repository() {
    let place = Place::new();
    let project = repository(&place, "project");
    let deep = project.join("py/deep");
    fs::create_dir_all(&deep).expect("directories can be made");
    let script = "pwd; git rev-parse --show-toplevel; echo new > made; git add made && \
                  git -c user.name=B -c user.email=b@c.d commit -qm second; git -C ../.. status --porcelain";
    let done = inside(&place, &deep, &["--report", "/dev/stderr"], script);
    assert_eq!(code(&done), 0, "{}", shown(&done));
    assert_eq!(stdout(&done), format!("{}\n{}\n", deep.display(), project.display()));
    assert_eq!(prepared(&project, "git log --format=%s"), "second\nfirst\n");
    let receipt = &final_object(&done)["receipt"];
    assert_eq!(receipt["roots"], serde_json::json!([path(&project)]));
    assert_eq!(receipt["repository"]["worktree"], path(&project));
    let named = inside(&place, &deep, &["--root", "."], "git status");
    assert_ne!(code(&named), 0, "a root that is named is all there is: {}", shown(&named));
    assert!(!stderr(&named).contains("notice: the workspace"), "{}", shown(&named));
}

#[test]
fn a_linked_worktree_comes_with_its_git_directory_whose_hooks_stay_as_they_are() {
    let place = Place::new();
    let project = repository(&place, "project");
    prepared(&project, "git worktree add -q ../linked -b side && echo secret > untracked");
    let linked = project.with_file_name("linked");
    fs::create_dir(linked.join("below")).expect("a directory can be made");
    // The attack, without a sandbox: the worktree's hooks are the repository's.
    let attack = "hooks=$(git rev-parse --path-format=absolute --git-common-dir)/hooks; mkdir -p $hooks; \
                  echo '#!/bin/sh' > $hooks/pre-commit && echo planted";
    assert_eq!(prepared(&linked, attack), "planted\n");
    fs::remove_file(project.join(".git/hooks/pre-commit")).expect("it was planted");

    let script = format!(
        "echo change >> ../file; git -c user.name=B -c user.email=b@c.d commit -qam side; git status --porcelain; \
         ls {0} {0}/untracked; {attack}",
        project.display()
    );
    let done = inside(&place, &linked.join("below"), &["--report", "/dev/stderr"], &script);
    assert_eq!(prepared(&project, "git log --format=%s side"), "side\nfirst\n", "{}", shown(&done));
    assert!(!project.join(".git/hooks/pre-commit").exists(), "{}", shown(&done));
    assert!(!stdout(&done).contains("planted") && !stdout(&done).contains("untracked"), "{}", shown(&done));
    let receipt = &final_object(&done)["receipt"];
    assert_eq!(receipt["roots"], serde_json::json!([path(&linked), path(&project.join(".git"))]));
}

#[test]
fn a_submodule_comes_with_its_own_git_directory_only() {
    let place = Place::new();
    let library = repository(&place, "library");
    let project = repository(&place, "project");
    let add = format!("git -c protocol.file.allow=always submodule add -q {} sub", library.display());
    prepared(&project, &format!("{add} && git commit -qm 'with a submodule'"));
    let script = "echo more >> file; git -c user.name=B -c user.email=b@c.d commit -qam inside; git status --porcelain; ls ..";
    let done = inside(&place, &project.join("sub"), &["--report", "/dev/stderr"], script);
    assert_eq!(code(&done), 0, "{}", shown(&done));
    assert_eq!(prepared(&project.join("sub"), "git log --format=%s"), "inside\nfirst\n");
    assert!(!stdout(&done).contains("file"), "the files around it are not there: {}", shown(&done));
    let roots = serde_json::json!([path(&project.join("sub")), path(&project.join(".git/modules/sub"))]);
    assert_eq!(final_object(&done)["receipt"]["roots"], roots);
}

#[test]
fn a_bare_repository_with_worktrees_in_one_directory_works_in_each() {
    let place = Place::new();
    let source = repository(&place, "source");
    let project = source.with_file_name("project");
    fs::create_dir(&project).expect("a directory can be made");
    let make = format!(
        "git clone -q --bare {} .bare && echo 'gitdir: ./.bare' > .git && git worktree add -q main",
        source.display()
    );
    prepared(&project, &make);
    for directory in [project.join("main"), project.clone()] {
        let done = inside(&place, &directory, &[], "git log --format=%s");
        assert_eq!(stdout(&done), "first\n", "{}", shown(&done));
    }
}

/// What a command writes into its workspace, so that the next one sees more: a script, run with the victim's path in `$1`.
const HOSTILE: [(&str, &str, &str); 4] = [
    ("a .git file", "echo gitdir: $1/.git > .git", "does not point back"),
    (
        "a link of a worktree",
        "mkdir -p fake && echo gitdir: $PWD/fake > .git && echo $1/.git > fake/commondir && \
         echo $PWD/.git > fake/gitdir && echo ref: refs/heads/$(git -C $1 branch --show-current) > fake/HEAD",
        "does not point back",
    ),
    ("a link in place of .git", "ln -s $1/.git .git", "is a link"),
    (
        "a repository whose configuration names another's files",
        "git init -q --bare fake && git -C fake config core.bare false && git -C fake config core.worktree $1 && \
         echo gitdir: $PWD/fake > .git && echo $1/.git/objects > fake/objects/info/alternates && \
         cp $1/.git/refs/heads/* fake/refs/heads/",
        "",
    ),
];

#[test]
fn no_file_that_a_command_writes_shows_another_repository() {
    for (name, script, reason) in HOSTILE {
        let place = Place::new();
        let victim = repository(&place, "victim");
        let work = place.work().canonicalize().expect("it is there");
        let plant = format!("set -- {}; {script}", victim.display());
        prepared(&work, &plant);
        // The attack, without checks: git believes what it reads.
        let look = "git log --format=%s --all";
        assert_eq!(prepared(&work, look), "first\n", "{name}");

        let attack = format!("{look}; ls -a {0}; echo planted > {0}/planted", victim.display());
        let done = inside(&place, &work, &["--report", "/dev/stderr"], &attack);
        assert!(
            !stdout(&done).contains("first") && !stdout(&done).contains("file"),
            "{name}: {}",
            shown(&done)
        );
        assert!(!victim.join("planted").exists(), "{name}: {}", shown(&done));
        assert_eq!(final_object(&done)["receipt"]["roots"], serde_json::json!([path(&work)]), "{name}");
        assert!(stderr(&done).contains(reason), "{name}: {}", shown(&done));
    }
}

#[test]
fn a_repository_of_another_user_is_not_taken() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: only root can give a directory to another user");
        return;
    }
    let place = Place::new();
    let project = repository(&place, "project");
    let own = project.join("own");
    fs::create_dir(&own).expect("a directory can be made");
    std::os::unix::fs::chown(&project, Some(4_321), Some(4_321)).expect("root can");
    let done = inside(&place, &own, &["--report", "/dev/stderr"], "ls ..; cat ../file");
    assert!(!stdout(&done).contains("file"), "{}", shown(&done));
    assert!(stderr(&done).contains("belongs to uid 4321"), "{}", shown(&done));
    assert!(
        stderr(&done).contains("notice: the workspace is the current directory alone"),
        "{}",
        shown(&done)
    );
}

#[test]
fn a_home_that_is_a_repository_is_not_taken_nor_is_what_belongs_to_it() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: only root can give a user another home");
        return;
    }
    let place = Place::new();
    let home = repository(&place, "home");
    prepared(&home, "git worktree add -q ../linked -b side; mkdir project");
    let users = format!("someone:x:4322:4322::{}:/bin/sh\n", home.display());
    let passwd = place.path().join("passwd");
    fs::write(&passwd, fs::read_to_string("/etc/passwd").expect("it can be read") + &users)
        .expect("it can be written");
    let at = |directory: &Path| {
        let run = place.run(&["--report", "/dev/stderr"], &["sh", "-c", "git log --format=%s; ls .."]);
        let words: Vec<_> = std::iter::once(run.get_program()).chain(run.get_args()).collect();
        let mut host = Command::new("unshare");
        let script = "mount --bind \"$0\" /etc/passwd && exec \"$@\"";
        host.args(["-m", "sh", "-c", script]).arg(&passwd).args(words).current_dir(directory);
        host.env_remove("PROVOST_GATEWAY").output().expect("unshare is there")
    };
    for directory in [home.join("project"), home.with_file_name("linked")] {
        assert_eq!(prepared(&directory, "git log --format=%s"), "first\n", "git itself takes it");
        let done = at(&directory);
        assert!(!stdout(&done).contains("first") && !stdout(&done).contains("file"), "{}", shown(&done));
        assert!(stderr(&done).contains("is or holds the"), "{}", shown(&done));
        assert_eq!(final_object(&done)["receipt"]["roots"], serde_json::json!([path(&directory)]));
    }
}

#[test]
fn a_read_only_directory_is_shown_and_not_written() {
    let place = Place::new();
    let shared = place.path().canonicalize().expect("it is there").join("shared");
    fs::create_dir(&shared).expect("a directory can be made");
    fs::write(shared.join("data"), "known\n").expect("a file can be written");
    let script =
        format!("cat {0}/data; echo x > {0}/data; echo x > {0}/new; mkdir {0}/.git", shared.display());
    assert_ne!(stdout(&place.output(&[], &["sh", "-c", &script])), "known\n", "it is not there by itself");
    let done = place.output(&["--ro", path(&shared), "--report", "/dev/stderr"], &["sh", "-c", &script]);
    assert_eq!(stdout(&done), "known\n", "{}", shown(&done));
    assert_eq!(fs::read_to_string(shared.join("data")).expect("it is there"), "known\n");
    assert_eq!(fs::read_dir(&shared).expect("it is there").count(), 1, "nothing was made");
    assert_eq!(final_object(&done)["receipt"]["read_only_roots"], serde_json::json!([path(&shared)]));
    let home = place.output(&["--ro", "/root"], &["true"]);
    assert_eq!(code(&home), 125, "{}", shown(&home));
    assert!(stderr(&home).contains("read_only_roots[0]"), "{}", shown(&home));
}
