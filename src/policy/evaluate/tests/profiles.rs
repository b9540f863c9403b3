//! What a profile gives and takes, and how far the rules that allow may change it.

use super::*;

const PROFILES: &str = r#"
    default_profile = "plain"
    [secrets.TOKEN]
    file = "/secrets/token"
    [secrets.OTHER]
    file = "/secrets/other"
    [profile.plain]
    secrets = ["OTHER"]
    environment = { set = { LD_DEBUG = "all" }, deny = ["LD_*"] }
    limits.terminal = { pids = 20, memory_bytes = 90000000 }
    times = { limit = "10s", grace = "1s", linger = "0s" }
    [profile.second]
    [profile.third]
    [[rule]]
    id = "anything"
    decision = "allow"
    argv = ["**"]
    [[rule]]
    id = "few"
    decision = "allow"
    argv = ["few"]
    effects = { limits = { pids = 9 }, secrets = ["TOKEN"] }
    [[rule]]
    id = "many"
    decision = "allow"
    argv = ["many"]
    effects = { limits = { pids = 90 } }
    [[rule]]
    id = "publish"
    decision = "ask"
    argv = ["git", "push"]
    reason = "publishing needs a person"
"#;

fn profiles() -> PolicySet {
    PolicySet::parse("p", PROFILES).unwrap()
}

fn spec(request: &Request) -> ExecSpec {
    decide(&profiles(), request).unwrap().into_spec()
}

#[test]
fn a_rule_lowers_limits_and_never_raises_one() {
    let limits = |name: &str| spec(&command(name, &[])).profile().limits.terminal;
    assert_eq!((limits("few").pids, limits("few").memory_bytes), (Some(9), Some(90_000_000)));
    assert_eq!(limits("many").pids, Some(20));
    assert_eq!(limits("other").pids, Some(20));
}

#[test]
fn a_command_gets_the_secrets_of_its_profile_and_of_its_rule_and_no_other() {
    let grant =
        |name: &str, file: &str| SecretGrant { name: name.to_owned(), file: std::path::PathBuf::from(file) };
    let other = grant("OTHER", "/secrets/other");
    assert_eq!(spec(&command("any", &[])).secrets(), std::slice::from_ref(&other));
    assert_eq!(spec(&command("few", &[])).secrets(), [other, grant("TOKEN", "/secrets/token")]);
}

#[test]
fn no_caller_gives_a_secrets_variable_a_value_of_its_own() {
    for request in [
        Request { env: with_env("TOKEN"), ..request() },
        Request { session_env: with_env("TOKEN").into(), ..request() },
    ] {
        assert_eq!(decide(&profiles(), &request).unwrap_err(), Denial::SecretVariable("TOKEN".into()));
    }
    let line = |text: &str| Request { command: CommandSpec::ShellLine(text.into()), ..request() };
    assert!(decide(&profiles(), &line("TOKEN=x ls")).is_err());
    assert!(decide(&profiles(), &line("PLAIN=x ls")).is_ok());
}

#[test]
fn a_denied_variable_passes_only_with_the_very_value_that_it_has_anyway() {
    let with = |value: &str| Request {
        env: vec![EnvEntry::new("LD_DEBUG".into(), value.into()).unwrap()],
        ..request()
    };
    assert!(decide(&profiles(), &with("all")).is_ok());
    assert!(matches!(decide(&profiles(), &with("libs")), Err(Denial::EnvironmentDenied { .. })));
}

#[test]
fn without_a_ceiling_the_profiles_own_limit_is_the_most() {
    let long = Request { time_limit: Some(Duration::from_secs(3600)), ..request() };
    assert_eq!(spec(&long).time_limit(), Some(Duration::from_secs(10)));
    let idle = Request { idle_limit: Some(Duration::from_secs(3)), ..request() };
    assert_eq!(spec(&idle).idle_limit(), Some(Duration::from_secs(3)));
}

#[test]
fn a_rule_moves_a_command_to_one_other_profile_and_not_on_to_a_third() {
    let policy = PolicySet::parse(
        "p",
        "default_profile = 'first'\n[profile.first]\npath = ['/first']\n[profile.second]\npath = ['/second']\n\
         [profile.third]\n\
         [[rule]]\nid = 'on'\ndecision = 'allow'\nargv = ['/first/tool']\neffects = { profile = 'second' }\n\
         [[rule]]\nid = 'further'\ndecision = 'allow'\nargv = ['/second/tool']\neffects = { profile = 'third' }\n",
    )
    .unwrap();
    let denial = policy.evaluate(&command("tool", &[]), &OnPaths { version: 1 }).decide(None).unwrap_err();
    assert!(matches!(denial, Denial::ProfileChain(..)), "{denial:?}");
}

#[test]
fn a_session_is_checked_by_its_profile_its_variables_and_its_directory() {
    let roots = [AbsPath::parse("/work").unwrap()];
    let inside = AbsPath::parse("/work/deep").unwrap();
    let check = |profile: Option<&str>, cwd: &AbsPath, env: &[EnvEntry]| {
        check_session(&profiles(), profile, &roots, cwd, env).map(|name| name.to_string())
    };
    assert_eq!(check(None, &inside, &with_env("FREE")), Ok("plain".into()));
    assert_eq!(check(Some("second"), &inside, &[]), Ok("second".into()));
    assert_eq!(check(Some("fourth"), &inside, &[]), Err(Denial::UnknownProfile("fourth".into())));
    let outside = AbsPath::parse("/workshop").unwrap();
    assert_eq!(check(None, &outside, &[]), Err(Denial::CwdOutsideRoots(outside.clone())));
    assert_eq!(check(None, &inside, &with_env("TOKEN")), Err(Denial::SecretVariable("TOKEN".into())));
    assert!(matches!(check(None, &inside, &with_env("LD_X")), Err(Denial::EnvironmentDenied { .. })));
}

#[test]
fn a_program_named_by_its_path_is_looked_for_there_and_a_bare_name_on_the_profiles_path() {
    let policy = PolicySet::parse(
        "p",
        "default_profile = 'a'\n[profile.a]\npath = ['/first']\n[[rule]]\nid = 'any'\ndecision = 'allow'\nargv = ['**']",
    )
    .unwrap();
    for (named, found) in [("tool", "/first/tool"), ("/other/tool", "/other/tool")] {
        let decided = policy.evaluate(&command(named, &[]), &OnPaths { version: 1 }).decide(None);
        assert_eq!(decided.unwrap().spec().resolved_file().map(|file| file.path.as_str()), Some(found));
    }
}

#[test]
fn a_question_gives_the_reason_of_the_rule_that_asks_and_the_trace_keeps_what_was_evaluated() {
    let push = command("git", &["push"]);
    let policy = profiles();
    let evaluation = policy.evaluate(&push, &NominalResolver);
    let trace = evaluation.trace();
    let asked = evaluation.decide(None);
    let Err(Denial::NeedsApproval(question)) = asked else { panic!("it asks: {asked:?}") };
    assert_eq!(question.reason.as_deref(), Some("publishing needs a person"));
    assert_eq!(
        (trace.digest, trace.commands.as_slice()),
        (Some(question.digest), &["git push".to_owned()][..])
    );
    // A request without a normal form leaves an empty trace.
    let nowhere = Request { profile: Some("fourth".into()), ..request() };
    let evaluation = policy.evaluate(&nowhere, &NominalResolver);
    let trace = evaluation.trace();
    assert!(evaluation.decide(None).is_err() && trace.digest.is_none() && trace.commands.is_empty());
}

#[test]
fn an_answer_to_one_principal_is_none_to_another_even_of_the_same_digest() {
    let Err(Denial::NeedsApproval(question)) = decide(&profiles(), &command("git", &["push"])) else {
        panic!("it asks")
    };
    let approval = ApprovalGrant::issue(&question, "uid:1000".into());
    let (digest, generation) = (question.digest, question.generation);
    assert!(approval.covers(digest, generation, "uid:1000"));
    assert!(!approval.covers(digest, generation, "uid:1001"));
    assert!(!approval.covers(digest, generation + 1, "uid:1000"));
    assert!(!approval.covers(Digest([0; 32]), generation, "uid:1000"));
}

#[test]
fn the_effects_of_a_rule_that_asks_are_in_the_spec_after_the_yes() {
    let policy = PolicySet::parse(
        "p",
        "default_profile = 'a'\n[profile.a]\n[profile.b]\n[secrets.TOKEN]\nfile = '/secrets/token'\n\
         [[rule]]\nid = 'any'\ndecision = 'allow'\nargv = ['**']\n\
         [[rule]]\nid = 'publish'\ndecision = 'ask'\nargv = ['git', 'push', '**']\n\
         effects = { profile = 'b', time_limit = '5s', environment = { J = '1' }, secrets = ['TOKEN'] }\n",
    )
    .unwrap();
    let approved = |request: &Request| {
        let denial = policy.evaluate(request, &NominalResolver).decide(None).unwrap_err();
        let Denial::NeedsApproval(question) = denial else { return Err(denial) };
        let approval = ApprovalGrant::issue(&question, "uid:1000".into());
        Ok(policy.evaluate(request, &NominalResolver).decide(Some(approval)).unwrap().into_spec())
    };
    let line = |text: &str| Request { command: CommandSpec::ShellLine(text.into()), ..request() };
    for request in [command("git", &["push"]), line("cd x && git push"), line("env A=b git push origin main")]
    {
        let spec = approved(&request).unwrap();
        assert_eq!(spec.profile_name().as_str(), "b");
        assert_eq!(spec.time_limit(), Some(Duration::from_secs(5)));
        assert!(spec.env().contains(&bytes::Bytes::from("J=1")));
        assert_eq!(spec.secrets().len(), 1);
    }
    // What cannot be seen is asked about, and gets nothing.
    let unseen = approved(&line("git $X")).unwrap();
    assert_eq!((unseen.profile_name().as_str(), unseen.secrets().len()), ("a", 0));
}

#[test]
fn effects_reach_no_other_command_of_a_line() {
    let policy = PolicySet::parse(
        "p",
        "default_profile = 'a'\n[profile.a]\n[profile.b]\n[secrets.TOKEN]\nfile = '/secrets/token'\n\
         [[rule]]\nid = 'any'\ndecision = 'allow'\nargv = ['**']\n\
         [[rule]]\nid = 'build'\ndecision = 'allow'\nargv = ['make', '**']\neffects.profile = 'b'\n\
         [[rule]]\nid = 'own'\ndecision = 'allow'\nargv = ['tool']\neffects.profile = 'a'\n\
         [[rule]]\nid = 'sign'\ndecision = 'allow'\nargv = ['sign', '**']\neffects.secrets = ['TOKEN']\n\
         [[rule]]\nid = 'set'\ndecision = 'allow'\nargv = ['jobs-of-make', '**']\neffects.environment = { J = '1' }\n",
    )
    .unwrap();
    let decided = |text: &str| {
        let request = Request { command: CommandSpec::ShellLine(text.into()), ..request() };
        policy.evaluate(&request, &NominalResolver).decide(None)
    };
    for (line, profile) in [
        ("make; make all", "b"),
        ("cd sub && export A=b && echo done; make", "b"),
        ("make || exit 3", "b"),
        ("timeout 5 make", "b"),
        ("f() { make; }; f", "b"),
        ("ls; tool; cat x", "a"),
        ("cd sub && sign x && echo done", "a"),
        ("sign $NAME", "a"),
        ("jobs-of-make; echo $HOME", "a"),
    ] {
        let permit = decided(line).unwrap_or_else(|denial| panic!("{line}: {denial}"));
        assert_eq!(permit.spec().profile_name().as_str(), profile, "{line}");
    }
    for (line, rule, reason) in [
        (
            "make && ls",
            "build",
            "rule \"build\" gives profile \"b\" to `make`, and in one line `ls` would have it, too",
        ),
        ("ls; make", "build", "to `make`, and in one line `ls`"),
        ("make | tool", "build", "profile \"b\""),
        ("make $(cat x)", "build", "`cat x`"),
        ("find . -exec make ';'", "build", "`find"),
        ("sign x; printenv", "sign", "the secret \"TOKEN\""),
        (
            "sign x; echo $TOKEN > file",
            "sign",
            "the secret \"TOKEN\" to `sign x`, and in one line `echo $TOKEN`",
        ),
        ("sign x; export -p > file", "sign", "`export -p`"),
        ("set > file; sign x", "sign", "`set`"),
        ("cd $TOKEN 2> file; sign x", "sign", "`cd $TOKEN`"),
        ("sign x; : > $TOKEN", "sign", "`> $TOKEN`"),
        ("exec 2> file; set -x; A=$TOKEN; sign x", "sign", "`set -x`"),
        ("sign x; $OTHER", "sign", "the secret"),
        ("jobs-of-make; ls", "set", "the variable \"J\""),
    ] {
        let denial = decided(line).err().unwrap_or_else(|| panic!("{line} runs"));
        assert!(
            matches!(denial, Denial::ConflictingEffects(_) | Denial::ProfileChain(..)),
            "{line}: {denial}"
        );
        assert_eq!(
            (denial.rule().as_str(), denial.to_string().contains(reason)),
            (rule, true),
            "{line}: {denial}"
        );
    }
}
