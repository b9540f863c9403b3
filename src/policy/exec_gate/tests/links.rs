//! Links, and files that call themselves what they are not.

use super::*;

fn all_but(rules: &str) -> PolicySet {
    policy(&(rule("all", "allow", "['**']", "") + rules))
}

#[test]
fn a_file_that_calls_itself_gits_is_denied_as_git_and_needs_a_rule_of_its_own() {
    let rules = rule("git", "allow", "['git', 'status', '**']", "")
        + &rule("push", "deny", "['git', 'push', '**']", "");
    let strict = policy(&rules);
    assert_eq!(decision(&strict, "/usr/lib/git-core/git-status"), Allow);
    for line in ["/work/git-core/git-status", "/work/usr/lib/git-core/git-status", "/work/git-status x"] {
        assert_eq!(decision(&strict, line), Deny, "{line}");
    }
    assert_eq!(Exec::of("/work/git-core/x").named("git-status").decision(&strict), Deny);
    // What the trusted path has under such a name is a subcommand.
    assert_eq!(decision(&strict, "/usr/bin/git-status"), Allow);
    assert_eq!(decision(&strict, "/usr/bin/git-lfs x"), Deny);
    let open = all_but(&rules);
    assert_eq!(decision(&open, "/work/git-core/git-status"), Allow);
    assert_eq!(decision(&open, "/work/git-core/git-push x"), Deny);
    assert_eq!(Exec::of("/work/x y").named("git-push").decision(&open), Deny);
}

#[test]
fn a_link_to_many_programs_is_denied_as_each_that_it_may_be() {
    let rules = rule("dd", "deny", "['dd', '**']", "") + &rule("units", "deny", "['systemctl', '**']", "");
    let open = all_but(&rules);
    for line in ["/work/bb dd x", "/work/busybox-x dd x", "/work/s --version", "/work/s"] {
        assert_eq!(decision(&open, line), Deny, "{line}");
    }
    assert_eq!(Exec::of("/usr/bin/ls dd").named("busybox-x").decision(&open), Deny);
    assert_eq!(Exec::of("/usr/bin/reboot now").named("s").decision(&open), Deny);
    assert_eq!(decision(&open, "/work/bb sh -c x"), Ask, "it may run dd without an exec");
    for line in ["/work/bb ls x", "/usr/bin/ls dd", "/usr/bin/reboot now", "/work/bb -x dd"] {
        assert_eq!(decision(&open, line), Allow, "{line}");
    }
    // What it may be is no permission.
    let rules = rule("dd", "allow", "['dd', '**']", "") + &rule("bb", "allow", "['busybox', '**']", "");
    let strict = policy(&rules);
    assert_eq!(decision(&strict, "/work/bb dd x"), Deny);
    let rules = rule("make", "allow", "['make', '**']", "starts = 'any'")
        + &rule("bb", "allow", "['/usr/bin/busybox', '**']", "");
    assert_eq!(Exec::of("/work/bb make").under(&policy(&rules)).starts_any, None);
}

#[test]
fn a_link_to_a_loader_is_one_by_any_name() {
    let open = all_but(&rule("rm", "deny", "['rm', '**']", ""));
    for loader in ["/work/ll", "/work/busybox"] {
        assert_eq!(decision(&open, &format!("{loader} /usr/bin/rm x")), Deny, "{loader}");
        assert_eq!(decision(&open, &format!("{loader} /work/bb rm x")), Deny, "{loader}");
        assert_eq!(decision(&open, &format!("{loader} /usr/bin/cat x")), Allow, "{loader}");
        assert_eq!(decision(&open, &format!("{loader} --preload x /usr/bin/rm")), Ask, "{loader}");
    }
}

#[test]
fn a_rule_for_a_relative_path_is_about_the_file() {
    let open = all_but(&rule("publish", "ask", "['./gradlew', 'publish', '**']", ""));
    for path in ["/work/gradlew", "/work/./gradlew", "/work/app/../gradlew", "/work/h"] {
        assert_eq!(decision(&open, &format!("{path} publish")), Ask, "{path}");
        assert_eq!(decision(&open, &format!("{path} build")), Allow, "{path}");
    }
    let strict = policy(&rule("scripts", "allow", "['./scripts/*', '**']", ""));
    for (path, expected) in [
        ("/work/scripts/x", Allow),
        ("/work/scripts/../scripts/x", Allow),
        ("/work/scripts/../x", Deny),
        ("/work/scripts/../../usr/bin/getconf", Deny),
        ("/work/scripts/out", Deny),
        ("/work/sub/scripts/x", Deny),
    ] {
        assert_eq!(decision(&strict, path), expected, "{path}");
    }
}

/// Rules that deny what applets run, and rules about other things.
fn applets() -> PolicySet {
    all_but(
        &(rule("dd", "deny", "['dd', '**']", "")
            + &rule("rm", "deny", "['rm', '**']", "flags = ['-r', '--recursive']")
            + &rule("push", "ask", "['git', 'push', '**']", "")),
    )
}

#[test]
fn what_an_applet_runs_by_its_name_is_judged_with_it() {
    let open = applets();
    for line in [
        "/usr/bin/busybox find d -exec dd x ;",
        "/usr/bin/busybox find d -exec rm -r {} ;",
        "/usr/bin/busybox find d -exec ls x ; -exec dd x ;",
        "/usr/bin/busybox xargs dd",
        "/usr/bin/busybox xargs -n 1 rm -r",
        "/usr/bin/busybox /bin/find d -exec dd x ;",
        "/work/toybox nice dd x",
        "/work/toybox nice -n 5 dd x",
        "/work/toybox timeout 5 dd x",
        "/work/toybox nohup dd x",
        "/work/toybox setsid dd x",
        "/work/toybox env -i A=b dd x",
        "/work/toybox time dd x",
        "/work/toybox xargs nice timeout 5 dd",
        "/usr/bin/busybox busybox xargs dd",
        "/usr/bin/busybox-static xargs dd",
        "/work/toybox-0.8 xargs dd",
        "/work/bb find d -exec dd x ;",
        "/lib64/ld-linux-x86-64.so.2 /usr/bin/busybox xargs dd",
    ] {
        assert_eq!(decision(&open, line), Deny, "{line}");
        assert_eq!(Exec::of(line).starting_anything().decision(&open), Deny, "{line}");
    }
    // By the name of a link, or of argv[0].
    assert_eq!(Exec::of("/usr/bin/busybox d -exec dd x ;").named("find").decision(&open), Deny);
    assert_eq!(Exec::of("/work/bb dd").named("/tmp/xargs").decision(&open), Deny);
    assert_eq!(Exec::of("/usr/bin/ls 5 dd").named("timeout").decision(&open), Deny);
}

#[test]
fn what_an_applet_runs_and_cannot_be_read_is_asked_about() {
    let open = applets();
    for line in [
        "/usr/bin/busybox find d -exec {} x ;",
        "/usr/bin/busybox find d -exec rm {} ;",
        "/usr/bin/busybox xargs rm",
        "/usr/bin/busybox xargs -I% % x",
        "/usr/bin/busybox xargs sh -c x",
        "/usr/bin/busybox find d -exec sh -c x ;",
        "/usr/bin/busybox nice -Z dd",
        "/usr/bin/busybox hush -c x",
        "/usr/bin/busybox /bin/sh x",
        "/usr/bin/busybox chpst -v dd",
        "/usr/bin/busybox watch ls",
        "/work/toybox nc -l -p 1 ls",
        "/work/toybox inotifyd dd x",
        "/work/toybox tar -xf x -Idd",
        "/work/toybox nice nice nice nice nice nice nice nice dd",
    ] {
        assert_eq!(decision(&open, line), Ask, "{line}");
    }
    // A shell that is a link to it runs applets, too.
    let links = Links(&[("/work/sh", "/usr/bin/busybox")]);
    assert_eq!(Exec::of("/work/sh -c x").decision_with(&open, &links), Ask);
}

#[test]
fn everyday_use_of_applets_is_not_asked_about() {
    let open = applets();
    for line in [
        "/usr/bin/busybox find . -name x",
        "/usr/bin/busybox find . -exec cat {} +",
        "/usr/bin/busybox xargs grep x",
        "/usr/bin/busybox xargs",
        "/usr/bin/busybox nc host 80",
        "/usr/bin/busybox tar -czf x d",
        "/usr/bin/busybox timeout 5 /work/x dd",
        "/work/toybox time make",
        "/usr/bin/coreutils env dd x",
        "/work/busyboxing xargs dd",
    ] {
        assert_eq!(decision(&open, line), Allow, "{line}");
    }
    // What it runs without an exec needs a rule, and what it executes is judged then.
    let rules = rule("find", "allow", "['find', '**']", "") + &rule("cat", "allow", "['cat', '**']", "");
    let strict = policy(&rules);
    for (line, expected) in [
        ("/usr/bin/busybox find . -exec cat {} +", Allow),
        ("/usr/bin/busybox xargs cat", Allow),
        ("/usr/bin/busybox find . -exec wc {} +", Deny),
        ("/usr/bin/busybox xargs wc", Deny),
        ("/usr/bin/busybox xargs ./wc", Allow),
    ] {
        assert_eq!(decision(&strict, line), expected, "{line}");
    }
}

#[test]
fn wrappers_that_the_trusted_path_takes_from_one_program_are_read_and_its_shell_is_trusted() {
    let usual = Links(&[("sh", "busybox"), ("xargs", "busybox"), ("timeout", "busybox")]);
    let open = applets();
    let of = |line: &str| Exec::of(line).decision_with(&open, &usual);
    assert_eq!(of("/bin/sh -c x"), Allow);
    assert_eq!(of("/usr/bin/timeout 5 sh -c x"), Allow);
    assert_eq!(of("/usr/bin/xargs grep x"), Allow);
    assert_eq!(of("/usr/bin/xargs dd"), Deny);
    assert_eq!(of("/usr/bin/timeout 5 git push"), Ask);
}
