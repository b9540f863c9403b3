//! How long a decision takes: 200 rules, a line of five commands.
//!
//! Run by `cargo bench --bench policy`. Measures the judge alone, without a host: parse, see through, match, weigh.

#[allow(dead_code, reason = "each benchmark uses its part")]
mod support;

use std::{hint::black_box, time::Instant};

use provost_policy::{
    PolicySet,
    command::{
        evaluate_rules,
        program::NominalResolver,
        rule::RequestContext,
        shell::Dialect,
        verdict::{AssignmentVerdict, CommandInput, EvalContext, Lookup, Unseen},
    },
};

use support::{machine, statistics};

const LINE: &str =
    "cd sub && git status | grep -v '^?' && env A=b timeout 5 cargo test --all > log 2>&1; tool150 -x";
const ROUNDS: usize = 20_000;

fn main() {
    if !support::asked_to_measure() {
        return;
    }
    println!("## A decision\n");
    machine::print_facts();
    let mut text = String::from("default_profile = 'a'\n[profile.a]\n");
    for number in 0..200 {
        let (decision, name) = match number {
            0 => ("allow", "git".to_owned()),
            1 => ("allow", "grep".to_owned()),
            2 => ("allow", "cargo".to_owned()),
            n => (["allow", "ask", "deny"][n % 3], format!("tool{n}")),
        };
        text += &format!(
            "[[rule]]\nid = 'r{number}'\ndecision = '{decision}'\nargv = ['{name}', ['status', 'test', '-*'], '**']\n"
        );
    }
    let policy = PolicySet::parse("bench", &text).expect("the policy of the benchmark is valid");
    let circumstances = RequestContext { cwd: "/workspace".into(), ..RequestContext::default() };
    let mut nanos: Vec<u128> = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let bench = EvalContext {
            rules: policy.rules(),
            resolver: &NominalResolver,
            request: &circumstances,
            own_profile: "a",
            lookup: Lookup::Trusted,
            unseen: Unseen::Asked,
            assignment_verdict: &|_, _| AssignmentVerdict::Allowed,
        };
        let _verdict =
            black_box(evaluate_rules(CommandInput::ShellLine(black_box(LINE), Dialect::Posix), bench));
        nanos.push(begun.elapsed().as_nanos());
    }
    nanos.sort_unstable();
    let at = |percent: usize| nanos[(ROUNDS - 1) * percent / 100] as f64 / 1_000.0;
    println!("200 rules, 5 commands: median {:.1} µs, p99 {:.1} µs, {ROUNDS} rounds", at(50), at(99));
    let aim = "200 rules and a line of 5 commands are judged in 100 µs (p99)";
    statistics::print_aim(aim, &format!("{:.1} µs", at(99)), at(99) <= 100.0);
}
