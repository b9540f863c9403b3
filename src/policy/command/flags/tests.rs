//! Which spellings of an option a rule finds, and which of them a rule that allows takes for the option.

use super::{
    super::{shell::OpaqueReason, tool_options},
    *,
};

/// The words of a line behind its program; `$` is one that is not known.
fn words(line: &str) -> Vec<Word> {
    let word = |text: &str| match text {
        "$" => Word::Opaque { text: "$".into(), reason: OpaqueReason::Expansion },
        text => Word::Literal(text.into()),
    };
    line.split(' ').skip(1).map(word).collect()
}

fn flags(texts: &str) -> Flags {
    let texts: Vec<String> = texts.split(' ').map(str::to_owned).collect();
    Flags::compile(&texts).unwrap_or_else(|error| panic!("{error}"))
}

/// What a rule that denies or asks about these options finds in a line.
fn caught(texts: &str, line: &str) -> Match {
    let program = line.split(' ').next().unwrap_or_default();
    flags(texts).any(&words(line), OptionSyntax::of([program]))
}

/// What a rule that allows with these options finds in a line.
fn allowed(texts: &str, line: &str) -> Match {
    let (program, words) = (line.split(' ').next().unwrap_or_default(), words(line));
    flags(texts).surely_any(&words, |option| tool_options::takes_nothing(program, &words, option))
}

#[test]
fn a_flag_is_found_wherever_it_stands() {
    for line in ["git x -f", "git -rf", "git --force", "git --force=yes", "git a b -xfz"] {
        assert_eq!(caught("-f --force", line), Match::Yes, "{line}");
    }
    for line in ["git x", "git -- -f", "git --forced", "git --no-f"] {
        assert_eq!(caught("-f --force", line), Match::No, "{line}");
    }
    for line in ["git --forc", "git --fo=x", "git $"] {
        assert_eq!(caught("-f --force", line), Match::Perhaps, "{line}");
    }
}

#[test]
fn two_dashes_that_may_be_a_value_end_nothing_and_no_later_ones_do() {
    for line in [
        "git push --repo -- --force",
        "git push --repo -- --repo -- --force origin",
        "git push -o -- -o -- -f",
        "git push -o -- -- -f",
        "git push -o -- origin -- -f",
        "git push $ -- -f",
    ] {
        assert_eq!(caught("-f --force", line), Match::Perhaps, "{line}");
    }
    assert_eq!(caught("-d --data", "curl -A -- -e -- -d x http://h"), Match::Perhaps);
    assert_eq!(caught("-d --data", "curl -A -- -A -- -dx http://h"), Match::Perhaps);
    assert_eq!(caught("-f", "git push -o -- -f -- x"), Match::Perhaps);
    assert_eq!(caught("-f", "git push -f -o -- x"), Match::Yes);
}

#[test]
fn two_dashes_end_the_options_of_programs_that_say_so() {
    for line in ["find -- ft -name x -delete", "find . -name -- -delete", "find . ! -name -- -- -delete"] {
        assert_eq!(caught("-delete", line), Match::Yes, "{line}");
    }
    for line in ["mytool -- -x", "mytool a -- b -x", "tar cf -- -x", "jq --arg a -- -x"] {
        assert_eq!(caught("-x", line), Match::Perhaps, "{line}");
    }
    for line in ["grep -- -x f", "cargo test -- -x", "npm test -- -x", "git checkout -- -x", "rm -- -x"] {
        assert_eq!(caught("-x", line), Match::No, "{line}");
    }
}

#[test]
fn a_long_flag_of_one_dash_is_found_with_two_and_with_a_value() {
    for line in ["go -exec ./x", "go -exec=./x", "go --exec ./x", "go --exec=./x", "mytool --exec x"] {
        assert_eq!(caught("-exec", line), Match::Yes, "{line}");
    }
    for line in ["go -executable", "go -e", "go --executable=x", "go exec", "go -x=-exec"] {
        assert_eq!(caught("-exec", line), Match::No, "{line}");
    }
    // Where long options have one dash, it is the same with a flag that is written with two.
    assert_eq!(caught("--auto-approve", "terraform apply -auto-approve=true"), Match::Yes);
    assert_eq!(caught("-auto-approve", "terraform apply --auto-approve"), Match::Yes);
    assert_eq!(caught("--force", "git x -force"), Match::No);
    assert_eq!(caught("-v", "go test --v"), Match::Yes);
    assert_eq!(caught("-rf", "rm -rf x"), Match::Yes);
    assert_eq!(caught("-rf", "rm --recursive --force x"), Match::No);
}

#[test]
fn a_rule_that_allows_takes_the_exact_word_and_no_value_of_another_option() {
    for line in [
        "git push --dry-run",
        "git push --dry-run origin main",
        "git push origin main --dry-run",
        "git push -u --dry-run origin",
        "git push --repo=x --dry-run",
        "git push --repo --dry-run --dry-run x --dry-run",
        "mytool --dry-run",
    ] {
        assert_eq!(allowed("--dry-run", line), Match::Yes, "{line}");
    }
    for line in [
        "git push",
        "git push --repo --dry-run",
        "git push -o --dry-run",
        "git push -vo --dry-run",
        "git push -- --dry-run",
        "git push --dry-run=x",
        "git push --dry",
        "git -v --dry-run",
        "git log -v --dry-run",
        "mytool --verbose --dry-run",
        "mytool +x --dry-run",
    ] {
        assert_eq!(allowed("--dry-run", line), Match::No, "{line}");
    }
    assert_eq!(allowed("--require-hashes", "pip install --log --require-hashes evil"), Match::No);
    assert_eq!(allowed("--require-hashes", "pip install --no-deps -q --require-hashes -r x"), Match::Yes);
    assert_eq!(allowed("-n", "git push -qn"), Match::No);
}

#[test]
fn a_rule_that_allows_does_not_when_its_flag_is_taken_back() {
    for line in [
        "git push --dry-run --no-dry-run",
        "git push --no-dry-run --dry-run",
        "git push --dry-run --no-dry",
        "git push --dry-run --nodry-run",
        "git push --dry-run --disable-dry-run",
        "git push --dry-run --dry-run=false",
        "git push --dry-run --dry=none",
        "git push --dry-run -dry-run=0",
        "npm publish --dry-run false",
        "npm publish --dry-run null x",
        "npm publish --dry-run=false",
        "kubectl delete --dry-run=none",
    ] {
        assert_eq!(allowed("--dry-run", line), Match::No, "{line}");
    }
    assert_eq!(allowed("-n --dry-run", "git push -n --no-dry-run"), Match::No);
    assert_eq!(allowed("--no-verify", "git push --no-verify --verify"), Match::No);
    assert_eq!(allowed("--no-verify", "git push --no-verify -v --verbose"), Match::Yes);
    let of_client = |line| allowed("--dry-run=client", line);
    assert_eq!(of_client("kubectl apply --dry-run=client"), Match::Yes);
    assert_eq!(of_client("kubectl apply --dry-run=none --dry-run=client"), Match::No);
    assert_eq!(of_client("kubectl apply --dry-run=client --dry-run none"), Match::No);
    assert_eq!(of_client("kubectl apply --dry-run"), Match::No);
}

#[test]
fn what_is_not_known_may_take_a_flag_back() {
    assert_eq!(allowed("--dry-run", "git push --dry-run $"), Match::Perhaps);
    assert_eq!(allowed("--dry-run", "git push $"), Match::Perhaps);
    assert_eq!(allowed("--dry-run", "git push $ --no-dry-run"), Match::No);
}

#[test]
fn what_stands_behind_two_dashes_is_known_by_program() {
    let behind = |names: &[&str]| OptionSyntax::of(names.iter().copied()).behind_dashes;
    assert_eq!(behind(&["git"]), BehindDashes::Operands);
    assert_eq!(behind(&["find"]), BehindDashes::Options);
    assert_eq!(behind(&["mytool"]), BehindDashes::Unknown);
    assert_eq!(behind(&["git", "mytool"]), BehindDashes::Unknown);
    assert_eq!(behind(&["git", "find"]), BehindDashes::Options);
    assert_eq!(behind(&[]), BehindDashes::Unknown);
    assert_eq!(OptionSyntax::of(["go"]).long_options, LongOptions::OneDash);
    assert_eq!(OptionSyntax::of(["git"]).long_options, LongOptions::TwoDashes);
}

#[test]
fn no_program_is_in_both_lists() {
    assert_eq!(DATA.ends_options.intersection(&DATA.ends_nothing).count(), 0);
    // An option of these may take two words, or its value without a dash before it: `jq --arg NAME VALUE`, `tar cf FILE`.
    for program in ["jq", "tar", "zip", "ps", "ar"] {
        assert!(!DATA.ends_options.contains(program), "{program}");
    }
}
