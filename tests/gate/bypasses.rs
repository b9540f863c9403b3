//! Known ways round a reader of lines, each run for real by several shells: what is denied does not run, however it is hidden.
//!
//! The lines are those of `policies/tests/corpus.toml`. They stand in files, which nobody reads before a shell does.

use std::{fs, path::Path, sync::Arc};

use crate::gate::told::{RULE, without_gate};
use crate::support::{Gateway, Options, Session, add_rule, code};

/// What the lines hide: denied by a rule, and harmless.
const TARGET: [&str; 2] = ["touch", "published"];

/// The shells differ in the arguments that some lines give the target.
fn denying(policy: &mut toml::Table) {
    let rule = format!(
        "id = '{RULE}'\ndecision = 'deny'\nargv = ['touch', '**']\nreason = 'nothing is touched here'"
    );
    add_rule(policy, &rule);
}

const SHELLS: [&str; 4] = ["dash", "bash", "zsh", "mksh"];

/// Runs each line in a directory of its own, and prints the numbers of those after which the target has run.
const DRIVER: &str = r#"
here=$PWD
for file in "$here"/lines/*; do
    number=${file##*/}
    mkdir -p "$here/at/$number/a b" && cd "$here/at/$number" || exit 1
    : > x; : > y; HOME=$PWD timeout -k 1 5 "$1" "$file" >/dev/null 2>&1 </dev/null
    [ -z "$(find "$here/at/$number" -name published 2>/dev/null)" ] || echo "$number"
    cd "$here" && rm -rf "$here/at/$number"
done
echo ended
"#;

/// Every so-many-th of the lines, with the target in it.
fn lines(every: usize) -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/policies/tests/corpus.toml");
    let corpus: toml::Table = fs::read_to_string(path).expect("it is there").parse().expect("it is TOML");
    let [name, rest] = TARGET;
    let line = format!("{name} {rest}");
    let filled = |template: &str| {
        template
            .replace("{line}", &line)
            .replace("{quoted}", &format!("'{line}'"))
            .replace("{twice}", &format!("\"sh -c '{line}'\""))
            .replace("{name}", name)
            .replace("{rest}", rest)
            .replace("{scattered}", "to''uch")
            .replace("{escaped}", "\\t\\o\\u\\c\\h")
    };
    let templates = corpus["attack"].as_array().expect("a list").iter().step_by(every);
    templates.map(|one| filled(one["line"].as_str().expect("a line"))).collect()
}

/// The lines after which the target has run in this shell.
async fn effective(gateway: &Arc<Gateway>, shell: &str, lines: &[String]) -> Vec<String> {
    let session = Session::open(gateway).await;
    let directory = session.workspace.join("lines");
    fs::create_dir(&directory).expect("a directory can be made");
    for (number, line) in lines.iter().enumerate() {
        fs::write(directory.join(format!("{number:03}")), line).expect("a file can be made");
    }
    fs::write(session.workspace.join("driver"), DRIVER).expect("a file can be made");
    let done = session.command("sh").args(["driver", shell]).retain(1 << 20).finish().await;
    assert_eq!(code(&done.outcome), 0, "{}", done.text());
    let text = done.text();
    let mut numbers: Vec<String> = text.lines().map(str::to_owned).collect();
    assert_eq!(numbers.pop().as_deref(), Some("ended"), "{text}");
    if !numbers.is_empty() || done.outcome.exec_denials.is_empty() {
        return numbers;
    }
    assert!(done.outcome.exec_denials.iter().any(|denial| denial.rule == RULE), "{:?}", done.outcome);
    session.close().await;
    numbers
}

async fn no_line_gets_round(shells: &[&str], every: usize) {
    let lines = lines(every);
    let gated = Gateway::start_with(Options { policy: Some(denying), ..Options::default() });
    let plain = Gateway::with_policy(without_gate);
    for shell in shells {
        if !["/bin", "/usr/bin"].iter().any(|place| Path::new(place).join(shell).exists()) {
            println!("SKIPPED: {shell} is not there");
            assert!(std::env::var_os("CI").is_none() || *shell != "dash", "CI has dash");
            continue;
        }
        let without = effective(&plain, shell, &lines).await;
        println!("{shell}: {} of {} lines run what they hide without a gate", without.len(), lines.len());
        assert!(without.len() >= 50 / every, "the attacks work in {shell}: {without:?}");
        assert_eq!(effective(&gated, shell, &lines).await, [""; 0], "{shell}");
    }
    gated.stop();
    plain.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: .ci/run runs it"]
async fn no_line_of_the_corpus_runs_in_dash_what_a_rule_denies() {
    no_line_gets_round(&SHELLS[..1], 1).await;
}

/// Run by `.ci/long` alone.
mod nightly {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "long: .ci/long execs runs it"]
    async fn no_line_of_the_corpus_runs_in_any_shell_what_a_rule_denies() {
        no_line_gets_round(&SHELLS, 1).await;
    }
}

/// Shorter forms of what CI runs whole.
mod brief {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_fifth_line_of_the_corpus_runs_in_dash_what_a_rule_denies() {
        no_line_gets_round(&SHELLS[..1], 5).await;
    }
}
