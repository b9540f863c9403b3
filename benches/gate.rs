//! What the exec gate costs: one exec bare, in a sandbox without a gate, under a listener that judges and does not verify, and in a
//! sandbox with a gate; and a make of many small processes.
//!
//! All candidates take turns, so that other load on the machine slows all of them alike.
//! `cargo bench --bench gate -- [--rounds N] [--execs N] [--processes N]`

#[path = "../tests/runtime/client.rs"]
#[allow(dead_code, reason = "for tests")]
mod client;
#[path = "../tests/exec_gate/sandbox.rs"]
#[allow(dead_code, reason = "for tests")]
mod sandbox;
#[allow(dead_code, reason = "each benchmark uses its part")]
mod support;

use std::time::{Duration, Instant};

use provost_test_support::{Attack, run_outside};
use sandbox::{Gateway, Sandbox, profile};
use support::{machine, statistics::print_aim};

const PROGRAM: &str = "/bin/true";

const RULES: &str = "
[[rule]]
id = 'all'
decision = 'allow'
argv = [['true', 'make'], '**']
";

fn main() {
    if !support::asked_to_measure() {
        return;
    }
    println!("## Exec gate: `{PROGRAM}`\n");
    machine::print_facts();
    one_exec();
    many_processes();
}

/// A sandbox, and the gateway of its gate if it has one.
struct Candidate {
    sandbox: Sandbox,
    gateway: Option<Gateway>,
}

impl Candidate {
    fn without_gate() -> Self {
        let mut profile = profile();
        profile.gate.enabled = false;
        Self { sandbox: Sandbox::try_launch(profile).expect("a sandbox"), gateway: None }
    }

    fn with_gate() -> Self {
        let sandbox = Sandbox::launch();
        let gateway = sandbox.gateway(RULES);
        Self { sandbox, gateway: Some(gateway) }
    }

    fn run(&mut self, argv: &[&str]) -> String {
        match &mut self.gateway {
            Some(gateway) => self.sandbox.run_argv(gateway, argv),
            None => {
                let held = self.sandbox.start_argv(argv);
                self.sandbox.end(&held).1
            }
        }
    }
}

/// Median and 99th percentile in microseconds, as the program prints them.
fn parse(output: &str) -> [f64; 2] {
    let number = |name: &str| {
        let mut words = output.split_whitespace().skip_while(|word| *word != name);
        words.nth(1).and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {name} in {output}"))
    };
    [number("median"), number("p99")]
}

fn one_exec() {
    let rounds = support::number("rounds", 10);
    let execs = support::number("execs", 500).to_string();
    let attack = Attack::compiled("execs");
    let (mut plain, mut gated) = (Candidate::without_gate(), Candidate::with_gate());
    let programs = [&plain, &gated].map(|candidate| candidate.sandbox.place(&attack).display().to_string());
    let mut took: [Vec<[f64; 2]>; 4] = Default::default();
    for _ in 0..rounds {
        took[0].push(parse(&run_outside(&attack, &["time", &execs, PROGRAM]).1));
        took[1].push(parse(&plain.run(&[&programs[0], "time", &execs, PROGRAM])));
        took[2].push(parse(&run_outside(&attack, &["judgedtime", &execs, PROGRAM]).1));
        took[3].push(parse(&gated.run(&[&programs[1], "time", &execs, PROGRAM])));
    }
    let middle = |samples: &[[f64; 2]], which: usize| {
        let mut all: Vec<f64> = samples.iter().map(|sample| sample[which]).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let names = ["bare", "sandbox without a gate", "bare, judged and not verified", "sandbox with a gate"];
    let bare = middle(&took[0], 0);
    println!("| one `posix_spawn` and wait | median, us | p99, us | of bare |");
    println!("|---|---|---|---|");
    for (name, samples) in names.iter().zip(&took) {
        let (median, tail) = (middle(samples, 0), middle(samples, 1));
        println!("| {name} | {median:.0} | {tail:.0} | {:.2} |", median / bare);
    }
    let added = middle(&took[3], 0) - middle(&took[1], 0);
    println!("\nThe gate adds {added:.0} us to an exec at the median.\n");
    print_aim("the gate adds at most 200 µs to an exec", &format!("{added:.0} µs"), added <= 200.0);
    println!();
}

fn many_processes() {
    let count = support::number("processes", 2000);
    if !std::path::Path::new("/usr/bin/make").exists() {
        println!("SKIPPED: make is not there");
        return;
    }
    let targets: Vec<String> = (1..=count).map(|index| format!("t{index}")).collect();
    let makefile = format!("all: {}\nt%:\n\t@{PROGRAM}\n.PHONY: all\n", targets.join(" "));
    let mut candidates = [Candidate::without_gate(), Candidate::with_gate()];
    let mut took = [Vec::new(), Vec::new()];
    for _ in 0..support::number("rounds", 10).div_ceil(3) {
        for (candidate, took) in candidates.iter_mut().zip(&mut took) {
            std::fs::write(candidate.sandbox.work.path().join("Makefile"), &makefile).expect("a makefile");
            let begun = Instant::now();
            let output = candidate.run(&["/usr/bin/make", "-s", "-j2"]);
            assert_eq!(output, "", "make does its work");
            took.push(begun.elapsed());
        }
    }
    let best = |times: &[Duration]| times.iter().min().copied().unwrap_or_default().as_secs_f64();
    let (without, with) = (best(&took[0]), best(&took[1]));
    println!("| make of {count} small processes | s | ratio |");
    println!("|---|---|---|");
    println!("| without a gate | {without:.3} | 1 |");
    println!("| with a gate | {with:.3} | {:.2} |", with / without);
    let slower = (with / without - 1.0) * 100.0;
    let aim = format!("a make of {count} small processes is at most 25 % slower with the gate");
    print_aim(&aim, &format!("{slower:.0} %"), slower <= 25.0);
}
