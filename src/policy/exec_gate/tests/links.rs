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
