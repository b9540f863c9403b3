//! Options that would get a command round a rule, or into a permission: between subcommands, behind `--`, in other spellings.

use super::*;

/// What is decided about a line, where anything else may run.
fn decide(rule: &str, line: &str) -> Decision {
    let anything = "[[rule]]\nid = 'anything'\ndecision = 'allow'\nargv = ['**']\n";
    decide_by(&rules_of(&format!("{anything}[[rule]]\nid = 'r'\ndecision = 'deny'\n{rule}")), line)
}

fn decide_by(rules: &[Rule], line: &str) -> Decision {
    let request = in_work();
    let line = CommandInput::ShellLine(line, Dialect::Bash);
    evaluate_rules(line, context(rules, &NominalResolver, &request)).decision
}

#[test]
fn options_between_subcommands_do_not_get_round_a_rule() {
    let compose = "argv = ['docker', 'compose', 'down', '**']";
    let remote = "argv = ['git', 'remote', ['remove', 'add'], '**']";
    let config = "argv = ['kubectl', 'config', 'view', '**']";
    let undo = "argv = ['kubectl', 'rollout', 'undo', '**']";
    let tag = "argv = ['npm', 'dist-tag', 'add', '**']";
    let origin = "argv = ['git', 'push', 'origin', 'release/*']";
    for (rule, line, decision) in [
        (compose, "docker compose -f x.yml down", Decision::Deny),
        (compose, "docker -c ctx compose --project-name=x down -v", Decision::Deny),
        (compose, "docker compose --later x down", Decision::Ask),
        (compose, "docker compose up down", Decision::Allow),
        (remote, "git remote -v remove foo", Decision::Deny),
        (remote, "git -C x remote --verbose add x y", Decision::Deny),
        (remote, "git remote --later remove foo", Decision::Ask),
        (remote, "git remote -v", Decision::Allow),
        (config, "kubectl config -oyaml view", Decision::Deny),
        (config, "kubectl config -xyaml view", Decision::Ask),
        (config, "kubectl config --output yaml view", Decision::Deny),
        (config, "kubectl config current-context", Decision::Allow),
        (undo, "kubectl rollout -R undo x", Decision::Deny),
        (undo, "kubectl rollout --to-revision=1 undo x", Decision::Deny),
        (undo, "kubectl rollout status -f undo", Decision::Allow),
        (tag, "npm dist-tag --foo x add y", Decision::Ask),
        (tag, "npm dist-tag --tag x add y", Decision::Deny),
        (tag, "npm dist-tag ls", Decision::Allow),
        (origin, "git push -u origin release/1", Decision::Deny),
        (origin, "git push -o x origin --later release/1", Decision::Ask),
        (origin, "git push origin main", Decision::Allow),
    ] {
        assert_eq!(decide(rule, line), decision, "{rule}: {line}");
    }
}

#[test]
fn two_dashes_hide_no_flag_of_a_rule() {
    let force = "argv = ['git', 'push', '**']\nflags = ['-f', '--force']";
    let delete = "argv = ['find', '**']\nflags = ['-delete']";
    let own = "argv = ['./mytool', '**']\nflags = ['--prod']";
    for (rule, line, decision) in [
        (force, "git push --repo -- --repo -- --force origin main", Decision::Ask),
        (force, "git push -- origin main", Decision::Allow),
        (delete, "find -- ft -name '*.o' -delete", Decision::Deny),
        (delete, "find -- ft -name '*.o'", Decision::Allow),
        (own, "./mytool -- --prod", Decision::Ask),
        (own, "./mytool -- --test", Decision::Allow),
    ] {
        assert_eq!(decide(rule, line), decision, "{rule}: {line}");
    }
}

#[test]
fn a_link_to_a_program_under_another_name_ends_its_options_as_the_program_does() {
    struct Linked;
    impl ProgramResolver for Linked {
        fn find_in_path(&self, name: &str) -> Resolved {
            NominalResolver.find_in_path(name)
        }
        fn resolve_path(&self, path: &str, cwd: &str) -> Resolved {
            match path {
                "./git" => NominalResolver.resolve_path("/usr/bin/find", "/"),
                path => NominalResolver.resolve_path(path, cwd),
            }
        }
    }
    let text = "[[rule]]\nid = 'any'\ndecision = 'allow'\nargv = ['**']\n\
                [[rule]]\nid = 'd'\ndecision = 'deny'\nargv = ['find', '**']\nflags = ['-delete']\n";
    let rules = rules_of(text);
    let request = in_work();
    let context = context(&rules, &Linked, &request);
    let words: Vec<String> = ["./git", "--", "x", "-delete"].map(str::to_owned).to_vec();
    assert_eq!(evaluate_rules(CommandInput::Argv(&words), context).decision, Decision::Deny);
}

#[test]
fn a_permission_with_a_flag_covers_the_flag_and_not_its_contrary() {
    let of = |argv: &str, flags: &str| {
        rules_of(&format!("[[rule]]\nid = 'r'\ndecision = 'allow'\nargv = {argv}\nflags = {flags}"))
    };
    let push = of("['git', 'push', '**']", "['--dry-run']");
    let apply = of("['kubectl', ['apply', 'delete'], '**']", "['--dry-run=client']");
    let publish = of("['npm', 'publish', '**']", "['--dry-run']");
    let install = of("['pip', 'install', '**']", "['--require-hashes']");
    for (rule, allowed, denied) in [
        (&push, "git push --dry-run origin main", "git push --dry-run --no-dry-run origin main"),
        (&push, "git push -v --dry-run", "git push --repo --dry-run origin"),
        (&apply, "kubectl delete pod x --dry-run=client", "kubectl delete pod x --dry-run=none"),
        (&apply, "kubectl apply -f x --dry-run=client", "kubectl apply -f --dry-run=client"),
        (&publish, "npm publish --silent --dry-run", "npm publish --dry-run=false"),
        (&publish, "npm publish --dry-run .", "npm publish --dry-run false"),
        (&install, "pip install --require-hashes -r x", "pip install --log --require-hashes evil"),
        (&install, "pip install -q --no-deps --require-hashes -r x", "pip install -- --require-hashes"),
    ] {
        assert_eq!(decide_by(rule, allowed), Decision::Allow, "{allowed}");
        assert_eq!(decide_by(rule, denied), Decision::Deny, "{denied}");
    }
}
